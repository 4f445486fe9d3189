"""Commands in remedies for another host: what is typed here is to work there."""

import re
import shlex

_CREATE_COMMAND_PATTERN = re.compile(r"tui-train env create [\w-]+")
# What is installed by a command there is typed on that host, whatever Python of this machine has the same path.
_INSTALL_THERE_PATTERN = re.compile(r"\b(?:install|update) (?:it|them) there\b", re.IGNORECASE)


def text_for_host(text: str, host: str) -> str:
    """Return a text whose commands install nothing on this machine where it is about a host (empty: this machine)."""
    if not host:
        return text
    name = shlex.quote(host)
    text = _CREATE_COMMAND_PATTERN.sub(lambda found: f"{found[0]} --on {name}", text)
    return _INSTALL_THERE_PATTERN.sub(lambda found: f"{found[0]} (ssh {name})", text)
