"""Resources that two trainings cannot share: GPUs, an output folder, a port."""

import errno
import os
import socket
from contextlib import ExitStack

from tui_train.base.text import quantity, visible
from tui_train.facts.types import ResourcesInUse

_WILDCARD_ADDRESSES = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))  # noqa: S104 - bound to see whether it is free


def resource_conflict_text(wanted_resources: ResourcesInUse, other_resources: ResourcesInUse) -> str:
    """Return which wanted resource another run uses, as text; empty if both can run."""
    owner = f"the run {visible(other_resources.run)}" if other_resources.run else "another program"
    shared = [uuid for uuid in wanted_resources.gpus if uuid in other_resources.gpus]
    if shared:
        return f"{owner} is already training on {quantity(len(shared), 'GPU')} of these"
    if output := next((path for path in wanted_resources.outputs if path in other_resources.outputs), ""):
        return f"{owner} is already writing to {visible(output)}"
    if wanted_resources.port and wanted_resources.port == other_resources.port:
        return f"{owner} uses port {wanted_resources.port} already"
    return ""


def normalized_path_as_tuple(path: str) -> tuple[str, ...]:
    """Return a folder's normalized path; nothing for an empty one."""
    return (os.path.normpath(path),) if path else ()


def path_and_real_path(path: str) -> tuple[str, ...]:
    """Return a folder's normalized path and its real path; nothing for an empty one."""
    return tuple(dict.fromkeys((*normalized_path_as_tuple(path), os.path.realpath(path)))) if path else ()


def is_port_in_use(port: int) -> bool:
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
