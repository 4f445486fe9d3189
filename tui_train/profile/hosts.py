"""The hosts that the user saved by name, with their addresses for ssh."""

import re

import tomli_w

from tui_train.base import ssh
from tui_train.base.errors import AlreadyExists, BadInput, NotFound
from tui_train.base.files import PRIVATE, write_beside
from tui_train.base.parse import Missing, Unparsable, read_bytes, toml_table
from tui_train.base.places import hosts_file
from tui_train.base.text import visible

_NAME = re.compile(r"[^\W_][\w.@:%+-]{0,79}|\[[\w.:%]{2,79}\]")
_MOST = 1 << 20  # bytes


def saved_hosts() -> dict[str, str]:
    """Return the address of each saved host by its name; BadInput where the file cannot be read."""
    path = hosts_file()
    try:
        found = toml_table(read_bytes(path, _MOST))
    except Missing:
        return {}
    except Unparsable as error:
        raise BadInput(f"cannot read {visible(str(path))}: {error}", "Fix it, or delete it.") from None
    wrong = next((name for name, address in found.items() if not isinstance(address, str)), None)
    if wrong is not None:
        raise BadInput(
            f"{visible(str(path))}: {visible(wrong)} is no address", f'Write {visible(wrong)} = "USER@HOST".'
        )
    return {name: str(address) for name, address in sorted(found.items())}


def address_of(name: str) -> str:
    """Return the address of a saved host; any other name is one for ssh itself."""
    return saved_hosts().get(name, name)


def add(name: str, address: str = "", *, replace: bool = False) -> None:
    """Save a host under a name, which is its address where none is given; AlreadyExists where another has the name."""
    if not _NAME.fullmatch(name):
        words = visible(name) or "an empty text"
        raise BadInput(f"{words} is no name for a host", "Use letters, digits and . @ : + - _.")
    address = address or name
    ssh.ssh_command(address)
    known = saved_hosts()
    if known.get(name, address) != address and not replace:
        raise AlreadyExists(f"{visible(name)} is {visible(known[name])}", "Use another name, or --force to replace it.")
    _write({**known, name: address})


def remove(name: str) -> None:
    """Forget a host; nothing on it or of its runs is removed."""
    known = saved_hosts()
    if name not in known:
        raise NotFound(f"no host is saved as {visible(name)}", "List them: tui-train hosts")
    _write({other: address for other, address in known.items() if other != name})


def _write(known: dict[str, str]) -> None:
    write_beside(hosts_file(), tomli_w.dumps(known), PRIVATE)
