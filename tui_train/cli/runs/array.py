"""`tui-train run --array KEY=V1,V2`: a run for each value, one after the other, or side by side on several GPUs."""

import sys

import click
import msgspec

from tui_train.actions.run_array import ArrayMember, start_members
from tui_train.base.own_command import own_command
from tui_train.base.text import visible
from tui_train.cli import answers
from tui_train.cli.plans.plans import print_findings_and_require_plan
from tui_train.cli.runs.runs import started_run_state_text
from tui_train.places.place import Place
from tui_train.runs.interrupts import record_signals
from tui_train.runs.local_start import WhenFree
from tui_train.runs.run_code import code_not_kept_in_time_text
from tui_train.runs.run_folders import RunFolder
from tui_train.views.compare import RUN_LETTERS


def report_findings_of_members(members: tuple[ArrayMember, ...]) -> None:
    """Print what was found, once each; exits where an error forbids the start of one."""
    shown_messages = set[str]()
    for member in members:
        findings = member.prepared.findings
        news = tuple(each for each in findings if each.level == "error" or each.message not in shown_messages)
        shown_messages |= {each.message for each in news}
        print_findings_and_require_plan(msgspec.structs.replace(member.prepared, findings=news), starts=True)


def start_members_and_report(members: tuple[ArrayMember, ...], place: Place, when_free: WhenFree) -> None:
    """Start each member and say which; what was started stays, also where a later one is refused."""
    runs: list[RunFolder] = []
    with record_signals(click.echo) as interrupts:
        for member, run in start_members(members, place, interrupts, when_free=when_free):
            runs.append(run)
            click.echo(f"{visible(run.name)} {started_run_state_text(run)}, with {visible(member.edit)}")
        answers.announce_changes(starts=tuple(run.name for run in runs), writes=tuple(str(run.path) for run in runs))
        if late := next(filter(None, (code_not_kept_in_time_text(run.path) for run in runs)), ""):
            click.echo(f"! {late}")
        if interrupts.number:
            # It came after the last start: it ends this command, not the runs.
            sys.exit(interrupts.exit_code)
    names = " ".join(visible(run.name) for run in runs[: len(RUN_LETTERS)])
    click.echo(
        f"Compare them: {own_command()} compare {names}" if runs[1:] else f"Watch it: {own_command()} attach {names}"
    )
