"""What is wrong with a step's fields: the finding in the hint, its fix by F2, and what was taken back."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.content import Content
from textual.reactive import reactive

from tui_train.base.text import visible
from tui_train.checks import Finding
from tui_train.facts.samples import Samples
from tui_train.facts.types import Facts
from tui_train.profile.types import Profile

from .base import Base
from .installation import Installation
from .messages import ApplyFix, Undone
from .step_rows import Section, undone_words
from .widgets.form import Form
from .widgets.hint import Hint
from .widgets.ink import KEY, LIVE, ink
from .widgets.picks import Picks


class WithFindings(Base):
    """A screen with a form that says what is wrong with its fields, and fixes it."""

    SECTIONS: ClassVar[tuple[Section, ...]] = ()
    MORE_KEYS: ClassVar[tuple[str, ...]] = ()  # fields of this step that are not in its form
    SHARED = ("profile", "facts", "looking", "live", "installation")
    profile: reactive[Profile] = reactive(Profile, init=False, repaint=False)
    facts: reactive[Facts | None] = reactive(None, init=False, repaint=False)
    looking: reactive[frozenset[str]] = reactive(frozenset, init=False, repaint=False)
    live: reactive[Samples] = reactive((), init=False, repaint=False)
    installation: reactive[Installation | None] = reactive(None, init=False, repaint=False)

    def __init__(self) -> None:
        """Begin with nothing found."""
        super().__init__()
        self._found: tuple[Finding, ...] = ()
        self._known: tuple[tuple[str, str], ...] = ()  # the findings, and the row where one was when they came
        self._known_at = ""
        self._undone = ""  # what was taken back, until something else happens
        self._ready = False  # there are rows to fill: Textual says so only after the first picture

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return all fields of this step."""
        return (*(key for section in cls.SECTIONS for key in section.keys), *cls.MORE_KEYS)

    @property
    def form(self) -> Form:
        """The form."""
        return self.query_one(Form)

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with this step's fields, as far as it is known."""
        return tuple(finding for finding in self._found if self.owns(finding) and not self._unknown(finding))

    @classmethod
    def owns(cls, finding: Finding) -> bool:
        """Return whether a finding is of this step's fields."""
        mine = cls.keys()
        return finding.key in mine and not finding.argument

    def _unknown(self, finding: Finding) -> bool:
        part = {
            "trainer.python": "toolchains",
            "trainer.config": "paths",
            "trainer.accelerate_config": "paths",
            "trainer.model": "hub_models" if "hub_models" in self.looking else "hub",
            "container.engine": "engines",
            "container.image": "images",
        }
        return part.get(finding.key) in self.looking

    def _shown_findings(self) -> tuple[Finding, ...]:
        """Return the step's findings, and one that keeps every step from being shown in full."""
        elsewhere = set() if "trainer.preset" in self.keys() else {"trainer.preset"}
        return (*self.findings(), *(finding for finding in self._found if finding.key in elsewhere))

    def hint(self) -> None:
        """Show what is wrong with the focused row, or its help; of new findings the first, until one moves on."""
        form = next(iter(self.query(Form)), None)
        in_form = form is not None and form.is_in
        if self._undone:
            self.query_one(Hint).say(Content(self._undone))
            return
        installed = [finding.key for finding in self._shown_findings() if finding.install]
        if self.installs and installed and not (in_form and form and form.cursor not in installed):
            words = self.installation.words if self.installation else ""
            self.query_one(Hint).say(ink(LIVE, f" {words} ", ("F2", KEY), " shows it."))
            return
        if in_form and form is not None and (form.wrong or form.chooses or form.refuses):
            self.query_one(Hint).say(ink((visible(form.hint), "")))
            return
        words = form.hint if in_form and form else self.focused.hint if isinstance(self.focused, Picks) else ""
        found = self._shown_findings()
        here = form.cursor if in_form and form else words
        known = tuple((finding.row, finding.level) for finding in found)
        if known != self._known:
            self._known, self._known_at = known, here
        mine = next((finding for finding in found if in_form and finding.row == here), None)
        first = next(iter(_sure(found)), None)
        if finding := mine or (first if here == self._known_at else None):
            mark = ("✗", "$error") if finding.forbids else ("!", "$warning")
            fix = ink("  ", ("F2", KEY), " fixes it.") if finding.fix and not finding.keys else Content()
            self.query_one(Hint).say(ink(mark, f" {visible(finding.message)}. {visible(finding.on_screen)}", fix))
            return
        self.query_one(Hint).say(Content(visible(words)))

    @property
    def installs(self) -> bool:
        """Whether an environment is being made now."""
        return bool(self.installation and self.installation.goes_on)

    def watch_installation(self) -> None:
        """Say what the installation has come to."""
        if self._ready and self.is_current:
            self.hint()
            self.refresh_bindings()

    def _fixes_text(self) -> bool:
        """Return whether F2 is for a text that cannot be read: the focused one, or another, where nothing else is."""
        form = next(iter(self.query(Form)), None)
        if form is None or not form.unread_fix:
            return False
        return form.unread_here or not any(finding.row == form.cursor for finding in self._shown_findings())

    def fixable(self) -> Finding | None:
        """Return the finding that F2 fixes: the focused row's; where it has none, the first with a change."""
        found = self._shown_findings()
        form = next(iter(self.query(Form)), None)
        mine = [finding for finding in found if form and form.is_in and finding.row == form.cursor]
        if mine and mine[0].level == "error":
            mine = mine[:1]
            found = ()
        return next((finding for finding in (*mine, *_sure(found)) if finding.fix), None)

    @property
    def key_words(self) -> Mapping[str, str]:
        """Say what F2 would make of what is wrong."""
        if not self._ready:
            return {}
        if self._fixes_text():
            words = self.form.unread_fix
        else:
            finding = self.fixable()
            words = finding.fix.title if finding and finding.fix else ""
            if finding and finding.install and self.installs:
                words = "show the installation"
        said = {"f2": visible(words[:1].upper() + words[1:])}
        form = next(iter(self.query(Form)), None)
        return {**said, "space": "Close"} if form and form.is_in and form.cursor in form.unfolded else said

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """F2 shows only where it fixes something."""
        del parameters
        return action != "fix" or (self._ready and (self._fixes_text() or self.fixable() is not None))

    def action_fix(self) -> None:
        """Make the change that fixes what is wrong."""
        if self._fixes_text():
            self.form.fix_unread()
            return
        finding = self.fixable()
        if finding and finding.fix:
            self.post_message(ApplyFix(finding.fix))

    @on(Undone)
    def _said_undone(self, event: Undone) -> None:
        event.stop()
        self._undone = undone_words(event.changes)
        self.hint()


def _sure(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings but for what only the user knows, which is offered in its own row alone."""
    return tuple(finding for finding in found if not (finding.argument and finding.level == "note"))
