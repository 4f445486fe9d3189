"""Result: what a run made, where it lies, how good it is; it is tried, merged and served from here."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.worker import get_current_worker

from tui_train.actions.host_result import host_of_result
from tui_train.actions.merge import MergeOptions, MergeResult, merge_adapter
from tui_train.actions.result_child import AnswerCancelled, ModelCodeNotTrusted
from tui_train.actions.serving import serve_commands, shell_command
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import display_path, duration_text, loss_text, size_text, visible
from tui_train.facts.machine.folder_names import RemoteFolderNames, names_in_local_folder
from tui_train.profile.hosts import host_address
from tui_train.runs.remote_run import read_run_place
from tui_train.runs.results.result import RunResult, StepLoss
from tui_train.runs.rundir import RunDir

from .base import WizardScreen
from .messages import OpenChat, OpenEvaluation
from .widgets.dialogs import TextDialog
from .widgets.file_viewer import ScrollingPage
from .widgets.hint import Hint
from .widgets.key_bar import KeyBar
from .widgets.lines import Lines
from .widgets.step_bar import StepBar
from .widgets.text_layout import DONE_MARK, FAILED_MARK, KEY_STYLE, LIVE_MARK, MUTED, fit, heading, styled

_LABEL_WIDTH = 14
_HINT_BY_WEIGHTS_KIND = {
    "adapter": "An adapter needs its base model. Merged, it is a model like any other.",
    "model": "A model in Hugging Face's format: what reads that format can load it.",
}


class ResultScreen(WizardScreen):
    """Result of one run."""

    HELP = """Result

The adapter or model that the run made: the final weights, what was saved when it was stopped, or
the newest checkpoint.

  Enter   try it: a chat in the terminal; an adapter answers beside its base model
  b       try a full model beside the model that it was trained from, which takes the memory of both
  e       is it better? scores result and base model on rows that it did not learn
  c       copy the path to the terminal's clipboard
  v       copy the command that serves it
  m       merge an adapter into its base model, as a new folder; the merged model is loaded and compared
  F4      merge with the Python code that came with the model, this time, where it needs that

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

    def __init__(self, run: RunDir, result: RunResult) -> None:
        super().__init__()
        self.run = run
        self.result = result
        self._merge_lines: tuple[Content, ...] = ()
        self._is_merging = False
        self._folder_to_trust = ""  # the folder of a merge that needs code of the model

    def compose(self) -> ComposeResult:
        """One page, a hint, keys."""
        yield StepBar(title="Run › Result")
        with ScrollingPage(id="page"):
            yield Lines(id="result")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Draw the result."""
        self.query_one(StepBar).show_at_right(styled((visible(self.result.run), MUTED)))
        self.query_one(Hint).show_text(
            Content(_HINT_BY_WEIGHTS_KIND[self.result.weights.kind] if self.result.weights else "")
        )
        self.query_one(ScrollingPage).focus()
        self._draw()

    def _draw(self) -> None:
        run_result, merging = self.result, self._merge_lines
        self.query_one("#result", Lines).show(
            lambda width: [*result_lines(run_result, width), *_merge_panel_lines(merging, width)]
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
        if self.result.weights:
            self.app.copy_to_clipboard(self.result.weights.path)
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
            folder, names = read_run_place(self.run.path).folder, RemoteFolderNames(host_address(host))
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
            self.app.call_from_thread(self._show_merge_progress, *_merge_result_lines(merged), busy=False)

    def _show_merge_progress(self, *lines: Content, busy: bool) -> None:
        self._merge_lines, self._is_merging = lines, busy
        self._draw()
        self.refresh_bindings()

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Allow another merge after one failed."""
        if worker_group == "merge":
            self._show_merge_progress(busy=False)


def result_lines(result: RunResult, width: int) -> list[Content]:
    """Return what is known of a result; long paths and commands take the lines that they need."""
    weights = result.weights
    lines = [heading("Result", visible(result.weights_text) or "nothing was found", width)]
    if weights:
        lines += _labelled_lines("Path", styled((display_path(weights.path), "b")), width)
        lines += _labelled_lines(
            "What", styled(result.weights_origin_text, (f"   {size_text(weights.size)}", MUTED)), width
        )
    elif result.output:
        lines += _labelled_lines("Searched", display_path(result.output), width)
    if weights and weights.problem:
        lines += _labelled_lines("Problem", styled(FAILED_MARK, f" {weights.problem}"), width)
    for label, last, best in (
        ("Loss", result.loss, result.loss_best),
        ("Eval loss", result.eval_loss, result.eval_loss_best),
    ):
        if last:
            lines += _labelled_lines(label, _losses_text(last, best), width)
    if result.seconds is not None:
        lines += _labelled_lines("Time", duration_text(result.seconds), width)
    if result.energy_text:
        lines += _labelled_lines("Energy", result.energy_text, width)
    for label, words in result.code:
        lines += _labelled_lines(label, words, width)
    return [*lines, *_command_lines(result, width)]


def _command_lines(result: RunResult, width: int) -> list[Content]:
    """Return the commands that open the trackers and serve the weights."""
    lines: list[Content] = []
    if result.trackers:
        lines += [Content(), heading("Trackers", "the curves, in a browser", width)]
    for tracked in result.trackers:
        lines += _labelled_lines(tracked.tracker, visible(tracked.command or tracked.where), width)
    serving = serve_commands(result)
    if serving:
        lines += [Content(), heading("Serve", "in an environment that has the server", width)]
    for served in serving:
        words = visible(served.command) or styled((f"{served.why}: ", MUTED), ("m", KEY_STYLE))
        lines += _labelled_lines(served.server, words, width)
    return lines


def _losses_text(last: StepLoss, best: StepLoss | None) -> Content:
    words = styled((loss_text(last.loss), "b"), (f" last, {last.position_text}", MUTED))
    if best is None or best == last:
        return words
    return styled(words, "   ", (loss_text(best.loss), "b"), (f" best, {best.position_text}", MUTED))


def _merge_result_lines(merged: MergeResult) -> list[Content]:
    """Return what came of a merge."""
    words = f"{merged.difference:.2g} of the largest logit differs at most, {merged.tolerance:g} allowed"
    folder = f"{visible(merged.host)}:{visible(merged.folder)}" if merged.host else display_path(merged.folder)
    lines = [
        styled(DONE_MARK, " merged into ", (folder, "b")),
        styled((f"checked in {merged.dtype}: {words}; the adapter changes {merged.change:.2g}", MUTED)),
    ]
    lines += [styled((merged.note, MUTED))] if merged.note else []
    return [*lines, Content(visible(shell_command("vllm", "serve", merged.folder)))]


def _merge_panel_lines(lines_of_merge: Sequence[Content], width: int) -> list[Content]:
    """Return how far a merge is, under its title; nothing before the first."""
    if not lines_of_merge:
        return []
    wrapped = [part for line in lines_of_merge for part in line.wrap(max(1, width))]
    return [Content(), heading("Merge", "", width), *wrapped]


def _labelled_lines(label: str, words: str | Content, width: int) -> list[Content]:
    """Return a label and its text, in as many lines as it needs."""
    text = styled(words)
    room = max(1, width - _LABEL_WIDTH)
    first, *rest = text.wrap(room)
    head = fit(styled((f"{label:<{_LABEL_WIDTH}}", MUTED), first), width)
    return [head, *(styled(" " * _LABEL_WIDTH, line) for line in rest)]
