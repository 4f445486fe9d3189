"""Runs a script with --help and reads the arguments that it lists; only at the user's request."""

import re
from collections.abc import Iterator

from tui_train.facts.ask import ask
from tui_train.facts.types import Flag, ScriptHelp

_DEADLINE = 15.0
# No GPU, no wrapped lines, no colours, no downloads.
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
# The flags of one argument with their metavariables; help follows after two spaces, a tab or a colon.
_ENTRY = re.compile(r"^\s{1,12}(?P<flags>--?[A-Za-z0-9\[][^\s,:=]*.*?)(?:(?P<colon>\s{2,}|:\s+)(?P<help>\S.*)|:?\s*)$")
_FLAG = re.compile(
    r"(?:^|(?<=[\s,/|]))(?P<name>--(?:\[no-?\])?[A-Za-z0-9][\w.-]*|-[A-Za-z0-9](?![\w-]))(?P<rest>[^,/|]*)"
)


def ask_script(python: str, words: tuple[str, ...], folder: str) -> ScriptHelp:
    """Run `python *words --help` in `folder` for at most 15 s without GPU, and return its arguments."""
    answer = ask([python, *words, "--help"], _DEADLINE, _QUIET, folder)
    output = answer.out.decode("utf-8", "replace") + "\n" + answer.error.decode("utf-8", "replace")
    flags = parse(output)
    if flags and not answer.failure:
        return ScriptHelp(flags=flags)
    if answer.failure or answer.code:
        return ScriptHelp(problem=answer.ending())
    return ScriptHelp(problem="its --help lists no arguments")


def parse(text: str) -> tuple[Flag, ...]:
    """Return the arguments that argparse, click, absl or the like list in this --help, without duplicates."""
    by_name: dict[str, Flag] = {}
    for flags, help_text in _entries(_ANSI.sub("", text).splitlines()):
        for match in _FLAG.finditer(flags):
            name, values = match["name"], match["rest"]
            if name in {"-h", "--help", "--helpfull", "--helpshort", "--helpxml"} or len(by_name) >= _MOST_FLAGS:
                continue
            optional_no = re.match(r"--\[no-?\]", name)
            plain = f"--{name[optional_no.end() :]}" if optional_no else name
            # The help may follow a later flag of the same argument.
            valued = bool(re.search(r"[A-Za-z{<\[]", values)) or _value_last(flags)
            one = Flag(plain, help_text[:300], valued and not optional_no)
            if plain not in by_name or (help_text and not by_name[plain].help):
                by_name[plain] = one
    shorts = {name for name in by_name if not name.startswith("--")}
    return tuple(flag for name, flag in by_name.items() if name not in shorts or len(shorts) == len(by_name))


def _value_last(flags: str) -> bool:
    """Return whether the metavariable follows only the last of several flags, as in click."""
    last = re.split(r"[,/|]\s*(?=-)", flags)[-1]
    return bool(re.search(r"^\S+\s+[A-Z\[{<]", last))


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags and the help of each entry, without the usage up to its blank line."""
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
            # absl writes a colon and no metavariable, though all flags except switches take a value.
            metavariable = " VALUE" if (entry["colon"] or "").startswith(":") else ""
            flags, words, indent = entry["flags"] + metavariable, [entry["help"] or ""], depth
        elif flags and line.strip() and depth > indent:
            words.append(line.strip())
        elif line.strip() and flags:
            yield flags, " ".join(words).strip()
            flags, words = "", [""]
    if flags:
        yield flags, " ".join(words).strip()


def offered(flags: tuple[Flag, ...]) -> tuple[Flag, ...]:
    """Return the arguments to offer: only the first of two spellings such as `--max_steps` and `--max-steps`."""
    by_name: dict[str, Flag] = {}
    for flag in flags:
        by_name.setdefault(flag.name.replace("_", "-"), flag)
    return tuple(by_name.values())
