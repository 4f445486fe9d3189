"""Evaluate: whether a result is better than its base model, on rows that it did not learn."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.worker import get_current_worker

from tui_train.actions.evaluate import Evaluation, EvaluationOptions, NoHeldOutRows, default_scoring, evaluate_run
from tui_train.actions.host_result import host_of_result
from tui_train.actions.result_child import AnswerCancelled, ModelCodeNotTrusted
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import capitalised, display_path, grouped_digits, visible
from tui_train.facts.machine.folder_names import RemoteFolderNames, names_in_local_folder
from tui_train.profile.hosts import host_address
from tui_train.runs.run_folders import RunFolder
from tui_train.views.evaluation import differing_sample_texts, mean_score_texts, verdict_text

from .base import WizardScreen
from .run.run_state import whole_minutes_text
from .screen_words import with_words_for_options, words_on_screen
from .widgets.file_viewer import ScrollingPage
from .widgets.hint import Hint
from .widgets.key_bar import KeyBar
from .widgets.lines import Lines
from .widgets.path_suggester import ListFolderNames
from .widgets.step_bar import StepBar
from .widgets.text_layout import (
    DONE_MARK,
    FAILED_MARK,
    LIVE_MARK,
    MUTED,
    OPEN_MARK,
    fit,
    heading,
    labelled_lines,
    share_bar,
    styled,
)

_LABEL_WIDTH = 12
_MAX_SAMPLES = 20
_MARK_BY_VERDICT = {"better": DONE_MARK, "worse": FAILED_MARK, "no difference": OPEN_MARK}
_KEEP_ROWS_TEXT = "To keep some in the next run, set data.evaluation=0.1."
_TASK, _PATTERN, _FUNCTION = "task", "regex", "function"
_TITLE_BY_SCORING = {"loss": "loss", "exact": "exact answers"}
_QUESTION_BY_SCORING = {
    _TASK: "Which task of lm-eval? Its name, or a YAML file.",
    _PATTERN: r"Which regular expression? Its last match is compared: #### (\d+) finds the number in #### 42.",
    _FUNCTION: "Which function? FILE.py:NAME; it is called with prompt, answer and expected, and returns a number.",
}
# Options of the command that remedies name, by the key that does the same here; of two that begin alike the longer.
_KEY_BY_OPTION = {
    "--task NAME or FILE.yaml": "s", "--task FILE.yaml": "s", "--task": "s", "--data FILE": "d",
    "--by regex:PATTERN": "s", "--by function:score.py:score": "s", "repeat the command": "press s",
}  # fmt: skip
_WORDS_BY_SCORING = {
    "loss": "Loss: how well the model predicts the answers of the rows",
    "exact": "Exact: whether the model writes exactly the row's answer",
    _PATTERN: "Pattern: whether the part that a regular expression finds is that of the row's answer",
    _FUNCTION: "Function: the number that your own Python function gives each answer",
    _TASK: "Task: a benchmark of lm-eval in place of rows, by its name or a YAML file of yours",
}


class EvaluateScreen(WizardScreen):
    """Scores of a result and of its base, as they come, and the verdict."""

    HELP = """Evaluate

Result and base model are scored on the same rows: those that the run kept for evaluations, or those of a file. On each
row one of them is better, or both are equal, which does not count. The verdict is better only where the result wins
more than half of the rows, worse only where it wins fewer, and both only where chance does not explain that (the whole
95 % interval lies on that side of 50 %).

  d       score the rows of a file
  s       score in another way: the loss, exact answers, a regular expression, a function of yours, or a benchmark of
          lm-eval
  F4      load a model that came with Python code of its own, this time only
  Esc     stop and go back; scores are kept, and e on Result continues from there

On the command line, tui-train evaluate also compares with another run, or a run's checkpoints."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("d", "choose_data", "Other data"),
        Binding("s", "choose_scoring", "Score by"),
        Binding("f4", "load_with_own_code", "Run its code"),
    ]

    def __init__(self, run: RunFolder, chosen_before: dict[Path, EvaluationOptions]) -> None:
        """Begin with what was chosen before, by the run's folder, where what is chosen is kept."""
        super().__init__()
        self.run = run
        self._chosen_before = chosen_before
        # Without "by", as the run's own profile says, which is read while it starts.
        self._options = chosen_before.get(run.path, EvaluationOptions(by=""))
        self._own_scoring = ""  # as the run's own profile says, once it is read
        self._host = ""  # on which the files to score are named
        self._needs_own_code = False
        self._pace_start: tuple[float, int] | None = None  # when the first score came, and how many there were

    def compose(self) -> ComposeResult:
        """One page, a hint, keys."""
        yield StepBar(title="Result › Evaluate")
        with ScrollingPage(id="page"):
            yield Lines(id="result")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin with the rows that the run did not train on."""
        self.query_one(StepBar).show_at_right(styled((visible(self.run.name), MUTED)))
        self.query_one(ScrollingPage).focus()
        self._begin()

    def _begin(self) -> None:
        self._chosen_before[self.run.path] = replace(self._options, trusts_model_code=False)
        self._evaluation_title = _evaluation_title(self._options)
        self._needs_own_code, self._pace_start = False, None
        what = "lm-eval reads its tasks and downloads their data" if self._options.tasks else "Scoring"
        self.query_one(Hint).show_text(Content(f"{what}, on the machine that trained it. Esc ends it and goes back."))
        self._show_progress("starting", 0, 0)
        self.refresh_bindings()
        self._evaluate(self._options)

    @work(thread=True, exclusive=True, group="evaluate")
    def _evaluate(self, options: EvaluationOptions) -> None:
        worker = get_current_worker()

        def show_progress(what: str, done: int, count: int) -> None:
            loading = f"loading {display_path(what)}" if what else ""
            self.call_unless_cancelled(self._show_progress, loading, done, count)

        try:
            if not self._own_scoring:
                own, host = default_scoring(self.run), host_of_result(self.run)
                options = replace(options, by=options.by or own)
                self.call_unless_cancelled(self._take_scoring_of_run, own, host)
            evaluation = evaluate_run(self.run, options, show_progress, lambda: worker.is_cancelled)
        except AnswerCancelled:
            return
        except TuiTrainError as error:
            self.call_unless_cancelled(self._show_failure, error)
        else:
            self.call_unless_cancelled(self._show_evaluation, evaluation)

    def _take_scoring_of_run(self, own: str, host: str) -> None:
        self._own_scoring, self._host = own, host
        if not self._options.by:
            self._options = replace(self._options, by=own)
            self._evaluation_title = _evaluation_title(self._options)
            self._show_progress("starting", 0, 0)

    def _show_progress(self, what: str, done: int, count: int) -> None:
        title = self._evaluation_title
        if what:
            words = styled(LIVE_MARK, f" {what} …")
            self.query_one("#result", Lines).show(lambda width: [heading("Evaluate", title, width), words])
            return
        share = done / max(1, count)
        now = time.monotonic()
        self._pace_start = self._pace_start or (now, done)
        left = time_left_text(self._pace_start, (now, done), count)
        counts = f"  {grouped_digits(done)} of {grouped_digits(count)} scores{left}"

        def lines(width: int) -> list[Content]:
            bar = share_bar(share, max(4, min(40, width - len(counts))))
            return [heading("Evaluate", title, width), fit(styled(bar, (counts, MUTED)), width)]

        self.query_one("#result", Lines).show(lines)

    def _show_evaluation(self, evaluation: Evaluation) -> None:
        title = self._evaluation_title
        self.query_one("#result", Lines).show(lambda width: evaluation_lines(evaluation, title, width))
        self.query_one(Hint).show_text(Content("d: score the rows of another file. s: another way to score."))

    def _show_failure(self, error: TuiTrainError) -> None:
        self._needs_own_code = isinstance(error, ModelCodeNotTrusted)
        remedy = words_on_screen(error.remedy)
        if self._needs_own_code:
            remedy = "If you trust that code, F4 runs it, this time only."
        elif isinstance(error, NoHeldOutRows):
            remedy = words_on_screen("Press d and name a file with other rows. " + _KEEP_ROWS_TEXT)
        remedy = with_words_for_options(remedy, _KEY_BY_OPTION)
        title, words = self._evaluation_title, f"{visible(capitalised(error.message))}. {visible(remedy)}"

        def lines(width: int) -> list[Content]:
            first, *rest = Content(words).wrap(max(1, width - 2))
            shown = [heading("Evaluate", title, width), styled(FAILED_MARK, " ", first)]
            shown += [styled("  ", line) for line in rest]
            shown += [Content(), heading("Ways to score", "s chooses one", width)]
            for way in _WORDS_BY_SCORING.values():
                label, _, about = way.partition(": ")
                shown += labelled_lines(label, about, width, _LABEL_WIDTH)
            return shown

        self.query_one("#result", Lines).show(lines)
        self.query_one(Hint).show_text(Content("d: score the rows of another file. s: another way to score."))
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A model's own code can be run where it needs that."""
        return action != "load_with_own_code" or self._needs_own_code

    def action_choose_data(self) -> None:
        """Ask for a file of rows, then score them."""

        def answered(path: str) -> None:
            self._options = replace(self._options, data=(path.strip(),) if path.strip() else (), tasks=())
            self._begin()

        question = "File with rows to score (empty: the rows that the run did not train on):"
        known = self._options.data[0] if self._options.data else ""
        self._ask_for_text(question, known, answered)

    def _ask_for_text(
        self, question: str, known: str, answered: Callable[[str], None], *, is_path: bool = True
    ) -> None:
        """Ask for a text; where it is a path, those of the machine that scores are offered."""
        names: ListFolderNames | None = names_in_local_folder if is_path else None
        if self._host and is_path:
            question, names = f"{question} (on {visible(self._host)})", RemoteFolderNames(host_address(self._host))
        self.ask_text(question, known, answered, list_folder_names=names)

    def action_choose_scoring(self) -> None:
        """Ask how rows are scored, then score them."""

        def answered(scoring: str) -> None:
            if question := _QUESTION_BY_SCORING.get(scoring):
                self._ask_for_text(question, "", lambda text: named(scoring, text), is_path=scoring != _PATTERN)
            else:
                begin(by=scoring, tasks=())

        def named(scoring: str, text: str) -> None:
            if (text := text.strip()) and scoring == _TASK:
                begin(by="loss", data=(), tasks=(text,))
            elif text:
                begin(by=f"{scoring}:{text}", tasks=())

        def begin(**chosen: object) -> None:
            self._options = replace(self._options, **chosen)
            self._begin()

        own, words = self._own_scoring or "loss", _WORDS_BY_SCORING
        if own not in words:
            words = {own: f"Reward: {_scoring_title(own)}, from which it learned"} | words
        self.ask_choice("How to score?", words.items(), answered)

    def action_load_with_own_code(self) -> None:
        """Score with the code that came with the model."""
        self._options = replace(self._options, trusts_model_code=True)
        self._begin()

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Say that it ended."""
        if worker_group == "evaluate":
            self.query_one(Hint).show_text(styled(FAILED_MARK, " The evaluation has ended; Esc goes back."))


def _evaluation_title(options: EvaluationOptions) -> str:
    if options.tasks:
        return f"on {visible(', '.join(options.tasks))}"
    rows = display_path(options.data[0]) if options.data else "rows that the run did not train on"
    return f"by {_scoring_title(options.by)}, on {rows}" if options.by else f"on {rows}"


def time_left_text(start: tuple[float, int], now: tuple[float, int], count: int) -> str:
    """Return how long the rest of `count` scores takes, empty before there is a pace.

    `start` and `now` are seconds and scores: those with which a continued evaluation starts took no time.
    """
    seconds, done = now[0] - start[0], now[1] - start[1]
    return f", {whole_minutes_text(seconds * (count - now[1]) / done)} left" if done > 0 else ""


def _scoring_title(by: str) -> str:
    if by.startswith(f"{_PATTERN}:"):
        return visible(by.removeprefix(f"{_PATTERN}:"))
    return _TITLE_BY_SCORING.get(by) or visible(by.rpartition("/")[2])


def evaluation_lines(evaluation: Evaluation, title: str, width: int) -> list[Content]:
    """Return the means of both sides, the verdict and the first rows that were answered differently."""
    label, result, other = mean_score_texts(evaluation)
    label = label if evaluation.tasks else label.capitalize()  # a task is named as it is
    lines = [heading("Evaluate", title, width)]
    better = "lower" if evaluation.by == "loss" and not evaluation.is_of_pairs else "higher"
    lines.append(styled((f"{label}, {better} is better", MUTED)))
    for name, text in (("Result", result), ("Base", other)):
        lines += labelled_lines(f"  {name}", styled((text, "b")), width, _LABEL_WIDTH)
    verdict = styled(_MARK_BY_VERDICT[evaluation.verdict], f" {verdict_text(evaluation)}")
    lines += [Content(), heading("Verdict", evaluation.verdict, width), *verdict.wrap(width)]
    lines += styled((visible(evaluation.note), "$warning")).wrap(width) if evaluation.note else []
    for number, sample in enumerate(differing_sample_texts(evaluation, _MAX_SAMPLES)):
        lines += [Content(), heading("Answers", "that differ", width)] if not number else [Content()]
        for name, text in sample:
            lines += labelled_lines(name.capitalize(), visible(text), width, _LABEL_WIDTH)
    return lines
