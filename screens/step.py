"""What the steps share: the line at the top, the hint at the bottom, moving between rows and between steps."""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.reactive import reactive
from textual.widget import Widget

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.checks import Finding, check
from tui_train.facts.samples import Samples
from tui_train.facts.types import Facts
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.resolve import reach
from tui_train.resolve.resolve import Resolved, resolve
from tui_train.workflow import choices

from . import STEPS
from .base import Base
from .messages import ApplyFix, OpenStep
from .widgets.bar import StepBar
from .widgets.hint import Hint
from .widgets.keys import Keys
from .widgets.picks import Picks
from .widgets.rows import ChoiceRow, Row
from .widgets.text_row import TextRow, Unread

_TALL = frozenset(
    {"hardware.device", "trainer.kind", "trainer.launcher", "trainer.strategy", "trainer.python", "trainer.preset"}
)


def row_of(key: str) -> Row:
    """Return a new row for a field: choices where it has them, else text."""
    row = fields.field(key)
    tall = key in _TALL
    return ChoiceRow(row, tall=tall) if tall or row.options or row.kind == "switch" else TextRow(row)


class Rows(VerticalScroll, can_focus=False, inherit_bindings=False):
    """A form that scrolls with the focus and leaves the arrow keys to the screen."""


class Step(Base):
    """A step that shows the profile in rows and posts what is changed."""

    TITLE_OF_STEP: ClassVar[str] = ""
    KEYS: ClassVar[tuple[str, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Next", key_display="⏎"),
        Binding("escape", "app.back", "Back", key_display="esc"),
        Binding("f2", "fix", "Fix it"),
        Binding("ctrl+z", "app.undo", "Undo", show=False),
    ]
    SHARED = ("profile", "facts", "looking", "live")
    profile: reactive[Profile] = reactive(Profile, init=False, repaint=False)
    facts: reactive[Facts | None] = reactive(None, init=False, repaint=False)
    looking: reactive[frozenset[str]] = reactive(frozenset, init=False, repaint=False)
    live: reactive[Samples] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        """Begin with nothing found."""
        super().__init__()
        self._found: tuple[Finding, ...] = ()
        self._stale = False
        self._after: dict[str, str] = {}  # fields, and the one above each, the last first
        self._ready = False  # there are rows to fill: Textual says so only after the first picture

    def compose(self) -> ComposeResult:
        """Put the step's content between the bar, the hint and the keys."""
        yield StepBar(self.TITLE_OF_STEP)
        yield Rows(*self.content(), id="body")
        yield Hint()
        yield Keys()

    def content(self) -> Sequence[Widget]:
        """Return the step's widgets: by default a row for each key."""
        return self.rows(self.KEYS)

    def rows(self, keys: Sequence[str]) -> list[Widget]:
        """Return the first field's row, and those that apply: the others are mounted, each after one, once they do."""
        resolved = self._resolved(self.facts) if self.facts else None
        self._after.update(pairwise(reversed(keys)))
        return [row_of(key) for key in keys if key == keys[0] or choices.applies(key, self.profile, resolved)]

    def _mount_rows(self, resolved: Resolved | None) -> None:
        """Mount the rows that apply by now."""
        there = {row.field.key: row for row in self.query(Row)}
        for key in reversed(self._after):
            if key not in there and choices.applies(key, self.profile, resolved):
                before = self._after[key]
                while before not in there:
                    before = self._after[before]
                there[key] = row_of(key)
                self.query_one("#body").mount(there[key], after=there[before])

    def on_mount(self) -> None:
        """Fill the rows."""
        self._ready = True
        self.fill()

    def fill(self) -> None:
        """Show the profile and the facts for the first time."""
        self.update()

    @property
    def next_module(self) -> str:
        """The step after this one."""
        modules = [step.module for step in STEPS]
        return modules[[step.title for step in STEPS].index(self.TITLE_OF_STEP) + 1]

    def on_screen_resume(self) -> None:
        """Show what has changed while another step was on top."""
        if self._stale:
            self._changed()

    def watch_profile(self) -> None:
        """Show a changed profile."""
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
        self._found = check(self.profile, self.facts)
        resolved = self._resolved(self.facts)
        self._mount_rows(resolved)
        for row in self.query(Row):
            key = row.field.key
            row.display = choices.applies(key, self.profile, resolved)
            options = choices.options(key, self.profile, self.facts, resolved) if resolved else ()
            row.show(fields.get(self.profile, key), options, reach.why_not(key, self.profile, resolved))
        if resolved:
            self.refresh_rest(resolved)
        self.mark()

    def _resolved(self, facts: Facts) -> Resolved | None:
        try:
            return resolve(self.profile, facts)
        except BadInput:
            return None

    def refresh_rest(self, resolved: Resolved) -> None:
        """Show what a step has besides its rows."""

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with this step's fields, as far as it is known."""
        return tuple(finding for finding in self._found if finding.key in self.KEYS and not self._unknown(finding))

    def _unknown(self, finding: Finding) -> bool:
        part = {
            "trainer.python": "toolchains",
            "trainer.config": "paths",
            "container.engine": "engines",
            "container.image": "images",
        }
        return part.get(finding.key) in self.looking

    def _said(self) -> tuple[Finding, ...]:
        """Return the step's findings, and one that keeps every step from being shown in full."""
        elsewhere = set() if "trainer.preset" in self.KEYS else {"trainer.preset"}
        return (*self.findings(), *(finding for finding in self._found if finding.key in elsewhere))

    def mark(self) -> None:
        """Mark the rows that something is wrong with, and say it."""
        wrong = {finding.key: finding for finding in reversed(self.findings()) if finding.level == "error"}
        for row in self.query(Row):
            finding = wrong.get(row.field.key)
            if finding:
                row.wrong = f"{finding.message}. {finding.remedy}"
            elif not isinstance(row, TextRow) or not row.unread:
                row.wrong = ""
        self.hint()
        self.refresh_bindings()

    def hint(self) -> None:
        """Show the focused row's help, or what is wrong; else the first finding of this step."""
        focused = self.focused_row()
        said = focused.hint if focused else self.focused.hint if isinstance(self.focused, Picks) else ""
        text = Text(visible(said), "bold" if focused and focused.wrong else "")
        if not (focused and focused.wrong):
            for finding in self._said()[:1]:
                mark = "!" if finding.level == "error" else "·"
                more = "  F2 fixes it." if finding.change else ""
                text = Text(f"{mark} {finding.message}. {finding.remedy}{more}", "bold")
        elif self.fixable():
            text.append("  F2 fixes it.")
        self.query_one(Hint).say(text)

    def focused_row(self) -> Row | None:
        """Return the row in which the focus is."""
        at = self.focused
        while at is not None and not isinstance(at, Row):
            at = at.parent if isinstance(at.parent, Widget) else None
        return at

    def fixable(self) -> Finding | None:
        """Return the finding that F2 fixes: the focused row's, or the first that has a change."""
        found = [finding for finding in self._said() if finding.change]
        row = self.focused_row()
        mine = [finding for finding in found if row and finding.key == row.field.key]
        return next(iter((*mine, *found)), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """F2 shows only where it fixes something."""
        del parameters
        return action != "fix" or (self._ready and self.fixable() is not None)

    def action_fix(self) -> None:
        """Make the change that fixes the finding."""
        finding = self.fixable()
        if finding and finding.change:
            self.post_message(ApplyFix(finding.change))

    def action_next(self) -> None:
        """Go to the next step, or to what is wrong here."""
        unread = next((row for row in self.query(TextRow) if row.unread and row.display), None)
        wrong = next((finding for finding in self.findings() if finding.forbids), None)
        if unread is None and wrong is None:
            self.post_message(OpenStep(self.next_module))
            return
        self.app.bell()
        row = unread or next((found for found in self.query(Row) if wrong and found.field.key == wrong.key), None)
        if row:
            (row.entry if isinstance(row, TextRow) else row).focus()
        elif wrong:
            self.notify(visible(f"{wrong.message}. {wrong.remedy}"), severity="error", markup=False)

    def on_descendant_focus(self) -> None:
        """Say what the focused row is for."""
        self.hint()
        self.refresh_bindings()

    @on(Picks.Moved)
    def _moved(self, event: Picks.Moved) -> None:
        event.stop()
        self.hint()

    @on(Unread)
    def _unread(self, event: Unread) -> None:
        event.stop()
        self.mark()

    def help_text(self) -> Text:
        """Return what F1 shows: the step, then its fields."""
        text = Text(f"{self.about()}\n")
        resolved = self._resolved(self.facts) if self.facts else None
        for key in self.KEYS:
            row = fields.field(key)
            if choices.applies(key, self.profile, resolved):
                text.append(f"\n{row.label}", "bold").append(f"  ({key})\n  {row.help}\n")
        return text
