"""Answers prompts with a result, and with its base model: `python chat_child.py REQUEST`, then a line for each prompt.

The request, in JSON: `folder`, `adapter` (whether it is one), `base` (a folder or an id, empty for none), its
`revision` (empty: main), `compare` (whether the base answers as well), `device` (cpu or cuda), `trusted` (whether
Python code of the models may run). A line on stdin: `id`, `side` (result or base), `messages` and `tokens`, or `stop`,
which ends the answer that is being written. It answers with `loading` and `ready`, then with `text` and `end` for each
prompt, or `error`. It ends with its stdin.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from typing import Any

import result_load as load
from result_find import find_weights
from result_load import MessagePipe, RefusedError

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


class LoadedChatModels:
    """The loaded models: the result, and its base where that is to answer as well."""

    def __init__(self, request: dict[str, Any], messages: MessagePipe) -> None:
        self._messages = messages
        self._adapter = bool(request["adapter"])
        folder, base, revision = request["folder"], request["base"], request["revision"]
        self._trusted = bool(request["trusted"])
        base_folder = load.find_model_folder(base, revision) if base and (self._adapter or request["compare"]) else ""
        self._tokens = {"result": load.load_tokenizer(folder, base_folder, trusted=self._trusted)}
        messages.send("loading", what=base if self._adapter else folder)
        loaded = self._load_model(base_folder if self._adapter else folder, request["device"])
        self.compares = bool(request["compare"] and base_folder)
        if self._adapter:
            self._result = load.add_adapter(loaded, folder, len(self._tokens["result"]))
            self._base, self._tokens["base"] = self._result, self._tokens["result"]
        else:
            self._result = self._base = loaded
            if self.compares:
                messages.send("loading", what=base)
                self._base = self._load_model(base_folder, request["device"])
                self._tokens["base"] = self._load_base_tokenizer(base_folder)
        self._limit = getattr(self._result.config, "max_position_embeddings", 0) or 0
        messages.send(
            "ready",
            device=str(self._result.device),
            dtype=load.weights_dtype_name(self._result),
            template=bool(self._tokens["result"].chat_template),
            compares=self.compares,
        )

    def _load_model(self, folder: str, device: str) -> Any:
        return load.load_model(folder, device, trusted=self._trusted)

    def _load_base_tokenizer(self, folder: str) -> Any:
        """Return the base's own tokenizer; without a chat template it takes the result's."""
        tokenizer = load.load_tokenizer(folder, trusted=self._trusted)
        if not tokenizer.chat_template:
            tokenizer.chat_template = self._tokens["result"].chat_template
        return tokenizer

    def answer(self, prompt: dict[str, Any], stop: threading.Event) -> None:
        """Send an answer as it is written."""
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList

        class Stop(StoppingCriteria):
            def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
                del scores
                return torch.full((input_ids.shape[0],), stop.is_set(), dtype=torch.bool, device=input_ids.device)

        side, number = prompt["side"], prompt["id"]
        model = self._base if side == "base" else self._result
        tokenizer = self._tokens[side]
        inputs, forgotten = self._shortened_prompt_that_fits(tokenizer, prompt, model.device)
        length, most = inputs["input_ids"].shape[-1], prompt["tokens"]
        if self._limit:
            most = min(most, self._limit - length)
        if most < 1:
            raise RefusedError("prompt", f"the prompt has {length} tokens, and the model takes {self._limit}")
        stream = AnswerTextStream(tokenizer, lambda text: self._messages.send("text", id=number, side=side, text=text))
        began = time.monotonic()
        bare = model.disable_adapter() if side == "base" and self._adapter else contextlib.nullcontext()
        options = {"max_new_tokens": most, "do_sample": False, "num_beams": 1, "streamer": stream}
        options |= {"eos_token_id": ends} if (ends := _end_tokens(model, tokenizer)) else {}
        padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None or not ends else ends[0]
        with torch.inference_mode(), bare:
            model.generate(**inputs, pad_token_id=padding, stopping_criteria=StoppingCriteriaList([Stop()]), **options)
        why = "stopped" if stop.is_set() else "length" if stream.token_count >= most else "end"
        took = {"tokens": stream.token_count, "seconds": time.monotonic() - began}
        self._messages.send("end", id=number, side=side, why=why, forgotten=forgotten, **took)

    def _shortened_prompt_that_fits(self, tokenizer: Any, prompt: dict[str, Any], device: Any) -> tuple[Any, int]:
        """Return the prompt with as much of what was said before as leaves room to answer, and how much was left out.

        What was said before is counted in turns, each a prompt and its answer.
        """
        messages = prompt["messages"]
        room = min(prompt["tokens"], self._limit // _CONTEXT_TO_ANSWER_RATIO) if self._limit else 0
        turns = len(messages) // 2
        for turn in range(turns):
            inputs = load.encode_messages(tokenizer, messages[2 * turn :], device)
            if not self._limit or inputs["input_ids"].shape[-1] + room <= self._limit:
                return inputs, turn
        return load.encode_messages(tokenizer, messages[2 * turns :], device), turns


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end an answer: the model's own, and the one with which its template ends a turn."""
    own = model.generation_config.eos_token_id
    known = own if isinstance(own, list) else [own]
    numbers = (*known, tokenizer.eos_token_id, load.turn_end_token_id(tokenizer))
    return [number for number in dict.fromkeys(numbers) if number is not None]


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
    # Who talks with it does so in a thread that may end first; its pipe tells when nobody is left.
    messages = load.open_message_pipe(dies_with_parent=False)
    prompts: queue.Queue[dict[str, Any]] = queue.Queue()
    stop = threading.Event()
    threading.Thread(target=_queue_prompts_until_input_ends, args=(prompts, stop), daemon=True).start()
    try:
        chat = LoadedChatModels(find_weights(load.read_request(), messages), messages)
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
