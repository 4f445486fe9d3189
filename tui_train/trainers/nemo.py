"""NeMo: what the installed version supports, and the file that configures it.

nemo_toolkit 2.3 to 2.7 has recipes by name; 3.0 removed them. Megatron-Bridge, in NVIDIA's newer images, has
them under the same names; AutoModel, on PyPI, finetunes models of Hugging Face. All of them find their newest
checkpoint themselves. Each runs as one process a GPU under the launchers of this program:
NeMo-Run's LocalExecutor would start the same processes, but ends with 0 when they fail.
"""

import keyword
import math
from collections.abc import Callable
from functools import partial
from typing import Literal

from msgspec import Struct

from tui_train.base.command import EnvSetting, PlainData
from tui_train.base.text import visible
from tui_train.base.versions import is_at_least_or_unknown, is_known_older
from tui_train.facts.models import nemo_models
from tui_train.facts.models.nemo_models import RecipeDefaults
from tui_train.facts.types import Facts, Gpu, Toolchain
from tui_train.profile.batch import scaled_learning_rate
from tui_train.profile.presets import Preset, PresetArgument
from tui_train.profile.types import Nemo, Profile
from tui_train.trainers import nemo_settings

NemoFlavour = Literal["recipes", "bridge", "automodel"]

RECOMMENDED_IMAGES_TEXT = "nvcr.io/nvidia/nemo:25.04 or newer"
# Values that the file sets itself, besides those that arguments of the attempts change.
PLACEHOLDERS_IN_NEMO_FILE = frozenset(
    {
        "data", "model", "sequence_length", "micro_batch", "global_batch", "accumulation", "learning_rate", "precision",
        "steps", "checkpoint_every", "seed", "activation_checkpointing",
    }
)  # fmt: skip
FILE_NAME_BY_FLAVOUR: dict[NemoFlavour, str] = {
    "recipes": "nemo_recipe.py",
    "bridge": "megatron_bridge.py",
    "automodel": "automodel.yaml",
}
_NUMBER_PATTERN = r"[-+]?(?:\d+\.?\d*(?:E[-+]?\d+)?|nan|inf|NAN|INF)"
# Megatron's progress line; a skipped step has no loss.
_MEGATRON_PROGRESS_LINE_PATTERN = (
    r"\biteration +(?P<step>\d+)/ *(?P<steps>\d+) \|"
    rf"(?:.*\| learning rate: (?P<lr>{_NUMBER_PATTERN}) \|)?(?:.*\| lm loss: (?P<loss>{_NUMBER_PATTERN}) \|)?"
)

_RECIPE_PROGRAM_ARGUMENTS = (
    PresetArgument(("--output={output}",)),
    PresetArgument(("--micro-batch={micro_batch}",)),
    PresetArgument(("--sequence-length={sequence_length}",)),
    PresetArgument(("--activation-checkpointing",), when="activation_checkpointing=yes"),
)
PRESET_BY_FLAVOUR: dict[NemoFlavour, Preset] = {
    "recipes": Preset(label="NeMo recipe", about="a recipe of NVIDIA NeMo", arguments=_RECIPE_PROGRAM_ARGUMENTS),
    "bridge": Preset(
        label="Megatron-Bridge recipe",
        about="a recipe of NVIDIA Megatron-Bridge",
        arguments=_RECIPE_PROGRAM_ARGUMENTS,
        log=(_MEGATRON_PROGRESS_LINE_PATTERN,),
    ),
    "automodel": Preset(
        label="NeMo AutoModel",
        about="NVIDIA's trainer for Hugging Face models",
        # Its file is written completely, so all values need a default.
        defaults={
            "sequence_length": 1024,
            "micro_batch": 1,
            "global_batch": 8,
            "learning_rate": 1e-5,
            "precision": "bf16",
            "activation_checkpointing": False,
            "checkpoint_every": 100,
            "seed": 42,
        },
        arguments=(
            PresetArgument(("--checkpoint.checkpoint_dir={output}",)),
            PresetArgument(("--step_scheduler.local_batch_size={micro_batch}",)),
            PresetArgument(("--distributed.activation_checkpointing=true",), when="activation_checkpointing=yes"),
        ),
    ),
}


def nemo_flavour(toolchain: Toolchain | None) -> NemoFlavour | None:
    """Return the flavour of NeMo that a Python has, None if it has none."""
    if toolchain is None:
        return None
    return next((flavour for flavour, _, lack in _FLAVOURS_BY_PREFERENCE if not lack(toolchain.packages)), None)


def flavour_preference_rank(toolchain: Toolchain | None) -> int:
    """Return the rank of a Python among those that have NeMo; the lowest is preferred."""
    flavours = [flavour for flavour, *_ in _FLAVOURS_BY_PREFERENCE]
    current = nemo_flavour(toolchain)
    return flavours.index(current) if current else len(flavours)


def why_nemo_unusable(packages: dict[str, str]) -> str:
    """Return what these packages lack to train with NeMo, as words that follow "has"; empty if nothing."""
    if not all(lack(packages) for *_, lack in _FLAVOURS_BY_PREFERENCE):
        return ""
    return next(
        (lack(packages) for _, name, lack in _FLAVOURS_BY_PREFERENCE if name in packages), _why_no_recipes(packages)
    )


def nemo_package_names() -> tuple[str, ...]:
    """Return the names of the packages that train with NeMo."""
    return tuple(name for _, name, _ in _FLAVOURS_BY_PREFERENCE)


def _why_missing_or_older(package: str, minimum: str, packages: dict[str, str]) -> str:
    version = packages.get(package)
    if version is None:
        return f"no {package}"
    return "" if is_at_least_or_unknown(version, minimum) else f"{package} {version}, but {minimum} or newer is needed"


def _why_no_recipes(packages: dict[str, str]) -> str:
    version = packages.get("nemo_toolkit")
    if version is None:
        return "no nemo_toolkit"
    if is_at_least_or_unknown(version, "3"):
        return f"nemo_toolkit {version}, but its language-model recipes were removed after 2.7"
    if is_known_older(version, "2.3"):
        return f"nemo_toolkit {version}, but 2.3 or newer is needed"
    return "" if "nemo_run" in packages else f"nemo_toolkit {version}, but no nemo_run"


# Flavours in order of preference, each with its package and the function that returns what is missing.
_FLAVOURS_BY_PREFERENCE: tuple[tuple[NemoFlavour, str, Callable[[dict[str, str]], str]], ...] = (
    ("recipes", "nemo_toolkit", _why_no_recipes),
    ("bridge", "megatron-bridge", partial(_why_missing_or_older, "megatron-bridge", "0.3")),
    ("automodel", "nemo_automodel", partial(_why_missing_or_older, "nemo_automodel", "0.4")),
)


def can_set_model_size(profile: Profile, flavour: NemoFlavour | None) -> bool:
    """Return whether the model size can differ from the recipe's: not if weights are loaded."""
    return not (flavour == "automodel" or profile.nemo.task == "finetune" or profile.trainer.model)


def required_recipe_task(nemo: Nemo, flavour: NemoFlavour | None) -> str:
    """Return the task that the recipe must support; Megatron-Bridge has a separate one for LoRA."""
    return "lora" if flavour == "bridge" and nemo.task == "finetune" and nemo.peft == "lora" else nemo.task


def known_recipe_defaults(nemo: Nemo, flavour: NemoFlavour | None) -> RecipeDefaults | None:
    """Return what the recipe sets by itself, None if it is unknown."""
    name = (nemo.recipe, nemo.task if nemo.task == "pretrain" else nemo.peft)
    return nemo_models.known_defaults_by_recipe_and_task().get(name) if flavour == "recipes" else None


def model_parallel_sizes(nemo: Nemo, flavour: NemoFlavour | None) -> dict[str, int]:
    """Return the sizes in force of tensor, pipeline and context parallel: chosen, else the recipe's own, else 1."""
    defaults = known_recipe_defaults(nemo, flavour)
    names = ("tensor_parallel", "pipeline_parallel", "context_parallel")
    return {name: getattr(nemo, name) or (getattr(defaults, name) if defaults else 1) for name in names}


def gpus_per_model_copy(nemo: Nemo, flavour: NemoFlavour | None) -> int:
    """Return the number of GPUs that share one copy of the model."""
    return math.prod(model_parallel_sizes(nemo, flavour).values())


def data_files_to_open(profile: Profile) -> tuple[str, ...]:
    """Return the data files that NeMo opens: the index of each .bin, or the .jsonl files of a folder."""
    trainer = profile.trainer
    if profile.nemo.task == "pretrain":
        named = (*trainer.data, *trainer.validation_data, *trainer.test_data)
        return tuple(f"{path.removesuffix('.bin')}.idx" for path in named)
    return tuple(f"{path}/{name}.jsonl" for path in trainer.data for name in ("training", "validation"))


def is_valid_recipe_name(recipe: str) -> bool:
    """Return whether a recipe's name is a valid Python name."""
    return recipe.isidentifier() and recipe.isascii() and not keyword.iskeyword(recipe)


class NemoFile(Struct, frozen=True, kw_only=True):
    """The training that the file describes; None leaves a value to the recipe."""

    path: str
    """Its name, which depends on the flavour of NeMo."""
    recipe: str
    task: str
    peft: str
    data: tuple[str, ...]
    """Empty: mock data."""
    validation: bool
    """There is validation data."""
    tokenizer: str
    model: str
    """A folder of initial weights."""
    gpus: int
    nodes: int
    tensor_parallel: int | None
    pipeline_parallel: int | None
    context_parallel: int | None
    layers: int | None
    hidden_size: int | None
    ffn_hidden_size: int | None
    heads: int | None
    sequence_length: int | None
    micro_batch: int | None
    global_batch: int | None
    learning_rate: float | None
    precision: str | None
    steps: int | None
    warmup: float | None
    checkpoint_every: int | None
    seed: int | None
    validation_data: tuple[str, ...] = ()
    test_data: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Model settings to turn off because their libraries are missing."""
    more: tuple[tuple[str, PlainData], ...] = ()
    """Settings of the user."""


def build_nemo_file(
    profile: Profile, flavour: NemoFlavour | None, gpus: tuple[Gpu, ...], facts: Facts, toolchain: Toolchain | None
) -> NemoFile:
    """Return the content of the file that configures NeMo."""
    trainer, nemo, recipe = profile.trainer, profile.nemo, profile.recipe
    own_size = can_set_model_size(profile, flavour)
    validation_file = facts.paths.get(
        data_files_to_open(profile)[-1] if trainer.data else "", "file" if facts.other_machine else "missing"
    )
    validating = nemo.task == "pretrain" or validation_file == "file"
    return NemoFile(
        path=FILE_NAME_BY_FLAVOUR[flavour or "recipes"],
        recipe=nemo.recipe,
        task=nemo.task,
        peft=nemo.peft,
        data=() if nemo.mock_data else trainer.data,
        validation=validating or nemo.mock_data,
        tokenizer=nemo.tokenizer,
        model=trainer.model,
        gpus=len(gpus),
        nodes=profile.nodes.machine_count,
        tensor_parallel=nemo.tensor_parallel,
        pipeline_parallel=nemo.pipeline_parallel,
        context_parallel=nemo.context_parallel,
        layers=recipe.layers if own_size else None,
        hidden_size=recipe.hidden_size if own_size else None,
        ffn_hidden_size=recipe.ffn_hidden_size if own_size else None,
        heads=recipe.heads if own_size else None,
        sequence_length=recipe.sequence_length,
        micro_batch=recipe.micro_batch,
        global_batch=recipe.global_batch,
        learning_rate=scaled_learning_rate(recipe),
        precision=recipe.precision,
        steps=recipe.steps,
        warmup=recipe.warmup,
        checkpoint_every=recipe.checkpoint_every,
        seed=recipe.seed,
        validation_data=trainer.validation_data,
        test_data=trainer.test_data,
        without=nemo_settings.model_settings_to_turn_off(toolchain) if flavour == "recipes" else (),
        more=tuple((name, nemo_settings.parse_setting_value(text)) for name, text in nemo.set.items()),
    )


def variables_for_split_model(nemo: Nemo, flavour: NemoFlavour | None, gpus: tuple[Gpu, ...]) -> tuple[EnvSetting, ...]:
    """Return the environment variables for a model that is split over GPUs."""
    sizes = model_parallel_sizes(nemo, flavour)
    before_blackwell = all((gpu.compute_capability or "0").partition(".")[0] in {"7", "8", "9"} for gpu in gpus)
    if sizes["tensor_parallel"] * sizes["context_parallel"] == 1 or not before_blackwell:
        return ()
    why = "tensor or context parallel: lets communication overlap with computation"
    return (EnvSetting("CUDA_DEVICE_MAX_CONNECTIONS", "1", why, "launcher"),)


def nemo_script_notes(
    profile: Profile, flavour: NemoFlavour | None, facts: Facts, toolchain: Toolchain | None
) -> tuple[str, ...]:
    """Return notes for the reader of the script."""
    notes = []
    if flavour == "recipes" and len(nemo_settings.model_settings_to_turn_off(toolchain)) > 1:
        notes.append(
            "Without Transformer Engine and Apex the recipe's fused kernels are off, and PyTorch's AdamW is used."
        )
    if facts.other_machine and profile.nemo.task == "finetune" and profile.trainer.data:
        notes.append(
            f"It validates on {visible(data_files_to_open(profile)[-1])}, whose existence could not be checked."
        )
    if profile.nemo.mock_data:
        notes.append("MOCK DATA: trains on random tokens to test whether it runs; the model learns nothing useful.")
    if flavour == "bridge":
        notes.append("Uses Megatron-Bridge, because this Python does not have NeMo's recipes.")
    if flavour == "automodel":
        notes.append("Uses AutoModel, because this Python does not have NeMo's recipes.")
    return tuple(notes)
