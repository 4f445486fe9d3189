"""Answers prompts with a result, and with its base model: `python chat_child.py REQUEST`, then a line for each prompt.

The request, in JSON: `folder`, `adapter` (whether it is one), `base` (a folder or an id, empty for none), its
`revision` (empty: main), `compare` (whether the base answers as well), `device` (cpu or cuda), `trusted` (whether
Python code of the models may run). A line on stdin: `id`, `side` (result or base), `messages` and `tokens`, or `stop`,
which ends the answer that is being written. A message may have `images`, for a model that sees. It answers with
`loading` and `ready`, then with `text` and `end` for each prompt, or `error`. It ends with its stdin.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import result_load as load
from chat_pictures import encode_messages_with_pictures
from result_find import request_with_found_weights
from result_load import MessagePipe, RefusedError
from result_models import LoadedModels, generation_options, max_tokens_of_model

# Of what the model takes, what is kept for an answer at least: one in so many tokens.
_CONTEXT_TO_ANSWER_RATIO = 4
_REPLACEMENT_CHARACTER = "\ufffd"  # what an incomplete character is decoded to


class AnswerTextStream:
    """Receiver of `generate`'s tokens, which sends their text as soon as that is complete."""

    def __init__(self, tokenizer: Any, send_text: Any) -> None:
        self._tokens = tokenizer
        self._send = send_text
        self._ids: list[int] = []
        self._begin = self._done = 0
        self._prompt = True

    @property
    def token_count(self) -> int:
        """Number of tokens so far."""
        return len(self._ids)

    def put(self, value: Any) -> None:
        """Take tokens; the first are the prompt's."""
        if self._prompt:
            self._prompt = False
            return
        self._ids += value.reshape(-1).tolist()
        self._flush(last=False)

    def end(self) -> None:
        """Send what is left."""
        self._flush(last=True)

    def _flush(self, *, last: bool) -> None:
        # From some tokens before: a tokenizer may begin a text without the space that it has within one.
        before = self._decode(self._ids[self._begin : self._done])
        text = self._decode(self._ids[self._begin :])
        if len(text) > len(before) and (last or not text.endswith(_REPLACEMENT_CHARACTER)):
            self._send(text[len(before) :])
            self._begin, self._done = self._done, len(self._ids)

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokens.decode(ids, skip_special_tokens=True))


class ChatAnswerer:
    """Answers of the loaded models to prompts, sent as they are written."""

    def __init__(self, models: LoadedModels, messages: MessagePipe) -> None:
        self._models, self._messages = models, messages
        self._limit = max_tokens_of_model(models.result)
        messages.send(
            "ready",
            device=str(models.result.device),
            dtype=load.weights_dtype_name(models.result),
            template=bool(models.tokenizers["result"].chat_template),
            compares=models.compares,
            sees=models.sees_images,
        )

    def answer(self, prompt: dict[str, Any], stop: threading.Event) -> None:
        """Send an answer as it is written."""
        with self._models.using(prompt["side"]) as (model, tokenizer):
            self._answer_with(model, tokenizer, prompt, stop)

    def _answer_with(self, model: Any, tokenizer: Any, prompt: dict[str, Any], stop: threading.Event) -> None:
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList

        class Stop(StoppingCriteria):
            def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
                del scores
                return torch.full((input_ids.shape[0],), stop.is_set(), dtype=torch.bool, device=input_ids.device)

        side, number = prompt["side"], prompt["id"]

        def encode(messages: list[dict[str, Any]]) -> Any:
            if any(message.get("images") for message in messages):
                return encode_messages_with_pictures(self._models.processor(side), tokenizer, messages, model)
            return load.encode_messages(tokenizer, messages, model.device)

        inputs, forgotten = self._shortened_prompt_that_fits(prompt, encode)
        length, most = inputs["input_ids"].shape[-1], prompt["tokens"]
        if self._limit:
            most = min(most, self._limit - length)
        if most < 1:
            raise RefusedError("prompt", f"the prompt has {length} tokens, and the model takes {self._limit}")
        stream = AnswerTextStream(tokenizer, lambda text: self._messages.send("text", id=number, side=side, text=text))
        began = time.monotonic()
        stopping = StoppingCriteriaList([Stop()])
        options = generation_options(model, tokenizer)
        model.generate(**inputs, max_new_tokens=most, streamer=stream, stopping_criteria=stopping, **options)
        why = "stopped" if stop.is_set() else "length" if stream.token_count >= most else "end"
        took = {"tokens": stream.token_count, "seconds": time.monotonic() - began}
        self._messages.send("end", id=number, side=side, why=why, forgotten=forgotten, **took)

    def _shortened_prompt_that_fits(
        self, prompt: dict[str, Any], encode: Callable[[list[dict[str, Any]]], Any]
    ) -> tuple[Any, int]:
        """Return the prompt with as much of what was said before as leaves room to answer, and how much was left out.

        What was said before is counted in turns, each a prompt and its answer.
        """
        messages = prompt["messages"]
        room = min(prompt["tokens"], self._limit // _CONTEXT_TO_ANSWER_RATIO) if self._limit else 0
        turns = len(messages) // 2
        for turn in range(turns):
            inputs = encode(messages[2 * turn :])
            if not self._limit or inputs["input_ids"].shape[-1] + room <= self._limit:
                return inputs, turn
        return encode(messages[2 * turns :]), turns


def _queue_prompts_until_input_ends(prompts: queue.Queue[dict[str, Any]], stop: threading.Event) -> None:
    """Take prompts as they come, so that an answer can be stopped; whoever asks no more ends this program."""
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if asked.get("stop"):
            stop.set()
        else:
            prompts.put(asked)
    os._exit(0)


def main() -> None:
    """Load, then answer until stdin ends."""
    load.set_up_program()
    messages = load.MessagePipe()
    prompts: queue.Queue[dict[str, Any]] = queue.Queue()
    stop = threading.Event()
    threading.Thread(target=_queue_prompts_until_input_ends, args=(prompts, stop), daemon=True).start()
    try:
        chat = ChatAnswerer(LoadedModels(request_with_found_weights(load.read_request(), messages), messages), messages)
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, who asked is told
        messages.send_refusal(error)
        return
    while True:
        asked = prompts.get()
        stop.clear()
        try:
            chat.answer(asked, stop)
        except Exception as error:  # noqa: BLE001 - the next prompt may be answered
            messages.send_refusal(error)


if __name__ == "__main__":
    main()
