"""What two trainings cannot both have: cards, an output folder, a port."""

import errno
import os
import socket
from contextlib import ExitStack

from tui_train.base.text import counted, visible
from tui_train.facts.types import Taken

_ANY = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))  # noqa: S104 - bound to see whether it is free


def clash(mine: Taken, other: Taken) -> str:
    """Return what another one has of what is wanted, in words; empty where they can run side by side."""
    who = f"the run {visible(other.run)}" if other.run else "another program"
    shared = [uuid for uuid in mine.gpus if uuid in other.gpus]
    if shared:
        return f"{who} trains on {counted(len(shared), 'card')} of these already"
    if output := next((path for path in mine.outputs if path in other.outputs), ""):
        return f"{who} writes to {visible(output)} already"
    return f"{who} has port {mine.port} of this machine" if mine.port and mine.port == other.port else ""


def spelled(path: str) -> tuple[str, ...]:
    """Return a folder's path as it is written, without needless slashes and dots; nothing for no folder."""
    return (os.path.normpath(path),) if path else ()


def spellings(path: str) -> tuple[str, ...]:
    """Return a folder's path as it is written, and as it is when all links are followed; nothing for no folder."""
    return tuple(dict.fromkeys((*spelled(path), os.path.realpath(path)))) if path else ()


def busy(port: int) -> bool:
    """Tell whether somebody listens at a port of this machine; one that may not be listened at is not busy."""
    with ExitStack() as stack:
        for family, address in _ANY:
            try:
                listener = stack.enter_context(socket.socket(family))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            except OSError:
                continue  # there is no such family here
            try:
                listener.bind((address, port))
                listener.listen(1)
            except PermissionError:
                return False
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False
