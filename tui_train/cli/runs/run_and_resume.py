"""`tui-train run`, `resume` and `quickstart`; each ends with the training's exit code."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from tui_train.actions.machine_facts import place_for_profile, require_training_on_this_machine
from tui_train.actions.run_array import prepare_members
from tui_train.actions.training_hosts import probe_facts_for_start
from tui_train.base.app_paths import runs_folder
from tui_train.base.errors import EndedBySignal, TuiTrainError, Unavailable
from tui_train.base.own_command import own_command
from tui_train.base.text import display_path, duration_text, grouped_digits, size_text, visible
from tui_train.cli import answers, printing
from tui_train.cli.plans.plans import (
    apply_edits,
    apply_fixes_of_errors,
    load_profile,
    print_findings_and_require_plan,
    print_notes_for_other_machines,
)
from tui_train.cli.results.diagnose import retry_command
from tui_train.cli.runs import array as arrays
from tui_train.cli.runs.runs import started_run_state_text
from tui_train.cli.runs.watch import ask_then_detach_or_stop, exit_code_after_run, stream_run
from tui_train.diagnose.repeated_failure import failure_that_would_repeat
from tui_train.facts.gpus.gpu_sets import facts_as_if_gpus_idle
from tui_train.memory.data_defaults import make_setup
from tui_train.places import place_of_run
from tui_train.places.place import Place
from tui_train.places.profile_facts import probe_profile_facts
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.plan.types import Plan
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.runner.logs.progress import Progress
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs import run_folders
from tui_train.runs.follow import read_progress
from tui_train.runs.interrupts import Interrupts, record_signals
from tui_train.runs.local_start import StartOptions, WhenFree, has_nothing_left_to_train, launch_log_text
from tui_train.runs.remote_run import read_remote_location
from tui_train.runs.results.result import read_result
from tui_train.runs.results.resuming import (
    NO_CHECKPOINT_REASON,
    PRESET_CANNOT_RESUME_REASON,
    train_again_remedy,
    why_not_resumable,
)
from tui_train.runs.run_code import code_not_kept_in_time_text
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slurm_job import slurm_end_reason
from tui_train.runs.status import read_status
from tui_train.views import plain_text
from tui_train.views.run_ends import next_commands_text


def run_profile(  # noqa: PLR0913 - one for each option
    reference: str,
    *,
    edits: tuple[str, ...],
    named_place: Place,
    detach: bool,
    array: str | None,
    when_free: WhenFree,
) -> None:
    """Start a profile's run here, on a host or by Slurm, and follow it unless detached; or an array of runs."""
    with _report_interrupted_start():
        profile = apply_edits(load_profile(reference), edits)
        if named_place.slurm:
            # The run says where it was, and opens there again.
            profile = fields.profile_with_value(profile, "hardware.scheduler", "slurm")
            if named_place.host:
                profile = fields.profile_with_value(profile, "hardware.host", named_place.host)
        place = place_for_profile(profile, named_place)
        if place.machine_file and not place.slurm:
            raise click.UsageError("--machine needs --slurm, or a profile with hardware.scheduler=slurm.")
        if place.slurm and when_free:
            raise click.UsageError("--when-free: Slurm has a queue of its own.")
        if place.slurm and not named_place.slurm:
            click.echo("as a job of Slurm: the profile has hardware.scheduler=slurm")
        facts = probe_facts_for_start(profile, place, printing.report_waiting)
        if array:
            members = prepare_members(profile, array, facts)
            arrays.report_findings_of_members(members)
            answers.announce_changes(starts=tuple(f"{profile.name} with {member.edit}" for member in members))
            arrays.start_members_and_report(members, place, when_free)
            return
        prepared = prepare_plan(make_setup(profile, facts_as_if_gpus_idle(facts) if when_free else facts))
        plan = print_findings_and_require_plan(prepared, starts=True)
        answers.announce_changes(starts=(plan.name,), writes=(str(runs_folder()),))
    with record_signals(click.echo) as interrupts:
        started = place.submit(prepared, plan, interrupts, StartOptions(when_free))
        answers.announce_changes(starts=(started.name,), writes=(str(started.path),))
        with _exit_on_lost_terminal(interrupts):
            print_notes_for_other_machines(plan)
            if late := code_not_kept_in_time_text(started.path):
                click.echo(f"! {late}")
        _follow_to_end_or_detach(started, interrupts, detach=detach)


def resume_run(reference: str, *, detach: bool, force: bool, when_free: WhenFree) -> None:
    """Start a run's script again; it resumes from the newest complete checkpoint, or is refused unless `force`."""
    run_dir = run_folders.find_run(reference)
    # What was heard last of a run in a queue or on a host may no longer be so.
    status = place_of_run(run_dir).ask_state(run_dir)
    if status.is_live:
        doing = {"queued": "is queued", "waiting": "waits already"}.get(status.state, "is running")
        raise Unavailable(f"{visible(run_dir.name)} {doing}", f"Watch it: tui-train attach {visible(run_dir.name)}")
    if has_nothing_left_to_train(run_dir) or (status.state == "finished" and not force):
        name, again = visible(run_dir.name), f"tui-train run {visible(shlex.quote(str(run_dir.profile_file)))}"
        click.echo(f"{name} has finished: nothing is left to train. Train again: {again}")
        if not has_nothing_left_to_train(run_dir):
            click.echo(f"In the same folder, overwriting what it saved: tui-train resume {name} --force")
        return
    if not force and (same := failure_that_would_repeat(run_dir, status)):
        name, change = visible(run_dir.name), same.change
        command = retry_command(run_dir, change) if change else ""
        other = f"\n  With {change.title}: {command}" if change and command else ""
        anyway = f"\n  If you have fixed that outside of its settings: tui-train resume {name} --force"
        why = f"{name} would fail again: its script and settings are as they were. {same.cause}"
        raise Unavailable(why, same.remedy + other + anyway)
    why_not = why_not_resumable(run_dir, status)
    has_no_checkpoint = why_not.startswith(NO_CHECKPOINT_REASON)
    # Before its first step there is nothing to lose: a download that broke off goes on.
    would_lose_steps = has_no_checkpoint and read_progress(run_dir, status.attempts).step > 0
    if not force and (would_lose_steps or why_not == PRESET_CANNOT_RESUME_REASON):
        raise Unavailable(f"{visible(run_dir.name)} {why_not}", train_again_remedy(run_dir))
    with record_signals(click.echo) as interrupts:
        answers.announce_changes(starts=(run_dir.name,), writes=(str(run_dir.path),))
        words = place_of_run(run_dir).resume(run_dir, interrupts, when_free=when_free)
        with _exit_on_lost_terminal(interrupts):
            if has_no_checkpoint:
                click.echo(f"{visible(run_dir.name)} {why_not}. It starts at step 0.")
            if words:
                click.echo(f"{visible(run_dir.name)}: {words}")
        _follow_to_end_or_detach(run_dir, interrupts, detach=detach)


def run_quickstart(*, edits: tuple[str, ...]) -> None:
    """Plan, train and report with defaults."""
    with _report_interrupted_start():
        prepared, plan, on_cpu = _plan_quickstart(edits)
        answers.announce_changes(starts=(plan.name,), writes=(str(runs_folder()),))
    with record_signals(click.echo) as interrupts:
        started = Place().submit(prepared, plan, interrupts)
        answers.announce_changes(starts=(started.name,), writes=(str(started.path),))
        with _exit_on_lost_terminal(interrupts):
            click.echo(f"3 Running in {visible(str(started.path))}")
        progress, status = _stream_started_run(started, interrupts)
    took = "" if status.seconds is None else f" after {duration_text(status.seconds)}"
    click.echo(f"\n4 {plain_text.run_state_text(status)}{took}")
    if progress.first and progress.last:
        rate = f", {grouped_digits(progress.tokens_per_second)} tokens/s" if progress.tokens_per_second else ""
        click.echo(
            f"loss from {progress.first.loss:.3f} to {progress.last.loss:.3f} in {progress.last.step} steps{rate}"
        )
    name = visible(started.name)
    click.echo(f"view:    {own_command()} logs {name}   or   {own_command()} attach {name}")
    if status.state != "finished":
        click.echo(f"resume:  {own_command()} resume {name}")
    if on_cpu:
        click.echo(on_cpu)
    sys.exit(exit_code_after_run(status))


def _plan_quickstart(edits: tuple[str, ...]) -> tuple[PreparedPlan, Plan, str]:
    """Print the first two steps of a quickstart; return what it starts, and a warning where it trains on the CPU."""
    profile = require_training_on_this_machine(apply_edits(Profile(), edits), "the quickstart")
    click.echo("1 Looking at this machine …")
    facts = probe_profile_facts(profile)
    profile, fixes = apply_fixes_of_errors(profile, facts, edits)
    idle = next((fix.finding for fix in fixes if ("hardware.device", "cpu") in fix.change.edits), None)
    on_cpu = f"! This trains on the CPU, not on a GPU: {idle.message}.\n  {idle.remedy}" if idle else ""
    if on_cpu:
        click.echo(on_cpu)
    for fix in fixes:
        click.echo(f"changed: {fix.change.title} ({fix.change.why})")
    setup = make_setup(profile, facts)
    click.echo(plain_text.facts_text(facts, setup.toolchain, (), printing.terminal_width_or_none()).rstrip())
    prepared = prepare_plan(setup)
    plan = print_findings_and_require_plan(prepared, starts=True)
    click.echo(f"\n2 The plan\n{plain_text.plan_text(plan)}\n")
    return prepared, plan, on_cpu


@contextmanager
def _report_interrupted_start() -> Iterator[None]:
    """Report that nothing was started where a signal ends the command."""
    try:
        yield
    except (KeyboardInterrupt, EndedBySignal):
        # Nothing can be printed on a lost terminal.
        with suppress(OSError):
            click.echo("\nthe run was not started", err=True)
        raise


@contextmanager
def _exit_on_lost_terminal(interrupts: Interrupts) -> Iterator[None]:
    """Print about a started run; where the terminal is lost, exit with the code of the noted signal."""
    try:
        yield
    except OSError:
        if not interrupts.number:
            raise
        sys.exit(interrupts.exit_code)


def _follow_to_end_or_detach(started: RunFolder, interrupts: Interrupts, *, detach: bool) -> None:
    name = visible(started.name)
    if detach:
        with suppress(OSError):
            click.echo(f"{name} {started_run_state_text(started)}. {_attach_or_stop_hint(name)}")
        if interrupts.number:
            # The signal came after the start: it ends this command, not the run.
            sys.exit(interrupts.exit_code)
        return
    place = read_remote_location(started.path)
    where = f"on {place.host}, in {place.folder}" if place else f"in {started.path}"
    with _exit_on_lost_terminal(interrupts):
        comma = "," if (doing := started_run_state_text(started)) != "runs" else ""
        click.echo(f"{name} {doing}{comma} {visible(where)}; it continues when the connection is lost.")
    status = _stream_started_run(started, interrupts)[1]
    if status.state == "new":
        remedy = f"Submit it again: tui-train resume {name}"
        raise Unavailable(f"the job of {name} ended before it trained: {launch_log_text(started.launch_log)}", remedy)
    click.echo(_outcome_text(started, status))
    sys.exit(exit_code_after_run(status))


def _outcome_text(run: RunFolder, status: RunStatus) -> str:
    """Return how a run that was watched ended, what it made, and what to do next."""
    why = f" ({words})" if not status.is_live and (words := slurm_end_reason(run.path)) else ""
    lines = (
        f"{visible(run.name)}: {plain_text.run_state_text(status)}{why}",
        *_weights_lines(run, status),
        next_commands_text(run, status),
    )
    return "\n".join(filter(None, lines))


def _attach_or_stop_hint(name: str) -> str:
    return f"Watch it: {own_command()} attach {name}; end it: {own_command()} stop {name}"


def _stream_started_run(started: RunFolder, interrupts: Interrupts) -> tuple[Progress, RunStatus]:
    """Print the lines of a run that was started here until it ends; on an earlier exit, print the run's state."""
    try:
        # From here on signals are handled as usual; one that was noted meanwhile is sent again.
        try:
            interrupts.stop_recording()
        except KeyboardInterrupt:
            ask_then_detach_or_stop(started)
        return stream_run(started, started_here=True)
    except (KeyboardInterrupt, EndedBySignal):
        status, name = read_status(started), visible(started.name)
        words = (
            f"{name} continues. {_attach_or_stop_hint(name)}"
            if status.state in {"queued", "waiting", "running"}
            else _outcome_text(started, status)
        )
        with suppress(OSError):
            click.echo(words, err=True)
        raise


def _weights_lines(run: RunFolder, status: RunStatus) -> Iterator[str]:
    """Yield where a finished run's weights lie, and how they are tried and merged; nothing where there are none."""
    if status.state != "finished":
        return
    try:
        run_result = read_result(run)
    except TuiTrainError:
        return
    weights, name = run_result.weights, visible(run.name)
    if weights is None:
        return
    yield f"{visible(run_result.weights_kind_and_base_text)}, {size_text(weights.size)}: {display_path(weights.path)}"
    if weights.problem:
        yield f"It cannot be loaded: {visible(weights.problem)}"
        return
    merge = (
        f"; to merge the adapter into its model: {own_command()} merge {name} NEW_FOLDER"
        if weights.kind == "adapter"
        else ""
    )
    try_line = "" if weights.scores or run_result.lacks_tokenizer else f"Try it: {own_command()} try {name}{merge}"
    yield try_line or f"More: {own_command()} result {name}"
