"""One greedy answer of a GGUF file, by llama.cpp's own server, beside that of the model it was made of."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import result_load as load
from result_models import generation_options

_PROMPT = "What is the capital of France?"
_ANSWER_TOKENS = 16
_MAX_SECONDS = 600.0
_CONTEXT_TOKENS = 512


def compare_answer(server: str, file: str, folder: str, tokenizer: Any, *, trusted: bool) -> str:
    """Return in one sentence whether llama-server reads a prompt and answers it as the model in a folder does."""
    ids, own, ends = _prompt_answer_and_end_ids(folder, tokenizer, trusted=trusted)
    try:
        with _running_server(server, file) as address:
            read = _query_prompt_token_count(address, chat=bool(tokenizer.chat_template))
            asked = {"prompt": ids, "temperature": 0, "n_predict": _ANSWER_TOKENS, "return_tokens": True}
            answer = [int(number) for number in _ask(f"{address}/completion", asked)["tokens"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"llama-server could not be asked: {load.first_nonblank_line(error) or type(error).__name__}."
    if read != len(ids):
        return f"llama-server reads a prompt as {read} tokens, the model as {len(ids)}: its tokenizer is another one."
    # Only one of both may count the end.
    own, answer = ([number for number in numbers if number not in ends] for numbers in (own, answer))
    if own == answer:
        return "llama-server reads a prompt and answers it as the model does."
    alike = next(
        (at for at, pair in enumerate(zip(own, answer, strict=False)) if pair[0] != pair[1]), min(len(own), len(answer))
    )
    return f"llama-server reads a prompt as the model does, and answers otherwise after {alike} of {len(own)} tokens."


def _query_prompt_token_count(address: str, *, chat: bool) -> int:
    """Return how many tokens the server makes of the prompt, in a chat or as plain text."""
    messages = [{"role": "user", "content": _PROMPT}]
    asked: dict[str, Any] = {"messages": messages} if chat else {"prompt": _PROMPT}
    told = _ask(f"{address}/v1/{'chat/' if chat else ''}completions", {**asked, "max_tokens": 1})
    return int(told["usage"]["prompt_tokens"])


def _prompt_answer_and_end_ids(folder: str, tokenizer: Any, *, trusted: bool) -> tuple[list[int], list[int], list[int]]:
    """Return the tokens of the prompt for a model, of its greedy answer, and those that end one."""
    import torch

    model = load.load_model(folder, "cpu", trusted=trusted)
    inputs = load.encode_messages(tokenizer, [{"role": "user", "content": _PROMPT}], model.device)
    length, options = inputs["input_ids"].shape[-1], generation_options(model, tokenizer)
    with torch.inference_mode():
        made = model.generate(**inputs, max_new_tokens=_ANSWER_TOKENS, **options)[0].tolist()
    return made[:length], made[length:], options.get("eos_token_id", [])


@contextlib.contextmanager
def _running_server(server: str, file: str) -> Iterator[str]:
    """Give the address of llama-server with a file loaded, on the CPU and for this machine only."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [server, "-m", file, "--host", "127.0.0.1", "--port", port, "-c", str(_CONTEXT_TOKENS)]
    process = subprocess.Popen(
        [*words, "-ngl", "0", "--jinja"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_until_loaded(process, f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_until_loaded(process: subprocess.Popen[bytes], address: str) -> None:
    ends = time.monotonic() + _MAX_SECONDS
    while time.monotonic() < ends:
        if process.poll() is not None:
            raise OSError(f"it ended with exit code {process.returncode}")
        with contextlib.suppress(OSError, ValueError):
            _ask(f"{address}/health")
            return
        time.sleep(0.2)
    raise OSError("it did not load the file in time")


def _ask(address: str, question: dict[str, Any] | None = None) -> Any:
    """Return what a server on this machine answers; a proxy is for others."""
    data = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})  # noqa: S310 - its own
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_MAX_SECONDS) as answer:
        return json.load(answer)
