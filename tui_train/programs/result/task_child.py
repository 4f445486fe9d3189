"""Scores a result and what it is compared with on tasks of lm-eval: `python task_child.py REQUEST`.

The request, in JSON: the models of evaluate_child.py, with `tasks` (names, or YAML files and folders of them), `count`
(the first documents of each task; 0 for all), `metric` (empty: of each task the first that has a number for each
document), `chat` (whether prompts go through the chat template), `cache` (a folder that keeps what was answered, empty
for none) and `from_folder` (to which files that a task names are relative). It sends `progress` while requests are
answered, then `scores` and `figures` of each side, and `done`, or `error`.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import result_load as load
from evaluate_child import loaded_sides
from result_find import request_with_found_weights
from result_load import MessagePipe, RefusedError

_NAME_IN_TASK_FILE = re.compile(r"""^(?:task|group):[ \t]*['"]?([^\s'"#]+)""", re.MULTILINE)
_HUB_ANSWER_SECONDS = 10.0
_REQUESTS_AT_ONCE = 64
_BATCH_ON_CARDS = 4
_MAX_SAMPLE_CHARACTERS = 2000
# Of these lm-eval's value of a document is its log-probability, the higher the better, whatever the metric says.
_LOG_PROBABILITY_METRICS = {"perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte"}


def evaluate(request: dict[str, Any], messages: MessagePipe) -> None:
    """Send the scores of both sides on each document."""
    if importlib.util.find_spec("lm_eval") is None:
        raise RefusedError("harness", "lm-eval is not installed")
    why_unreachable = _go_offline_without_hub()
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    request = request_with_found_weights(request, messages)
    messages.send("loading", what="the tasks")
    folders, names = _task_folders_and_names(request["tasks"])
    manager = TaskManager(include_path=folders or None)
    if unknown := [name for name in names if not manager.match_tasks([name])]:
        raise RefusedError("task", f"lm-eval knows no task {unknown[0]}")
    os.chdir(request["from_folder"] or "/")
    _load_data(manager, names, why_unreachable)
    for side, models, name in loaded_sides(request, messages):
        with models.using(name) as (model, tokenizer):
            found = _run_tasks(
                request, names, manager, _model_reporting_progress(model, tokenizer, side, messages), side
            )
        if not found:
            raise RefusedError("task", "lm-eval returned nothing")
        for number, score in enumerate(_document_scores(found, request["metric"])):
            messages.send("score", side=side, number=number, **score)
        messages.send("figures", side=side, figures=_aggregate_metrics(found))
        # Before the other one is loaded.
        del models, model, tokenizer
    messages.send("done")


def _go_offline_without_hub() -> str:
    """Take the data of tasks from the cache alone where the Hub does not answer, and return why; empty where it does.

    Without that, datasets asks it again for minutes for each file of a task. It comes before its libraries are loaded.
    """
    hub = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if os.environ.get("HF_HUB_OFFLINE") or not hub.startswith(("http://", "https://")):
        return ""
    try:
        with urllib.request.urlopen(urllib.request.Request(hub, method="HEAD"), timeout=_HUB_ANSWER_SECONDS):  # noqa: S310
            return ""
    except urllib.error.HTTPError:
        return ""
    except OSError as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(why, ssl.SSLError):  # its libraries may know other certificates
            return ""
        os.environ["HF_HUB_OFFLINE"] = "1"
        return f"{hub} does not answer: {why}"
    except Exception:  # noqa: BLE001 - an address that its libraries are to judge
        return ""


def _load_data(manager: Any, names: list[str], why_unreachable: str) -> None:
    """Have lm-eval download the data of tasks before models are loaded for minutes; RefusedError where it cannot."""
    try:
        manager.load_task_or_group(names)
    except Exception as error:
        said = load.first_nonblank_line(error) or type(error).__name__
        # Without the Hub, and with other data of the same set in the cache, datasets raises a ValueError.
        is_offline = "offline" in said.lower() or "find cache for" in said
        unreachable = type(error).__module__.partition(".")[0] in {"httpx", "requests", "huggingface_hub"}
        if not (is_offline or unreachable or isinstance(error, OSError)):
            raise
        if is_offline and why_unreachable:
            raise RefusedError("task_data", why_unreachable) from None
        raise RefusedError("task_offline" if is_offline else "task_data", said) from None


def _task_folders_and_names(tasks: list[str]) -> tuple[list[str], list[str]]:
    """Return the folders in which lm-eval looks besides its own, and the names of all tasks."""
    folders, names = [], []
    for task in tasks:
        path = Path(task)
        if not task.startswith("/"):
            names.append(task)
            continue
        if not path.exists():
            raise RefusedError("task", f"there is no {task}")
        files = [path] if path.is_file() else sorted(path.glob("*.yaml"))
        found = [_NAME_IN_TASK_FILE.search(file.read_text(encoding="utf-8", errors="replace")) for file in files]
        if not any(found):
            raise RefusedError("task", f"{task} names no task (task: NAME)")
        names += [match[1] for match in found if match]
        folders.append(str(path if path.is_dir() else path.parent))
    return folders, list(dict.fromkeys(names))


def _model_reporting_progress(model: Any, tokenizer: Any, side: str, messages: MessagePipe) -> Any:
    """Return a model as lm-eval takes it, which tells how many of its requests are answered."""
    from lm_eval.models.huggingface import HFLM

    class ProgressReportingModel(HFLM):  # type: ignore[misc, unused-ignore]
        def _answer(self, method: Any, requests: list[Any], **how: Any) -> list[Any]:
            answers: list[Any] = []
            for begin in range(0, len(requests), _REQUESTS_AT_ONCE):
                messages.send("progress", side=side, done=begin, count=len(requests))
                answers += method(requests[begin : begin + _REQUESTS_AT_ONCE], **{**how, "disable_tqdm": True})
            return answers

        def loglikelihood(self, requests: list[Any], **how: Any) -> list[Any]:
            return self._answer(super().loglikelihood, requests, **how)

        def loglikelihood_rolling(self, requests: list[Any], **how: Any) -> list[Any]:
            return self._answer(super().loglikelihood_rolling, requests, **how)

        def generate_until(self, requests: list[Any], **how: Any) -> list[Any]:
            return self._answer(super().generate_until, requests, **how)

    # Of "auto", lm-eval tries sizes again for each call.
    batch = 1 if model.device.type == "cpu" else _BATCH_ON_CARDS
    return ProgressReportingModel(pretrained=model, tokenizer=tokenizer, batch_size=batch)


def _run_tasks(request: dict[str, Any], names: list[str], manager: Any, model: Any, side: str) -> dict[str, Any] | None:
    from lm_eval import simple_evaluate

    try:
        found: dict[str, Any] | None = simple_evaluate(
            model=model,
            tasks=names,
            task_manager=manager,
            limit=request["count"] or None,
            apply_chat_template=request["chat"],
            use_cache=str(Path(request["cache"], side)) if request["cache"] else None,
            bootstrap_iters=0,
            log_samples=True,
        )
    except ValueError as error:
        if "unsafe" not in str(error):
            raise
        raise RefusedError("task", load.first_nonblank_line(error)) from None
    return found


def _document_scores(found: dict[str, Any], metric: str) -> Iterator[dict[str, Any]]:
    """Yield the score of each document, in an order that is the same for both sides; of several filters the first."""
    for task in sorted(found["samples"]):
        samples = found["samples"][task]
        first = samples[0]["filter"] if samples else ""
        samples = sorted((each for each in samples if each["filter"] == first), key=lambda each: int(each["doc_id"]))
        named = metric or _first_numeric_metric(task, samples)
        higher_is_better = found["higher_is_better"].get(task, {}).get(named) is not False
        for sample in samples:
            score = _metric_as_number(sample.get(named), named)
            if score is None:
                known = ", ".join(
                    name for name in sample["metrics"] if _metric_as_number(sample[name], name) is not None
                )
                raise RefusedError("task", f"{task} has no {named} of each document; it has {known or 'none'}")
            better = higher_is_better or named in _LOG_PROBABILITY_METRICS
            texts = {"prompt": f"{task}: {sample['doc']}", "expected": str(sample["target"])}
            texts["answer"] = _answer_text(sample["filtered_resps"])
            cut = {name: text[:_MAX_SAMPLE_CHARACTERS] for name, text in texts.items()}
            yield {**cut, "score": score if better else -score, "group": f"{task} {named}"}


def _answer_text(answers: list[Any]) -> str:
    """Return what was answered: of choices, each a log-probability and whether it is greedy, the likeliest's number."""
    chances = [each[0] for each in answers if isinstance(each, (tuple, list)) and len(each) == 2]
    if len(chances) == len(answers) > 1:
        return str(chances.index(max(chances)))
    return "; ".join(map(str, answers))


def _first_numeric_metric(task: str, samples: list[dict[str, Any]]) -> str:
    names = samples[0]["metrics"] if samples else []
    for name in names:
        if _metric_as_number(samples[0][name], name) is not None:
            return str(name)
    raise RefusedError("task", f"{task} has no number for each document, so that both sides cannot be compared")


def _metric_as_number(value: Any, metric: str) -> float | None:
    """Return what a metric says of one document as a number, None for what only all documents together make one."""
    if metric in _LOG_PROBABILITY_METRICS and isinstance(value, (tuple, list)):
        value = value[0]
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _aggregate_metrics(found: dict[str, Any]) -> dict[str, float]:
    """Return lm-eval's own figures by task and metric: those that papers and leaderboards name."""
    figures = {}
    for task, metrics in sorted({**found["results"], **(found.get("groups") or {})}.items()):
        for name, value in metrics.items():
            metric, _, filtered = str(name).partition(",")
            if filtered and not metric.endswith("_stderr") and isinstance(value, (int, float)):
                figures[f"{task} {metric}" + ("" if filtered == "none" else f" ({filtered})")] = float(value)
    return figures


if __name__ == "__main__":
    # The data of a task are downloaded as lm-eval does it; models are not.
    load.answer_request(evaluate, online=True)
