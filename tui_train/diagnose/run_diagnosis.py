"""Gathers the evidence of a log or a run; the only part of the diagnosis that reads the disk."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tui_train.base.errors import BadInput, NotFound
from tui_train.base.files import read_regular_file
from tui_train.base.parse import Unparsable, type_prepared_for_msgspec
from tui_train.base.text import visible
from tui_train.diagnose.log_reader import LogReadObserver, read_relevant_log_lines
from tui_train.diagnose.root_cause import diagnose
from tui_train.diagnose.types import Diagnosis, Evidence, LogLine
from tui_train.facts import yaml_documents
from tui_train.facts.models import hub
from tui_train.facts.models.safetensors import read_tensor_descriptions
from tui_train.facts.scripts import script_source
from tui_train.facts.types import Facts, YamlDocument
from tui_train.profile import fields
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.presets import Preset, accepted_placeholders
from tui_train.profile.types import Profile
from tui_train.runner.logs.log_head import first_logged_step
from tui_train.runner.machine_evidence import MachineEvidence, read_machine_evidence
from tui_train.runner.run_folder.events import JournalEvent
from tui_train.runner.run_folder.state import AttemptStatus, RunStatus
from tui_train.runner.system import safe_open
from tui_train.runs import ranks
from tui_train.runs.results.resuming import newest_checkpoint
from tui_train.runs.run_folders import MAX_PLAN_BYTES, NoSuchRun, RunFolder, find_run
from tui_train.runs.status import may_training_still_write, read_status
from tui_train.setup import blocked_fallbacks
from tui_train.setup.recipe import launcher_config
from tui_train.setup.recipe.effective_values import effective_values, with_effective_values
from tui_train.trainers import trainer_has_own_field, trainer_of

# As trainers/nemo.py passes them, or writes them into its file.
_RECIPE_NAMES_PASSED_TO_NEMO = frozenset(
    {"micro_batch", "accumulation", "global_batch", "activation_checkpointing", "precision", "learning_rate"}
)


_MAX_SOURCE_BYTES = 4 << 20
_LINES_AROUND_ERROR = 2
_FILE_CLOCK_TOLERANCE_SECONDS = 2.0


class _AttemptEdits(msgspec.Struct, frozen=True):
    edits: dict[str, fields.FieldValue] = {}


def diagnose_log(path: str, exit_code: int | None = None, observer: LogReadObserver | None = None) -> Diagnosis | None:
    """Return what failed in any log, `-` being standard input; NotFound or BadInput where it cannot be read."""

    def diagnose_lines(lines: tuple[LogLine, ...]) -> Diagnosis | None:
        return diagnose(Evidence(lines=lines, exit_code=exit_code))

    return diagnose_lines(read_relevant_log_lines(path, observer, diagnose_lines))


def diagnose_run(
    run: RunFolder,
    facts: Facts | None = None,
    observer: LogReadObserver | None = None,
    *,
    while_it_trains: bool = False,
) -> Diagnosis | None:
    """Return why the last attempt of a run failed, None where it did not.

    One that still trains is diagnosed only on request. Of that, and of a stopped one, only what fails without an error
    counts, such as a loss that became NaN.
    With `facts` a Change that they speak against is left out; gathering them takes seconds, so a caller who has them
    passes them.
    """
    now = read_status(run)
    if not now.attempts or (may_training_still_write(now) and not while_it_trains):
        return None
    if now.state == "finished" and now.exit_code != 0:
        return None
    stored, attempt = run.read_profile(), now.attempts[-1]
    settings = _settings_in_force(run, stored, is_elsewhere=bool(now.host))
    evidence = _run_evidence(run, now, settings)
    tried = _attempt_change(settings.profile, run, attempt.position) if settings.profile else None

    def diagnose_lines(lines: tuple[LogLine, ...]) -> Diagnosis | None:
        diagnosis = _diagnose_as_attempted(
            msgspec.structs.replace(evidence, lines=lines), settings.profile, stored, tried, facts
        )
        if diagnosis is None or now.host:
            return diagnosis
        return _with_files_of_this_machine(diagnosis, settings.profile, attempt, evidence.newest_checkpoint)

    return diagnose_lines(read_relevant_log_lines(str(run.attempt_log(attempt.number)), observer, diagnose_lines))


class _RunSettings(msgspec.Struct, frozen=True):
    """The profile of a run with the settings in force, whether chosen or defaults; its preset and its config file."""

    profile: Profile | None = None
    preset: Preset | None = None
    document: YamlDocument | None = None


def _settings_in_force(run: RunFolder, stored: Profile | None, *, is_elsewhere: bool) -> _RunSettings:
    if stored is None:
        return _RunSettings()
    # What lies at a path on another machine is not known here.
    config = "" if is_elsewhere else stored.trainer.config
    document = yaml_documents.read_document(config) if config else None
    preset = _trainer_preset(stored)
    if preset is None:
        return _RunSettings(stored, None, document)
    by_launcher = launcher_config.recipe_values_of_config(
        stored, preset, launcher_config.launcher_config_in_plan(run.plan())
    )
    values = effective_values(trainer_of(stored), preset, document, max(1, _planned_ranks(run).world_size), by_launcher)
    return _RunSettings(with_effective_values(stored, values), preset, document)


def _planned_ranks(run: RunFolder) -> ranks.PlannedRanks:
    return ranks.parse_planned_ranks(_read_plan_bytes(run.plan_file))


def _run_evidence(run: RunFolder, status: RunStatus, settings: _RunSettings) -> Evidence:
    """Return what is known of the last attempt's end, without its log lines."""
    attempt, plan = status.attempts[-1], _planned_ranks(run)
    profile, preset, document = settings.profile, settings.preset, settings.document
    output = profile.trainer.output if profile and profile.trainer.output else str(run.path / "output")
    machine = _last_attempt_machine_evidence(run, status, output)
    code = attempt.exit_code if attempt.exit_code is not None and attempt.exit_code >= 0 else None
    # What its end by a signal has written is no failure.
    code = 0 if status.state == "stopped" or may_training_still_write(status) else code
    # Of any other end the host's memory is no cause.
    may_be_killed = code in {None, 137}
    script = profile.trainer.script if profile and not status.host else ""
    return Evidence(
        lines=(),
        exit_code=code,
        ended_unobserved=code is None and status.state == "lost",
        host=machine.host,
        oom_kills=_known_number_or_none(machine.oom_kills) if may_be_killed else None,
        memory_limit=_known_number_or_none(machine.memory_limit) if may_be_killed else None,
        free_disk=_known_number_or_none(machine.free_disk),
        free_shm=_known_number_or_none(machine.free_shm),
        gpu_error=visible(machine.gpu_error),
        world_size=max(1, plan.world_size),
        on_gpus=bool(plan.gpus),
        gpus=plan.gpus,
        newest_checkpoint=newest_checkpoint(run, attempt.position),
        accepted_recipe_names=_recipe_names_reaching_trainer(profile, document) if profile else frozenset(),
        phase=attempt.phase,
        resumed_step=attempt.resumed,
        first_logged_step=first_logged_step(str(run.attempt_log(attempt.number)), run.log_reading_options())
        if attempt.resumed
        else 0,
        eval_batch=blocked_fallbacks.eval_batch_of_file_or_preset(preset, document) if preset else 0,
        script_source=script_source.read_script_source(script) if script else None,
        preset=preset,
    )


def _with_files_of_this_machine(
    diagnosis: Diagnosis, profile: Profile | None, attempt: AttemptStatus, checkpoint: str
) -> Diagnosis:
    """Return a diagnosis with the lines around the error in its file, and with the damaged files of a checkpoint."""
    if diagnosis.source_file:
        file = Path(profile.trainer.working_directory if profile else "", diagnosis.source_file)
        ended = attempt.ended or time.time()
        source = _source_lines_around(file, diagnosis.source_line, ended) if file.is_absolute() else ()
        diagnosis = msgspec.structs.replace(diagnosis, source_file=str(file), source=source)
    if diagnosis.failure != "checkpoint_corrupt" or profile is None:
        return diagnosis
    damaged = _damaged_files(profile, checkpoint)
    return msgspec.structs.replace(diagnosis, evidence=(*diagnosis.evidence, *damaged))


def _source_lines_around(file: Path, number: int, ended: float) -> tuple[tuple[int, str], ...]:
    """Return a line of a file and those around it; none where it cannot be read, or was changed after an end."""
    try:
        if file.stat().st_mtime > ended + _FILE_CLOCK_TOLERANCE_SECONDS:
            return ()
        text = read_regular_file(file, _MAX_SOURCE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    lines = text.splitlines()
    first = max(1, number - _LINES_AROUND_ERROR)
    shown = lines[first - 1 : number + _LINES_AROUND_ERROR] if number <= len(lines) else []
    return tuple((at, visible(line.expandtabs(4))) for at, line in enumerate(shown, first))


def _last_attempt_machine_evidence(run: RunFolder, status: RunStatus, output: str) -> JournalEvent | MachineEvidence:
    """Return the evidence of the machine on which the last attempt failed, as its supervisor saw it.

    One that was lost with its supervisor, or is of an earlier version, is looked at now where it ran here.
    """
    ended = next((event for event in reversed(run.events()) if event.event == "attempt_ended"), None)
    if ended and ended.attempt == status.attempts[-1].number and ended.host:
        return ended
    started = next((event for event in reversed(run.events()) if event.event == "run_started"), JournalEvent())
    ran_here = not status.host and started.host in {"", os.uname().nodename}
    return read_machine_evidence(output, None) if ran_here else JournalEvent(host=status.host or started.host)


def _known_number_or_none(value: int) -> int | None:
    return None if value < 0 else value


def _damaged_files(profile: Profile, checkpoint: str) -> Iterator[str]:
    """Yield which files of the model and of the newest checkpoint are damaged: the libraries do not name them."""
    model = profile.trainer.model
    if model and not model.startswith("/"):
        model = hub.snapshot_folder(hub.hub_variables(profile), model, profile.trainer.revision)
    for folder in filter(None, (model, checkpoint)):
        for file in sorted(Path(folder).glob("*.safetensors")):
            try:
                read_tensor_descriptions(file)
            except Unparsable as error:
                yield f"{visible(str(file))}: {error}"


def _diagnose_as_attempted(
    evidence: Evidence,
    profile: Profile | None,
    stored_profile: Profile | None,
    attempt_change: Change | None,
    facts: Facts | None,
) -> Diagnosis | None:
    """Return what failed, with a change of the settings of the attempt that failed."""
    if profile is None or stored_profile is None or attempt_change is None:
        return diagnose(evidence, None, facts)
    diagnosis = diagnose(
        evidence, apply_change(attempt_change, profile), facts, apply_change(attempt_change, stored_profile)
    )
    if diagnosis is None or diagnosis.change is None:
        return diagnosis
    edits = {**dict(attempt_change.edits), **dict(diagnosis.change.edits)}
    change = Change(diagnosis.change.title, diagnosis.change.why, tuple(edits.items()))
    return msgspec.structs.replace(diagnosis, change=change)


def _attempt_change(profile: Profile, run: RunFolder, ladder_position: int) -> Change:
    """Return what the attempt at a position of the ladder had changed; nothing where the plan has none."""
    attempts = run.plan().get("attempts")
    attempt = (
        attempts[ladder_position - 1] if isinstance(attempts, list) and 0 < ladder_position <= len(attempts) else None
    )
    try:
        change = Change(
            "as tried", "", tuple(msgspec.convert(attempt, type_prepared_for_msgspec(_AttemptEdits)).edits.items())
        )
        msgspec.convert(msgspec.to_builtins(apply_change(change, profile)), type_prepared_for_msgspec(Profile))
    except (msgspec.ValidationError, BadInput, RecursionError):
        return Change("as tried", "", ())
    return change


def _recipe_names_reaching_trainer(profile: Profile, document: YamlDocument | None) -> frozenset[str]:
    """Return the values that reach the trainer, without those that the user's own arguments or file override."""
    if trainer_of(profile).resumes_itself:
        return _RECIPE_NAMES_PASSED_TO_NEMO
    chosen = _trainer_preset(profile)
    if chosen is None:
        return frozenset()
    passed = accepted_placeholders(chosen, profile.trainer.arguments)
    return frozenset(
        name for name in passed if not blocked_fallbacks.user_setting_against_fallback(name, profile, chosen, document)
    )


def _trainer_preset(profile: Profile) -> Preset | None:
    if trainer_has_own_field(profile, "nemo"):
        return None
    try:
        return trainer_of(profile).preset
    except BadInput:
        return None


def _read_plan_bytes(path: Path) -> bytes:
    try:
        return safe_open.read_bounded(path, MAX_PLAN_BYTES)
    except OSError:
        return b""


def diagnose_log_or_run(
    reference: str, exit_code: int | None, observer: LogReadObserver | None = None
) -> tuple[str, RunFolder | None, Diagnosis | None]:
    """Return the safe name of a log, or of a run by id, `last` or folder, that run, and what failed in it."""
    # Unlike those of Path, these answer for a path of any length.
    is_file, is_folder = os.path.isfile(reference), os.path.isdir(reference)  # noqa: PTH112, PTH113
    if reference == "-" or is_file or ("/" in reference and not is_folder):
        return visible(reference), None, diagnose_log(reference, exit_code, observer)
    try:
        run = find_run(reference)
    except NoSuchRun as error:
        name = visible(reference)
        raise NotFound(f"there is no file {name} in this folder, and no run {name}", error.remedy) from None
    return visible(run.name), run, diagnose_run(run, observer=observer)
