"""What is asked of the training data before a training that trains on nothing else."""

from tui_train.facts.data import DataLook, Question
from tui_train.facts.data_use import key
from tui_train.facts.types import Facts
from tui_train.resolve.resolve import Resolved
from tui_train.trainers import trainer_of


def question(resolved: Resolved) -> Question | None:
    """Return what is asked of the data of a profile; None where its trainer reads data by itself, or has none."""
    profile = resolved.settled
    trainer = profile.trainer
    if not trainer_of(profile).wants_data or not trainer.data:
        return None
    return Question(
        files=trainer.data,
        model=trainer.model,
        method=profile.finetune.method,
        length=profile.recipe.sequence_length or 0,
        answers_only=bool(profile.finetune.answers_only),
    )


def look_of(resolved: Resolved, facts: Facts) -> DataLook | None:
    """Return what was read in the data for these very settings, None where it was not."""
    asked = question(resolved)
    return facts.data.get(key(asked)) if asked else None
