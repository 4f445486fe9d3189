"""Findings about training data that was read; not about a profile, so none of CHECKS."""

import math
from collections.abc import Iterator
from functools import partial

from tui_train.base.text import grouped_digits, percent, quantity, visible
from tui_train.checks.finding import Finding, error, note, severity_sort_key, warning
from tui_train.facts.data.data_report import DataProblem, DataQuestion, DataReport, RowLengths
from tui_train.facts.data.data_use import (
    FORMAT_LABELS,
    FORMATS_BY_METHOD,
    leaves_long_rows_out,
    suitable_methods,
    why_method_unsuitable,
)
from tui_train.profile.changes import Change
from tui_train.trainers.finetune import LABEL_BY_METHOD

_MAX_PROBLEMS_NAMED, _MAX_ROWS_NAMED = 3, 5
# A template that takes fewer rows than one in so many does not suit the data.
_MAX_REFUSED_ROWS_PER_ACCEPTED_ROW = 10
_LEARN_WHOLE_TEXT_CHANGE = Change("learn the whole text", "not the answers alone", (("finetune.answers_only", None),))
# In words of one row and of several, and what helps where no other row is left.
_WORDS_AND_REMEDY_BY_ROW_PROBLEM = {
    "broken": ("is broken", "are broken", "Write each row as one JSON object on a line of its own."),
    "empty": ("is empty", "are empty", "Fill its columns."),
    "wrong": ("is invalid", "are invalid", "docs/data.md shows what a row must have."),
    "other": ("has other columns", "have other columns", ""),
    "refused": (
        "is refused by the chat template",
        "are refused by the chat template",
        "Choose another model (trainer.model).",
    ),
}
_data_error, _data_warning = partial(error, "trainer.data"), partial(warning, "trainer.data")


def data_findings(
    report: DataReport,
    question: DataQuestion,
    known_bad_files: frozenset[str] = frozenset(),
    *,
    max_cut_share: float = 1.0,
    max_length: int = 0,
) -> tuple[Finding, ...]:
    """Return what is wrong with the data for a training, the errors first; `known_bad_files` are left out.

    `max_cut_share` of the rows may be cut; `max_length` is the longest sequence that can be trained, 0: not known.
    """
    if report.problem:
        return (
            _data_error(
                f"the data could not be read: {report.problem}",
                "Check that file, name fewer files (trainer.data), or choose another Python (trainer.python).",
            ),
        )
    empty = not report.usable and not report.counts.get("unreadable")
    findings = [
        *_unreadable_or_partly_read_file_findings(report, known_bad_files),
        *([_no_usable_rows_finding(report, question)] if empty else _method_suitability_findings(report, question)),
        *([] if empty else _unusable_or_duplicate_row_findings(report)),
        *_tokenizer_and_template_findings(report, question),
        *_cut_row_findings(report, question, max_cut_share, max_length),
    ]
    return tuple(sorted(findings, key=severity_sort_key))


def _unreadable_or_partly_read_file_findings(report: DataReport, known_bad_files: frozenset[str]) -> Iterator[Finding]:
    every = [problem for problem in report.problems if problem.kind == "unreadable"]
    unreadable = [problem for problem in every if problem.file not in known_bad_files]
    for problem in unreadable[:_MAX_PROBLEMS_NAMED]:
        yield _data_error(f"{problem.file} {problem.why}", "Name files of rows: JSONL, JSON, CSV, Parquet or text.")
    if len(unreadable) > _MAX_PROBLEMS_NAMED:
        more = report.counts["unreadable"] - (len(every) - len(unreadable)) - _MAX_PROBLEMS_NAMED
        yield _data_error(f"{more} more files cannot be read", "Fix these files, or leave them out (trainer.data).")
    if not report.all_read:
        read = report.done / max(report.size, 1)
        yield note(
            "trainer.data",
            f"only the first {grouped_digits(report.rows)} rows were read ({percent(read)} of the data)",
            "Counts for all rows are estimates from these.",
        )


def _no_usable_rows_finding(report: DataReport, question: DataQuestion) -> Finding:
    """Return the one error of data without a row that can be trained on."""
    if not report.rows:
        return _data_error("the data has no rows", "Name files of rows: JSONL, JSON, CSV, Parquet or text.")
    kinds = sorted(
        (kind for kind in _WORDS_AND_REMEDY_BY_ROW_PROBLEM if report.counts.get(kind)),
        key=lambda kind: -report.counts[kind],
    )
    formats = ", ".join(FORMAT_LABELS[name] for name in FORMATS_BY_METHOD[question.method])
    remedy = _WORDS_AND_REMEDY_BY_ROW_PROBLEM[kinds[0]][2] if kinds else ""
    why = _row_problems_text(report, kinds)
    trained = "A reward model" if question.method == "reward" else LABEL_BY_METHOD[question.method]
    return _data_error(
        f"none of the {grouped_digits(report.rows)} rows can be used: {why}"
        if report.rows > 1
        else f"the only row {why}",
        remedy or f"{trained} needs {formats}: rename the columns to these (docs/data.md).",
        details=_row_position_texts(report, kinds),
    )


def _method_suitability_findings(report: DataReport, question: DataQuestion) -> Iterator[Finding]:
    why = why_method_unsuitable(report, question.method)
    if report.usable and why:
        suitable = suitable_methods(report)
        formats = ", ".join(FORMAT_LABELS[name] for name in FORMATS_BY_METHOD[question.method])
        remedy, change = f"Rename the columns to {formats}.", None
        if suitable:
            remedy = f"Choose a method for this data (finetune.method): {', '.join(suitable)}."
            change = Change(f"method {suitable[0]}", "it suits the data", (("finetune.method", suitable[0]),))
        yield error("finetune.method" if suitable else "trainer.data", why, remedy, change=change)
    if report.format == "kto" and report.desirable in {0, report.usable} and report.usable:
        label = "true" if report.desirable else "false"
        yield _data_warning(
            f"all rows have the label {label}", "KTO needs both: good answers (true) and bad ones (false)."
        )
    # What does not suit the method is not converted for it either.
    for conversion in () if why else report.conversions:
        yield note(
            "trainer.data",
            f"{quantity(conversion.rows, 'row is', 'rows are')} converted for TRL: {conversion.why}",
            "The samples show the converted form.",
        )


def _unusable_or_duplicate_row_findings(report: DataReport) -> Iterator[Finding]:
    kinds = [kind for kind in _WORDS_AND_REMEDY_BY_ROW_PROBLEM if report.counts.get(kind)]
    refused = report.counts.get("refused", 0)
    if report.tokens and refused >= _MAX_REFUSED_ROWS_PER_ACCEPTED_ROW * report.tokens.counted and "refused" in kinds:
        kinds.remove("refused")
        yield _data_error(
            _row_problems_text(report, ["refused"]),
            "Choose a model whose chat template takes such chats (trainer.model), or change the data.",
            details=_row_position_texts(report, ["refused"]),
        )
    if total := sum(report.counts[kind] for kind in kinds):
        left = f"{grouped_digits(total)} of {quantity(report.rows, 'row')} {'is' if total == 1 else 'are'} left out"
        yield _data_warning(
            f"{left}: {_row_problems_text(report, kinds)}",
            "Fix these rows to train on them too.",
            details=_row_position_texts(report, kinds),
        )
    if total := report.counts.get("duplicate", 0):
        yield _data_warning(
            f"{quantity(total, 'row is a copy', 'rows are copies')} of others",
            "Remove the copies, unless they are meant to count more.",
            details=_row_position_texts(report, ["duplicate"]),
        )


def _row_problems_text(report: DataReport, problem_kinds: list[str]) -> str:
    """Return what is wrong with rows, by kind."""
    parts = []
    for kind in problem_kinds:
        total, (one, many, _) = report.counts[kind], _WORDS_AND_REMEDY_BY_ROW_PROBLEM[kind]
        said = one if total == 1 else many
        number = "" if report.rows == 1 else f"{grouped_digits(total)} "
        parts.append(f"{number}{said}")
    return ", ".join(parts)


def _row_position_texts(report: DataReport, problem_kinds: list[str]) -> tuple[str, ...]:
    """Return where the first rows are that something is wrong with, and how many more there are."""
    problems = [problem for problem in report.problems if problem.kind in problem_kinds][:_MAX_ROWS_NAMED]
    more = sum(report.counts.get(kind, 0) for kind in problem_kinds) - len(problems)
    several = report.file_count > 1
    named = tuple(_row_position_and_problem_text(problem, several_files=several) for problem in problems)
    return (*named, f"and {grouped_digits(more)} more") if more > 0 and named else named


def _row_position_and_problem_text(problem: DataProblem, *, several_files: bool) -> str:
    where = f"{problem.file}, line {problem.line}" if several_files else f"line {problem.line}"
    return f"{where}: {problem.why.removeprefix('other columns: ').removeprefix('unknown columns: ')}"


def _tokenizer_and_template_findings(report: DataReport, question: DataQuestion) -> Iterator[Finding]:
    if report.tokenizer_is_missing:
        yield error(
            "trainer.model",
            f"{visible(question.model)} has no tokenizer, which TRL needs",
            "Put the tokenizer's files beside the weights (tokenizer.json, tokenizer_config.json): they are where the "
            "model came from.",
        )
    elif report.tokenizer:
        message = f"the tokenizer of {visible(question.model)} cannot be used to count tokens: {report.tokenizer}"
        yield _data_warning(
            message,
            "Download the model first, or name a model folder (trainer.model); or choose another Python "
            "(trainer.python).",
        )
    if report.template and report.tokens is None:
        yield _data_error(
            f"the chat template cannot be used: {report.template}",
            "Choose a model with a chat template (trainer.model), usually called Instruct or Chat.",
        )
    if question.answers_only and question.model and not report.answers.possible and report.tokens:
        yield error(
            "finetune.answers_only",
            f"answers alone cannot be learned: {report.answers.why}",
            "Learn the whole text (finetune.answers_only=false), or choose a model whose chat template marks answers.",
            change=_LEARN_WHOLE_TEXT_CHANGE,
        )
    if question.answers_only and report.answers.caution:
        yield _data_warning(
            report.answers.caution, "Learn the whole text (finetune.answers_only=false), or edit the chat template."
        )
    tokens = report.tokens
    if tokens is None:
        return
    if tokens.lost and not leaves_long_rows_out(report, question):
        cut_off = f" after {grouped_digits(question.length)} tokens" if tokens.cut else ""
        yield _data_warning(f"in {quantity(tokens.lost, 'row')} nothing is left to learn{cut_off}", "TRL skips them.")
    if report.limit and tokens.longest > report.limit and not 0 < question.length <= report.limit:
        longest, limit = grouped_digits(tokens.longest), grouped_digits(report.limit)
        message = f"the longest row has {longest} tokens, and the model's limit is {limit}"
        yield _data_warning(message, f"Set recipe.sequence_length to {grouped_digits(report.limit)} or less.")


def _cut_row_findings(
    report: DataReport, question: DataQuestion, max_cut_share: float, max_length: int
) -> Iterator[Finding]:
    """Return rows that are longer than the sequence length, with one that cuts none of them, or as few as can be."""
    lengths, usable = report.lengths, max(report.usable, 1)
    if lengths is None or not question.length:
        return
    cut_rows = report.tokens.cut if report.tokens else lengths.effect_of_length(question.length).rows
    cut = cut_rows if lengths.longest > question.length else 0
    if not cut:
        return
    share, outcome = cut / usable, "left out" if leaves_long_rows_out(report, question) else "cut"
    verb = "is" if cut == 1 else "are"
    message = f"{'about ' * lengths.estimated}{quantity(cut, 'row')} ({percent(share, 1)}) {verb}"
    message += f" longer than {grouped_digits(question.length)} tokens and {verb} {outcome}"
    message += " (an estimate: the model is not downloaded yet)" if lengths.estimated else ""
    refused = share > max_cut_share and not lengths.estimated
    consent = math.ceil(share * 100) / 100
    allow = f"To cut them all the same: data.cut={consent:g}." if refused else ""
    change = _longer_length_change(lengths, question.length, max_length)
    if refused and change is None:
        title, why = f"accept {percent(consent)} cut rows", "what is cut off is not learned"
        change = Change(title, why, (("data.cut", consent),))
    yield (error if refused else warning)(
        "recipe.sequence_length",
        message,
        f"99 % of the rows have up to {grouped_digits(lengths.p99)} tokens, the longest"
        f" {grouped_digits(lengths.longest)}. {allow}".strip(),
        change=change,
    )


def _longer_length_change(lengths: RowLengths, length: int, max_length: int) -> Change | None:
    """Return a sequence length that cuts no row, or fewer where model or memory allow no more than `max_length`."""
    uncut = next(cut.length for cut in lengths.at if not cut.rows)
    allowed = min(uncut, max_length or uncut)
    if allowed <= length:
        return None
    cut = lengths.effect_of_length(allowed).rows
    why = f"{grouped_digits(cut)} rows are cut, all that fits" if cut else "no row is cut, at more memory"
    return Change(f"take {grouped_digits(allowed)}", why, (("recipe.sequence_length", allowed),))
