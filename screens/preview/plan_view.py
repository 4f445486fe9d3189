"""Content of Preview: what will happen, what is wrong, the command, and the files behind it."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content

from tui_train.checks import Finding
from tui_train.facts.types import Facts
from tui_train.memory.predict import predict_memory
from tui_train.plan.render import files_for_display
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.plan.render.script.plain_command import make_plain_command
from tui_train.profile.types import Profile
from tui_train.runs.run_folders import RunFolder
from tui_train.views.file_diff import FileDiff
from tui_train.views.overview import training_outline_lines
from tui_train.views.previous_run import (
    PreviousRun,
    diffs_of_changed_files,
    effective_changes_since,
    expected_pace,
    find_previous_run,
)

from ..discovery.machine_queries import FACTS_PARTS_NOT_AWAITED
from ..screen_words import finding_on_screen, is_shown_on_recipe_alone
from ..steps.step import StepScreen
from ..widgets.file_viewer import FileViewer, ScrollingPage, ViewedFile
from ..widgets.hint import Hint
from ..widgets.jump import JumpTarget, page_jump_targets
from ..widgets.key_bar import KeyBar
from ..widgets.lines import Lines
from ..widgets.preview_lines import (
    Fix,
    PreviewContent,
    change_lines,
    command_lines,
    fallback_lines,
    finding_lines,
    join_panels,
    note_lines,
    phases_and_fallbacks,
    plan_overview_lines,
    preview_memory_lines,
)
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import styled

# Of FACTS_PARTS_NOT_AWAITED.
_UNREAD_TEXT_BY_FACTS_PART = {
    "data": "the data is still being read",
    "training_hosts": "the other hosts are still being asked",
}


class PlanScreen(StepScreen):
    """The plan of a profile, made again when what it is made of changes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close_files", "Close files", key_display="Esc"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._prepared: PreparedPlan | None = None
        self._planned_from: tuple[Profile, Facts] | None = None
        self._preview_content = PreviewContent()
        self._fixes: tuple[Fix | None, ...] = ()  # of F2 and the keys after it
        self._previous: PreviousRun | None = None
        self._previous_asked_for: tuple[str, RunFolder | None] | None = None
        self._shows_changes = False  # the files are those that the run before had otherwise
        self._files_opened = False  # the files take the place of what is said

    def compose(self) -> ComposeResult:
        """Put what is said and the files at the left, and beside them what follows from the plan."""
        yield StepBar(self.TITLE_OF_STEP)
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                with ScrollingPage(id="body"):
                    yield Lines(id="story")
                yield FileViewer()
            with VerticalScroll(id="side", can_focus=False):
                yield Lines(id="beside")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Scroll with the arrow keys at once."""
        self._arrange_files()
        self.query_one("#body").focus()

    def fill_first_time(self) -> None:
        """Make the plan after the first picture: it takes longer than that."""
        self.call_after_refresh(self.update)

    # What it shows

    def update(self) -> None:
        """Make the plan again and show it."""
        if not self._is_composed or self.facts is None:
            return
        if self.awaited_parts - FACTS_PARTS_NOT_AWAITED:
            self.query_one("#story", Lines).show_lines_of_any_width(
                styled(f"Looking at {self.wizard.other_machine_name or 'this machine'} …")
            )
            return
        asked = self.profile.name, self.wizard.run_being_edited
        if self._previous_asked_for != asked and not self.wizard.other_machine_name:
            self._previous_asked_for = asked
            self._find_previous_run(self.profile, self.wizard.run_being_edited)
        if self._planned_from != (self.profile, self.facts):
            is_edited = self._planned_from is None or self._planned_from[0] != self.profile
            self._planned_from = (self.profile, self.facts)
            self._setup = self.wizard.setup_for_profile(self.profile, self.facts)
            self._prepared = prepare_plan(self._setup)
            self._fixes = _fixes_on_same_keys(() if is_edited else self._fixes, self.findings())
            self.query_one(FileViewer).files = files_for_display(self._prepared.files)
            self._shows_changes = False
            self._arrange_files()
            self._update_preview_content()
        elif self._preview_content.unread != self.unread_text:
            self._update_preview_content()
        self.refresh_bindings()

    @property
    def unread_text(self) -> str:
        """What findings may still come from, in words; empty for nothing."""
        return next((words for part, words in _UNREAD_TEXT_BY_FACTS_PART.items() if part in self.awaited_parts), "")

    def _update_preview_content(self) -> None:
        """Update the content of Preview from the plan."""
        prepared, facts = self._prepared, self.facts
        if prepared is None or facts is None:
            return
        plan, profile, before = prepared.plan, prepared.profile, self._previous
        setup = self._setup if self._setup and not self._setup.preset_error else None
        self._preview_content = PreviewContent(
            lines=training_outline_lines(setup, expected_pace(before, profile)) if setup else (),
            title=plan.title if plan else "",
            notes=plan.notes if plan else (),
            prediction=predict_memory(setup) if setup else None,
            findings=self.findings(),
            fixes=self._fixes,
            unread=self.unread_text,
            command=make_plain_command(plan) if plan else None,
            file_count=len(self.query_one(FileViewer).files),
            fallbacks=phases_and_fallbacks(plan),
            compared_run_name=before.run_name if before else "",
            changes=effective_changes_since(before, profile) if before else (),
        )
        self._draw()

    def _draw(self) -> None:
        story, wide, tall = self._preview_content, self.has_class("-wide"), self.has_class("-tall")

        def left(width: int) -> list[Content]:
            middle = () if wide else (*beside(width)[:3],)
            ends = () if wide or not tall else (beside(width)[3],)
            return join_panels(
                plan_overview_lines(story, width), *middle, command_lines(story, width, with_variables=tall), *ends
            )

        def beside(width: int) -> tuple[list[Content], ...]:
            return (
                preview_memory_lines(story, width),
                finding_lines(story.findings, width, story.fixes, story.unread),
                change_lines(story, width),
                note_lines(story, width),
                fallback_lines(story, width),
            )

        self.query_one("#story", Lines).show(left)
        self.query_one("#beside", Lines).show(lambda width: join_panels(*beside(width)) if wide else [])
        self.query_one(FileViewer).show(self.query_one(FileViewer).files)
        self.show_hint()

    def _arrange_files(self) -> None:
        """Put the files below what is said where there is room, else in its place when they are opened.

        What has changed in them takes all of the room, also that beside it.
        """
        there = bool(self.query_one(FileViewer).files)
        opened, tall = there and (self._files_opened or self._shows_changes), self.has_class("-tall")
        self.query_one("#body").display = not opened
        self.query_one(FileViewer).display = opened or (there and tall)
        self.query_one("#side").set_class(self._shows_changes, "covered")
        self.query_one(FileViewer).draw()

    def on_resize(self) -> None:
        """Arrange for the new size, once its classes are set."""
        self.call_after_refresh(self._arrange_and_draw)

    def _arrange_and_draw(self) -> None:
        if self._is_composed:
            self._arrange_files()
            self._draw()

    @work(thread=True, exclusive=True, group="previous")
    def _find_previous_run(self, profile: Profile, edited: RunFolder | None) -> None:
        self.call_unless_cancelled(self._set_run_to_compare_with, find_previous_run(profile, edited))

    def _set_run_to_compare_with(self, previous: PreviousRun | None) -> None:
        self._previous = previous
        self._update_preview_content()
        self.refresh_bindings()

    def action_toggle_changes(self) -> None:
        """Show which lines of the files the run before had otherwise, or the files again."""
        if self._shows_changes and self._prepared:
            self._show_files(files_for_display(self._prepared.files), are_changes=False)
        elif self._previous and self._prepared:
            self._read_changed_files(self._previous.run_name, self._prepared)

    def _show_files(self, files: Sequence[ViewedFile], *, are_changes: bool) -> None:
        self._shows_changes = are_changes
        self._files_opened = True
        self._arrange_files()
        self.query_one(FileViewer).show(files)
        self._focus_shown_panel()
        self.refresh_bindings()

    @work(thread=True, exclusive=True, group="changes")
    def _read_changed_files(self, run_name: str, prepared: PreparedPlan) -> None:
        changed = diffs_of_changed_files(run_name, prepared.files)
        self.call_unless_cancelled(self._show_files_changed_since_previous_run, prepared, changed)

    def _show_files_changed_since_previous_run(
        self, prepared: PreparedPlan, changed: tuple[FileDiff, ...] | None
    ) -> None:
        """Show the lines that differ; `changed` is None where the run is gone."""
        if prepared is not self._prepared:
            return
        if changed:
            self._show_files(changed, are_changes=True)
            return
        same = "The files are the same as in the run before."
        self.notify("The run before was deleted." if changed is None else same, markup=False)

    def jump_targets(self) -> Iterable[JumpTarget]:
        """Return the panels of what is said, and the files, which it opens."""
        if self.query_one("#body").display:
            yield from page_jump_targets(self.query_one("#body", ScrollingPage))
        yield from page_jump_targets(self.query_one("#side", VerticalScroll))
        if self.query_one(FileViewer).files:
            yield JumpTarget("Files", self.query_one("#names"), 0, self._go_to_files, is_heading=False)

    def _go_to_files(self) -> None:
        if self.query_one(FileViewer).display:
            self.query_one("#page").focus()
        else:
            self.action_toggle_files()

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, whatever they are about; that of one row of Recipe was told there."""
        prepared = self._prepared
        found = (each for each in prepared.findings if not is_shown_on_recipe_alone(each)) if prepared else ()
        return tuple(finding_on_screen(each, prepared.profile) for each in found) if prepared else ()

    # The files

    def action_toggle_files(self) -> None:
        """Show the files, or what is said again."""
        if self.query_one(FileViewer).files:
            self._files_opened = not self._files_opened
            self._arrange_files()
            self._focus_shown_panel()
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc closes the files where they take the place of what is said; the next one goes back."""
        if action == "close_files":
            return self._is_composed and not self.query_one("#body").display
        return super().check_action(action, parameters)

    def action_close_files(self) -> None:
        """Show what is said again, and no more what has changed."""
        if self._shows_changes:
            self.action_toggle_changes()
        self.action_toggle_files()

    def _focus_shown_panel(self) -> None:
        files = self.query_one(FileViewer)
        self.query_one(
            "#page" if files.display and (self._files_opened or not self.query_one("#body").display) else "#body"
        ).focus()

    def action_show_neighbouring_file(self, by: int) -> None:
        """Show the file that comes so many places later, or the first one."""
        files = self.query_one(FileViewer)
        if files.display:
            files.show_neighbouring_file(by)
        else:
            self.action_toggle_files()

    def action_search_files(self) -> None:
        """Ask for a text to look for in the files."""
        if not self.query_one(FileViewer).display:
            self.action_toggle_files()
        self.query_one(FileViewer).open_search_input()


def _fixes_on_same_keys(before: tuple[Fix | None, ...], findings: Sequence[Finding]) -> tuple[Fix | None, ...]:
    """Return the fixes of the keys: those of before stay on theirs, None where one is gone, and new ones follow.

    A key that is about to be pressed never makes the change of a finding that has just come.
    """
    now = [finding.fix for finding in findings if finding.fix]
    return (*(fix if fix in now else None for fix in before), *(fix for fix in now if fix not in before))
