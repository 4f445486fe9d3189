"""The values that a field can have on this machine, with the reason for those that it cannot."""

from collections.abc import Callable

from msgspec import Struct

from tui_train.base.text import display_path, size_text, visible
from tui_train.checks.machine.communication import why_gloo_refused
from tui_train.checks.recipe.images import has_no_vision_tower
from tui_train.facts.gpus.capability import do_all_support_bf16
from tui_train.facts.machine.container_images import ENGINE_NAMES
from tui_train.facts.models import nemo_models
from tui_train.facts.models.hub import CachedModel
from tui_train.facts.other_machines.cluster import sbatch_time_limit_text
from tui_train.facts.other_machines.host_commands import text_for_host
from tui_train.facts.other_machines.slurm import find_partitions, is_sbatch_option
from tui_train.launchers import LAUNCHERS, capable_launchers_text
from tui_train.memory.ladder.rungs import RUNGS
from tui_train.profile import fields, typed_lists
from tui_train.profile.presets import shipped_presets
from tui_train.profile.types import AUTO_PRESET, FinetuneMethod, Profile
from tui_train.setup.machine import strategies
from tui_train.setup.machine.idle_cards import cards_idle_beside_cpu
from tui_train.setup.recipe import no_effect
from tui_train.setup.setup import Setup
from tui_train.trainers import TRAINERS, nemo, trainer_has_own_field, trainer_of
from tui_train.trainers.auto_preset import arguments_summary
from tui_train.trainers.finetune import LABEL_BY_METHOD
from tui_train.views import clusters

# The label of leaving a field to the trainer; the note beside it is what the trainer takes then.
UNSET_LABEL = "not set"
_AUTOMATIC_PYTHON_LABEL = "the best one"
_USUAL_TIME_LIMITS = (3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400)  # seconds

_KEYS_OF_VISION_MODELS = frozenset({"finetune.freeze_vision", "data.max_pixels"})
_KEYS_SET_BY_SLURM = frozenset({"nodes.address", "nodes.port"})
# Values of the recipe that few trainers take.
_KEYS_SHOWN_ONLY_IF_SUPPORTED = frozenset(
    f"recipe.{name}" for name in ("ffn_hidden_size", "epochs", "warmup", "schedule", "weight_decay", "evaluate_every")
)


class FieldOption(Struct, frozen=True):
    """One value of a field: label, note, and the reason why it is not selectable here (empty: it is)."""

    value: str
    label: str
    note: str = ""
    why_disabled: str = ""


def field_options(key: str, setup: Setup) -> tuple[FieldOption, ...]:
    """Return the values that a field offers."""
    if key in _OPTION_LISTER_BY_KEY:
        return _OPTION_LISTER_BY_KEY[key](setup)
    row = fields.get_field(key)
    values = tuple(FieldOption(value, value) for value in (("no", "yes") if row.kind == "switch" else row.options))
    return (_unset_option(key, setup), *values) if row.optional else values


def _unset_option(key: str, setup: Setup) -> FieldOption:
    """Return the option to leave a field unset, with the value that then applies."""
    held = setup.effective_values.get(key.removeprefix("recipe."))
    return FieldOption("", UNSET_LABEL, held.text if held and held.source else "")


def enumerable_values(key: str) -> tuple[str, ...]:
    """Return all values that a field can have, where these are few."""
    row = fields.get_field(key)
    if key == "trainer.preset":
        return (AUTO_PRESET, *(name for name in shipped_presets() if name != "builtin"))
    if key == "ladder.rungs":
        return tuple(RUNGS)
    if key == "trainer.kind":
        return tuple(name for name, trainer in TRAINERS.items() if trainer.is_training)
    return ("yes", "no") if row.kind == "switch" else row.options


def value_from_label(key: str, text: str) -> str:
    """Return the value that a text names by itself, in any case, or by its label on the screen; else the text."""
    folded = text.strip().casefold()
    labels = {label.casefold(): value for value, label in _values_and_labels(key)}
    return labels.get(folded, text)


def _values_and_labels(key: str) -> tuple[tuple[str, str], ...]:
    """Return values with what the screen calls them, and with themselves."""
    shown = {
        "hardware.device": (("cuda", "GPU"), ("cuda", "GPUs")),
        "trainer.kind": tuple((name, trainer.name) for name, trainer in TRAINERS.items()),
        "trainer.launcher": tuple((name, launcher.label) for name, launcher in LAUNCHERS.items()),
        "trainer.preset": (
            (AUTO_PRESET, AUTO_PRESET),
            *((name, preset.label) for name, preset in shipped_presets().items() if name != "builtin"),
        ),
        "trainer.python": (("", _AUTOMATIC_PYTHON_LABEL),),
        "finetune.method": tuple((name, label) for name, label in LABEL_BY_METHOD.items()),
    }
    row = fields.get_field(key)
    unset = (("", UNSET_LABEL),) if row.optional else ()
    return (*unset, *shown.get(key, ()), *((value, value) for value in row.options))


def is_field_shown(key: str, setup_or_profile: Setup | Profile) -> bool:
    """Return whether a field is shown: where it has an effect or is set; most of the recipe with its reason as well.

    Of a fine-tuning the model decides much of the recipe: that is not shown.
    """
    section = key.partition(".")[0]
    profile = setup_or_profile.profile if isinstance(setup_or_profile, Setup) else setup_or_profile
    by_slurm = (
        setup_or_profile.is_slurm_job if isinstance(setup_or_profile, Setup) else profile.hardware.scheduler == "slurm"
    )
    if section == "slurm":
        return by_slurm or fields.is_chosen(profile, key)
    if key in _KEYS_SET_BY_SLURM and by_slurm:
        return False
    if not fields.is_chosen(profile, key) and (
        (key == "recipe.lr_base_batch" and profile.recipe.lr_scaling == "none")
        or (key == "data.weights" and len(profile.trainer.data) < 2)  # a number per file that is named
        or (
            key in _KEYS_OF_VISION_MODELS
            and isinstance(setup_or_profile, Setup)
            and has_no_vision_tower(setup_or_profile)
        )
    ):
        return False
    explained = (
        section == "recipe" and key not in _KEYS_SHOWN_ONLY_IF_SUPPORTED and not trainer_of(profile).requires_user_data
    )
    if explained or section == "communication" or fields.is_chosen(profile, key):
        return True
    return not no_effect.why_no_effect(key, setup_or_profile)


def _device_options(setup: Setup) -> tuple[FieldOption, ...]:
    usable = any(verdict.kind != "blocked" for verdict in setup.gpu_verdicts)
    reasons = {reason for verdict in setup.gpu_verdicts for reason in verdict.reasons}
    why = "" if usable else ("no GPU here can train" if setup.facts.machine.gpus else "no GPU was found")
    if why and len(reasons) == 1:
        why = visible(reasons.pop())
    automatic = "the GPUs" if usable else "the CPU: " + why
    if cards_idle_beside_cpu(setup):
        automatic = f"the GPUs, but {why}"
    return (
        FieldOption("auto", "auto", automatic),
        FieldOption("cuda", "GPU", "", why),
        FieldOption("cpu", "CPU", "slow, always works"),
    )


def _trainer_kind_options(_setup: Setup) -> tuple[FieldOption, ...]:
    return tuple(FieldOption(name, each.name, each.about) for name, each in TRAINERS.items() if each.is_training)


def _nemo_recipe_options(setup: Setup) -> tuple[FieldOption, ...]:
    """Return the recipes for the task: those that the chosen Python lists, or else the known ones."""
    python = setup.toolchain.python if setup.toolchain else ""
    tasks_of, listed = nemo_models.tasks_by_recipe_and_whether_probed(setup.facts, python, setup.nemo_flavour)
    note = "this Python has it" if listed else ""
    task = nemo.required_recipe_task(setup.profile.nemo, setup.nemo_flavour)
    names = [name for name, tasks in tasks_of.items() if task in tasks]
    return tuple(FieldOption(name, name, note) for name in names)


def _preset_options(setup: Setup) -> tuple[FieldOption, ...]:
    by_script = (
        arguments_summary(setup.facts.sources.get(setup.profile.trainer.script)) or "passes what the script takes"
    )
    options = [FieldOption(AUTO_PRESET, AUTO_PRESET, by_script)]
    options += [
        FieldOption(name, preset.label, preset.about) for name, preset in shipped_presets().items() if name != "builtin"
    ]
    for name, own_preset in setup.facts.presets.items():
        if own_preset.preset:
            options.append(FieldOption(name, visible(own_preset.preset.label), visible(own_preset.preset.about)))
        elif name not in shipped_presets():
            options.append(FieldOption(name, visible(name), "", visible(own_preset.problem)))
    return tuple(options)


def _launcher_options(setup: Setup) -> tuple[FieldOption, ...]:
    profile = setup.profile
    because = f": {setup.line_needing_ranks_text}" if setup.line_needing_ranks_text and setup.world_size == 1 else ""
    options = [FieldOption("auto", "auto", f"now {setup.launcher}{because}")]
    tool = setup.toolchain
    installed = {**tool.packages, "accelerate": tool.accelerate} if tool else {}
    devices = profile.nodes.world_size(max(len(profile.hardware.gpus), profile.hardware.processes, 1))
    for name, launcher in LAUNCHERS.items():
        reason = ""
        if not launcher.starts_several_processes and devices > 1:
            reason = f"starts one process, and {devices} are chosen"
        elif not launcher.starts_on_several_machines and profile.nodes.machine_count > 1:
            reason = "starts processes on one machine only"
        elif not launcher.starts_nemo_recipes and trainer_has_own_field(profile, "nemo"):
            reason = f"NeMo runs under {capable_launchers_text(lambda other: other.starts_nemo_recipes)}"
        elif tool and (missing := [package for package in launcher.needs if not installed.get(package)]):
            reason = f"the chosen Python has no {missing[0]}"
        elif profile.trainer.strategy not in {"ddp", *launcher.sharding_strategies}:
            reason = f"does not start {profile.trainer.strategy}"
        options.append(FieldOption(name, launcher.label, launcher.description, reason))
    return tuple(options)


def _strategy_options(setup: Setup) -> tuple[FieldOption, ...]:
    return tuple(
        FieldOption(name, name, about, visible(strategies.why_strategy_unusable(name, setup)))
        for name, about in strategies.DESCRIPTION_BY_STRATEGY.items()
    )


def _python_options(setup: Setup) -> tuple[FieldOption, ...]:
    profile = setup.profile
    best = f"now {display_path(setup.toolchain.python)}" if setup.toolchain and not profile.trainer.python else ""
    options = [FieldOption("", _AUTOMATIC_PYTHON_LABEL, best)]
    for tool, problem in setup.pythons_and_why_unusable:
        trl = tool.packages.get("trl") if trainer_of(profile).requires_user_data else None
        versions = (
            f"torch {tool.torch}" if tool.torch else "",
            f"trl {trl}" if trl else "",
            f"Python {tool.version}" if tool.version else "",
        )
        note = "  ".join(visible(part) for part in (*versions, display_path(tool.python)) if part)
        why = f"in this folder; F4 trusts it: {display_path(tool.python)}" if tool.unchosen else problem
        options.append(FieldOption(tool.python, visible(tool.label) or "named", note, visible(why)))
    return tuple(options)


_NOTE_BY_FINETUNE_METHOD: dict[FinetuneMethod, str] = {
    "sft": "learns from examples of answers",
    "dpo": "from pairs: which answer is better",
    "kto": "from answers marked good or bad",
    "reward": "learns to score answers, from pairs",
    "grpo": "from rewards of its own answers, compared in groups",
    "rloo": "from rewards, each answer against the others",
}


def _finetune_method_options(_setup: Setup) -> tuple[FieldOption, ...]:
    return tuple(FieldOption(name, LABEL_BY_METHOD[name], about) for name, about in _NOTE_BY_FINETUNE_METHOD.items())


def _finetune_tuning_options(setup: Setup) -> tuple[FieldOption, ...]:
    return (
        FieldOption("lora", "LoRA", "a small adapter; the model stays"),
        FieldOption("qlora", "QLoRA", "LoRA, with the model in 4 bits", _why_no_qlora(setup)),
        FieldOption("full", "full", "all weights; much more memory"),
    )


def _why_no_qlora(setup: Setup) -> str:
    profile = setup.profile
    if setup.device != "cuda":
        return "4 bits need a GPU"
    inside = (setup.toolchain,) if profile.container.engine != "none" else setup.facts.toolchains
    named = profile.trainer.python
    able = [tool for tool in inside if tool and "bitsandbytes" in tool.packages and named in {"", tool.python}]
    if able or not any(inside):
        return ""
    return text_for_host("no bitsandbytes: tui-train env create hf", setup.facts.host)


def _communication_backend_options(setup: Setup) -> tuple[FieldOption, ...]:
    cuda = setup.device == "cuda"
    nccl = "" if cuda else "only for GPUs"
    gloo = why_gloo_refused(setup) if cuda else ""
    return (
        FieldOption("auto", "auto", f"now {setup.communication_backend}" if setup.communication_backend else ""),
        FieldOption("nccl", "NCCL", "", nccl),
        FieldOption("gloo", "Gloo", "slow on GPUs: a last resort" if cuda else "", gloo),
    )


def _container_engine_options(setup: Setup) -> tuple[FieldOption, ...]:
    options = [FieldOption("none", "none")]
    installed = {engine.name: engine for engine in setup.facts.engines or ()}
    for name in ENGINE_NAMES:
        engine = installed.get(name)
        # Those of another machine are read once one is chosen.
        missing = "" if setup.facts.engines is None else "not installed"
        version, why = (engine.version, engine.problem) if engine else ("", missing)
        options.append(FieldOption(name, name, visible(version), visible(why)))
    return tuple(options)


def _precision_options(setup: Setup) -> tuple[FieldOption, ...]:
    cuda = setup.device == "cuda"
    bf16 = "a chosen GPU is older than compute capability 8.0" if cuda and not do_all_support_bf16(setup.gpus) else ""
    fp16 = "" if cuda else "not on the CPU"
    return (
        _unset_option("recipe.precision", setup),
        FieldOption("fp32", "fp32"),
        FieldOption("bf16", "bf16", "", bf16),
        FieldOption("fp16", "fp16", "", fp16),
    )


def _model_options(setup: Setup) -> tuple[FieldOption, ...]:
    """Return the models in the cache: first those that can be trained at once; the folder where no id is taken."""
    cached = setup.facts.hub.models if setup.facts.hub else ()
    by_id = trainer_of(setup.profile).accepts_hub_model_ids

    def option(model: CachedModel) -> FieldOption:
        lacks = f"lacks {visible(model.missing[0])}" if model.missing else ""
        parts = (size_text(model.size), visible(model.dtype), visible(model.kind), lacks)
        value = model.id if by_id else model.folder
        return FieldOption(value, visible(model.id), "  ".join(filter(None, parts)), "" if by_id else lacks)

    order = sorted(cached, key=lambda model: (not model.is_complete, not model.causal, model.id.lower()))
    return tuple(option(model) for model in order if model.folder)


def _partition_options(setup: Setup) -> tuple[FieldOption, ...]:
    cluster = setup.facts.cluster
    return tuple(
        FieldOption(
            part.name, visible(part.name), clusters.partition_summary(part), "takes no new jobs" if part.closed else ""
        )
        for part in (cluster.partitions if cluster else ())
    )


def _account_options(setup: Setup) -> tuple[FieldOption, ...]:
    cluster = setup.facts.cluster
    return tuple(FieldOption(name, visible(name)) for name in (cluster.accounts if cluster else ()))


def _slurm_options_options(setup: Setup) -> tuple[FieldOption, ...]:
    """Return the QOS, reservations and types of GPU of the cluster, each as all options with that one."""
    cluster, options = setup.facts.cluster, setup.profile.slurm.options
    if cluster is None:
        return ()
    count = max(1, len(setup.gpus))
    chosen = find_partitions(cluster, setup.profile.slurm.partition)
    cards = (card for part in chosen for node in part.nodes for card in node.cards)
    types = dict.fromkeys(kind for kind, there in cards if there >= count)
    offered = [("qos", name, "a QOS of yours") for name in cluster.qos]
    offered += [("reservation", each.name, clusters.reservation_summary(each)) for each in cluster.reservations or ()]
    offered += [("gres", f"gpu:{kind}:{count}", f"{count} of these on each node") for kind in types if kind]

    def with_option(name: str, value: str) -> str:
        others = (option for option in options if not is_sbatch_option(option, name))
        return typed_lists.join_values((*others, f"--{name}={value}"))

    return tuple(
        FieldOption(with_option(name, value), visible(f"--{name}={value}"), note) for name, value, note in offered
    )


def _time_limit_options(setup: Setup) -> tuple[FieldOption, ...]:
    """Return usual lengths that the chosen partitions allow, and the most that they do."""
    cluster = setup.facts.cluster
    chosen = find_partitions(cluster, setup.profile.slurm.partition) if cluster else ()
    if not chosen:
        return ()
    limits = [part.limit for part in chosen if part.limit is not None]
    most = max(limits) if len(limits) == len(chosen) else None
    allowed = (sbatch_time_limit_text(limit) for limit in _USUAL_TIME_LIMITS if most is None or limit < most)
    options = [FieldOption(text, text) for text in allowed]
    if most:
        text = sbatch_time_limit_text(most)
        options.append(FieldOption(text, text, f"the most in {visible(', '.join(part.name for part in chosen))}"))
    return tuple(options)


_OPTION_LISTER_BY_KEY: dict[str, Callable[[Setup], tuple[FieldOption, ...]]] = {
    "hardware.device": _device_options,
    "trainer.kind": _trainer_kind_options,
    "trainer.preset": _preset_options,
    "trainer.launcher": _launcher_options,
    "trainer.strategy": _strategy_options,
    "trainer.python": _python_options,
    "trainer.model": _model_options,
    "communication.backend": _communication_backend_options,
    "container.engine": _container_engine_options,
    "finetune.method": _finetune_method_options,
    "finetune.tuning": _finetune_tuning_options,
    "nemo.recipe": _nemo_recipe_options,
    "recipe.precision": _precision_options,
    "slurm.options": _slurm_options_options,
    "slurm.partition": _partition_options,
    "slurm.account": _account_options,
    "slurm.time": _time_limit_options,
}
