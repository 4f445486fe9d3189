"""What the user chose: one frozen value, saved as TOML; paths in it are absolute or empty."""

from typing import Literal

from msgspec import Struct

SCHEMA = 1

Device = Literal["auto", "cuda", "cpu"]
Kind = Literal["builtin", "script"]
Launcher = Literal["auto", "python", "torchrun", "accelerate"]
Precision = Literal["fp32", "bf16", "fp16"]
Scaling = Literal["none", "linear", "sqrt"]


class Hardware(Struct, frozen=True, kw_only=True):
    """Which devices train: `gpus` are UUIDs (empty: the recommended ones), `processes` is 0 for one per GPU."""

    device: Device = "auto"
    gpus: tuple[str, ...] = ()
    processes: int = 0


class Trainer(Struct, frozen=True, kw_only=True):
    """What trains, how it is launched, and what it reads and writes; an empty path means the default in its help."""

    kind: Kind = "builtin"
    launcher: Launcher = "auto"
    python: str = ""
    script: str = ""
    preset: str = "hf-trainer"
    arguments: tuple[str, ...] = ()
    working_directory: str = ""
    model: str = ""
    data: tuple[str, ...] = ()
    output: str = ""
    environment: dict[str, str] = {}
    secrets: tuple[str, ...] = ()


class Recipe(Struct, frozen=True, kw_only=True):
    """The model's size and the optimisation; the learning rate suits `lr_base_batch` (0: this global batch)."""

    layers: int = 4
    hidden_size: int = 128
    heads: int = 4
    sequence_length: int = 128
    micro_batch: int = 8
    global_batch: int = 16
    learning_rate: float = 3e-3
    lr_scaling: Scaling = "none"
    lr_base_batch: int = 0
    precision: Precision = "fp32"
    steps: int = 60
    activation_checkpointing: bool = False
    expandable_segments: bool = False
    checkpoint_every: int = 20
    seed: int = 1


class Ladder(Struct, frozen=True, kw_only=True):
    """What is tried after an out-of-memory, in order; `consent` names those that may change the training."""

    rungs: tuple[str, ...] = ("expandable_segments", "micro_batch", "activation_checkpointing")
    consent: tuple[str, ...] = ()


class Profile(Struct, frozen=True, kw_only=True):
    """Everything that the user chose."""

    schema: int = SCHEMA
    name: str = "quickstart"
    hardware: Hardware = Hardware()
    trainer: Trainer = Trainer()
    recipe: Recipe = Recipe()
    ladder: Ladder = Ladder()
