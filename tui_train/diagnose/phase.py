"""Where a training ran out of GPU memory, by the traceback that tells it, read as launch.sh reads it."""

import re
from collections.abc import Sequence

from tui_train.diagnose.types import Line

_MOST = 400
_BEGIN = "(most recent call last)"
_LOAD = r"[ .](load_state_dict|from_pretrained)\b| in _apply| in convert$|_verify_param_shape"
_STEP = r"optimizer\.step\(|/(torch|bitsandbytes)/optim/|/apex/optimizers/|_foreach_|_multi_tensor_adam|_take_model_"
_EVAL = r" in (_?evaluat|eval_|prediction_step|validate$|validation_|estimate_loss)"
_BACKWARD = r" in backward|\.backward\(| in training_step"
_FORWARD = r" in (forward|_call_impl|compute_loss)|cross_entropy|logits"
# What a frame tells, but for what one further outside told: an optimizer's state is loaded, an evaluation goes forward.
_FRAMES = (
    ("load", re.compile(_LOAD), "loss"),
    ("step", re.compile(_STEP), "load"),
    ("eval", re.compile(_EVAL), ""),
    ("loss", re.compile(_BACKWARD), ""),
    ("loss", re.compile(_FORWARD), "eval"),
)


def phase(lines: Sequence[Line], failed: Line) -> str:
    """Return the phase that the traceback before a line tells of: the innermost frame decides; empty without one."""
    at = next((index for index, line in enumerate(lines) if line is failed), 0)
    frames: list[str] = []
    for line in reversed(lines[max(0, at - _MOST) : at]):
        if line.rank != failed.rank:
            continue
        if _BEGIN in line.text:
            break
        frames.append(line.text)
    else:
        return ""
    found = ""
    for text in reversed(frames):
        told, kept = next(((name, kept) for name, pattern, kept in _FRAMES if pattern.search(text)), ("", ""))
        found = told if told and (not kept or found != kept) else found
    return found
