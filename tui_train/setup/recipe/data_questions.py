"""Questions about the training data, for trainers that train on nothing else."""

import math

from msgspec.structs import replace

from tui_train.facts.data.data_report import DataQuestion, DataReport, RewardQuestion
from tui_train.facts.data.data_use import EpochSize, epoch_size, facts_key_of_question
from tui_train.profile.data_weights import valid_data_weights
from tui_train.profile.rewards import chosen_rewards, generates_answers, generations_in_force
from tui_train.profile.types import Profile
from tui_train.setup.recipe.effective_values import is_unset_by_user
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_of
from tui_train.trainers.finetune_data import chosen_chat_template

ANSWERS_ONLY_KEY, EVALUATION_SHARE_KEY = "finetune.answers_only", "data.evaluation"


def question_about_data(setup: Setup) -> DataQuestion | None:
    """Return what is asked of the data of a profile; None where its trainer reads data by itself, or has none.

    Of a sequence length that follows from the data nothing is asked: the answer says what each one cuts.
    """
    profile = setup.effective_profile
    trainer = profile.trainer
    if not trainer_of(profile).requires_user_data or not trainer.data:
        return None
    return DataQuestion(
        files=trainer.data,
        model=trainer.model,
        revision=trainer.revision,
        chat_template=chosen_chat_template(profile),
        method=profile.finetune.method,
        length=0 if is_unset_by_user(setup.effective_values["sequence_length"]) else _length_in_force(profile),
        answers_only=None if ANSWERS_ONLY_KEY in setup.data_values_by_key else profile.finetune.answers_only,
        weights=valid_data_weights(profile),
        max_pixels=profile.data.max_pixels or 0,
        rewards=() if "rewards" in trainer.allow else _questions_about_rewards(profile),
    )


def _questions_about_rewards(profile: Profile) -> tuple[RewardQuestion, ...]:
    """Return what is asked of the rewards: each with the variables that it is called with."""
    return tuple(
        RewardQuestion(reward.text, reward.dotted, reward.file, profile.trainer.environment)
        for reward in chosen_rewards(profile.finetune)
    )


def question_with_length_in_force(setup: Setup) -> DataQuestion | None:
    """Return the question with the sequence length that cuts the samples, also where it follows from the data."""
    unlimited = question_about_data(setup)
    return replace(unlimited, length=_length_in_force(setup.effective_profile)) if unlimited else None


def _length_in_force(profile: Profile) -> int:
    """Return the tokens at which rows are cut, 0 for never: a prompt is never cut."""
    return 0 if generates_answers(profile.finetune) else profile.recipe.sequence_length or 0


def data_report_at_length_in_force(setup: Setup) -> DataReport | None:
    """Return what was read in the data for these very settings, as the length in force cuts it; None where unread."""
    question, length = question_about_data(setup), _length_in_force(setup.effective_profile)
    report = setup.facts.data.get(facts_key_of_question(question)) if question else None
    if question is None or report is None or question.length:
        return report
    if not (length and report.tokens and report.lengths):
        return report
    effect = report.lengths.effect_of_length(length)
    tokens = replace(report.tokens, cut=effect.rows, lost=effect.lost)
    # What files with weights have of an epoch is not known for each length.
    tokens = tokens if report.shares else replace(tokens, epoch=effect.epoch)
    return replace(report, tokens=tokens)


def training_epoch_size(setup: Setup) -> EpochSize | None:
    """Return what one pass through the data of a fine-tuning is, without what is kept for evaluations; None unread."""
    report, profile = data_report_at_length_in_force(setup), setup.effective_profile
    if report is None or report.problem or not report.usable:
        return None
    chosen, recipe = profile.finetune, profile.recipe
    full_epoch = epoch_size(report, chosen.method)
    training_share = 1 - (0.0 if profile.trainer.validation_data else profile.data.evaluation or 0.0)
    rows, tokens = round(full_epoch.rows * training_share), round(full_epoch.tokens * training_share)
    packed = chosen.method == "sft" and chosen.packing and tokens and recipe.sequence_length
    sequences = math.ceil(tokens / recipe.sequence_length) if packed and recipe.sequence_length else rows
    sequences *= generations_in_force(chosen)
    steps = math.ceil(sequences / recipe.global_batch) if recipe.global_batch else 0
    return EpochSize(rows, tokens, steps, full_epoch.estimated or bool(packed))


def total_training_steps(setup: Setup) -> int:
    """Return the steps of a whole fine-tuning, 0 where its epochs end it and the data was not read."""
    recipe = setup.effective_profile.recipe
    epoch_of_data = None if recipe.steps else training_epoch_size(setup)
    return recipe.steps or (math.ceil(epoch_of_data.steps * recipe.epochs) if epoch_of_data and recipe.epochs else 0)
