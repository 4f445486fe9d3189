"""Gathers the evidence of a log or a run; the only part of the diagnosis that reads the disk."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tui_train.base.errors import BadInput, TuiTrainError
from tui_train.base.parse import Unparsable, prepared_type
from tui_train.base.text import visible
from tui_train.diagnose.reader import Watch, lines_of
from tui_train.diagnose.root import diagnose
from tui_train.diagnose.types import Diagnosis, Evidence, Line
from tui_train.facts import documents, host, hub, sources
from tui_train.facts.safetensors import tensors
from tui_train.facts.types import Document, Facts
from tui_train.presets import Preset, accepted_placeholders
from tui_train.profile import fields, store
from tui_train.profile.changes import Change, apply
from tui_train.profile.types import Profile
from tui_train.resolve import fallbacks, launcher_config
from tui_train.resolve.in_force import in_force, settle
from tui_train.runs import ranks
from tui_train.runs.resuming import newest_checkpoint
from tui_train.runs.rundir import MOST_PLAN, RunDir
from tui_train.runs.status import status
from tui_train.supervisor import regular
from tui_train.supervisor.first_step import first_step
from tui_train.trainers import takes_field, trainer_of

# As plan/nemo.py passes them, or writes them into its file.
_RECIPE = frozenset(
    {"micro_batch", "accumulation", "global_batch", "activation_checkpointing", "precision", "learning_rate"}
)


class _Tried(msgspec.Struct, frozen=True):
    edits: dict[str, fields.Value] = {}


def of_log(path: str, exit_code: int | None = None, watch: Watch | None = None) -> Diagnosis | None:
    """Return what failed in any log, `-` being standard input; NotFound or BadInput where it cannot be read."""

    def of(lines: tuple[Line, ...]) -> Diagnosis | None:
        return diagnose(Evidence(lines=lines, exit_code=exit_code))

    return of(lines_of(path, watch, of))


def of_run(run: RunDir, facts: Facts | None = None, watch: Watch | None = None) -> Diagnosis | None:
    """Return why the last attempt of a run failed, None where it did not, was stopped or still trains.

    With `facts` a Change that they speak against is left out; gathering them takes seconds, so a caller who has them
    passes them.
    """
    now = status(run)
    if not now.attempts or now.live or now.trains_on:
        return None
    if now.state in {"finished", "stopped"} and now.exit_code != 0:
        return None
    attempt = now.attempts[-1]
    code = attempt.exit_code if attempt.exit_code is not None and attempt.exit_code >= 0 else None
    profile, plan = _profile(run), ranks.planned(_bytes(run.plan_file))
    output = profile.trainer.output if profile and profile.trainer.output else str(run.path / "output")
    stored = profile
    document = documents.document(profile.trainer.config) if profile and profile.trainer.config else None
    chosen = _preset(profile) if profile else None
    if profile and chosen:
        # The settings in force failed, whether chosen or defaults.
        by_launcher = launcher_config.held(profile, chosen, launcher_config.written(run.plan()))
        profile = settle(profile, in_force(profile, chosen, document, max(1, plan.world_size), by_launcher))
    evidence = Evidence(
        lines=(),
        exit_code=code,
        lost=code is None and now.state == "lost",
        host=os.uname().nodename,
        oom_kills=host.oom_kills() if code in {None, 137} else None,
        memory_limit=host.cgroup_limits().memory if code in {None, 137} else None,
        free_disk=_free(output) or _free(str(run.path)),
        free_shm=_free("/dev/shm"),  # noqa: S108 - what is free there, nothing is written
        world_size=max(1, plan.world_size),
        cuda=bool(plan.gpus),
        checkpoint=newest_checkpoint(run, attempt.position),
        takes=_takes(profile, document) if profile else frozenset(),
        phase=attempt.phase,
        resumed=attempt.resumed,
        first_step=first_step(str(run.attempt_log(attempt.number)), run.reading()) if attempt.resumed else 0,
        eval_batch=fallbacks.eval_batch(chosen, document) if chosen else 0,
        source=sources.source(profile.trainer.script) if profile and profile.trainer.script else None,
        preset=chosen,
    )
    tried = _tried(profile, run, attempt.position) if profile else None

    def of(lines: tuple[Line, ...]) -> Diagnosis | None:
        found = _changing(msgspec.structs.replace(evidence, lines=lines), profile, stored, tried, facts)
        if found is None or found.failure != "checkpoint_corrupt" or profile is None:
            return found
        return msgspec.structs.replace(found, evidence=(*found.evidence, *_damaged(profile, evidence.checkpoint)))

    return of(lines_of(str(run.attempt_log(attempt.number)), watch, of))


def _damaged(profile: Profile, checkpoint: str) -> Iterator[str]:
    """Yield which files of the model and of the newest checkpoint are damaged: the libraries do not name them."""
    model = profile.trainer.model
    if model and not model.startswith("/"):
        model = hub.snapshot_folder(hub.hub_variables(profile), model, profile.trainer.revision)
    for folder in filter(None, (model, checkpoint)):
        for file in sorted(Path(folder).glob("*.safetensors")):
            try:
                tensors(file)
            except Unparsable as error:
                yield f"{visible(str(file))}: {error}"


def _changing(
    evidence: Evidence, profile: Profile | None, stored: Profile | None, tried: Change | None, facts: Facts | None
) -> Diagnosis | None:
    """Return what failed, with a change of the settings of the attempt that failed."""
    if profile is None or stored is None or tried is None:
        return diagnose(evidence, None, facts)
    diagnosis = diagnose(evidence, apply(tried, profile), facts, apply(tried, stored))
    if diagnosis is None or diagnosis.change is None:
        return diagnosis
    edits = {**dict(tried.edits), **dict(diagnosis.change.edits)}
    change = Change(diagnosis.change.title, diagnosis.change.why, tuple(edits.items()))
    return msgspec.structs.replace(diagnosis, change=change)


def _tried(profile: Profile, run: RunDir, position: int) -> Change:
    """Return what the attempt at a position of the ladder had changed; nothing where the plan has none."""
    attempts = run.plan().get("attempts")
    attempt = attempts[position - 1] if isinstance(attempts, list) and 0 < position <= len(attempts) else None
    try:
        change = Change("as tried", "", tuple(msgspec.convert(attempt, prepared_type(_Tried)).edits.items()))
        msgspec.convert(msgspec.to_builtins(apply(change, profile)), prepared_type(Profile))
    except (msgspec.ValidationError, BadInput, RecursionError):
        return Change("as tried", "", ())
    return change


def _profile(run: RunDir) -> Profile | None:
    try:
        return store.load(str(run.profile))
    except TuiTrainError:
        return None


def _takes(profile: Profile, document: Document | None) -> frozenset[str]:
    """Return the values that reach the trainer, without those that the user's own arguments or file override."""
    if trainer_of(profile).resumes_itself:
        return _RECIPE
    chosen = _preset(profile)
    if chosen is None:
        return frozenset()
    passed = accepted_placeholders(chosen, profile.trainer.arguments)
    return frozenset(name for name in passed if not fallbacks.user_setting(name, profile, chosen, document))


def _preset(profile: Profile) -> Preset | None:
    if takes_field(profile, "nemo"):
        return None
    try:
        return trainer_of(profile).preset(profile, None, None)
    except BadInput:
        return None


def _bytes(path: Path) -> bytes:
    try:
        return regular.read(path, MOST_PLAN)
    except OSError:
        return b""


def _free(path: str) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def of_reference(
    reference: str, exit_code: int | None, watch: Watch | None = None
) -> tuple[str, RunDir | None, Diagnosis | None]:
    """Return the safe name of a log, or of a run by id, `last` or folder, that run, and what failed in it."""
    from tui_train.runs import rundir

    # Unlike those of Path, these answer for a path of any length.
    is_file, is_folder = os.path.isfile(reference), os.path.isdir(reference)  # noqa: PTH112, PTH113
    if reference == "-" or is_file or ("/" in reference and not is_folder):
        return visible(reference), None, of_log(reference, exit_code, watch)
    run = rundir.find(reference)
    return visible(run.name), run, of_run(run, watch=watch)
