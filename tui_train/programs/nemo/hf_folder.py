"""A Hugging Face folder as transformers 4 reads it, which NeMo's converters need: transformers 5 writes other names.

The folder itself is not changed: what differs is written into a copy, whose other files are links.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Classes of transformers 5 that stand for a tokenizer.json, and its classes of transformers 4.
OLDER_CLASS_BY_TOKENIZER_CLASS = {"TokenizersBackend": "PreTrainedTokenizerFast"}
# Kinds of RoPE that NeMo's models can have; others differ only beyond the model's own length, where nobody compares.
ROPE_KINDS_OF_NEMO = ("default", "llama3", "linear", "yarn")


class RefusedInput(Exception):
    """Problem of what was given (first argument), and what to do (second)."""


def make_copy_for_transformers_4(folder: Path, copy: Path) -> Path:
    """Make `copy` a copy of a Hugging Face folder that transformers 4 reads, and return it."""
    copy.mkdir(parents=True)
    changed = {
        "config.json": with_rope_names_of_transformers_4,
        "tokenizer_config.json": with_tokenizer_names_of_transformers_4,
    }
    for path in sorted(folder.iterdir()):
        if path.name in changed and path.is_file():
            written = json.dumps(changed[path.name](read_json_object(path)), ensure_ascii=False, indent=2)
            (copy / path.name).write_text(written, encoding="utf-8")
        else:
            (copy / path.name).symlink_to(path.resolve())
    return copy


def has_tokenizer_unreadable_by_transformers_4(folder: Path) -> bool:
    """Return whether a folder has a tokenizer that transformers 4 cannot read as it is."""
    path = folder / "tokenizer_config.json"
    return path.is_file() and with_tokenizer_names_of_transformers_4(config := read_json_object(path)) != config


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; RefusedInput where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RefusedInput(f"{path} cannot be read: {error}", "Give a complete Hugging Face folder.") from None
    if not isinstance(content, dict):
        raise RefusedInput(f"{path} has no JSON object", "Give a complete Hugging Face folder.")
    return content


def with_tokenizer_names_of_transformers_4(config: dict[str, Any]) -> dict[str, Any]:
    """Return tokenizer_config.json with the names of transformers 4."""
    config = dict(config)
    name = config.get("tokenizer_class")
    if name in {"SentencePieceBackend", "PythonBackend", "MistralCommonBackend"}:
        remedy = "Save it with a tokenizer.json: AutoTokenizer.from_pretrained(…).save_pretrained(…)."
        raise RefusedInput(
            f"its tokenizer is a {name} of transformers 5, which NeMo's transformers 4 cannot load", remedy
        )
    if name in OLDER_CLASS_BY_TOKENIZER_CLASS:
        config["tokenizer_class"] = OLDER_CLASS_BY_TOKENIZER_CLASS[name]
    if isinstance(config.get("extra_special_tokens"), list):
        more = config.pop("extra_special_tokens")
        config["additional_special_tokens"] = [*config.get("additional_special_tokens", []), *more]
    return config


def with_rope_names_of_transformers_4(config: dict[str, Any]) -> dict[str, Any]:
    """Return config.json with RoPE as transformers 4 names it: rope_theta, rope_scaling and what goes with them."""
    config = dict(config)
    if "rope_parameters" in config:
        config |= _rope_settings_of_transformers_4(config.pop("rope_parameters") or {})
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in ROPE_KINDS_OF_NEMO:
        raise RefusedInput(
            f"NeMo's models have no RoPE of the kind {kind}", "Train it with the built-in trainer or TRL."
        )
    return config


def _rope_settings_of_transformers_4(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of transformers 4 for the rope_parameters of transformers 5."""
    older: dict[str, Any] = {}
    if any(isinstance(part, dict) for part in parameters.values()):
        # Gemma 3 has one for each type of layer.
        local = parameters.get("sliding_attention") or {}
        known = parameters.keys() <= {"full_attention", "sliding_attention"} and parameters.get("full_attention")
        if not known or local.get("rope_type", "default") != "default":
            raise RefusedInput(
                "its RoPE differs by layer in a way that transformers 4 cannot express", "Use TRL for it."
            )
        if "rope_theta" in local:
            older["rope_local_base_freq"] = local["rope_theta"]
        parameters = parameters["full_attention"]
    beside = ("rope_theta", "partial_rotary_factor")
    older |= {name: parameters[name] for name in beside if name in parameters}
    scaling = {name: value for name, value in parameters.items() if name not in beside}
    older["rope_scaling"] = None if scaling.get("rope_type", "default") == "default" else scaling
    return older
