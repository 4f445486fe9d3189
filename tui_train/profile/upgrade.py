"""Upgrades profiles of schema 1, in which every value of the recipe was passed to the trainer."""

from typing import Any

from tui_train.profile.presets import KEY_BY_PLACEHOLDER, UserPresetByName, accepted_placeholders, get_preset

_MODEL_SIZE_NAMES = ("layers", "hidden_size", "heads")
# Defaults of schema 1 for values that a file does not set.
_SCHEMA_1_DEFAULT_BY_NAME: dict[str, Any] = {
    "layers": 4, "hidden_size": 128, "heads": 4, "sequence_length": 128, "micro_batch": 8, "global_batch": 16,
    "learning_rate": 3e-3, "precision": "fp32", "steps": 60, "activation_checkpointing": False,
    "checkpoint_every": 20, "seed": 1,
}  # fmt: skip


def upgrade_schema_1(data: dict[str, Any], user_presets: UserPresetByName) -> dict[str, Any]:
    """Return the content of a profile file of schema 1 with only the values that reached the trainer.

    BadInput if its preset cannot be used. Sections that are not tables are kept; the caller rejects them.
    """
    if not isinstance(data.get("recipe", {}), dict):
        return data
    sections = {name: dict(value) for name, value in data.items() if isinstance(value, dict)}
    trainer, nemo, recipe = (sections.get(name, {}) for name in ("trainer", "nemo", "recipe"))
    own_size = nemo.pop("own_size", True)
    kind, model = trainer.get("kind", "builtin"), trainer.get("model")
    if kind == "script":
        arguments = trainer.get("arguments", [])
        words = tuple(word for word in arguments if isinstance(word, str)) if isinstance(arguments, list) else ()
        accepted = accepted_placeholders(get_preset(str(trainer.get("preset", "hf-trainer")), user_presets), words)
        passed = {KEY_BY_PLACEHOLDER[name].removeprefix("recipe.") for name in accepted}
        if trainer.get("launcher") == "accelerate" or trainer.get("strategy", "ddp") != "ddp":
            passed.add("precision")
    else:
        keeps_model_size = model if kind == "builtin" else model or own_size or nemo.get("task") == "finetune"
        passed = _SCHEMA_1_DEFAULT_BY_NAME.keys() - set(_MODEL_SIZE_NAMES if keeps_model_size else ())
    complete = {**{name: value for name, value in _SCHEMA_1_DEFAULT_BY_NAME.items() if name in passed}, **recipe}
    dropped = _SCHEMA_1_DEFAULT_BY_NAME.keys() - passed
    return {**data, **sections, "recipe": {name: value for name, value in complete.items() if name not in dropped}}
