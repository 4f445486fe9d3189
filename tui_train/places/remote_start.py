"""Starts on a host or as a job of Slurm: each has an id, so that it is made only once and can be asked about."""

import secrets
import time
from contextlib import suppress

import msgspec

from tui_train.base.errors import CannotWrite, NoAnswer, TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.channel.session import machine_name
from tui_train.places.host_questions import HostMessage, RunFolderGone, ask_start, unexpected_answer_remedy
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.conflicts import lock_run_starts, refuse_if_conflicting
from tui_train.runs.local_start import StartOptions, launch_script_options
from tui_train.runs.remote_run import (
    HostReport,
    UnconfirmedStart,
    read_host_report,
    read_run_location,
    read_unconfirmed_start,
    write_host_report,
    write_unconfirmed_start,
)
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slurm_job import KnownJob, known_start_count, write_known_job


def start_sent_run(run: RunFolder, options: StartOptions, *, slurm: bool, resume: bool) -> None:
    """Have a run started; Unavailable where it was refused, NoAnswer where that is not known, and it stays so."""
    place, asked = read_run_location(run.path), UnconfirmedStart(secrets.token_hex(8), slurm=slurm)
    launch_options = launch_script_options(run, resume=resume, when_free=options.when_free)
    with lock_run_starts():
        refuse_if_conflicting(run, waits_for_gpus=bool(options.when_free))
        # From here on it may train, whatever becomes of the answer.
        write_unconfirmed_start(run.path, asked)
    name, lost = visible(run.name), None
    try:
        answer = ask_start(place, asked, launch_options, options)
    except NoAnswer as error:
        lost = error
        try:
            answer = ask_start(place, asked, only_look=True)
        except Unavailable:
            message = f"{machine_name(place.host)} did not confirm that {name} has started: {error.message}"
            raise NoAnswer(message, f"See whether it trains: tui-train attach {name}") from None
    except TuiTrainError:
        write_unconfirmed_start(run.path, None)
        raise
    _record_start_outcome(run, asked, answer)
    if lost and not answer.started:
        raise Unavailable(f"{name} was not started: {lost.message}", lost.remedy)
    if not answer.started:
        why = "Slurm refuses the job" if slurm else f"the run did not start on {visible(place.host)}"
        raise Unavailable(f"{why}: {visible(answer.said) or 'it does not say why'}", "Fix that, then start again.")


def resolve_unconfirmed_start(run: RunFolder) -> None:
    """Ask what became of a start that is not confirmed; NoAnswer where it still is not."""
    asked = read_unconfirmed_start(run.path)
    if asked is None:
        return
    place = read_run_location(run.path)
    try:
        answer = ask_start(place, asked, only_look=True)
    except RunFolderGone:
        # A start that was refused removes a folder in which nothing was started.
        answer = HostMessage()
    except NoAnswer:
        raise
    except Unavailable as error:
        raise NoAnswer(error.message, unexpected_answer_remedy(place.host)) from None
    _record_start_outcome(run, asked, answer)


def _record_start_outcome(run: RunFolder, asked: UnconfirmedStart, answer: HostMessage) -> None:
    if answer.started and asked.slurm:
        # Without a number it has begun, and ended by now.
        state, begun = "PENDING" if answer.job else "", known_start_count(run.path)
        write_known_job(run.path, KnownJob(number=answer.job, cluster=answer.cluster, starts=begun, state=state))
    elif answer.started:
        report, now = read_host_report(run.path), time.time()
        report = report or HostReport(at=now, status=RunStatus("new"))
        running = report.status._replace(state="running")
        # What cannot be kept here is told by whoever follows the run.
        with suppress(CannotWrite):
            write_host_report(run.path, msgspec.structs.replace(report, at=now, status=running))
    write_unconfirmed_start(run.path, None)
