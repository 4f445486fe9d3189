"""Tells in which format a row is, and what is wrong with one that cannot be learned from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CHAT_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "ipython", "function"))
# The names that data of this format has for those who speak.
CHAT_ROLE_BY_SHAREGPT_ROLE = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "observation": "tool",
}
_Row = dict[str, Any]
# The first that a row has make its format.
_COLUMNS_AND_FORMAT_NAMES = tuple(
    (frozenset(wanted.split()), name)
    for wanted, name in (
        ("chosen rejected", "preference"),
        ("prompt completion label", "kto"),
        ("prompt completion", "prompt_completion"),
        ("messages", "messages"),
        ("conversations", "sharegpt"),
        ("conversation", "sharegpt"),
        ("instruction output", "alpaca"),
        ("instruction response", "alpaca"),
        ("text", "text"),
        ("prompt", "prompt"),
    )
)


# What learns from rewards takes of a row its prompt.
METHODS_OF_PROMPTS = frozenset(("grpo", "rloo"))


def format_name_of_row(row: _Row, *, only_prompts: bool = False) -> str:
    """Return the format of a row by its columns, empty where it is of none that is known.

    With `only_prompts` a row is a prompt, whatever else it has.
    """
    if only_prompts:
        return "prompt" if row.get("prompt") is not None or row.get("messages") is not None else ""
    return _format_by_columns(
        frozenset(column for column, value in row.items() if value is not None)
    ) or _format_by_columns(frozenset(row))


def _format_by_columns(has: frozenset[str]) -> str:
    return next((name for wanted, name in _COLUMNS_AND_FORMAT_NAMES if wanted <= has), "")


def has_messages(row: _Row, format_name: str) -> bool:
    """Return whether a row is made of messages, which go through the chat template."""
    columns = {
        "preference": ("chosen",),
        "kto": ("completion", "prompt"),
        "prompt_completion": ("completion", "prompt"),
    }
    if format_name == "prompt":
        return isinstance(row.get("messages") if row.get("prompt") is None else row["prompt"], list)
    if format_name in columns:
        return any(isinstance(row.get(column), list) for column in columns[format_name])
    return format_name != "text"


def row_problem(row: _Row, format_name: str) -> str:
    """Return what keeps a row of a format from being learned from; empty where nothing does."""
    return _ROW_CHECK_BY_FORMAT[format_name](row) if format_name else f"has unknown columns: {first_columns_text(row)}"


def first_columns_text(row: _Row) -> str:
    """Return the first columns of a row in words."""
    return ", ".join(sorted(str(column)[:40] for column in row)[:6]) or "none"


def conversation_problem(value: Any, column: str, *, needs_answer: bool = True) -> str:
    """Return what is wrong with a list of messages, of which one must be an answer."""
    if not isinstance(value, list):
        return f"{column} is {_json_type_name(value)}, not a list of messages"
    if not value:
        return f"no {column}"
    for number, message in enumerate(value, start=1):
        if why := _message_problem(message):
            return f"{column}: message {number} {why}"
    if needs_answer and not any(message["role"] == "assistant" for message in value):
        return f"{column} has no answer of the assistant"
    return ""


def _message_problem(message: Any) -> str:
    if not isinstance(message, dict):
        return f"is {_json_type_name(message)}, not an object"
    role = message.get("role")
    if not isinstance(role, str):
        return "has no role"
    if role not in CHAT_ROLES:
        return f"has the unknown role {role[:30]!r}"
    content = message.get("content")
    return "" if message.get("tool_calls") and (content is None or content == "") else _content_problem(content)


def _content_problem(content: Any) -> str:
    if isinstance(content, list):
        return "" if content and all(isinstance(part, dict) for part in content) else "is empty"
    if content is None:
        return "has no content"
    if not isinstance(content, str):
        return f"has {_json_type_name(content)} as content, not text"
    return "" if content.strip() else "is empty"


def _json_type_name(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def _sharegpt_row_problem(row: _Row) -> str:
    column = "conversations" if "conversations" in row else "conversation"
    value = row[column]
    if not isinstance(value, list):
        return f"{column} is {_json_type_name(value)}, not a list"
    if not value:
        return f"no {column}"
    if all(isinstance(turn, dict) and "role" in turn for turn in value):
        return conversation_problem(value, column)
    for number, turn in enumerate(value, start=1):
        if why := _sharegpt_turn_problem(turn):
            return f"{column}: turn {number} {why}"
    if not any(CHAT_ROLE_BY_SHAREGPT_ROLE[turn["from"]] == "assistant" for turn in value):
        return f"{column} has no answer of the assistant"
    return ""


def _sharegpt_turn_problem(turn: Any) -> str:
    who, text = (turn.get("from"), turn.get("value")) if isinstance(turn, dict) else (None, None)
    if not isinstance(who, str) or text is None:
        return "has no from and value"
    if who not in CHAT_ROLE_BY_SHAREGPT_ROLE:
        return f"is from the unknown role {who[:30]!r}"
    if not isinstance(text, str):
        return f"has {_json_type_name(text)} as value, not text"
    return "" if text.strip() else "is empty"


def _columns_problem(row: _Row, *columns: str) -> str:
    """Return what is wrong with columns that must be text or messages, and not empty."""
    for column in columns:
        value = row.get(column)
        if isinstance(value, list):
            if why := conversation_problem(value, column, needs_answer=column != "prompt"):
                return why
        elif value is not None and not isinstance(value, str):
            return f"{column} is {_json_type_name(value)}, not text"
        elif value is None or not value.strip():
            return f"{column} is empty"
    return ""


def _alpaca_row_problem(row: _Row) -> str:
    why = _columns_problem(row, "instruction", "output" if "output" in row else "response")
    given = row.get("input")
    return why or ("" if given is None or isinstance(given, str) else f"input is {_json_type_name(given)}, not text")


def _preference_row_problem(row: _Row) -> str:
    asked = ("prompt",) if row.get("prompt") is not None else ()
    why = _columns_problem(row, *asked, "chosen", "rejected")
    if why:
        return why
    if isinstance(row["chosen"], list) != isinstance(row["rejected"], list):
        return "one of chosen and rejected is text, the other a list of messages"
    return "chosen and rejected are the same" if row["chosen"] == row["rejected"] else ""


def _kto_row_problem(row: _Row) -> str:
    why = _columns_problem(row, "prompt", "completion")
    return why or ("" if isinstance(row["label"], bool) else "label is neither true nor false")


def _prompt_row_problem(row: _Row) -> str:
    if row.get("prompt") is not None or row.get("messages") is None:
        return _columns_problem(row, "prompt")
    why = conversation_problem(row["messages"], "messages", needs_answer=False)
    return why or ("" if without_last_answer(row["messages"]) else "messages have no prompt before the answer")


def without_last_answer(messages: list[_Row]) -> list[_Row]:
    """Return the messages before the assistant's last turn, all of them where somebody else is last."""
    end = len(messages)
    while end and messages[end - 1]["role"] == "assistant":
        end -= 1
    return messages[:end]


_ROW_CHECK_BY_FORMAT: dict[str, Callable[[_Row], str]] = {
    "messages": lambda row: conversation_problem(row["messages"], "messages"),
    "sharegpt": _sharegpt_row_problem,
    "prompt_completion": lambda row: _columns_problem(row, "prompt", "completion"),
    "alpaca": _alpaca_row_problem,
    "preference": _preference_row_problem,
    "kto": _kto_row_problem,
    "prompt": _prompt_row_problem,
    "text": lambda row: _columns_problem(row, "text"),
}
