"""The address of a webhook, which is a secret: a file that only the user may read has it, all else names that file."""

import hashlib
import re
from pathlib import Path
from urllib.parse import urlsplit

from tui_train.base.app_paths import webhooks_folder
from tui_train.base.files import PRIVATE_FILE_MODE, write_if_absent

_ADDRESS_PATTERN = re.compile(r"https?://[^\s/?#]+\S*", re.IGNORECASE)
_VARIABLE_PATTERN = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DIGEST_LENGTH = 12


def is_webhook_address(text: str) -> bool:
    """Return whether a text is an address, and not the name of a variable or of a file."""
    return bool(_ADDRESS_PATTERN.fullmatch(text))


def is_variable_reference(text: str) -> bool:
    """Return whether a text names a variable: $NAME."""
    return bool(_VARIABLE_PATTERN.fullmatch(text))


def webhook_file_or_name(text: str) -> str:
    """Return what a profile, a plan and a script may hold: of an address its file, which `store_webhook` writes."""
    return (
        str(webhooks_folder() / f"{_safe_host_name(text)}-{_address_digest(text)}")
        if is_webhook_address(text)
        else text
    )


def store_webhook(text: str) -> str:
    """Write an address to its file, mode 0600; return what names it."""
    if is_webhook_address(text):
        write_if_absent(Path(webhook_file_or_name(text)), f"{text}\n", PRIVATE_FILE_MODE)
    return webhook_file_or_name(text)


def displayed_webhook(text: str) -> str:
    """Return what may be on a screen: the host of an address, or of one in a file of ours."""
    if is_webhook_address(text):
        return f"{_safe_host_name(text)}/…"
    path = Path(text)
    return f"{path.name.rpartition('-')[0]}/…" if path.is_absolute() and path.parent == webhooks_folder() else text


def _safe_host_name(address: str) -> str:
    try:
        host = urlsplit(address).hostname
    except ValueError:
        host = None
    return re.sub(r"[^A-Za-z0-9.-]", "_", host or "webhook")[:80]


def _address_digest(address: str) -> str:
    return hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_LENGTH]
