"""Detects secrets by their names or formats, and masks them in texts."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from tui_train.base.secret_formats import (
    POSSIBLY_SECRET_FORMATS,
    SECRET_FORMATS,
    SURELY_SECRET_COMMAND_FORMATS,
    SURELY_SECRET_FORMATS,
    SecretFormat,
)

MASK_TEXT = "<masked>"
_MIN_SECRET_LENGTH = 6

# For accessToken and clientSecret.
_CAMEL_CASE_BOUNDARY_PATTERN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PASSWORD_NAME_PATTERN = re.compile(r"(password|passwd|passphrase)$|[_-](pass|pwd)$", re.IGNORECASE)
_SECRET_NAME_PATTERN = re.compile(
    r"(^|[_-])(token|secrets?|credentials?|pwd|auth|key)$|[_-](pass|pat)$"
    r"|(password|passwd|passphrase|apikey|authtoken)$",
    re.IGNORECASE,
)
# Parts of a signed URL.
_SIGNED_URL_PARAMETER_PATTERN = re.compile(r"(^|[_-])(sig|signature|credential|policy)$", re.IGNORECASE)
# Harmless names: --pad_token=<pad>, --num_token=512, --sort_key=length.
_HARMLESS_NAME_PATTERN = re.compile(
    r"(^|[_-])(pad|eos|bos|unk|sep|cls|mask|stop|start|end|image|video|audio|special|new|num|max|min|per|by|sort|cache|text"
    r"|field|column|dict|primary|foreign|group|label|input|output|data|is)[_-](token|key)$|^key$"
    r"|(^|[_-])(forward|backward|first|second|last|single|multi|one|two|per|num|max|min)[_-]pass$"
    r"|(^|[_-])(file|glob|name|match|path|regex)[_-]pat$",
    re.IGNORECASE,
)
# Harmless values: numbers, booleans, special tokens, names of variables, and types of a program's source.
_HARMLESS_VALUE_PATTERN = re.compile(
    r"-?\d{1,7}(\.\d*){0,3}|true|false|none|null|yes|no|<.{0,20}|\$.*|\{.*|\*+|(str|bytes|int|float|bool|any)(\|none)?",
    re.IGNORECASE,
)

# Letters and digits without a word between separators, or with signs that names do not have.
_PASSWORD_VALUE_PATTERN = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[A-Za-z\d]{6,}|(?=.*[A-Za-z])(?=.*[!@#%^&*?+])[^\s/.:,=]+")
_OPTION_NAME_PATTERN = re.compile(r"[-+~]{0,2}[A-Za-z][\w.-]{0,60}")
_VALUE_PATTERN = r"""(?P<value>"(?:[^"\\\r\n]|\\.){1,2000}"|'[^'\r\n]{1,2000}'|[^\s'",;()\[\]{}]{1,2000})"""
_QUERY_PARAMETER_PATTERN = re.compile(
    r"""(?P<before>[?&;](?P<name>[A-Za-z][\w.-]{0,60})=)(?P<value>[^\s&;#'"<>()\[\]{}]{1,2000})"""
)
_MIN_URL_KEY_LENGTH = 16
# Escape sequences of a terminal, raw and as JSON or a shell writes them.
_ESC_PATTERN = r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)"
_ESCAPE_SEQUENCE_PATTERN = re.compile(
    rf"{_ESC_PATTERN}(?:\[[0-9;:?]{{0,40}}[ -/]{{0,4}}[@-~]|\][^\x07\x1b\\]{{0,200}}(?:\x07|\x1b\\)?|[@-Z\\^_])"
)
# An argument and the next word, in a command or a list; a name and its value, in a shell, TOML or JSON.
_NAMED_VALUE_PATTERNS = (
    re.compile(
        rf"""(?P<before>(?<![\w-])--?(?P<name>[A-Za-z][\w.-]{{0,60}})(?:=|['"]?\s*,\s*|['"]?\s+(?!-))){_VALUE_PATTERN}"""
    ),
    re.compile(
        rf"""(?P<before>(?<![\w.-])-{{0,2}}(?P<name>[A-Za-z][\w.-]{{0,60}})['"]?[ \t]{{0,3}}[:=][ \t]{{0,3}})"""
        rf"""{_VALUE_PATTERN}"""
    ),
)


def is_secret_name(name: str) -> bool:
    """Return whether a name of a variable or argument is that of a secret, and not of a tokenizer setting."""
    last_part = _CAMEL_CASE_BOUNDARY_PATTERN.sub("_", name.rpartition(".")[2])
    if last_part in {"PWD", "OLDPWD"}:
        return False
    return bool(_SECRET_NAME_PATTERN.search(last_part)) and not _HARMLESS_NAME_PATTERN.search(last_part)


def is_harmless_value(value: str) -> bool:
    """Return whether a value of a secret's name is none: a number, a special token, the name of a variable."""
    return bool(_HARMLESS_VALUE_PATTERN.fullmatch(value))


class PossibleSecretArgument(NamedTuple):
    """An argument that looks like a secret: its name, its value, whether that is sure, and which words it is."""

    name: str
    value: str
    certain: bool
    word_indexes: tuple[int, ...]


def find_possible_secret_arguments(
    words: Iterable[str], *, is_command: bool = False
) -> Iterator[PossibleSecretArgument]:
    """Yield each argument that looks like a secret; its format or name makes that sure, in a command its program."""
    previous_option = ""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not (equals and _OPTION_NAME_PATTERN.fullmatch(name)):
            name, value = previous_option, word
        certain = _is_surely_secret(name, value, is_command=is_command)
        if certain or _looks_secret(name, value):
            yield PossibleSecretArgument(
                name,
                value,
                certain,
                (index - 1, index) if name and name == previous_option and value == word else (index,),
            )
        previous_option = word if word.startswith("-") and not equals else ""


def _is_surely_secret(name: str, value: str, *, is_command: bool) -> bool:
    """Return whether an argument is a secret for sure: by the format of its value, or as that of a password's name."""
    return has_surely_secret_format(value, is_command=is_command) or (
        _has_secret_name(name, value) and bool(_PASSWORD_NAME_PATTERN.search(name.lstrip("-+~")))
    )


def _looks_secret(name: str, value: str) -> bool:
    """Return whether the name or the value of an argument speaks for a secret."""
    return (
        _has_secret_name(name, value)
        or has_secret_format(value)
        or (name in {"-p", "-P"} and _looks_like_password(value))
        or any(_find_format_matches(value, POSSIBLY_SECRET_FORMATS))
    )


def _has_secret_name(name: str, value: str) -> bool:
    """Return whether an argument has the name of a secret, and a value that can be one."""
    return (
        bool(value)
        and not value.startswith("-")
        and is_secret_name(name.lstrip("-+~"))
        and not is_harmless_value(value)
    )


def _looks_like_password(value: str) -> bool:
    """Return whether the value of -p is rather a password than a port, a path, a precision or a name."""
    return (
        len(value) >= _MIN_SECRET_LENGTH
        and not is_harmless_value(value)
        and bool(_PASSWORD_VALUE_PATTERN.fullmatch(value))
    )


def has_secret_format(value: str) -> bool:
    """Return whether a value contains what looks like a secret by its format, or by the words around it."""
    return _has_format_or_url_secret(value, SECRET_FORMATS)


def has_surely_secret_format(value: str, *, is_command: bool = False) -> bool:
    """Return whether a value contains a format that only secrets have: a token, a key, a URL with a password."""
    return _has_format_or_url_secret(value, SURELY_SECRET_COMMAND_FORMATS if is_command else SURELY_SECRET_FORMATS)


def _has_format_or_url_secret(value: str, formats: tuple[SecretFormat, ...]) -> bool:
    plain = _ESCAPE_SEQUENCE_PATTERN.sub("", value)
    if any(_find_format_matches(plain, formats)):
        return True
    return any(_is_secret_url_parameter(match) for match in _QUERY_PARAMETER_PATTERN.finditer(plain))


def _find_format_matches(text: str, formats: tuple[SecretFormat, ...]) -> Iterator[re.Match[str]]:
    """Yield what has one of the formats."""
    for form in _possible_formats(formats, text):
        yield from (match for match in form.compiled_pattern.finditer(text) if _is_secret_match(form, match))


def _is_secret_match(secret_format: SecretFormat, match: re.Match[str]) -> bool:
    secret = _secret_in_match(match)
    return MASK_TEXT not in secret and secret_format.accepts_match(secret)


def _secret_in_match(match: re.Match[str]) -> str:
    return match["secret"] if "secret" in match.re.groupindex else match[0]


def _is_secret_url_parameter(match: re.Match[str]) -> bool:
    """Return whether a URL parameter is a secret."""
    name, value = match["name"], match["value"]
    secret = (
        is_secret_name(name)
        or _SIGNED_URL_PARAMETER_PATTERN.search(_CAMEL_CASE_BOUNDARY_PATTERN.sub("_", name))
        or (name == "key" and len(value) >= _MIN_URL_KEY_LENGTH)
    )
    return bool(secret) and value != MASK_TEXT and not is_harmless_value(value)


def mask_secrets(text: str, known_secrets: Iterable[str] = ()) -> tuple[str, Counter[str]]:
    """Return a text without secrets, and their number by kind; `known_secrets` are known secret values."""
    known_spellings = {
        form for value in known_secrets if len(value) >= _MIN_SECRET_LENGTH for form in _escaped_spellings(value)
    }
    longest_first = sorted(known_spellings, key=len, reverse=True)
    formats = _possible_formats(SECRET_FORMATS, _ESCAPE_SEQUENCE_PATTERN.sub("", text))
    if _ESCAPE_SEQUENCE_PATTERN.search(text):
        text = "".join(
            _without_escapes_if_secret(line, longest_first, formats) for line in text.splitlines(keepends=True)
        )
    return _mask_with_formats(text, longest_first, formats)


def _possible_formats(formats: tuple[SecretFormat, ...], text: str) -> tuple[SecretFormat, ...]:
    """Return the formats that a text can hold."""
    lower = text.lower()
    return tuple(form for form in formats if any(word in lower for word in form.nearby_words))


def _without_escapes_if_secret(line: str, known_secrets: list[str], formats: tuple[SecretFormat, ...]) -> str:
    """Return a line without escape sequences if it contains a secret, which they could split."""
    plain = _ESCAPE_SEQUENCE_PATTERN.sub("", line)
    return plain if plain != line and _mask_with_formats(plain, known_secrets, formats)[1] else line


def _mask_with_formats(
    text: str, known_secrets: list[str], formats: tuple[SecretFormat, ...]
) -> tuple[str, Counter[str]]:
    counts: Counter[str] = Counter()
    for value in known_secrets:
        counts["known values"] += text.count(value)
        text = text.replace(value, MASK_TEXT)
    for form in formats:
        text = form.compiled_pattern.sub(partial(_mask_secret_match, form, counts), text)
    text = _QUERY_PARAMETER_PATTERN.sub(lambda match: _mask_parameter_match(match, counts), text)
    for pattern in _NAMED_VALUE_PATTERNS:
        text = pattern.sub(lambda match: _mask_named_value_match(match, counts), text)
    for form in POSSIBLY_SECRET_FORMATS:
        text = form.compiled_pattern.sub(partial(_mask_secret_match, form, counts), text)
    return text, +counts


def _mask_secret_match(secret_format: SecretFormat, counts: Counter[str], match: re.Match[str]) -> str:
    if not _is_secret_match(secret_format, match):
        return match[0]
    counts[secret_format.kind] += 1
    secret = _secret_in_match(match)
    quote = secret[0] if secret[0] in "\"'" else ""
    begin = match.start("secret") - match.start() if secret != match[0] else 0
    return f"{match[0][:begin]}{quote}{MASK_TEXT}{quote}{match[0][begin + len(secret) :]}"


def _mask_parameter_match(match: re.Match[str], counts: Counter[str]) -> str:
    if not _is_secret_url_parameter(match):
        return match[0]
    counts["secrets in URLs"] += 1
    return f"{match['before']}{MASK_TEXT}"


def _mask_named_value_match(match: re.Match[str], counts: Counter[str]) -> str:
    value = match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    inner = value[1:-1] if quote else value
    if not is_secret_name(match["name"]) or is_harmless_value(inner):
        return match[0]
    counts["values of secret names"] += 1
    return f"{match['before']}{quote}{MASK_TEXT}{quote}"


def _escaped_spellings(value: str) -> tuple[str, ...]:
    """Return a value as spelled in a log, a shell, JSON or TOML."""
    return value, shlex.quote(value), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
