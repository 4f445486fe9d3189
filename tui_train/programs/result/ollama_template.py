"""A chat template of Jinja as one of Ollama, in Go's language, where it frames each turn with the same text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from result_load import RefusedError

Message = dict[str, str]
_SYSTEM, _ASKED, _ANSWERED, _ASKED_AGAIN = "QSYSTEMQ", "QASKEDQ", "QANSWEREDQ", "QAGAINQ"


class TurnFrames(NamedTuple):
    """The text before and after what each role says.

    `default` comes before a chat without a system's words, and `prompt` asks for an answer.
    """

    default: str
    by_role: dict[str, tuple[str, str]]
    prompt: str

    def render(self, messages: list[Message]) -> str:
        """Return messages as the model reads them."""
        begin = "" if messages[0]["role"] == "system" else self.default
        turns = (self.by_role[each["role"]][0] + each["content"] + self.by_role[each["role"]][1] for each in messages)
        return begin + "".join(turns) + self.prompt

    def go_template(self) -> str:
        """Return the same as a template of Ollama."""
        first = f'{{{{ if ne (index .Messages 0).Role "system" }}}}{_go_text(self.default)}{{{{ end }}}}'
        cases = (
            f'if eq .Role "{role}" }}}}{_go_text(before)}{{{{ .Content }}}}{_go_text(after)}'
            for role, (before, after) in self.by_role.items()
        )
        turns = "{{ " + "{{ else ".join(cases) + "{{ end }}"
        begin = first if self.default else ""
        return f"{begin}{{{{ range .Messages }}}}{turns}{{{{ end }}}}{_go_text(self.prompt)}"


def turn_frames(tokenizer: Any) -> TurnFrames:
    """Return the frames of a tokenizer's chat template; RefusedError where it is more than frames around the turns."""
    render = _make_chat_renderer(tokenizer)
    asked = {"role": "user", "content": _ASKED}
    again = {"role": "user", "content": _ASKED_AGAIN}
    answered = {"role": "assistant", "content": _ANSWERED}
    system = {"role": "system", "content": _SYSTEM}
    before_first, after_user = _split_at_only_occurrence(render([asked], False), _ASKED)
    after_answer = _split_at_only_occurrence(render([asked, answered], False), _ANSWERED)[1]
    chat = render([asked, answered, again], False)
    before_answer = _without_prefix(
        _split_at_only_occurrence(_split_at_only_occurrence(chat, _ASKED)[1], _ANSWERED)[0], after_user
    )
    before_user = _without_prefix(
        _split_at_only_occurrence(_split_at_only_occurrence(chat, _ANSWERED)[1], _ASKED_AGAIN)[0], after_answer
    )
    frames = TurnFrames(
        default=_without_suffix(before_first, before_user),
        by_role={"user": (before_user, after_user), "assistant": (before_answer, after_answer)},
        prompt=_without_prefix(_split_at_only_occurrence(render([asked], True), _ASKED)[1], after_user),
    )
    chats = [[asked], [asked, answered, again], [asked, answered, again, answered, asked]]
    try:
        with_system = render([system, asked], False)
    except Exception:  # noqa: BLE001 - a template may refuse a system's words: then it has none
        with_system = ""
    if with_system:
        before, after = _split_at_only_occurrence(with_system, _SYSTEM)
        after = _without_suffix(_split_at_only_occurrence(after, _ASKED)[0], before_user)
        frames = frames._replace(by_role={"system": (before, after), **frames.by_role})
        chats += [[system, *chat] for chat in chats]
    lines = {"role": "user", "content": 'two\n\nlines {{ and }} "braces"'}
    for messages in [*chats, [lines, answered, asked]]:
        if frames.render(messages) != render(messages, True):
            raise _template_too_complex_error()
    return frames


def _make_chat_renderer(tokenizer: Any) -> Callable[[list[Message], bool], str]:
    """Return what renders messages, without the token that begins a text, which the server adds itself."""
    begin = tokenizer.bos_token or ""

    def render(messages: list[Message], asks: bool) -> str:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks)
        return str(text).removeprefix(begin)

    return render


def _split_at_only_occurrence(text: str, word: str) -> tuple[str, str]:
    if text.count(word) != 1:
        raise _template_too_complex_error()
    before, _, after = text.partition(word)
    return before, after


def _without_prefix(text: str, prefix: str) -> str:
    if not text.startswith(prefix):
        raise _template_too_complex_error()
    return text.removeprefix(prefix)


def _without_suffix(text: str, suffix: str) -> str:
    if not text.endswith(suffix):
        raise _template_too_complex_error()
    return text[: len(text) - len(suffix)]


def _template_too_complex_error() -> RefusedError:
    return RefusedError("frames", "it does more than put the same text around each turn")


def _go_text(text: str) -> str:
    """Return a text as an action of a Go template, which keeps its spaces and braces as they are."""
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if text else ""
