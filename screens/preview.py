"""Preview: the files of the plan, the very strings that are exported and run, and what is to be said about them."""

from pathlib import Path
from typing import ClassVar

from rich.syntax import Syntax
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tui_train.base.errors import AlreadyExists, CannotWrite, TuiTrainError
from tui_train.base.places import expanded
from tui_train.base.text import visible
from tui_train.checks import Finding
from tui_train.profile import fields, store
from tui_train.render import File, listed
from tui_train.render.prepare import Prepared, prepare
from tui_train.runs import rundir
from tui_train.runs.rundir import RunDir
from tui_train.targets.here import submit

from .messages import Become, Complaint, OpenRun
from .step import Step
from .widgets.bar import StepBar
from .widgets.dialogs import Ask, AskText
from .widgets.keys import Keys

_LEXERS = {"sh": "bash", "yaml": "yaml", "py": "python", "toml": "toml"}
_MOST_FINDINGS = 3
_LONG = 40_000


class Page(VerticalScroll, inherit_bindings=False):
    """A text that scrolls up and down and leaves left and right to the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", show=False),
        Binding("down", "scroll_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown,space", "page_down", show=False),
        Binding("home", "scroll_home", show=False),
        Binding("end", "scroll_end", show=False),
    ]


class Preview(Step):
    """The fourth step."""

    HELP = """Preview

These files are what is run and what is exported, byte for byte. They need bash, coreutils and the training's Python,
nothing of this program. supervisor/ holds the modules that keep the run alive, plan.json is the plan for them.
Left and right change the file, up and down scroll. Enter writes the run folder and starts the training.
S saves the profile, E exports the files to a folder, C copies the shown file to your terminal's clipboard (OSC 52).
For another machine (--machine, --host) it only exports: copy the folder there.
F2 fixes what it can of the findings at the top; an error stops the start."""
    TITLE_OF_STEP = "Preview"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Run", key_display="Enter"),
        Binding("left", "file(-1)", "File", key_display="←→"),
        Binding("right", "file(1)", show=False),
        Binding("s", "save", "Save"),
        Binding("e", "export", "Export"),
        Binding("c", "copy", "Copy"),
    ]

    def __init__(self) -> None:
        """Begin with the first file."""
        super().__init__()
        self._prepared: Prepared | None = None
        self._files: tuple[File, ...] = ()
        self._file = 0
        self._starting = False

    def compose(self) -> ComposeResult:
        """Findings, the files' names, the file, the keys."""
        yield StepBar(self.TITLE_OF_STEP)
        yield Static(id="findings", markup=False)
        yield Static(id="files", markup=False)
        with Page(id="body"):
            yield Static(id="file", markup=False)
        yield Keys()

    def update(self) -> None:
        """Make the plan again and show it."""
        if not self._ready or self.facts is None:
            return
        if self.looking:
            self.query_one("#findings", Static).update("  Looking at this machine …")
            return
        prepared = prepare(self.profile, self.facts)
        if prepared != self._prepared:
            self._prepared = prepared
            self._files = listed(prepared.files)
            self._file = min(self._file, max(0, len(self._files) - 1))
            self._draw()
        self.refresh_bindings()

    def findings(self) -> tuple[Finding, ...]:
        """All findings, whatever they are about."""
        return self._prepared.findings if self._prepared else ()

    def hint(self) -> None:
        """There are no rows to explain here."""

    def on_mount(self) -> None:
        """Scroll with the arrow keys at once."""
        self.query_one("#body").focus()

    def fill(self) -> None:
        """Make the plan after the first picture: it takes longer than that."""
        self.call_after_refresh(self.update)

    def _draw(self) -> None:
        prepared = self._prepared
        if prepared is None:
            return
        lines = [_said(finding) for finding in prepared.findings[:_MOST_FINDINGS]]
        more = len(prepared.findings) - len(lines)
        if more > 0:
            lines.append(Text(f"  and {more} more", "dim"))
        if prepared.plan:
            plan = prepared.plan
            said = (plan.title, plan.attempts[0].batch, ", ".join(plan.numbers))
            lines.append(Text("\n".join(f"  {visible(line)}" for line in said if line)))
        else:
            lines.append(
                Text("  Nothing can be run before the errors are fixed: F2 where it helps, else Esc and change it.")
            )
        self.query_one("#findings", Static).update(Text("\n").join(lines))
        names = Text(" ", no_wrap=True, overflow="ellipsis")
        for position, file in enumerate(self._files):
            here = position == self._file
            name = visible(file.path)
            names.append(f"[{name}]" if here else f" {name} ", "bold reverse" if here else "dim")
        self.query_one("#files", Static).update(names)
        self.query_one("#file", Static).update(_highlighted(self._files[self._file]) if self._files else "")

    def action_file(self, by: int) -> None:
        """Show the next file."""
        if self._files:
            self._file = (self._file + by) % len(self._files)
            self._draw()
            self.query_one("#body").scroll_home(animate=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is for another machine is not started here."""
        return not self.elsewhere if action == "next" else super().check_action(action, parameters)

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

    def action_copy(self) -> None:
        """Copy the shown file to the terminal's clipboard, which works over SSH."""
        if self._files:
            file = self._files[self._file]
            self.app.copy_to_clipboard(file.text)
            self.notify(f"{visible(file.path)} was sent to your terminal's clipboard.", markup=False)

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
        except CannotWrite as error:
            self.post_message(Complaint(error))
        else:
            there = f"Copy it to the machine of {self.elsewhere}. " if self.elsewhere else ""
            self.notify(visible(f"Written to {target}. {there}Run it with: bash launch.sh"), markup=False)


def _said(finding: Finding) -> Text:
    mark = {"error": "!", "warning": "·", "note": " "}[finding.level]
    more = "  F2 fixes it." if finding.change else ""
    style = "bold" if finding.level == "error" else ""
    return Text(f"{mark} {visible(finding.message)}. {visible(finding.remedy)}{more}", style)


def _highlighted(file: File) -> Text:
    lines = "\n".join(visible(line.expandtabs()) for line in file.text[:_LONG].split("\n"))
    lexer = _LEXERS.get(file.path.rpartition(".")[2], "text")
    text = Syntax("", lexer, theme="ansi_dark", background_color="default").highlight(lines)
    if len(file.text) > _LONG:
        text.append(f"\n… {len(file.text) - _LONG} more characters: export the files to read on", "dim")
    return text


SCREEN = Preview
