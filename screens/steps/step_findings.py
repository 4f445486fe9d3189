"""Findings on a step's fields: the finding in the hint, its fix by F2, and what was taken back."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.content import Content
from textual.reactive import reactive

from tui_train.base.text import capitalised, visible
from tui_train.checks import Finding
from tui_train.facts.gpus.samples import CardSamples
from tui_train.facts.types import Facts
from tui_train.profile.types import Profile

from ..base import WizardScreen
from ..install.installation import Installation
from ..messages import ApplyFix, ChangeUndone
from ..widgets.findings_pane import MAX_FINDINGS_SHOWN, FindingsPane
from ..widgets.form.form import Form
from ..widgets.hint import Hint
from ..widgets.multi_select import MultiSelect
from ..widgets.text_layout import KEY_STYLE, LIVE_MARK, fit, styled
from .step_rows import Section, change_undone_text


class ScreenWithFindings(WizardScreen):
    """A screen with a form that says what is wrong with its fields, and fixes it."""

    SECTIONS: ClassVar[tuple[Section, ...]] = ()
    KEYS_OUTSIDE_FORM: ClassVar[tuple[str, ...]] = ()  # fields of this step that are not in its form
    SHARED_VALUES = ("profile", "facts", "awaited_parts", "card_samples", "installation")
    profile: reactive[Profile] = reactive(Profile, init=False, repaint=False)
    facts: reactive[Facts | None] = reactive(None, init=False, repaint=False)
    awaited_parts: reactive[frozenset[str]] = reactive(frozenset, init=False, repaint=False)
    card_samples: reactive[CardSamples] = reactive((), init=False, repaint=False)
    installation: reactive[Installation | None] = reactive(None, init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self.form = Form()
        self._all_findings: tuple[Finding, ...] = ()
        self._findings_shown: tuple[tuple[str, str], ...] = ()  # the findings, and the row where one was when they came
        self._row_when_shown = ""
        self._undone_text = ""  # what was taken back, until something else happens
        self._is_composed = False  # there are rows to fill: Textual says so only after the first picture

    @classmethod
    def field_keys(cls) -> tuple[str, ...]:
        """Return all fields of this step."""
        return (*(key for section in cls.SECTIONS for key in section.keys), *cls.KEYS_OUTSIDE_FORM)

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with this step's fields, as far as it is known."""
        return tuple(
            finding
            for finding in self._all_findings
            if self.owns_finding(finding) and not self._is_facts_part_awaited(finding)
        )

    @classmethod
    def owns_finding(cls, finding: Finding) -> bool:
        """Return whether a finding is of this step's fields."""
        mine = cls.field_keys()
        return finding.key in mine and not finding.argument

    def _is_facts_part_awaited(self, finding: Finding) -> bool:
        part = {
            "trainer.python": "toolchains",
            "trainer.config": "paths",
            "trainer.accelerate_config": "paths",
            "trainer.model": "hub_models" if "hub_models" in self.awaited_parts else "hub",
            "container.engine": "engines",
            "container.image": "images",
        }
        return part.get(finding.key) in self.awaited_parts

    def _shown_findings(self) -> tuple[Finding, ...]:
        """Return the step's findings, and one that keeps every step from being shown in full."""
        elsewhere = set() if "trainer.preset" in self.field_keys() else {"trainer.preset"}
        return (*self.findings(), *(finding for finding in self._all_findings if finding.key in elsewhere))

    def show_hint(self) -> None:
        """Show what is wrong with the focused row, or its help; of new findings the first, until one moves on."""
        form, in_form = self.form, self.form.holds_focus
        if self._undone_text:
            self.query_one(Hint).show_text(Content(self._undone_text))
            return
        if in_form and form.entry.has_focus and form.entry.is_begun_name:
            self.query_one(Hint).show_text(Content("Tab completes what stands there in grey."))
            return
        installed = [finding.key for finding in self._shown_findings() if finding.install]
        if self.is_installing and installed and not (in_form and form.cursor not in installed):
            # In one line: what pip tells may name each package.
            shown = fit(self.installation.current_action_text if self.installation else "", self.size.width - 20)
            self.query_one(Hint).show_text(styled(LIVE_MARK, " ", shown, " ", ("F2", KEY_STYLE), " shows it."))
            return
        if in_form and (
            (form.state.cursor_row_has_problem and not self._is_cursor_row_problem_beside_form)
            or form.state.has_open_options
            or form.state.has_refused_typing
        ):
            self.query_one(Hint).show_text(styled((visible(form.state.hint), "")))
            return
        select = self.focused if isinstance(self.focused, MultiSelect) else None
        words = self._hint_in_form if in_form else select.hint if select else ""
        found = self._shown_findings()
        # Not by its words, which follow the width and what a card does now.
        here = form.cursor if in_form else f"{select.cursor} {select.was_last_unpick_refused}" if select else ""
        known = tuple((finding.form_row_key, finding.level) for finding in found)
        if known != self._findings_shown:
            self._findings_shown, self._row_when_shown = known, here
        mine = next((finding for finding in found if in_form and finding.form_row_key == here), None)
        first = next(iter(_findings_without_argument_notes(found)), None)
        finding = mine or (first if here == self._row_when_shown else None)
        if finding and not self._are_findings_beside_form:
            mark = ("✗", "$error") if finding.forbids_plan else ("!", "$warning")
            fix = (
                styled("  ", ("F2", KEY_STYLE), f": {visible(finding.fix.title)}.")
                if finding.fix and not finding.keys
                else Content()
            )
            self.query_one(Hint).show_text(
                styled(mark, f" {visible(capitalised(finding.message))}. {visible(finding.screen_remedy)}", fix)
            )
            return
        self.query_one(Hint).show_text(Content(visible(words)))

    @property
    def _are_findings_beside_form(self) -> bool:
        """True where the findings stand beside the form, in sight."""
        return self.has_class("-tall") and any(pane.shows_all_findings for pane in self.query(FindingsPane))

    @property
    def _is_cursor_row_problem_beside_form(self) -> bool:
        """True where what is wrong with the cursor's row stands beside the form; of an unreadable text it does not."""
        beside = self._all_findings[:MAX_FINDINGS_SHOWN] if self._are_findings_beside_form else ()
        is_there = any(finding.form_row_key == self.form.cursor for finding in beside)
        return is_there and not self.form.state.unparsable_row_key

    @property
    def _hint_in_form(self) -> str:
        """The hint of the cursor's row; what it is for, where what is wrong with it stands beside the form."""
        state = self.form.state
        has_problem = state.cursor_row_has_problem and not state.has_open_options
        return state.row.field.help if has_problem and state.row else state.hint

    @property
    def is_installing(self) -> bool:
        """True while an environment is being made."""
        return bool(self.installation and self.installation.is_running)

    def watch_installation(self) -> None:
        """Show the state of the installation in the hint."""
        if self._is_composed and self.is_current:
            self.show_hint()
            self.refresh_bindings()

    def _f2_fixes_unparsable_text(self) -> bool:
        """Return whether F2 is for a text that cannot be read: the focused one, or another, where nothing else is."""
        form = self.form
        if not form.state.unparsable_text_fix:
            return False
        return form.state.is_cursor_row_unparsable or not any(
            finding.form_row_key == form.cursor for finding in self._shown_findings()
        )

    def finding_to_fix(self) -> Finding | None:
        """Return the finding that F2 fixes: the focused row's; where it has none, the first with a change.

        In a row with an error that only the user can fix, what is to be installed is still offered.
        """
        found, form = self._shown_findings(), self.form
        mine = [finding for finding in found if form.holds_focus and finding.form_row_key == form.cursor]
        if mine and mine[0].level == "error":
            mine = mine[:1]
            found = () if mine[0].fix else tuple(finding for finding in found if finding.install)
        return next((finding for finding in (*mine, *_findings_without_argument_notes(found)) if finding.fix), None)

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Name the fix that F2 makes."""
        if not self._is_composed:
            return {}
        if self._f2_fixes_unparsable_text():
            words = self.form.state.unparsable_text_fix
        else:
            finding = self.finding_to_fix()
            words = finding.fix.title if finding and finding.fix else ""
            if finding and finding.install and self.is_installing:
                words = "show the installation"
        said = {"f2": visible(words[:1].upper() + words[1:])}
        form = self.form
        if form.entry.has_focus:
            return {**said, "left": "Edit" if form.entry.is_all_selected else ""}
        return {**said, "space": "Close"} if form.holds_focus and form.cursor in form.state.unfolded else said

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """F2 shows only where it fixes something."""
        return action != "fix" or (
            self._is_composed and (self._f2_fixes_unparsable_text() or self.finding_to_fix() is not None)
        )

    def action_fix(self) -> None:
        """Apply the fix of the shown finding."""
        if self._f2_fixes_unparsable_text():
            self.form.fix_unparsable_text()
            return
        finding = self.finding_to_fix()
        if finding and finding.fix:
            self.post_message(ApplyFix(finding.fix))

    @on(ChangeUndone)
    def _show_undone_change(self, event: ChangeUndone) -> None:
        event.stop()
        self._undone_text = change_undone_text(event.changes)
        self.show_hint()


def _findings_without_argument_notes(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings but for what only the user knows, which is offered in its own row alone."""
    return tuple(finding for finding in findings if not (finding.argument and finding.level == "note"))
