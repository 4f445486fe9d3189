"""NeMo: what an installed version of it can be told, and the file by which it is told.

Recipes by name are in nemo_toolkit 2.3 to 2.7 and were taken out of 3.0. Megatron-Bridge, in NVIDIA's newer images, has
them under the same names; AutoModel, on PyPI, finetunes models of Hugging Face. All find their newest checkpoint
themselves. Each runs as one process a GPU under the launchers of this program:
NeMo-Run's LocalExecutor would start the same processes, but ends with 0 when they fail.
"""

import keyword
from collections.abc import Callable
from typing import Literal

import msgspec

from tui_train.base.command import Part, Setting, in_run_dir
from tui_train.base.text import visible
from tui_train.base.versions import at_least, older
from tui_train.facts.types import Facts, Gpu, Toolchain
from tui_train.presets import Argument, Preset
from tui_train.profile.batch import learning_rate
from tui_train.profile.types import Nemo, Profile
from tui_train.trainers import nemo_settings
from tui_train.trainers.nemo_file import NemoFile

Flavour = Literal["recipes", "bridge", "automodel"]

IMAGES = "nvcr.io/nvidia/nemo:25.04 or newer"
_SIZE = frozenset({"layers", "hidden_size", "heads"})
# What the file says itself, besides what its arguments change.
_WRITTEN = frozenset(
    {
        "data", "model", "sequence_length", "micro_batch", "global_batch", "accumulation", "learning_rate", "precision",
        "steps", "checkpoint_every", "seed", "activation_checkpointing",
    }
)  # fmt: skip
FILES: dict[Flavour, str] = {
    "recipes": "nemo_recipe.py",
    "bridge": "megatron_bridge.py",
    "automodel": "automodel.yaml",
}
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:E[-+]?\d+)?|nan|inf|NAN|INF)"
# Megatron's line about the steps since the one before; a step that was skipped has no loss.
_LINE = (
    r"\biteration +(?P<step>\d+)/ *(?P<steps>\d+) \|"
    rf"(?:.*\| learning rate: (?P<lr>{_NUMBER}) \|)?(?:.*\| lm loss: (?P<loss>{_NUMBER}) \|)?"
)

_OF_A_RECIPE = (
    Argument(("--output={output}",)),
    Argument(("--micro-batch={micro_batch}",)),
    Argument(("--sequence-length={sequence_length}",)),
    Argument(("--activation-checkpointing",), when="activation_checkpointing=yes"),
)
PRESETS: dict[Flavour, Preset] = {
    "recipes": Preset(label="NeMo recipe", about="a recipe of NVIDIA NeMo by its name", arguments=_OF_A_RECIPE),
    "bridge": Preset(
        label="Megatron-Bridge recipe",
        about="a recipe of NVIDIA Megatron-Bridge by its name",
        arguments=_OF_A_RECIPE,
        log=(_LINE,),
    ),
    "automodel": Preset(
        label="NeMo AutoModel",
        about="NVIDIA's trainer of Hugging Face models",
        # Its file is written whole, so that it needs all of them.
        own={
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
            Argument(("--checkpoint.checkpoint_dir={output}",)),
            Argument(("--step_scheduler.local_batch_size={micro_batch}",)),
            Argument(("--distributed.activation_checkpointing=true",), when="activation_checkpointing=yes"),
        ),
    ),
}


def flavour(toolchain: Toolchain | None) -> Flavour | None:
    """Return which NeMo a Python can be told to train with."""
    if toolchain is None:
        return None
    return next((kind for kind, _, lack in _KINDS if not lack(toolchain.packages)), None)


def order(toolchain: Toolchain) -> int:
    """Return the place of a Python among those that train with NeMo; the first is preferred."""
    kinds = [kind for kind, *_ in _KINDS]
    found = flavour(toolchain)
    return kinds.index(found) if found else len(kinds)


def lacks(packages: dict[str, str]) -> str:
    """Return what packages lack to train with NeMo, in words that follow "has"; empty when nothing."""
    if not all(lack(packages) for *_, lack in _KINDS):
        return ""
    return next((lack(packages) for _, name, lack in _KINDS if name in packages), _lacks_recipes(packages))


def packages() -> tuple[str, ...]:
    """Return the names of the packages that train with NeMo."""
    return tuple(name for _, name, _ in _KINDS)


def _lacks_automodel(packages: dict[str, str]) -> str:
    found = packages.get("nemo_automodel")
    if found is None:
        return "no nemo_automodel"
    return "" if at_least(found, "0.4") else f"nemo_automodel {found}, and the YAML used here begins with 0.4"


def _lacks_recipes(packages: dict[str, str]) -> str:
    found = packages.get("nemo_toolkit")
    if found is None:
        return "no nemo_toolkit"
    if at_least(found, "3"):
        return f"nemo_toolkit {found}, whose language-model recipes are gone (2.7 was the last with them)"
    if older(found, "2.3"):
        return f"nemo_toolkit {found}, and the recipes used here begin with 2.3"
    return "" if "nemo_run" in packages else f"nemo_toolkit {found}, but no nemo_run"


def _lacks_bridge(packages: dict[str, str]) -> str:
    found = packages.get("megatron-bridge")
    if found is None:
        return "no megatron-bridge"
    return "" if at_least(found, "0.3") else f"megatron-bridge {found}, and the recipes used here begin with 0.3"


# The package of each, and what tells its lacks; those before are preferred.
_KINDS: tuple[tuple[Flavour, str, Callable[[dict[str, str]], str]], ...] = (
    ("recipes", "nemo_toolkit", _lacks_recipes),
    ("bridge", "megatron-bridge", _lacks_bridge),
    ("automodel", "nemo_automodel", _lacks_automodel),
)


def preset(profile: Profile, found: Flavour | None) -> Preset:
    """Return how the values that an attempt may change reach NeMo."""
    chosen = PRESETS[found or "recipes"]
    more: tuple[Argument, ...] = ()
    if found == "automodel":
        length = "max_sentence_len" if profile.nemo.mock_data else "seq_length"
        more = (Argument((f"--dataset.{length}={{sequence_length}}",)),)
    elif takes_size(profile, found) and profile.recipe.layers is not None:
        more = (Argument(("--layers={layers}",)),)
    return msgspec.structs.replace(chosen, arguments=(*chosen.arguments, *more))


def takes(profile: Profile, found: Flavour | None) -> frozenset[str]:
    """Return the placeholder names whose values reach NeMo."""
    size = _SIZE if takes_size(profile, found) else frozenset()
    return _WRITTEN | {"output", "validation_data", "test_data"} | size


def takes_size(profile: Profile, found: Flavour | None) -> bool:
    """Tell whether the model may have another size than the recipe's: never where weights are loaded."""
    return not (found == "automodel" or profile.nemo.task == "finetune" or profile.trainer.model)


def task(nemo: Nemo, found: Flavour | None) -> str:
    """Return the task that a recipe must be there for: in Megatron-Bridge a finetune with LoRA is one of its own."""
    return "lora" if found == "bridge" and nemo.task == "finetune" and nemo.peft == "lora" else nemo.task


def split(nemo: Nemo) -> int:
    """Return over how many GPUs one copy of the model is split."""
    return nemo.tensor_parallel * nemo.pipeline_parallel * nemo.context_parallel


def files_of(profile: Profile) -> tuple[str, ...]:
    """Return the files that NeMo opens where the profile names data: the index of a .bin, the .jsonl of a folder."""
    trainer = profile.trainer
    if profile.nemo.task == "pretrain":
        named = (*trainer.data, *trainer.validation_data, *trainer.test_data)
        return tuple(f"{path.removesuffix('.bin')}.idx" for path in named)
    return tuple(f"{path}/{name}.jsonl" for path in trainer.data for name in ("training", "validation"))


def attribute(recipe: str) -> bool:
    """Tell whether a recipe's name can be one in Python."""
    return recipe.isidentifier() and recipe.isascii() and not keyword.iskeyword(recipe)


def program(found: Flavour | None) -> tuple[Part, ...]:
    """Return the words of the program and its file."""
    if found == "automodel":
        return (
            Part(("-m", "nemo_automodel.cli.app"), "AutoModel's command line"),
            Part((in_run_dir(FILES["automodel"]),)),
        )
    kind = found or "recipes"
    who = "Megatron-Bridge" if kind == "bridge" else "NeMo"
    return (Part((in_run_dir(FILES[kind]),), f"{who} resumes by itself from its newest checkpoint"),)


def file(
    profile: Profile, found: Flavour | None, gpus: tuple[Gpu, ...], facts: Facts, toolchain: Toolchain | None
) -> NemoFile:
    """Return what NeMo is told."""
    trainer, nemo, recipe = profile.trainer, profile.nemo, profile.recipe
    mine = takes_size(profile, found)
    there = facts.paths.get(files_of(profile)[-1] if trainer.data else "", "file" if facts.elsewhere else "missing")
    validating = nemo.task == "pretrain" or there == "file"
    return NemoFile(
        path=FILES[found or "recipes"],
        recipe=nemo.recipe,
        task=nemo.task,
        peft=nemo.peft,
        data=() if nemo.mock_data else trainer.data,
        validation=validating or nemo.mock_data,
        tokenizer=nemo.tokenizer,
        model=trainer.model,
        gpus=len(gpus),
        nodes=profile.nodes.count,
        tensor_parallel=nemo.tensor_parallel,
        pipeline_parallel=nemo.pipeline_parallel,
        context_parallel=nemo.context_parallel,
        layers=recipe.layers if mine else None,
        hidden_size=recipe.hidden_size if mine else None,
        heads=recipe.heads if mine else None,
        sequence_length=recipe.sequence_length,
        micro_batch=recipe.micro_batch,
        global_batch=recipe.global_batch,
        learning_rate=learning_rate(recipe),
        precision=recipe.precision,
        steps=recipe.steps,
        checkpoint_every=recipe.checkpoint_every,
        seed=recipe.seed,
        validation_data=trainer.validation_data,
        test_data=trainer.test_data,
        without=nemo_settings.unfused(toolchain) if found == "recipes" else (),
        more=tuple((name, nemo_settings.value(text)) for name, text in nemo.set.items()),
    )


def settings(nemo: Nemo, gpus: tuple[Gpu, ...]) -> tuple[Setting, ...]:
    """Return the variables that a split model needs."""
    before_blackwell = all((gpu.compute_capability or "0").partition(".")[0] in {"7", "8", "9"} for gpu in gpus)
    if nemo.tensor_parallel * nemo.context_parallel == 1 or not before_blackwell:
        return ()
    why = "layers or tokens are split: exchange and computation stay in order, so that they overlap"
    return (Setting("CUDA_DEVICE_MAX_CONNECTIONS", "1", why, "launcher"),)


def notes(profile: Profile, found: Flavour | None, facts: Facts, toolchain: Toolchain | None) -> tuple[str, ...]:
    """Return what whoever reads the script must know."""
    said = []
    if found == "recipes" and len(nemo_settings.unfused(toolchain)) > 1:
        said.append("Without Transformer Engine and Apex the recipe's fused kernels are off: PyTorch's AdamW trains.")
    if facts.elsewhere and profile.nemo.task == "finetune" and profile.trainer.data:
        said.append(f"It validates on {visible(files_of(profile)[-1])}, which could not be looked for.")
    if profile.nemo.mock_data:
        said.append("MOCK DATA: it trains on random tokens, only to see whether it runs. Nothing useful is learnt.")
    if found == "bridge":
        said.append("Megatron-Bridge takes the place of NeMo's recipes, which this Python does not have.")
    if found == "automodel":
        said.append("AutoModel takes the place of NeMo's recipes, which this Python does not have.")
    return tuple(said)
