"""`tui-train run --array KEY=V1,V2`: for each value a job of Slurm and a run folder of its own."""

import sys

import click
import msgspec

from tui_train.base.errors import BadInput, TuiTrainError
from tui_train.base.text import counted, visible
from tui_train.cli import printing
from tui_train.cli.plans.plans import apply_edits, report_findings_and_require_plan
from tui_train.memory.data_defaults import set_up
from tui_train.places.place import Place
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.plan.types import Plan
from tui_train.profile import fields, typed_lists
from tui_train.profile.types import Profile
from tui_train.runs import folders
from tui_train.runs.interrupts import defer_signals
from tui_train.runs.rundir import RunDir
from tui_train.runs.slurm_job import queue_reason_text

_MAX_ARRAY_MEMBERS = 100
# Of other sections a value may need another look at the machine.
_ALLOWED_KEY_PREFIXES = ("recipe.", "finetune.")


class ArrayMember(msgspec.Struct, frozen=True):
    """One of an array: its `KEY=VALUE`, and what is submitted."""

    edit: str
    prepared: PreparedPlan
    plan: Plan


def _member_edits(array_option: str) -> tuple[str, ...]:
    """Return the edit of each member, in the order of the values; BadInput where they cannot be those of an array."""
    key, _, text = array_option.partition("=")
    values = [value.strip() for value in text.split(",")]
    remedy = "Write it as --array recipe.seed=1,2,3."
    if not key.startswith(_ALLOWED_KEY_PREFIXES):
        raise BadInput(
            f"--array {visible(array_option)}: only a value of recipe or finetune differs in an array", remedy
        )
    if fields.get_field(key).kind in typed_lists.LIST_FIELD_KINDS:
        raise BadInput(f"--array {visible(array_option)}: {visible(key)} is a list", "Choose a key that has one value.")
    if not all(values) or len(set(values)) < len(values):
        raise BadInput(f"--array {visible(array_option)}: a value is missing or there twice", remedy)
    if len(values) > _MAX_ARRAY_MEMBERS:
        raise BadInput(f"--array has {len(values)} values", f"Submit at most {_MAX_ARRAY_MEMBERS} at a time.")
    return tuple(f"{key}={value}" for value in values)


def plan_members(profile: Profile, array_option: str, place: Place) -> tuple[ArrayMember, ...]:
    """Return all members, planned before any is submitted; exits where an error forbids one."""
    edits = _member_edits(array_option)
    facts = place.probe_facts_for(profile, printing.report_waiting)
    members, shown_messages = [], set[str]()
    for edit in edits:
        own = apply_edits(profile, (edit,))
        setup = set_up(own, facts)
        if output := own.trainer.output or setup.user_output_folder:
            message = f"all runs of the array would write to {visible(output)}"
            raise BadInput(message, "Leave the output folder out: each then has one in its own run folder.")
        prepared = prepare_plan(setup)
        news = tuple(each for each in prepared.findings if each.level == "error" or each.message not in shown_messages)
        shown_messages |= {each.message for each in news}
        plan = report_findings_and_require_plan(msgspec.structs.replace(prepared, findings=news), starts=True)
        members.append(ArrayMember(edit, prepared, plan))
    return tuple(members)


def submit_members(members: tuple[ArrayMember, ...], place: Place) -> None:
    """Submit a job for each member and say which; what was submitted stays, also where a later one is refused."""
    runs: list[RunDir] = []
    with defer_signals(click.echo) as interrupts:
        for member in members:
            try:
                run = place.submit(member.prepared, member.plan, interrupts)
            except TuiTrainError:
                if runs:
                    click.echo(f"{counted(len(runs), 'job')} of {len(members)} submitted before that", err=True)
                raise
            runs.append(run)
            folders.write_note(run, member.edit)
            click.echo(f"{visible(run.name)} is {queue_reason_text(run.path)}, with {visible(member.edit)}")
        if interrupts.number:
            # It came after the last start: it ends this command, not the runs.
            sys.exit(interrupts.exit_code)
    names = " ".join(visible(run.name) for run in runs)
    click.echo(f"Compare them: tui-train compare {names}")
