"""What `tui-train result`, `merge` and `try` do: show what a run made, make a model of it, and talk with it."""

import contextlib
import signal
import sys
from collections.abc import Iterator

import click

from tui_train.base.errors import BadInput
from tui_train.base.handlers import install, restore
from tui_train.base.text import display_path, duration, loss, size, thousands, visible
from tui_train.cli.plans import print_json
from tui_train.runs import rundir
from tui_train.runs.result import Loss, Result
from tui_train.runs.result import result as result_of
from tui_train.workflow.chat import Chat, Side, Text
from tui_train.workflow.merge import Merged, Options
from tui_train.workflow.merge import merge as merge_run
from tui_train.workflow.serving import command, servers

_LABEL = 14


def result(reference: str, *, as_json: bool) -> None:
    """Print what a run made."""
    found = result_of(rundir.find(reference))
    if as_json:
        print_json({"result": found, "about": found.about, "energy": found.energy, "serve": servers(found)})
        return
    for label, words in lines(found):
        click.echo(f"{label:<{_LABEL}}{words}".rstrip())


def nothing(found: Result) -> str:
    """Return in words that a run left no adapter or model, and where else its script wrote."""
    if found.written:
        return f"no adapter or model; the script wrote in {', '.join(map(display_path, found.written))}"
    return f"no adapter and no model{f' in {display_path(found.output)}' if found.output else ''}"


def lines(found: Result) -> Iterator[tuple[str, str]]:
    """Yield what is known of a result, each a label and safe words."""
    yield "run", f"{visible(found.run)}, {visible(found.state)}"
    weights = found.weights
    if weights:
        yield "result", visible(found.about)
        yield "path", display_path(weights.path)
        yield "", f"{found.origin}, {size(weights.size)}"
        if weights.problem:
            yield "problem", f"cannot be loaded: {weights.problem}"
    else:
        yield "result", nothing(found)
    if found.loss:
        yield "loss", _losses(found.loss, found.loss_best)
    if found.eval_loss:
        yield "eval loss", _losses(found.eval_loss, found.eval_loss_best)
    if found.seconds is not None:
        yield "time", duration(found.seconds)
    if found.energy:
        yield "energy", found.energy
    for served in servers(found):
        yield served.server, visible(served.command) or served.why
    if weights and not weights.problem:
        name = visible(found.run)
        yield "try", f"tui-train try {name}"
        if weights.kind == "adapter":
            yield "merge", f"tui-train merge {name} FOLDER"


def _losses(last: Loss, best: Loss | None) -> str:
    words = f"{loss(last.loss)} last, step {thousands(last.step)}"
    return f"{words}; {loss(best.loss)} best, step {thousands(best.step)}" if best and best != last else words


def merge(reference: str, folder: str, options: Options) -> None:
    """Merge a run's adapter into a model folder, and print how it was checked."""
    run = rundir.find(reference)
    merged = merge_run(run, folder, options, lambda what, of: click.echo(f"{what} {of}", err=True))
    for line in merged_lines(merged):
        click.echo(line)


def merged_lines(merged: Merged) -> Iterator[str]:
    """Yield what is to be known of a merged model."""
    yield f"merged into {visible(merged.folder)} ({merged.dtype})"
    yield (
        f"checked: a logit differs from the adapter's by {merged.difference:.2g} of the largest one at most "
        f"({merged.dtype}: {merged.tolerance:g} allowed; the adapter changes {merged.change:.2g})"
    )
    if merged.note:
        yield merged.note
    yield f"serve it: {visible(command('vllm', 'serve', merged.folder))}"


def try_(  # noqa: PLR0913 - one for each option
    reference: str, prompt: str | None, tokens: int, python: str, *, base: bool, trusted: bool
) -> None:
    """Answer one prompt, of the option or of stdin, or talk in a terminal."""
    run = rundir.find(reference)
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read()
    if prompt is not None and not prompt.strip():
        raise BadInput("the prompt is empty", "Give one: --prompt TEXT")
    chat = Chat(run, compare=base, python=python, trusted=trusted)
    try:
        ready = chat.load(lambda what: click.echo(f"loading {what} …", err=True))
        if base and not ready.compares:
            click.echo("The base model is not known: only the result answers.", err=True)
        click.echo(f"{visible(chat.result.about)}; {ready.device}, {ready.dtype}", err=True)
        if not ready.template:
            click.echo("It has no chat template: the prompt is continued as plain text.", err=True)
        if prompt is not None:
            _answers(chat, prompt, tokens)
            return
        click.echo("Ctrl-C ends an answer, Ctrl-D the chat.", err=True)
        _talk(chat, tokens)
    finally:
        chat.close()


def _talk(chat: Chat, tokens: int) -> None:
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
        if prompt.strip():
            _answers(chat, prompt, tokens, talking=True)


def _answers(chat: Chat, prompt: str, tokens: int, *, talking: bool = False) -> None:
    """Print the answers of all sides; while one is `talking`, Ctrl-C ends only the one that is being written."""
    for side in chat.sides:
        if chat.compares:
            click.secho(f"── {side}", bold=True)
        with _stopping(chat) if talking else contextlib.nullcontext():
            _answer(chat, prompt, side, tokens)


def _answer(chat: Chat, prompt: str, side: Side, tokens: int) -> None:
    """Print an answer as it is written."""
    for piece in chat.ask(prompt, side, tokens):
        if isinstance(piece, Text):
            click.echo(piece.text, nl=False)
            sys.stdout.flush()
        else:
            click.echo()
            click.echo(click.style(piece.words, dim=True), err=True)


@contextlib.contextmanager
def _stopping(chat: Chat) -> Iterator[None]:
    """Let Ctrl-C end the answer that is being written; where that does not help, a second one ends the chat."""
    asked: list[int] = []

    def stop(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        chat.stop()

    handlers = install((signal.SIGINT,), stop)
    try:
        yield
    finally:
        restore(handlers)
