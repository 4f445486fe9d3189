"""Tries rewards on some rows with made-up answers, as TRL calls them: each in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import data_bounds as bounds

_MAX_TRIAL_SECONDS = 40
_MAX_TEXT = 300
_ANSWER_TEXT = "<think>\nOne and one are two.\n</think>\nThe answer is 2."
_REWARDS_MODULE_OF_TRL = "trl.rewards"
# Called with what it needs, it returns the reward; TRL's programs call it so.
_PUNISHMENT_NAME = "get_soft_overlong_punishment"
_PUNISHMENT_LENGTHS = {"max_completion_len": 1280, "soft_punish_cache": 256}
# A module of one of these names on PYTHONPATH would be imported in their place.
_IMPORTED_BY_TRL = (
    "accelerate", "datasets", "numpy", "peft", "safetensors", "tokenizers", "torch", "transformers", "trl",
)  # fmt: skip
# Before anything here changes it: rewards may need the Hub.
_ENVIRONMENT = dict(os.environ)
_Row = dict[str, Any]


class _RewardError(Exception):
    """Why TRL could not use a reward, in words."""


def try_rewards(rewards: list[dict[str, Any]], rows: list[_Row]) -> Iterator[dict[str, Any]]:
    """Yield what each reward did; before that, that it is being tried, which stays where this program is ended."""
    for reward in rewards:
        yield {"text": reward["text"], "untried": "it gave no answer in time"}
        yield {"text": reward["text"], **_trial_in_child(reward, rows)}


def _trial_in_child(reward: dict[str, Any], rows: list[_Row]) -> dict[str, Any]:
    if why := _reward_file_problem(reward["file"]) if reward["file"] else "":
        return {"problem": why}
    folder = str(Path(reward["file"]).parent) if reward["file"] else ""
    environment = _ENVIRONMENT | reward["variables"]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, environment.get("PYTHONPATH"))))
    asked = json.dumps({"reward": reward, "rows": rows}, default=str).encode()
    command = [sys.executable, "-B", __file__]
    try:
        done = subprocess.run(
            command, input=asked, env=environment, capture_output=True, timeout=_MAX_TRIAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        is_called = b"CALLED" in (late.stdout or b"").splitlines()
        what = f"it scored {len(rows)} answers" if is_called else "it was imported"
        return {"untried": f"after {_MAX_TRIAL_SECONDS} s {what} still"}
    for line in reversed(done.stdout.splitlines()):
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {"problem": f"it ends Python: {last}"[:_MAX_TEXT]}


def _reward_file_problem(file: str) -> str:
    """Return that a file is not there, or that a module beside it would hide one that Python or TRL needs."""
    if not Path(file).is_file():
        return "there is no such file"
    known = {*getattr(sys, "stdlib_module_names", ()), *_IMPORTED_BY_TRL}
    for beside in sorted(Path(file).parent.iterdir()):
        is_module = beside.suffix == ".py" or (beside / "__init__.py").is_file()
        if is_module and beside.stem in known:
            return f"beside it lies {beside.name}, which Python would import instead of its own {beside.stem}"
    return ""


def main() -> None:
    """Try the reward that is asked for on stdin, and print what it did."""
    bounds.end_with_parent()
    # In the training the modules of this folder are not there.
    sys.path.pop(0)
    asked = json.load(sys.stdin)
    sys.stdin.close()
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = try_reward(asked["reward"], asked["rows"], lambda: print("CALLED", file=stdout, flush=True))
    print(json.dumps(answer), file=stdout, flush=True)


def try_reward(reward: dict[str, Any], rows: list[_Row], on_call: Any) -> dict[str, Any]:
    """Return what a reward did; `on_call` is called once it was imported."""
    started, answer = time.monotonic(), {}
    try:
        function = _import_reward(reward)
        on_call()
        started = time.monotonic()
        answers = [f"{_ANSWER_TEXT} ({number})" for number in range(len(rows))]
        _require_number_per_answer(call_reward(function, rows, answers, [list(range(1, 9))] * len(rows)), len(rows))
    except _RewardError as error:
        answer["problem"] = str(error)
    except MemoryError:
        answer["untried"] = "it takes more memory than is allowed here"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the function is the user's
        # No GPU is shown here: one that needs it may well work.
        said = "untried" if "cuda" in str(error).lower() else "problem"
        answer[said] = _error_line_and_reason(error, reward["file"])
    return {name: value[:_MAX_TEXT] for name, value in answer.items()} | {"seconds": time.monotonic() - started}


def _import_reward(reward: dict[str, Any]) -> Any:
    """Return the function; _RewardError where it is none."""
    dotted, file = reward["dotted"], reward["file"]
    module_name, _, name = dotted.rpartition(".")
    module = importlib.import_module(module_name or _REWARDS_MODULE_OF_TRL)
    found = getattr(module, "__file__", None)
    if file and not (found and Path(found).exists() and Path(found).samefile(file)):
        raise _RewardError(f"it is not imported: Python has another module called {module_name}, {found or 'built in'}")
    try:
        function = getattr(module, name)
    except AttributeError:
        raise _RewardError(f"it is not in {found or module_name}") from None
    if not callable(function):
        raise _RewardError(f"it is no function, but {type(function).__name__}")
    return function(**_PUNISHMENT_LENGTHS) if dotted == _PUNISHMENT_NAME else function


def call_reward(function: Any, rows: list[_Row], answers: list[str], completion_ids: list[list[int]]) -> Any:
    """Return what a reward gives for answers to the prompts of rows, called as TRL does."""
    is_chat = isinstance(rows[0]["prompt"], list)
    columns = {name for name in rows[0] if name not in {"prompt", "completion", "completion_ids"}}
    given = function(
        prompts=[row["prompt"] for row in rows],
        completions=[[{"role": "assistant", "content": text}] if is_chat else text for text in answers],
        completion_ids=completion_ids,
        **{name: [row.get(name) for row in rows] for name in sorted(columns)},
        trainer_state=SimpleNamespace(
            global_step=0, max_steps=1, epoch=0.0, log_history=[], is_world_process_zero=True
        ),
        log_extra=lambda *_: None,
        log_metric=lambda *_: None,
    )
    return asyncio.run(given) if inspect.iscoroutine(given) else given


def _require_number_per_answer(given: Any, wanted: int) -> None:
    """Raise _RewardError for what is not one number, or None, for each answer."""
    try:
        values = list(given)
    except TypeError:
        raise _RewardError(f"it returns {_type_text(given)}, not a list with one number for each answer") from None
    if len(values) != wanted:
        raise _RewardError(f"it returns {len(values)} values for {wanted} answers")
    for value in values:
        if value is not None and not _is_number(value):
            raise _RewardError(f"it returns {_type_text(value)} for an answer, not a number")


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (str, bytes)) and float(value) is not None
    except (TypeError, ValueError):
        return False


def _type_text(value: Any) -> str:
    return "nothing (None)" if value is None else f"{type(value).__name__} {value!r}"[:80]


def _error_line_and_reason(error: BaseException, file: str) -> str:
    """Return what an error says, with the line of the user's file at which it was raised."""
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    why = f"{type(error).__name__}: {said}" if str(error).strip() else said
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"line {error.lineno}: {why}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if file and frame.filename == file]
    return f"line {lines[-1]}: {why}" if lines else why


if __name__ == "__main__":
    main()
