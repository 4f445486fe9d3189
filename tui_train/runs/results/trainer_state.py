"""Reads trainer_state.json, in which the Transformers Trainer keeps the step and its logged metrics."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from tui_train.base.parse import Unparsable, parse_json_object, read_file_to_parse
from tui_train.runner.logs.metric_series import Metrics, build_metrics
from tui_train.runner.run_folder.checkpoints import step_in_name

_FILE_NAME = "trainer_state.json"
_MAX_BYTES = 64 << 20
# Of half a million logged steps.
_MAX_VALUE_COUNT = 6_000_000
_MAX_STEP = 1 << 50
_MAX_ABSOLUTE_VALUE = 1e290  # no float holds larger integers
# Names of the last entry, which is about the whole training.
_SUMMARY_KEY = "train_runtime"


class TrainerState(Struct, frozen=True):
    """The step at which it was written, 0 where there is none, and the metrics until then."""

    step: int = 0
    metrics: Metrics = Metrics()


def read_trainer_state(folder: Path) -> TrainerState:
    """Return what the trainer_state.json of a folder holds; nothing where there is none."""
    table = _read_json_object(folder)
    history = table.get("log_history")
    entries = history if isinstance(history, list) else []
    rows = ((entry["step"], _numeric_values(entry)) for entry in entries if _is_entry_of_step(entry))
    return TrainerState(_step_or_zero(table.get("global_step")), build_metrics(rows))


def read_trainer_state_step(folder: Path) -> int:
    """Return the step in the trainer_state.json of a folder, 0 where there is none."""
    return _step_or_zero(_read_json_object(folder).get("global_step"))


def read_best_checkpoint_step(folder: Path) -> int:
    """Return the step of the best checkpoint that the trainer_state.json of a folder names, 0 where it names none."""
    best = _read_json_object(folder).get("best_model_checkpoint")
    return step_in_name(best) if isinstance(best, str) else 0


def trainer_state_changed_at(folder: Path) -> float:
    """Return when the trainer_state.json of a folder was written, 0 where there is none."""
    try:
        return (folder / _FILE_NAME).stat().st_mtime
    except OSError:
        return 0.0


def _read_json_object(folder: Path) -> dict[str, Any]:
    try:
        return parse_json_object(read_file_to_parse(folder / _FILE_NAME, _MAX_BYTES), _MAX_VALUE_COUNT)
    except Unparsable:
        return {}


def _step_or_zero(step: object) -> int:
    return step if isinstance(step, int) and not isinstance(step, bool) and 0 < step < _MAX_STEP else 0


def _is_entry_of_step(entry: object) -> bool:
    return isinstance(entry, dict) and _step_or_zero(entry.get("step")) > 0 and _SUMMARY_KEY not in entry


def _numeric_values(entry: dict[str, Any]) -> dict[str, float]:
    return {
        name.lower(): float(value)
        for name, value in entry.items()
        if isinstance(value, float) or (type(value) is int and abs(value) < _MAX_ABSOLUTE_VALUE)
    }
