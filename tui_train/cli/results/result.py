"""`tui-train result`, `merge` and `try`: show what a run made, make a model of it, and talk with it."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct

from tui_train.actions.chat import PICTURE_COMMAND, AnswerPiece, Chat, ChatModelSide
from tui_train.actions.host_result import host_of_result
from tui_train.actions.merge import (
    MergeOptions,
    MergeResult,
    merge_adapter,
    require_loadable_weights,
    require_new_folder,
)
from tui_train.actions.serving import ServeCommand, serve_commands, shell_command
from tui_train.base.errors import BadInput, TuiTrainError
from tui_train.base.signal_handlers import install_handlers, restore_handlers
from tui_train.base.text import display_path, duration_text, loss_text, size_text, visible
from tui_train.cli import answers
from tui_train.cli.printing import print_json
from tui_train.runs import run_folders
from tui_train.runs.results.result import RunResult, StepLoss, read_result
from tui_train.views.evaluation import stored_verdict_text
from tui_train.views.metric_summaries import metric_value_text

_LABEL_WIDTH = 14
_MAX_SAVED_FILES_SHOWN = 3  # files that a line names


class ResultAnswer(Struct, frozen=True):
    """What a run made, what that is and took in words, the verdict of its newest evaluation, and how it is served."""

    result: RunResult
    about: str
    energy: str
    evaluation: str
    serve: tuple[ServeCommand, ...]


def print_result(reference: str, *, as_json: bool) -> None:
    """Print what a run made."""
    run = run_folders.find_run_or_checkpoint(reference)
    run_result = read_result(run)
    verdict, energy = stored_verdict_text(run, run_result), run_result.energy_text
    if as_json:
        print_json(
            ResultAnswer(run_result, run_result.weights_kind_and_base_text, energy, verdict, serve_commands(run_result))
        )
        return
    is_profile = "/" not in reference and not run.name.startswith(reference)
    if is_profile and (count := run_folders.count_runs_of_profile(reference)) > 1:
        words = f"Of {count} runs of {visible(reference)} this is the newest: `tui-train runs` lists them."
        click.echo(words, err=True)
    for label, words in labelled_result_texts(run_result, verdict):
        click.echo(f"{label:<{_LABEL_WIDTH - 1}} {words}".rstrip())


def _no_weights_text(run_result: RunResult) -> str:
    """Return in words that a run left no adapter or model, and what else its script wrote."""
    if run_result.saved:
        more = len(run_result.saved) - _MAX_SAVED_FILES_SHOWN
        names = ", ".join(map(display_path, run_result.saved[:_MAX_SAVED_FILES_SHOWN]))
        return f"{names}{f' and {more} more' if more > 0 else ''}, written while it trained; no adapter or model"
    if run_result.written:
        return f"in {', '.join(map(display_path, run_result.written))}, by the script; no adapter or model"
    if run_result.host:
        return f"on {visible(run_result.host)}: tui-train fetch {visible(run_result.run)} copies it here"
    return f"no adapter and no model{f' in {display_path(run_result.output)}' if run_result.output else ''}"


def labelled_result_texts(run_result: RunResult, verdict: str = "") -> Iterator[tuple[str, str]]:
    """Yield what is known of a result, each a label and safe words; the `verdict` is that of an evaluation."""
    yield "run", f"{visible(run_result.run)}, {visible(run_result.state)}"
    weights = run_result.weights
    if weights:
        yield "result", visible(run_result.weights_kind_and_base_text)
        yield "path", display_path(weights.path)
        yield "", f"{run_result.weights_origin_text}, {size_text(weights.size)}"
        if weights.problem:
            yield "problem", f"cannot be loaded: {weights.problem}"
    else:
        yield "result", _no_weights_text(run_result)
    yield from _labelled_scores(run_result, verdict)
    if run_result.seconds is not None:
        yield "time", duration_text(run_result.seconds)
    if run_result.energy_text:
        yield "energy", run_result.energy_text
    for label, words in run_result.code:
        yield label.lower(), words
    for tracked in run_result.trackers:
        yield tracked.tracker, visible(tracked.command or tracked.where)
    for served in serve_commands(run_result):
        yield served.server, visible(served.command) or served.why
    if weights and not weights.problem:
        name = visible(run_result.run) + (f"@{run_result.step}" if run_result.source == "chosen" else "")
        needs_tokenizer = "needs tokenizer files beside it: copy them there, or pass processing_class to the Trainer"
        yield "try", needs_tokenizer if run_result.lacks_tokenizer else f"tui-train try {name}"
        if weights.kind == "adapter":
            yield "merge", f"tui-train merge {name} FOLDER"


def _labelled_scores(run_result: RunResult, verdict: str) -> Iterator[tuple[str, str]]:
    if run_result.reward is not None and run_result.reward_first is not None:
        rewards = map(metric_value_text, (run_result.reward, run_result.reward_first))
        yield "reward", "{} last, {} first".format(*rewards)
    if run_result.loss:
        yield "loss", _last_and_best_loss_text(run_result.loss, run_result.loss_best)
    if run_result.eval_loss:
        yield "eval loss", _last_and_best_loss_text(run_result.eval_loss, run_result.eval_loss_best)
    if run_result.state == "finished" and not run_result.loss and not run_result.eval_loss:
        yield "loss", "none was found in its log"
    if verdict:
        yield "evaluation", verdict


def _last_and_best_loss_text(last: StepLoss, best: StepLoss | None) -> str:
    words = f"{loss_text(last.loss)} last, {last.position_text}"
    return f"{words}; {loss_text(best.loss)} best, {best.position_text}" if best and best != last else words


def merge_adapter_and_report(reference: str, folder: str, options: MergeOptions) -> None:
    """Merge a run's adapter into a model folder, and print how it was checked."""
    run = run_folders.find_run_or_checkpoint(reference)
    if host := host_of_result(run, options.host, options.python):
        answers.announce_changes(writes=(f"{host}:{folder}",))
    else:
        require_loadable_weights(read_result(run))
        answers.announce_changes(writes=(str(require_new_folder(folder)),))
    merged = merge_adapter(run, folder, options, lambda what, of: click.echo(f"{what} {of}", err=True))
    for line in _merge_result_lines(merged):
        click.echo(line)


def _merge_result_lines(merged: MergeResult) -> Iterator[str]:
    """Yield what is to be known of a merged model."""
    there = f" on {visible(merged.host)}" if merged.host else ""
    yield f"merged into {visible(merged.folder)}{there} ({merged.dtype})"
    yield (
        f"checked: it answers as the adapter does (logits differ by {merged.difference:.2g} of the largest at most,"
        f" limit {merged.tolerance:g}; the adapter changes {merged.change:.2g})"
    )
    if merged.note:
        yield merged.note
    yield f"serve it{there}: {visible(shell_command('vllm', 'serve', merged.folder))}"


def chat_with_result(  # noqa: PLR0913, PLR0917 - one for each option
    reference: str,
    prompt: str | None,
    images: tuple[Path, ...],
    max_tokens: int,
    python: str,
    host: str,
    *,
    base: bool,
    trusted: bool,
) -> None:
    """Answer one prompt, of the option or of stdin, or talk in a terminal; images are shown with the first."""
    run = run_folders.find_run_or_checkpoint(reference)
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read()
    if prompt is not None and not prompt.strip():
        raise BadInput("the prompt is empty", "Give one: --prompt TEXT")
    chat = Chat(run, compare=base, python=python, trusted=trusted, named_host=host)
    try:
        for image in images:
            chat.attach_picture(str(image))
        ready = chat.wait_until_loaded(lambda what: click.echo(f"loading {what} …", err=True))
        if base and not ready.compares:
            click.echo("The base model is not known: only the result answers.", err=True)
        click.echo(f"{visible(chat.result.weights_kind_and_base_text)}; {ready.device}, {ready.dtype}", err=True)
        if not ready.template:
            click.echo("It has no chat template: the prompt is continued as plain text.", err=True)
        if prompt is not None:
            _print_answers(chat, prompt, max_tokens)
            return
        pictures = f" {PICTURE_COMMAND}FILE shows a picture." if ready.sees else ""
        click.echo(f"Ctrl-C ends an answer, Ctrl-D the chat.{pictures}", err=True)
        _chat_loop(chat, max_tokens)
    finally:
        chat.close()


def _chat_loop(chat: Chat, max_tokens: int) -> None:
    """Answer line after line until Ctrl-D."""
    # Imported, it lets lines be edited and found again.
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
    while True:
        try:
            prompt = input("› ")
        except EOFError:
            click.echo()
            return
        try:
            if prompt.startswith(PICTURE_COMMAND):
                click.echo(chat.attach_picture(prompt.removeprefix(PICTURE_COMMAND)), err=True)
            elif prompt.strip():
                _print_answers(chat, prompt, max_tokens, talking=True)
        except TuiTrainError as error:
            if not chat.is_alive:
                raise
            click.echo(visible(f"{error.message}. {error.remedy}"), err=True)


def _print_answers(chat: Chat, prompt: str, max_tokens: int, *, talking: bool = False) -> None:
    """Print the answers of all sides; while one is `talking`, Ctrl-C ends only the one that is being written."""
    for side in chat.sides:
        if chat.compares:
            click.secho(f"── {side}", bold=True)
        with _stop_answer_on_ctrl_c(chat) if talking else contextlib.nullcontext():
            _print_answer(chat, prompt, side, max_tokens)


def _print_answer(chat: Chat, prompt: str, side: ChatModelSide, max_tokens: int) -> None:
    """Print an answer as it is written."""
    is_blank = True
    for piece in chat.ask(prompt, side, max_tokens):
        if isinstance(piece, AnswerPiece):
            is_blank = is_blank and not piece.text.strip()
            click.echo(piece.text, nl=False)
            sys.stdout.flush()
        else:
            click.echo()
            words = f"{piece.blank_text} {piece.summary}" if is_blank else piece.summary
            click.echo(click.style(words, dim=True), err=True)


@contextlib.contextmanager
def _stop_answer_on_ctrl_c(chat: Chat) -> Iterator[None]:
    """Let Ctrl-C end the answer that is being written; where that does not help, a second one ends the chat."""
    interrupts: list[int] = []

    def stop(number: int, _frame: object) -> None:
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(number)
        chat.stop_answer()

    handlers = install_handlers((signal.SIGINT,), stop)
    try:
        yield
    finally:
        restore_handlers(handlers)
