"""The plan as a run folder holds it."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from .fill import RUN_DIR
from .refused import Refused


class Rule(NamedTuple):
    """Where checkpoints are, how they are called, and which files only a complete one holds."""

    folder: str
    prefix: str
    complete: tuple[str, ...]
    suffix: str = ""
    file: str = ""


class PlannedAttempt(NamedTuple):
    """One try at the training."""

    title: str
    batch: str
    then: dict[str, int]
    checkpoints: Rule | None
    fills: tuple[tuple[str, object], ...]


class Planned(NamedTuple):
    """What of a plan the supervisor needs."""

    attempts: tuple[PlannedAttempt, ...]


def read(run_dir: str) -> Planned:
    """Return the plan of a run folder; Refused where there is none, or none of ours."""
    try:
        with open(os.path.join(run_dir, "plan.json"), encoding="utf-8") as file:
            attempts = json.load(file)["attempts"]
        return Planned(tuple(_attempt(attempt, run_dir) for attempt in attempts))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refused(69, f"plan.json cannot be read: {error}") from None


def _attempt(told: dict[str, Any], run_dir: str) -> PlannedAttempt:
    rule = told.get("checkpoints")
    fills = tuple((str(path), value) for path, value in told.get("fills", ()))
    return PlannedAttempt(
        str(told.get("title", "")),
        str(told.get("batch", "")),
        dict(told.get("then", {})),
        _rule(rule, run_dir) if rule else None,
        fills,
    )


def _rule(told: dict[str, Any], run_dir: str) -> Rule:
    complete = tuple(str(name) for name in told["complete"])
    names = str(told["prefix"]), complete, str(told["suffix"]), str(told["file"])
    return Rule(_word(told["folder"]).replace(RUN_DIR, run_dir), *names)


def _word(told: Any) -> str:
    if isinstance(told, str):
        return told
    return "".join(piece if isinstance(piece, str) else f"@TUI_TRAIN_{piece['variable']}@" for piece in told["pieces"])
