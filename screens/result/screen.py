"""Result: what a run made, where it lies, how good it is; it is tried, merged and served from here."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.worker import get_current_worker

from tui_train.actions.export_model import ExportModelOptions, Server, export_model, find_converter
from tui_train.actions.host_result import host_of_result
from tui_train.actions.merge import MergeOptions, merge_adapter
from tui_train.actions.result_child import AnswerCancelled, ModelCodeNotTrusted
from tui_train.actions.serving import serve_commands
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import display_path, visible
from tui_train.facts.machine.folder_names import RemoteFolderNames, names_in_local_folder
from tui_train.profile.hosts import host_address
from tui_train.runs.remote_run import read_run_location
from tui_train.runs.results.result import RunResult
from tui_train.runs.run_folders import RunFolder

from ..base import WizardScreen
from ..messages import LeaveWizard, OpenEvaluation, OpenScreen
from ..screen_words import with_words_for_options, words_on_screen
from ..widgets.file_viewer import ScrollingPage
from ..widgets.hint import Hint
from ..widgets.key_bar import KeyBar
from ..widgets.lines import Lines
from ..widgets.path_suggester import ListFolderNames
from ..widgets.plot import Plot
from ..widgets.run_plot import PlotOptions, draw_or_hide_plot
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import FAILED_MARK, LIVE_MARK, MUTED, styled
from .result_lines import (
    detail_lines,
    export_result_lines,
    merge_result_lines,
    next_command_lines,
    result_lines,
    work_panel_lines,
)

if TYPE_CHECKING:
    from tui_train.views.result_details import ResultDetails

_HINT_BY_WEIGHTS_KIND = {
    "adapter": "m merges the adapter with its base model, x exports it, p publishes it.",
    "model": "x exports the model for Ollama, llama.cpp or vLLM, p publishes it.",
}
_SCORING_MODEL_HINT = "It gives scores, no text: there is nothing to try or to export. p publishes it."


_SERVER_CHOICES: tuple[tuple[Server, str], ...] = (
    ("ollama", "Ollama: a GGUF file, and a Modelfile with the chat template"),
    ("gguf", "llama.cpp: a GGUF file"),
    ("vllm", "vLLM: a folder with the whole model"),
)
_BITS_BY_WEIGHTS_TYPE = {
    "f16": 16, "bf16": 16, "f32": 32, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q4_k_m": 4.9, "q3_k_m": 4,
}  # fmt: skip
_WEIGHTS_TYPE_CHOICES = tuple(
    (name, f"{name:<7} {bits:>4} bits a weight: {bits / 8:.1f} GB for 1 B parameters")
    for name, bits in _BITS_BY_WEIGHTS_TYPE.items()
)


# Options of the command that remedies name, in words for what is chosen here.
_WORDS_BY_OPTION = {
    "; or name its folder: --llama-cpp FOLDER": "", "--type q8_0": "choose q8_0",
    "--for gguf": "for llama.cpp", "--for vllm": "for vLLM",
}  # fmt: skip


def _failure_line(done: str, error: TuiTrainError, remedy: str) -> Content:
    """Return why something was not done, and a remedy in words for what is chosen here."""
    words = with_words_for_options(words_on_screen(remedy), _WORDS_BY_OPTION)
    return styled(FAILED_MARK, f" not {done}: {error.message}. {visible(words)}")


def _hint_text(result: RunResult) -> str:
    if result.weights and result.weights.problem:
        return ""
    if result.weights and result.weights.scores:
        return _SCORING_MODEL_HINT
    if result.weights:
        return _HINT_BY_WEIGHTS_KIND[result.weights.kind]
    if result.saved or result.written:
        return "To try, merge or serve a model, have the script save it with save_pretrained."
    return ""


class JobCallbacks(NamedTuple):
    """Where what makes a folder tells its steps, and how it knows that nobody waits for it."""

    say: Callable[[str, str], None]
    is_cancelled: Callable[[], bool]


class _FolderJob(NamedTuple):
    """What makes a new folder of a result: its title, the word for that it is done, and how it is made."""

    title: str
    done: str
    make: Callable[..., list[Content]]


class ResultScreen(WizardScreen):
    """Result of one run."""

    HELP = """Result

The adapter, model or other file that the run made: the final weights, what was saved when it was stopped,
or the newest checkpoint; its files, and what differs from the run before. In a terminal of 118 columns or more these
stand at the right, below the plot of the loss.

  Enter   try it: a chat in the terminal; an adapter answers beside its base model
  b       try a full model beside the model that it was trained from, which takes the memory of both
  e       is it better? scores result and base model on rows that it did not learn
  c       copy the path to the terminal's clipboard
  v       copy the command that serves it
  m       merge an adapter into its base model, as a new folder; a check compares the answers of both
  x       write it for Ollama, llama.cpp or vLLM, as a new folder
  p       send it to the Hugging Face Hub, after a look at what would be sent
  F4      merge or export with the model's own Python code, this time only, where it needs that
  Esc     go back; while a merge or an export goes on, cancel that and keep nothing of it

On the command line: tui-train result, try, evaluate, merge, export-model and publish."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "try", "Try it", key_display="Enter"),
        Binding("escape", "back", "Back", key_display="Esc"),
        Binding("e", "evaluate", "Is it better?"),
        Binding("m", "merge", "Merge"),
        Binding("x", "export", "Export"),
        Binding("p", "publish", "Publish"),
        Binding("c", "copy_path", "Copy path"),
        Binding("v", "copy_serve_command", "Copy command"),
        Binding("f4", "repeat_with_model_code", "Run its code"),
        Binding("b", "try_beside_base", "Try beside its base"),
    ]

    def __init__(self, run: RunFolder, result: RunResult) -> None:
        super().__init__()
        self.run = run
        self.result = result
        self._work_title = ""
        self._work_lines: tuple[Content, ...] = ()
        self._is_working = False
        self._previous_run_name = self._verdict = ""
        self._repeat_with_own_code: Callable[[], object] | None = None  # what needs code of the model

    def compose(self) -> ComposeResult:
        """One page, a hint, keys."""
        yield StepBar(title="Run › Result")
        with Horizontal(id="middle"):
            with ScrollingPage(id="page"):
                yield Lines(id="result")
                yield Lines(id="more")
            with Vertical(id="side"):
                yield Plot(id="loss")
                yield Lines(id="beside")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Draw the result."""
        self.query_one(StepBar).show_at_right(styled((visible(self.result.run), MUTED)))
        self.query_one(Plot).display = False
        self.query_one(Hint).show_text(Content(_hint_text(self.result)))
        self.query_one(ScrollingPage).focus()
        self._draw()

    def on_screen_resume(self) -> None:
        """Read what takes time: an evaluation may have been made meanwhile."""
        self._read_details()

    @work(thread=True, group="details", exclusive=True)
    def _read_details(self) -> None:
        from tui_train.views.result_details import read_result_details

        self.call_unless_cancelled(self._show_details, read_result_details(self.run, self.result))

    def _show_details(self, details: "ResultDetails") -> None:
        result = self.result
        self._previous_run_name, self._verdict = details.previous_run_name, details.verdict
        self._draw()
        draw_or_hide_plot(self.query_one(Plot), details.progress, PlotOptions())
        self.query_one("#beside", Lines).show(lambda width: [*detail_lines(result, details, width)])
        self.query_one("#more", Lines).show(lambda width: [Content(), *detail_lines(result, details, width)])

    def _draw(self) -> None:
        run, result, before, verdict = self.run, self.result, self._previous_run_name, self._verdict
        title, working = self._work_title, self._work_lines
        self.query_one("#result", Lines).show(
            lambda width: [
                *work_panel_lines(title, working, width),
                *result_lines(result, width, verdict),
                *next_command_lines(run, result, before, width),
            ]
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow nothing with what cannot be loaded; only an adapter can be merged, and one folder is made at a time."""
        weights = self.result.weights if self.result.weights and not self.result.weights.problem else None
        kind, is_idle = weights.kind if weights else "", not self._is_working
        talks = weights is not None and not weights.scores
        allowed = {
            "try": talks,
            "evaluate": talks,
            "export": talks and is_idle,
            "try_beside_base": talks and kind == "model" and bool(self.result.base),
            "merge": kind == "adapter" and is_idle,
            "publish": weights is not None,
            "repeat_with_model_code": self._repeat_with_own_code is not None and is_idle,
            "copy_path": bool(self.result.main_path),
        }
        if action == "copy_serve_command":
            return any(served.command for served in serve_commands(self.result))
        return allowed.get(action, True)

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Say what Esc cancels while a folder is made."""
        ended = {"escape": f"Cancel the {self._work_title.lower()}"} if self._is_working else {}
        return {**super().footer_text_by_key, **ended}

    def ask_before_leaving(self) -> bool:
        """Ask whether a folder that is being made is given up; false where there is none."""
        if self._is_working:
            answers = (("", "Stay here until it is done"), ("leave", f"Cancel the {self._work_title.lower()} and quit"))
            question = f"{self._work_title} is not done yet."
            self.ask_choice(question, answers, lambda _answer: self.post_message(LeaveWizard()))
        return self._is_working

    async def action_back(self) -> None:
        """Cancel the folder that is being made, or else go back."""
        if self._is_working:
            self.workers.cancel_group(self, "folder")
            self._show_work(busy=False)
            self.notify(f"{self._work_title} cancelled, nothing of it is kept.", markup=False)
        else:
            await self.app.run_action("back")

    def action_try(self) -> None:
        """Open a chat with the result."""
        adapter = self.result.weights is not None and self.result.weights.kind == "adapter"
        self._open_chat(beside_base=adapter)

    def action_try_beside_base(self) -> None:
        """Talk with a full model and with the one that it was trained from."""
        self._open_chat(beside_base=True)

    def _open_chat(self, *, beside_base: bool) -> None:
        from ..chat.screen import ChatScreen

        self.post_message(OpenScreen(ChatScreen(self.run, compare=beside_base)))

    def action_evaluate(self) -> None:
        """Score the result beside its base model."""
        self.post_message(OpenEvaluation(self.run))

    def action_copy_path(self) -> None:
        """Copy the path to the terminal's clipboard, which works over SSH."""
        if path := self.result.main_path:
            self.app.copy_to_clipboard(path)
            self.notify("The path was sent to your terminal's clipboard.", markup=False)

    def action_copy_serve_command(self) -> None:
        """Copy the first command that serves it."""
        if first := next((served.command for served in serve_commands(self.result) if served.command), ""):
            self.app.copy_to_clipboard(first)
            self.notify("The command was sent to your terminal's clipboard.", markup=False)

    def action_merge(self) -> None:
        """Ask for a folder, then merge."""

        def make(folder: str, *, trusted: bool, report: JobCallbacks) -> list[Content]:
            options = MergeOptions(trusts_model_code=trusted)
            return merge_result_lines(merge_adapter(self.run, folder, options, report.say, report.is_cancelled))

        folder, names = display_path(str(self.run.path)), names_in_local_folder
        title = "Merge into which new folder?"
        if host := host_of_result(self.run):
            folder, names = read_run_location(self.run.path).folder, RemoteFolderNames(host_address(host))
            title = f"Merge into which new folder on {visible(host)}?"
        self._ask_for_folder(title, f"{folder}/merged", names, _FolderJob("Merge", "merged", make))

    def action_export(self) -> None:
        """Ask for what, of which type and where, then export."""

        def chosen(name: str) -> None:
            options = ExportModelOptions(server=next(each for each, _ in _SERVER_CHOICES if each == name))
            if options.server == "vllm":
                ask_for_folder(options)
            else:
                self._call_if_converter_is_there(lambda: ask_for_type(options))

        def ask_for_type(options: ExportModelOptions) -> None:
            question = "Which type of weights? A smaller one answers a little worse."
            self.ask_choice(
                question, _WEIGHTS_TYPE_CHOICES, lambda answer: ask_for_folder(replace(options, weights_type=answer))
            )

        def ask_for_folder(options: ExportModelOptions) -> None:
            def make(folder: str, *, trusted: bool, report: JobCallbacks) -> list[Content]:
                chosen = replace(options, trusts_model_code=trusted)
                return export_result_lines(export_model(self.run, folder, chosen, report.say, report.is_cancelled))

            folder = f"{display_path(str(self.run.path))}/{options.server}"
            job = _FolderJob("Export", "exported", make)
            self._ask_for_folder("Write into which new folder?", folder, names_in_local_folder, job)

        self.ask_choice("For which server?", _SERVER_CHOICES, chosen)

    @work(thread=True, exclusive=True, group="converter")
    def _call_if_converter_is_there(self, ask: Callable[[], None]) -> None:
        """Ask on, or say at once that there is no llama.cpp: no answer helps without it."""
        try:
            find_converter()
        except TuiTrainError as error:
            self._work_title, self._repeat_with_own_code = "Export", None
            self.call_unless_cancelled(self._show_work, _failure_line("exported", error, error.remedy), busy=False)
        else:
            self.call_unless_cancelled(ask)

    def action_publish(self) -> None:
        """Show what would be sent to the Hub."""
        from ..publish import PublishScreen

        self.post_message(OpenScreen(PublishScreen(self.run)))

    def action_repeat_with_model_code(self) -> None:
        """Repeat it with the code that came with the model."""
        if self._repeat_with_own_code:
            self._repeat_with_own_code()

    def _ask_for_folder(self, question: str, folder: str, names: ListFolderNames, job: _FolderJob) -> None:
        def answered(chosen: str) -> None:
            if chosen.strip():
                self._make_folder(job, chosen.strip())

        self.ask_text(question, folder, answered, list_folder_names=names)

    @work(thread=True, exclusive=True, group="folder")
    def _make_folder(self, job: _FolderJob, folder: str, *, trusted: bool = False) -> None:
        self._work_title, self._repeat_with_own_code = job.title, None
        worker = get_current_worker()

        def say(what: str, of: str) -> None:
            words = styled(LIVE_MARK, f" {what} ", (display_path(of), MUTED))
            self.call_unless_cancelled(self._show_work, words, busy=True)

        say("starting", folder)
        try:
            lines = job.make(folder, trusted=trusted, report=JobCallbacks(say, lambda: worker.is_cancelled))
        except AnswerCancelled:
            return
        except TuiTrainError as error:
            remedy = error.remedy
            if isinstance(error, ModelCodeNotTrusted):
                self._repeat_with_own_code = lambda: self._make_folder(job, folder, trusted=True)
                remedy = "If you trust that file, F4 runs it, this time only."
            lines = [_failure_line(job.done, error, remedy)]
        self.call_unless_cancelled(self._show_work, *lines, busy=False)

    def _show_work(self, *lines: Content, busy: bool) -> None:
        self._work_lines, self._is_working = lines, busy
        self.query_one(ScrollingPage).scroll_home(animate=False)
        self._draw()
        self.refresh_bindings()

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Allow another folder after one failed."""
        if worker_group == "folder":
            self._show_work(busy=False)
