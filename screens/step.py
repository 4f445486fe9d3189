"""What the steps share: the rail, the form, the hint and the keys, and moving between rows and between steps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.checks import Finding, check
from tui_train.facts.samples import Samples
from tui_train.facts.types import Facts
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import Resolved, resolve
from tui_train.workflow import choices

from . import STEPS
from .base import Base
from .messages import ApplyFix, OpenStep
from .step_rows import Section, row_of
from .widgets.bar import StepBar
from .widgets.form import Form
from .widgets.form_lines import FormRow, Group
from .widgets.hint import Hint
from .widgets.ink import KEY, ink
from .widgets.keys import Keys
from .widgets.picks import Picks
from .widgets.side import Side

_TALL = 34  # rows from which on all is shown
ADVANCED = "advanced"


class Rows(VerticalScroll, can_focus=False, inherit_bindings=False):
    """A form that scrolls with the focus and leaves the arrow keys to the screen."""


class Step(Base):
    """A step that shows the profile in a form and posts what is changed."""

    TITLE_OF_STEP: ClassVar[str] = ""
    SECTIONS: ClassVar[tuple[Section, ...]] = ()
    # Fields that always show what each of their values is.
    STAND_OPEN: ClassVar[frozenset[str]] = frozenset()
    MORE_KEYS: ClassVar[tuple[str, ...]] = ()  # fields of this step that are not in its form
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Next", key_display="Enter"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
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
        self._ready = False  # there are rows to fill: Textual says so only after the first picture

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

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return all fields of this step."""
        return (*(key for section in cls.SECTIONS for key in section.keys), *cls.MORE_KEYS)

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
    def form(self) -> Form:
        """The form."""
        return self.query_one(Form)

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
        resolved = self.resolved
        self.form.show(tuple(self._groups(resolved)))
        if resolved:
            self.refresh_rest(resolved)
            self.query_one(Side).show(self.profile, self.facts, resolved, self._found)
        steps = [screen for screen in self.app.screen_stack if isinstance(screen, Step)]
        forbidding = {finding.key for finding in self._found if finding.forbids}
        wrong = {screen.TITLE_OF_STEP.lower() for screen in steps if forbidding & {*screen.keys()}}
        self.query_one(StepBar).mark(frozenset(wrong))
        self.hint()
        self.refresh_bindings()

    @property
    def resolved(self) -> Resolved | None:
        """What follows from the profile and the facts; None where that cannot be said."""
        if self.facts is None:
            return None
        try:
            return resolve(self.profile, self.facts)
        except BadInput:
            return None

    # The form

    def _groups(self, resolved: Resolved | None) -> Iterable[Group]:
        notes = self.notes(resolved) if resolved else {}
        wrong = {finding.key: finding for finding in reversed(self.findings()) if finding.level == "error"}
        for section in self.SECTIONS:
            rows = tuple(
                replace(
                    row_of(key, self.profile, self.facts, resolved, note=notes.get(key, ""), finding=wrong.get(key)),
                    stands_open=key in self.STAND_OPEN,
                )
                for key in section.keys
                if choices.applies(key, self.profile, resolved)
            )
            if rows or section.folds:
                yield self.group(section, rows, resolved)

    def group(self, section: Section, rows: tuple[FormRow, ...], resolved: Resolved | None) -> Group:
        """Return a section with its rows; a folded one says how many of its values were chosen."""
        del resolved
        chosen = set(fields.chosen(self.profile))
        changed = sum(row.key in chosen for row in rows)
        value = f"{changed} of {len(rows)} set" if section.folds and rows else ""
        note = section.note or (", ".join(row.field.label.lower() for row in rows) if section.folds else "")
        hint = section.hint or "Settings that are seldom needed. Space opens and closes them."
        return Group(
            title=section.title, rows=rows, note=note, folds=section.folds, value=value, key=section.key, hint=hint
        )

    def notes(self, resolved: Resolved) -> Mapping[str, str]:
        """Return what stands beside values, by key."""
        del resolved
        return {}

    def refresh_rest(self, resolved: Resolved) -> None:
        """Show what a step has besides its form."""

    # What is wrong

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with this step's fields, as far as it is known."""
        mine = self.keys()
        return tuple(finding for finding in self._found if finding.key in mine and not self._unknown(finding))

    def _unknown(self, finding: Finding) -> bool:
        part = {
            "trainer.python": "toolchains",
            "trainer.config": "paths",
            "container.engine": "engines",
            "container.image": "images",
        }
        return part.get(finding.key) in self.looking

    def _shown_findings(self) -> tuple[Finding, ...]:
        """Return the step's findings, and one that keeps every step from being shown in full."""
        elsewhere = set() if "trainer.preset" in self.keys() else {"trainer.preset"}
        return (*self.findings(), *(finding for finding in self._found if finding.key in elsewhere))

    def hint(self) -> None:
        """Show the focused row's help, or what is wrong with it; else the first finding of this step."""
        form = next(iter(self.query(Form)), None)
        in_form = form is not None and form.is_in
        if in_form and form is not None and (form.wrong or form.chooses):
            self.query_one(Hint).say(ink((visible(form.hint), "")))
            return
        found = self._shown_findings()
        if found:
            finding = found[0]
            mark = ("✗", "$error") if finding.forbids else ("!", "$warning")
            fix = ink("  ", ("F2", KEY), " fixes it.") if finding.change else Content()
            self.query_one(Hint).say(ink(mark, f" {visible(finding.message)}. {visible(finding.remedy)}", fix))
            return
        words = form.hint if in_form and form else self.focused.hint if isinstance(self.focused, Picks) else ""
        self.query_one(Hint).say(Content(visible(words)))

    def fixable(self) -> Finding | None:
        """Return the finding that F2 fixes: the focused row's, or the first that has a change."""
        found = [finding for finding in self._shown_findings() if finding.change]
        form = next(iter(self.query(Form)), None)
        mine = [finding for finding in found if form and finding.key == form.cursor]
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
        wrong = next((finding for finding in self.findings() if finding.forbids), None)
        form = self.form
        if not form.unread and wrong is None:
            self.post_message(OpenStep(self.next_module))
            return
        self.app.bell()
        key = form.unread or (wrong.key if wrong else "")
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
        self.hint()
        self.refresh_bindings()

    def explained(self) -> Iterable[tuple[str, str, str]]:
        """Return the fields that this step shows now."""
        resolved = self.resolved
        rows = (fields.field(key) for key in self.keys() if choices.applies(key, self.profile, resolved))
        return [(row.label, row.key, row.help) for row in rows]
