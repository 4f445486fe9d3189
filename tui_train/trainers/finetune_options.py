"""TRL's options besides the recipe: learned text, adapter, type of the weights."""

from tui_train.profile.presets import Scalar, TrainerFileValue
from tui_train.profile.rewards import chosen_rewards
from tui_train.profile.types import FinetuneSettings

# What TRL calls a completion has a prompt of its own.
_PROMPT_DATA_FORMATS = frozenset({"prompt_completion", "alpaca"})


def learns_marked_answers(settings: FinetuneSettings, data_format: str) -> bool:
    """Return whether TRL is to learn what the chat template marks as answers, which only chats have.

    An empty format, of data that was not read, is taken for chats.
    """
    return settings.method == "sft" and bool(settings.answers_only) and data_format not in _PROMPT_DATA_FORMATS


def trl_options_besides_recipe(settings: FinetuneSettings, data_format: str) -> tuple[TrainerFileValue, ...]:
    """Return the options of TRL that the fine-tuning sets besides the recipe."""
    values: dict[str, Scalar | list[str]] = {}
    if settings.method == "sft":
        values["packing"] = settings.packing
        if settings.answers_only is not None:
            prompted = data_format in _PROMPT_DATA_FORMATS
            if not prompted:
                values["assistant_only_loss"] = settings.answers_only
            if prompted or not (data_format or settings.answers_only):
                values["completion_only_loss"] = settings.answers_only
    elif settings.beta is not None and settings.method != "reward":
        values["beta"] = settings.beta
    if rewards := chosen_rewards(settings):
        values["reward_funcs"] = [reward.dotted for reward in rewards]
    if settings.tuning != "full":
        values |= adapter_options(settings)
    unconditional = tuple(TrainerFileValue(key, value) for key, value in values.items())
    return (*unconditional, *_weight_dtype_options(settings))


ALL_LINEAR_LORA_TARGET = "all-linear"
# So transformers names the linear layers of the language part in its classes of models that see. TRL makes a text of a
# list of one, which PEFT takes for an expression of the whole path.
LANGUAGE_LORA_TARGET = r".*language_model\..*_proj"


def _lora_targets(names: tuple[str, ...]) -> str | list[str]:
    """Return LoRA's targets as TRL takes them."""
    if names in {(), (ALL_LINEAR_LORA_TARGET,)}:
        return ALL_LINEAR_LORA_TARGET
    # Of a list of one TRL makes a text, which PEFT takes for an expression that has to fit the whole path.
    return [*names, *names] if len(names) == 1 else list(names)


def adapter_options(settings: FinetuneSettings) -> dict[str, Scalar | list[str]]:
    """Return the options of an adapter, for each its value."""
    values: dict[str, Scalar | list[str]] = {
        "use_peft": True,
        "lora_r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "lora_target_modules": [LANGUAGE_LORA_TARGET] if settings.freeze_vision else _lora_targets(settings.targets),
    }
    if settings.method == "reward":
        # The head that gives the reward is new, and is trained whole.
        values |= {"lora_task_type": "SEQ_CLS", "lora_modules_to_save": ["score"]}
    if settings.tuning == "qlora":
        values |= {"load_in_4bit": True, "use_bnb_nested_quant": True}
    return values


def _weight_dtype_options(settings: FinetuneSettings) -> tuple[TrainerFileValue, ...]:
    """Return the type of the weights: those that an adapter leaves as they are need no more than 16 bits."""
    if settings.tuning == "full":
        return ()
    types = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    return tuple(TrainerFileValue("dtype", name, when=f"precision={short}") for short, name in types.items())
