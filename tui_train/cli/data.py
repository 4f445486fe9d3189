"""What `tui-train data` does: reads training data in the Python that trains, and prints what a training would get."""

import os
import sys
import unicodedata
from pathlib import Path
from typing import Any

import click
import msgspec

from tui_train.base.errors import BadInput, NotFound, Unavailable
from tui_train.base.places import expanded
from tui_train.base.text import display_path, percent, thousands, visible
from tui_train.checks.data import data_findings
from tui_train.checks.finding import Finding
from tui_train.cli.plans import print_json
from tui_train.facts import probe, trust
from tui_train.facts.data import DataQuestion, DataReport, DataSample, Tokens
from tui_train.facts.data_cache import read_data
from tui_train.facts.data_use import FORMAT_LABELS, Epoch, epoch_size
from tui_train.facts.types import Toolchain
from tui_train.profile import fields, mixture
from tui_train.workflow import data as data_words
from tui_train.workflow import show

_WIDTH = 78
_SAMPLES = 3
_SAMPLE_LINES = 14
_STYLES: dict[str, dict[str, Any]] = {
    "read": {"dim": True},
    "learned": {"fg": "green"},
    "rejected": {"fg": "red"},
    "cut": {"fg": "yellow"},
}
_LEGEND = "▌ learned   ✗ learned to be avoided   ┊ cut; the rest is only read"


def data(  # noqa: PLR0913 - one for each option
    files: tuple[Path, ...], question: DataQuestion, python: str, batch: int, weights: str, *, as_json: bool
) -> None:
    """Print what the data holds, its findings on stderr; exits with an error where it cannot be trained on."""
    paths = tuple(str(expanded(str(path)).absolute()) for path in files)
    for path in paths:
        if not os.path.lexists(path):
            raise NotFound(f"there is no {visible(path)}", "Name files of rows, or a folder of them.")
    model = question.model
    if model and (folder := expanded(model).absolute()).is_dir():
        model = str(folder)
    question = msgspec.structs.replace(question, files=paths, model=model, weights=_weights(weights, len(paths)))
    toolchain = _python(python)
    interpreter = toolchain.python
    look = read_data(toolchain, question)
    findings, one_epoch = data_findings(look, question), epoch_size(look, question.method, batch)
    if as_json:
        print_json(
            {"python": interpreter, "question": question, "look": look, "epoch": one_epoch, "findings": findings}
        )
    else:
        for line in _lines(look, question, one_epoch, interpreter):
            click.echo(line)
        _show(findings)
    if any(finding.level == "error" for finding in findings):
        sys.exit(BadInput.exit_code)


def _weights(text: str, files: int) -> tuple[float, ...]:
    """Return what was typed as the weights of so many files; BadInput where they are none."""
    numbers = msgspec.convert(fields.parse(fields.field("data.weights"), text), tuple[float, ...])
    if why := mixture.weights_problem(numbers, files):
        raise BadInput(f"the weights of the files cannot be used: {why}", mixture.REMEDY)
    return numbers


def _show(findings: tuple[Finding, ...]) -> None:
    if findings:
        click.echo(err=True)
    for finding in findings:
        click.echo(show.finding(finding), err=True)


def _python(named: str) -> Toolchain:
    """Return the Python that reads the data: the given one, or the best for fine-tuning of those found."""
    trust.choose(named)
    tools = (probe.toolchain(named),) if named else probe.toolchains()
    usable = [tool for tool in tools if not tool.problem]
    if not usable:
        problem = visible(f"{tools[0].python}: {tools[0].problem}") if tools else "none was found"
        raise Unavailable(f"no Python can read the data: {problem}", "Name one: --python /path/to/python3")
    return min(usable, key=_lacks)


def _lacks(tool: Toolchain) -> tuple[bool, bool]:
    return "trl" not in tool.packages, tool.transformers is None


def _lines(look: DataReport, question: DataQuestion, one_epoch: Epoch, interpreter: str) -> list[str]:
    """Return the summary, the histogram and the samples; all texts of `look` are safe already."""
    if look.problem:
        return []
    rows = f"{thousands(look.usable)} usable of {thousands(look.rows)}" + ("" if look.all_read else " that were read")
    kind = FORMAT_LABELS.get(look.format, "unknown")
    lines = [
        f"{data_words.title(look)}, {data_words.bytes_of(look)}",
        f"format   {kind}, columns {', '.join(look.columns) or 'none'}"[:_WIDTH],
        f"rows     {rows}",
    ]
    if look.tokens:
        lines += _tokens(look.tokens, look, question)
    lines.append(f"epoch    {data_words.epoch_words(one_epoch, question)}")
    lines += [f"{'' if number else 'of it':9}{words}" for number, words in enumerate(data_words.share_lines(look))]
    if look.tokens:
        lines.append(f"answers  {look.answers.why or 'can be learned alone (--answers-only)'}")
        lines += [f"end      {words}"] if (words := data_words.end_words(look, question)) else []
    else:
        lines.append(f"tokens   not counted{'' if question.model else ': name the model with --model'}")
    lines.append(f"read by  {display_path(interpreter)}")
    if look.samples:
        lines += ["", _LEGEND]
    for sample in look.samples[:_SAMPLES]:
        lines += ["", *_sample(sample)]
    return lines


def _tokens(tokens: Tokens, look: DataReport, question: DataQuestion) -> list[str]:
    of = "" if tokens.counted == look.usable else f", estimated from {thousands(tokens.counted)} rows"
    lines = [
        f"tokens   {thousands(tokens.total)}, {percent(tokens.learned / max(tokens.total, 1))} learned{of}",
    ]
    long = f"95 % up to {thousands(tokens.p95)}, longest {thousands(tokens.longest)}"
    lines.append(f"         median {thousands(tokens.median)}, {long}")
    lines.append(f"         0 {data_words.histogram(tokens)} {thousands(tokens.longest)}")
    if 0 < question.length < tokens.longest:
        at = question.length * len(tokens.histogram) // tokens.longest
        words = data_words.cut_words(look, tokens, question)
        lines.append(f"{' ' * (11 + at)}└ {thousands(question.length)}: {words}")
    return lines


def _sample(sample: DataSample) -> list[str]:
    """Return a sample's place and its text, each line behind the mark of what is done with it."""
    about = f": {thousands(sample.tokens)} tokens, {thousands(sample.learned)} learned" if sample.tokens else ""
    head = click.style(f"line {sample.line}{about}", bold=True)
    lines: list[str] = []
    for state, line in data_words.sample_lines(sample):
        lines += [click.style(f"{data_words.MARKS[state]} {part}", **_STYLES[state]) for part in _folded(line)]
    hidden = len(lines) - _SAMPLE_LINES
    if hidden > 1:
        rest = " and more" if sample.shortened else ""
        lines[_SAMPLE_LINES:] = [f"  … {hidden} lines{rest}"]
    elif sample.shortened:
        lines.append("  …")
    return [head, *lines]


def _folded(line: str) -> list[str]:
    """Return a line in parts that are no wider than the screen."""
    parts, width = [""], 0
    for character in line:
        cells = 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
        if width + cells > _WIDTH - 2:
            # Between words, where that leaves most of the line.
            at = parts[-1].rfind(" ") + 1
            rest = parts[-1][at:] if at > _WIDTH // 2 else ""
            parts[-1] = parts[-1][: len(parts[-1]) - len(rest)]
            parts, width = [*parts, rest], len(rest)
        parts[-1] += character
        width += cells
    return parts
