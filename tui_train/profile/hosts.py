"""The hosts that the user saved by name, with their addresses for ssh."""

import re

import tomli_w

from tui_train.base.app_paths import hosts_file
from tui_train.base.errors import AlreadyExists, BadInput, NotFound
from tui_train.base.files import PRIVATE_FILE_MODE, write_atomically
from tui_train.base.parse import MissingFile, Unparsable, parse_toml_table, read_file_to_parse
from tui_train.base.text import visible
from tui_train.channel import ssh

_HOST_NAME_PATTERN = re.compile(r"[^\W_][\w.@:%+-]{0,79}|\[[\w.:%]{2,79}\]")
_MAX_HOSTS_FILE_BYTES = 1 << 20  # bytes


def address_by_saved_host() -> dict[str, str]:
    """Return the address of each saved host by its name; BadInput where the file cannot be read."""
    path = hosts_file()
    try:
        addresses = parse_toml_table(read_file_to_parse(path, _MAX_HOSTS_FILE_BYTES))
    except MissingFile:
        return {}
    except Unparsable as error:
        raise BadInput(f"cannot read {visible(str(path))}: {error}", "Fix it, or delete it.") from None
    # Without a name it would be this machine.
    invalid_name = next(
        (name for name, address in addresses.items() if not (isinstance(address, str) and address)), None
    )
    if invalid_name is not None:
        raise BadInput(
            f"{visible(str(path))}: {visible(invalid_name)} is no address",
            f'Write {visible(invalid_name)} = "USER@HOST".',
        )
    return {name: str(address) for name, address in sorted(addresses.items())}


def host_address(name: str) -> str:
    """Return the address of a saved host; any other name is one for ssh itself, an empty one is this machine."""
    return address_by_saved_host().get(name, name) if name else ""


def save_host(name: str, address: str = "", *, may_replace: bool = False) -> None:
    """Save a host under a name, which is its address where none is given; AlreadyExists where another has the name."""
    _write_hosts(saved_hosts_with_added(name, address, may_replace=may_replace))


def saved_hosts_with_added(name: str, address: str, *, may_replace: bool) -> dict[str, str]:
    """Return the saved hosts and one more; the errors are those of `save_host`."""
    if not _HOST_NAME_PATTERN.fullmatch(name):
        words = visible(name) or "an empty text"
        raise BadInput(f"{words} is no name for a host", "Use letters, digits and . @ : + - _.")
    address = address or name
    ssh.require_host_name(address)
    saved = address_by_saved_host()
    if saved.get(name, address) != address and not may_replace:
        raise AlreadyExists(f"{visible(name)} is {visible(saved[name])}", "Use another name, or --force to replace it.")
    return {**saved, name: address}


def remove_host(name: str) -> None:
    """Forget a host; nothing on it or of its runs is removed."""
    _write_hosts(saved_hosts_without(name))


def saved_hosts_without(name: str) -> dict[str, str]:
    """Return the other saved hosts; NotFound where there is none of that name."""
    saved = address_by_saved_host()
    if name not in saved:
        raise NotFound(f"no host is saved as {visible(name)}", "List them: tui-train hosts")
    return {other: address for other, address in saved.items() if other != name}


def _write_hosts(saved: dict[str, str]) -> None:
    write_atomically(hosts_file(), tomli_w.dumps(saved), PRIVATE_FILE_MODE)
