"""What helps where a loss became NaN: the change of a profile, and the advice for what only the script holds."""

import re

from tui_train.diagnose.types import Evidence
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.trainers import trainer_has_own_field

# A rate so many times the trainer's default is a mistake rather than a choice.
_MISTAKEN_RATE_FACTOR = 10
_LEARNING_RATE_ARGUMENT_PATTERN = re.compile(r"(?i)[-+]*(?:[\w-]+\.)*(?P<name>lr|learning[-_]?rate)")


def stabilizing_change(profile: Profile, evidence: Evidence) -> Change | None:
    """Return bf16 for fp16, else a lower learning rate, as far as these reach the trainer."""
    recipe = profile.recipe
    if recipe.precision == "fp16" and "precision" in evidence.accepted_recipe_names:
        return Change("precision bf16", "fp16 overflows where bf16 does not", (("recipe.precision", "bf16"),))
    if "learning_rate" not in evidence.accepted_recipe_names or recipe.learning_rate is None:
        return None
    rate, why = recipe.learning_rate / 2, f"half of {recipe.learning_rate:g}: smaller steps"
    usual = evidence.preset.defaults.get("learning_rate") if evidence.preset else None
    if isinstance(usual, float) and recipe.learning_rate > usual * _MISTAKEN_RATE_FACTOR:
        rate, why = usual, f"the default; {recipe.learning_rate:g} is {recipe.learning_rate / usual:.0f} times that"
    return Change(f"learning rate {rate:g}", why, (("recipe.learning_rate", rate),))


def broken_loss_remedy(profile: Profile, evidence: Evidence) -> str:
    """Return the usual fixes, with the place of each value that the user chose."""
    precision = profile.recipe.precision
    remedies = [
        *(["Use bf16 instead of fp16 (recipe.precision)"] if precision == "fp16" else []),
        f"{_lower_rate_sentence(profile, evidence)}; that helps most often",
        "Else clip gradients to a norm of 1"
        + (", use bf16 if it trains in fp16," if precision is None else "")
        + " and look for broken rows in the data of that step",
    ]
    return "".join(f"{remedy}. " for remedy in remedies).strip()


def _lower_rate_sentence(profile: Profile, evidence: Evidence) -> str:
    words = profile.trainer.arguments
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if _LEARNING_RATE_ARGUMENT_PATTERN.fullmatch(name):
            value = value if equals else next(iter(words[index + 1 :]), "")
            return f"Lower {name} ({value} now)" if value and "{" not in value else _LOWER_RECIPE_RATE_SENTENCE
    in_script = trainer_has_own_field(profile, "trainer.script")
    if in_script and "learning_rate" not in evidence.accepted_recipe_names:
        return "Lower the learning rate in the script"
    return _LOWER_RECIPE_RATE_SENTENCE


_LOWER_RECIPE_RATE_SENTENCE = "Lower recipe.learning_rate"
