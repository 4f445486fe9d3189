"""An evaluation in words: scores of both sides, samples, and the verdict with its interval."""

from collections.abc import Iterator

from tui_train.actions.chat import BLANK_ANSWER_TEXT
from tui_train.actions.evaluate import Evaluation, newest_stored_evaluation
from tui_train.base.text import grouped_digits, loss_text, percent, quantity, visible
from tui_train.runs.results.result import RunResult
from tui_train.runs.run_folders import RunFolder

_MAX_SAMPLE_TEXT_CHARACTERS = 300
_WORDS_BY_SCORING = {"loss": "loss", "exact": "exact answers", "regex": "a pattern", "function": "a function"}


def mean_score_texts(evaluation: Evaluation) -> tuple[str, str, str]:
    """Return what is compared, and its mean for the result and for the other side."""
    result, other = evaluation.mean_scores
    if evaluation.is_of_pairs:
        return "log-probability of chosen minus rejected answer", f"{result:.4g}", f"{other:.4g}"
    if evaluation.by == "loss":
        return "loss per token", loss_text(result), loss_text(other)
    if evaluation.by == "function":
        return "mean score", f"{result:.4g}", f"{other:.4g}"
    if evaluation.tasks:
        groups = dict.fromkeys(row.result.group for row in evaluation.rows)
        label = next(iter(groups)) if len(groups) == 1 else f"mean of {quantity(len(groups), 'task')}"
        return visible(label), f"{result:.4g}", f"{other:.4g}"
    return "right answers", percent(result), percent(other)


def verdict_text(evaluation: Evaluation) -> str:
    """Return the verdict: `Better than the base, on 61 % of 200 rows (95 % interval: 53 to 67 %)`."""
    other = "the base" if evaluation.other_name == "base" else evaluation.other_name
    equal, count = evaluation.equal_row_count, len(evaluation.rows)
    if equal == count:
        return f"No proven difference from {other}: equal on {quantity(count, 'row')}."
    low, high = (percent(share).removesuffix(" %") for share in evaluation.confidence_interval)
    apart = f"{percent(evaluation.better_share)} of {quantity(count - equal, 'row')}"
    interval = f"(95 % interval: {low} to {high} %{f'; equal on {grouped_digits(equal)} more' if equal else ''})"
    if evaluation.verdict == "better":
        return f"Better than {other}, on {apart} {interval}."
    words = f"Worse than {other}" if evaluation.verdict == "worse" else f"No proven difference from {other}"
    return f"{words}: better on {apart} {interval}."


def stored_verdict_text(run: RunFolder, result: RunResult) -> str:
    """Return how a result was scored last and the verdict that its run keeps, with its limits; empty for none.

    Such as `by exact answers: no proven difference from the base: equal on 20 rows.`
    """
    evaluation = newest_stored_evaluation(run, result.weights) if result.weights else None
    if evaluation is None:
        return ""
    verdict = verdict_text(evaluation)
    return f"by {_scoring_text(evaluation)}: {verdict[0].lower()}{verdict[1:]} {evaluation.note}".rstrip()


def _scoring_text(evaluation: Evaluation) -> str:
    words = "" if evaluation.tasks or evaluation.is_of_pairs else _WORDS_BY_SCORING.get(evaluation.by, "")
    return words or mean_score_texts(evaluation)[0]


def differing_sample_texts(evaluation: Evaluation, count: int) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the first rows whose answers differ: prompt, expected answer where there is one, both sides' answers."""
    rows = [row for row in evaluation.rows if row.result.answer != row.other.answer]
    for row in rows[:count]:
        texts = (
            ("prompt", row.result.prompt),
            *((("expected", row.result.expected),) if row.result.expected else ()),
            ("result", row.result.answer.strip() or BLANK_ANSWER_TEXT),
            (evaluation.other_name, row.other.answer.strip() or BLANK_ANSWER_TEXT),
        )
        yield tuple((name, " ".join(text.split())[:_MAX_SAMPLE_TEXT_CHARACTERS]) for name, text in texts)
