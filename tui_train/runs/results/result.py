"""Result of a run: its adapter or model, the best and last losses, and how long it took."""

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tui_train.base.errors import NotFound
from tui_train.base.text import energy_text, grouped_digits, visible
from tui_train.runner.logs.curve import LossCurve
from tui_train.runner.logs.progress import Progress
from tui_train.runner.run_folder import checkpoints
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runner.run_folder.supervisor_plan import SupervisorPlan, read_plan
from tui_train.runner.system.refused import Refused
from tui_train.runs.follow import read_progress
from tui_train.runs.remote_run import local_output_folder, read_remote_location, read_run_location
from tui_train.runs.results.resuming import are_results_here
from tui_train.runs.results.trackers import ReportingRun, TrackerLine, tracker_lines
from tui_train.runs.results.trainer_state import read_best_checkpoint_step, read_trainer_state_step
from tui_train.runs.results.weights import Weights, read_weights
from tui_train.runs.run_code import labelled_code_texts
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.script_outputs import argument_folders_written_since, weights_files_written
from tui_train.runs.status import energy_used_and_if_all_metered, other_machine_folders, read_status, training_seconds
from tui_train.trainers import trainer_has_own_field

WeightsOrigin = Literal["final", "stopped", "checkpoint", "chosen"]

# Where trainers save the final weights below their output folder, the folder itself first.
FINAL_WEIGHTS_FOLDERS = ("", "model", "final", "final_model", "final_checkpoint")
# Where they lie in a checkpoint: of the HF Trainer in itself, of NeMo AutoModel below it.
CHECKPOINT_WEIGHTS_FOLDERS = ("", "model/consolidated", "model")
_AUTOMODEL_CHECKPOINT_GLOB = "epoch_*_step_*"
_QUANTIZING_OPTIONS = ("--load_in_4bit", "--load_in_8bit")


class StepLoss(Struct, frozen=True):
    """A loss and its step, or its epoch where the log names no steps."""

    step: int
    loss: float
    unit: Literal["epoch", "step"] = "step"
    counted_from_zero: bool = False

    @property
    def position_text(self) -> str:
        """The position of the report: `step 1 200`."""
        return f"{self.unit} {grouped_digits(self.step)}{' (from 0)' if self.counted_from_zero else ''}"


class RunResult(Struct, frozen=True, kw_only=True):
    """Result of a run."""

    run: str
    state: str
    host: str = ""
    """The host that has the result, where it was not fetched from there."""
    output: str = ""
    """The folder that was searched."""
    written: tuple[str, ...] = ()
    """Folders that the script's own arguments name, in which it wrote something else."""
    saved: tuple[str, ...] = ()
    """Weights by their names that were written while it trained, where it left no adapter or model; newest first."""
    weights: Weights | None = None
    """None where there is neither an adapter nor a model."""
    source: WeightsOrigin = "final"
    """The final weights, what was saved when the training was stopped, the newest checkpoint, or a chosen one."""
    step: int = 0
    """Step of weights that are not final, or of the best ones, which a fine-tuning takes at its end; 0: unknown."""
    base: str = ""
    """The model that was trained: a folder, or an id of the Hub; empty where it is not known or the model is new."""
    revision: str = ""
    """Revision of a base model on the Hub; empty: main."""
    quantized: bool = False
    """The base was quantized for the training."""
    loss: StepLoss | None = None
    loss_best: StepLoss | None = None
    eval_loss: StepLoss | None = None
    eval_loss_best: StepLoss | None = None
    reward: float | None = None
    """The mean reward of the last step, of a training on rewards."""
    reward_first: float | None = None
    seconds: float | None = None
    """The time of all attempts."""
    joules: float | None = None
    """Energy used by the cards in all attempts; None: not metered."""
    all_metered: bool = False
    """True if all cards of all attempts were metered."""
    trackers: tuple[TrackerLine, ...] = ()
    """How what it reported to its trackers is opened."""
    code: tuple[tuple[str, str], ...] = ()
    """The user's code from which it started, each a label and words."""

    @property
    def weights_kind_and_base_text(self) -> str:
        """Kind of the weights, and the model that they were trained from, in words."""
        if self.weights is None:
            return ""
        named = f"{self.base}@{self.revision}" if self.revision else self.base
        of = f" of {named}" if named else ""
        if self.weights.kind == "adapter":
            return f"{_ADAPTER_METHOD_LABELS.get(self.weights.method, self.weights.method) or 'PEFT'} adapter{of}"
        return f"full model, trained from {named}" if named else "full model"

    @property
    def main_path(self) -> str:
        """The path of its adapter or model, else of what its script wrote last; empty if it left nothing."""
        return self.weights.path if self.weights else next(iter((*self.saved, *self.written)), "")

    @property
    def has_broken_loss(self) -> bool:
        """True if its last loss is NaN or infinite."""
        return self.loss is not None and not math.isfinite(self.loss.loss)

    @property
    def lacks_tokenizer(self) -> bool:
        """True for the weights of a new model without a tokenizer; one that was trained from another has that one's."""
        return self.weights is not None and not self.base and not self.weights.has_tokenizer

    @property
    def energy_text(self) -> str:
        """Energy used by the GPUs, in words; empty where that was not metered."""
        if self.joules is None:
            return ""
        return f"{'' if self.all_metered else 'at least '}{energy_text(self.joules)}"

    @property
    def weights_origin_text(self) -> str:
        """The origin of the weights within the run, in words."""
        if self.source == "final":
            return (
                f"weights of step {grouped_digits(self.step)}, the best by eval loss" if self.step else "final weights"
            )
        if self.source == "stopped":
            return f"as stopped at step {grouped_digits(self.step)}" if self.step else "as stopped"
        if self.source == "chosen":
            return f"checkpoint of step {grouped_digits(self.step)}"
        return f"newest checkpoint, step {grouped_digits(self.step)}" if self.step else "newest checkpoint"


_ADAPTER_METHOD_LABELS = {
    "LORA": "LoRA",
    "ADALORA": "AdaLoRA",
    "LOHA": "LoHa",
    "LOKR": "LoKr",
    "OFT": "OFT",
    "IA3": "IA³",
}


def read_result(run: RunFolder) -> RunResult:
    """Return what came of a run, also of one that goes on.

    NotFound where it has no checkpoint of the step that was chosen.
    """
    status = read_status(run)
    progress = read_progress(run, status.attempts)
    joules, all_metered = energy_used_and_if_all_metered(run, status)
    loss, best_loss = _last_and_best_loss(progress.curve, progress)
    evaluation, best_evaluation = _last_and_best_loss(progress.evaluations, progress)
    reward_first, reward = first_and_last_reward(progress)
    partial = RunResult(
        run=run.name,
        state=status.state,
        loss=loss,
        loss_best=best_loss,
        eval_loss=evaluation,
        eval_loss_best=best_evaluation,
        reward=reward,
        reward_first=reward_first,
        seconds=training_seconds(status),
        joules=joules,
        all_metered=all_metered,
        code=labelled_code_texts(run),
    )
    try:
        plan = read_plan(str(run.path))
    except Refused:
        return partial
    if plan.nodes > 1 + len(other_machine_folders(run)):
        partial = replace(partial, all_metered=False)
    place = read_remote_location(run.path)
    host = place.host if place and not are_results_here(run) else ""
    partial = replace(partial, trackers=_tracker_lines(run, plan, status), host=host)
    return _result_with_weights(partial, run, plan, status)


def _tracker_lines(run: RunFolder, plan: SupervisorPlan, status: RunStatus) -> tuple[TrackerLine, ...]:
    """Return how the trackers of a run are opened; none of one that did not start."""
    if (profile := run.read_profile()) is None:
        return ()
    python = "" if plan.engine else run.plan().get("python")
    output = _last_output_folder(plan, status) or "output"
    of = ReportingRun(profile, read_run_location(run.path), output, python if isinstance(python, str) else "")
    return tracker_lines(of) if status.attempts else ()


def _result_with_weights(partial: RunResult, run: RunFolder, plan: SupervisorPlan, status: RunStatus) -> RunResult:
    output, saved = output_and_newest_checkpoint(run, plan, status)
    if run.checkpoint:
        known = weights_by_checkpoint_step(run, plan, status)
        if run.checkpoint not in known:
            raise _no_such_checkpoint_error(run, known)
        weights, (model, revision, quantized) = known[run.checkpoint], _profile_model_revision_and_if_quantized(run)
        base = weights.base or model
        return replace(
            partial,
            output=str(output),
            weights=weights,
            source="chosen",
            step=run.checkpoint,
            base=_absolute_base_model(base, run),
            revision=revision if base == model else "",
            quantized=quantized,
        )
    final = _first_weights_below(output, FINAL_WEIGHTS_FOLDERS)
    if final and status.attempts and final.changed_at < status.attempts[0].started:
        # An output folder that was chosen may hold what another run left.
        final = None
    checkpoint = _first_weights_below(Path(saved), CHECKPOINT_WEIGHTS_FOLDERS) if saved else None
    # A run that was resumed after its end, and did not end again, has weights newer than its final ones.
    own = () if final or checkpoint else _folders_written_by_script(run, output, status)
    for folder in own:
        final = final or _first_weights_below(folder, FINAL_WEIGHTS_FOLDERS)
    earlier = final and checkpoint and checkpoint.changed_at > final.changed_at
    chosen = checkpoint if earlier or not final else final
    trained, revision, quantized = _profile_model_revision_and_if_quantized(run)
    base = (chosen.base if chosen else "") or trained
    revision = revision if base == trained else ""
    output = Path(final.path) if final and own else output
    partial = replace(
        partial, output=str(output), written=tuple(map(str, own)), base=base, revision=revision, quantized=quantized
    )
    if not chosen:
        return replace(partial, saved=_other_weights_files(run, status, (output, *own)))
    origin: WeightsOrigin = "final"
    step = 0
    if chosen is not final:
        origin, step = "checkpoint", checkpoints.step_in_name(saved)
    elif status.state != "finished":
        # Programs save there also when they are stopped.
        origin, step = "stopped", _step_of_nonfinal_weights(run, status, output, saved, chosen.changed_at)
    elif saved:
        step = _step_of_best_weights(run, Path(saved))
    return replace(partial, weights=chosen, source=origin, step=step, base=_absolute_base_model(base, run))


def _folders_written_by_script(run: RunFolder, output: Path, status: RunStatus) -> tuple[Path, ...]:
    """Return the folders in which a script wrote; of a run elsewhere only its output is here, once it was fetched."""
    if read_remote_location(run.path):
        return (output,) if output.is_dir() and any(output.iterdir()) else ()
    if not status.attempts:
        return ()
    return argument_folders_written_since(run, status.attempts[0].started)


def _step_of_best_weights(run: RunFolder, checkpoint: Path) -> int:
    """Return the step whose weights a finished fine-tuning took as its best; 0 where it took the last, or unknown."""
    if (profile := run.read_profile()) is None:
        return 0
    # A sharded model stays as it is at the end.
    takes_best = profile.trainer.strategy == "ddp" and "sharding" not in profile.ladder.rungs
    return read_best_checkpoint_step(checkpoint) if takes_best and trainer_has_own_field(profile, "finetune") else 0


def _other_weights_files(run: RunFolder, status: RunStatus, folders: Iterable[Path]) -> tuple[str, ...]:
    """Return weights of another form that were written while a run trained, as far as they are on this machine."""
    if not status.attempts or read_remote_location(run.path):
        return ()
    first, last = status.attempts[0], status.attempts[-1]
    until = time.time() if last.ended is None else last.ended
    return tuple(map(str, weights_files_written(run, first.started, until, folders)))


def output_and_newest_checkpoint(run: RunFolder, plan: SupervisorPlan, status: RunStatus) -> tuple[Path, str]:
    """Return the output folder of a run's last attempt, and its newest complete checkpoint (empty: none)."""
    rule = plan.checkpoint_layout(_last_attempt_position(status))
    output = local_output_folder(run.path, _last_output_folder(plan, status))
    if rule is None:
        return output, _newest_automodel_checkpoint(output)
    if read_remote_location(run.path):
        rule = rule._replace(folder=str(output))
    return output, checkpoints.newest_complete_checkpoint(rule, str(run.path))


def weights_by_checkpoint_step(run: RunFolder, plan: SupervisorPlan, status: RunStatus) -> dict[int, Weights]:
    """Return the adapter or model of each complete checkpoint of a run's last attempt, on this machine."""
    rule = plan.checkpoint_layout(_last_attempt_position(status))
    if rule is None or rule.file:
        return {}
    if read_remote_location(run.path):
        rule = rule._replace(folder=str(local_output_folder(run.path, _last_output_folder(plan, status))))
    found = {
        step: _first_weights_below(Path(path), CHECKPOINT_WEIGHTS_FOLDERS)
        for step, path in checkpoints.complete_checkpoints(rule, str(run.path))
    }
    return {step: weights for step, weights in sorted(found.items()) if weights}


def _no_such_checkpoint_error(run: RunFolder, known: Iterable[int]) -> NotFound:
    steps = ", ".join(f"{visible(run.name)}@{step}" for step in known)
    remedy = f"It has {steps}." if steps else f"Leave out @{run.checkpoint}: its result is the only one."
    return NotFound(f"{visible(run.name)} has no complete checkpoint of step {run.checkpoint}", remedy)


def _last_attempt_position(status: RunStatus) -> int:
    return status.attempts[-1].position if status.attempts else 1


def _last_output_folder(plan: SupervisorPlan, status: RunStatus) -> str:
    """Return the output folder of a run's last attempt as its plan names it."""
    rule = plan.checkpoint_layout(_last_attempt_position(status))
    return (rule.folder if rule else "") or plan.output


def _first_weights_below(folder: Path, subfolders: Iterable[str]) -> Weights | None:
    """Return the first of some places below a folder that holds an adapter or a model."""
    return next(filter(None, (read_weights(folder / place if place else folder) for place in subfolders)), None)


def _step_of_nonfinal_weights(
    run: RunFolder, status: RunStatus, output: Path, checkpoint_path: str, written_at: float
) -> int:
    """Return the step at which weights were written that are not the final ones; 0 where it is not known."""
    if step := read_trainer_state_step(output):
        return step
    checkpoint = (
        read_trainer_state_step(Path(checkpoint_path)) or checkpoints.step_in_name(checkpoint_path)
        if checkpoint_path
        else 0
    )
    last = status.attempts[-1] if status.attempts else None
    if status.is_live or not last or written_at < last.started:
        # What the newest attempt logs came after them.
        return checkpoint
    return max(checkpoint, read_progress(run, [last]).step)


def _newest_automodel_checkpoint(output: Path) -> str:
    """Return the newest checkpoint of a trainer that finds its own: NeMo AutoModel's; empty where there is none."""
    try:
        steps = {
            str(path): checkpoints.step_in_name(str(path))
            for path in output.glob(_AUTOMODEL_CHECKPOINT_GLOB)
            if path.is_dir()
        }
    except OSError:
        return ""
    return max(steps, key=lambda path: steps[path], default="")


def _profile_model_revision_and_if_quantized(run: RunFolder) -> tuple[str, str, bool]:
    """Return the model that the profile names, its revision, and whether it was loaded in 4 or 8 bits."""
    if (profile := run.read_profile()) is None:
        return "", "", False
    words = [word.partition("=")[0] for word in profile.trainer.arguments]
    chosen = trainer_has_own_field(profile, "finetune") and profile.finetune.tuning == "qlora"
    return profile.trainer.model, profile.trainer.revision, chosen or any(word in words for word in _QUANTIZING_OPTIONS)


def _absolute_base_model(base: str, run: RunFolder) -> str:
    """Return a base that is a folder by its whole path; a relative one is relative to where the training ran."""
    if not base or base.startswith("/"):
        return base
    here = run.path / base
    return str(here) if here.is_dir() else base


def first_and_last_reward(progress: Progress) -> tuple[float | None, float | None]:
    """Return the mean rewards of the first and the last step that reported one; None where none did."""
    reward = progress.metrics.series_named("reward")
    buckets = reward.all_buckets() if reward else ()
    return (buckets[0].mean, reward.last[1]) if reward and buckets else (None, None)


def _last_and_best_loss(curve: LossCurve, progress: Progress) -> tuple[StepLoss | None, StepLoss | None]:
    finite = (point for point in curve.points() if math.isfinite(point.loss))
    first, newest = progress.first, progress.last
    # A first loss whose step no line names is at 0 as well.
    ends = (first.step, newest.step) if first and newest else ()
    from_zero = progress.unit == "step" and ends == (0, progress.steps - 1)
    last, best = (
        StepLoss(point.step, point.loss, progress.position_word, from_zero) if point else None
        for point in (curve.last, min(finite, key=lambda point: point.loss, default=None))
    )
    return last, best
