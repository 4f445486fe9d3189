"""The model: a new one over bytes, or one from a local folder; nothing is ever fetched."""

import math
import os
from pathlib import Path
from typing import Any

from arguments import BadInput, Options
from batches import END_OF_TEXT

# 256 bytes, the end of a text, and room up to a multiple of eight, which tensor cores like.
VOCABULARY = 264
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "spiece.model")


def prepare_transformers() -> None:
    """Keep transformers off the network and its progress bars out of the log; to be called before its import."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def load_config(folder: Path | None) -> Any | None:
    """Return the folder's configuration, None without a folder; raise BadInput where it is of no known model."""
    if folder is None:
        return None
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise _unusable(folder, "configuration", error) from error


def load_tokenizer(folder: Path | None) -> Any | None:
    """Return the folder's tokenizer, None where there is none and text is read as bytes."""
    if folder is None or not any((folder / name).is_file() for name in _TOKENIZERS):
        return None
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise _unusable(folder, "tokenizer", error) from error
    # Documents are tokenized whole and cut in blocks afterwards: their length is no mistake to warn of.
    tokenizer.model_max_length = 10**12
    return tokenizer


def check_config(options: Options, whole: Any, tokenizer: Any | None) -> None:
    """Raise BadInput where the tokens or the positions of the data are more than the model knows."""
    config = _text_config(whole)
    vocabulary = config.vocab_size
    if tokenizer is None and vocabulary < VOCABULARY:
        message = f"--model={options.model} knows {vocabulary} tokens and has no tokenizer: bytes need {VOCABULARY}"
        raise BadInput(message, "Put the model's tokenizer files into the folder.")
    if tokenizer is not None and len(tokenizer) > vocabulary:
        message = f"--model={options.model} knows {vocabulary} tokens, but its tokenizer makes {len(tokenizer)}"
        raise BadInput(message, "Put the tokenizer that belongs to the model into the folder.")
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and options.sequence_length > positions:
        message = f"--sequence-length={options.sequence_length} is more than the model's {positions} positions"
        raise BadInput(message, f"Give {positions} or less.")


def build(options: Options, config: Any | None) -> Any:
    """Return the model in fp32 on the CPU: a new one where there is no `config`; raise BadInput for a damaged one."""
    model = _new(options) if options.model is None else _local(options.model, config)
    if options.activation_checkpointing:
        if not getattr(model, "supports_gradient_checkpointing", False):
            message = f"{type(model).__name__} has no activation checkpointing"
            raise BadInput(message, "Leave out --activation-checkpointing, or choose another model.")
        new_name = getattr(model, "activation_checkpointing_enable", None)
        (new_name or model.gradient_checkpointing_enable)({"use_reentrant": False})
    model.train()
    return model


def sizes(model: Any) -> dict[str, int]:
    """Return what a checkpoint and a model must share to fit together."""
    config = _text_config(model.config)
    return {
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "heads": config.num_attention_heads,
        "vocabulary": config.vocab_size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def _new(options: Options) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden: Any = options.hidden_size
    shape: dict[str, Any] = {
        "hidden_size": hidden,
        "intermediate_size": math.ceil(8 * hidden / 3 / 32) * 32,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.heads,
        "max_position_embeddings": max(2048, options.sequence_length),
    }
    tokens: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": END_OF_TEXT}
    return LlamaForCausalLM(LlamaConfig(**shape, **tokens, tie_word_embeddings=True))


def _local(folder: Path, config: Any) -> Any:
    from transformers import AutoModelForCausalLM

    causal: Any = AutoModelForCausalLM
    try:
        if any((folder / name).is_file() for name in _WEIGHTS):
            model = causal.from_pretrained(folder, local_files_only=True)
        else:
            model = causal.from_config(config)
    except Exception as error:
        raise _unusable(folder, "model", error) from error
    # Folders often hold 16-bit weights, in which small updates are lost; autocast computes in 16 bit where asked to.
    return model.float()


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _unusable(folder: Path, what: str, error: Exception) -> BadInput:
    reason = str(error).strip().split("\n")[0]
    return BadInput(f"the {what} in --model={folder} cannot be loaded: {reason}", "Check that the folder is complete.")
