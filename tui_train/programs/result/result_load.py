"""Shared parts of the programs for a result: their messages, and loading a model, its adapter and its tokenizer.

They run in the Python that trained. Messages are lines of JSON, each an object with an `event`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# Rendering a chat template is bounded there.
sys.path.append(str(Path(__file__).resolve().parents[1] / "data"))
import data_bounds as bounds
import data_template as template
import data_turns as turns

_WEIGHT_PATTERNS = ("*.safetensors", "*.bin")
_MAX_TEXT_CHARACTERS = 600


class RefusedError(Exception):
    """A refused request: its kind (one of actions/result_child.py, or "code" or "failed") and why."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class MessagePipe:
    """The pipe to who started this program; what libraries print goes to stderr instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)

    def send(self, event: str, **values: object) -> None:
        """Send one message; where nobody listens any more, end."""
        line = json.dumps({"event": event, **values}, ensure_ascii=False).encode(
            "utf-8", "replace"
        )  # half a character is no JSON
        try:
            self._out.write(line + b"\n")
        except OSError:
            os._exit(0)

    def send_refusal(self, error: BaseException) -> None:
        """Send why something failed."""
        refused = error_as_refusal(error)
        self.send("error", kind=refused.kind, why=str(refused))


def answer_request(action: Callable[[dict[str, Any], MessagePipe], None], *, online: bool = False) -> None:
    """Do what this program is asked for, or say why not; the exit code is 0 where what it made is to be kept."""
    set_up_program(online=online)
    messages = MessagePipe()
    try:
        action(read_request(), messages)
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, who asked is told
        messages.send_refusal(error)
        sys.exit(1)


def set_up_program(*, online: bool = False) -> None:
    """Have this program end with who started it, and load nothing from the network unless it is `online`."""
    bounds.end_with_parent()
    warnings.simplefilter("ignore")
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    os.environ |= quiet if online else {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", **quiet}


def error_as_refusal(error: BaseException) -> RefusedError:
    """Return an exception of any library as what could not be done."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, bounds.BoundError):
        return RefusedError("template", str(error))
    words = f"{type(error).__name__}: {first_nonblank_line(error)}"
    if "OutOfMemory" in type(error).__name__ or isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return RefusedError("memory", first_nonblank_line(error) or words)
    if isinstance(error, ImportError):
        return RefusedError("lacks", first_nonblank_line(error))
    return RefusedError("failed", words)


def first_nonblank_line(error: BaseException) -> str:
    """Return the first line of an error's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:_MAX_TEXT_CHARACTERS] if lines else ""


def find_model_folder(model: str, revision: str = "") -> str:
    """Return the folder of a model that is given as one, or by its id and revision in the cache of the Hub."""
    if Path(model).is_dir():
        return model
    if model.startswith(("/", "~", ".")):
        raise RefusedError("missing", f"there is no folder {model}")
    try:
        from huggingface_hub import snapshot_download

        return str(snapshot_download(model, revision=revision or None, local_files_only=True))
    except ImportError:
        raise
    except Exception:  # noqa: BLE001 - errors of many kinds, all for a model that is not there
        named = f"{model}@{revision}" if revision else model
        raise RefusedError("missing", f"{named} is neither a folder nor in the cache of the Hub") from None


def weights_bytes(folder: str) -> int:
    """Return the bytes of a model's weights; of two formats those of the one that is loaded."""
    for pattern in _WEIGHT_PATTERNS:
        if sizes := [path.stat().st_size for path in Path(folder).glob(pattern) if path.is_file()]:
            return sum(sizes)
    raise RefusedError("missing", f"there are no weights in {folder}")


@contextlib.contextmanager
def _refusing_untrusted_code(folder: str, *, trusted: bool) -> Iterator[dict[str, bool]]:
    """Give how transformers is to treat a folder's own code; RefusedError, with its file, where it would need that."""
    try:
        yield {"trust_remote_code": trusted}
    except (ValueError, OSError) as error:
        if trusted or "trust_remote_code" not in str(error):
            raise
        raise RefusedError("code", f"it needs Python code of its own: {_code_file_of_model(folder)}") from None


def _code_file_of_model(folder: str) -> str:
    """Return the Python file that a model or tokenizer names as its code, or the folder where none is named."""
    for name in ("config.json", "tokenizer_config.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            named = json.loads(Path(folder, name).read_text(encoding="utf-8")).get("auto_map", {}).values()
            words = [word for value in named for word in (value if isinstance(value, list) else [value])]
            if files := [str(word).rpartition("--")[2].split(".")[0] for word in words if word]:
                return str(Path(folder, f"{files[-1]}.py"))[-_MAX_TEXT_CHARACTERS:]
    return folder


def load_tokenizer(*folders: str, trusted: bool) -> Any:
    """Return the tokenizer of the first of some folders that has one."""
    from transformers import AutoTokenizer

    names = ("tokenizer_config.json", "tokenizer.json", "tokenizer.model", "vocab.json")
    return _load_from_first(AutoTokenizer, "tokenizer", names, folders, trusted=trusted)


def _load_from_first(kind: Any, label: str, names: Sequence[str], folders: Sequence[str], *, trusted: bool) -> Any:
    """Return what a class of transformers loads from the first of some folders that has one of its files."""
    for folder in folders:
        if folder and any(Path(folder, name).is_file() for name in names):
            with _refusing_untrusted_code(folder, trusted=trusted) as how:
                return kind.from_pretrained(folder, **how)
    raise RefusedError("missing", f"there is no {label} in {' or '.join(filter(None, folders))}")


def load_model(folder: str, device: str, label_count: int = 0, *, trusted: bool) -> Any:
    """Return a model of a folder in the type of its files, on the CPU or spread over the visible cards.

    With `label_count` it is one that gives so many scores.
    """
    import transformers

    kind: Any = transformers.AutoModelForSequenceClassification if label_count else transformers.AutoModelForCausalLM
    if not label_count and sees_images(folder):
        kind = transformers.AutoModelForImageTextToText
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    options: dict[str, Any] = {"dtype" if (major, minor) >= (4, 56) else "torch_dtype": "auto"}
    options |= {"num_labels": label_count} if label_count else {}
    several = False
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise RefusedError("lacks", "torch sees no GPU here")
        several = torch.cuda.device_count() > 1
    with _refusing_untrusted_code(folder, trusted=trusted) as trust:
        if several:
            return kind.from_pretrained(folder, device_map="auto", **options, **trust).eval()
        return kind.from_pretrained(folder, **options, **trust).to(device).eval()


def sees_images(folder: str) -> bool:
    """Return whether a model's folder says that it has a vision tower."""
    try:
        return bool(json.loads(Path(folder, "config.json").read_text(encoding="utf-8")).get("vision_config"))
    except (OSError, ValueError, AttributeError):
        return False


def load_processor(*folders: str, trusted: bool) -> Any:
    """Return the processor of images of the first of some folders that has one."""
    from transformers import AutoProcessor

    names = ("processor_config.json", "preprocessor_config.json")
    return _load_from_first(AutoProcessor, "processor of images", names, folders, trusted=trusted)


def add_adapter(base: Any, folder: str, vocabulary_size: int) -> Any:
    """Return a model with an adapter; more tokens than it has, of the adapter's tokenizer, are added first."""
    from peft import PeftModel

    if vocabulary_size > base.get_input_embeddings().weight.shape[0]:
        base.resize_token_embeddings(vocabulary_size)
    return PeftModel.from_pretrained(base, folder).eval()


def turn_end_token_id(tokenizer: Any) -> int | None:
    """Return the token with which the chat template ends a turn, None where it has none."""
    token = turns.turn_end_token(tokenizer)
    return int(tokenizer.convert_tokens_to_ids(token)) if token else None


def turn_end_token(tokenizer: Any) -> str:
    """Return the token with which the chat template ends a turn, empty where there is no template or no such token."""
    number = turn_end_token_id(tokenizer) if tokenizer.chat_template else None
    return "" if number is None else str(tokenizer.convert_ids_to_tokens(number))


def puts_bos_before_texts(tokenizer: Any) -> bool:
    """Return whether a model has learned texts that begin with the token for that, as its tokenizer makes them."""
    if not (begin := tokenizer.bos_token):
        return False
    if not tokenizer.chat_template:
        return bool(tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id])
    messages = [{"role": "user", "content": "a"}]
    template.check_messages_render(tokenizer, messages, {})
    return str(tokenizer.apply_chat_template(messages, tokenize=False)).startswith(begin)


def weights_dtype_name(loaded: Any) -> str:
    """Return the type of a model's weights: `bfloat16`."""
    return str(next(loaded.parameters()).dtype).removeprefix("torch.")


def encode_messages(
    tokenizer: Any, messages: list[dict[str, str]], device: Any, more: dict[str, Any] | None = None
) -> Any:
    """Return messages as the model gets them: through its chat template, else the last one alone as plain text.

    `more` are other variables of the template.
    """
    if tokenizer.chat_template:
        template.check_messages_render(tokenizer, messages, {**(more or {}), "add_generation_prompt": True})
        how = {**(more or {}), "add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
        made = tokenizer.apply_chat_template(messages, **how)
    else:
        made = tokenizer(messages[-1]["content"], return_tensors="pt")
    if not made["input_ids"].shape[-1]:
        raise RefusedError("prompt", "the prompt has no tokens")
    return {name: made[name].to(device) for name in ("input_ids", "attention_mask")}


def read_request() -> dict[str, Any]:
    """Return what this program is asked for: its one argument, in JSON."""
    request = json.loads(sys.argv[1])
    assert isinstance(request, dict)  # noqa: S101 - who starts it writes it
    return request
