"""Checks of what is set besides a NeMo recipe's own values, and of what NeMo trains with instead of recipes."""

import shlex
from collections.abc import Iterator, Mapping

from tui_train.base.errors import BadInput
from tui_train.base.versions import is_at_least_or_unknown
from tui_train.checks.finding import Finding, error, note
from tui_train.facts.models.nemo_models import NEMO_SIZE_NAMES, known_model_and_sizes_by_recipe
from tui_train.facts.types import Facts
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile, Recipe
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo, nemo_settings

# The first version that reads Hugging Face weights directly.
_MIN_BRIDGE_VERSION_READING_HUGGING_FACE = "0.6"


def lora_without_transformer_engine(setup: Setup) -> Iterator[Finding]:
    """LoRA, for which NeMo compares every layer with one of Transformer Engine."""
    chosen, tools = setup.profile.nemo, setup.toolchain
    if setup.nemo_flavour != "recipes" or chosen.task != "finetune" or chosen.peft != "lora" or tools is None:
        return
    if "transformer-engine" in tools.packages:
        return
    yield error(
        "nemo.peft",
        f"LoRA in NeMo needs Transformer Engine, which {tools.python} does not have",
        f"Train in an image, {nemo.RECOMMENDED_IMAGES_TEXT}, which has it; "
        "or install it there (`pip install --no-build-isolation 'transformer_engine[pytorch]'`: it is compiled, which "
        "needs the CUDA toolkit with nvcc); or finetune all weights (nemo.peft=none).",
        change=Change("finetune all weights", "without LoRA: it takes much more memory", (("nemo.peft", "none"),)),
    )


def unsuitable_weights(setup: Setup) -> Iterator[Finding]:
    """Weights that a recipe cannot start from: none of a NeMo checkpoint, or of another size than the recipe's."""
    profile, facts = setup.profile, setup.facts
    model = profile.trainer.model
    if setup.nemo_flavour != "recipes" or not model or facts.paths.get(model, "folder") != "folder":
        return
    if facts.paths.get(f"{model}/context", "folder") == "folder":
        yield from _checkpoint_size_differences(profile, facts)
        return
    if facts.paths.get(f"{model}/config.json") == "file":
        target = f"{model.rstrip('/')}-nemo"
        message = f"{model} is a Hugging Face folder, and a NeMo recipe starts from a NeMo checkpoint"
        words = shlex.join(["tui-train", "nemo", "import", model, target])
        remedy = f"Convert it: {words}, or press i on Backend."
    else:
        message = f"{model} is not a NeMo 2 checkpoint: the folder context/ is missing"
        remedy = "Name a folder with context/ and weights/ in it; NeMo itself converts checkpoints of NeMo 1."
    yield error("trainer.model", message, remedy)


def _checkpoint_size_differences(profile: Profile, facts: Facts) -> Iterator[Finding]:
    model, chosen = profile.trainer.model, profile.nemo
    checkpoint = facts.checkpoints.get(model)
    if checkpoint is None:
        return
    if checkpoint.problem:
        message = f"{model} cannot be used: {checkpoint.problem}"
        yield error("trainer.model", message, "Name a complete NeMo 2 checkpoint.")
        return
    recipe_sizes = known_model_and_sizes_by_recipe().get(chosen.recipe)
    if recipe_sizes is None:
        return
    overrides = {name: chosen.set.get(f"model.config.{name}") for name in NEMO_SIZE_NAMES}
    differences = []
    if checkpoint.model and checkpoint.model != recipe_sizes.model:
        differences.append(f"a {checkpoint.model} for a {recipe_sizes.model}")
    for name in NEMO_SIZE_NAMES:
        actual, expected = checkpoint.numbers.get(name), overrides[name] or recipe_sizes.numbers.get(name)
        if actual is not None and expected is not None and str(actual) != str(expected):
            differences.append(f"{name} {actual} for {expected}")
    if differences:
        matching = [
            name
            for name, size in known_model_and_sizes_by_recipe().items()
            if (size.model, size.numbers) == (checkpoint.model, checkpoint.numbers)
        ]
        change = None
        if matching and not any(overrides.values()):
            why = "its model has the checkpoint's size"
            change = Change(f"recipe {matching[0]}", why, (("nemo.recipe", matching[0]),))
        yield error(
            "trainer.model",
            f"{model} does not fit {chosen.recipe}: {', '.join(differences)}",
            "Name a checkpoint of that size (trainer.model), or the recipe of this checkpoint (nemo.recipe).",
            change=change,
        )


def unused_validation_and_test_data(setup: Setup) -> Iterator[Finding]:
    """Data for validation and test, which only NeMo's recipes to pretrain take by path."""
    profile = setup.profile
    trainer = profile.trainer
    set_keys = tuple(key for key in ("validation_data", "test_data") if getattr(trainer, key))
    if not set_keys:
        return
    without_data = Change(
        "no data for validation and test", "it cannot be passed", tuple((f"trainer.{key}", ()) for key in set_keys)
    )
    message = remedy = ""
    if profile.nemo.mock_data:
        message = "mock data is on, so your validation and test data would not be read"
        remedy = "Switch it off (nemo.mock_data), or leave that data out."
    elif profile.nemo.task == "finetune":
        message = "NeMo finetunes with the validation and test data in the folder of the training data"
        remedy = "Put them there as validation.jsonl and test.jsonl."
    elif setup.nemo_flavour == "bridge":
        message = "Megatron-Bridge takes no validation or test data here"
        remedy = "Leave it out (trainer.validation_data, trainer.test_data)."
    elif not trainer.validation_data:
        message = "NeMo takes test data only with validation data"
        remedy = "Name validation data too (trainer.validation_data)."
    if message:
        yield error(f"trainer.{set_keys[0]}", message, remedy, change=without_data)
    elif trainer.test_data:
        message = "NeMo does not evaluate on the test data while it pretrains"
        yield note("trainer.test_data", message, "Evaluate the checkpoint yourself, after the training.")


def _has_chosen_model_size(recipe: Recipe) -> bool:
    return any(size is not None for size in (recipe.layers, recipe.hidden_size, recipe.ffn_hidden_size, recipe.heads))


def invalid_recipe_settings(setup: Setup) -> Iterator[Finding]:
    """Settings of the recipe by the user with names or values that cannot be written, or that the plan sets."""
    profile = setup.profile
    chosen = profile.nemo
    if not chosen.set:
        return
    if setup.nemo_flavour in {"bridge", "automodel"}:
        change = Change("no more settings", "they cannot be passed", (("nemo.set", {}),))
        message, remedy = "settings (nemo.set) work with NeMo's own recipes only", "Leave nemo.set empty."
        yield error("nemo.set", message, remedy, change=change)
        return
    for name, text in chosen.set.items():
        rest = {key: value for key, value in chosen.set.items() if key != name}
        change = Change("without that setting", "it cannot be passed", (("nemo.set", rest),))
        why, remedy = nemo_settings.why_setting_refused_and_remedy(
            name, recipe_size_kept=not _has_chosen_model_size(profile.recipe)
        )
        if why:
            message = f"{name} {why}"
            yield error("nemo.set", message, remedy, change=change)
            continue
        try:
            nemo_settings.parse_setting_value(text)
        except BadInput as invalid:
            message = f"{name}: {invalid.message}"
            yield error("nemo.set", message, invalid.remedy, change=change)


def _why_no_recipes_text(packages: Mapping[str, str]) -> str:
    toolkit = packages.get("nemo_toolkit")
    return f"nemo_toolkit {toolkit} has no recipes any more" if toolkit else "this Python has no nemo_toolkit"


def automodel_instead_of_recipes(setup: Setup) -> Iterator[Finding]:
    """AutoModel in place of recipes: what that means, and what it needs."""
    profile = setup.profile
    if setup.nemo_flavour != "automodel" or setup.toolchain is None:
        return
    packages = setup.toolchain.packages
    yield note(
        "trainer.kind",
        f"{_why_no_recipes_text(packages)}: NeMo AutoModel {packages['nemo_automodel']}"
        " trains a Hugging Face model instead",
        f"To train by a recipe: tui-train env create nemo, or an image {nemo.RECOMMENDED_IMAGES_TEXT}.",
    )
    if profile.nemo.task != "finetune":
        change = Change("finetune", "AutoModel starts from a model's weights", (("nemo.task", "finetune"),))
        message = "tui-train starts AutoModel only for a finetune"
        remedy = "Choose finetune (nemo.task), or a Python with NeMo's recipes (tui-train env create nemo)."
        yield error("nemo.task", message, remedy, change=change)
    if not profile.trainer.model:
        message, remedy = "AutoModel needs a model to start from", "Name a Hugging Face folder (trainer.model)."
        yield error("trainer.model", message, remedy)


def bridge_instead_of_recipes(setup: Setup) -> Iterator[Finding]:
    """Megatron-Bridge in place of NeMo's recipes, or a checkpoint that it cannot start from."""
    profile = setup.profile
    if setup.nemo_flavour != "bridge" or setup.toolchain is None:
        return
    packages = setup.toolchain.packages
    version = packages["megatron-bridge"]
    yield note(
        "trainer.kind",
        f"{_why_no_recipes_text(packages)}: Megatron-Bridge {version} trains its recipe of that name instead",
        "Megatron-Bridge reads the model's config.json from huggingface.co, or from the cache (HF_HOME).",
    )
    model = profile.trainer.model
    convert = 'python -c \'from megatron.bridge import AutoBridge; AutoBridge.import_ckpt("HF", "FOLDER")\''
    if profile.nemo.task == "finetune" and not model:
        yield error(
            "trainer.model",
            "no model is named: a finetune by Megatron-Bridge starts from a checkpoint",
            f"Name the checkpoint's folder (trainer.model). To make one from a Hugging Face model: {convert}.",
        )
    elif (
        model
        and not is_at_least_or_unknown(version, _MIN_BRIDGE_VERSION_READING_HUGGING_FACE)
        and setup.facts.paths.get(f"{model}/config.json") == "file"
    ):
        yield error(
            "trainer.model",
            f"{model} is a Hugging Face folder: Megatron-Bridge {version} needs it converted",
            f"{convert}, and name FOLDER (trainer.model).",
        )
