"""Checks of NeMo: the recipe's name, its data, how the model is split, and what it cannot do."""

import difflib
import math
from collections.abc import Iterator

from tui_train.base.text import quantity
from tui_train.checks.finding import Finding, error, warning
from tui_train.facts.models import nemo_models
from tui_train.facts.types import Facts
from tui_train.launchers import LAUNCHERS, capable_launchers_text
from tui_train.profile.batch import nearest_multiples
from tui_train.profile.changes import Change
from tui_train.profile.fields import similar_word_remedy
from tui_train.profile.types import Profile, Recipe
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo

_SUGGESTED_RECIPE = "qwen25_500m"
_EXPERT_PARALLEL_SETTING = "trainer.strategy.expert_model_parallel_size"
_EXPERT_TENSOR_PARALLEL_SETTING = "trainer.strategy.expert_tensor_parallel_size"
_VOCABULARY_SIZE_SETTING = "model.config.vocab_size"
_PREFIXES_OF_RECIPES_WITHOUT_LORA = ("hyena_", "mamba2_", "nemotronh_")


def missing_or_unusable_recipe(setup: Setup) -> Iterator[Finding]:
    """A recipe that does not exist, or not for the chosen task."""
    profile, facts = setup.profile, setup.facts
    if setup.nemo_flavour == "automodel":
        return
    name, task = profile.nemo.recipe, nemo.required_recipe_task(profile.nemo, setup.nemo_flavour)
    python = setup.toolchain.python if setup.toolchain else ""
    tasks_by_name, from_python = nemo_models.tasks_by_recipe_and_whether_probed(facts, python, setup.nemo_flavour)
    names = tuple(recipe_name for recipe_name, tasks in tasks_by_name.items() if task in tasks)
    if not name:
        suggested = _SUGGESTED_RECIPE if _SUGGESTED_RECIPE in names or not names else names[0]
        change = Change(f"recipe {suggested}", "a small model", (("nemo.recipe", suggested),))
        remedy = "Name one (nemo.recipe), such as qwen25_500m; `tui-train recipes` lists them."
        yield error("nemo.recipe", "no NeMo recipe is named", remedy, change=change)
    elif not nemo.is_valid_recipe_name(name) or name not in names:
        whose = _recipe_owner_clause(setup.nemo_flavour, from_python=from_python)
        yield _unknown_recipe_finding(
            name, task, names, whose, certain=from_python or not nemo.is_valid_recipe_name(name)
        )
    problem = facts.recipes[python].problem if python in facts.recipes else ""
    if problem:
        message = f"the recipes of {python} cannot be listed: {problem}"
        remedy = "Make a Python with NeMo: tui-train env create nemo. Then choose it (trainer.python)."
        yield warning("nemo.recipe", message, remedy)
    if (
        setup.nemo_flavour != "bridge"
        and task == "finetune"
        and profile.nemo.peft == "lora"
        and name.startswith(_PREFIXES_OF_RECIPES_WITHOUT_LORA)
    ):
        change = Change("finetune all weights", "this recipe has no LoRA", (("nemo.peft", "none"),))
        message, remedy = f"{name} cannot be finetuned with LoRA", "Finetune all weights: nemo.peft=none."
        yield error("nemo.peft", message, remedy, change=change)
    if setup.nemo_flavour == "recipes":
        yield from _missing_initial_weights(profile)


def _missing_initial_weights(profile: Profile) -> Iterator[Finding]:
    """A finetune by a recipe for which no NeMo checkpoint is named, from whose weights it would start."""
    if profile.nemo.task != "finetune" or profile.trainer.model:
        return
    contained = profile.container.engine != "none"
    where = (
        "the image, and there are none" if contained else "$NEMO_HOME/models, where they are only if you converted them"
    )
    yield (error if contained else warning)(
        "trainer.model",
        f"no model is named: the recipe looks for its weights in {where}",
        "Name a NeMo checkpoint (trainer.model); `tui-train nemo import` makes one of a Hugging Face folder.",
    )


def _recipe_owner_clause(flavour: nemo.NemoFlavour | None, *, from_python: bool) -> str:
    if flavour == "bridge":
        return "this Megatron-Bridge has" if from_python else "Megatron-Bridge 0.3 and 0.6 are known to have"
    return "this NeMo has" if from_python else "NeMo 2.7 is known to have"


def _unknown_recipe_finding(
    name: str, task: str, known_names: tuple[str, ...], owner_clause: str, *, certain: bool
) -> Finding:
    close = difflib.get_close_matches(name, known_names, n=3, cutoff=0.6)
    change = Change(f"recipe {close[0]}", "the nearest name", (("nemo.recipe", close[0]),)) if close else None
    what = "finetune with LoRA" if task == "lora" else task
    remedy = f"Nearest: {', '.join(close)}." if close else similar_word_remedy(name, known_names[:8])
    return (error if certain else warning)(
        "nemo.recipe",
        f"{name} is not a recipe to {what} that {owner_clause}",
        f"{remedy} `tui-train recipes` lists those of the Python.",
        change=change,
    )


def missing_or_mock_data(setup: Setup) -> Iterator[Finding]:
    """No data of the user, or mock data that the user asked for."""
    profile = setup.profile
    chosen, trainer = profile.nemo, profile.trainer
    use_mock = Change("mock data", "random tokens: only to see whether it runs", (("nemo.mock_data", True),))
    use_data = Change(
        "train on the data", "it is named, and mock data would leave it unread", (("nemo.mock_data", False),)
    )
    if chosen.mock_data and trainer.data:
        message = "mock data is on, so your data would not be read"
        remedy = "Switch it off (nemo.mock_data), or name no data (trainer.data)."
        yield error("nemo.mock_data", message, remedy, change=use_data)
    elif chosen.mock_data:
        message = "MOCK DATA: the model trains on random tokens, and learns nothing useful"
        remedy = "Once it runs, name your data (trainer.data)."
        yield warning("nemo.mock_data", message, remedy)
    elif not trainer.data:
        wants = {
            "pretrain": "Name .bin files (trainer.data); `tui-train nemo prepare` makes them of text.",
            "finetune": "Name the folder with training.jsonl (trainer.data).",
        }[chosen.task]
        message, remedy = "no data is named", f"{wants} Or try it with random tokens (nemo.mock_data)."
        yield error("trainer.data", message, remedy, change=use_mock)
    else:
        yield from _unusable_data_paths(profile, setup.facts)
    if chosen.task == "pretrain" and not (chosen.tokenizer or chosen.mock_data):
        yield from _missing_tokenizer(setup)


def _missing_tokenizer(setup: Setup) -> Iterator[Finding]:
    """Data to pretrain on without its tokenizer: a recipe of NeMo has another one, of Megatron-Bridge none."""
    if setup.nemo_flavour == "recipes":
        message = "no tokenizer is named, so NeMo takes that of GPT-2: right only if the data was prepared with it"
    elif setup.nemo_flavour == "bridge" and setup.profile.trainer.data:
        message = (
            "no tokenizer is named: the token ids of the data are used as they are, and must fit the recipe's model"
        )
    else:
        return
    remedy = "Name the Hugging Face folder that the data was prepared with (nemo.tokenizer)."
    yield warning("nemo.tokenizer", message, remedy)


def _unusable_data_paths(profile: Profile, facts: Facts) -> Iterator[Finding]:
    if profile.nemo.task == "pretrain":
        for name in ("data", "validation_data", "test_data"):
            for path in getattr(profile.trainer, name):
                yield from _unusable_bin_file(f"trainer.{name}", path, facts)
        return
    folder, *others = profile.trainer.data
    if others:
        message = "NeMo finetunes on the data of one folder only"
        remedy = "Put all samples into one training.jsonl, and name its folder (trainer.data)."
        yield error("trainer.data", message, remedy)
    elif facts.paths.get(f"{folder}/training.jsonl", "file") != "file":
        message = f"data: there is no training.jsonl in {folder}"
        remedy = 'Write one sample a line: {"input": "…", "output": "…"}.'
        yield error("trainer.data", message, remedy)


def _unusable_bin_file(key: str, path: str, facts: Facts) -> Iterator[Finding]:
    """A path that is no .bin file, or one without its index."""
    if not path.endswith(".bin"):
        message = f"data: {path} is not a .bin file"
        remedy = (
            "Name the .bin file (its .idx must lie beside it). To make one from text: `tui-train nemo prepare`, or p on"
            " Backend."
        )
        yield error(key, message, remedy)
    elif facts.paths.get(index := f"{path.removesuffix('.bin')}.idx", "file") != "file":
        message = f"data: {index}, the index of that .bin, cannot be read"
        yield error(key, message, "Prepare the data again, or copy the .idx too.")


def impossible_model_split(setup: Setup) -> Iterator[Finding]:
    """A split of the model, chosen or the recipe's own, that the processes cannot hold, or not evenly."""
    profile = setup.profile
    sizes, world = nemo.model_parallel_sizes(profile.nemo, setup.nemo_flavour), setup.world_size
    gpus_per_copy = nemo.gpus_per_model_copy(profile.nemo, setup.nemo_flavour)
    if world % gpus_per_copy:
        edits = tuple((f"nemo.{name}", 1) for name, size in sizes.items() if size > 1)
        key = next((f"nemo.{name}" for name, size in sizes.items() if size > 1 and getattr(profile.nemo, name)), "")
        whose = "" if key else f"the recipe {profile.nemo.recipe} is made for more GPUs: "
        yield error(
            key or edits[0][0],
            f"{whose}tensor × pipeline × context parallel is "
            f"{' × '.join(map(str, sizes.values()))} = {gpus_per_copy},"
            f" which does not divide {quantity(world, 'process', 'processes')}",
            "Choose sizes whose product divides the number of GPUs.",
            change=Change("do not split the model", "each GPU holds all of it", edits),
        )
    elif setup.nemo_flavour:
        yield from _impossible_expert_split_finding(setup)
        yield from _uneven_split_findings(profile, setup.nemo_flavour)
    if setup.nemo_flavour == "automodel" and sizes["pipeline_parallel"] > 1:
        change = Change(
            "no pipeline", "each GPU holds all layers, or a share of each", (("nemo.pipeline_parallel", 1),)
        )
        message, remedy = "tui-train passes no pipeline settings to AutoModel", "Use tensor parallelism, or none."
        yield error("nemo.pipeline_parallel", message, remedy, change=change)


def _impossible_expert_split_finding(setup: Setup) -> Iterator[Finding]:
    """Experts of an MoE that the recipe distributes over more GPUs than there are."""
    profile = setup.profile
    defaults, chosen = nemo.known_recipe_defaults(profile.nemo, setup.nemo_flavour), profile.nemo.set
    stages = nemo.model_parallel_sizes(profile.nemo, setup.nemo_flavour)["pipeline_parallel"]
    if (
        defaults is None
        or _EXPERT_PARALLEL_SETTING in chosen
        or (setup.world_size // stages) % defaults.expert_parallel == 0
    ):
        return
    change = Change(
        "all experts on each GPU",
        "the recipe's GPUs are not here",
        (("nemo.set", {**chosen, _EXPERT_PARALLEL_SETTING: "1", _EXPERT_TENSOR_PARALLEL_SETTING: "none"}),),
    )
    yield error(
        "nemo.set",
        f"the recipe {profile.nemo.recipe} distributes its experts "
        f"over {defaults.expert_parallel} GPUs,"
        f" which does not divide {quantity(setup.world_size, 'process', 'processes')}",
        f"Set {_EXPERT_PARALLEL_SETTING} to a number of GPUs (nemo.set).",
        change=change,
    )


def recipe_warmup_longer_than_training(setup: Setup) -> Iterator[Finding]:
    """A warm-up of the recipe that is longer than the training."""
    profile = setup.profile
    defaults, recipe = nemo.known_recipe_defaults(profile.nemo, setup.nemo_flavour), profile.recipe
    if defaults is None or recipe.warmup is not None or not recipe.steps or defaults.warmup < recipe.steps:
        return
    if profile.nemo.mock_data and setup.nemo_flavour != "bridge":
        return  # of random tokens nothing is learned; a bridge refuses so few steps
    reached = (recipe.steps + 1) / (defaults.warmup + 1)
    yield warning(
        "recipe.warmup",
        f"the recipe warms up for {defaults.warmup} steps, and {quantity(recipe.steps, 'step')} are trained: its"
        f" learning rate would reach only {min(reached, 1):.0%} of its value",
        "Set a warm-up (recipe.warmup), such as 0.1: a tenth of the steps.",
        change=Change("warm up for a tenth of the steps", "to reach the learning rate", (("recipe.warmup", 0.1),)),
    )


def unsuitable_tokenizer(setup: Setup) -> Iterator[Finding]:
    """A tokenizer that this NeMo cannot load, or with more tokens than the model has."""
    profile = setup.profile
    chosen = profile.nemo
    tokenizer_facts = setup.facts.tokenizers.get(chosen.tokenizer)
    if tokenizer_facts is None or setup.nemo_flavour != "recipes":
        return
    if tokenizer_facts.kind == "TokenizersBackend":
        message = f"{chosen.tokenizer} was saved by transformers 5, and NeMo's transformers 4 cannot load it"
        remedy = "Set nemo.tokenizer to the tokenizer that `tui-train nemo prepare` wrote beside the data."
        yield error("nemo.tokenizer", message, remedy)
    defaults = nemo.known_recipe_defaults(chosen, setup.nemo_flavour)
    rows = chosen.set.get(_VOCABULARY_SIZE_SETTING, str(defaults.vocabulary) if defaults else "")
    if not rows.isdecimal() or not int(rows) or tokenizer_facts.vocabulary <= int(rows):
        return
    message = (
        f"the tokenizer has {tokenizer_facts.vocabulary:,} tokens, and the model only {int(rows):,}: the run would fail"
    )
    change = None
    if not profile.trainer.model:
        why = "every token gets a row"
        edits = (("nemo.set", {**chosen.set, _VOCABULARY_SIZE_SETTING: str(tokenizer_facts.vocabulary)}),)
        change = Change(f"{tokenizer_facts.vocabulary:,} tokens in the model", why, edits)
    remedy = (
        f"Name the recipe's own tokenizer, or set {_VOCABULARY_SIZE_SETTING} (nemo.set);"
        " weights need their own tokenizer."
    )
    yield error("nemo.tokenizer", message, remedy, change=change)


def _uneven_split_findings(profile: Profile, flavour: nemo.NemoFlavour) -> Iterator[Finding]:
    """Heads, layers or tokens that cannot be split evenly."""
    recipe = profile.recipe
    tensor, pipeline, context = nemo.model_parallel_sizes(profile.nemo, flavour).values()
    if nemo.can_set_model_size(profile, flavour):
        yield from _only_hidden_size_or_only_heads(recipe)
        yield from _uneven_split_finding("heads", recipe.heads, tensor, f"tensor parallel {tensor}")
        yield from _uneven_split_finding("layers", recipe.layers, pipeline, f"pipeline parallel {pipeline}")
        yield from _unevenly_halving_fallback_finding(profile, "layers", recipe.layers, pipeline)
    # A recipe's tokens are split by tensor as well; by context each GPU takes two pieces, of the begin and the end.
    tokens = context if flavour == "automodel" else context * tensor
    unit = math.lcm(2 * context, tokens) if context > 1 else tokens
    by = [f"2 × context parallel {context}"] if context > 1 else []
    by += [f"tensor parallel {tensor}"] if tokens > context else []
    yield from _uneven_split_finding("sequence_length", recipe.sequence_length, unit, ", ".join(by))
    yield from _unevenly_halving_fallback_finding(profile, "sequence_length", recipe.sequence_length, unit)


def _only_hidden_size_or_only_heads(recipe: Recipe) -> Iterator[Finding]:
    """A hidden size without heads, or the reverse: one alone would not fit the recipe's other."""
    if (recipe.hidden_size is None) != (recipe.heads is None):
        key = "recipe.heads" if recipe.heads is None else "recipe.hidden_size"
        message, remedy = "hidden size and heads of a recipe change together", "Set both, or neither."
        yield error(key, message, remedy)


def _uneven_split_finding(recipe_field: str, value: int | None, divisor: int, reason: str) -> Iterator[Finding]:
    if value is None or value % divisor == 0:
        return
    key, words = f"recipe.{recipe_field}", recipe_field.replace("_", " ")
    sizes = nearest_multiples(value, divisor)
    best = min(sizes, key=lambda size: abs(size - value))
    yield error(
        key,
        f"{words}: {value} is not a multiple of {divisor} ({reason})",
        f"Nearest: {' or '.join(map(str, sizes))}.",
        change=Change(f"{words} {best}", "the nearest that can be split", ((key, best),)),
    )


def _unevenly_halving_fallback_finding(
    profile: Profile, rung: str, value: int | None, divisor: int
) -> Iterator[Finding]:
    """A fallback to half of a value that cannot be split evenly any more."""
    chosen = profile.ladder
    if value is None:
        return
    if rung not in chosen.rungs or rung not in chosen.consent or value % divisor or value // 2 % divisor == 0:
        return
    words = rung.replace("_", " ")
    rungs = tuple(name for name in chosen.rungs if name != rung)
    yield error(
        "ladder.rungs",
        f"the fallback to {words} {value // 2} cannot start: it is not a multiple of {divisor}",
        f"Take it out of ladder.rungs, or choose a multiple of {2 * divisor} ({words}).",
        change=Change(f"no fallback to half the {words}", "it could not start", (("ladder.rungs", rungs),)),
    )


def settings_unsupported_by_nemo(setup: Setup) -> Iterator[Finding]:
    """Uses that NeMo does not support: training on the CPU, accelerate, extra arguments."""
    if setup.device == "cpu":
        message = "NeMo trains on NVIDIA GPUs only"
        remedy = "Choose the built-in trainer (trainer.kind=builtin), or a machine with GPUs."
        change = Change("the built-in trainer", "it trains on the CPU as well", (("trainer.kind", "builtin"),))
        yield error("trainer.kind", message, remedy, change=change, machine=True)
    if not LAUNCHERS[setup.launcher].starts_nemo_recipes:
        launchers = capable_launchers_text(lambda other: other.starts_nemo_recipes)
        change = Change("launcher auto", f"NeMo runs under {launchers}", (("trainer.launcher", "auto"),))
        message, remedy = f"{setup.launcher} cannot start NeMo, python and torchrun can", "Choose auto."
        yield error("trainer.launcher", message, remedy, change=change)
    if setup.profile.trainer.arguments and setup.nemo_flavour in {"recipes", "bridge"}:
        none = Change("no more arguments", "the recipe's file takes none", (("trainer.arguments", ()),))
        message = "a NeMo recipe takes no arguments (trainer.arguments)"
        remedy = (
            "Leave them out; or export the plan (tui-train export), and edit "
            f"{nemo.FILE_NAME_BY_FLAVOUR[setup.nemo_flavour]}."
        )
        yield error("trainer.arguments", message, remedy, change=none)
