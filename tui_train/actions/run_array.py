"""An array: several runs of one profile that differ in a single value, planned before the first of them starts."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from tui_train.base.errors import BadInput, StartInterrupted, TuiTrainError
from tui_train.base.text import quantity, visible
from tui_train.checks import Finding
from tui_train.facts.gpus.gpu_sets import facts_with_idle_gpus
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.profile import fields, typed_lists
from tui_train.profile.types import Profile
from tui_train.runs import folders
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.rundir import MAX_NOTE_LENGTH, RunDir
from tui_train.runs.start import WhenFree

_MAX_RUNS = 100
# Of other sections a value may need another look at the machine.
_ALLOWED_KEY_PREFIXES = ("recipe.", "finetune.")


class ArrayMember(msgspec.Struct, frozen=True):
    """One run of an array: its `KEY=VALUE`, and what is started."""

    edit: str
    prepared: PreparedPlan

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that forbid its start."""
        return self.prepared.errors


def prepare_members(profile: Profile, array: str, facts: Facts) -> tuple[ArrayMember, ...]:
    """Plan a run for each value of `KEY=V1,V2`; BadInput where these make no array."""
    key, _, text = array.partition("=")
    values = [value.strip() for value in text.split(",")]
    remedy = "Write it as recipe.seed=1,2,3."
    if not key.startswith(_ALLOWED_KEY_PREFIXES):
        raise BadInput(f"{visible(array)}: only a value of recipe or finetune differs in an array", remedy)
    field = fields.get_field(key)
    if field.kind in typed_lists.LIST_FIELD_KINDS:
        raise BadInput(f"{visible(array)}: {visible(key)} is a list", "Choose a key that takes a single value.")
    if len(values) > _MAX_RUNS:
        raise BadInput(f"{len(values)} values are too many at a time", f"Name at most {_MAX_RUNS}.")
    parsed = [fields.parse_value(field, value) for value in values]
    if not all(values) or len(set(parsed)) < len(parsed):
        raise BadInput(f"{visible(array)}: a value is missing or there twice", remedy)
    # Each waits for its turn, so what uses the GPUs now is in nobody's way.
    facts = facts if facts.scheduler else facts_with_idle_gpus(facts)
    members = []
    for text, value in zip(values, parsed, strict=True):
        own = fields.profile_with_value(profile, key, value)
        setup = make_setup(own, facts)
        if output := own.trainer.output or setup.user_output_folder:
            message = f"all runs of the array would write to {visible(output)}"
            raise BadInput(message, "Leave trainer.output empty: each run then has an output folder of its own.")
        prepared = prepare_plan(setup)
        if prepared.plan and not (facts.scheduler or prepared.plan.may_wait):
            message = "trainings on several machines cannot wait for each other, so they make no array"
            raise BadInput(message, "Start one after the other, or let Slurm start them.")
        members.append(ArrayMember(f"{key}={text}", prepared))
    return tuple(members)


def start_members(
    members: tuple[ArrayMember, ...],
    place: Place,
    interrupts: Interrupts = NO_INTERRUPTS,
    *,
    when_free: WhenFree = "",
) -> Iterator[tuple[ArrayMember, RunDir]]:
    """Start each member, or submit it to Slurm, and yield its run; what has started stays where a later one is refused.

    Outside of Slurm each waits for its turn: for the GPUs that the profile names, or else for any of their kind.
    """
    started: list[RunDir] = []
    for member in members:
        plan, profile = member.prepared.plan, member.prepared.profile
        assert plan is not None  # noqa: S101 - whoever starts them has looked at their errors
        waits: WhenFree = "" if place.slurm else when_free or ("chosen" if profile.hardware.gpus else "any")
        try:
            run = place.submit(member.prepared, plan, interrupts, when_free=waits)
        except TuiTrainError as error:
            if started:
                words = f"{quantity(len(started), 'run')} of {len(members)} started before that, and go on."
                stop = f"Stop them: tui-train stop {' '.join(visible(run.name) for run in started)}"
                error.remedy = f"{words} {stop if isinstance(error, StartInterrupted) else error.remedy}"
            raise
        started.append(run)
        # It trains, whether or not its list entry says with what.
        with suppress(TuiTrainError):
            folders.write_note(run, member.edit.partition(".")[2][:MAX_NOTE_LENGTH])
        yield member, run
