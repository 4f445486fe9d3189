"""`tui-train data`: reads training data in the Python that trains, and prints what a training would get."""

import os
import sys
import unicodedata
from pathlib import Path
from typing import Any

import click
import msgspec

from tui_train.actions.host_data import read_data_on_host
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import BadInput, NotFound, Unavailable
from tui_train.base.text import display_path, grouped_digits, percent, visible
from tui_train.checks.finding import Finding
from tui_train.checks.recipe.data import data_findings
from tui_train.cli.printing import print_json
from tui_train.facts.data.data_cache import read_data_report
from tui_train.facts.data.data_report import DataQuestion, DataReport, DataSample, FinetuneMethod, TokenCounts
from tui_train.facts.data.data_use import FORMAT_LABELS, EpochSize, epoch_size, learns_whole_chats
from tui_train.facts.machine import probe, trusted_pythons
from tui_train.facts.other_machines.remote import PathsNamedByPlan, read_planning_facts
from tui_train.facts.types import Toolchain
from tui_train.profile import data_weights, fields
from tui_train.profile.hosts import host_address
from tui_train.views import data_text, plain_text

_LINE_WIDTH = 78
_MAX_SAMPLES_SHOWN = 3
_MAX_SAMPLE_LINES = 14
_STYLE_BY_SAMPLE_TEXT_STATE: dict[str, dict[str, Any]] = {
    "read": {"dim": True},
    "learned": {"fg": "green"},
    "rejected": {"fg": "red"},
    "cut": {"fg": "yellow"},
}
_MARK_LEGEND_TEXT = "▌ learned   ✗ to be avoided   ┊ cut off; the rest is only context"


class DataAnswer(msgspec.Struct, frozen=True):
    """What a Python read in training data, for which question, the size of an epoch, and what is wrong with them."""

    python: str
    question: DataQuestion
    look: DataReport
    epoch: EpochSize
    findings: tuple[Finding, ...]


def print_data_report(  # noqa: PLR0913 - one for each option
    files: tuple[Path, ...],
    *,
    model: str,
    revision: str,
    python: str,
    method: FinetuneMethod,
    length: int | None,
    batch: int | None,
    weights: str,
    answers_only: bool,
    host: str,
    as_json: bool,
) -> None:
    """Print what the data here or on a host hold, the findings on stderr.

    It exits with an error where they cannot be trained on.
    """
    question = DataQuestion(
        files=(), model=model, revision=revision, method=method, length=length or 0,
        answers_only=answers_only or None, weights=_parse_file_weights(weights, len(files)),
    )  # fmt: skip
    if host:
        address = host_address(host)
        question = msgspec.structs.replace(question, files=_absolute_paths_on_host(files, host))
        interpreter = _choose_python_to_read_data(python, address).python
        report = read_data_on_host(address, interpreter, question)
    else:
        question = _question_with_absolute_paths(question, files)
        toolchain = _choose_python_to_read_data(python)
        interpreter = toolchain.python
        report = read_data_report(toolchain, question)
    findings, epoch = data_findings(report, question), epoch_size(report, question.method, batch or 0)
    if as_json:
        print_json(DataAnswer(interpreter, question, report, epoch, findings))
    else:
        for line in _data_lines(report, question, epoch, interpreter):
            click.echo(line)
        _print_findings(findings)
    if any(finding.level == "error" for finding in findings):
        sys.exit(BadInput.exit_code)


def _question_with_absolute_paths(question: DataQuestion, files: tuple[Path, ...]) -> DataQuestion:
    """Return the question with files and model by their whole paths; NotFound where a file is not there."""
    paths = tuple(str(expand_home(str(path)).absolute()) for path in files)
    for path in paths:
        if not os.path.lexists(path):
            raise NotFound(
                f"there is no {visible(path)}",
                ("Name your data files (JSONL, JSON, CSV, Parquet, text), or a folder of them."),
            )
    model = question.model
    if model and (folder := expand_home(model).absolute()).is_dir():
        model = str(folder)
    return msgspec.structs.replace(question, files=paths, model=model)


def _absolute_paths_on_host(files: tuple[Path, ...], host: str) -> tuple[str, ...]:
    """Return paths of a host; BadInput where one is relative, for nobody knows to what."""
    if relative := next((path for path in files if not path.is_absolute()), None):
        raise BadInput(
            f"{visible(str(relative))} is not an absolute path", f"Name it as it is on {visible(host)}: /path/to/file"
        )
    return tuple(map(str, files))


def _parse_file_weights(text: str, file_count: int) -> tuple[float, ...]:
    """Return what was typed as the weights of so many files; BadInput where they are none."""
    numbers = msgspec.convert(fields.parse_value(fields.get_field("data.weights"), text), tuple[float, ...])
    if why := data_weights.data_weights_problem(numbers, file_count):
        raise BadInput(f"how much each file counts (--weights) cannot be used: {why}", data_weights.DATA_WEIGHTS_REMEDY)
    return numbers


def _print_findings(findings: tuple[Finding, ...]) -> None:
    if findings:
        click.echo(err=True)
    for finding in findings:
        click.echo(plain_text.finding_text(finding), err=True)


def _choose_python_to_read_data(python_path: str, host: str = "") -> Toolchain:
    """Return the Python that reads the data: the given one, or the best for fine-tuning of those found.

    Of a `host`, where that is named.
    """
    if host:
        found = read_planning_facts(host, PathsNamedByPlan(pythons=tuple(filter(None, (python_path,))))).toolchains
        tools = tuple(tool for tool in found if python_path in {"", tool.python})
    else:
        trusted_pythons.remember_chosen_python(python_path)
        tools = (probe.probe_toolchain(python_path),) if python_path else tuple(probe.probe_toolchains())
    usable = [tool for tool in tools if not tool.problem]
    if not usable:
        problem = visible(f"{tools[0].python}: {tools[0].problem}") if tools else "none was found"
        raise Unavailable(f"no Python here can read the data: {problem}", "Name a Python: --python /path/to/python3")
    return min(usable, key=lambda tool: ("trl" not in tool.packages, tool.transformers is None))


def _data_lines(report: DataReport, question: DataQuestion, epoch: EpochSize, interpreter: str) -> list[str]:
    """Return the summary, the histogram and the samples; all texts of `report` are safe already."""
    if report.problem:
        return []
    rows = f"{grouped_digits(report.usable)} usable of {grouped_digits(report.rows)}" + (
        "" if report.all_read else " that were read"
    )
    kind = FORMAT_LABELS.get(report.format, "unknown")
    lines = [
        f"{data_text.data_title(report)}, {data_text.data_size_text(report)}",
        f"format   {kind}, columns {', '.join(report.columns) or 'none'}"[:_LINE_WIDTH],
        f"rows     {rows}",
    ]
    if report.tokens:
        lines += _token_lines(report.tokens, report, question)
    lines.append(f"epoch    {data_text.epoch_text(epoch, question)}")
    lines += [
        f"{'' if number else 'of it':9}{words}" for number, words in enumerate(data_text.file_share_lines(report))
    ]
    if report.tokens:
        lines.append(f"answers  {_answers_text(report, question)}")
        lines += [f"end      {words}"] if (words := data_text.passed_end_token_text(report, question)) else []
    else:
        lines.append(f"tokens   not counted{'' if question.model else ': name the model with --model'}")
    lines.append(f"read by  {display_path(interpreter)}")
    if report.samples:
        unmarked = f"{data_text.LEARNED_BY_TEMPLATE_TEXT}{'' if question.model else ': --model shows it'}"
        lines += ["", _MARK_LEGEND_TEXT if data_text.sample_text_states(report) - {"read"} else unmarked]
    for sample in report.samples[:_MAX_SAMPLES_SHOWN]:
        lines += ["", *_marked_sample_lines(sample)]
    return lines


def _answers_text(report: DataReport, question: DataQuestion) -> str:
    if report.answers.why:
        return report.answers.why
    only = question.method == "sft" and not learns_whole_chats(report, question)
    return f"marked by the chat template{': only these are learned' if only else ' (--answers-only learns only these)'}"


def _token_lines(tokens: TokenCounts, report: DataReport, question: DataQuestion) -> list[str]:
    basis = "" if tokens.counted == report.usable else f", estimated from {grouped_digits(tokens.counted)} rows"
    lines = [
        f"tokens   {grouped_digits(tokens.total)}, {percent(tokens.learned / max(tokens.total, 1))} learned{basis}"
    ]
    long = f"95 % up to {grouped_digits(tokens.p95)}, longest {grouped_digits(tokens.longest)}"
    lines.append(f"         median {grouped_digits(tokens.median)}, {long}")
    lines.append(f"         0 {data_text.token_histogram_text(tokens)} {grouped_digits(tokens.longest)}")
    if 0 < question.length < tokens.longest:
        at = question.length * len(tokens.histogram) // tokens.longest
        words = data_text.too_long_rows_text(report, tokens, question)
        lines.append(f"{' ' * (11 + at)}└ {grouped_digits(question.length)}: {words}")
    return lines


def _marked_sample_lines(sample: DataSample) -> list[str]:
    """Return a sample's place and its text, each line behind the mark of what is done with it."""
    about = (
        f": {grouped_digits(sample.tokens)} tokens, {grouped_digits(sample.learned)} learned" if sample.tokens else ""
    )
    head = click.style(f"line {sample.line}{about}", bold=True)
    lines: list[str] = []
    for state, line in data_text.sample_lines_with_states(sample):
        lines += [
            click.style(f"{data_text.MARK_BY_SAMPLE_TEXT_STATE[state]} {part}", **_STYLE_BY_SAMPLE_TEXT_STATE[state])
            for part in _wrap_line(line)
        ]
    hidden = len(lines) - _MAX_SAMPLE_LINES
    if hidden > 1:
        rest = " and more" if sample.shortened else ""
        lines[_MAX_SAMPLE_LINES:] = [f"  … {hidden} lines{rest}"]
    elif sample.shortened:
        lines.append("  …")
    return [head, *lines]


def _wrap_line(line: str) -> list[str]:
    """Return a line in parts that are no wider than the screen."""
    parts, width = [""], 0
    for character in line:
        cells = 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
        if width + cells > _LINE_WIDTH - 2:
            # Between words, where that leaves most of the line.
            at = parts[-1].rfind(" ") + 1
            rest = parts[-1][at:] if at > _LINE_WIDTH // 2 else ""
            parts[-1] = parts[-1][: len(parts[-1]) - len(rest)]
            parts, width = [*parts, rest], len(rest)
        parts[-1] += character
        width += cells
    return parts
