"""Why a run failed: the cause, the line that shows it, what to do, and the change that a key makes."""

from textual.content import Content
from textual.message import Message

from tui_train.base.text import typeset, visible
from tui_train.diagnose import Diagnosis

from .ink import FAILED, KEY, MUTED, RULE, fit, ink
from .lines import Lines

_EDGE = ("▌", "b $error")
# Lines of the cause, of the remedy, whether the line of the log and the reason of the change are there: where rows are
# few, the first that has room.
_LEVELS = ((3, 3, True, True), (2, 2, True, True), (1, 2, True, False), (1, 1, True, False), (0, 1, False, False))


class Why(Lines):
    """A panel on a ground of its own; not there while nothing is wrong."""

    class Arranged(Message):
        """It has another number of rows: what stands below it has another room."""

    def __init__(self) -> None:
        """Begin with nothing to say."""
        super().__init__(id="why")
        self.display = False
        self._said: tuple[Diagnosis, str] | None = None
        self._most = 0

    def explain(self, found: Diagnosis | None, fits: str = "") -> None:
        """Show a diagnosis, or none; `fits` are words about the memory that its change would take."""
        self.display = found is not None
        self._said = (found, fits) if found else None
        self.show(self._fitting)

    def keep_to(self, most: int) -> None:
        """Take so many rows at most, as far as the head and what F2 does fit into them; 0: as many as are needed."""
        if most != self._most:
            self._most = most
            self.show(self._fitting)

    def on_resize(self) -> None:
        """Say that its rows are known, which is only after it was laid out."""
        self.post_message(self.Arranged())

    def _fitting(self, width: int) -> list[Content]:
        if self._said is None:
            return []
        drawn: list[Content] = []
        for level in _LEVELS:
            drawn = _lines(*self._said, width, level)
            if not self._most or len(drawn) <= self._most:
                break
        return drawn


def headline(cause: str, most: int) -> tuple[str, str]:
    """Return a cause as its first clause, where that fits into so many cells, and what follows it."""
    text = visible(cause)
    ends = [at for at in (text.find(": "), text.find(". "), text.find("; ")) if at > 0]
    end = min(ends, default=len(text.rstrip(".")))
    first, rest = text[:end], text[end:].lstrip(":.; ")
    if len(first) > most:
        return "It failed", text
    return first, rest[:1].upper() + rest[1:]


def _lines(found: Diagnosis, fits: str, width: int, level: tuple[int, int, bool, bool]) -> list[Content]:
    most_cause, most_remedy, with_line, with_reason = level
    room = width - 2  # the edge, and the last column
    rank = f" on rank {found.rank}" if found.rank is not None else ""
    first, rest = headline(found.cause, room - len(rank) - 5)
    head = fit(ink((f"{FAILED[0]} {first}{rank}", "b $error")), room - 2)
    lines = [ink(head, " ", ("─" * max(0, room - head.cell_length - 1), RULE))]
    lines += _wrapped(rest, room, most_cause) if rest else []
    if found.place and with_line:
        number = f"{found.place}  "
        lines.append(ink((number, MUTED), fit(visible(found.line), room - len(number))))
    lines += _wrapped(found.remedy, room, most_remedy)
    if found.change:
        aside = Content(visible(fits))
        made = fit(ink(("F2", KEY), "  ", (typeset(found.change.title), "b")), room - aside.cell_length - 2)
        lines.append(ink(made, " " * (room - made.cell_length - aside.cell_length), aside))
        lines += [fit(ink((f"    {visible(found.change.why)}", MUTED)), room)] if with_reason else []
    return [ink(_EDGE, line) for line in lines]


def _wrapped(text: str, width: int, most: int) -> list[Content]:
    lines = Content(visible(text)).wrap(max(1, width))
    if len(lines) <= most or not most:
        return lines[:most]
    return [*lines[: most - 1], fit(ink(lines[most - 1], " ", lines[most]), width)]
