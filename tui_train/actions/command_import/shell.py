"""Shell text as commands with their words, variables and folder; nothing is run, and what would have to be is named.

Not by shlex: that tells neither which word was quoted, on which the meaning of $ and ; depends, nor a # inside a word.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tui_train.base.errors import BadInput
from tui_train.base.secrets import is_harmless_value
from tui_train.base.text import visible
from tui_train.profile.fields import is_secret_variable

MAX_TEXT_CHARACTERS = 64_000
# Each text has one way to match, as a quote that is not closed has all tried: hence \b, and what follows a lone $.
_EXPANSION = r"\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|\$\{[^}\n]{0,300}\}|\$\w+\b|\$[@*\#?$!-]"
_LONE_DOLLAR = r"\$(?![\w({@*\#?$!-])"
_QUOTED = rf"""'[^']*'|\$'(?:[^'\\]|\\.)*'|\$?"(?:[^"\\$`]|\\.|{_EXPANSION}|{_LONE_DOLLAR})*\""""
_WORD_PIECE = rf"""{_QUOTED}|\\.|{_EXPANSION}|(?!\$['"])[^\s'"\\;&|<>()`]"""
_TOKEN_PATTERN = re.compile(
    rf"(?P<space>[ \t\r]+|\\\r?\n)|(?P<comment>\#[^\n]*)"
    rf"|(?P<operator>\n|&&|\|\||;;|&>>?|<<<|\d?<<-?|\d?[<>]+&?\d?|\|&?|[;&()])|(?P<word>(?:{_WORD_PIECE})+)",
    re.DOTALL,
)
_PIECE_PATTERN = re.compile(_WORD_PIECE, re.DOTALL)
_QUOTED_PIECE_PATTERN = re.compile(rf"\\.|{_EXPANSION}|.", re.DOTALL)
_ANSI_C_ESCAPE_PATTERN = re.compile(
    rb"\\(?:(?P<letter>[abeEfnrtv\\'\"?])|(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})"
    rb"|u(?P<short>[0-9A-Fa-f]{1,4})|U(?P<long>[0-9A-Fa-f]{1,8})|(?P<control>c))"
)
_BYTE_BY_ANSI_C_LETTER = dict(zip(b"abeEfnrtv", b"\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_EXPANSION_PATTERN = re.compile(
    r"(?P<pwd>\$\(\s*pwd\s*\)|`\s*pwd\s*`)|\$\{(?P<braced>\w+)(?::?-(?P<default>[^${}`]*))?\}|\$(?P<name>[A-Za-z_]\w*)"
)
_VARIABLE_ALONE_PATTERN = re.compile(r"\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)", re.ASCII)
_ASSIGNMENT_PATTERN = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_BRACE_EXPANSION_PATTERN = re.compile(r"\{[^{}]*(,|\.\.)[^{}]*\}")
_PROMPT_PATTERN = re.compile(
    r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:\[?[\w.-]+@[\w.-]+[: ][^\s$#%]*\]?[ \t]?[$#%]|\$)[ \t]+", re.MULTILINE
)
_STATEMENT_ENDS = frozenset({"\n", "&&", "||", ";", ";;", "&"})
_BLOCK_BEGINNINGS = frozenset({"if", "for", "while", "until", "case", "select", "{"})
_BLOCK_ENDS = frozenset({"fi", "done", "esac", "}"})
_IN_BLOCK_REASON = "is in a block of the shell (if, for, a function), which is not run"
_SYNTAX_REASON = "is shell syntax that would have to be run"


class Word(NamedTuple):
    """A word as the shell passes it; where only a shell knows it, `problem` says why, and `text` is as written."""

    text: str
    problem: str = ""


class ShellCommand(NamedTuple):
    """A command, the variables that it is given, its folder; `redirections` is where its output goes."""

    words: tuple[Word, ...]
    environment: dict[str, Word]
    folder: Path
    redirections: tuple[str, ...] = ()


class ShellText(NamedTuple):
    """The commands of a text, why other lines are not understood, and whether its own variables are used, by name."""

    commands: tuple[ShellCommand, ...]
    reason_by_line: dict[str, str]
    use_by_variable: dict[str, bool]


class _Statement(NamedTuple):
    """The words of a command as written, and those after them; an alternative is started where one before fails."""

    raw_words: tuple[str, ...]
    redirections: tuple[str, ...]
    is_alternative: bool

    @property
    def line(self) -> str:
        """All of it."""
        return " ".join((*self.raw_words, *self.redirections))


def read_shell_text(text: str, folder: Path) -> ShellText:
    """Return the commands of a text that is started in a folder; BadInput for what no shell could read."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise BadInput("that text is too long for a command", "Give the lines alone that start the training.")
    return _ShellReader(folder).read(lines_as_typed(text))


def lines_as_typed(text: str) -> str:
    """Return the lines of a text without the prompts that stand before them in a terminal."""
    # A terminal pastes a carriage return for each end of a line.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not _PROMPT_PATTERN.match(text.lstrip()):
        return text
    return _PROMPT_PATTERN.sub("", text).replace("\\\n> ", "\\\n")


def _statements(text: str) -> Iterator[_Statement]:
    """Yield the statements of a text; the lines of a here-document are none."""
    words: list[str] = []
    rest: list[str] = []
    is_alternative, heredoc, position = False, "", 0
    text += "\n"
    while position < len(text):
        token = _TOKEN_PATTERN.match(text, position)
        if token is None:
            raise BadInput("a quote or a bracket is not closed", "Close it, or give the whole command.")
        position = token.end()
        operator = token["operator"]
        if token["word"]:
            if rest and rest[-1].lstrip("0") in {"<<", "<<-"}:
                heredoc = token["word"].strip("'\"\\")
            (rest or words).append(token["word"])
        elif operator in _STATEMENT_ENDS:
            rest += ["&"] if operator == "&" else []
            if words or rest:
                yield _Statement((*words,), (*rest,), is_alternative)
            words, rest, is_alternative = [], [], operator == "||"
            if operator == "\n" and heredoc:
                end = re.search(rf"^\t*{re.escape(heredoc)}$", text[position:], re.MULTILINE)
                position, heredoc = position + end.end() if end else len(text), ""
        elif operator:
            (words if operator in {"(", ")"} and not rest else rest).append(operator)


def _ansi_c_word(piece: str) -> Word:
    """Return what $'…' stands for."""
    try:
        text = _ANSI_C_ESCAPE_PATTERN.sub(_bytes_of_escape, piece[2:-1].encode()).decode()
    except (ValueError, OverflowError):
        return Word(piece, "has an escape that stands for no text")
    return Word(piece, "has a zero byte, which no word can have") if "\0" in text else Word(text)


def _bytes_of_escape(escape: re.Match[bytes]) -> bytes:
    """Return the bytes of an escape between $' and '; ValueError or OverflowError for no character."""
    if letter := escape["letter"]:
        return bytes([_BYTE_BY_ANSI_C_LETTER.get(letter[0], letter[0])])
    if octal := escape["octal"]:
        return bytes([int(octal, 8) & 0xFF])
    if digits := escape["hex"]:
        return bytes([int(digits, 16)])
    return chr(int(escape["short"] or escape["long"] or b"", 16)).encode()


class _ShellReader:
    """Follows variables and the folder through the statements of a text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._values: dict[str, Word] = {}
        self._exported: set[str] = set()
        self._used: set[str] = set()

    def read(self, text: str) -> ShellText:
        """Return what the text says."""
        commands: list[ShellCommand] = []
        reasons: dict[str, str] = {}
        depth = 0
        for statement in _statements(text):
            first, last = (statement.raw_words or ("",))[0], (statement.raw_words or ("",))[-1]
            depth += first in _BLOCK_BEGINNINGS or last == "{"
            if depth:
                reasons[statement.line] = _IN_BLOCK_REASON
                depth -= first in _BLOCK_ENDS
            elif statement.is_alternative or not first or {"(", ")"} & {*statement.raw_words}:
                reasons[statement.line] = _SYNTAX_REASON
            else:
                commands += self._follow_statement(statement, reasons)
        own = {name: name in self._used for name in self._values if name not in self._exported}
        return ShellText((*commands,), reasons, own)

    def _follow_statement(self, statement: _Statement, reasons: dict[str, str]) -> Iterator[ShellCommand]:
        """Yield the command of a statement; none where it only sets variables or the folder."""
        raw_words = [*statement.raw_words]
        own: dict[str, Word] = {}
        if raw_words[0] == "env" and len(raw_words) > 1 and _ASSIGNMENT_PATTERN.match(raw_words[1]):
            del raw_words[0]
        while raw_words and (match := _ASSIGNMENT_PATTERN.match(raw_words[0])):
            own[match[1]] = self._parse_word(raw_words.pop(0)[match.end() :])
        if not raw_words:
            self._values.update(own)
        elif raw_words[0] == "export":
            for name, equals, raw_value in (raw_word.partition("=") for raw_word in raw_words[1:]):
                self._values.update({name: self._parse_word(raw_value)} if equals else {})
                self._exported.add(name)
                if name not in self._values:
                    reasons[f"export {name}"] = "is not set in these lines: trainer.secrets passes it from your shell"
        elif raw_words[0] == "cd" and len(raw_words) > 1:
            target = self._parse_word(raw_words[-1])
            if target.problem:
                reasons[statement.line] = target.problem
            else:
                self._folder /= target.text
        elif words := tuple(word for raw_word in raw_words for word in self._split_words(raw_word)):
            exported = {name: word for name, word in self._values.items() if name in self._exported}
            yield ShellCommand(words, {**exported, **own}, self._folder, statement.redirections)

    def _split_words(self, raw_word: str) -> tuple[Word, ...]:
        """Return the word that the shell makes of one as written: several of a variable alone."""
        word = self._parse_word(raw_word, splits=True)
        bare = "".join(piece for piece in _PIECE_PATTERN.findall(raw_word) if len(piece) == 1)
        if _VARIABLE_ALONE_PATTERN.fullmatch(raw_word) and not word.problem:
            return tuple(Word(part) for part in word.text.split())
        if "*" in bare or "?" in bare:
            return (Word(raw_word, "has * or ?, for which the shell puts in names of files: quote it, or name them"),)
        if _BRACE_EXPANSION_PATTERN.search(bare):
            return (Word(raw_word, "has braces with commas or dots, which the shell may expand: quote it"),)
        return (word,)

    def _parse_word(self, raw_word: str, *, splits: bool = False) -> Word:
        """Return a word without its quotes, with variables put in; `splits`: one with spaces would be several."""
        parts: list[Word] = []
        for piece in _PIECE_PATTERN.findall(raw_word):
            if piece.startswith("'"):
                parts.append(Word(piece[1:-1]))
            elif piece.startswith("$'"):
                parts.append(_ansi_c_word(piece))
            elif piece.startswith(('"', '$"')):
                parts += map(self._quoted_piece, _QUOTED_PIECE_PATTERN.findall(piece.removeprefix("$")[1:-1]))
            elif piece.startswith("\\"):
                is_path = piece[1].isalnum()
                parts.append(Word(piece[1:].strip("\n"), "has a backslash, which the shell takes out" * is_path))
            elif len(piece) > 1:
                value = self._expanded(piece)
                breaks = splits and piece != raw_word and any(letter.isspace() for letter in value.text)
                parts.append(Word(value.text, value.problem or "has a variable with spaces in it: quote it" * breaks))
            else:
                is_home = piece == "~" and not parts and raw_word[1:2] in {"", "/"}
                parts.append(Word(str(Path.home()) if is_home else piece))
        if sum(len(part.text) for part in parts) > MAX_TEXT_CHARACTERS:
            # Each line may double what a variable holds.
            raise BadInput("a variable becomes too long for a command", "Give the lines alone that start the training.")
        problem = next(filter(None, (part.problem for part in parts)), "")
        return Word(raw_word if problem else "".join(part.text for part in parts), problem)

    def _quoted_piece(self, piece: str) -> Word:
        """Return what a piece between two double quotes stands for."""
        if piece.startswith("\\"):
            return Word(piece[1].strip("\n") if piece[1:] in {"$", "`", '"', "\\", "\n"} else piece)
        return self._expanded(piece) if len(piece) > 1 else Word(piece)

    def _expanded(self, piece: str) -> Word:
        """Return what a variable or a substitution stands for."""
        match = _EXPANSION_PATTERN.fullmatch(piece)
        if match is None:
            return Word(piece, f"has {visible(piece)}, which only a shell knows")
        if match["pwd"]:
            return Word(str(self._folder))
        name = match["braced"] or match["name"]
        self._used.add(name)
        known = {"PWD": Word(str(self._folder)), "HOME": Word(str(Path.home())), **self._values}
        default = match["default"]
        value = known.get(name, None if default is None else Word(default.strip("\"'")))
        if value is not None and is_secret_variable(name) and not is_harmless_value(value.text):
            return Word(piece, f"names ${name}, a secret, which no profile keeps: have the script read that variable")
        if value is not None:
            return value
        return Word(piece, f"names ${name}, which these lines do not set")
