"""Resources that two trainings cannot share: GPUs, an output folder, a port."""

import errno
import os
import socket
from contextlib import ExitStack

from tui_train.base.text import counted, visible
from tui_train.facts.types import ResourcesInUse

_WILDCARD_ADDRESSES = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))  # noqa: S104 - bound to see whether it is free


def resource_conflict(wanted: ResourcesInUse, other: ResourcesInUse) -> str:
    """Return which wanted resource another run uses, as text; empty if both can run."""
    owner = f"the run {visible(other.run)}" if other.run else "another program"
    shared = [uuid for uuid in wanted.gpus if uuid in other.gpus]
    if shared:
        return f"{owner} is already training on {counted(len(shared), 'GPU')} of these"
    if output := next((path for path in wanted.outputs if path in other.outputs), ""):
        return f"{owner} is already writing to {visible(output)}"
    return f"{owner} uses port {wanted.port} of this machine" if wanted.port and wanted.port == other.port else ""


def normalized_path_as_tuple(path: str) -> tuple[str, ...]:
    """Return a folder's normalized path; nothing for an empty one."""
    return (os.path.normpath(path),) if path else ()


def path_spellings(path: str) -> tuple[str, ...]:
    """Return a folder's normalized path and its real path; nothing for an empty one."""
    return tuple(dict.fromkeys((*normalized_path_as_tuple(path), os.path.realpath(path)))) if path else ()


def port_in_use(port: int) -> bool:
    """Return whether a process listens on a port of this machine; a port without permission is not busy."""
    with ExitStack() as stack:
        for family, address in _WILDCARD_ADDRESSES:
            try:
                listener = stack.enter_context(socket.socket(family))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            except OSError:
                continue  # this machine has no such address family
            try:
                listener.bind((address, port))
                listener.listen(1)
            except PermissionError:
                return False
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False
