"""Presets: how the recipe becomes a trainer's arguments, how it resumes, what it cannot take; one TOML each."""

import functools
import re
from importlib import resources

import msgspec
from msgspec import Struct

from tui_train.errors import BadInput
from tui_train.text import visible

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

# What a placeholder may name, and the profile key that it needs.
PLACEHOLDERS = {
    "output": "trainer.output",
    "data": "trainer.data",
    "model": "trainer.model",
    "layers": "recipe.layers",
    "hidden_size": "recipe.hidden_size",
    "heads": "recipe.heads",
    "sequence_length": "recipe.sequence_length",
    "micro_batch": "recipe.micro_batch",
    "total_batch": "recipe.micro_batch",
    "accumulation": "recipe.global_batch",
    "global_batch": "recipe.global_batch",
    "world_size": "hardware.processes",
    "device": "hardware.device",
    "learning_rate": "recipe.learning_rate",
    "precision": "recipe.precision",
    "steps": "recipe.steps",
    "activation_checkpointing": "recipe.activation_checkpointing",
    "checkpoint_every": "recipe.checkpoint_every",
    "seed": "recipe.seed",
}


class Argument(Struct, frozen=True, forbid_unknown_fields=True):
    """Words passed together; `when` is NAME=VALUE or NAME!=VALUE. Left out when a placeholder in them is empty."""

    words: tuple[str, ...]
    when: str = ""


class Checkpoints(Struct, frozen=True, forbid_unknown_fields=True):
    """Checkpoints are folders PREFIX + step in the output; `complete` are files that only a whole one holds."""

    prefix: str
    complete: tuple[str, ...]
    resume: tuple[str, ...]


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One trainer's way of taking the recipe; `strategies` are those besides ddp that it is known to take.

    Without `strategies` nothing is known: the user's own script may take any of them.
    """

    label: str
    about: str
    arguments: tuple[Argument, ...] = ()
    checkpoints: Checkpoints | None = None
    strategies: tuple[str, ...] = ()


def takes(preset: Preset, more: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the placeholder names that reach the trainer, from the preset and from the user's `more` arguments."""
    words = [word for argument in preset.arguments for word in (*argument.words, f"{{{_condition(argument.when)}}}")]
    return frozenset(PLACEHOLDER.findall(" ".join([*words, *more]))) & PLACEHOLDERS.keys()


@functools.cache
def presets() -> dict[str, Preset]:
    """Return all presets by name; `builtin` is the built-in trainer's own."""
    found = {}
    for file in resources.files(__name__).iterdir():
        if file.name.endswith(".toml"):
            found[file.name.removesuffix(".toml")] = msgspec.toml.decode(file.read_bytes(), type=Preset)
    return dict(sorted(found.items()))


def preset(name: str) -> Preset:
    """Return a preset by name; BadInput lists the known ones."""
    if name in presets():
        return presets()[name]
    raise BadInput(f"there is no preset {visible(name)}", f"Known are: {', '.join(presets())}.")


def _condition(when: str) -> str:
    return when.partition("=")[0].removesuffix("!")


def applies(argument: Argument, values: dict[str, str]) -> bool:
    """Tell whether an argument's condition holds for these placeholder values."""
    if not argument.when:
        return True
    name, _, wanted = argument.when.partition("=")
    return values[name.removesuffix("!")] != wanted if name.endswith("!") else values[name] == wanted
