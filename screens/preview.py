"""Preview: what will happen in five lines, what is wrong, the one command, and the files that are exported and run."""

from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message

from tui_train.base.errors import AlreadyExists, BadInput, TuiTrainError
from tui_train.base.places import expanded
from tui_train.base.text import visible
from tui_train.checks import Finding
from tui_train.facts.types import Facts
from tui_train.memory.predict import predict
from tui_train.profile import fields, store
from tui_train.profile.types import Profile
from tui_train.render import listed
from tui_train.render.command import copied, one_command
from tui_train.render.prepare import Prepared, prepare
from tui_train.resolve.resolve import resolve
from tui_train.runs import rundir
from tui_train.runs.rundir import RunDir
from tui_train.targets.here import submit
from tui_train.workflow.overview import overview
from tui_train.workflow.previous import Previous, changes, pace, previous

from .messages import ApplyFix, Become, Complaint, OpenRun
from .step import Step
from .widgets.bar import StepBar
from .widgets.code import Files, Page
from .widgets.dialogs import Ask, AskText
from .widgets.hint import Hint
from .widgets.ink import ink
from .widgets.keys import Keys
from .widgets.lines import Lines
from .widgets.preview_lines import (
    FIX_KEYS,
    Story,
    attempt_lines,
    attempts_of,
    change_lines,
    command_lines,
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


class Preview(Step):
    """The fourth step."""

    HELP = """Preview

What will happen, what is wrong with it, and the one command of the first attempt, as launch.sh --plain runs it.
F2 fixes the first finding, F6 to F9 those after it; an error stops the start.
f shows the files behind the command: they are what is run and what is exported, byte for byte, and need bash,
coreutils and the training's Python, nothing of this program. supervisor/ keeps the run alive, plan.json is its plan.
Left and right change the file, up and down scroll, / searches in all files and Enter goes to the next place.
Enter writes the run folder and starts the training.
c copies the command to your terminal's clipboard (OSC 52), y the shown file. s saves the profile, e exports the files
to a folder.
For another machine (--machine, --host) it only exports: copy the folder there."""
    TITLE_OF_STEP = "Preview"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Run", key_display="Enter"),
        Binding("f", "files", "Files"),
        Binding("c", "copy", "Copy"),
        Binding("y", "copy_file", "Copy file"),
        Binding("s", "save", "Save profile"),
        Binding("e", "export", "Export"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("left", "file(-1)", "File", key_display="←→"),
        Binding("right", "file(1)", show=False),
        *(
            Binding(key, f"fix_finding({at})", f"Fix finding {at + 1}", show=False)
            for at, key in enumerate(FIX_KEYS)
            if at
        ),
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
        self._starting = False

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
        if self.looking:
            self.query_one("#story", Lines).say(ink("Looking at this machine …"))
            return
        if self._asked_for != self.profile.name and not self.elsewhere:
            self._asked_for = self.profile.name
            self._find_previous(self.profile)
        if self._made_of != (self.profile, self.facts):
            self._made_of = (self.profile, self.facts)
            self._prepared = prepare(self.profile, self.facts)
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
        try:
            resolved = resolve(profile, facts)
        except BadInput:
            resolved = None
        self._story = Story(
            lines=overview(facts, resolved, pace(before, profile)) if resolved else (),
            title=plan.title if plan else "",
            notes=plan.notes if plan else (),
            prediction=predict(facts, resolved) if resolved else None,
            findings=prepared.findings,
            command=one_command(plan) if plan else None,
            files=len(self.query_one(Files).files),
            attempts=attempts_of(plan),
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
                attempt_lines(story, width),
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

    def on_resize(self) -> None:
        """Arrange for the new size, once its classes are set."""
        self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        self._arrange()
        self._draw()

    @work(thread=True, exclusive=True, group="previous")
    def _find_previous(self, profile: Profile) -> None:
        # A message: what is called from a thread keeps the worker, and with it this screen, for as long as it draws.
        self.post_message(Before(previous(profile)))

    @on(Before)
    def _compare(self, event: Before) -> None:
        self._before = event.previous
        self._tell()

    def findings(self) -> tuple[Finding, ...]:
        """All findings, whatever they are about."""
        return self._prepared.findings if self._prepared else ()

    def hint(self) -> None:
        """Say what Enter does."""
        if self._prepared is None:
            return
        if self._prepared.plan is None:
            words = "Nothing can be run before the errors are fixed: F2 where it helps, else Esc and change it."
        elif self.elsewhere:
            words = "It is for another machine: e exports the files, to be copied there."
        elif any(finding.level == "error" for finding in self._prepared.findings):
            words = "It cannot be started here now; e exports it all the same."
        else:
            words = "Enter writes the run folder and starts it; it keeps running when you leave."
        self.query_one(Hint).say(Content(words))

    def _fixable(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings() if finding.change)

    def fixable(self) -> Finding | None:
        """Return the finding that F2 fixes: the first that has a change."""
        return next(iter(self._fixable()), None)

    def action_fix_finding(self, at: int) -> None:
        """Make the change that fixes one of the findings."""
        found = self._fixable()
        if at < len(found) and (change := found[at].change):
            self.post_message(ApplyFix(change))

    # The files

    def action_files(self) -> None:
        """Show the files, or what is said again."""
        if self.query_one(Files).files:
            self._opened = not self._opened
            self._arrange()
            self._focus_shown()
            self.refresh_bindings()

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

    def action_copy(self) -> None:
        """Copy the command to the terminal's clipboard, which works over SSH."""
        if self._story.command:
            self.app.copy_to_clipboard(copied(self._story.command))
            self.notify("The command was sent to your terminal's clipboard.", markup=False)

    def action_copy_file(self) -> None:
        """Copy the shown file to the terminal's clipboard."""
        if file := self.query_one(Files).shown:
            self.app.copy_to_clipboard(file.text)
            self.notify(f"{visible(file.path)} was sent to your terminal's clipboard.", markup=False)

    # Starting, saving, exporting

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is for another machine is not started here; what is about files needs them."""
        if action == "next":
            return not self.elsewhere
        if action == "fix_finding":
            return isinstance(parameters[0], int) and parameters[0] < len(self._fixable())
        if action in {"file", "copy_file"}:
            return self._ready and self.query_one(Files).display
        return super().check_action(action, parameters)

    def action_next(self) -> None:
        """Start what is shown."""
        if self.elsewhere:
            self.app.bell()
            return
        if self.looking:
            self.app.bell()
            self.notify("This machine is being looked at: press Enter again when that is done.", markup=False)
            return
        if self._prepared is None:
            self.update()
        prepared = self._prepared
        if prepared is None or prepared.plan is None or prepared.profile != self.profile or self._starting:
            self.app.bell()
            return
        self._starting = True
        self._start(prepared)

    @work(thread=True, group="start")
    def _start(self, prepared: Prepared) -> None:
        assert prepared.plan is not None  # noqa: S101 - action_next has looked
        try:
            run = submit(prepared, prepared.plan)
        except TuiTrainError as error:
            self.app.call_from_thread(self._not_started, error)
        else:
            self.app.call_from_thread(self._started, run)

    def on_screen_resume(self) -> None:
        """Let a plan be started again, when the screen is shown again."""
        self._starting = False

    def _started(self, run: RunDir) -> None:
        self.post_message(OpenRun(run))

    def _not_started(self, error: TuiTrainError) -> None:
        self._starting = False
        self.post_message(Complaint(error))

    def recover(self, group: str) -> None:
        """Let the plan be started again."""
        if group == "start":
            self._starting = False

    def action_save(self) -> None:
        """Ask for a name, then save the profile."""
        self.app.push_screen(AskText("Save the profile under this name:", self.profile.name), self._save)

    def _save(self, name: str | None) -> None:
        if not name:
            return
        try:
            profile = fields.put(self.profile, "name", name)
            path = store.save(profile)
        except AlreadyExists:
            self._replace(name)
        except TuiTrainError as error:
            self.post_message(Complaint(error))
        else:
            self.post_message(Become(profile))
            self.notify(visible(f"Saved {path}"), markup=False)

    def _replace(self, name: str) -> None:
        answers = (("", "No, keep it"), ("yes", "Yes, replace it"))

        def answered(answer: str | None) -> None:
            if answer:
                try:
                    profile = fields.put(self.profile, "name", name)
                    store.save(profile, overwrite=True)
                except TuiTrainError as failed:
                    self.post_message(Complaint(failed))
                else:
                    self.post_message(Become(profile))
                    self.notify(visible(f"Replaced {name}"), markup=False)

        self.app.push_screen(Ask(f"A profile named {visible(name)} already exists. Replace it?", answers), answered)

    def action_export(self) -> None:
        """Ask for a folder, then write the files there."""
        if self._prepared and self._prepared.files:
            folder = str(Path.cwd() / visible(self.profile.name))
            self.app.push_screen(AskText("Write the files to this folder:", folder), self._export)

    def _export(self, folder: str | None, *, overwrite: bool = False) -> None:
        if not folder or self._prepared is None:
            return
        try:
            target = expanded(folder).absolute()
        except TuiTrainError as error:
            self.post_message(Complaint(error))
            return
        try:
            rundir.export(target, self._prepared.files, overwrite=overwrite)
        except AlreadyExists as error:
            answers = (("", "No, keep what is there"), ("yes", "Yes, overwrite"))
            question = f"{visible(error.message)}. Overwrite the plan's files there?"
            self.app.push_screen(
                Ask(question, answers), lambda answer: self._export(folder, overwrite=True) if answer else None
            )
        except TuiTrainError as error:
            self.post_message(Complaint(error))
        else:
            there = f"Copy it to the machine of {self.elsewhere}. " if self.elsewhere else ""
            self.notify(visible(f"Written to {target}. {there}Run it with: bash launch.sh"), markup=False)


SCREEN = Preview
