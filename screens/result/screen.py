"""Result: what a run made, where it lies, how good it is; it is tried, merged and served from here."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.worker import get_current_worker

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
from ..messages import OpenChat, OpenEvaluation
from ..run.run_plot import PlotOptions, draw_or_hide_plot
from ..widgets.dialogs import TextDialog
from ..widgets.file_viewer import ScrollingPage
from ..widgets.hint import Hint
from ..widgets.key_bar import KeyBar
from ..widgets.lines import Lines
from ..widgets.plot import Plot
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import FAILED_MARK, LIVE_MARK, MUTED, styled
from .result_lines import detail_lines, merge_panel_lines, merge_result_lines, next_command_lines, result_lines

if TYPE_CHECKING:
    from tui_train.views.result_details import ResultDetails

_HINT_BY_WEIGHTS_KIND = {
    "adapter": "An adapter needs its base model. Merged, it is a model like any other.",
    "model": "A model in Hugging Face's format: what reads that format can load it.",
}


def _hint_text(result: RunResult) -> str:
    if result.weights:
        return _HINT_BY_WEIGHTS_KIND[result.weights.kind]
    if result.saved or result.written:
        return "To try, merge or serve a model, have the script save it with save_pretrained."
    return ""


class ResultScreen(WizardScreen):
    """Result of one run."""

    HELP = """Result

The adapter, model or other file that the run made: the final weights, what was saved when it was stopped,
or the newest checkpoint; and from 118 columns on its loss, the files, and what differs from the run before.

  Enter   try it: a chat in the terminal; an adapter answers beside its base model
  b       try a full model beside the model that it was trained from, which takes the memory of both
  e       is it better? scores result and base model on rows that it did not learn
  c       copy the path to the terminal's clipboard
  v       copy the command that serves it
  m       merge an adapter into its base model, as a new folder; the merged model is loaded and compared
  F4      merge with the model's own Python code, for this merge only, where it needs that

On the command line: tui-train result, try, evaluate, merge and export-model."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "try", "Try it", key_display="Enter"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("e", "evaluate", "Is it better?"),
        Binding("c", "copy_path", "Copy path"),
        Binding("v", "copy_serve_command", "Copy command"),
        Binding("m", "merge", "Merge"),
        Binding("f4", "merge_with_own_code", "Run its code"),
        Binding("b", "try_beside_base", "Try beside its base"),
    ]

    def __init__(self, run: RunFolder, result: RunResult) -> None:
        super().__init__()
        self.run = run
        self.result = result
        self._merge_lines: tuple[Content, ...] = ()
        self._is_merging = False
        self._previous_run_name = ""
        self._folder_to_trust = ""  # the folder of a merge that needs code of the model

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
        self._read_details()

    @work(thread=True, group="details")
    def _read_details(self) -> None:
        from tui_train.views.result_details import read_result_details

        details, worker = read_result_details(self.run, self.result), get_current_worker()
        if not worker.is_cancelled:
            self.app.call_from_thread(self._show_details, details)

    def _show_details(self, details: "ResultDetails") -> None:
        result = self.result
        self._previous_run_name = details.previous_run_name
        self._draw()
        draw_or_hide_plot(self.query_one(Plot), details.progress, PlotOptions())
        self.query_one("#beside", Lines).show(lambda width: [*detail_lines(result, details, width)])
        self.query_one("#more", Lines).show(lambda width: [Content(), *detail_lines(result, details, width)])

    def _draw(self) -> None:
        run, result, merging, before = self.run, self.result, self._merge_lines, self._previous_run_name
        self.query_one("#result", Lines).show(
            lambda width: [
                *result_lines(result, width),
                *merge_panel_lines(merging, width),
                *next_command_lines(run, result, before, width),
            ]
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow neither try nor merge of what cannot be loaded; only an adapter can be merged, once at a time."""
        weights = self.result.weights
        whole = weights is not None and not weights.problem
        if action in {"try", "evaluate"}:
            return whole and weights is not None and not weights.scores
        if action == "try_beside_base":
            full = weights is not None and weights.kind == "model" and not weights.scores
            return whole and full and bool(self.result.base)
        if action == "merge":
            return whole and weights is not None and weights.kind == "adapter" and not self._is_merging
        if action == "merge_with_own_code":
            return bool(self._folder_to_trust) and not self._is_merging
        if action == "copy_path":
            return bool(self.result.main_path)
        return action != "copy_serve_command" or any(served.command for served in serve_commands(self.result))

    def action_try(self) -> None:
        """Open a chat with the result."""
        adapter = self.result.weights is not None and self.result.weights.kind == "adapter"
        self.post_message(OpenChat(self.run, beside_base=adapter))

    def action_try_beside_base(self) -> None:
        """Talk with a full model and with the one that it was trained from."""
        self.post_message(OpenChat(self.run, beside_base=True))

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

        def answered(folder: str | None) -> None:
            if folder and folder.strip():
                self._merge_adapter(folder.strip())

        folder, title = str(self.run.path), "Merge into which new folder?"
        names: Callable[[str], list[str]] = names_in_local_folder
        if host := host_of_result(self.run):
            folder, names = read_run_location(self.run.path).folder, RemoteFolderNames(host_address(host))
            title = f"Merge into which new folder on {visible(host)}?"
        self.app.push_screen(TextDialog(title, f"{folder}/merged", list_folder_names=names), answered)

    def action_merge_with_own_code(self) -> None:
        """Merge with the code that came with the model."""
        self._merge_adapter(self._folder_to_trust, trusted=True)

    @work(thread=True, exclusive=True, group="merge")
    def _merge_adapter(self, folder: str, *, trusted: bool = False) -> None:
        self._folder_to_trust = ""
        worker = get_current_worker()

        def say(what: str, of: str) -> None:
            if not worker.is_cancelled:
                self.app.call_from_thread(
                    self._show_merge_progress, styled(LIVE_MARK, f" {what} ", (display_path(of), MUTED)), busy=True
                )

        say("starting", folder)
        try:
            merged = merge_adapter(
                self.run, folder, MergeOptions(trusts_model_code=trusted), say, lambda: worker.is_cancelled
            )
        except AnswerCancelled:
            return
        except ModelCodeNotTrusted as error:
            self._folder_to_trust = folder
            words = f" not merged: {error.message}. If you trust that file, F4 runs it, for this merge only."
            self.app.call_from_thread(self._show_merge_progress, styled(FAILED_MARK, words), busy=False)
        except TuiTrainError as error:
            self.wizard.show_error(error)
            self.app.call_from_thread(
                self._show_merge_progress, styled(FAILED_MARK, f" not merged: {error.message}"), busy=False
            )
        else:
            self.app.call_from_thread(self._show_merge_progress, *merge_result_lines(merged), busy=False)

    def _show_merge_progress(self, *lines: Content, busy: bool) -> None:
        self._merge_lines, self._is_merging = lines, busy
        self._draw()
        self.refresh_bindings()

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Allow another merge after one failed."""
        if worker_group == "merge":
            self._show_merge_progress(busy=False)
