"""Checkpoints that are either complete or not there: written beside, synced, then renamed.

A checkpoint is a folder OUTPUT/checkpoint-STEP; it is complete when it holds trainer_state.json.
"""

import json
import logging
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arguments import BadInput

STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class State:
    """What a checkpoint says of the training that wrote it; `step` counts the steps done."""

    step: int
    seed: int
    global_batch: int
    sequence_length: int
    world_size: int
    tokens: int
    model: dict[str, int]
    first_loss: float | None = None
    last_loss: float | None = None


def complete(output: Path) -> dict[int, Path]:
    """Return the complete checkpoints in a folder by their step, oldest first."""
    found = ((_NAME.fullmatch(path.name), path) for path in output.iterdir())
    steps = {int(match[1]): path for match, path in found if match and (path / STATE).is_file()}
    return dict(sorted(steps.items()))


def read_state(folder: Path) -> State:
    """Return the state in a checkpoint folder; raise BadInput where the folder is no complete checkpoint."""
    if not folder.is_dir():
        remedy = "Check the path; every host needs the output folder on a disk that all of them share."
        raise BadInput(f"--resume-from={folder} does not exist", remedy)
    # A name with a dot is of a folder that was still being written, or removed.
    if folder.name.startswith(".") or not (folder / STATE).is_file():
        others = ", ".join(path.name for path in complete(folder.absolute().parent).values()) or "none"
        message = f"--resume-from={folder} is no complete checkpoint"
        raise BadInput(message, f"Give one that holds {STATE}; complete ones beside it: {others}.")
    try:
        return State(**json.loads((folder / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        message = f"{folder / STATE} cannot be read: {error}"
        raise BadInput(message, "Resume from another checkpoint, or start over in an empty folder.") from error


def differences(saved: State, present: State, folder: Path) -> list[str]:
    """Return what is unlike the training that wrote the checkpoint but can go on; raise BadInput for another model."""
    if saved.model != present.model:
        unlike = {name: size for name, size in saved.model.items() if present.model.get(name) != size}
        shape = ", ".join(f"{name} {size} (now {present.model.get(name)})" for name, size in unlike.items())
        message = f"--resume-from={folder} is of another model: {shape}"
        raise BadInput(message, "Train with the model of the checkpoint, or start over in an empty folder.")
    names = ("global_batch", "sequence_length", "seed", "tokens")
    values = {name: (getattr(saved, name), getattr(present, name)) for name in names}
    return [
        f"the checkpoint was written with {name.replace('_', ' ')} {old}, this training has {new}: "
        "it goes on with other samples than it would have had"
        for name, (old, new) in values.items()
        if old != new
    ]


def agree(accelerator: Any, step: int) -> None:
    """Raise BadInput in every rank where not all of them start from the same step, which none would notice later."""
    import torch

    steps = accelerator.gather(torch.tensor([step], device=accelerator.device)).tolist()
    if len(set(steps)) > 1:
        message = f"not every rank starts from the same step: {', '.join(map(str, steps))}"
        raise BadInput(message, "Put the output folder on a disk that all machines share.")


def load(accelerator: Any, folder: Path) -> None:
    """Load weights, optimizer and random states of a checkpoint, in every rank."""
    accelerator.load_state(str(folder))
    # It counts micro batches, which may be of another size now; a step has to begin at a multiple of the accumulation.
    accelerator.step = 0


def save(accelerator: Any, output: Path, state: State, keep: int) -> Path:
    """Write the checkpoint of a step from every rank, then remove all but the `keep` newest up to it."""
    folder, partial = output / f"checkpoint-{state.step}", output / f".checkpoint-{state.step}.partial"
    if accelerator.is_main_process:
        for leftover in output.glob(".checkpoint-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir()
    accelerator.wait_for_everyone()
    # Tied embeddings are stored once by design; a warning at each checkpoint would look like a fault.
    logging.getLogger("accelerate.utils.other").setLevel(logging.ERROR)
    accelerator.save_state(str(partial))
    # Another rank's file, still being written under a passing name, cannot be synced.
    accelerator.wait_for_everyone()
    sync(partial)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (partial / STATE).write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")
        replace(partial, folder)
        older = [path for step, path in complete(output).items() if step < state.step]
        for path in older[: max(0, len(older) - keep + 1)]:
            _remove(path)
    accelerator.wait_for_everyone()
    return folder


def replace(partial: Path, folder: Path) -> None:
    """Put a folder that is written, but for its syncing, in the place of another or of none."""
    sync(partial)
    if folder.exists():
        _remove(folder)
    partial.rename(folder)
    _sync_one(folder.parent)


def sync(folder: Path) -> None:
    """Bring the files of a folder to the disk, so that a rename cannot overtake them."""
    for path in (*folder.rglob("*"), folder):
        _sync_one(path)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    """Remove a folder that must not be taken for a complete one while it disappears."""
    hidden = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
