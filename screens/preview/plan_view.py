"""Content of Preview: what will happen, what is wrong, the command, and the files behind it."""

from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message

from tui_train.checks import Finding
from tui_train.facts.types import Facts
from tui_train.memory.predict import predict
from tui_train.plan.render import shown_files
from tui_train.plan.render.prepare import Prepared, prepare
from tui_train.plan.render.script.plain_command import one_command
from tui_train.profile.types import Profile
from tui_train.views.overview import overview
from tui_train.views.previous_run import PreviousRun, effective_changes, expected_pace, previous_run

from ..discovery.machine_queries import PARTS_NOT_AWAITED
from ..steps.step import Step
from ..widgets.bar import StepBar
from ..widgets.code import FileViewer, Page
from ..widgets.hint import Hint
from ..widgets.keys import Keys
from ..widgets.lines import Lines
from ..widgets.preview_lines import (
    Story,
    change_lines,
    command_lines,
    fallback_lines,
    fallbacks_of,
    finding_lines,
    join_panels,
    note_lines,
    plan_lines,
    story_memory_lines,
)
from ..widgets.text_layout import styled


@dataclass
class PreviousFound(Message):
    """The run of this profile before this one is known, or that there is none."""

    previous: PreviousRun | None


class PlanView(Step):
    """The plan of a profile, made again when what it is made of changes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close_files", "Close files", key_display="Esc"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._prepared: Prepared | None = None
        self._planned_from: tuple[Profile, Facts] | None = None
        self._story = Story()
        self._previous: PreviousRun | None = None
        self._previous_asked_for: str | None = None
        self._files_opened = False  # the files take the place of what is said

    def compose(self) -> ComposeResult:
        """Put what is said and the files at the left, and beside them what follows from the plan."""
        yield StepBar(self.TITLE_OF_STEP)
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                with Page(id="body"):
                    yield Lines(id="story")
                yield FileViewer()
            with VerticalScroll(id="side", can_focus=False):
                yield Lines(id="beside")
        yield Hint()
        yield Keys()

    def on_mount(self) -> None:
        """Scroll with the arrow keys at once."""
        self._arrange()
        self.query_one("#body").focus()

    def fill(self) -> None:
        """Make the plan after the first picture: it takes longer than that."""
        self.call_after_refresh(self.update)

    # What it shows

    def update(self) -> None:
        """Make the plan again and show it."""
        if not self._is_composed or self.facts is None:
            return
        if self.looking - PARTS_NOT_AWAITED:
            self.query_one("#story", Lines).show_fixed(
                styled(f"Looking at {self.wizard.other_machine or 'this machine'} …")
            )
            return
        if self._previous_asked_for != self.profile.name and not self.wizard.other_machine:
            self._previous_asked_for = self.profile.name
            self._find_previous(self.profile)
        if self._planned_from != (self.profile, self.facts):
            self._planned_from = (self.profile, self.facts)
            self._setup = self.wizard.setup_of(self.profile, self.facts)
            self._prepared = prepare(self._setup)
            self.query_one(FileViewer).files = shown_files(self._prepared.files)
            self._arrange()
            self._update_story()
        self.refresh_bindings()

    def _update_story(self) -> None:
        """Say what the plan is."""
        prepared, facts = self._prepared, self.facts
        if prepared is None or facts is None:
            return
        plan, profile, before = prepared.plan, prepared.profile, self._previous
        setup = self._setup if self._setup and not self._setup.recipe_problem else None
        self._story = Story(
            lines=overview(setup, expected_pace(before, profile)) if setup else (),
            title=plan.title if plan else "",
            notes=plan.notes if plan else (),
            prediction=predict(setup) if setup else None,
            findings=prepared.findings,
            command=one_command(plan) if plan else None,
            files=len(self.query_one(FileViewer).files),
            fallbacks=fallbacks_of(plan),
            since=before.run if before else "",
            changes=effective_changes(before, profile) if before else (),
        )
        self._draw()

    def _draw(self) -> None:
        story, wide, tall = self._story, self.has_class("-wide"), self.has_class("-tall")

        def left(width: int) -> list[Content]:
            middle = () if wide else (*beside(width)[:3],)
            ends = () if wide or not tall else (beside(width)[3],)
            return join_panels(plan_lines(story, width), *middle, command_lines(story, width, whole=tall), *ends)

        def beside(width: int) -> tuple[list[Content], ...]:
            return (
                story_memory_lines(story, width),
                finding_lines(story.findings, width),
                change_lines(story, width),
                note_lines(story, width),
                fallback_lines(story, width),
            )

        self.query_one("#story", Lines).show(left)
        self.query_one("#beside", Lines).show(lambda width: join_panels(*beside(width)) if wide else [])
        self.query_one(FileViewer).show(self.query_one(FileViewer).files)
        self.show_hint()

    def _arrange(self) -> None:
        """Put the files below what is said where there is room, else in its place when they are opened."""
        there = bool(self.query_one(FileViewer).files)
        tall = self.has_class("-tall")
        self.query_one("#body").display = tall or not (self._files_opened and there)
        self.query_one(FileViewer).display = there and (tall or self._files_opened)
        self.query_one(FileViewer).draw()

    def on_resize(self) -> None:
        """Arrange for the new size, once its classes are set."""
        self.call_after_refresh(self._arrange_again)

    def _arrange_again(self) -> None:
        if self._is_composed:
            self._arrange()
            self._draw()

    @work(thread=True, exclusive=True, group="previous")
    def _find_previous(self, profile: Profile) -> None:
        self.post_message(PreviousFound(previous_run(profile)))

    @on(PreviousFound)
    def _take_previous(self, event: PreviousFound) -> None:
        self._previous = event.previous
        self._update_story()

    def findings(self) -> tuple[Finding, ...]:
        """All findings, whatever they are about."""
        return self._prepared.findings if self._prepared else ()

    # The files

    def action_files(self) -> None:
        """Show the files, or what is said again."""
        if self.query_one(FileViewer).files:
            self._files_opened = not self._files_opened
            self._arrange()
            self._focus_shown()
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc closes the files where they take the place of what is said; the next one goes back."""
        if action == "close_files":
            return self._is_composed and not self.query_one("#body").display
        return super().check_action(action, parameters)

    def action_close_files(self) -> None:
        """Show what is said again."""
        self.action_files()

    def _focus_shown(self) -> None:
        files = self.query_one(FileViewer)
        self.query_one(
            "#page" if files.display and (self._files_opened or not self.query_one("#body").display) else "#body"
        ).focus()

    def action_file(self, by: int) -> None:
        """Show the next file."""
        files = self.query_one(FileViewer)
        if files.display:
            files.show_next(by)
        else:
            self.action_files()

    def action_search(self) -> None:
        """Ask for a text to look for in the files."""
        if not self.query_one(FileViewer).display:
            self.action_files()
        self.query_one(FileViewer).search()
