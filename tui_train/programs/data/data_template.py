"""Encodes rows as TRL does: through the chat template, with the tokens that are learned."""

from __future__ import annotations

import contextlib
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import data_bounds as bounds
import data_convert as convert
from data_rows import MAX_ROW_BYTES

_GENERATION_TAG_PATTERN = re.compile(r"\{%-?\s*generation\s*-?%\}")
# Parts of the names of all files that a tokenizer is made of; some have only their configuration.
_TOKENIZER_FILE_NAME_PATTERN = re.compile(
    "token|vocab|merges|spm|spiece|sentencepiece|bpe|tekken|[.]model$", re.IGNORECASE
)


# As TRL says, which ends without it.
_MIN_TRANSFORMERS_TO_MARK_WITH_IMAGES = (5, 18)


class EncodedSequence(NamedTuple):
    """The tokens of one sequence, and for each whether it is learned."""

    ids: list[int]
    learned: list[bool]


class AnswerMarking(NamedTuple):
    """Template for learning only answers: the marked one (None: the model's own is marked), or why there is none."""

    possible: bool
    template: str | None = None
    why: str = ""
    caution: str = ""


class RowEncoder(NamedTuple):
    """A tokenizer, the answers that it marks alone, and what counts the tokens of images, None for neither."""

    tokenizer: Any
    marking: AnswerMarking | None = None
    image_tokens: Any = None

    def encode(self, row: dict[str, Any]) -> list[EncodedSequence]:
        """Return the sequences of a row that TRL takes."""
        return encode_row(self.tokenizer, row, marking=self.marking, image_tokens=self.image_tokens)


def load_tokenizer(model: str, revision: str = "", chat_template: str = "") -> Any:
    """Return the tokenizer of a folder, or of a model in the Hub's cache at a revision (empty: main).

    `chat_template` is what TRL's --chat_template_path names: a Jinja file, or a model whose template and end are taken.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, **from_pretrained_options(revision))
    if chat_template.endswith((".jinja", ".j2")) and Path(chat_template).is_file():
        tokenizer.chat_template = Path(chat_template).read_text("utf-8")
    elif chat_template:
        other = AutoTokenizer.from_pretrained(chat_template, **from_pretrained_options(""))
        tokenizer.add_tokens([token for token in other.added_tokens_decoder.values() if token.special])
        tokenizer.chat_template, tokenizer.eos_token = other.chat_template, other.eos_token
    return tokenizer


def has_tokenizer_file(folder: str) -> bool:
    """Return whether a folder holds a file of which a tokenizer may be made."""
    try:
        names = [path.name for path in Path(folder).iterdir()]
    except OSError:
        return True
    return any(map(_TOKENIZER_FILE_NAME_PATTERN.search, names))


def from_pretrained_options(revision: str) -> dict[str, Any]:
    """Return how a tokenizer or processor is loaded: from this machine, without code of the model's."""
    return {"revision": revision or "main", "local_files_only": True, "trust_remote_code": False}


def max_tokens_of_model(tokenizer: Any, model: str, revision: str = "") -> int:
    """Return how many tokens the model takes, by its tokenizer and its config.json; 0 where neither says."""
    numbers = [tokenizer.model_max_length]
    # A folder may hold a tokenizer alone, or a model that transformers does not know.
    with contextlib.suppress(Exception):
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(model, **from_pretrained_options(revision))
        numbers.append(getattr(config.get_text_config(), "max_position_embeddings", None))
    return min((number for number in numbers if isinstance(number, int) and 0 < number < 10**8), default=0)


def sees_images(model: str, revision: str = "") -> bool:
    """Return whether the config.json of a model has a vision part."""
    with contextlib.suppress(Exception):
        from transformers import AutoConfig

        return hasattr(AutoConfig.from_pretrained(model, **from_pretrained_options(revision)), "vision_config")
    return False


def why_not_loaded(error: Exception) -> str:
    """Return what kept a tokenizer or processor from loading: a missing library with its command, or what it says."""
    if not isinstance(error, ImportError):
        return first_line_of_error(error)
    if broken := _why_torchvision_is_broken():
        return broken
    text = str(error).lower()
    name = next((name for name in ("torchvision", "pillow", "transformers") if name in text), "")
    return f"this Python has no {name}: pip install {name}" if name else first_line_of_error(error)


def _why_torchvision_is_broken() -> str:
    # transformers imports it wherever it is installed, and then names a module of its own that failed.
    if find_spec("torchvision") is None:
        return ""
    try:
        import_module("torchvision")
    except Exception as error:  # noqa: BLE001 - one for another torch fails in many ways
        return f"its torchvision does not belong to its torch ({first_line_of_error(error)})"
    return ""


def first_line_of_error(error: Exception) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, MemoryError):
        return f"it took more than {bounds.memory_bound_text()} of memory"
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def find_answer_marking(tokenizer: Any, format_name: str, *, chat: bool, has_images: bool = False) -> AnswerMarking:
    """Return whether `assistant_only_loss` is possible with this template and data."""
    if has_images and _transformers_version() < _MIN_TRANSFORMERS_TO_MARK_WITH_IMAGES:
        needed = ".".join(map(str, _MIN_TRANSFORMERS_TO_MARK_WITH_IMAGES))
        return AnswerMarking(possible=False, why=f"beside images that takes transformers {needed} or newer")
    if format_name not in {"messages", "sharegpt", "prompt_completion", "alpaca"} or not chat:
        return AnswerMarking(possible=False, why="the data has no messages, in which answers could be marked")
    own = tokenizer.chat_template
    marked = _GENERATION_TAG_PATTERN.search(own.get("default", "") if isinstance(own, dict) else own) is not None
    try:
        from trl import chat_template_utils as trl
    except Exception as error:  # noqa: BLE001 - TRL imports much, and any of it may fail
        lacks = "no TRL" if isinstance(error, ImportError) else f"a TRL that fails: {first_line_of_error(error)}"
        return AnswerMarking(
            marked, why="" if marked else f"this template does not mark answers, and this Python has {lacks}"
        )
    try:
        with bounds.limit_memory_and_time():
            template = None if marked else trl.get_training_chat_template(tokenizer)
    except Exception:  # noqa: BLE001 - whatever the template does, TRL would end the same way
        return AnswerMarking(possible=False, why="this template does not mark answers")
    with contextlib.suppress(bounds.BoundError), bounds.limit_memory_and_time():
        return AnswerMarking(possible=True, template=template, caution=_unmarked_end_caution(trl, tokenizer, template))
    return AnswerMarking(possible=False, why="the template takes too much memory or time")


def _transformers_version() -> tuple[int, ...]:
    from transformers import __version__

    return tuple(int(part) for part in re.findall(r"\d+", __version__)[:2])


def marking_of_learned_answers(
    answers: AnswerMarking, format_name: str, *, answers_only: bool | None
) -> AnswerMarking | None:
    """Return how the answers are marked where they alone are learned (None: by default), None where all is learned."""
    alone = learns_only_answers_by_default(answers, format_name) if answers_only is None else answers_only
    return answers if alone and answers.possible else None


def learns_only_answers_by_default(answers: AnswerMarking, format_name: str) -> bool:
    """Return whether answers alone are learned where nothing else is chosen: those of chats, with their end."""
    return format_name in {"messages", "sharegpt"} and answers.possible and not answers.caution


def _unmarked_end_caution(trl: Any, tokenizer: Any, template: str | None) -> str:
    trained = getattr(trl, "is_chat_template_stop_token_trained", None)
    if trained is None or trained(tokenizer, chat_template=template):
        return ""
    return "the template does not mark the token that ends an answer: the model would not learn to stop"


def encode_row(
    tokenizer: Any, row: dict[str, Any], *, marking: AnswerMarking | None = None, image_tokens: Any = None
) -> list[EncodedSequence]:
    """Return the sequences of a row that TRL takes: one, of a preference pair two; `marking` answers are learned.

    With `image_tokens` each image has all of its tokens.
    """
    sequences = _encode_texts_of_row(tokenizer, row, marking)
    return [image_tokens.expanded(sequence, row) for sequence in sequences] if image_tokens else sequences


def _encode_texts_of_row(tokenizer: Any, row: dict[str, Any], marking: AnswerMarking | None) -> list[EncodedSequence]:
    more = apply_chat_template_options(row, marking)
    mask = marking is not None and marking.possible
    if "messages" in row:
        return [_encode_messages(tokenizer, row["messages"], more, mask=mask)]
    if "text" in row:
        ids = _encode_plain_text(tokenizer, _with_end_token(tokenizer, row["text"]))
        return [EncodedSequence(ids, [True] * len(ids))]
    if row.keys() == {"prompt"}:
        return [_encode_prompt(tokenizer, row["prompt"])]
    names = ("chosen", "rejected") if "chosen" in row else ("completion",)
    row = convert.pair_with_prompt(row) if "chosen" in row else row
    return [_encode_answer(tokenizer, row["prompt"], row[name], more, mask=mask) for name in names]


def template_refusal(tokenizer: Any, row: dict[str, Any], *, marking: AnswerMarking | None = None) -> str:
    """Return what the chat template says of a row of messages that it refuses, empty where it takes it.

    BoundError where it takes too much memory or time.
    """
    more = apply_chat_template_options(row, marking)
    try:
        for messages in _conversations_of_row(row):
            check_messages_render(tokenizer, messages, more)
        if row.get("prompt"):
            check_messages_render(tokenizer, row["prompt"], {**more, "add_generation_prompt": True})
    except bounds.BoundError:
        raise
    except Exception as error:  # noqa: BLE001 - a template is a program of the model's
        return first_line_of_error(error)
    return ""


def check_messages_render(tokenizer: Any, messages: Any, options: dict[str, Any]) -> None:
    """Render messages as text within bounds, before a text of any length is given to the tokenizer."""
    with bounds.limit_memory_and_time():
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    if len(text) > MAX_ROW_BYTES:
        raise bounds.BoundError(f"it makes a text of more than {MAX_ROW_BYTES >> 20} MiB")


def _conversations_of_row(row: dict[str, Any]) -> list[Any]:
    if "messages" in row:
        return [row["messages"]]
    answers = [row[name] for name in ("chosen", "rejected", "completion") if name in row]
    return [[*row["prompt"], *answer] for answer in answers]


def apply_chat_template_options(row: dict[str, Any], marking: AnswerMarking | None = None) -> dict[str, Any]:
    """Return the arguments of apply_chat_template besides messages: tools, variables, and a marked template."""
    more = dict(row.get("chat_template_kwargs") or {})
    if row.get("tools"):
        more["tools"] = row["tools"]
    if marking is not None and marking.possible and marking.template:
        more["chat_template"] = marking.template
    return more


def _encode_prompt(tokenizer: Any, prompt: Any) -> EncodedSequence:
    """Return a prompt to which the model itself writes the answer: nothing of it is learned."""
    ids = (
        _encode_messages(tokenizer, prompt, {"add_generation_prompt": True}).ids
        if isinstance(prompt, list)
        else _encode_plain_text(tokenizer, prompt)
    )
    return EncodedSequence(ids, [False] * len(ids))


def _encode_answer(tokenizer: Any, prompt: Any, answer: Any, options: dict[str, Any], *, mask: bool) -> EncodedSequence:
    if isinstance(answer, list):
        sequence = _encode_messages(tokenizer, [*prompt, *answer], options, mask=mask)
        prompt_ids = (
            _encode_messages(tokenizer, prompt, {**options, "add_generation_prompt": True}).ids if prompt else []
        )
    else:
        ids = _encode_plain_text(tokenizer, _with_end_token(tokenizer, prompt + answer))
        sequence, prompt_ids = (
            EncodedSequence(ids, [True] * len(ids)),
            _encode_plain_text(tokenizer, prompt) if prompt else [],
        )
    # As in TRL, the answer begins where the two differ.
    start = 0
    while start < min(len(prompt_ids), len(sequence.ids)) and prompt_ids[start] == sequence.ids[start]:
        start += 1
    return EncodedSequence(sequence.ids, [at >= start and learned for at, learned in enumerate(sequence.learned)])


def _with_end_token(tokenizer: Any, text: str) -> str:
    end = tokenizer.eos_token or ""
    return text if end and text.endswith(end) else text + end


def _encode_plain_text(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text)["input_ids"])


def _encode_messages(tokenizer: Any, messages: Any, options: dict[str, Any], *, mask: bool = False) -> EncodedSequence:
    check_messages_render(tokenizer, messages, options)
    made = tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=mask, **options
    )
    ids = list(made["input_ids"])
    learned = [bool(mark) for mark in made["assistant_masks"]] if mask else [True] * len(ids)
    return EncodedSequence(ids, learned)
