"""Detects secrets by their names or formats, and masks them in texts."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator

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
_SIGNED = re.compile(r"(^|[_-])(sig|signature|credential)$", re.IGNORECASE)
# Harmless names: --pad_token=<pad>, --num_token=512, --sort_key=length.
_HARMLESS = re.compile(
    r"(^|[_-])(pad|eos|bos|unk|sep|cls|mask|stop|start|end|image|video|audio|special|new|num|max|min|per|by|sort|cache|text"
    r"|field|column|dict|primary|foreign|group|label|input|output|data|is)[_-](token|key)$|^key$"
    r"|(^|[_-])(forward|backward|first|second|last|single|multi|one|two|per|num|max|min)[_-]pass$"
    r"|(^|[_-])(file|glob|name|match|path|regex)[_-]pat$",
    re.IGNORECASE,
)
# Harmless values: numbers, booleans, special tokens, and names of variables.
_PLAIN = re.compile(r"-?\d{1,7}(\.\d*)?|true|false|none|null|yes|no|<.{0,20}|\$.*|\{.*|\*+", re.IGNORECASE)

_FORMS = {
    "private keys": re.compile(
        r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z0-9 ]{0,20}PRIVATE KEY-----|[\s\S]*)"
        # One with a truncated beginning.
        r"|(?m:^)(?:[A-Za-z0-9+/=]{1,80}\r?\n){0,80}-----END [A-Z0-9 ]{0,20}PRIVATE KEY-----"
    ),
    "tokens": re.compile(
        # Long ones anywhere, others at the start of a word or after a colour code.
        r"hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{36,}|"
        r"(?:(?<![A-Za-z0-9])|(?<=[\d\[]m))(?:hf_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[a-z]{20,})|api_org_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
        r"|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|A[KS]IA[A-Z0-9]{12,}"
        r"|AIza[A-Za-z0-9_-]{30,}|npm_[A-Za-z0-9]{30,}|dapi[0-9a-f]{32}|pypi-Ag[A-Za-z0-9_-]{14,}|lin_api_[A-Za-z0-9]{16,}"
        r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|r8_[A-Za-z0-9]{30,}|nvapi-[A-Za-z0-9_-]{16,}|wandb_v1_[A-Za-z0-9_]{16,}"
        r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
    ),
}
# The first group, before the secret, is kept.
_AFTER = {
    "authorizations": re.compile(
        r"((?:authorization['\"]?\s*[:=]\s*['\"]?(?:(?:basic|bearer|token)\s+)?|\bbearer\s+))[^\s'\",;<]{4,}",
        re.IGNORECASE,
    ),
    "cookies": re.compile(r"(\b(?:set-)?cookie['\"]?\s*:\s*['\"]?)[^\r\n'\"<]{4,}", re.IGNORECASE),
    "passwords in URLs": re.compile(
        r"((?<![a-z0-9])[a-z][a-z0-9+.-]{0,15}://[^\s/:@'\"]{0,200}:)[^\s/'\"<]{1,500}(?=@)", re.IGNORECASE
    ),
    # A token as the user name of a URL: longer than any name. The digest of an image has the same form.
    "tokens in URLs": re.compile(
        r"((?<![a-z0-9])[a-z][a-z0-9+.-]{0,15}://)[A-Za-z0-9_.~%-]{20,500}(?=@(?!sha256:))", re.IGNORECASE
    ),
    "keys of wandb": re.compile(
        r"((?:wandb|api[ _-]?key|login)[^\r\n]{0,60}?(?<![0-9a-z]))[0-9a-f]{40}(?![0-9a-z])", re.IGNORECASE
    ),
}
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
    re.compile(rf"""(?P<before>(?<![\w-])--?(?P<name>[A-Za-z][\w.-]{{0,60}})(?:=|['"]?\s*,\s*|['"]?\s+)){_VALUE}"""),
    re.compile(
        rf"""(?P<before>(?<![\w.-])-{{0,2}}(?P<name>[A-Za-z][\w.-]{{0,60}})['"]?\s{{0,3}}[:=]\s{{0,3}}){_VALUE}"""
    ),
)


def named(name: str) -> bool:
    """Return whether a name of a variable or argument is that of a secret, and not of a tokenizer setting."""
    last = _HUMP.sub("_", name.rpartition(".")[2])
    if last in {"PWD", "OLDPWD"}:
        return False  # PWD and OLDPWD
    return bool(_NAME.search(last)) and not _HARMLESS.search(last)


def in_words(words: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield name and value of each argument that looks like a secret, and whether its format proves it."""
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and _OPTION.fullmatch(name)):
            name, value = before, word
        bare = name.lstrip("-+~")
        if formed(value):
            yield name, value, True
        elif value and not value.startswith("-") and named(bare) and not _PLAIN.fullmatch(value):
            yield name, value, bool(_PASSWORD.search(bare))
        before = word if word.startswith("-") and not equals else ""


def formed(value: str) -> bool:
    """Return whether a value contains a known format of secrets: a token, a key, a URL with a password."""
    plain = _COLOUR.sub("", value)
    if any(form.search(plain) for form in (*_FORMS.values(), *_AFTER.values())):
        return True
    return any(_of_query(match) for match in _IN_QUERY.finditer(plain))


def _of_query(match: re.Match[str]) -> bool:
    """Return whether a URL parameter is a secret."""
    name, value = match["name"], match["value"]
    secret = named(name) or _SIGNED.search(_HUMP.sub("_", name)) or (name == "key" and len(value) >= _LONG_KEY)
    return bool(secret) and value != MASK and not _PLAIN.fullmatch(value)


def mask(text: str, known: Iterable[str] = ()) -> tuple[str, Counter[str]]:
    """Return a text without secrets, and their number by kind; `known` are known secret values."""
    spelled = {form for value in known if len(value) >= _SHORTEST for form in _spellings(value)}
    longest_first = sorted(spelled, key=len, reverse=True)
    if _COLOUR.search(text):
        text = "".join(_uncoloured(line, longest_first) for line in text.splitlines(keepends=True))
    return _masked(text, longest_first)


def _uncoloured(line: str, known: list[str]) -> str:
    """Return a line without escape sequences if it contains a secret, which they could split."""
    plain = _COLOUR.sub("", line)
    return plain if plain != line and _masked(plain, known)[1] else line


def _masked(text: str, known: list[str]) -> tuple[str, Counter[str]]:
    counts: Counter[str] = Counter()
    for value in known:
        counts["known values"] += text.count(value)
        text = text.replace(value, MASK)
    for kind, form in _FORMS.items():
        text, count = form.subn(MASK, text)
        counts[kind] += count
    for kind, form in _AFTER.items():
        text, count = form.subn(rf"\g<1>{MASK}", text)
        counts[kind] += count
    text = _IN_QUERY.sub(lambda match: _without_parameter(match, counts), text)
    for pattern in _NAMED:
        text = pattern.sub(lambda match: _without_value(match, counts), text)
    return text, +counts


def _without_parameter(match: re.Match[str], counts: Counter[str]) -> str:
    if not _of_query(match):
        return match[0]
    counts["secrets in URLs"] += 1
    return f"{match['before']}{MASK}"


def _without_value(match: re.Match[str], counts: Counter[str]) -> str:
    value = match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    inner = value[1:-1] if quote else value
    if not named(match["name"]) or _PLAIN.fullmatch(inner):
        return match[0]
    counts["values of secret names"] += 1
    return f"{match['before']}{quote}{MASK}{quote}"


def _spellings(value: str) -> tuple[str, ...]:
    """Return a value as spelled in a log, a shell, JSON or TOML."""
    return value, shlex.quote(value), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
