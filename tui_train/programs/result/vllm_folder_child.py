"""Completes a model folder for a server that reads nothing else: `python vllm_folder_child.py REQUEST`.

The request, in JSON: `folder` (a model), `base` (a folder or an id, empty for none), its `revision`, `trusted`. What is
missing of tokenizer and generation_config.json is written; it sends `done` with `chat` (whether the tokenizer has a
chat template) and the `ends` of an answer, or `error`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import result_load as load
from result_load import MessagePipe, RefusedError


def write_missing_model_files(request: dict[str, Any], messages: MessagePipe) -> None:
    """Write what is missing, and send what the folder has."""
    from transformers import GenerationConfig

    folder = request["folder"]
    messages.send("step", what="checking", of=folder)
    try:
        tokenizer = load.load_tokenizer(folder, trusted=request["trusted"])
    except RefusedError as error:
        if error.kind != "missing" or not request["base"]:
            raise
        base = load.find_model_folder(request["base"], request["revision"])
        tokenizer = load.load_tokenizer(base, trusted=request["trusted"])
        tokenizer.save_pretrained(folder)
    exists = Path(folder, "generation_config.json").is_file()
    config = GenerationConfig.from_pretrained(folder) if exists else GenerationConfig()
    own = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    numbers = (*own, tokenizer.eos_token_id, load.turn_end_token_id(tokenizer) if tokenizer.chat_template else None)
    ends = [number for number in dict.fromkeys(numbers) if number is not None]
    if not exists or ends != [number for number in own if number is not None]:
        # A server ends an answer by this file alone.
        config.eos_token_id = ends or None
        config.save_pretrained(folder)
    names = [str(tokenizer.convert_ids_to_tokens(number)) for number in ends]
    messages.send("done", chat=bool(tokenizer.chat_template), ends=names)


if __name__ == "__main__":
    load.answer_request(write_missing_model_files)
