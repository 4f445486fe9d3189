"""What Preview shows: what will happen, what is wrong, the command, and the files behind it."""

from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message

from tui_train.checks import Finding
from tui_train.facts.types import Facts
from tui_train.memory.length import set_up
from tui_train.memory.predict import predict
from tui_train.profile.types import Profile
from tui_train.render import listed
from tui_train.render.command import one_command
from tui_train.render.prepare import Prepared, prepare
from tui_train.workflow.overview import overview
from tui_train.workflow.previous import Previous, changes, pace, previous

from .questions import WHILE_PLANNED
from .step import Step
from .widgets.bar import StepBar
from .widgets.code import Files, Page
from .widgets.hint import Hint
from .widgets.ink import ink
from .widgets.keys import Keys
from .widgets.lines import Lines
from .widgets.preview_lines import (
    Story,
    change_lines,
    command_lines,
    fallback_lines,
    fallbacks_of,
    finding_lines,
    note_lines,
    panels,
    story_memory,
    what_lines,
)


class Before(Message):
    """The run of this profile before this one is known, or that there is none."""

    def __init__(self, found: Previous | None) -> None:
        """Carry it."""
        super().__init__()
        self.previous = found


class PlanView(Step):
    """The plan of a profile, made again when what it is made of changes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close_files", "Close files", key_display="Esc"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
    ]

    def __init__(self) -> None:
        """Begin with nothing planned."""
        super().__init__()
        self._prepared: Prepared | None = None
        self._made_of: tuple[Profile, Facts] | None = None
        self._story = Story()
        self._before: Previous | None = None
        self._asked_for: str | None = None
        self._opened = False  # the files take the place of what is said

    def compose(self) -> ComposeResult:
        """Put what is said and the files at the left, and beside them what follows from the plan."""
        yield StepBar(self.TITLE_OF_STEP)
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                with Page(id="body"):
                    yield Lines(id="story")
                yield Files()
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
        if not self._ready or self.facts is None:
            return
        if self.looking - WHILE_PLANNED:
            self.query_one("#story", Lines).say(ink(f"Looking at {self.elsewhere or 'this machine'} …"))
            return
        if self._asked_for != self.profile.name and not self.elsewhere:
            self._asked_for = self.profile.name
            self._find_previous(self.profile)
        if self._made_of != (self.profile, self.facts):
            self._made_of = (self.profile, self.facts)
            self._setup = set_up(self.profile, self.facts)
            self._prepared = prepare(self._setup)
            self.query_one(Files).files = listed(self._prepared.files)
            self._arrange()
            self._tell()
        self.refresh_bindings()

    def _tell(self) -> None:
        """Say what the plan is."""
        prepared, facts = self._prepared, self.facts
        if prepared is None or facts is None:
            return
        plan, profile, before = prepared.plan, prepared.profile, self._before
        setup = self._setup if self._setup and not self._setup.problem else None
        self._story = Story(
            lines=overview(setup, pace(before, profile)) if setup else (),
            title=plan.title if plan else "",
            notes=plan.notes if plan else (),
            prediction=predict(setup) if setup else None,
            findings=prepared.findings,
            command=one_command(plan) if plan else None,
            files=len(self.query_one(Files).files),
            fallbacks=fallbacks_of(plan),
            since=before.run if before else "",
            changes=changes(before, profile) if before else (),
        )
        self._draw()

    def _draw(self) -> None:
        story, wide, tall = self._story, self.has_class("-wide"), self.has_class("-tall")

        def left(width: int) -> list[Content]:
            middle = () if wide else (*beside(width)[:3],)
            ends = () if wide or not tall else (beside(width)[3],)
            return panels(what_lines(story, width), *middle, command_lines(story, width, whole=tall), *ends)

        def beside(width: int) -> tuple[list[Content], ...]:
            return (
                story_memory(story, width),
                finding_lines(story.findings, width),
                change_lines(story, width),
                note_lines(story, width),
                fallback_lines(story, width),
            )

        self.query_one("#story", Lines).show(left)
        self.query_one("#beside", Lines).show(lambda width: panels(*beside(width)) if wide else [])
        self.query_one(Files).show(self.query_one(Files).files)
        self.hint()

    def _arrange(self) -> None:
        """Put the files below what is said where there is room, else in its place when they are opened."""
        there = bool(self.query_one(Files).files)
        tall = self.has_class("-tall")
        self.query_one("#body").display = tall or not (self._opened and there)
        self.query_one(Files).display = there and (tall or self._opened)
        self.query_one(Files).draw()

    def on_resize(self) -> None:
        """Arrange for the new size, once its classes are set."""
        self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        if self._ready:
            self._arrange()
            self._draw()

    @work(thread=True, exclusive=True, group="previous")
    def _find_previous(self, profile: Profile) -> None:
        self.post_message(Before(previous(profile)))

    @on(Before)
    def _compare(self, event: Before) -> None:
        self._before = event.previous
        self._tell()

    def findings(self) -> tuple[Finding, ...]:
        """All findings, whatever they are about."""
        return self._prepared.findings if self._prepared else ()

    # The files

    def action_files(self) -> None:
        """Show the files, or what is said again."""
        if self.query_one(Files).files:
            self._opened = not self._opened
            self._arrange()
            self._focus_shown()
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc closes the files where they take the place of what is said; the next one goes back."""
        if action == "close_files":
            return self._ready and not self.query_one("#body").display
        return super().check_action(action, parameters)

    def action_close_files(self) -> None:
        """Show what is said again."""
        self.action_files()

    def _focus_shown(self) -> None:
        files = self.query_one(Files)
        self.query_one(
            "#page" if files.display and (self._opened or not self.query_one("#body").display) else "#body"
        ).focus()

    def action_file(self, by: int) -> None:
        """Show the next file."""
        files = self.query_one(Files)
        if files.display:
            files.turn(by)
        else:
            self.action_files()

    def action_search(self) -> None:
        """Ask for a text to look for in the files."""
        if not self.query_one(Files).display:
            self.action_files()
        self.query_one(Files).search()
