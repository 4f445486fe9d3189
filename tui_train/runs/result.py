"""What a run leaves to use: its adapter or model, the best and last losses, and how long it took."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tui_train.base.errors import TuiTrainError
from tui_train.base.parse import Unparsable, json_table, read_bytes
from tui_train.base.text import energy, thousands
from tui_train.profile import store
from tui_train.runs.fetching import output_here
from tui_train.runs.follow import read_progress
from tui_train.runs.own_folders import written
from tui_train.runs.place import place_of
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import drawn, node_folders, status, took
from tui_train.runs.weights import Weights, weights
from tui_train.supervisor import checkpoints
from tui_train.supervisor.curve import Point
from tui_train.supervisor.planned import Planned, read
from tui_train.supervisor.refused import Refused
from tui_train.supervisor.state import Status
from tui_train.trainers import takes_field

Source = Literal["final", "stopped", "checkpoint"]

_MOST_STATE = 64 << 20
# Of half a million logged steps.
_MOST_LOGGED = 6_000_000

# Where trainers save the final weights below their output folder, the folder itself first.
_FINAL = ("", "model", "final", "final_model", "final_checkpoint")
# Where they lie in a checkpoint: of the HF Trainer in itself, of NeMo AutoModel below it.
_INSIDE = ("", "model/consolidated", "model")
_AUTOMODEL = "epoch_*_step_*"
# Seconds by which the clock of a file server may be behind.
_CLOCKS = 60.0
_QUANTIZED = ("--load_in_4bit", "--load_in_8bit")


class Loss(Struct, frozen=True):
    """A loss and its step."""

    step: int
    loss: float


class Result(Struct, frozen=True, kw_only=True):
    """What came of a run; `weights` is None where there is neither an adapter nor a model.

    `source` says whether that is the final one, what was saved when the training was stopped, or the newest checkpoint;
    `step` is that of the last two (0: not known). `base` is the model that was trained: a folder, or an id of the Hub;
    empty where it is not known or the model is new; `revision` is that of a model of the Hub (empty: main). `quantized`
    tells that the base was quantized for the training. `output` is the folder that was searched, `written` those that
    the script's own arguments name and in which it wrote something else. `seconds` is the time
    of all attempts, `joules` what their cards drew (None: not metered), `all_metered` that of each attempt all were.
    """

    run: str
    state: str
    output: str = ""
    written: tuple[str, ...] = ()
    weights: Weights | None = None
    source: Source = "final"
    step: int = 0
    base: str = ""
    revision: str = ""
    quantized: bool = False
    loss: Loss | None = None
    loss_best: Loss | None = None
    eval_loss: Loss | None = None
    eval_loss_best: Loss | None = None
    seconds: float | None = None
    joules: float | None = None
    all_metered: bool = False

    @property
    def about(self) -> str:
        """What it is, in words."""
        if self.weights is None:
            return ""
        named = f"{self.base}@{self.revision}" if self.revision else self.base
        of = f" of {named}" if named else ""
        if self.weights.kind == "adapter":
            return f"{_METHODS.get(self.weights.method, self.weights.method) or 'PEFT'} adapter{of}"
        return f"full model, trained from {named}" if named else "full model"

    @property
    def energy(self) -> str:
        """What its cards drew, in words; empty where that was not metered."""
        if self.joules is None:
            return ""
        return f"{'' if self.all_metered else 'at least '}{energy(self.joules)}"

    @property
    def origin(self) -> str:
        """Which of the run's weights these are, in words."""
        if self.source == "final":
            return "final weights"
        if self.source == "stopped":
            return f"as stopped at step {thousands(self.step)}" if self.step else "as stopped"
        return f"newest checkpoint, step {thousands(self.step)}" if self.step else "newest checkpoint"


_METHODS = {"LORA": "LoRA", "ADALORA": "AdaLoRA", "LOHA": "LoHa", "LOKR": "LoKr", "OFT": "OFT", "IA3": "IA³"}


def result(run: RunDir) -> Result:
    """Return what came of a run, also of one that goes on."""
    now = status(run)
    progress = read_progress(run, now.attempts)
    joules, all_metered = drawn(run, now)
    found = Result(
        run=run.name,
        state=now.state,
        loss=_last(progress.curve.last),
        loss_best=_best(progress.curve.points()),
        eval_loss=_last(progress.evaluations.last),
        eval_loss_best=_best(progress.evaluations.points()),
        seconds=took(now),
        joules=joules,
        all_metered=all_metered,
    )
    try:
        plan = read(str(run.path))
    except Refused:
        return found
    if plan.nodes > 1 + len(node_folders(run)):
        found = replace(found, all_metered=False)
    return _with_weights(found, run, plan, now)


def _with_weights(found: Result, run: RunDir, plan: Planned, now: Status) -> Result:
    position = now.attempts[-1].position if now.attempts else 1
    rule = plan.attempts[position - 1].checkpoints if 0 < position <= len(plan.attempts) else None
    output = output_here(run, (rule.folder if rule else "") or plan.output)
    if rule and place_of(run.path):
        rule = rule._replace(folder=str(output))
    final = _first(output, _FINAL)
    if final and now.attempts and final.changed < now.attempts[0].started - _CLOCKS:
        # An output folder that was chosen may hold what another run left.
        final = None
    saved = checkpoints.newest(rule, str(run.path)) if rule else _newest_of_automodel(output)
    checkpoint = _first(Path(saved), _INSIDE) if saved else None
    # A run that was resumed after its end, and did not end again, has weights newer than its final ones.
    own = (
        written(run, now.attempts[0].started - _CLOCKS)
        if now.attempts and not (final or checkpoint or place_of(run.path))
        else ()
    )
    for folder in own:
        final = final or _first(folder, _FINAL)
    earlier = final and checkpoint and checkpoint.changed > final.changed
    chosen = checkpoint if earlier or not final else final
    trained, revision, quantized = _trained(run)
    base = (chosen.base if chosen else "") or trained
    revision = revision if base == trained else ""
    output = Path(final.path) if final and own else output
    found = replace(
        found, output=str(output), written=tuple(map(str, own)), base=base, revision=revision, quantized=quantized
    )
    if not chosen:
        return found
    if chosen is final and now.state != "finished":
        # Programs save there also when they are stopped.
        step = _stopped_at(run, now, output, saved, chosen.changed)
        return replace(found, weights=chosen, source="stopped", step=step, base=_absolute(found.base, run))
    if chosen is final:
        return replace(found, weights=chosen, base=_absolute(found.base, run))
    step = checkpoints.step(saved)
    return replace(found, weights=chosen, source="checkpoint", step=step, base=_absolute(found.base, run))


def _first(folder: Path, places: Iterable[str]) -> Weights | None:
    """Return the first of some places below a folder that holds an adapter or a model."""
    return next(filter(None, (weights(folder / place if place else folder) for place in places)), None)


def _stopped_at(run: RunDir, now: Status, output: Path, saved: str, written: float) -> int:
    """Return the step at which weights were written that are not the final ones; 0 where it is not known."""
    if step := _state_step(output):
        return step
    checkpoint = _state_step(Path(saved)) or checkpoints.step(saved) if saved else 0
    last = now.attempts[-1] if now.attempts else None
    if now.live or not last or written < last.started - _CLOCKS:
        # What the newest attempt logs came after them.
        return checkpoint
    return max(checkpoint, read_progress(run, [last]).step)


def _state_step(folder: Path) -> int:
    """Return the step in the trainer_state.json of a folder, 0 where there is none."""
    try:
        step = json_table(read_bytes(folder / "trainer_state.json", _MOST_STATE), _MOST_LOGGED).get("global_step")
    except Unparsable:
        return 0
    return step if isinstance(step, int) and 0 < step < 1 << 50 else 0


def _newest_of_automodel(output: Path) -> str:
    """Return the newest checkpoint of a trainer that finds its own: NeMo AutoModel's; empty where there is none."""
    try:
        steps = {str(path): checkpoints.step(str(path)) for path in output.glob(_AUTOMODEL) if path.is_dir()}
    except OSError:
        return ""
    return max(steps, key=lambda path: steps[path], default="")


def _trained(run: RunDir) -> tuple[str, str, bool]:
    """Return the model that the profile names, its revision, and whether it was loaded in 4 or 8 bits."""
    try:
        profile = store.load(str(run.profile))
    except TuiTrainError:
        return "", "", False
    words = [word.partition("=")[0] for word in profile.trainer.arguments]
    chosen = takes_field(profile, "finetune") and profile.finetune.tuning == "qlora"
    return profile.trainer.model, profile.trainer.revision, chosen or any(word in words for word in _QUANTIZED)


def _absolute(base: str, run: RunDir) -> str:
    """Return a base that is a folder by its whole path; a relative one is relative to where the training ran."""
    if not base or base.startswith("/"):
        return base
    here = run.path / base
    return str(here) if here.is_dir() else base


def _last(point: Point | None) -> Loss | None:
    return Loss(point.step, point.loss) if point else None


def _best(points: Iterable[Point]) -> Loss | None:
    finite = (point for point in points if math.isfinite(point.loss))
    return _last(min(finite, key=lambda point: point.loss, default=None))
