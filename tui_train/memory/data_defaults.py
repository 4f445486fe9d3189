"""Defaults that follow from the data: sequence length, learned text of chats, share for evaluations."""

from collections.abc import Iterator

from msgspec.structs import replace

from tui_train.base.text import grouped_digits
from tui_train.facts.data.data_report import DataReport, RowLengths
from tui_train.facts.data.data_use import does_template_mark_answers, facts_key_of_question
from tui_train.facts.types import Facts
from tui_train.memory.predict import predict_on_empty_cards
from tui_train.profile.rewards import generates_answers
from tui_train.profile.types import Profile
from tui_train.setup.recipe import data_questions
from tui_train.setup.recipe.effective_values import EffectiveValue, is_unset_by_user
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field, trainer_of
from tui_train.trainers.finetune import has_evaluation_data

# Of the rows, what a default may cut; and a length up to which none is cut.
_MAX_CUT_SHARE, _LENGTH_UP_TO_WHICH_NO_ROW_IS_CUT = 0.01, 1024
_MAX_CANDIDATE_LENGTH = 1 << 20
# From so many rows on a share is kept for evaluations: a fifth of them is six rows, the fewest of which a verdict
# better or worse can come (actions/evaluate.py).
MIN_ROWS_TO_EVALUATE = 30
LENGTH_OF_ALL_ROWS_TEXT = "all rows, longest"
_EVALUATION_SHARE, _MAX_EVALUATION_SHARE, _MIN_EVALUATION_ROWS, _MAX_EVALUATION_ROWS = 0.05, 0.2, 10, 1000
_EVALUATIONS_PER_TRAINING = 5


def make_setup(profile: Profile, facts: Facts) -> Setup:
    """Return what the profile means on this machine, with the defaults that follow from its data."""
    first = Setup(profile, facts)
    if first.preset_error:
        return first
    if by_data := _answer_and_evaluation_defaults(first):
        first = first.with_defaults(by_data)
    ours = by_data | _length_and_batch_defaults(first) | _checkpoint_interval_default(first)
    return first.with_defaults(ours) if ours else first


def longest_fitting_length(setup: Setup) -> int:
    """Return the longest sequence length that memory and the model allow, 0 where neither is known.

    Memory is that of an empty card, so that a length that was planned holds when a run is resumed.
    """
    question = data_questions.question_about_data(setup)
    report = setup.facts.data.get(facts_key_of_question(question)) if question else None
    limit = report.limit if report else 0
    lengths = [length for length in _candidate_sequence_lengths(report) if not limit or length <= limit]
    return next((length for length, _ in _fitting_lengths_with_micro_batch(setup, lengths)), limit)


def _answer_and_evaluation_defaults(setup: Setup) -> dict[str, EffectiveValue]:
    """Return whether answers alone are learned, and the share for evaluations, where the user chose neither."""
    profile, report = setup.effective_profile, data_questions.data_report_at_length_in_force(setup)
    if report is None or not report.usable:
        return {}
    own_defaults = {}
    if profile.finetune.answers_only is None and does_template_mark_answers(report, profile.finetune.method):
        own_defaults[data_questions.ANSWERS_ONLY_KEY] = EffectiveValue(True, "the chat template marks the answers")
    is_free = profile.data.evaluation is None and not profile.trainer.validation_data
    # Answers to these would be written at each checkpoint.
    is_free = is_free and not generates_answers(profile.finetune)
    if is_free and report.usable >= MIN_ROWS_TO_EVALUATE:
        share = max(_EVALUATION_SHARE, min(_MAX_EVALUATION_SHARE, _MIN_EVALUATION_ROWS / report.usable))
        share = round(min(share, _MAX_EVALUATION_ROWS / report.usable), 4)
        own_defaults[data_questions.EVALUATION_SHARE_KEY] = EffectiveValue(share, "the default")
    return own_defaults


def _checkpoint_interval_default(setup: Setup) -> dict[str, EffectiveValue]:
    """Return after how many steps to save where each checkpoint is evaluated: several times, each evaluated as well."""
    profile, value = setup.effective_profile, setup.effective_values["checkpoint_every"]
    if not (trainer_has_own_field(profile, "finetune") and has_evaluation_data(profile) and is_unset_by_user(value)):
        return {}
    default = value.value if isinstance(value.value, int) else 1
    if every := profile.recipe.evaluate_every:
        return {"checkpoint_every": EffectiveValue(-(-default // every) * every, "a multiple of the evaluations")}
    steps = data_questions.total_training_steps(setup)
    if not steps or steps >= default * _EVALUATIONS_PER_TRAINING:
        return {}
    why = f"{_EVALUATIONS_PER_TRAINING} times in all, each evaluated"
    return {"checkpoint_every": EffectiveValue(-(-steps // _EVALUATIONS_PER_TRAINING), why)}


def _length_and_batch_defaults(setup: Setup) -> dict[str, EffectiveValue]:
    """Return the sequence length and the micro batch that follow from the data; none where a user set the length."""
    facts = setup.facts
    question, value = data_questions.question_about_data(setup), setup.effective_values["sequence_length"]
    if question is None or not is_unset_by_user(value) or generates_answers(setup.profile.finetune):
        return {}
    report = facts.data.get(facts_key_of_question(question))
    if report is None and facts.other_machine:
        return {"sequence_length": EffectiveValue(value.value, "default; the data has not been read")}
    if report is None or report.lengths is None or not report.usable:
        folder = facts.models.get(setup.profile.trainer.model)
        default, limit = setup.effective_profile.recipe.sequence_length or 0, folder.max_tokens if folder else 0
        return {"sequence_length": EffectiveValue(limit, "the model's limit")} if 0 < limit < default else {}
    wanted, why = _needed_sequence_length_and_reason(
        report.lengths, report.usable, packed=setup.effective_profile.finetune.packing
    )
    if 0 < report.limit < wanted:
        wanted, why = report.limit, f"the model's limit; {why}"
    fitting = _fitting_lengths_with_micro_batch(setup, _candidate_sequence_lengths(report))
    max_length, _ = next(fitting, (0, 0))
    if not max_length:
        return {"sequence_length": EffectiveValue(wanted, why)}
    length = min(wanted, max_length)
    if length == max_length < wanted or max_length <= report.lengths.longest:
        why += f", memory allows {grouped_digits(max_length)}"
    _, micro = next(
        _fitting_lengths_with_micro_batch(setup, [length]), (length, setup.effective_profile.recipe.micro_batch)
    )
    own_defaults = {"sequence_length": EffectiveValue(length, why)}
    if micro != setup.effective_profile.recipe.micro_batch:
        own_defaults["micro_batch"] = EffectiveValue(micro, "default")
    return own_defaults


def _needed_sequence_length_and_reason(lengths: RowLengths, usable_rows: int, *, packed: bool) -> tuple[int, str]:
    guess = " estimated from bytes" if lengths.estimated else ""
    uncut_length = next(cut.length for cut in lengths.at if not cut.rows)
    mostly_uncut_length = next(cut.length for cut in lengths.at if cut.rows <= usable_rows * _MAX_CUT_SHARE)
    if packed and uncut_length < _LENGTH_UP_TO_WHICH_NO_ROW_IS_CUT:
        return _LENGTH_UP_TO_WHICH_NO_ROW_IS_CUT, "several rows in each sequence"
    if uncut_length <= max(mostly_uncut_length, _LENGTH_UP_TO_WHICH_NO_ROW_IS_CUT):
        return uncut_length, f"{LENGTH_OF_ALL_ROWS_TEXT} {grouped_digits(lengths.longest)}{guess}"
    return mostly_uncut_length, f"99 % of the rows, p99 {grouped_digits(lengths.p99)}{guess}"


def _candidate_sequence_lengths(report: DataReport | None) -> list[int]:
    """Return the lengths to choose from: those that cut otherwise, and powers of two beyond them."""
    cut_lengths = (
        [cut.length for cut in report.lengths.at] if report and report.lengths else [_LENGTH_UP_TO_WHICH_NO_ROW_IS_CUT]
    )
    beyond, length = [], cut_lengths[-1]
    while (length := 1 << length.bit_length()) <= _MAX_CANDIDATE_LENGTH:
        beyond.append(length)
    return [*cut_lengths, *beyond]


def _fitting_lengths_with_micro_batch(setup: Setup, lengths: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the lengths that fit into an empty card, the longest first, each with the largest micro batch for it.

    A micro batch that the user chose stays as it is.
    """
    micro, recipe = setup.effective_values["micro_batch"], setup.effective_profile.recipe
    sizes = [recipe.micro_batch or 1]
    min_micro = trainer_of(setup.effective_profile).min_micro_batch()
    while is_unset_by_user(micro) and sizes[-1] % 2 == 0 and sizes[-1] // 2 >= min_micro:
        sizes.append(sizes[-1] // 2)
    for length in sorted(lengths, reverse=True):
        for size in sizes:
            changed = replace(recipe, sequence_length=length, micro_batch=size)
            if (
                predict_on_empty_cards(setup.for_attempt(replace(setup.effective_profile, recipe=changed))).band
                == "fits"
            ):
                yield length, size
                break
