"""Asks a script for its --help and reads which arguments it lists; this runs the script: only when the user says so."""

import re
from collections.abc import Iterator

from tui_train.facts.ask import ask
from tui_train.facts.types import Flag, ScriptHelp

_DEADLINE = 15.0
# No card is touched, no line is broken for a narrow terminal, nothing is coloured, nothing is fetched.
_QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "1000",
    "NO_COLOR": "1",
    "PYTHON_COLORS": "0",
    "TERM": "dumb",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "disabled",
}
_MOST_FLAGS = 2000
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# One or several flags of one argument, each with what it takes; help follows after two blanks, a tab or a colon.
_ENTRY = re.compile(r"^\s{1,12}(?P<flags>--?[A-Za-z0-9\[][^\s,:=]*.*?)(?:(?P<colon>\s{2,}|:\s+)(?P<help>\S.*)|:?\s*)$")
_FLAG = re.compile(
    r"(?:^|(?<=[\s,/|]))(?P<name>--(?:\[no-?\])?[A-Za-z0-9][\w.-]*|-[A-Za-z0-9](?![\w-]))(?P<rest>[^,/|]*)"
)


def ask_script(python: str, words: tuple[str, ...], folder: str) -> ScriptHelp:
    """Run `python *words --help` in `folder` for at most 15 s, without a card, and return what it lists."""
    answer = ask([python, *words, "--help"], _DEADLINE, _QUIET, folder)
    said = answer.out.decode("utf-8", "replace") + "\n" + answer.error.decode("utf-8", "replace")
    flags = parse(said)
    if flags and not answer.failure:
        return ScriptHelp(flags=flags)
    if answer.failure or answer.code:
        return ScriptHelp(problem=answer.ending())
    return ScriptHelp(problem="it lists no arguments")


def parse(text: str) -> tuple[Flag, ...]:
    """Return the arguments that argparse, click, absl or a like library lists in this --help, in order, each once."""
    found: dict[str, Flag] = {}
    for flags, help_text in _entries(_ANSI.sub("", text).splitlines()):
        for match in _FLAG.finditer(flags):
            name, rest = match["name"], match["rest"]
            if name in {"-h", "--help", "--helpfull", "--helpshort", "--helpxml"} or len(found) >= _MOST_FLAGS:
                continue
            optional_no = re.match(r"--\[no-?\]", name)
            plain = f"--{name[optional_no.end() :]}" if optional_no else name
            # The text of a flag may stand behind a later one of the same argument.
            valued = bool(re.search(r"[A-Za-z{<\[]", rest)) or _value_last(flags)
            one = Flag(plain, help_text[:300], valued and not optional_no)
            if plain not in found or (help_text and not found[plain].help):
                found[plain] = one
    shorts = {name for name in found if not name.startswith("--")}
    return tuple(flag for name, flag in found.items() if name not in shorts or len(shorts) == len(found))


def _value_last(flags: str) -> bool:
    """Tell whether what several names of one argument take stands behind the last one only, as click writes it."""
    last = re.split(r"[,/|]\s*(?=-)", flags)[-1]
    return bool(re.search(r"^\S+\s+[A-Z\[{<]", last))


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags and the help of each entry; a usage, up to its blank line, is none."""
    flags, words, indent, usage = "", [""], 0, False
    for line in lines:
        if line.strip().lower().startswith("usage:"):
            usage = True
        if not line.strip():
            usage = False
        if usage:
            continue
        entry = _ENTRY.match(line.expandtabs())
        depth = len(line) - len(line.lstrip())
        if entry and (not flags or depth <= indent + 2):
            if flags:
                yield flags, " ".join(words).strip()
            # absl writes a colon and says nothing of the value, which all of its flags but switches take.
            taken = " VALUE" if (entry["colon"] or "").startswith(":") else ""
            flags, words, indent = entry["flags"] + taken, [entry["help"] or ""], depth
        elif flags and line.strip() and depth > indent:
            words.append(line.strip())
        elif line.strip() and flags:
            yield flags, " ".join(words).strip()
            flags, words = "", [""]
    if flags:
        yield flags, " ".join(words).strip()


def offered(flags: tuple[Flag, ...]) -> tuple[Flag, ...]:
    """Return the arguments to choose from: of two spellings, `--max_steps` and `--max-steps`, the first."""
    found: dict[str, Flag] = {}
    for flag in flags:
        found.setdefault(flag.name.replace("_", "-"), flag)
    return tuple(found.values())
