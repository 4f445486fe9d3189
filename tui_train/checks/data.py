"""What is wrong with training data, of what was read in it; not of a profile, so none of CHECKS."""

import math
from collections.abc import Iterator

from msgspec import Struct

from tui_train.base.text import counted, percent, thousands, visible
from tui_train.checks.finding import Finding
from tui_train.facts.data import DataProblem, DataQuestion, DataReport, RowLengths
from tui_train.facts.data_use import ACCEPTED_FORMATS, FORMAT_LABELS, suitable_methods, why_unsuitable
from tui_train.profile.changes import Change

KEY = "trainer.data"
_NAMED = 3
# A template that takes fewer rows than one in so many does not suit the data.
_MOST_REFUSED = 10
_WHOLE = Change("learn the whole text", "not the answers alone", (("finetune.answers_only", None),))
# In words of one row and of several, and what helps where no other row is left.
_KINDS = {
    "broken": ("is broken", "are broken", "Write each row as one JSON object on a line of its own."),
    "empty": ("is empty", "are empty", "Fill its columns."),
    "wrong": ("is invalid", "are invalid", "docs/data.md shows what a row must have."),
    "other": ("has other columns", "have other columns", ""),
    "refused": ("is refused by the chat template", "are refused by the chat template", "Choose another model."),
}


class Room(Struct, frozen=True):
    """The share of the rows that may be cut, and the longest sequence length that can be trained; 0: not known."""

    cut: float = 1.0
    longest: int = 0


def data_findings(
    look: DataReport, question: DataQuestion, known: frozenset[str] = frozenset(), room: Room | None = None
) -> tuple[Finding, ...]:
    """Return what is wrong with the data for a training, the errors first; not of files that are `known` to be bad."""
    if look.problem:
        return (
            _error(
                f"the data could not be read: {look.problem}",
                "Check that file, name fewer files, or choose another Python.",
            ),
        )
    empty = not look.usable and not look.counts.get("unreadable")
    found = [
        *_files(look, known),
        *([_nothing(look, question)] if empty else _use(look, question)),
        *([] if empty else _rows(look)),
        *_tokens(look, question),
        *_cut(look, question, room or Room()),
    ]
    return tuple(sorted(found, key=lambda finding: ("error", "warning", "note").index(finding.level)))


def _files(look: DataReport, known: frozenset[str]) -> Iterator[Finding]:
    every = [problem for problem in look.problems if problem.kind == "unreadable"]
    unreadable = [problem for problem in every if problem.file not in known]
    for problem in unreadable[:_NAMED]:
        yield _error(f"{problem.file} {problem.why}", "Name files of rows: JSONL, JSON, CSV, Parquet or text.")
    if len(unreadable) > _NAMED:
        more = look.counts["unreadable"] - (len(every) - len(unreadable)) - _NAMED
        yield _error(f"{more} more files cannot be read", "Fix or leave them out.")
    if not look.all_read:
        read = look.done / max(look.size, 1)
        yield Finding(
            level="note",
            key=KEY,
            message=f"only the first {thousands(look.rows)} rows were read ({percent(read)} of the bytes)",
            remedy="Numbers for all rows are estimated from them.",
        )


def _nothing(look: DataReport, question: DataQuestion) -> Finding:
    """Return the one error of data without a row that can be trained on."""
    if not look.rows:
        return _error("the data has no rows", "Name files of rows: JSONL, JSON, CSV, Parquet or text.")
    kinds = sorted((kind for kind in _KINDS if look.counts.get(kind)), key=lambda kind: -look.counts[kind])
    formats = ", ".join(FORMAT_LABELS[name] for name in ACCEPTED_FORMATS[question.method])
    remedy = _KINDS[kinds[0]][2] if kinds else ""
    why = _each_kind(look, kinds)
    return _error(
        f"none of the {thousands(look.rows)} rows can be used: {why}" if look.rows > 1 else f"the only row {why}",
        remedy or f"{question.method} takes {formats}: rename the columns so (docs/data.md).",
    )


def _use(look: DataReport, question: DataQuestion) -> Iterator[Finding]:
    if look.usable and (why := why_unsuitable(look, question.method)):
        able = ", ".join(suitable_methods(look))
        formats = ", ".join(FORMAT_LABELS[name] for name in ACCEPTED_FORMATS[question.method])
        remedy = f"Choose a method for this data: {able}." if able else f"Rename the columns as in {formats}."
        first = next(iter(suitable_methods(look)), None)
        change = Change(f"method {first}", "it suits the data", (("finetune.method", first),)) if first else None
        yield Finding(level="error", key="finetune.method" if able else KEY, message=why, remedy=remedy, change=change)
    if look.format == "kto" and look.desirable in {0, look.usable} and look.usable:
        said = "true" if look.desirable else "false"
        yield _warning(f"the label of all rows is {said}", "KTO needs both: wanted (true) and unwanted answers.")
    for conversion in look.conversions:
        # What does not suit the method is not converted for it either.
        if not why_unsuitable(look, question.method):
            yield Finding(
                level="note",
                key=KEY,
                message=f"{counted(conversion.rows, 'row is', 'rows are')} converted for TRL: {conversion.why}",
                remedy="The samples show the converted form.",
            )


def _rows(look: DataReport) -> Iterator[Finding]:
    kinds = [kind for kind in _KINDS if look.counts.get(kind)]
    refused = look.counts.get("refused", 0)
    if look.tokens and refused >= _MOST_REFUSED * look.tokens.counted and "refused" in kinds:
        kinds.remove("refused")
        yield _error(_each_kind(look, ["refused"]), "Choose a model whose template suits the data, or change the data.")
    if total := sum(look.counts[kind] for kind in kinds):
        left = f"{thousands(total)} of {counted(look.rows, 'row')} {'is' if total == 1 else 'are'} left out"
        yield _warning(f"{left}: {_each_kind(look, kinds)}", "Fix them to train on them too.")
    if total := look.counts.get("duplicate", 0):
        message = f"{counted(total, 'row is a copy', 'rows are copies')} of others: {_places(look, 'duplicate', total)}"
        yield _warning(message, "Remove the copies, unless they should count more.")


def _each_kind(look: DataReport, kinds: list[str]) -> str:
    """Return what is wrong with rows, by kind, with the places of the first."""
    parts = []
    for kind in kinds:
        total, (one, many, _) = look.counts[kind], _KINDS[kind]
        said = one if total == 1 else many
        number = "" if look.rows == 1 else f"{thousands(total)} "
        parts.append(f"{number}{said} ({_places(look, kind, total)})")
    return ", ".join(parts)


def _places(look: DataReport, kind: str, total: int) -> str:
    problems = [problem for problem in look.problems if problem.kind == kind][:_NAMED]
    named = "; ".join(_place(problem, several=look.file_count > 1) for problem in problems)
    return named + (" …" if total > len(problems) else "")


def _place(problem: DataProblem, *, several: bool) -> str:
    where = f"{problem.file}, line {problem.line}" if several else f"line {problem.line}"
    return f"{where}: {problem.why.removeprefix('other columns: ').removeprefix('unknown columns: ')}"


def _tokens(look: DataReport, question: DataQuestion) -> Iterator[Finding]:
    if look.tokenizer:
        message = f"tokens cannot be counted with {visible(question.model)}: {look.tokenizer}"
        yield _warning(message, "Name a model folder, download the model first, or choose another Python.")
    if look.template and look.tokens is None:
        yield _error(f"the chat template cannot be used: {look.template}", "Choose a model with a template for chats.")
    if question.answers_only and question.model and not look.answers.possible and look.tokens:
        yield Finding(
            level="error",
            key="finetune.answers_only",
            message=f"answers alone cannot be learned: {look.answers.why}",
            remedy="Learn the whole text, or choose a model whose template marks answers.",
            change=_WHOLE,
        )
    if question.answers_only and look.answers.caution:
        yield _warning(look.answers.caution, "Learn the whole text, or edit the template.")
    tokens = look.tokens
    if tokens is None:
        return
    if tokens.lost and question.method != "reward":
        of = f" after {thousands(question.length)} tokens" if tokens.cut else ""
        yield _warning(f"in {counted(tokens.lost, 'row')} nothing is left to learn{of}", "TRL leaves them out.")
    if look.limit and tokens.longest > look.limit and not 0 < question.length <= look.limit:
        message = (
            f"the longest row has {thousands(tokens.longest)} tokens, and the model's limit is {thousands(look.limit)}"
        )
        yield _warning(message, f"Cut at {thousands(look.limit)} or fewer.")


def _cut(look: DataReport, question: DataQuestion, room: Room) -> Iterator[Finding]:
    """Return rows that are longer than the sequence length, with one that cuts none of them, or as few as can be."""
    lengths, usable = look.lengths, max(look.usable, 1)
    if lengths is None or not question.length:
        return
    known = look.tokens.cut if look.tokens else lengths.cut(question.length).rows
    cut = known if lengths.longest > question.length else 0
    if not cut:
        return
    share, done = cut / usable, "left out" if question.method == "reward" else "cut"
    verb = "is" if cut == 1 else "are"
    message = f"{'about ' * lengths.estimated}{counted(cut, 'row')} ({percent(share, 1)}) {verb}"
    message += f" longer than {thousands(question.length)} tokens and {verb} {done}"
    message += " (estimated from bytes: the model is not here)" if lengths.estimated else ""
    refused = share > room.cut and not lengths.estimated
    consent = math.ceil(share * 100) / 100
    allow = f"data.cut={consent:g} allows it." if refused else ""
    change = _longer(lengths, question.length, room.longest)
    if refused and change is None:
        title, why = f"allow {percent(consent)} of them", "what is beyond the length is not learned"
        change = Change(title, why, (("data.cut", consent),))
    yield Finding(
        level="error" if refused else "warning",
        key="recipe.sequence_length",
        message=message,
        remedy=f"99 % of the rows have up to {thousands(lengths.p99)} tokens, the longest"
        f" {thousands(lengths.longest)}. {allow}".strip(),
        change=change,
    )


def _longer(lengths: RowLengths, length: int, most: int) -> Change | None:
    """Return a sequence length that cuts no row, or fewer where the model or memory allows no more than `most`."""
    wanted = next(cut.length for cut in lengths.at if not cut.rows)
    taken = min(wanted, most or wanted)
    if taken <= length:
        return None
    cut = lengths.cut(taken).rows
    why = f"{thousands(cut)} rows are cut, all that fits" if cut else "no row is cut, at more memory"
    return Change(f"take {thousands(taken)}", why, (("recipe.sequence_length", taken),))


def _error(message: str, remedy: str) -> Finding:
    return Finding(level="error", key=KEY, message=message, remedy=remedy)


def _warning(message: str, remedy: str) -> Finding:
    return Finding(level="warning", key=KEY, message=message, remedy=remedy)
