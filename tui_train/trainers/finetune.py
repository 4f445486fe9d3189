"""Fine-tunes a Hugging Face model on the user's data, by TRL's own programs."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from tui_train.base.command import CommandPart, ProgramFile, word_in_run_dir
from tui_train.base.versions import is_at_least_or_unknown
from tui_train.facts.data.data_report import DataReport
from tui_train.facts.data.data_use import known_format_of_files
from tui_train.facts.types import Toolchain
from tui_train.profile.presets import (
    CheckpointConventions,
    GracefulStop,
    Preset,
    PresetArgument,
    Scalar,
    TrainerFile,
    TrainerFileValue,
)
from tui_train.profile.rewards import generates_answers, generations_in_force, reward_folders
from tui_train.profile.types import FinetuneMethod, FinetuneSettings, Profile
from tui_train.trainers.finetune_data import PREPARATION_MODULE_NAMES, end_token_to_pass, preparation_parts
from tui_train.trainers.finetune_options import adapter_options, learns_marked_answers, trl_options_besides_recipe
from tui_train.trainers.trainer import FieldTexts, PreparationStep, Trainer

_PREPARED_DATA_FOLDER = "data"
_MIN_TRL_VERSION = "1.0"
# Checkpoints that are kept: the newest, and the best by evaluations, or one more should the newest be incomplete.
KEPT_TRL_CHECKPOINT_COUNT = 2
LABEL_BY_METHOD: dict[FinetuneMethod, str] = {
    "sft": "SFT", "dpo": "DPO", "kto": "KTO", "reward": "reward model",
    "grpo": "GRPO", "rloo": "RLOO",
}  # fmt: skip
# The rate of a full fine-tune and of an adapter by method, as in the examples at the head of TRL's programs; of the
# reward model, whose program has none, in TRL's documentation and as the default of RewardConfig; of GRPO and RLOO the
# default of GRPOConfig and RLOOConfig, and of adapters ten times that.
FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD: dict[FinetuneMethod, tuple[float, float]] = {
    "sft": (2e-5, 2e-4), "dpo": (5e-7, 5e-6), "kto": (5e-7, 5e-7), "reward": (1e-5, 1e-4),
    "grpo": (1e-6, 1e-5), "rloo": (1e-6, 1e-5),
}  # fmt: skip
# One pass and a longer warm-up, as those examples, the alignment handbook and open-r1's recipes have them.
_PREFERENCE_METHOD_DEFAULTS: dict[str, Scalar] = {"epochs": 1.0, "warmup": 0.1}
FINETUNE_DEFAULTS: dict[str, Scalar] = {
    "sequence_length": 1024,
    "micro_batch": 4,
    "global_batch": 16,
    "epochs": 3.0,
    "warmup": 0.03,
    "schedule": "cosine",
    "weight_decay": 0.0,
    "activation_checkpointing": True,
    "checkpoint_every": 100,
    "seed": 42,
}
# What the attempts may change stands in the command, and so do the paths of the run.
_TRL_COMMAND_ARGUMENTS = (
    # Two words: TRL looks for "--config" alone.
    PresetArgument(("--config", "{config}")),
    PresetArgument(("--output_dir={output}",)),
    PresetArgument(("--per_device_train_batch_size={micro_batch}",)),
    PresetArgument(("--gradient_accumulation_steps={accumulation}",)),
    PresetArgument(("--gradient_checkpointing=True",), when="activation_checkpointing=yes"),
    PresetArgument(("--gradient_checkpointing=False",), when="activation_checkpointing=no"),
    PresetArgument(("--optim=adamw_torch_fused",), when="fused_optimizer=yes"),
    PresetArgument(("--optim=adamw_bnb_8bit",), when="optimizer_8bit=yes"),
    PresetArgument(("--use_liger_kernel=True",), when="fused_cross_entropy=yes"),
)
_LENGTH_AND_EVAL_BATCH_ARGUMENTS = (
    PresetArgument(("--per_device_eval_batch_size={eval_batch}", "--eval_accumulation_steps=8")),
    PresetArgument(("--max_length={sequence_length}",)),
)
_WEIGHT_FILE_NAMES = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip
# Taken by the preparation, or by what the profile adds to the file.
_PLACEHOLDERS_OUTSIDE_PRESET = frozenset({"data", "validation_data", "evaluate_every"})
_TRL_CONFIG_FILE_VALUES = (
    TrainerFileValue("model_name_or_path", "{model}"),
    TrainerFileValue("model_revision", "{revision}", when="revision!="),
    TrainerFileValue("learning_rate", "{learning_rate}"),
    TrainerFileValue("warmup_steps", "{warmup_steps}"),
    TrainerFileValue("warmup_ratio", "{warmup_ratio}", when="warmup_ratio!="),
    TrainerFileValue("lr_scheduler_type", "{schedule}"),
    TrainerFileValue("weight_decay", "{weight_decay}"),
    TrainerFileValue("num_train_epochs", "{epochs}"),
    TrainerFileValue("max_steps", "{steps}"),
    TrainerFileValue("bf16", True, when="precision=bf16"),
    TrainerFileValue("bf16", False, when="precision!=bf16"),
    TrainerFileValue("fp16", True, when="precision=fp16"),
    TrainerFileValue("logging_steps", 1),
    TrainerFileValue("save_strategy", "steps"),
    TrainerFileValue("save_steps", "{checkpoint_every}"),
    TrainerFileValue("save_total_limit", KEPT_TRL_CHECKPOINT_COUNT),
    TrainerFileValue("seed", "{seed}"),
    TrainerFileValue("report_to", "none", when="report_to="),
    TrainerFileValue("report_to", "{trackers}", when="report_to!="),
    TrainerFileValue("project", "{trackio_project}", when="trackio_project!="),
    # Gloo moves tensors of the CPU, and does so for the GPU's where it was chosen.
    TrainerFileValue("ddp_backend", "gloo", when="backend=gloo"),
)
# transformers writes this file last; FSDP and DeepSpeed write no optimizer.pt beside it.
_CHECKPOINT_RULES = CheckpointConventions(
    prefix="checkpoint-", complete=("trainer_state.json",), resume=("--resume_from_checkpoint={checkpoint}",)
)
# On SIGTERM it waits 3 s, then saves. Several processes would not agree on the step, and hang.
_GRACEFUL_STOP = GracefulStop(
    grace=60, arguments=("--enable_jit_checkpoint=True",), when="world_size=1", needs="transformers 5.0"
)


class FinetuneTrainer(Trainer):
    """Trains by TRL's program for the method, on data that is made ready before."""

    name = "Fine-tune a model"
    about = "on chats, text or preferences (TRL)"
    label = "the fine-tuning"
    own_fields = frozenset({"finetune", "data", "trainer.allow", "trainer.arguments", "trainer.revision"})
    takes_every_recipe_value = True
    requires_user_data = True
    accepts_hub_model_ids = True
    defaults_precision_to_gpus = True
    field_texts: ClassVar[Mapping[str, FieldTexts]] = {
        "trainer.model": FieldTexts(
            "a folder, or a name on the Hub",
            "The model to start from: its id on the Hub, such as Qwen/Qwen2.5-0.5B-Instruct, or a folder with weights.",
        ),
        "trainer.data": FieldTexts(
            "JSONL, JSON, CSV, Parquet or text",
            "Files or folders of chats, prompts with answers, text, or preferences; separate several with spaces.",
        ),
        "trainer.validation_data": FieldTexts(
            "none", "Files of rows to evaluate on during the training, in the format of the training data."
        ),
    }

    @property
    def _data_reports(self) -> Mapping[str, DataReport]:
        return self.facts.data if self.facts else {}

    @property
    def _data_format(self) -> str:
        return known_format_of_files(self.profile.trainer.data, self._data_reports)

    def needed_packages(self) -> tuple[str, ...]:
        """Return the libraries of TRL's programs, and those of adapters and of weights in 4 bits."""
        tuning = self.profile.finetune.tuning
        by_tuning = {"full": (), "lora": ("peft",), "qlora": ("peft", "bitsandbytes")}[tuning]
        return ("trl", *by_tuning, "datasets", "transformers", "accelerate")

    def may_evaluate(self) -> bool:
        """Return whether there is data for it."""
        return has_evaluation_data(self.profile)

    def why_unusable(self) -> str:
        """Return that TRL is too old."""
        version = self.package_versions.get("trl")
        old = version is not None and not is_at_least_or_unknown(version, _MIN_TRL_VERSION)
        return f"trl {version}, but {_MIN_TRL_VERSION} or newer is needed" if old else ""

    def method_label(self) -> str:
        """Return the method and what is trained, such as SFT LoRA."""
        chosen = self.profile.finetune
        tuning = {"full": "full", "lora": "LoRA", "qlora": "QLoRA"}[chosen.tuning]
        return f"{LABEL_BY_METHOD[chosen.method]} {tuning}"

    def title(self) -> str:
        """Return the method and the program."""
        return f"{self.method_label()} by trl.scripts.{self.profile.finetune.method}"

    @cached_property
    def preset(self) -> Preset:
        """The preset by which TRL takes the recipe and the fine-tuning; the loss depends on the format of the data."""
        profile, chosen = self.profile, self.profile.finetune
        values = [
            *_TRL_CONFIG_FILE_VALUES,
            *_evaluation_values(profile),
            *trl_options_besides_recipe(chosen, self._data_format),
        ]
        if end := end_token_to_pass(profile, self._data_reports):
            values.append(TrainerFileValue("eos_token", end))
        arguments: tuple[PresetArgument, ...] = (*_TRL_COMMAND_ARGUMENTS, *_length_and_eval_batch_arguments(chosen))
        if chosen.tuning == "full":
            # It may fall back to an adapter.
            arguments = (*arguments, PresetArgument(_fallback_adapter_arguments(chosen), when="lora=yes"))
            if profile.recipe.learning_rate is None:
                _, adapter_rate = FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD[chosen.method]
                values.append(TrainerFileValue("learning_rate", adapter_rate, when="lora=yes"))
        return Preset(
            label="TRL",
            about="fine-tuning",
            module=f"trl.scripts.{chosen.method}",
            eval_batch=8,
            defaults={
                **{
                    name: value
                    for name, value in FINETUNE_DEFAULTS.items()
                    if name not in _defaults_unused_by_method(chosen)
                },
                **({} if chosen.method == "sft" else _PREFERENCE_METHOD_DEFAULTS),
                "learning_rate": default_learning_rate(chosen),
            },
            arguments=arguments,
            file=TrainerFile(needs_user_file=False, values=tuple(values)),
            checkpoints=_CHECKPOINT_RULES,
            stop=_GRACEFUL_STOP,
            strategies=("fsdp2", "zero1", "zero2", "zero3") if chosen.tuning != "qlora" else ("fsdp2",),
        )

    def accepted_placeholders(self) -> frozenset[str]:
        """Return the placeholders of the preset, and what the preparation takes."""
        return super().accepted_placeholders() | _PLACEHOLDERS_OUTSIDE_PRESET

    def own_default_source_by_name(self) -> Mapping[str, str]:
        """Return where the method's own defaults come from."""
        method = self.profile.finetune.method
        example = f"as in TRL's example for {method}"
        if generates_answers(self.profile.finetune):
            own = dict.fromkeys(("epochs", "warmup"), "as in open-r1's recipes")
            return {**own, "learning_rate": "TRL's default, of adapters ten times that"}
        own = {"epochs": example, "warmup": "as in the alignment handbook"} if method != "sft" else {}
        rate_source = f"TRL's for {'a full fine-tune' if self.profile.finetune.tuning == 'full' else 'adapters'}"
        return {**own, "learning_rate": rate_source if method == "reward" else example}

    def unset_value_text(self) -> str:
        """Return that it is TRL's default."""
        return "TRL's default"

    def min_micro_batch(self) -> int:
        """Return 2 for KTO, which compares the answers of a micro batch with each other."""
        return 2 if self.profile.finetune.method == "kto" else 1

    def own_paths(self) -> tuple[str, ...]:
        """Return the files of which a model folder has one or more, and the folders of rewards."""
        model = self.profile.trainer.model
        weights = tuple(f"{model}/{name}" for name in _WEIGHT_FILE_NAMES) if model.startswith("/") else ()
        return (*weights, *reward_folders(self.profile.finetune))

    def library_options(self) -> dict[str, Any]:
        """Return the options of TRL that say how the model is loaded and trained."""
        chosen, precision = self.profile.finetune, self.profile.recipe.precision or "fp32"
        conditions = {"", f"precision={precision}"}
        options = (each for each in trl_options_besides_recipe(chosen, "") if each.when in conditions)
        values = {each.key: each.value for each in options}
        return values | ({"eval_strategy": "steps"} if has_evaluation_data(self.profile) else {})

    def library_preset_name(self) -> str:
        """Return TRL's preset."""
        return "trl"

    def preparation_steps(self) -> tuple[PreparationStep, ...]:
        """Return what writes the data as TRL takes it."""
        if not self.profile.trainer.data:
            return ()
        marked = learns_marked_answers(self.profile.finetune, self._data_format)
        parts = preparation_parts(self.profile, _PREPARED_DATA_FOLDER, marked_answers=marked)
        return (PreparationStep("data", "writes data/ from your files, as TRL takes it; once", parts),)

    def program_parts(self) -> tuple[CommandPart, ...]:
        """Return TRL's module, and the folder that the preparation wrote."""
        return (
            CommandPart(("-m", self.preset.module)),
            CommandPart((word_in_run_dir(_PREPARED_DATA_FOLDER, "--dataset_name="),)),
        )

    def program_files(self) -> tuple[ProgramFile, ...]:
        """Return the modules that prepare the data."""
        prepare = tuple(
            ProgramFile(f"prepare/{name}.py", f"programs/data/{name}.py") for name in PREPARATION_MODULE_NAMES
        )
        return (*prepare, *super().program_files())


def supported_tuning_labels(toolchain: Toolchain) -> tuple[str, ...]:
    """Return how a Python can fine-tune: all weights, adapters, adapters on weights in 4 bits; empty if it cannot."""
    packages = toolchain.packages
    basis = toolchain.torch, toolchain.accelerate, toolchain.transformers, packages.get("datasets"), packages.get("trl")
    if None in basis or not is_at_least_or_unknown(packages.get("trl"), _MIN_TRL_VERSION):
        return ()
    lora = "peft" in packages
    qlora = lora and "bitsandbytes" in packages and toolchain.cuda is not None
    return ("full", *(("LoRA",) if lora else ()), *(("QLoRA",) if qlora else ()))


def default_learning_rate(settings: FinetuneSettings) -> float:
    """Return the learning rate that suits the method and what is trained."""
    return FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD[settings.method][settings.tuning != "full"]


def _length_and_eval_batch_arguments(settings: FinetuneSettings) -> tuple[PresetArgument, ...]:
    """Return how the length of a sequence and the batch of evaluations are passed.

    What writes answers has no length of a whole sequence, and evaluates all answers to a prompt at once.
    """
    if not generates_answers(settings):
        return _LENGTH_AND_EVAL_BATCH_ARGUMENTS
    return (
        PresetArgument((f"--per_device_eval_batch_size={generations_in_force(settings)}",)),
        PresetArgument(("--num_generations={generations}",)),
        PresetArgument(("--max_completion_length={completion_length}",)),
        PresetArgument(("--log_completions=True", "--num_completions_to_print={completions}")),
    )


def _defaults_unused_by_method(settings: FinetuneSettings) -> frozenset[str]:
    return frozenset({"sequence_length"}) if generates_answers(settings) else frozenset()


def _fallback_adapter_arguments(settings: FinetuneSettings) -> tuple[str, ...]:
    """Return the options of an adapter as arguments, for the attempt that falls back to one."""
    words: list[str] = []
    for key, value in adapter_options(settings).items():
        words += [f"--{key}", *value] if isinstance(value, list) else [f"--{key}={value}"]
    return tuple(words)


def _evaluation_values(profile: Profile) -> tuple[TrainerFileValue, ...]:
    """Return when it is evaluated, where there is data for it: with each checkpoint, unless steps are chosen.

    The best one is kept and is the result; of a sharded model, which cannot be loaded everywhere, it is only kept.
    """
    if not has_evaluation_data(profile):
        return ()
    best = (TrainerFileValue("load_best_model_at_end", True),) if profile.trainer.strategy == "ddp" else ()
    return (
        TrainerFileValue("eval_strategy", "steps"),
        TrainerFileValue("eval_steps", "{checkpoint_every}", when="evaluate_every="),
        TrainerFileValue("eval_steps", "{evaluate_every}", when="evaluate_every!="),
        *((*best, TrainerFileValue("metric_for_best_model", "eval_loss")) if keeps_best_checkpoint(profile) else ()),
    )


def has_evaluation_data(profile: Profile) -> bool:
    """Return whether there is data for evaluations."""
    return bool(profile.trainer.validation_data or profile.data.evaluation)


def keeps_best_checkpoint(profile: Profile) -> bool:
    """Return whether each checkpoint is evaluated, so that the best one is kept."""
    every, saved = profile.recipe.evaluate_every, profile.recipe.checkpoint_every
    if generates_answers(profile.finetune):
        return False  # the loss says nothing of how good answers are
    # The default follows the evaluations.
    return has_evaluation_data(profile) and not (every and saved and saved % every)
