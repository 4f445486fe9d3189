"""Requests of screens to the app, which alone changes anything: each is posted upward."""

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from tui_train.base.errors import TuiTrainError
    from tui_train.checks.finding import EnvironmentInstall
    from tui_train.profile.changes import Change, Difference
    from tui_train.profile.fields import Value
    from tui_train.profile.types import Profile
    from tui_train.runs.results.result import Result
    from tui_train.runs.rundir import RunDir


class ValueChosen(Message):
    """A field has a new value."""

    def __init__(self, key: str, value: "Value", row: str = "") -> None:
        """Carry the field's key and its value; `row` is the one in which it was chosen, where that is a part of it."""
        super().__init__()
        self.key = key
        self.value = value
        self.row = row or key


class ApplyFix(Message):
    """A change is to be made, and said, or an environment."""

    def __init__(self, fix: "Change | EnvironmentInstall") -> None:
        """Carry what is to be made."""
        super().__init__()
        self.fix = fix


class Undo(Message):
    """The last change of the profile is to be taken back."""


class Undone(Message):
    """A change was taken back: what differs now; nothing where there was none."""

    def __init__(self, changes: "tuple[Difference, ...]") -> None:
        """Carry what differs."""
        super().__init__()
        self.changes = changes


class SetProfile(Message):
    """The profile is to be another one; its values are the last ones from then on, unless they are not kept."""

    def __init__(self, profile: "Profile", *, keep: bool = True, saved: bool = False) -> None:
        """Carry the profile, and whether it was saved under its name."""
        super().__init__()
        self.profile = profile
        self.keep = keep
        self.saved = saved


class StartOver(Message):
    """The profile is to be the last one of this session, or of the session before."""


class OpenStep(Message):
    """A step is to be opened, by its module's name."""

    def __init__(self, module: str, opener: object = None) -> None:
        """Carry the name, and the screen that is only to open it while it is on top."""
        super().__init__()
        self.module = module
        self.opener = opener


class GoToStep(Message):
    """A step is to be shown that may be open already, by its module's name."""

    def __init__(self, module: str) -> None:
        """Carry the name."""
        super().__init__()
        self.module = module


class OpenData(Message):
    """Request to show what the training data holds."""


class OpenRun(Message):
    """A run is to be shown, and something said of it there."""

    def __init__(self, run: "RunDir", notice: str = "") -> None:
        """Carry the run, and what is said."""
        super().__init__()
        self.run = run
        self.notice = notice


class OpenResult(Message):
    """Request to show what a run made."""

    def __init__(self, run: "RunDir", result: "Result") -> None:
        """Carry the run and its result."""
        super().__init__()
        self.run = run
        self.result = result


class TryResult(Message):
    """Request to try what a run made, beside its base model where that is to `compare`."""

    def __init__(self, run: "RunDir", *, compare: bool) -> None:
        """Carry the run."""
        super().__init__()
        self.run = run
        self.compare = compare


class CompareRuns(Message):
    """Runs are to be shown side by side, in this order."""

    def __init__(self, runs: "tuple[RunDir, ...]") -> None:
        """Carry the runs."""
        super().__init__()
        self.runs = runs


class ScreenShown(Message):
    """A screen is on top now; a live one wants to know what the cards do."""

    def __init__(self, *, live: bool) -> None:
        """Carry whether it does."""
        super().__init__()
        self.live = live


class AskScript(Message):
    """The user asks that the script is run for its --help."""


class GoBack(Message):
    """The screen is to be closed, and something said on the one before."""

    def __init__(self, notice: str = "") -> None:
        """Carry what is said."""
        super().__init__()
        self.notice = notice


class LeaveWizard(Message):
    """The wizard is to be left, without more questions."""


class AskRecipes(Message):
    """A Python is to be asked which NeMo recipes it has."""

    def __init__(self, python: str, flavour: str | None) -> None:
        """Carry the path of the Python, and which NeMo is asked there."""
        super().__init__()
        self.python = python
        self.flavour = flavour


class ErrorToShow(Message):
    """An error is to be shown with its remedy."""

    def __init__(self, error: "TuiTrainError") -> None:
        """Carry the error."""
        super().__init__()
        self.error = error
