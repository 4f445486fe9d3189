"""Scores a result and what it is compared with on the same rows: `python evaluate_child.py REQUEST`.

The request, in JSON: that of chat_child.py, with `earlier` (another result, as `folder`, `adapter`, `base`, `revision`;
null: the base), `sides` (several results in their place, each by its name; none: result and other), `data` (files or
folders), `learned` (those that were trained on), `count` (of the rows of `data`,
chosen by `seed`; 0 for all), `after` (of each side the number of the row that it scored last, -1 for none), `by`
(loss, exact, regex or function), `pattern`, `function` (FILE:NAME), `tokens` (of an answer at most), `length` (tokens
at which a row is cut, 0 for never) and `answers_only` (null: where the chat template marks answers). It sends `rows`,
a `score` of each row by each side, of which higher is better, and `done`, or `error`.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import io
import json
import math
import random
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import result_load as load
from result_find import request_with_found_weights
from result_load import MessagePipe, RefusedError
from result_models import LoadedModels, generation_options, max_tokens_of_model

import data_chosen  # isort: skip - result_load makes the folder of the data known
import data_rewards
import data_template as template

_LOGITS_AT_ONCE = 256  # tokens whose logits are held in float32
_MAX_SAMPLE_CHARACTERS = 2000
_MAX_SECONDS_OF_LOOKING = 20.0  # for rows among those that were trained on
_Scorer = Callable[[Any, Any, dict[str, Any], int], dict[str, Any]]


def evaluate(request: dict[str, Any], messages: MessagePipe) -> None:
    """Send the scores of each row by one side, then by the other."""
    answers = None if request["by"] == "loss" else _AnswerScorer(request)
    score: _Scorer | None = answers
    chosen, numbers = None, set[int]()
    for side, models, name in loaded_sides(request_with_found_weights(request, messages), messages):
        with models.using(name) as (model, tokenizer):
            if chosen is None:
                only_prompts = answers is not None and answers.reward is not None
                chosen, marking = _usable_rows_and_marking(request, tokenizer, only_prompts=only_prompts)
                # Of KTO's rows, those with a bad answer have nothing to be likened to.
                usable = [at for at, row in enumerate(chosen.rows()) if row.get("label") is not False]
                numbers = _sampled_row_numbers(usable, request["count"], request["seed"])
                learned = _count_rows_in_training_data(
                    request["learned"],
                    (row for at, row in enumerate(chosen.rows()) if at in numbers),
                    only_prompts=only_prompts,
                )
                messages.send("rows", count=len(numbers), usable=len(usable), learned=learned)
                score = score or _LossScorer(request, marking)
            assert score is not None  # noqa: S101 - set with the rows
            for number, row in enumerate(chosen.rows()):
                if number <= request["after"][side] or number not in numbers:
                    continue
                texts = _sample_texts(row) if side == "result" else {}
                scored = _score_or_why_not(score, model, tokenizer, row, number + 1)
                messages.send("score", side=side, number=number, **texts, **scored)
        # Before the other one is loaded.
        del models, model, tokenizer
    messages.send("done")


def loaded_sides(request: dict[str, Any], messages: MessagePipe) -> Iterator[tuple[str, LoadedModels, str]]:
    """Yield `result` and `other`, or the `sides`, with their models; full models are loaded one after the other."""
    for side, found in (request.get("sides") or {}).items():
        yield side, LoadedModels({**request, **found, "compare": False}, messages), "result"
        _release_memory()
    if request.get("sides"):
        return
    earlier = request["earlier"]
    if earlier is None and not request["base"]:
        raise RefusedError("base", "there is nothing to compare the result with")
    if earlier is None and request["adapter"]:
        models = LoadedModels({**request, "compare": True}, messages)
        yield "result", models, "result"
        yield "other", models, "base"
        return
    base = earlier or {"folder": load.find_model_folder(request["base"], request["revision"]), "adapter": False}
    models = LoadedModels({**request, "compare": False}, messages)
    chat_template = models.tokenizers["result"].chat_template
    yield "result", models, "result"
    del models
    _release_memory()
    models = LoadedModels({**request, "base": "", **base, "compare": False}, messages)
    tokenizer = models.tokenizers["result"]
    tokenizer.chat_template = tokenizer.chat_template or chat_template
    yield "other", models, "result"


def _release_memory() -> None:
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def _usable_rows_and_marking(
    request: dict[str, Any], tokenizer: Any, *, only_prompts: bool
) -> tuple[data_chosen.ChosenRows, template.AnswerMarking | None]:
    """Return the usable rows, and how answers are marked in them, None where all that is read counts."""
    unchecked = data_chosen.ChatTemplate("", "", "", answers_only=False)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            chosen = data_chosen.choose_rows(request["data"], unchecked, only_prompts=only_prompts)
    except data_chosen.DataError as error:
        raise RefusedError("data", str(error)) from None
    name, chat = chosen.format
    if chosen.has_images:
        raise RefusedError("data", "the rows have images, which are not evaluated: name rows of text (--data)")
    if chat and not tokenizer.chat_template:
        raise RefusedError("data", "the rows are chats, and the model has no chat template")
    marking = template.find_answer_marking(tokenizer, name, chat=chat)
    alone = request["answers_only"]
    if alone is None:
        alone = template.learns_only_answers_by_default(marking, name)
    return chosen, marking if alone and marking.possible else None


def _count_rows_in_training_data(
    training_files: list[str], rows: Iterable[dict[str, Any]], *, only_prompts: bool
) -> int:
    """Return how many rows are among those that were trained on, 0 where these are too many to read soon."""
    wanted, ends = {_row_key(row): 0 for row in rows}, time.monotonic() + _MAX_SECONDS_OF_LOOKING
    unchecked = data_chosen.ChatTemplate("", "", "", answers_only=False)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            trained = (
                data_chosen.choose_rows(training_files, unchecked, only_prompts=only_prompts)
                if training_files
                else None
            )
    except data_chosen.DataError:
        return 0
    for row in trained.rows() if trained else ():
        if time.monotonic() > ends:
            return 0
        if (key := _row_key(row)) in wanted:
            wanted[key] = 1
    return sum(wanted.values())


def _row_key(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def _sampled_row_numbers(usable: list[int], count: int, seed: int) -> set[int]:
    return set(random.Random(seed).sample(usable, count) if 0 < count < len(usable) else usable)  # noqa: S311


def _score_or_why_not(
    score: _Scorer, model: Any, tokenizer: Any, row: dict[str, Any], row_number: int
) -> dict[str, Any]:
    """Return the score of a row; of one that cannot be scored why not: the others still can."""
    try:
        return score(model, tokenizer, row, row_number)
    except RefusedError as error:
        if error.kind != "data":
            raise
        return {"score": 0, "odd": str(error)}


class _LossScorer:
    """Log-probability of what is learned of a row; of a preference pair, by how much the chosen answer has more."""

    def __init__(self, request: dict[str, Any], marking: template.AnswerMarking | None) -> None:
        self._length, self._marking = request["length"], marking

    def __call__(self, model: Any, tokenizer: Any, row: dict[str, Any], row_number: int) -> dict[str, Any]:
        try:
            sequences = template.encode_row(tokenizer, row, marking=self._marking)
        except Exception as error:  # noqa: BLE001 - a template is a program of the model's
            raise RefusedError("data", f"row {row_number}: {template.first_line_of_error(error)}") from None
        limit = min(filter(None, (self._length, max_tokens_of_model(model))), default=0)
        sums = [_log_probability_and_count(model, sequence, limit) for sequence in sequences]
        if len(sums) == 1:
            return {"score": sums[0][0], "tokens": sums[0][1]}
        return {"score": sums[0][0] - sums[1][0], "tokens": sums[0][1] + sums[1][1], "pair": True}


def _log_probability_and_count(model: Any, sequence: template.EncodedSequence, limit: int) -> tuple[float, int]:
    """Return the summed log-probability of the learned tokens of a sequence, and how many they are."""
    import torch

    ids, learned = sequence.ids[: limit or None], sequence.learned[: limit or None]
    places = [at for at in range(1, len(ids)) if learned[at]]
    if not places:
        return 0.0, 0
    logits = model(input_ids=torch.tensor([ids], device=model.device)).logits[0]
    total = 0.0
    for begin in range(0, len(places), _LOGITS_AT_ONCE):
        part = places[begin : begin + _LOGITS_AT_ONCE]
        targets = torch.tensor([ids[at] for at in part], device=logits.device)
        rows = logits[[at - 1 for at in part]].float()
        total -= float(torch.nn.functional.cross_entropy(rows, targets, reduction="sum"))
    return total, len(places)


class _AnswerScorer:
    """Grade of the answer that a model writes to a row's prompt, beside the answer that the row holds.

    A function that takes `completions`, or names alone, is a `reward`, called as TRL calls it; it needs prompts alone.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._max_tokens = request["tokens"]
        self._grade = _GRADER_BY_KIND[request["by"]](request)
        self.reward = self._grade if _has_reward_signature(self._grade) else None

    def __call__(self, model: Any, tokenizer: Any, row: dict[str, Any], row_number: int) -> dict[str, Any]:
        if self.reward and "prompt" in row:
            prompt, expected = row["prompt"], ""
        else:
            prompt, expected = prompt_and_expected_answer(row, row_number)
        try:
            inputs = _encoded_prompt(tokenizer, prompt, model.device, template.apply_chat_template_options(row))
        except Exception as error:  # noqa: BLE001 - a template is a program of the model's
            raise RefusedError("data", f"row {row_number}: {template.first_line_of_error(error)}") from None
        length, limit = inputs["input_ids"].shape[-1], max_tokens_of_model(model)
        room = min(self._max_tokens, limit - length) if limit else self._max_tokens
        if room < 1:
            raise RefusedError("data", f"row {row_number} has {length} tokens, and the model takes {limit}")
        made = model.generate(**inputs, max_new_tokens=room, **generation_options(model, tokenizer))[0][length:]
        answer = tokenizer.decode(made, skip_special_tokens=True)
        try:
            graded = (
                self._reward_of(row, prompt, answer, made.tolist())
                if self.reward
                else self._grade(_last_message_text(prompt), answer, expected)
            )
            score = math.nan if graded is None else float(graded)
        except RefusedError:
            raise
        except Exception as error:  # noqa: BLE001 - the function is the user's
            why = f"row {row_number}: {type(error).__name__}: {load.first_nonblank_line(error)}"
            raise RefusedError("function", why) from None
        if graded is None:
            raise RefusedError("data", f"row {row_number} gets no reward (None)")
        return {"score": score, "tokens": len(made), "answer": answer[:_MAX_SAMPLE_CHARACTERS]}

    def _reward_of(self, row: dict[str, Any], prompt: Any, answer: str, ids: list[int]) -> Any:
        (reward,) = data_rewards.call_reward(self.reward, [{**row, "prompt": prompt}], [answer], [ids])
        return reward


def prompt_and_expected_answer(row: dict[str, Any], row_number: int) -> tuple[Any, str]:
    """Return the prompt of a row, text or messages, and the answer that it holds."""
    if "messages" in row:
        messages = row["messages"]
        if messages and messages[-1]["role"] == "assistant" and len(messages) > 1:
            return messages[:-1], str(messages[-1].get("content") or "")
    elif row.get("prompt"):
        answer = row.get("completion", row.get("chosen")) or ""
        return row["prompt"], str(answer[-1].get("content") or "") if isinstance(answer, list) else str(answer)
    raise RefusedError("data", f"row {row_number} has no prompt with an answer: score it by loss")


def _encoded_prompt(tokenizer: Any, prompt: Any, device: Any, more: dict[str, Any]) -> Any:
    if isinstance(prompt, list):
        return load.encode_messages(tokenizer, prompt, device, more)
    made = tokenizer(prompt, return_tensors="pt")
    return {name: made[name].to(device) for name in ("input_ids", "attention_mask")}


def _last_message_text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1].get("content") or "")


_Grader = Callable[..., Any]


def _has_reward_signature(grade: _Grader) -> bool:
    try:
        taken = inspect.signature(grade)
    except (TypeError, ValueError):
        return False
    if "completions" in taken.parameters:
        return True
    try:
        taken.bind("prompt", "answer", "expected")
    except TypeError:
        return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.parameters.values())
    return False


def _exact_grader(_request: dict[str, Any]) -> _Grader:
    return lambda _prompt, answer, expected: answer.strip() == expected.strip()


def _regex_grader(request: dict[str, Any]) -> _Grader:
    """Return a grade by what a pattern finds last: the same in both, or anything where the row's answer has none."""
    pattern = re.compile(request["pattern"])

    def grade(_prompt: str, answer: str, expected: str) -> bool:
        found, wanted = pattern.findall(answer), pattern.findall(expected)
        return bool(found) and (not wanted or found[-1] == wanted[-1])

    return grade


def _function_grader(request: dict[str, Any]) -> _Grader:
    path, _, name = request["function"].rpartition(":")
    sys.path.insert(0, str(Path(path).parent))  # as where it is a reward: what it imports may lie beside it
    try:
        function: _Grader = runpy.run_path(path, run_name="rewards")[name]
    except KeyError:
        raise RefusedError("function", f"{path} has no {name}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the file is the user's
        raise RefusedError("function", f"{path}: {type(error).__name__}: {load.first_nonblank_line(error)}") from None
    return function


_GRADER_BY_KIND = {"exact": _exact_grader, "regex": _regex_grader, "function": _function_grader}


def _sample_texts(row: dict[str, Any]) -> dict[str, str]:
    """Return the prompt of a row and its answer, shortened; nothing of plain text."""
    try:
        prompt, expected = prompt_and_expected_answer(row, 0)
    except RefusedError:
        return {}
    return {
        "prompt": _last_message_text(prompt)[:_MAX_SAMPLE_CHARACTERS],
        "expected": expected[:_MAX_SAMPLE_CHARACTERS],
    }


if __name__ == "__main__":
    load.answer_request(evaluate)
