"""Parts that the steps share: the rail, the form, the hint and the keys, and moving between rows and between steps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Resize
from textual.geometry import Size
from textual.widget import Widget

from tui_train.base.text import capitalised, visible
from tui_train.checks import Finding
from tui_train.profile import fields
from tui_train.setup.setup import Setup
from tui_train.trainers import field_with_trainer_texts, trainer_of
from tui_train.views import choices

from .. import STEPS
from ..base import JUMP_BINDING
from ..messages import OpenScreen, OpenStep
from ..widgets.findings_pane import FindingsPane
from ..widgets.form.form import Form
from ..widgets.form.form_lines import FormGroup, FormRow
from ..widgets.hint import Hint
from ..widgets.jump import JumpTarget, form_jump_targets, page_jump_targets
from ..widgets.key_bar import KeyBar
from ..widgets.lines import DrawLines
from ..widgets.multi_select import MultiSelect
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import FAILED_MARK, styled
from .step_findings import ScreenWithFindings
from .step_rows import Section, make_form_row

_MIN_TALL_ROWS = 34  # rows from which on all is shown
_ENTER_HELD_BACK_TEXT = "Enter goes on once this is fixed. "
ADVANCED_GROUP_KEY = "advanced"


class ScrollingForm(VerticalScroll, can_focus=False, inherit_bindings=False):
    """A form that scrolls with the focus and leaves the arrow keys to the screen."""


class StepScreen(ScreenWithFindings):
    """A step that shows the profile in a form and posts what is changed."""

    TITLE_OF_STEP: ClassVar[str] = ""
    # Groups that are open where there are rows to spare.
    GROUPS_OPEN_WHERE_TALL: ClassVar[frozenset[str]] = frozenset({ADVANCED_GROUP_KEY})
    # Groups that open to a list below the form instead of rows, by key: whether its order can be changed.
    IS_LIST_ORDERED_BY_GROUP_KEY: ClassVar[Mapping[str, bool]] = {}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Next", key_display="Enter"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("f2", "fix", "Fix it"),
        Binding("f5", "preview_data", "Look at data"),
        Binding("ctrl+z", "app.undo", "Undo", show=False),
        JUMP_BINDING,
    ]

    def __init__(self) -> None:
        super().__init__()
        self._is_stale = False
        self._was_installing = False
        self._size_before = Size()
        self._invalid_field_shown = ""  # the row whose text could not be read when the rest was shown
        self._held_key = ""  # the row that keeps Enter from going on, while the cursor is in it

    def compose(self) -> ComposeResult:
        """Put the step's content between the rail, the hint and the keys."""
        yield StepBar(self.TITLE_OF_STEP)
        yield from self.widgets_above()
        with Horizontal(id="middle"):
            yield ScrollingForm(*self.step_widgets(), id="body")
            yield FindingsPane()
        yield Hint()
        yield KeyBar()

    def widgets_above(self) -> Iterable[Widget]:
        """Return what stays above the form while it scrolls."""
        return ()

    def step_widgets(self) -> Sequence[Widget]:
        """Return the step's widgets: by default its form."""
        return [self.form]

    def on_mount(self) -> None:
        """Fill the form; where there are rows to spare, its seldom used parts are open."""
        self._is_composed = True
        if self.app.size.height >= _MIN_TALL_ROWS:
            self.form.state.unfolded |= self.GROUPS_OPEN_WHERE_TALL
        self.fill_first_time()

    def fill_first_time(self) -> None:
        """Show the profile and the facts for the first time."""
        self.update()

    @property
    def next_step_module(self) -> str:
        """The step after this one; IndexError for the last."""
        return STEPS[self._step_index() + 1].module

    @property
    def previous_step_module(self) -> str:
        """The step before this one; empty for the first."""
        return STEPS[self._step_index() - 1].module if self._step_index() else ""

    @property
    def step_title(self) -> str:
        """The number and the name of this step."""
        return f"{self._step_index() + 1} {self.TITLE_OF_STEP}"

    def _step_index(self) -> int:
        return [step.title for step in STEPS].index(self.TITLE_OF_STEP)

    def on_screen_resume(self) -> None:
        """Show what has changed while another step was on top, also in the files that are named."""
        self.wizard.read_changed_files()
        if self._is_stale:
            self._update_if_shown()

    def watch_profile(self) -> None:
        """Show a changed profile."""
        self._undone_text = ""
        self._update_if_shown()

    def watch_facts(self) -> None:
        """Show changed facts, or that some are being asked for."""
        self._update_if_shown()

    watch_awaited_parts = watch_facts

    def watch_installation(self) -> None:
        """Show that an installation has begun or ended, or what it does now."""
        if self._is_composed and self._was_installing != self.is_installing:
            self._was_installing = self.is_installing
            self._update_if_shown()
        super().watch_installation()

    def _update_if_shown(self) -> None:
        """Update the step that is seen; the others are when they are seen again."""
        steps = [screen for screen in self.app.screen_stack if isinstance(screen, StepScreen)]
        self._is_stale = bool(steps) and steps[-1] is not self
        if not self._is_stale:
            self.update()

    @on(Resize)
    def _update_for_other_size(self, event: Resize) -> None:
        """Show what has room in a terminal of another size."""
        before, self._size_before = self._size_before, event.size
        if before and before != event.size:
            self.call_after_refresh(self._update_if_shown)

    def update(self) -> None:
        """Show the profile and the facts as they are now."""
        if not self._is_composed or self.facts is None:
            return
        setup = self.setup
        half_typed, found = (
            self.form.state.half_typed_key,
            self.wizard.findings_for(self.wizard.setup_for_profile(self.profile, self.facts)),
        )
        self._all_findings = tuple(
            self._finding_in_words_of_step(finding) for finding in found if finding.form_row_key != half_typed
        )
        self.form.list_folder_names = self.wizard.list_folder_names
        self.form.show(tuple(self._make_groups(setup)))
        self._invalid_field_shown = self.form.state.unparsable_row_label
        if setup:
            self.update_outside_form(setup)
            if not half_typed:
                self.query_one(FindingsPane).show(
                    setup, self._all_findings, self._invalid_field_shown, is_looking=self.is_machine_unknown
                )
            self.show_cursor_row_details()
        steps = [screen for screen in self.app.screen_stack if isinstance(screen, StepScreen)]
        forbidding = [each for each in self._all_findings if each.forbids_plan and not each.is_being_fixed]
        wrong = {screen.TITLE_OF_STEP.lower() for screen in steps if any(map(screen.owns_finding, forbidding))}
        self.query_one(StepBar).mark_wrong_steps(frozenset(wrong))
        self.show_hint()
        self.refresh_bindings()

    def _finding_in_words_of_step(self, finding: Finding) -> Finding:
        """Return a finding without the name of the step that one is on; an installation that runs is not offered."""
        if finding.install and self.is_installing:
            return replace(finding, message="being installed", keys="F2 shows how far.", is_being_fixed=True)
        here = f" on {self.TITLE_OF_STEP}"
        message, remedy, keys = (text.replace(here, "") for text in (finding.message, finding.remedy, finding.keys))
        return replace(finding, message=message, remedy=remedy, keys=keys)

    @property
    def is_machine_unknown(self) -> bool:
        """True while the machine is looked at for the first time."""
        return self.facts is not None and "machine" in self.awaited_parts and not self.facts.machine.hostname

    @property
    def setup(self) -> Setup | None:
        """Consequences of the profile and the facts; None where that cannot be said."""
        made = self.wizard.setup_for_profile(self.profile, self.facts) if self.facts else None
        return made if made and not made.preset_error else None

    # The form

    def _make_groups(self, setup: Setup | None) -> Iterable[FormGroup]:
        for section, rows in self.section_rows(setup):
            if rows or (section.folds and not section.keys):
                yield self.make_group(section, rows, setup)

    def section_rows(self, setup: Setup | None) -> Iterable[tuple[Section, tuple[FormRow, ...]]]:
        """Yield the sections of the form with the rows that are shown of each."""
        # What follows from values is not said while one of them cannot be read.
        resolved_to_show = setup if setup and not self.form.state.unparsable_row_key else None
        notes, below = (
            (self.notes_by_key(resolved_to_show), self.lines_below_by_key(resolved_to_show))
            if resolved_to_show
            else ({}, {})
        )
        # Of several the first, an error before a warning.
        found, half_typed = tuple(reversed(self.findings())), self.form.state.half_typed_key
        wrong = {finding.key: finding for level in ("warning", "error") for finding in found if finding.level == level}
        for section in self.SECTIONS:
            rows = tuple(
                replace(
                    make_form_row(key, self.profile, setup, note=notes.get(key, ""), finding=wrong.get(key)),
                    line_below="…" if key == half_typed and key in below else _text_unless_found(below, wrong, key),
                )
                for key in section.keys
                if choices.is_field_shown(key, setup or self.profile)
            )
            yield section, rows

    def make_group(self, section: Section, rows: tuple[FormRow, ...], setup: Setup | None) -> FormGroup:
        """Return a section with its rows; a folded one says how many of its values were chosen."""
        changed = sum(fields.is_chosen(self.profile, row.key) for row in rows) if section.folds else 0
        value = f"{changed} of {len(rows)} set" if section.folds and rows else ""
        note = section.note or (", ".join(label_in_sentence(row.field.label) for row in rows) if section.folds else "")
        hint = section.hint or "Settings that are seldom needed. Space opens and closes them."
        return FormGroup(
            title=section.title, rows=rows, note=note, folds=section.folds, value=value, key=section.key, hint=hint
        )

    def notes_by_key(self, setup: Setup) -> Mapping[str, str]:
        """Return what stands beside values, by key."""
        return {}

    def lines_below_by_key(self, setup: Setup) -> Mapping[str, str]:
        """Return what stands in a line under fields, by key."""
        return {}

    def update_outside_form(self, setup: Setup) -> None:
        """Show what a step has besides its form."""

    def cursor_row_details(self) -> DrawLines | None:
        """Return what draws, where there is room beside the form, what is marked in it; None for nothing."""
        return None

    def show_cursor_row_details(self) -> None:
        """Draw the details of the cursor's row."""
        for pane in self.query(FindingsPane) if self._is_composed else ():
            pane.show_cursor_row_details(self.cursor_row_details())

    def list_key_text(self, group_key: str) -> str:
        """Return what Space does to the list of a group."""
        return f"Space {'closes' if group_key in self.form.state.unfolded else 'opens'} the list."

    @on(Form.GroupToggled)
    async def _mount_or_remove_list(self, event: Form.GroupToggled) -> None:
        event.stop()
        if event.key not in self.IS_LIST_ORDERED_BY_GROUP_KEY:
            return
        if event.unfolded:
            await self.query_one("#body").mount(
                MultiSelect(id=event.key, ordered=self.IS_LIST_ORDERED_BY_GROUP_KEY[event.key])
            )
            self.update()
            self.query_one(f"#{event.key}").scroll_visible(animate=False)
        else:
            await self.query(f"#{event.key}").remove()
            self.update()

    # Moving on

    def jump_targets(self) -> Iterable[JumpTarget]:
        """Return the groups of the form, and the panels beside it."""
        return (*form_jump_targets(self.form), *page_jump_targets(self.query_one(FindingsPane)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """F5 shows where there is data to look at."""
        if action == "preview_data":
            return trainer_of(self.profile).requires_user_data and bool(self.profile.trainer.data)
        return super().check_action(action, parameters)

    def action_preview_data(self) -> None:
        """Show what the data holds."""
        from ..data.screen import DataPreviewScreen

        self.post_message(OpenScreen(DataPreviewScreen(self.step_title)))

    def action_next(self) -> None:
        """Go to the next step, or to what is wrong here: first in the row that the cursor is in."""
        form = self.form
        if form.take_typed_path():
            self.update()
        here = form.cursor if form.holds_focus else ""
        forbidding = [finding for finding in self.findings() if finding.forbids_plan]
        wrong = min(forbidding, key=lambda finding: finding.form_row_key != here, default=None)
        if not form.state.unparsable_row_key and wrong is None:
            self.post_message(OpenStep(self.next_step_module, self))
            return
        self.app.bell()
        self.wizard.read_changed_files(forbidding)
        key = form.state.unparsable_row_key or (wrong.form_row_key if wrong else "")
        if any(row.key == key for row in form.state.rows):
            if key != here:
                form.go_to_row(key)
            self._held_key, self._undone_text = key, ""
            self.show_hint()
        elif wrong:
            for chosen in self.query(f"#{key.rpartition('.')[2]}").results(MultiSelect):
                chosen.focus()  # the list of GPUs
            words = f"{_ENTER_HELD_BACK_TEXT}{capitalised(wrong.message)}. {wrong.screen_remedy}"
            self.notify(visible(words), severity="error", markup=False)

    def show_hint(self) -> None:
        """Show what keeps Enter from going on, while the cursor is there; else as any form does."""
        form = self.form
        is_held = form.holds_focus and form.cursor == self._held_key and form.state.cursor_row_has_problem
        if is_held and not (self._undone_text or self.is_installing):
            why = "" if self._is_cursor_row_problem_beside_form else visible(form.state.hint)
            self.query_one(Hint).show_text(styled(FAILED_MARK, f" {_ENTER_HELD_BACK_TEXT}{why}".rstrip()))
        else:
            super().show_hint()

    def on_descendant_focus(self) -> None:
        """Show the hint of the focused row."""
        self.show_hint()
        self.refresh_bindings()

    @on(MultiSelect.Moved)
    @on(Form.Moved)
    def _update_after_move(self, event: MultiSelect.Moved | Form.Moved) -> None:
        event.stop()
        self._undone_text = ""
        if self.form.cursor != self._held_key:
            self._held_key = ""
        if self.form.state.unparsable_row_label != self._invalid_field_shown:
            self.update()
        self.show_hint()
        self.show_cursor_row_details()
        self.refresh_bindings()

    @on(Form.PathTyped)
    def _update_after_path_typed(self, event: Form.PathTyped) -> None:
        event.stop()
        self.update()

    def fields_for_help(self) -> Iterable[tuple[str, str, str]]:
        """Return the fields that this step shows now."""
        setup = self.setup
        rows = (
            field_with_trainer_texts(key, self.profile)
            for key in self.field_keys()
            if choices.is_field_shown(key, setup or self.profile)
        )
        return [(row.label, row.key, row.help) for row in rows]


def _text_unless_found(text_by_key: Mapping[str, str], finding_by_key: Mapping[str, Finding], key: str) -> str:
    """Return the text of a row, or nothing where its finding says the same."""
    text, finding = text_by_key.get(key, ""), finding_by_key.get(key)
    return "" if finding and text in visible(finding.message) else text


def label_in_sentence(label: str) -> str:
    """Return a label as it stands within a line: `Log level`, but `TensorBoard` and `LR scaling`, begin as they are."""
    return label if any(letter.isupper() for letter in label[1:].partition(" ")[0]) else label[:1].lower() + label[1:]
