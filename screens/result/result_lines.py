"""Lines of Result: what a run made, how good it is, and what can be done with that."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from textual.content import Content

from tui_train.actions.export_model import ExportedModel
from tui_train.actions.merge import MergeResult
from tui_train.actions.serving import serve_commands, shell_command
from tui_train.base.text import display_path, duration_text, loss_text, size_text, visible
from tui_train.runs.results.result import RunResult, StepLoss
from tui_train.runs.run_folders import RunFolder
from tui_train.views.compare import ComparisonRow
from tui_train.views.metric_summaries import metric_value_text
from tui_train.views.previous_run import differing_words
from tui_train.views.result_details import ResultDetails, next_commands
from tui_train.views.run_settings import shortened_setting_text

from ..widgets.text_layout import (
    DONE_MARK,
    FAILED_MARK,
    KEY_STYLE,
    MUTED,
    columns,
    fit,
    fit_path,
    heading,
    labelled_lines,
    styled,
)

_LABEL_WIDTH = 14
_SETTING_LABEL_WIDTH = 19
_MAX_FILES_SHOWN = _MAX_CHANGES_SHOWN = 8
_MAX_SAVED_FILES_SHOWN = 3


def result_lines(result: RunResult, width: int, verdict: str = "") -> list[Content]:
    """Return what is known of a result; long paths and commands take the lines that they need.

    `verdict` is that of its newest evaluation, empty for none.
    """
    # Of a folder the name: the command to serve it has all of its path.
    base = Path(result.base).name if Path(result.base).is_absolute() else result.base
    made = visible(replace(result, base=base).weights_kind_and_base_text) or _other_result_text(result)
    lines = [heading("Result", made, width)]
    lines += _weights_and_files_lines(result, width)
    # Where rewards are reported, the loss says nothing of how well it learned.
    if result.reward is not None and result.reward_first is not None:
        first = (f", {metric_value_text(result.reward_first)} first", MUTED)
        lines += _labelled_lines("Reward", styled(f"{metric_value_text(result.reward)} last", first), width)
    for label, last, best in (
        ("Loss", result.loss, result.loss_best),
        ("Eval loss", result.eval_loss, result.eval_loss_best),
    ):
        if last and result.reward is None:
            lines += _labelled_lines(label, _losses_text(last, best), width)
    lines += _labelled_lines("Evaluation", verdict, width) if verdict else []
    if result.seconds is not None:
        lines += _labelled_lines("Time", duration_text(result.seconds), width)
    if result.energy_text:
        lines += _labelled_lines("Energy", result.energy_text, width)
    for label, words in result.code:
        lines += _labelled_lines(label, words, width)
    return [*lines, *_command_lines(result, width)]


def _weights_and_files_lines(result: RunResult, width: int) -> list[Content]:
    """Return what the run left and where, or where that was searched."""
    weights, lines = result.weights, list[Content]()
    if weights:
        lines += _labelled_lines("Path", styled((display_path(weights.path), "b")), width)
        lines += _labelled_lines(
            "What", styled(result.weights_origin_text, (f"   {size_text(weights.size)}", MUTED)), width
        )
    elif result.saved:
        lines += _saved_file_lines(result, width)
    elif result.written:
        lines += _labelled_lines("Written", styled((", ".join(map(display_path, result.written)), "b")), width)
    elif result.output:
        lines += _labelled_lines("Searched", display_path(result.output), width)
    if weights and weights.problem:
        lines += _labelled_lines("Problem", styled(FAILED_MARK, f" {weights.problem}"), width)
    if result.has_broken_loss:
        words = " the loss became NaN: Run (Esc) says what helps"
        lines += _labelled_lines("Problem", styled(FAILED_MARK, words), width)
    return lines


def _other_result_text(result: RunResult) -> str:
    """Return what a run left that has neither an adapter nor a model."""
    if result.saved:
        return "a file of your script" if len(result.saved) == 1 else f"{len(result.saved)} files of your script"
    return "files of your script" if result.written else "no adapter, model or other file was found"


def _saved_file_lines(result: RunResult, width: int) -> Iterator[Content]:
    first, *others = result.saved
    yield from _labelled_lines("Saved", styled((display_path(first), "b")), width)
    for path in others[: _MAX_SAVED_FILES_SHOWN - 1]:
        yield from _labelled_lines("", display_path(path), width)
    if (more := len(result.saved) - _MAX_SAVED_FILES_SHOWN) > 0:
        yield from _labelled_lines("", styled((f"and {more} more", MUTED)), width)


def detail_lines(result: RunResult, details: ResultDetails, width: int) -> Iterator[Content]:
    """Yield the files of a result, and the settings that differ from the run before."""
    if details.files:
        yield heading("Files", size_text(sum(file.size for file in details.files)), width)
        for file in details.files[:_MAX_FILES_SHOWN]:
            size = size_text(file.size)
            name = visible(Path(file.path).name) if result.weights else display_path(file.path)
            yield columns(width, (fit_path(name, width - len(size) - 1), 0), ((size, MUTED), -len(size)))
        yield from _more_lines(len(details.files) - _MAX_FILES_SHOWN)
    if details.previous_run_name:
        if details.files:
            yield Content()
        yield heading("Changed", f"since {visible(details.previous_run_name)}", width)
        if not details.changes:
            yield styled(("no setting", MUTED))
        for row in details.changes[:_MAX_CHANGES_SHOWN]:
            yield from _change_lines(row, width)
        yield from _more_lines(len(details.changes) - _MAX_CHANGES_SHOWN)


def next_command_lines(run: RunFolder, result: RunResult, previous_run_name: str, width: int) -> Iterator[Content]:
    """Yield the commands that may follow."""
    yield Content()
    yield heading("Next", "on the command line", width)
    for label, command in next_commands(run, result, previous_run_name):
        yield from _labelled_lines(label, command, width)


def _more_lines(count: int) -> Iterator[Content]:
    if count > 0:
        yield styled((f"and {count} more", MUTED))


def _change_lines(row: ComparisonRow, width: int) -> Iterator[Content]:
    """Yield a setting with its values before and now."""
    room = max(6, (width - _SETTING_LABEL_WIDTH - 3) // 2)
    before, now = (shortened_setting_text(cell, room) for cell in differing_words(*row.cells))
    label = fit((row.label, MUTED), _SETTING_LABEL_WIDTH - 1)
    pad = " " * (_SETTING_LABEL_WIDTH - label.cell_length)
    yield fit(styled(label, pad, (f"{before} → ", MUTED), (now, "b")), width)


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


def merge_result_lines(merged: MergeResult) -> list[Content]:
    """Return what came of a merge."""
    words = f"difference {merged.difference:.2g}, limit {merged.tolerance:g}, in {merged.dtype}"
    folder = f"{visible(merged.host)}:{visible(merged.folder)}" if merged.host else display_path(merged.folder)
    lines = [
        styled(DONE_MARK, " merged into ", (folder, "b")),
        styled((f"checked: it answers as the adapter does ({words})", MUTED)),
    ]
    lines += [styled((merged.note, MUTED))] if merged.note else []
    return [*lines, Content(visible(shell_command("vllm", "serve", merged.folder)))]


def export_result_lines(made: ExportedModel) -> list[Content]:
    """Return what came of an export."""
    lines = [styled(DONE_MARK, " wrote ", (display_path(made.path), "b")), Content(visible(made.command))]
    about = (f"{size_text(made.size)}, {made.content}", made.note)
    return [*lines, *(styled((visible(text), MUTED)) for text in about if text)]


def work_panel_lines(title: str, lines_of_work: Sequence[Content], width: int) -> list[Content]:
    """Return how far a merge or an export is, under its title; nothing before the first."""
    if not lines_of_work:
        return []
    wrapped = [part for line in lines_of_work for part in line.wrap(max(1, width))]
    return [heading(title, "", width), *wrapped, Content()]


def _labelled_lines(label: str, words: str | Content, width: int) -> list[Content]:
    return labelled_lines(label, words, width, _LABEL_WIDTH)
