"""Finds the newest complete checkpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ..system.safe_open import open_regular_file
from .supervisor_plan import CheckpointLayout, SupervisorPlan

_LAST_NUMBER_PATTERN = re.compile(r"(\d+)\D*$", re.ASCII)
# More digits are no step.
_MAX_STEP_DIGITS = 12
# How a zip archive begins, and how its last record does, which has this many bytes where the archive has no comment.
_ZIP_START_MAGIC = b"PK\3\4"
_ZIP_END_MAGIC = b"PK\5\6"
_ZIP_END_RECORD_SIZE = 22
# How NeMo, Megatron-Bridge and AutoModel name theirs: model--step=99-last, iter_0000100, epoch_0_step_99.
_NEMO_CHECKPOINT_STEP_PATTERN = re.compile(r"(?:^iter_|step[=_])(\d{1,12})(?!\d)", re.ASCII)
# Folders between an output folder and its checkpoints.
_MAX_DEPTH_BELOW_OUTPUT = 4


def newest_complete_checkpoint(rule: CheckpointLayout, run_dir: str) -> str:
    """Return the path of the newest complete checkpoint, empty where there is none; a relative folder is the run's."""
    if rule.file:
        path = os.path.join(run_dir, rule.folder, rule.file)
        return path if is_complete_file(path) else ""
    # Only as many are looked into as it takes.
    return next((path for _, path in complete_checkpoints(rule, run_dir)), "")


def complete_checkpoints(rule: CheckpointLayout, run_dir: str) -> Iterator[tuple[int, str]]:
    """Yield step and path of each complete checkpoint that has a step, the highest step first."""
    folder = os.path.join(run_dir, rule.folder)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    steps = ((_checkpoint_step_by_layout(name, rule), os.path.join(folder, name)) for name in names)
    for number, path in sorted(((number, path) for number, path in steps if number >= 0), key=lambda pair: -pair[0]):
        if _is_complete_checkpoint(path, rule):
            yield number, path


def newest_checkpoint_of_attempt(plan: SupervisorPlan, position: int, run_dir: str) -> str:
    """Return the newest complete checkpoint of the attempt at a position of the plan, from 1; empty: there is none."""
    rule = plan.checkpoint_layout(position)
    return newest_complete_checkpoint(rule, run_dir) if rule else ""


def step_in_name(path: str) -> int:
    """Return the step in the name of a checkpoint, 0 where it has none."""
    match = _LAST_NUMBER_PATTERN.search(os.path.basename(path.rstrip("/")))
    return int(match[1][-_MAX_STEP_DIGITS:]) if match else 0


def highest_nemo_checkpoint_step(output_folder: str) -> int:
    """Return the highest step of the checkpoints that a trainer names itself, 0 where there is none.

    They are below an output folder, or one that is named after it, as those of fallbacks are.
    """
    parent, name = os.path.split(os.path.abspath(output_folder))
    try:
        outputs = [each for each in os.listdir(parent) if each == name or each.startswith(name + "-")]
    except OSError:
        return 0
    highest = 0
    for each in outputs:
        top = os.path.join(parent, each)
        for path, folders, _ in os.walk(top):
            steps = {folder: _NEMO_CHECKPOINT_STEP_PATTERN.search(folder) for folder in folders}
            highest = max([highest, *(int(match[1]) for match in steps.values() if match)])
            deep = path[len(top) :].count(os.sep) >= _MAX_DEPTH_BELOW_OUTPUT
            folders[:] = [] if deep else [folder for folder, match in steps.items() if not match]
    return highest


def is_complete_file(path: str) -> bool:
    """Tell whether a file is not empty and, if it is an archive as torch.save writes it, has its end."""
    try:
        with open_regular_file(path) as file:
            begin = file.read(len(_ZIP_START_MAGIC))
            if begin != _ZIP_START_MAGIC:
                return begin != b""
            file.seek(max(0, os.fstat(file.fileno()).st_size - _ZIP_END_RECORD_SIZE))
            return file.read(len(_ZIP_END_MAGIC)) == _ZIP_END_MAGIC
    except OSError:
        return False


def _checkpoint_step_by_layout(name: str, rule: CheckpointLayout) -> int:
    """Return the step of a checkpoint by its name, -1 for what is no checkpoint."""
    begin, end = len(rule.prefix), len(name) - len(rule.suffix)
    if not (name.startswith(rule.prefix) and name.endswith(rule.suffix) and end > begin):
        return -1
    digits = name[begin:end]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def _is_complete_checkpoint(path: str, rule: CheckpointLayout) -> bool:
    if not os.path.isdir(path):
        return not rule.complete and is_complete_file(path)
    parts = (os.path.join(path, part) for part in rule.complete)
    return all(os.path.isdir(part) or is_complete_file(part) for part in parts)
