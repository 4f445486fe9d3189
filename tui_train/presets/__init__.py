"""Presets: how the recipe becomes a trainer's arguments or its file, how it resumes, what it cannot take."""

import functools
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.parse import built
from tui_train.base.text import visible

PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")

# What a placeholder may name, and the profile key that it needs.
PLACEHOLDERS = {
    "output": "trainer.output",
    "data": "trainer.data",
    "validation_data": "trainer.validation_data",
    "test_data": "trainer.test_data",
    "model": "trainer.model",
    "config": "trainer.config",
    "layers": "recipe.layers",
    "hidden_size": "recipe.hidden_size",
    "heads": "recipe.heads",
    "sequence_length": "recipe.sequence_length",
    "micro_batch": "recipe.micro_batch",
    "total_batch": "recipe.micro_batch",
    "eval_batch": "recipe.eval_batch",
    "data_format": "trainer.data",
    "accumulation": "recipe.global_batch",
    "total_accumulation": "recipe.global_batch",
    "global_batch": "recipe.global_batch",
    "world_size": "hardware.processes",
    "device": "hardware.device",
    "backend": "communication.backend",
    "learning_rate": "recipe.learning_rate",
    "precision": "recipe.precision",
    "steps": "recipe.steps",
    "activation_checkpointing": "recipe.activation_checkpointing",
    "fused_optimizer": "recipe.fused_optimizer",
    "fused_cross_entropy": "recipe.fused_cross_entropy",
    "optimizer_8bit": "recipe.optimizer_8bit",
    "lora": "recipe.lora",
    "checkpoint_every": "recipe.checkpoint_every",
    "seed": "recipe.seed",
}

# What a preset may know of a trainer's defaults.
OWN = frozenset(
    {
        "layers", "hidden_size", "heads", "sequence_length", "micro_batch", "accumulation", "global_batch",
        "learning_rate", "precision", "steps", "activation_checkpointing", "checkpoint_every", "seed",
    }
)  # fmt: skip

Literal = str | int | float | bool


class Argument(Struct, frozen=True, forbid_unknown_fields=True):
    """Words passed together; `when` is NAME=VALUE or NAME!=VALUE. Left out when a placeholder in them is empty."""

    words: tuple[str, ...]
    when: str = ""


class Variable(Struct, frozen=True, forbid_unknown_fields=True):
    """A variable of the training's environment."""

    name: str
    value: str
    when: str = ""


class FileValue(Struct, frozen=True, forbid_unknown_fields=True):
    """A value in the trainer's file: `key` has dots between levels; a value that is one placeholder keeps its type.

    Lists and tables may hold placeholders as well; where one of them is empty, the value is left out.
    """

    key: str
    value: Literal | list[Any] | dict[str, Any]
    when: str = ""


class Dropped(Struct, frozen=True, forbid_unknown_fields=True):
    """A key of the user's file that the trainer refuses beside a value that is put in; `when` says which value."""

    key: str
    when: str = ""


class TrainerFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The YAML file that the trainer reads: the user's own with `values` put in and the keys `without` left out.

    `needs_yours`: there must be one of the user's. `required` are values without which the trainer would not train.
    """

    path: str = "config.yaml"
    needs_yours: bool = True
    values: tuple[FileValue, ...]
    without: tuple[Dropped, ...] = ()
    required: dict[str, Literal] = {}


class Checkpoints(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Checkpoints are PREFIX + step + SUFFIX in the output, or always the one `file`; and how a run resumes from one.

    `complete` are files that only a whole folder holds. `resume` are words, `values` are values of the trainer's file.
    """

    prefix: str = ""
    suffix: str = ""
    file: str = ""
    complete: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    values: tuple[FileValue, ...] = ()


class Stop(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How it saves when it is told to end, by SIGTERM: `grace` is how many seconds it gets for that.

    `arguments` are what it must be told for that: where `when` holds, as of an Argument, and the library in `needs`
    ("transformers 5.0") is there in that version or a newer one.
    """

    grace: int = 20
    arguments: tuple[str, ...] = ()
    when: str = ""
    needs: str = ""


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One trainer's way of taking the recipe; `strategies` are those besides ddp that it is known to take.

    Without `strategies` nothing is known: the user's own script may take any of them.
    `module` is started where no script is; `own_script` lets a script take its place. `yours_first` puts the user's own
    arguments before these. `log` are expressions with the groups step, steps, loss, lr and tokens_per_second.
    `eval_batch` is how many samples it evaluates at a time by default; 0 is as many as it trains on. `own` are other
    defaults, by placeholder: those of the module that it starts, or of any script that it is for.
    """

    label: str
    about: str
    module: str = ""
    own_script: bool = False
    yours_first: bool = False
    eval_batch: Annotated[int, msgspec.Meta(ge=0)] = 0
    own: dict[str, Literal] = {}
    arguments: tuple[Argument, ...] = ()
    variables: tuple[Variable, ...] = ()
    file: TrainerFile | None = None
    checkpoints: Checkpoints | None = None
    stop: Stop = Stop()
    strategies: tuple[str, ...] = ()
    log: tuple[str, ...] = ()

    @property
    def wants_script(self) -> bool:
        """Whether a script of the user's is what it starts, or may be."""
        return self.own_script or not self.module


class OwnPreset(Struct, frozen=True, kw_only=True):
    """A preset of the user's, from the file `path`: None where it cannot be used, and why."""

    path: str
    preset: Preset | None = None
    problem: str = ""


Own = Mapping[str, OwnPreset]


def takes(preset: Preset, more: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the placeholder names that reach the trainer, from the preset and from the user's `more` arguments."""
    return frozenset(PLACEHOLDER.findall("\n".join([*_words(preset), *more]))) & PLACEHOLDERS.keys()


def _words(preset: Preset) -> Iterator[str]:
    """Yield all text of a preset in which placeholders may stand, those of conditions included."""
    for argument in preset.arguments:
        yield from (*argument.words, f"{{{condition(argument.when)}}}")
    for variable in preset.variables:
        yield from (variable.value, f"{{{condition(variable.when)}}}")
    for value in preset.file.values if preset.file else ():
        yield from (*texts_in(value.value), f"{{{condition(value.when)}}}")


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a value of a file, however deep."""
    if isinstance(value, dict):
        yield from (text for inner in value.values() for text in texts_in(inner))
    elif isinstance(value, list):
        yield from (text for inner in value for text in texts_in(inner))
    else:
        yield str(value)


@functools.cache
def presets() -> dict[str, Preset]:
    """Return the shipped presets by name; `builtin` is the built-in trainer's own."""
    return {name: msgspec.toml.decode(text, type=built(Preset)) for name, text in texts().items()}


@functools.cache
def texts() -> dict[str, str]:
    """Return the text of each shipped preset."""
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".toml")]
    return dict(sorted((file.name.removesuffix(".toml"), file.read_text("utf-8")) for file in files))


def preset(name: str, own: Own | None = None) -> Preset:
    """Return a preset by name, shipped or of the user's `own`; BadInput lists the known ones."""
    mine = own or {}
    if name in presets():
        return presets()[name]
    if name in mine:
        found = mine[name]
        if found.preset:
            return found.preset
        raise BadInput(
            f"the preset {visible(name)} cannot be used: {found.problem}", "Fix that file, or choose another."
        )
    known = [*presets(), *(other for other, found in mine.items() if found.preset and other not in presets())]
    raise BadInput(f"there is no preset {visible(name)}", f"Known are: {visible(', '.join(known))}.")


def condition(when: str) -> str:
    """Return the name that a condition asks for."""
    return when.partition("=")[0].removesuffix("!")


def applies(when: str, values: Mapping[str, str]) -> bool:
    """Tell whether a condition holds for these placeholder values; an empty one does, `!=` not for an empty value."""
    if not when:
        return True
    name, _, wanted = when.partition("=")
    value = values[name.removesuffix("!")]
    return bool(value) and value != wanted if name.endswith("!") else value == wanted
