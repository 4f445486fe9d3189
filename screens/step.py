"""What the steps share: the rail, the form, the hint and the keys, and moving between rows and between steps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widget import Widget

from tui_train.base.text import visible
from tui_train.checks import check
from tui_train.memory.length import set_up
from tui_train.profile import fields
from tui_train.resolve.setup import Setup
from tui_train.trainers import field_of, trainer_of
from tui_train.workflow import choices

from . import STEPS
from .messages import OpenData, OpenStep
from .step_findings import WithFindings
from .step_rows import Section, row_of
from .widgets.bar import StepBar
from .widgets.form import Form
from .widgets.form_lines import FormRow, Group
from .widgets.hint import Hint
from .widgets.keys import Keys
from .widgets.picks import Picks
from .widgets.side import Side

_TALL = 34  # rows from which on all is shown
ADVANCED = "advanced"


class Rows(VerticalScroll, can_focus=False, inherit_bindings=False):
    """A form that scrolls with the focus and leaves the arrow keys to the screen."""


class Step(WithFindings):
    """A step that shows the profile in a form and posts what is changed."""

    TITLE_OF_STEP: ClassVar[str] = ""
    # Fields that always show what each of their values is.
    STAND_OPEN: ClassVar[frozenset[str]] = frozenset()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Next", key_display="Enter"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("f2", "fix", "Fix it"),
        Binding("f5", "data", "Look at data"),
        Binding("ctrl+z", "app.undo", "Undo", show=False),
    ]

    def __init__(self) -> None:
        """Begin with nothing shown."""
        super().__init__()
        self._stale = False
        self._invalid_field_shown = ""  # the row whose text could not be read when the rest was shown
        self._setup: Setup | None = None

    def compose(self) -> ComposeResult:
        """Put the step's content between the rail, the hint and the keys."""
        yield StepBar(self.TITLE_OF_STEP)
        yield from self.above()
        with Horizontal(id="middle"):
            yield Rows(*self.content(), id="body")
            yield Side()
        yield Hint()
        yield Keys()

    def above(self) -> Iterable[Widget]:
        """Return what stays above the form while it scrolls."""
        return ()

    def content(self) -> Sequence[Widget]:
        """Return the step's widgets: by default its form."""
        return [Form()]

    def on_mount(self) -> None:
        """Fill the form; where there are rows to spare, its seldom used part is open."""
        self._ready = True
        if self.app.size.height >= _TALL:
            for form in self.query(Form):
                form.unfolded |= {ADVANCED}
        self.fill()

    def fill(self) -> None:
        """Show the profile and the facts for the first time."""
        self.update()

    @property
    def next_module(self) -> str:
        """The step after this one; IndexError for the last."""
        return STEPS[self._number() + 1].module

    @property
    def module_before(self) -> str:
        """The step before this one; empty for the first."""
        return STEPS[self._number() - 1].module if self._number() else ""

    @property
    def place(self) -> str:
        """The number and the name of this step."""
        return f"{self._number() + 1} {self.TITLE_OF_STEP}"

    def _number(self) -> int:
        return [step.title for step in STEPS].index(self.TITLE_OF_STEP)

    def on_screen_resume(self) -> None:
        """Show what has changed while another step was on top."""
        if self._stale:
            self._changed()

    def watch_profile(self) -> None:
        """Show a changed profile."""
        self._undone = ""
        self._changed()

    def watch_looking(self) -> None:
        """Show that the look at the machine is over, or begins again."""
        self._changed()

    def watch_facts(self) -> None:
        """Show changed facts."""
        self._changed()

    def _changed(self) -> None:
        """Update the step that is seen; the others are when they are seen again."""
        steps = [screen for screen in self.app.screen_stack if isinstance(screen, Step)]
        self._stale = bool(steps) and steps[-1] is not self
        if not self._stale:
            self.update()

    def update(self) -> None:
        """Show the profile and the facts as they are now."""
        if not self._ready or self.facts is None:
            return
        setup = self.setup
        self._found = check(setup or set_up(self.profile, self.facts))
        self.form.names_in = self.names_in
        self.form.show(tuple(self._groups(setup)))
        self._invalid_field_shown = self.form.unread_label
        if setup:
            self.refresh_rest(setup)
            self.query_one(Side).show(setup, self._found, self._invalid_field_shown)
        steps = [screen for screen in self.app.screen_stack if isinstance(screen, Step)]
        forbidding = [finding for finding in self._found if finding.forbids]
        wrong = {screen.TITLE_OF_STEP.lower() for screen in steps if any(map(screen.owns, forbidding))}
        self.query_one(StepBar).mark(frozenset(wrong))
        self.hint()
        self.refresh_bindings()

    @property
    def setup(self) -> Setup | None:
        """What follows from the profile and the facts; None where that cannot be said."""
        known = self._setup
        # The keys alone ask for it a hundred times while a step opens.
        if self.facts and (known is None or known.profile is not self.profile or known.facts is not self.facts):
            self._setup = known = set_up(self.profile, self.facts)
        return known if known and not known.problem else None

    # The form

    def _groups(self, setup: Setup | None) -> Iterable[Group]:
        # What follows from values is not said while one of them cannot be read.
        said = setup if setup and not self.form.unread else None
        notes, below = (self.notes(said), self.below(said)) if said else ({}, {})
        # Of several the first, an error before a warning.
        found = tuple(reversed(self.findings()))
        wrong = {finding.key: finding for level in ("warning", "error") for finding in found if finding.level == level}
        for section in self.SECTIONS:
            rows = tuple(
                replace(
                    row_of(key, self.profile, setup, note=notes.get(key, ""), finding=wrong.get(key)),
                    stands_open=key in self.STAND_OPEN,
                    below=below.get(key, ""),
                )
                for key in section.keys
                if choices.applies(key, setup or self.profile)
            )
            if rows or section.folds:
                yield self.group(section, rows, setup)

    def group(self, section: Section, rows: tuple[FormRow, ...], setup: Setup | None) -> Group:
        """Return a section with its rows; a folded one says how many of its values were chosen."""
        del setup
        chosen = set(fields.chosen_keys(self.profile))
        changed = sum(row.key in chosen for row in rows)
        value = f"{changed} of {len(rows)} set" if section.folds and rows else ""
        note = section.note or (", ".join(within(row.field.label) for row in rows) if section.folds else "")
        hint = section.hint or "Settings that are seldom needed. Space opens and closes them."
        return Group(
            title=section.title, rows=rows, note=note, folds=section.folds, value=value, key=section.key, hint=hint
        )

    def notes(self, setup: Setup) -> Mapping[str, str]:
        """Return what stands beside values, by key."""
        del setup
        return {}

    def below(self, setup: Setup) -> Mapping[str, str]:
        """Return what stands in a line under fields, by key."""
        del setup
        return {}

    def refresh_rest(self, setup: Setup) -> None:
        """Show what a step has besides its form."""

    # Moving on

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """F5 shows where there is data to look at."""
        if action == "data":
            return trainer_of(self.profile).wants_data and bool(self.profile.trainer.data)
        return super().check_action(action, parameters)

    def action_data(self) -> None:
        """Show what the data holds."""
        self.post_message(OpenData())

    def action_next(self) -> None:
        """Go to the next step, or to what is wrong here: first in the row that the cursor is in."""
        form = self.form
        here = form.cursor if form.is_in else ""
        forbidding = [finding for finding in self.findings() if finding.forbids]
        wrong = min(forbidding, key=lambda finding: finding.row != here, default=None)
        if not form.unread and wrong is None:
            self.post_message(OpenStep(self.next_module))
            return
        self.app.bell()
        key = form.unread or (wrong.row if wrong else "")
        if any(row.key == key for row in form.rows):
            form.go(key)
        elif wrong:
            self.notify(visible(f"{wrong.message}. {wrong.remedy}"), severity="error", markup=False)

    def on_descendant_focus(self) -> None:
        """Say what the focused row is for."""
        self.hint()
        self.refresh_bindings()

    @on(Picks.Moved)
    @on(Form.Moved)
    def _moved(self, event: Picks.Moved | Form.Moved) -> None:
        event.stop()
        self._undone = ""
        form = next(iter(self.query(Form)), None)
        if form and form.unread_label != self._invalid_field_shown:
            self.update()
        self.hint()
        self.refresh_bindings()

    def explained(self) -> Iterable[tuple[str, str, str]]:
        """Return the fields that this step shows now."""
        setup = self.setup
        rows = (field_of(key, self.profile) for key in self.keys() if choices.applies(key, setup or self.profile))
        return [(row.label, row.key, row.help) for row in rows]


def within(label: str) -> str:
    """Return a label as it stands within a line: `Log level`, but `TensorBoard` and `LR scaling`, begin as they are."""
    return label if any(letter.isupper() for letter in label[1:].partition(" ")[0]) else label[:1].lower() + label[1:]
