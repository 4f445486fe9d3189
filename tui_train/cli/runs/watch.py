"""`tui-train logs` and `attach`: print a run's lines, follow them, and say why it failed."""

import sys

import click

from tui_train.base.errors import BadInput, CannotWrite, NotFound, TuiTrainError
from tui_train.base.files import why_unreadable
from tui_train.base.own_command import own_command
from tui_train.base.text import visible
from tui_train.cli.results.diagnose import LogReadProgressPrinter, diagnosis_text
from tui_train.cli.runs.runs import stop_run_with_grace
from tui_train.diagnose import diagnose_run
from tui_train.places.run_mirror import RunMirror, update_local_copy
from tui_train.runner.logs import curve
from tui_train.runner.logs.metric_series import Metrics
from tui_train.runner.logs.progress import Progress, advance_progress, progress_for_next_attempt
from tui_train.runner.run_folder.state import AttemptStatus, RunStatus
from tui_train.runs import run_folders
from tui_train.runs.follow import follow_lines, rank_reader_of_attempt, wait_for_end
from tui_train.runs.interrupts import defer_ctrl_c
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slow_rank import SlowRankReader
from tui_train.runs.status import read_listed_run, read_status, waiting_or_end_reason
from tui_train.views.plain_text import run_state_text
from tui_train.wizard import is_wizard_terminal, open_wizard


def print_logs(reference: str, attempt: int | None, *, follow: bool) -> None:
    """Print the attempts' logs, or with `follow` the lines until the run ends."""
    run = run_folders.find_run(reference)
    if not follow and (why := _update_local_copy_or_why_not(run)):
        click.echo(f"— the log may be out of date: {why}", err=True)
    status = read_status(run)
    if not status.attempts and (damage := read_listed_run(run).damage):
        raise BadInput(f"{visible(run.name)} is damaged: {damage}", f"See {visible(str(run.path))}.")
    if not status.attempts and not status.is_live:
        remedy = f"Start it: bash {visible(str(run.launch_script))}"
        raise BadInput(f"{visible(run.name)} has no attempts yet, so nothing is logged", remedy)
    if follow:
        sys.exit(exit_code_after_run(stream_run(run)[1]))
    if not status.attempts:
        why = waiting_or_end_reason(run, status)
        click.echo(
            f"{visible(run.name)} has not started training: {run_state_text(status)}{f' ({why})' if why else ''}"
        )
        return
    numbers = [each.number for each in status.attempts if attempt in {None, each.number}]
    if not numbers:
        raise BadInput(f"{visible(run.name)} has no such attempt", "See `tui-train runs`.")
    if status.is_live and not run.attempt_log(numbers[-1]).exists():
        click.echo(
            f"{visible(run.name)} runs and has printed nothing yet: tui-train logs --follow {visible(run.name)}",
            err=True,
        )
        numbers.pop()
    for number in numbers:
        _print_unread_lines(LogTail(run.attempt_log(number)))
    if not status.is_live:
        _report_rank_mismatch(run, numbers[-1])
    _require_readable_logs(run, *numbers)


def _update_local_copy_or_why_not(run: RunFolder) -> str:
    """Bring what a host has of a run up to date here; return why not, empty where it is."""
    try:
        return update_local_copy(run)
    except CannotWrite as error:
        return error.message


def attach_run(reference: str) -> None:
    """Open a run in the wizard, or follow its log where there is no terminal."""
    run = run_folders.find_run(reference)
    if is_wizard_terminal():
        sys.exit(open_wizard(str(run.path)))
    sys.exit(exit_code_after_run(stream_run(run)[1]))


def _print_unread_lines(tail: LogTail) -> None:
    while tail.unread_bytes:
        if lines := tail.next_lines():
            click.echo("\n".join(lines))
    if tail.unfinished_line:
        click.echo(tail.unfinished_line)


def _require_readable_logs(run: RunFolder, *attempts: int) -> None:
    """Raise BadInput where the log of an attempt cannot be read."""
    for number in attempts:
        log = run.attempt_log(number)
        if problem := why_unreadable(log):
            raise BadInput(
                f"cannot read {visible(str(log))}: {problem}", f"Check its permissions: ls -ld {visible(str(log))}"
            )


def stream_run(run: RunFolder, *, started_here: bool = False) -> tuple[Progress, RunStatus]:
    """Print a run's lines until it ends; Ctrl-C ends only this command, and asks first about a run `started_here`."""
    mirror = RunMirror(run, _report_host_problem)
    try:
        progress, number = _print_lines_until_end(run, started_here=started_here)
        ended = wait_for_end(run)
        # What deletes it takes its events first.
        if ended.state == "new" and (number or not run.path.exists()):
            raise NotFound(f"the folder of {visible(run.name)} was deleted", "Its training ends by itself in seconds.")
        if number and (problem := why_unreadable(run.attempt_log(number))):
            click.echo(f"the log of attempt {number} cannot be read: {problem}", err=True)
        else:
            _report_rank_mismatch(run, number)
            _report_failure(run)
        return progress, ended
    finally:
        mirror.close()


def _report_host_problem(problem: str) -> None:
    """Report that the host of a run does not answer, which changes nothing of the run."""
    if problem:
        click.echo(f"— {problem}; the run goes on there", err=True)


def _report_wait(reason: str) -> None:
    click.echo(f"— waits: {visible(reason)}", err=True)


def _print_lines_until_end(run: RunFolder, *, started_here: bool) -> tuple[Progress, int]:
    """Print the lines; return the progress and the newest attempt's number."""
    progress, number = Progress(), 0
    slow_rank, slow_rank_sentence = SlowRankReader(), ""

    def on_attempt(attempt: AttemptStatus) -> None:
        nonlocal number, progress
        progress = progress_for_next_attempt(progress)
        number = attempt.number
        if attempt.number > 1:
            title = titles[attempt.position - 1] if 0 < attempt.position <= len(titles) else ""
            click.echo(f"— attempt {attempt.number}: {visible(title)}")

    try:
        with defer_ctrl_c() as raise_if_pressed:
            titles, reading = run.attempt_titles(), run.log_reading_options()
            for line in follow_lines(run, on_attempt=on_attempt, on_wait=_report_wait, on_pause=raise_if_pressed):
                click.echo(line)
                progress = _with_curve_ends_only(advance_progress(progress, [line], reading))
                slow_rank.read([line])
                if slow_rank.sentence and not slow_rank_sentence:
                    slow_rank_sentence = slow_rank.sentence
                    click.echo(f"— {slow_rank_sentence}", err=True)
                raise_if_pressed()
    except KeyboardInterrupt:
        if not started_here:
            raise
        ask_then_detach_or_stop(run)
    return progress, number


def _report_rank_mismatch(run: RunFolder, attempt: int) -> None:
    """Report on stderr where an attempt's processes did not compute as planned."""
    for sentence in rank_reader_of_attempt(run, attempt).rank_differences:
        click.echo(f"error: {sentence}", err=True)


def _report_failure(run: RunFolder) -> None:
    """Report on stderr why a run failed, and what to do."""
    try:
        progress = LogReadProgressPrinter()
        diagnosis = diagnose_run(run, observer=progress)
        progress.finish()
    except TuiTrainError as error:
        click.echo(f"the failure cannot be diagnosed: {error}", err=True)
        return
    if diagnosis:
        click.echo(diagnosis_text(diagnosis, run), err=True)


def _with_curve_ends_only(progress: Progress) -> Progress:
    """Return the progress with its first and last point only, so that each line of a long run costs the same."""
    first, last, progress = progress.first, progress.last, progress._replace(metrics=Metrics())
    return (
        progress._replace(curve=curve.build_loss_curve((first, last))) if first and last and first != last else progress
    )


def exit_code_after_run(status: RunStatus) -> int:
    """Return the exit code of a command that waited for a run: the training's own; see MEANING_BY_EXIT_CODE."""
    return 137 if status.state == "lost" else status.exit_code or 0


def ask_then_detach_or_stop(run: RunFolder) -> None:
    """Ask in a terminal whether to detach from a run or to stop it; without one, stop it."""
    name = visible(run.name)
    if sys.stdin.isatty():
        question = "\n[d]etach (the run continues) or [s]top it?"
        try:
            answer = click.prompt(question, default="d", type=click.Choice(["d", "s"]))
        except click.Abort:
            # Ctrl-C once more, or the end of the input, is no answer: the run continues.
            answer = "d"
            click.echo()
        if answer == "d":
            click.echo(f"{name} continues. Watch it: {own_command()} attach {name}")
            sys.exit(0)
    stop_run_with_grace(run, read_status(run))
