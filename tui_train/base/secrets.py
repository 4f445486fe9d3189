"""Detects secrets by their names or formats, and masks them in texts."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from tui_train.base.secret_forms import FORMS, GUESSES, PROVEN, PROVEN_IN_COMMANDS, SecretFormat

MASK = "<masked>"
_SHORTEST = 6

# For accessToken and clientSecret.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PASSWORD = re.compile(r"(password|passwd|passphrase)$|[_-](pass|pwd)$", re.IGNORECASE)
_NAME = re.compile(
    r"(^|[_-])(token|secrets?|credentials?|pwd|auth|key)$|[_-](pass|pat)$"
    r"|(password|passwd|passphrase|apikey|authtoken)$",
    re.IGNORECASE,
)
# Parts of a signed URL.
_SIGNED = re.compile(r"(^|[_-])(sig|signature|credential|policy)$", re.IGNORECASE)
# Harmless names: --pad_token=<pad>, --num_token=512, --sort_key=length.
_HARMLESS = re.compile(
    r"(^|[_-])(pad|eos|bos|unk|sep|cls|mask|stop|start|end|image|video|audio|special|new|num|max|min|per|by|sort|cache|text"
    r"|field|column|dict|primary|foreign|group|label|input|output|data|is)[_-](token|key)$|^key$"
    r"|(^|[_-])(forward|backward|first|second|last|single|multi|one|two|per|num|max|min)[_-]pass$"
    r"|(^|[_-])(file|glob|name|match|path|regex)[_-]pat$",
    re.IGNORECASE,
)
# Harmless values: numbers, booleans, special tokens, names of variables, and types of a program's source.
_PLAIN = re.compile(
    r"-?\d{1,7}(\.\d*){0,3}|true|false|none|null|yes|no|<.{0,20}|\$.*|\{.*|\*+|(str|bytes|int|float|bool|any)(\|none)?",
    re.IGNORECASE,
)

# Letters and digits without a word between separators, or with signs that names do not have.
_PASSWORDS = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[A-Za-z\d]{6,}|(?=.*[A-Za-z])(?=.*[!@#%^&*?+])[^\s/.:,=]+")
_OPTION = re.compile(r"[-+~]{0,2}[A-Za-z][\w.-]{0,60}")
_VALUE = r"""(?P<value>"(?:[^"\\\r\n]|\\.){1,2000}"|'[^'\r\n]{1,2000}'|[^\s'",;()\[\]{}]{1,2000})"""
_IN_QUERY = re.compile(r"""(?P<before>[?&;](?P<name>[A-Za-z][\w.-]{0,60})=)(?P<value>[^\s&;#'"<>()\[\]{}]{1,2000})""")
_LONG_KEY = 16
# Escape sequences of a terminal, raw and as JSON or a shell writes them.
_ESCAPE = r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)"
_COLOUR = re.compile(
    rf"{_ESCAPE}(?:\[[0-9;:?]{{0,40}}[ -/]{{0,4}}[@-~]|\][^\x07\x1b\\]{{0,200}}(?:\x07|\x1b\\)?|[@-Z\\^_])"
)
# An argument and the next word, in a command or a list; a name and its value, in a shell, TOML or JSON.
_NAMED = (
    re.compile(
        rf"""(?P<before>(?<![\w-])--?(?P<name>[A-Za-z][\w.-]{{0,60}})(?:=|['"]?\s*,\s*|['"]?\s+(?!-))){_VALUE}"""
    ),
    re.compile(
        rf"""(?P<before>(?<![\w.-])-{{0,2}}(?P<name>[A-Za-z][\w.-]{{0,60}})['"]?[ \t]{{0,3}}[:=][ \t]{{0,3}}){_VALUE}"""
    ),
)


def is_secret_name(name: str) -> bool:
    """Return whether a name of a variable or argument is that of a secret, and not of a tokenizer setting."""
    last = _HUMP.sub("_", name.rpartition(".")[2])
    if last in {"PWD", "OLDPWD"}:
        return False  # PWD and OLDPWD
    return bool(_NAME.search(last)) and not _HARMLESS.search(last)


def is_harmless_value(value: str) -> bool:
    """Return whether a value of a secret's name is none: a number, a special token, the name of a variable."""
    return bool(_PLAIN.fullmatch(value))


class SecretArgument(NamedTuple):
    """An argument that looks like a secret: its name, its value, whether that is sure, and which words it is."""

    name: str
    value: str
    sure: bool
    at: tuple[int, ...]


def secret_arguments(words: Iterable[str], *, command: bool = False) -> Iterator[SecretArgument]:
    """Yield each argument that looks like a secret; its format or name makes that sure, in a command its program."""
    before = ""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not (equals and _OPTION.fullmatch(name)):
            name, value = before, word
        sure = _is_certain_secret(name, value, command=command)
        if sure is not None:
            yield SecretArgument(
                name, value, sure, (at - 1, at) if name and name == before and value == word else (at,)
            )
        before = word if word.startswith("-") and not equals else ""


def _is_certain_secret(name: str, value: str, *, command: bool) -> bool | None:
    """Return whether an argument surely is a secret; None where nothing speaks for it."""
    bare = name.lstrip("-+~")
    if has_certain_format(value, command=command):
        return True
    if value and not value.startswith("-") and is_secret_name(bare) and not is_harmless_value(value):
        return bool(_PASSWORD.search(bare))
    guessed = (
        has_secret_format(value)
        or (name in {"-p", "-P"} and _like_password(value))
        or any(_format_matches(value, GUESSES))
    )
    return False if guessed else None


def _like_password(value: str) -> bool:
    """Return whether the value of -p is rather a password than a port, a path, a precision or a name."""
    return len(value) >= _SHORTEST and not is_harmless_value(value) and bool(_PASSWORDS.fullmatch(value))


def has_secret_format(value: str) -> bool:
    """Return whether a value contains what looks like a secret by its format, or by the words around it."""
    return _has(value, FORMS)


def has_certain_format(value: str, *, command: bool = False) -> bool:
    """Return whether a value contains a format that only secrets have: a token, a key, a URL with a password."""
    return _has(value, PROVEN_IN_COMMANDS if command else PROVEN)


def _has(value: str, forms: tuple[SecretFormat, ...]) -> bool:
    plain = _COLOUR.sub("", value)
    if any(_format_matches(plain, forms)):
        return True
    return any(_is_secret_parameter(match) for match in _IN_QUERY.finditer(plain))


def _format_matches(text: str, forms: tuple[SecretFormat, ...]) -> Iterator[re.Match[str]]:
    """Yield what has one of the formats."""
    for form in _possible_formats(forms, text):
        yield from (match for match in form.compiled.finditer(text) if _is_secret_match(form, match))


def _is_secret_match(form: SecretFormat, match: re.Match[str]) -> bool:
    secret = _secret_of(match)
    return MASK not in secret and form.holds(secret)


def _secret_of(match: re.Match[str]) -> str:
    return match["secret"] if "secret" in match.re.groupindex else match[0]


def _is_secret_parameter(match: re.Match[str]) -> bool:
    """Return whether a URL parameter is a secret."""
    name, value = match["name"], match["value"]
    secret = is_secret_name(name) or _SIGNED.search(_HUMP.sub("_", name)) or (name == "key" and len(value) >= _LONG_KEY)
    return bool(secret) and value != MASK and not _PLAIN.fullmatch(value)


def mask(text: str, known: Iterable[str] = ()) -> tuple[str, Counter[str]]:
    """Return a text without secrets, and their number by kind; `known` are known secret values."""
    spelled = {form for value in known if len(value) >= _SHORTEST for form in _spellings(value)}
    longest_first = sorted(spelled, key=len, reverse=True)
    forms = _possible_formats(FORMS, _COLOUR.sub("", text))
    if _COLOUR.search(text):
        text = "".join(_uncoloured(line, longest_first, forms) for line in text.splitlines(keepends=True))
    return _masked(text, longest_first, forms)


def _possible_formats(forms: tuple[SecretFormat, ...], text: str) -> tuple[SecretFormat, ...]:
    """Return the formats that a text can hold."""
    lower = text.lower()
    return tuple(form for form in forms if any(word in lower for word in form.near))


def _uncoloured(line: str, known: list[str], forms: tuple[SecretFormat, ...]) -> str:
    """Return a line without escape sequences if it contains a secret, which they could split."""
    plain = _COLOUR.sub("", line)
    return plain if plain != line and _masked(plain, known, forms)[1] else line


def _masked(text: str, known: list[str], forms: tuple[SecretFormat, ...]) -> tuple[str, Counter[str]]:
    counts: Counter[str] = Counter()
    for value in known:
        counts["known values"] += text.count(value)
        text = text.replace(value, MASK)
    for form in forms:
        text = form.compiled.sub(partial(_without_secret, form, counts), text)
    text = _IN_QUERY.sub(lambda match: _without_parameter(match, counts), text)
    for pattern in _NAMED:
        text = pattern.sub(lambda match: _without_value(match, counts), text)
    for form in GUESSES:
        text = form.compiled.sub(partial(_without_secret, form, counts), text)
    return text, +counts


def _without_secret(form: SecretFormat, counts: Counter[str], match: re.Match[str]) -> str:
    if not _is_secret_match(form, match):
        return match[0]
    counts[form.kind] += 1
    secret = _secret_of(match)
    quote = secret[0] if secret[0] in "\"'" else ""
    begin = match.start("secret") - match.start() if secret != match[0] else 0
    return f"{match[0][:begin]}{quote}{MASK}{quote}{match[0][begin + len(secret) :]}"


def _without_parameter(match: re.Match[str], counts: Counter[str]) -> str:
    if not _is_secret_parameter(match):
        return match[0]
    counts["secrets in URLs"] += 1
    return f"{match['before']}{MASK}"


def _without_value(match: re.Match[str], counts: Counter[str]) -> str:
    value = match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    inner = value[1:-1] if quote else value
    if not is_secret_name(match["name"]) or _PLAIN.fullmatch(inner):
        return match[0]
    counts["values of secret names"] += 1
    return f"{match['before']}{quote}{MASK}{quote}"


def _spellings(value: str) -> tuple[str, ...]:
    """Return a value as spelled in a log, a shell, JSON or TOML."""
    return value, shlex.quote(value), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
