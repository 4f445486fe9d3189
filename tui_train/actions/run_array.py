"""An array: several runs of one profile that differ in a single value, planned before the first of them starts."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from tui_train.base.errors import BadInput, StartInterrupted, TuiTrainError
from tui_train.base.text import quantity, visible
from tui_train.checks import Finding
from tui_train.facts.gpus.gpu_sets import facts_as_if_gpus_idle
from tui_train.facts.other_machines.slurm import is_sbatch_option
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.profile import fields, typed_lists
from tui_train.profile.presets import KEY_BY_PLACEHOLDER
from tui_train.profile.types import Profile
from tui_train.runs import folders
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.local_start import StartOptions, WhenFree
from tui_train.runs.run_folders import MAX_NOTE_LENGTH, MAX_SLUG_LENGTH, RunFolder, folder_name_slug
from tui_train.runs.slurm_job import read_known_job
from tui_train.setup.recipe.options import user_options_for_value
from tui_train.setup.setup import Setup

_MAX_RUNS = 100
# Of other sections a value may need another look at the machine.
_ALLOWED_KEY_PREFIXES = ("recipe.", "finetune.")
_ARGUMENT_NAME_PATTERN = re.compile("--?[A-Za-z][^\\s=]*")
_ARRAY_SYNTAX_REMEDY = "Write it as recipe.seed=1,2,3, or as --lr=1e-4,2e-4 for an argument of the script."


class ArrayMember(msgspec.Struct, frozen=True):
    """One run of an array: its `KEY=VALUE`, and what is started."""

    edit: str
    prepared: PreparedPlan
    at_once: int = 0
    """So many jobs of its array run at a time; 0: as many as Slurm starts."""

    @property
    def note(self) -> str:
        """Its value in the lists of runs, without what is before the name of the setting."""
        name = re.sub("^(recipe\\.|finetune\\.|-+)", "", self.edit)
        return name[:MAX_NOTE_LENGTH]

    def run_name(self, profile_name: str) -> str:
        """Return the name of its run folder: that of the profile, which is cut first, and its value."""
        value = folder_name_slug(self.note)
        room = max(0, MAX_SLUG_LENGTH - len(value) - 1)
        return f"{folder_name_slug(profile_name)[:room]}-{value}"

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that forbid its start."""
        return self.prepared.errors


def prepare_members(profile: Profile, array: str, facts: Facts) -> tuple[ArrayMember, ...]:
    """Plan a run for each value of `KEY=V1,V2[%N]` or `--argument=V1,V2[%N]`; BadInput where these make no array."""
    given, (array, at_once) = array, _split_limit(array, by_slurm=bool(facts.scheduler))
    if at_once and any(is_sbatch_option(option, "dependency") for option in profile.slurm.options):
        message = f"{visible(given)}: with %{at_once} jobs depend on earlier ones, in place of --dependency"
        raise BadInput(message, f"Leave %{at_once} out, or --dependency (slurm.options).")
    key, values = _split_values(array)
    if not any(values):
        raise BadInput(
            f"no value{f' of {visible(key)}' if key else ''}: type some, separated by commas", _ARRAY_SYNTAX_REMEDY
        )
    if len(values) > _MAX_RUNS:
        raise BadInput(f"{len(values)} values are too many at a time", f"Name at most {_MAX_RUNS}.")
    profiles = [_profile_with_key_or_argument(profile, key, value, array) for value in values if value]
    if len(profiles) < len(values) or any(each in profiles[:number] for number, each in enumerate(profiles)):
        raise BadInput(f"{visible(array)}: a value is missing or there twice", _ARRAY_SYNTAX_REMEDY)
    # Each waits for its turn, so what uses the GPUs now is in nobody's way.
    facts = facts if facts.scheduler else facts_as_if_gpus_idle(facts)
    return tuple(
        ArrayMember(f"{key}={value}", _prepare_member(own, facts, key, values), at_once)
        for value, own in zip(values, profiles, strict=True)
    )


def _split_values(array: str) -> tuple[str, list[str]]:
    """Return what varies, and its values: `--set=lr=1,2` varies lr, as no value but the first one names it."""
    key, _, text = array.partition("=")
    first, *others = (value.strip() for value in text.split(","))
    name, equals_sign, value = first.rpartition("=")
    if key.startswith("-") and equals_sign and value and others and not any("=" in other for other in others):
        return f"{key}={name}", [value, *others]
    return key, [first, *others]


def _profile_with_key_or_argument(profile: Profile, key: str, value: str, array: str) -> Profile:
    """Return the profile of a member; what is no key of a profile is an argument of the training."""
    if key.startswith(_ALLOWED_KEY_PREFIXES):
        field = fields.get_field(key)
        if field.kind in typed_lists.LIST_FIELD_KINDS:
            raise BadInput(f"{visible(array)}: {visible(key)} is a list", "Choose a key that takes a single value.")
        return fields.profile_with_value(profile, key, fields.parse_value(field, value))
    words = [*profile.trainer.arguments]
    option, _, name = key.partition("=")
    for number in reversed(range(len(words))):
        if words[number].startswith(f"{key}="):
            words[number] = f"{key}={value}"
            break
        after = words[number + 1] if words[number] == option and words[number + 1 :] else "--"
        if not after.startswith("--") and (not name or after.startswith(f"{name}=")):
            words[number + 1] = f"{name}={value}" if name else value
            break
    else:
        if not _ARGUMENT_NAME_PATTERN.fullmatch(option):
            message = f"{visible(array)}: only a value of recipe or finetune, or an argument, differs in an array"
            raise BadInput(message, _ARRAY_SYNTAX_REMEDY)
        words.append(f"{key}={value}")
    return fields.profile_with_value(profile, "trainer.arguments", tuple(words))


def _prepare_member(profile: Profile, facts: Facts, varied: str, values: Sequence[str]) -> PreparedPlan:
    setup = make_setup(profile, facts)
    if key := _chosen_recipe_key_of_argument(setup, varied):
        message = f"{visible(varied)} is the {fields.get_field(key).label.lower()} of the recipe, which is set as well"
        raise BadInput(message, visible(f"Write it as {key}={','.join(values)}."))
    if output := profile.trainer.output or setup.user_output_folder:
        message = f"all runs of the array would write to {visible(output)}"
        raise BadInput(message, "Leave trainer.output empty: each run then has an output folder of its own.")
    prepared = prepare_plan(setup)
    if prepared.plan and not (facts.scheduler or prepared.plan.may_wait):
        message = "trainings on several machines cannot wait for each other, so they make no array"
        raise BadInput(message, "Start one after the other, or let Slurm start them.")
    return prepared


def _chosen_recipe_key_of_argument(setup: Setup, argument: str) -> str:
    """Return the chosen key of the recipe whose value an argument of the script sets, empty if there is none."""
    if setup.preset_error:
        return ""
    chosen = set(fields.chosen_keys(setup.profile))
    for name, key in KEY_BY_PLACEHOLDER.items():
        if key in chosen and key.startswith("recipe."):
            own_settings = user_options_for_value(name, setup.profile, setup.preset)
            if any(setting.words[0].partition("=")[0] == argument for setting in own_settings):
                return key
    return ""


def _split_limit(array: str, *, by_slurm: bool) -> tuple[str, int]:
    """Return an array without the `%N` at its end, and N: so many jobs run at a time, as in an array of sbatch.

    Without a number behind it a percent sign is a part of the value, as in `--format=50%`.
    """
    values, percent_sign, limit = array.rpartition("%")
    if not percent_sign or not (limit.isascii() and limit.isdecimal()):
        return array, 0
    if not 0 < int(limit) < 10**6:
        raise BadInput(f"{visible(array)}: after % there is no number of jobs", "Write it as recipe.seed=1,2,3%2.")
    if not by_slurm:
        remedy = f"Leave %{limit} out: as many run at a time as there are GPUs for."
        raise BadInput(f"{visible(array)}: only jobs of Slurm are limited by %{limit}", remedy)
    return values, int(limit)


def start_members(
    members: tuple[ArrayMember, ...],
    place: Place,
    interrupts: Interrupts = NO_INTERRUPTS,
    *,
    when_free: WhenFree = "",
) -> Iterator[tuple[ArrayMember, RunFolder]]:
    """Start each member, or submit it to Slurm, and yield its run; what has started stays where a later one is refused.

    With a limit of N a job waits for the one N before it.
    Outside of Slurm each waits for its turn: for the GPUs that the profile names, or else for any of their kind.
    """
    started: list[RunFolder] = []
    for member in members:
        plan, profile = member.prepared.plan, member.prepared.profile
        assert plan is not None  # noqa: S101 - whoever starts them has looked at their errors
        waits: WhenFree = "" if place.slurm else when_free or ("chosen" if profile.hardware.gpus else "any")
        try:
            first = started[-member.at_once] if 0 < member.at_once <= len(started) else None
            job = read_known_job(first.path) if first else None
            named = msgspec.structs.replace(plan, name=member.run_name(plan.name))
            run = place.submit(member.prepared, named, interrupts, StartOptions(waits, job.number if job else ""))
        except TuiTrainError as error:
            if started:
                words = f"{quantity(len(started), 'run')} of {len(members)} started before that, and go on."
                stop = f"Stop them: tui-train stop {' '.join(visible(run.name) for run in started)}"
                error.remedy = f"{words} {stop if isinstance(error, StartInterrupted) else error.remedy}"
            raise
        started.append(run)
        # It trains, whether or not its list entry says with what.
        with suppress(TuiTrainError):
            folders.write_note(run, member.note)
        yield member, run
