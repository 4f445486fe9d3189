"""The trace: what a child in the training interpreter counts with fake tensors, without GPU and without weights."""

from collections.abc import Callable
from importlib import resources
from typing import Any

import msgspec

from tui_train.base.parse import Unparsable, json_as
from tui_train.facts.ask import Answer, ask
from tui_train.facts.dimensions import Dimensions
from tui_train.memory.estimate import PACKED
from tui_train.memory.types import ALSO, BYTES, EVERY, How

DEADLINE = 120.0
# A model of 70 billion parameters takes minutes on a slow machine; whoever waits can end it.
TRACE_DEADLINE = 600.0
# Of the amount, how much what was traced may be off by.
ERROR = 0.1
_NUMBERS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_NAMES = {"forward": "forward and loss", "step": "optimizer step"}


class Counted(msgspec.Struct, frozen=True):
    """The most bytes of each phase, or the `problem` that kept them from being counted.

    Of what was measured on a card, the `device`, what the allocator `reserved` at most, and what the card has in use.
    """

    phases: dict[str, int] = {}
    parameters: int = 0
    trained: int = 0
    device: str = ""
    reserved: int = 0
    used: int = 0
    problem: str = ""

    @property
    def peak(self) -> tuple[str, int]:
        """The phase that takes most, and how much."""
        name, size = max(self.phases.items(), key=lambda item: item[1], default=("load", 0))
        return _NAMES.get(name, name), size


def uncovered(model: Dimensions, how: How) -> str:
    """Return why a training cannot be traced; empty where it can."""
    reasons = {
        "the trace does not know which tokens go to which expert": bool(model.experts),
        "the trace does not know DeepSpeed": how.sharding.startswith("zero"),
        "the trace knows gemma2 without flash attention only": model.type == "gemma2" and how.attention == "flash",
        "the trace knows packed weights with 16 bits of one kind": bool(how.packed)
        and {how.weights, how.autocast} == {"bf16", "fp16"},
        "the trace does not know losses over parts of the logits": how.loss in {"chunked", "compiled"},
        "the trace knows neither activations in the host's memory nor steps in the backward pass": how.offloads
        or how.steps_at_once,
        "the trace knows LoRA, whole layers, and packed weights that are shared out": how.scales
        or how.keeps_packed
        or not how.whole_layers,
    }
    return next((words for words, holds in reasons.items() if holds), "")


def question(model: Dimensions, how: How, folder: str = "") -> dict[str, Any]:
    """Return what the child is asked: the model by its `folder` or its dimensions, and how it is trained."""
    shared = how.sharding == "fsdp"
    # FSDP casts whole layers to what they compute in, and keeps its shares in what the weights are.
    cast = how.autocast if shared and how.autocast else how.weights
    return {
        "folder": folder,
        "config": configuration(model),
        "micro_batch": how.micro_batch,
        "sequence_length": how.sequence_length,
        "weights": _NUMBERS[cast],
        "autocast": how.autocast,
        "method": how.method,
        "rank": how.rank,
        # Without names all linear layers, whatever they are called.
        "targets": {} if how.targets == EVERY else {name: ALSO[name] for name in how.targets},
        "dropout": how.dropout,
        "adapters": _NUMBERS[how.adapters],
        "packed": PACKED.get(how.packed, 0),
        "optimizer": how.optimizer,
        "checkpointing": how.checkpointing,
        "attention": how.attention,
        "loss": "" if how.loss == "upcast" else how.loss,
        "kernels": how.kernels,
        "kept": BYTES[how.adapters if how.method == "lora" else how.weights],
        "shards": how.shards * BYTES[cast] / BYTES[how.weights] if shared else 1,
        "shared": shared and how.shards > 1,
        "buckets": how.sharding == "ddp" and how.shards > 1,
        "holds_layers": how.holds_layers,
        "gather": how.gather,
    }


def command(python: str, kind: str, asked: dict[str, Any]) -> list[str]:
    """Return the words that start the child of an interpreter, which answers by a `trace` or a `measure`."""
    child = str(resources.files("tui_train").joinpath("target/memory/memory_child.py"))
    return [python, "-B", child, kind, msgspec.json.encode(asked).decode()]


def trace(python: str, asked: dict[str, Any], cancelled: Callable[[], bool] = lambda: False) -> Counted:
    """Return what the child of an interpreter counts, in some seconds to minutes; `problem` says why it cannot."""
    no_card = {"CUDA_VISIBLE_DEVICES": ""}
    return _counted(ask(command(python, "trace", asked), TRACE_DEADLINE, no_card, cancelled=cancelled))


def measure(python: str, asked: dict[str, Any], card: str = "") -> Counted:
    """Return what two real steps take on a card (its UUID), or without one on the CPU; it trains nothing of value."""
    visible = {"CUDA_VISIBLE_DEVICES": card, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return _counted(ask(command(python, "measure", asked), DEADLINE, visible))


def _counted(answer: Answer) -> Counted:
    for line in reversed(answer.out.splitlines()):
        try:
            return json_as(line, Counted)
        except Unparsable:
            continue
    return Counted(problem=answer.ending())


def configuration(model: Dimensions) -> dict[str, Any]:
    """Return the values of a config.json by which transformers builds the model."""
    plain = {
        "model_type": model.type,
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv or model.heads,
        "intermediate_size": model.ffn,
        "vocab_size": model.vocab,
        "tie_word_embeddings": model.tied,
    }
    head = {"head_dim": model.head_dim} if model.head_dim else {}
    if model.type in {"gpt2", "gpt_bigcode"}:
        names = {"num_hidden_layers": "n_layer", "hidden_size": "n_embd", "num_attention_heads": "n_head"}
        kept = {names.get(key, key): value for key, value in plain.items() if key != "num_key_value_heads"}
        return kept | {"n_positions": model.positions, "n_inner": model.ffn}
    more: dict[str, dict[str, Any]] = {
        "falcon": {
            "num_kv_heads": model.kv or model.heads,
            "new_decoder_architecture": model.norms == 2,
            "multi_query": model.kv == 1,
            "ffn_hidden_size": model.ffn,
        },
        "stablelm": {"use_qkv_bias": model.qkv_bias},
        "phi3": {"pad_token_id": 0},
        "mistral": {"sliding_window": None},
        "mixtral": {"num_local_experts": model.experts, "num_experts_per_tok": model.experts_used},
    }
    return plain | head | more.get(model.type, {})
