"""The list of runs and profiles on Home: which of them is under the cursor, which are marked."""

from typing import TYPE_CHECKING

from tui_train.base.text import visible

from ..base import Base
from .row_list import RowList

if TYPE_CHECKING:
    from tui_train.views.profile_cards import ProfileCard
    from tui_train.views.run_digest import Digest

MAX_NAMED = 3


class HomeList(Base):
    """A screen with a list of runs and profiles, by key."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__()
        self.runs: dict[str, Digest] = {}
        self.profiles: dict[str, ProfileCard] = {}
        self.marked: frozenset[str] = frozenset()
        self.next_cursor = ""  # the row to which the cursor goes as soon as it is listed

    def refresh_list(self) -> None:
        """Read again."""
        raise NotImplementedError

    @property
    def row_list(self) -> RowList:
        """The list."""
        raise NotImplementedError

    @property
    def run_at_cursor(self) -> "Digest | None":
        """The run in which the cursor is."""
        return self.runs.get(self.row_list.cursor) if self.is_mounted else None

    @property
    def profile_at_cursor(self) -> str:
        """The name of the profile in which the cursor is; empty for none."""
        card = self.profiles.get(self.row_list.cursor) if self.is_mounted else None
        return card.name if card else ""

    @property
    def chosen_runs(self) -> "tuple[Digest, ...]":
        """The runs that Delete, Note, Stop and Compare take: the marked ones, or the one in which the cursor is."""
        if not self.is_mounted:
            return ()
        here = self.run_at_cursor
        marked = tuple(self.runs[key] for key in self.runs if key in self.marked) if self.marked else ()
        return marked or ((here,) if here else ())

    def show_marks(self) -> None:
        """Draw what is marked."""
        raise NotImplementedError


def runs_text(runs: "tuple[Digest, ...]") -> str:
    """Return runs in words: one by its id, several by their number and the names of the first."""
    names = ", ".join(visible(each.run.label) for each in runs[:MAX_NAMED])
    more = f" and {len(runs) - MAX_NAMED} more" if len(runs) > MAX_NAMED else ""
    return f"the run {visible(runs[0].run.name)}" if len(runs) == 1 else f"the {len(runs)} marked runs ({names}{more})"
