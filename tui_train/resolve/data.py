"""What is asked of the training data before a training that trains on nothing else."""

import math

from msgspec.structs import replace

from tui_train.facts.data import DataQuestion, DataReport
from tui_train.facts.data_use import Epoch, epoch_size, question_key
from tui_train.profile.mixture import weights
from tui_train.resolve.in_force import is_default
from tui_train.resolve.setup import Setup
from tui_train.trainers import trainer_of
from tui_train.trainers.finetune_data import chat_template

ANSWERS, EVALUATION = "finetune.answers_only", "data.evaluation"


def question(setup: Setup) -> DataQuestion | None:
    """Return what is asked of the data of a profile; None where its trainer reads data by itself, or has none.

    Of a sequence length that follows from the data nothing is asked: the answer says what each one cuts.
    """
    profile = setup.settled
    trainer = profile.trainer
    if not trainer_of(profile).wants_data or not trainer.data:
        return None
    return DataQuestion(
        files=trainer.data,
        model=trainer.model,
        revision=trainer.revision,
        chat_template=chat_template(profile),
        method=profile.finetune.method,
        length=0 if is_default(setup.values["sequence_length"]) else profile.recipe.sequence_length or 0,
        answers_only=None if ANSWERS in setup.by_data else profile.finetune.answers_only,
        weights=weights(profile),
    )


def as_cut(setup: Setup) -> DataQuestion | None:
    """Return the question with the sequence length that cuts the samples, also where it follows from the data."""
    asked = question(setup)
    return replace(asked, length=setup.settled.recipe.sequence_length or 0) if asked else None


def look_of(setup: Setup) -> DataReport | None:
    """Return what was read in the data for these very settings, as the length in force cuts it; None where unread."""
    asked = question(setup)
    look, length = setup.facts.data.get(question_key(asked)) if asked else None, setup.settled.recipe.sequence_length
    if asked is None or look is None or asked.length or not (length and look.tokens and look.lengths):
        return look
    cut = look.lengths.cut(length)
    tokens = replace(look.tokens, cut=cut.rows, lost=cut.lost)
    # What files with weights have of an epoch is not known for each length.
    tokens = tokens if look.shares else replace(tokens, epoch=cut.epoch)
    return replace(look, tokens=tokens)


def one_epoch(setup: Setup) -> Epoch | None:
    """Return what one pass through the data of a fine-tuning is, without what is kept for evaluations; None unread."""
    look, profile = look_of(setup), setup.settled
    if look is None or look.problem or not look.usable:
        return None
    chosen, recipe = profile.finetune, profile.recipe
    whole = epoch_size(look, chosen.method)
    share = 1 - (0.0 if profile.trainer.validation_data else profile.data.evaluation or 0.0)
    rows, tokens = round(whole.rows * share), round(whole.tokens * share)
    packed = chosen.method == "sft" and chosen.packing and tokens and recipe.sequence_length
    sequences = math.ceil(tokens / recipe.sequence_length) if packed and recipe.sequence_length else rows
    steps = math.ceil(sequences / recipe.global_batch) if recipe.global_batch else 0
    return Epoch(rows, tokens, steps, whole.estimated or bool(packed))


def steps_of(setup: Setup) -> int:
    """Return the steps of a whole fine-tuning, 0 where its epochs end it and the data was not read."""
    recipe = setup.settled.recipe
    one = None if recipe.steps else one_epoch(setup)
    return recipe.steps or (math.ceil(one.steps * recipe.epochs) if one and recipe.epochs else 0)
