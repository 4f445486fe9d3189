"""Commands about machines, profiles and plans; exit codes are in group.MEANING_BY_EXIT_CODE."""

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from tui_train.actions import machine_facts as machines
from tui_train.actions import model_config
from tui_train.actions.image_check import check_image, image_check_text
from tui_train.actions.training_hosts import probe_facts_for_start
from tui_train.base.command import RUNTIME_VARIABLE_NAMES, argv
from tui_train.base.errors import BadInput, NotFound, Unavailable
from tui_train.base.text import size_text, visible
from tui_train.checks import Finding, find_problems
from tui_train.cli import answers, printing
from tui_train.facts.gpus.gpu_sets import recommended_uuids
from tui_train.facts.gpus.verdicts import gpu_verdicts
from tui_train.facts.machine import container_images, probe, trusted_pythons
from tui_train.facts.other_machines import machine_files, remote
from tui_train.facts.other_machines.cluster import Cluster
from tui_train.facts.types import CardSet, Facts, Gpu, GpuVerdict, Machine, Toolchain
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.predict import predict_memory
from tui_train.places.host_questions import make_command_runner
from tui_train.places.place import Place
from tui_train.plan.description import script_notes
from tui_train.plan.render import files_for_display
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.plan.render.quoting import quoted_word
from tui_train.plan.types import Attempt, Plan
from tui_train.profile import fields, store, typed_lists
from tui_train.profile.changes import Change, ValueDifference, apply_change
from tui_train.profile.hosts import host_address
from tui_train.profile.rows import Field
from tui_train.profile.secret_values import find_secret_positions
from tui_train.profile.types import Profile
from tui_train.runner.queue.listing import CardInQueue
from tui_train.runs import run_folders
from tui_train.setup.machine import container
from tui_train.setup.recipe.effective_values import working_folder
from tui_train.trainers import trainer_has_own_field
from tui_train.views import choices, clusters, overview, plain_text, previous_run
from tui_train.views.previous_run import PreviousRun

_PREVIOUS_RUN_REFERENCE = "previous"
_MAX_FIX_ROUNDS = 5


class AppliedFix(NamedTuple):
    """An error, and the change that fixes it."""

    finding: Finding
    change: Change


class SavedProfile(Struct, frozen=True):
    """A saved profile and its file."""

    name: str
    path: str


SavedProfiles = tuple[SavedProfile, ...]


class AttemptWithArgv(Attempt, frozen=True, kw_only=True):
    """An attempt, and its words; values known only while it runs are $NAME."""

    argv: tuple[str, ...]


class MadePlan(Plan, frozen=True, kw_only=True):
    """A plan, of whose attempts the words are known."""

    attempts: tuple[AttemptWithArgv, ...]


class ChangesSinceRun(Struct, frozen=True):
    """What has changed in effect since a run."""

    run: str
    changes: tuple[ValueDifference, ...]


class PlanAnswer(Struct, frozen=True, kw_only=True):
    """What a profile would start: the plan, null where a finding forbids it, and its files by path.

    `since` is there with --diff.
    """

    findings: tuple[Finding, ...]
    plan: MadePlan | None
    files: dict[str, str]
    since: ChangesSinceRun | UnsetType | None = UNSET


def facts_answer_type() -> type[Struct]:
    """Return the type of what `print_facts` prints as JSON."""
    queue = answers.joined_type("CardQueue", CardInQueue, uuid=None)
    gpu = answers.joined_type("JudgedGpu", Gpu, GpuVerdict, kind=None, verdict=str, chosen=bool, queue=queue)
    machine = answers.joined_type("MachineAnswer", Machine, gpus=None)
    return answers.joined_type(
        "FactsAnswer",
        machine=machine,
        cluster=Cluster | UnsetType,
        gpus=tuple[gpu, ...],  # type: ignore[valid-type]
        sets=tuple[CardSet, ...],
        all_blocked=str,
        judged_for=Toolchain | None,
        toolchains=tuple[Toolchain, ...],
    )


def print_facts(*, named_place: Place, toolchain: Path | None, save: Path | None, as_json: bool) -> None:
    """Print the facts of a machine, and write them to `save`, if given; `toolchain` is a file of another PyTorch."""
    if save:
        machine_files.refuse_to_overwrite(save)
    machine_facts, judged_for = machines.probe_facts_and_toolchain(named_place, toolchain)
    if as_json:
        printing.print_json(machines.facts_as_json_data(machine_facts, judged_for))
    else:
        verdicts = gpu_verdicts(machine_facts.machine.gpus, judged_for, machine_facts.machine.driver_cuda)
        if machine_facts.cluster:
            click.echo(clusters.cluster_table_text(machine_facts.cluster, printing.terminal_width_or_none()) + "\n")
        click.echo(
            plain_text.facts_text(
                machine_facts,
                judged_for,
                recommended_uuids(machine_facts.machine.gpus, verdicts),
                printing.terminal_width_or_none(),
            )
        )
    if save:
        machine_files.save_machine_file(save, machine_facts)
        click.echo(f"saved {visible(str(save))}, without names of users, hosts and home folders", err=as_json)


def print_plan(  # noqa: PLR0913 - one for each option
    reference: str, *, edits: tuple[str, ...], named_place: Place, against: str | None, fetch: bool, as_json: bool
) -> None:
    """Print the plan of a profile, its findings on stderr; exits where an error forbids a plan.

    `against` names the run to show the differences from; `previous` is the newest of this profile. `fetch`:
    get the config.json of a model whose sizes are not known.
    """
    profile = apply_edits(load_profile(reference), edits)
    earlier = _find_run_to_compare(profile, against)
    facts = probe_facts_for_start(profile, named_place, printing.report_waiting)
    if fetch:
        facts = facts_with_fetched_config(profile, facts, named_place)
    setup = make_setup(profile, facts)
    prepared = prepare_plan(setup)
    if as_json:
        printing.print_json(_plan_answer(prepared, _changes_since_run(earlier, profile) if against else UNSET))
        if prepared.plan is None:
            sys.exit(_refusal_exit_code(prepared))
        return
    if prepared.plan is None:
        # What the script takes is needed where its arguments are wrong.
        for line in script_notes(profile, facts):
            click.echo(line, err=True)
    made_plan = print_findings_and_require_plan(prepared)
    pace = previous_run.expected_pace(earlier, profile)
    click.echo(overview.overview_text(overview.training_outline_lines(setup, pace)))
    if unknown := predict_memory(setup).workload.unknown_model:
        click.echo(f"\nmemory: the sizes of {unknown} are not known. {unknown_sizes_remedy(unknown, facts)}")
    if against:
        click.echo(f"\n{_changes_since_run_text(earlier, profile)}")
    click.echo(f"\n{plain_text.plan_text(made_plan)}")
    folder = working_folder(profile, setup.preset)
    where = f" (in {visible(folder)})" if folder and folder != str(Path.cwd()) else ""
    click.echo(f"\ncommand{where}: {_first_attempt_command_text(made_plan)}")
    click.echo("\nfiles: " + ", ".join(file.path for file in files_for_display(prepared.files)))


def facts_with_fetched_config(profile: Profile, facts: Facts, named_place: Place) -> Facts:
    """Return the facts with the shape of a model whose config.json is fetched now; nothing is where it is known."""
    require_this_machine("--fetch-config", profile, named_place)
    setup = make_setup(profile, facts)
    if setup.preset_error:
        raise setup.preset_error
    name = predict_memory(setup).workload.unknown_model
    if not name or facts.hub is None:
        click.echo("--fetch-config: nothing to fetch, the sizes of the model are known", err=True)
        return facts
    path = model_config.fetch_model_config(profile, facts.hub, name)
    click.echo(f"fetched {visible(str(path))} ({size_text(path.stat().st_size)})", err=True)
    return model_config.read_model_shape_into_facts(profile, facts, name)


def require_this_machine(option: str, profile: Profile, named_place: Place) -> None:
    """Raise UsageError or BadInput where an option that runs here is given for another machine or the cluster."""
    if named_place.name:
        raise click.UsageError(f"{option} runs on this machine: leave out --machine, --on and --slurm.")
    machines.require_training_on_this_machine(profile, option)


def unknown_sizes_remedy(model: str, facts: Facts) -> str:
    """Return what to do about a model of the Hub whose sizes are not known, as a sentence."""
    if facts.other_machine or facts.scheduler:
        return f"Fetch its config.json there, a few kB: hf download {model} config.json"
    return "Add --fetch-config, which fetches its config.json alone, a few kB, from the Hub."


def _find_run_to_compare(profile: Profile, against: str | None) -> PreviousRun | None:
    """Return the run to compare with: the one that is named, or else the newest of this profile."""
    if not against or against == _PREVIOUS_RUN_REFERENCE:
        return previous_run.find_previous_run(profile)
    run = run_folders.find_run(against)
    earlier = previous_run.read_as_previous_run(run)
    if earlier is None:
        remedy = f"See {visible(str(run.profile_file))}."
        raise BadInput(f"the profile of run {visible(run.name)} cannot be read", remedy)
    return earlier


def _changes_since_run_text(earlier: PreviousRun | None, profile: Profile) -> str:
    """Return in lines what has changed since an earlier run."""
    if earlier is None:
        return f"no earlier run of {visible(profile.name)}"
    changed = previous_run.value_difference_lines(previous_run.effective_changes_since(earlier, profile))
    name = visible(earlier.run_name)
    return "\n".join((f"changed since {name}:", *(f"  {line}" for line in changed))) if changed else f"as in {name}"


def print_notes_for_other_machines(made_plan: Plan) -> None:
    """Print what to do on the other machines, if there are any."""
    if made_plan.is_started_by_hand:
        click.echo("\n".join(made_plan.notes))


def print_image_check(name: str, *, engine: str | None, recipe: str, host: str, as_json: bool) -> None:
    """Print what an image on a host (empty: this machine) contains; exits with an error where it cannot train."""
    run = make_command_runner(host)
    engine = engine or container_images.choose_engine(name, container_images.read_engines(run))
    machine = remote.read_host_facts(host_address(host)).machine if host else probe.probe_machine()
    content = container_images.probe_image(engine, name, run)
    verdicts = gpu_verdicts(machine.gpus, content.toolchain, machine.driver_cuda)
    validation = check_image(engine, name, recommended_uuids(machine.gpus, verdicts), recipe, host)
    if as_json:
        printing.print_json(msgspec.to_builtins(validation))
    else:
        click.echo(image_check_text(validation))
    if validation.wrong:
        sys.exit(Unavailable.exit_code)


def print_profiles(*, as_json: bool) -> None:
    """Print the saved profiles with their paths."""
    rows = [SavedProfile(name, str(store.profile_path(name))) for name in store.saved_profile_names()]
    if as_json:
        printing.print_json(rows)
    else:
        click.echo(
            "\n".join(f"{visible(row.name)}  {visible(row.path)}" for row in rows)
            or "No profiles yet. Save one: tui-train new NAME"
        )


def save_new_profile(name: str, *, like: str, edits: tuple[str, ...], force: bool) -> None:
    """Save the profile `like` with edits under a new name."""
    profile = apply_edits(fields.profile_with_value(load_profile(like), "name", name), edits)
    if not force:
        store.refuse_to_replace_profile(profile.name)
    _save_profile_and_report(profile, overwrite=force)


def change_saved_profile(name: str, *, edits: tuple[str, ...]) -> None:
    """Save a saved profile with edits; what they do not name stays."""
    if not edits:
        raise click.UsageError("Nothing to change: give values with --set KEY=VALUE.")
    _save_profile_and_report(
        apply_edits(store.load_profile_file(str(store.saved_profile_path(name))), edits), overwrite=True
    )


def _save_profile_and_report(profile: Profile, *, overwrite: bool) -> None:
    store.require_savable_profile(profile)
    answers.announce_changes(writes=(str(store.profile_path(profile.name)),))
    click.echo(f"saved {visible(str(store.save_profile(profile, overwrite=overwrite)))}")
    warn_of_saved_secrets(profile)
    script = profile.trainer.script
    if (
        script
        and trainer_has_own_field(profile, "trainer.script")
        and probe.read_path_states([script])[script] != "file"
    ):
        click.echo(f"warning: trainer.script: there is no file {visible(script)} on this machine", err=True)


def warn_of_saved_secrets(profile: Profile) -> None:
    """Name on standard error what looks like a secret, without being one for sure, in a profile that was saved."""
    for secret in find_secret_positions(profile):
        click.echo(f"warning: {secret.key}: {visible(secret.description)} looks like a secret, and was saved", err=True)


def load_profile(reference: str) -> Profile:
    """Return a profile by name or path; `quickstart` needs no saved file."""
    if reference == "quickstart" and reference not in store.saved_profile_names():
        return Profile()
    try:
        return store.load_profile_file(reference)
    except NotFound as error:
        run = next((run for run in run_folders.list_runs() if run.name == reference), None)
        if run is None:
            raise
        remedy = f"Name the profile that it was started from: {visible(shlex.quote(str(run.profile_file)))}"
        raise NotFound(f"{error.message}: {visible(reference)} is a run", remedy) from None


def _parse_edit(row: Field, text: str) -> fields.FieldValue:
    """Return the value in a text of --set; BadInput names the key, and what to type for a shell that removes quotes."""
    try:
        return fields.parse_value(row, text)
    except typed_lists.AmbiguousComma as error:
        several, one = (
            f"--set {_always_quoted_for_shell(f'{row.key}={reading}')}"
            for reading in (error.as_several_values, error.as_single_value)
        )
        raise BadInput(
            _message_with_key_instead_of_label(row, error),
            typed_lists.both_readings_remedy(visible(several) if error.as_several_values else "", visible(one)),
        ) from None
    except BadInput as error:
        raise BadInput(_message_with_key_instead_of_label(row, error), error.remedy) from None


def _message_with_key_instead_of_label(row: Field, error: BadInput) -> str:
    """Return what is wrong with the key in place of the label, which only the screens show."""
    begins = error.message.startswith((f"{row.label} ", f"{row.label}:"))
    return row.key + error.message[len(row.label) :] if begins else error.message


def _always_quoted_for_shell(word: str) -> str:
    """Return a word quoted for a shell, so that quotes in it can be read."""
    return shlex.quote(word) if re.search(r'["$`\\!]', word) else f'"{word}"'


def apply_edits(profile: Profile, edits: tuple[str, ...]) -> Profile:
    """Return the profile with `KEY=VALUE` edits made."""
    keys_set: set[str] = set()
    for edit in edits:
        key, equals, text = edit.partition("=")
        if not equals:
            raise BadInput(f"--set {visible(edit)} is not KEY=VALUE", "Write it as --set recipe.steps=100.")
        row = fields.get_field(key)
        value = _parse_edit(row, choices.value_from_label(key, text))
        before = fields.get_value(profile, key)
        if isinstance(value, dict) and isinstance(before, dict) and value:
            # NAME=VALUE adds to the others; an empty text removes all.
            value = {**before, **value}
        elif isinstance(value, tuple) and isinstance(before, tuple) and key in keys_set and value:
            value = (*before, *value)
        keys_set.add(key)
        profile = fields.profile_with_value(profile, key, value)
        if key == "trainer.python":
            trusted_pythons.remember_chosen_python(profile.trainer.python)
    if (
        "trainer.script" in keys_set
        and "trainer.kind" not in keys_set
        and profile.trainer.script
        and not fields.is_chosen(profile, "trainer.kind")
    ):
        # The default would train a model of its own.
        profile = fields.profile_with_value(profile, "trainer.kind", "script")
        click.echo("trainer.kind=script, for a script is named", err=True)
    store.require_known_preset(profile)
    if answers.is_dry_run():
        return profile
    kept = store.store_webhook_of_profile(profile)
    if kept != profile:
        click.echo(f"the webhook's address is a secret: it is kept in {visible(kept.notify.webhook)}", err=True)
    return kept


def print_findings_and_require_plan(prepared: PreparedPlan, *, starts: bool = False) -> Plan:
    """Return the plan, after printing the findings to stderr; exits where one forbids the plan, or its start."""
    answers.note_findings(prepared.findings)
    for finding in prepared.findings:
        click.echo(plain_text.finding_text(finding), err=True)
    if prepared.plan is None or (starts and prepared.errors):
        sys.exit(_refusal_exit_code(prepared))
    return prepared.plan


def apply_fixes_of_errors(
    profile: Profile, facts_here: Facts, user_edits: tuple[str, ...]
) -> tuple[Profile, tuple[AppliedFix, ...]]:
    """Apply the changes that errors offer, for defaults that do not fit this machine; return them.

    Keys that `user_edits` set are never changed.
    """
    chosen = {edit.partition("=")[0] for edit in user_edits}
    fixes: list[AppliedFix] = []
    for _ in range(_MAX_FIX_ROUNDS):
        findings = find_problems(make_setup(profile, facts_here))
        offered = (AppliedFix(finding, finding.change) for finding in findings if finding.change)
        own_fixes = (
            fix for fix in offered if fix.finding.level == "error" and chosen.isdisjoint(dict(fix.change.edits))
        )
        fix = next(own_fixes, None)
        if fix is None:
            break
        fixes.append(fix)
        profile = apply_change(fix.change, profile)
    return profile, tuple(fixes)


def _refusal_exit_code(prepared: PreparedPlan) -> int:
    return (Unavailable if all(finding.machine for finding in prepared.errors) else BadInput).exit_code


def _plan_answer(prepared: PreparedPlan, since: ChangesSinceRun | UnsetType | None) -> PlanAnswer:
    plan = prepared.plan
    if plan is None:
        return PlanAnswer(findings=prepared.findings, plan=None, files={}, since=since)
    attempts = (AttemptWithArgv(**asdict(each), argv=_attempt_argv(plan, each)) for each in plan.attempts)
    made = MadePlan(**{**asdict(plan), "attempts": tuple(attempts)})
    files = {file.path: file.text for file in files_for_display(prepared.files)}
    return PlanAnswer(findings=prepared.findings, plan=made, files=files, since=since)


def _changes_since_run(earlier: PreviousRun | None, profile: Profile) -> ChangesSinceRun | None:
    if earlier is None:
        return None
    return ChangesSinceRun(earlier.run_name, previous_run.effective_changes_since(earlier, profile))


def _attempt_argv(made_plan: Plan, attempt: Attempt) -> tuple[str, ...]:
    if made_plan.container is None:
        words = argv(attempt.command, "$RUN_DIR", address=made_plan.address, uneven_processes=made_plan.uneven)
        return tuple(words)
    values = {name: f"${name}" for name in RUNTIME_VARIABLE_NAMES} | {"ADDRESS": made_plan.address}
    return tuple(container.container_command(made_plan.container, attempt.command, values, made_plan.uneven))


def _first_attempt_command_text(made_plan: Plan) -> str:
    """Return the command of the first attempt, without a container's: one line, quoted as in launch.sh."""
    command = made_plan.attempts[0].command
    words = argv(command, "RUN_FOLDER", address=made_plan.address, uneven_processes=made_plan.uneven)
    return visible(" ".join(map(quoted_word, words)))
