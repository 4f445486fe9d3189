"""Progress of an installation, read from the lines that uv or pip print."""

import re

from msgspec import Struct

from tui_train.base.text import size_text, visible

_BYTES_BY_UNIT = {"b": 1, "k": 10**3, "ki": 2**10, "m": 10**6, "mi": 2**20, "g": 10**9, "gi": 2**30}
# "Downloading torch (506.5MiB)" of uv, "  Downloading torch-2.13.0-….whl (865.2 MB)" of pip.
_DOWNLOAD_BEGIN_PATTERN = re.compile(r"\s*Downloading (\S+) \(([\d.]+) ?([KMG]i?)?B\)")
_DOWNLOAD_END_PATTERN = re.compile(r"\s*Downloaded (\S+)")
_STEP_LINE_PATTERN = re.compile(
    r"\s*(?:Resolved|Prepared|Installed|Installing|Bytecode|Successfully installed|Collecting)\b"
)
_UV_INSTALLED_PATTERN = re.compile(r"Installed \d+ package")
_NETWORK_ERROR_TEXTS = (
    "lookup address", "name resolution", "dns error", "network is unreachable", "connection refused",
    "connection reset", "timed out", "error sending request", "failed to fetch", "newconnectionerror",
    "no route to host",
)  # fmt: skip
_DISK_FULL_TEXTS = ("no space left", "os error 28", "disk quota exceeded")
_ADDRESS_PATTERN = re.compile(r"https?://([^/\s@]*@)?([\w.:-]+)")
_ERROR_LINE_PATTERN = re.compile(r"(?:error|× |╰─▶|caused? by)", re.IGNORECASE)


class InstallProgress(Struct, frozen=True):
    """Current action in words, and the downloads: bytes that are there, and bytes of all that have begun."""

    text: str = ""
    downloaded: int = 0
    total: int = 0


class InstallOutputReader:
    """Reads the lines of the steps of an installation."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._sizes: dict[str, int] = {}
        self._open: set[str] = set()
        self._words = ""

    def begin_step(self, step_text: str) -> InstallProgress:
        """Return what is done where a step begins."""
        self._words = step_text
        self._open.clear()
        return self.read_line("")

    def read_line(self, line: str) -> InstallProgress:
        """Return what is done after a line."""
        if begins := _DOWNLOAD_BEGIN_PATTERN.match(line):
            name, amount, unit = begins.groups()
            if name.endswith((".whl", ".gz", ".zip")):
                self._open.clear()  # pip downloads one after another
            self._sizes[name] = int(float(amount) * _BYTES_BY_UNIT[(unit or "b").lower()])
            self._open.add(name)
        elif ends := _DOWNLOAD_END_PATTERN.match(line):
            self._open.discard(ends[1])
        elif _STEP_LINE_PATTERN.match(line):
            self._open.clear()
            # uv compiles then, without a word.
            self._words = visible(line.strip()) + (", compiling them …" if _UV_INSTALLED_PATTERN.match(line) else "")
        total = sum(self._sizes.values())
        done = total - sum(self._sizes[name] for name in self._open)
        words = self._words
        if self._open:
            largest = max(self._open, key=self._sizes.__getitem__)
            words = f"Downloading {visible(largest)} ({size_text(self._sizes[largest])})"
        return InstallProgress(words, done, total)


def is_index_unreachable(lines: list[str]) -> bool:
    """Return whether the last lines of an installation say that its package index cannot be reached."""
    text = "\n".join(lines).lower()
    return any(words in text for words in _NETWORK_ERROR_TEXTS)


def why_install_failed_and_remedy(lines: list[str]) -> tuple[str, str]:
    """Return from the last lines of an installation why it failed, and what to do."""
    text = "\n".join(lines).lower()
    if any(words in text for words in _DISK_FULL_TEXTS):
        return "the disk is full", "Free some space."
    if is_index_unreachable(lines):
        hosts = [found[2] for line in lines for found in _ADDRESS_PATTERN.finditer(line)]
        host = visible(hosts[-1]) if hosts else "the package index"
        return f"{host} cannot be reached", (
            "Check the network, or set an index that can be reached: TUI_TRAIN_INDEX=URL, or none for pip's own."
        )
    errors = [line.strip() for line in lines if _ERROR_LINE_PATTERN.search(line)] or [
        line.strip() for line in lines if line.strip()
    ]
    return visible(errors[-1])[:300] if errors else "it printed no reason", "See its last lines above."
