"""Requests of screens to the app, which alone changes anything: each is posted upward.

They are not compared: the methods for it, which a dataclass makes as it is imported, would hold the first picture up.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from textual.screen import Screen

    from tui_train.checks.finding import EnvironmentInstall
    from tui_train.profile.changes import Change, ValueDifference
    from tui_train.profile.fields import FieldValue
    from tui_train.profile.types import Profile
    from tui_train.runs.run_folders import RunFolder

TYPING_PAUSE_SECONDS = 0.7  # seconds without a key, after which what was typed is taken as whole


@dataclass(eq=False, repr=False)
class ValueChosen(Message):
    """A field has a new value; `row` is the one in which it was chosen, where that is a part of the field."""

    key: str
    value: "FieldValue"
    row: str = ""


@dataclass(eq=False, repr=False)
class ApplyFix(Message):
    """A change is to be made, and said, or an environment."""

    fix: "Change | EnvironmentInstall"


class UndoChange(Message):
    """The last change of the profile is to be taken back."""


@dataclass(eq=False, repr=False)
class ChangeUndone(Message):
    """A change was taken back: what differs now; nothing where there was none."""

    changes: "tuple[ValueDifference, ...]"


@dataclass(eq=False, repr=False)
class SetProfile(Message):
    """The profile is to be another one; its values are the last ones from then on, unless they are not kept."""

    profile: "Profile"
    save_as_draft: bool = True
    is_saved: bool = False
    run: "RunFolder | None" = None  # whose profile it is


class ContinueDraft(Message):
    """The profile is to be the last one of this session, or of the session before, and shown where it was left."""


@dataclass(eq=False, repr=False)
class OpenStep(Message):
    """A step is to be opened, by its module's name, and something said on it.

    Nothing is where another screen lies over its `opener`.
    """

    module: str
    opener: "Screen[Any] | None" = None
    notice: str = ""


@dataclass(eq=False, repr=False)
class GoToStep(Message):
    """A step is to be shown that may be open already, by its module's name."""

    module: str


@dataclass(eq=False, repr=False)
class OpenScreen(Message):
    """A screen is to be shown, unless one of its kind is on top: its key may have been pressed twice."""

    screen: "Screen[Any]"


@dataclass(eq=False, repr=False)
class OpenRun(Message):
    """A run is to be shown, and something said of it there."""

    run: "RunFolder"
    notice: str = ""


@dataclass(eq=False, repr=False)
class OpenEvaluation(Message):
    """Request to score what a run made beside its base model."""

    run: "RunFolder"


@dataclass(eq=False, repr=False)
class CompareRuns(Message):
    """Runs are to be shown side by side, in this order."""

    runs: "tuple[RunFolder, ...]"


class HomeDrawn(Message):
    """Home's first picture is drawn: what would have held that up can begin."""


class QueryScriptHelp(Message):
    """The user asks that the script is run for its --help."""


@dataclass(eq=False, repr=False)
class GoBack(Message):
    """The screen is to be closed, and something said on the one before."""

    notice: str = ""


@dataclass(eq=False, repr=False)
class LeaveWizard(Message):
    """The wizard is to be left, without more questions, and something said in the terminal."""

    last_words: str = ""


@dataclass(eq=False, repr=False)
class QueryRecipes(Message):
    """A Python is to be asked which NeMo recipes it has."""

    python: str
    flavour: str | None
