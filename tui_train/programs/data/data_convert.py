"""Turns rows into what TRL takes, and names what it changes in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import data_formats as formats

_Row = dict[str, Any]
_COLUMNS_KEPT_BY_FORMAT = {
    "messages": ("messages",),
    "prompt_completion": ("prompt", "completion"),
    "preference": ("prompt", "chosen", "rejected"),
    "kto": ("prompt", "completion", "label"),
    "text": ("text",),
}
_EXTRA_COLUMNS_KEPT = ("tools", "chat_template_kwargs")
# By these columns TRL decides what a row is.
_COLUMNS_READ_BY_TRL = frozenset((
    "prompt", "completion", "chosen", "rejected", "messages", "conversations", "text",
    "image", "images", "input_ids", "labels",
))  # fmt: skip


class ConvertedRow(NamedTuple):
    """A row as TRL takes it, and what was changed in it; empty where TRL takes it as it was."""

    row: _Row
    change: str = ""


def row_for_trl(row: _Row, format_name: str) -> ConvertedRow:
    """Return a row that is not wrong as TRL takes it."""
    made = _convert_texts(row, format_name)
    return made._replace(row={**made.row, "images": row["images"]}) if row.get("images") else made


def _convert_texts(row: _Row, format_name: str) -> ConvertedRow:
    if format_name == "alpaca":
        return ConvertedRow(_convert_alpaca_row(row), "instruction, input and output become prompt and completion")
    if format_name == "sharegpt":
        return _convert_sharegpt_row(row)
    if format_name == "prompt":
        return _convert_prompt_row(row)
    kept = {
        column: row[column]
        for column in (*_COLUMNS_KEPT_BY_FORMAT[format_name], *_EXTRA_COLUMNS_KEPT)
        if row.get(column) is not None
    }
    made = _match_prompt_to_answers(kept, format_name)
    unwanted = sorted(
        column
        for column in row
        if column in _COLUMNS_READ_BY_TRL - {"images"} and column not in _COLUMNS_KEPT_BY_FORMAT[format_name]
    )
    if unwanted and not made.change:
        return made._replace(change=f"{', '.join(unwanted)} left out, which TRL would read too")
    return made


def _convert_prompt_row(row: _Row) -> ConvertedRow:
    """Return a row with a prompt; its other columns stay, as TRL passes them to the rewards."""
    if row.get("prompt") is not None:
        return ConvertedRow(row)
    prompt = formats.without_last_answer(row["messages"])
    return ConvertedRow({**row, "prompt": prompt}, "messages up to the last answer become the prompt")


def part_that_model_reads(row: _Row, format_name: str) -> _Row:
    """Return what goes into the model of a row as TRL takes it: of a prompt no column that only the rewards get."""
    return {"prompt": row["prompt"]} if format_name == "prompt" else row


def pair_with_prompt(row: _Row) -> _Row:
    """Return a pair with a prompt: its own, or the beginning that both answers share, as TRL takes it."""
    if "prompt" in row:
        return row
    chosen, rejected = row["chosen"], row["rejected"]
    at = 0
    while at < min(len(chosen), len(rejected)) and chosen[at] == rejected[at]:
        at += 1
    if chosen[at - 1 : at] == " ":
        # The blank belongs to the answers' first words.
        at -= 1
    return {**row, "prompt": chosen[:at], "chosen": chosen[at:], "rejected": rejected[at:]}


def _match_prompt_to_answers(row: _Row, format_name: str) -> ConvertedRow:
    """Return a row whose prompt is messages where its answers are, and the other way round."""
    prompt = row.get("prompt")
    if prompt is None or not formats.has_messages(row, format_name):
        return ConvertedRow(row)
    answers = [column for column in ("completion", "chosen", "rejected") if column in row]
    first = row[answers[0]]
    if isinstance(prompt, list) and isinstance(first, list):
        return ConvertedRow(row)
    if isinstance(prompt, list):
        answer_messages: _Row = {column: [{"role": "assistant", "content": row[column]}] for column in answers}
        return ConvertedRow({**row, **answer_messages}, "the answer becomes a message of the assistant")
    if format_name == "preference" and any(message["role"] == "user" for message in first):
        without = {column: row[column] for column in row if column != "prompt"}
        return ConvertedRow(without, "prompt is left out: the messages hold it")
    prompt_messages = [{"role": "user", "content": prompt}]
    return ConvertedRow({**row, "prompt": prompt_messages}, "prompt becomes a message of the user")


def _convert_alpaca_row(row: _Row) -> _Row:
    input_text = row.get("input")
    prompt_text = f"{row['instruction']}\n\n{input_text}" if input_text and input_text.strip() else row["instruction"]
    turns = [*_system_messages(row), {"role": "user", "content": prompt_text}]
    answer = row["output"] if "output" in row else row["response"]
    return {"prompt": turns, "completion": [{"role": "assistant", "content": answer}]}


def _system_messages(row: _Row) -> list[dict[str, str]]:
    system = row.get("system")
    return [{"role": "system", "content": system}] if isinstance(system, str) and system.strip() else []


def _convert_sharegpt_row(row: _Row) -> ConvertedRow:
    column = "conversations" if "conversations" in row else "conversation"
    turns = row[column]
    also = {name: row[name] for name in _EXTRA_COLUMNS_KEPT if row.get(name) is not None}
    first = _system_messages(row)
    if "role" in turns[0]:
        return ConvertedRow({"messages": [*first, *turns], **also}, f"{column} becomes messages")
    messages = [{"role": formats.CHAT_ROLE_BY_SHAREGPT_ROLE[turn["from"]], "content": turn["value"]} for turn in turns]
    renamed = sorted(
        {
            f"{turn['from']} becomes {message['role']}"
            for turn, message in zip(turns, messages, strict=True)
            if turn["from"] != message["role"]
        }
    )
    change = f"{column} becomes messages" if column == "conversation" or first else ""
    if renamed:
        # TRL keeps the names, which templates do not know.
        change = f"{column} becomes messages: {', '.join(renamed)}"
    return ConvertedRow({"messages": [*first, *messages], **also}, change)
