"""Runs a script with --help and reads the arguments that it lists."""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tui_train.base.app_paths import script_help_folder
from tui_train.base.files import read_regular_file
from tui_train.base.parse import Unparsable, parse_json_as
from tui_train.facts import answer_cache
from tui_train.facts.machine.child_process import run_child
from tui_train.facts.types import Facts, HelpFlag, ParameterForm, ScriptHelp, ScriptParameter, ScriptSource

# Importing transformers takes that long from a slow disk.
_DEADLINE_SECONDS = 30.0
_MAX_SCRIPT_BYTES = 2**22
_MAX_MODULES_IN_CACHE_KEY = 500
# Of what is kept; another one where `parse_help` reads more.
_CACHE_VERSION = 1
# No GPU, no wrapped lines, no colours, no downloads.
_HELP_RUN_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "1000",
    "NO_COLOR": "1",
    "PYTHON_COLORS": "0",
    "TERM": "dumb",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "disabled",
}
_MAX_HELP_FLAGS = 2000
_ANSI_PATTERN = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# The flags of one argument with their metavariables; help follows after two spaces, a tab or a colon.
_HELP_ENTRY_PATTERN = re.compile(
    r"^\s{1,12}(?P<flags>--?[A-Za-z0-9\[][^\s,:=]*.*?)(?:(?P<colon>\s{2,}|:\s+)(?P<help>\S.*)|:?\s*)$"
)
_FLAG_PATTERN = re.compile(
    r"(?:^|(?<=[\s,/|]))(?P<name>--(?:\[no-?\])?[A-Za-z0-9][\w.-]*|-[A-Za-z0-9](?![\w-]))(?P<rest>[^,/|]*)"
)

# TrainingArguments has them all; scripts of other kinds name some of them.
_FLAGS_OF_TRAINING_ARGUMENTS = frozenset({
    "--per_device_train_batch_size", "--gradient_accumulation_steps", "--save_strategy", "--save_total_limit",
    "--logging_steps", "--lr_scheduler_type", "--dataloader_num_workers",
})  # fmt: skip
_DEFAULT_IN_HELP_PATTERN = re.compile(r"[(\[]defaults?(?: to|:)\s*([^)\]]+)[)\]]", re.IGNORECASE)
# What draws the boxes of rich.
_SPACE_BY_BOX_CHARACTER = str.maketrans(dict.fromkeys("│┃╭╮╰╯", " "))


def facts_with_script_help(facts: Facts) -> Facts:
    """Return the facts with what the --help of scripts says, where their sources leave it open."""
    read = {
        path: _source_with_help(one, facts.help[path])
        for path, one in facts.sources.items()
        if one.help_may_say_more and path in facts.help
    }
    return replace(facts, sources={**facts.sources, **read}) if read else facts


def _source_with_help(source: ScriptSource, script_help: ScriptHelp) -> ScriptSource:
    """Return what is known of a script by its source and its --help."""
    if script_help.problem:
        unread = source.why_unread and f"{source.why_unread}; its --help: {script_help.problem}"
        return replace(source, help_may_say_more=False, why_unread=unread)
    listed = {flag.name for flag in script_help.flags}
    # What the source declares besides is of a parser that was not used.
    declared = [one for one in source.parameters if one.subcommand or not one.flags or listed & {*one.flags}]
    known = {flag for one in declared for flag in one.flags}
    more = [
        one
        for one in map(_parameter_of_flag, flags_without_second_spellings(script_help.flags))
        if one.name not in known
    ]
    trains = listed >= _FLAGS_OF_TRAINING_ARGUMENTS
    kind = "hf-trainer" if trains else source.kind if source.kind in {"argparse", "absl"} else "help"
    return replace(
        source,
        kind=kind,
        base_class="TrainingArguments" if trains else source.base_class,
        why_unread=source.why_unread if kind == "help" else "",
        parameters=(*declared, *_parameters_with_paired_switches(more)),
        help_may_say_more=False,
        was_help_read=True,
    )


def _parameter_of_flag(flag: HelpFlag) -> ScriptParameter:
    """Return an argument that --help lists, of the type that its default has."""
    found = _DEFAULT_IN_HELP_PATTERN.search(flag.help)
    default = found[1].strip().strip("'\"") if found and found[1].strip() != "None" else ""
    form: ParameterForm = "option" if flag.valued else "switch"
    typed = _number_type_name(default) if flag.valued else "bool"
    return ScriptParameter(name=flag.name, flags=(flag.name,), form=form, type=typed, default=default, help=flag.help)


def _number_type_name(default: str) -> str:
    """Return the type of a number, empty for what is none."""
    for name, read in (("int", int), ("float", float)):
        with suppress(ValueError):
            read(default)
            return name
    return ""


def _parameters_with_paired_switches(parameters: list[ScriptParameter]) -> Iterator[ScriptParameter]:
    """Yield them, --NAME and --no-NAME as one."""
    switches = {one.name for one in parameters if one.form == "switch"}
    opposite = {name: f"--no-{name[2:]}" for name in switches if f"--no-{name[2:]}" in switches}
    for one in parameters:
        if one.name in opposite:
            yield replace(one, form="pair", off_flags=(opposite[one.name],))
        elif one.name not in opposite.values():
            yield one


def read_script_help(
    python: str, command: tuple[str, ...], folder: str, before_run: Callable[[], None] = lambda: None
) -> ScriptHelp:
    """Return the arguments that `python *words --help` lists in `folder`, within 30 seconds and without GPU.

    They are kept until the script, the modules around it or the packages of the Python change, for an hour at most;
    `before_run` is called if the script has to be run.
    """
    file = answer_cache.answer_file(script_help_folder(), _cache_key(python, command, folder))
    content = answer_cache.load_cached_answer(file)
    if content is not None:
        with suppress(Unparsable):
            return parse_json_as(content, ScriptHelp)
    before_run()
    found = _run_script_with_help(python, command, folder)
    if not found.problem:
        answer_cache.store_answer(file, msgspec.json.encode(found))
    return found


def _cache_key(python: str, command: tuple[str, ...], folder: str) -> bytes:
    script = Path(command[-1])
    content = b""
    with suppress(OSError, ValueError):
        content = read_regular_file(str(script), _MAX_SCRIPT_BYTES)
    around = [answer_cache.file_state(file) for file in _modules_around(script.parent)] if content else []
    # What the script imports from elsewhere, such as a package installed as editable, is not looked at.
    hour = int(time.time() // 3600)
    packages = answer_cache.package_folder_states(python)
    return msgspec.json.encode((_CACHE_VERSION, hour, python, packages, command, folder, content, around))


def _modules_around(folder: Path) -> list[Path]:
    """Return the modules in a folder and the packages in it, as far as these are few."""
    found: list[Path] = []
    for pattern in ("*.py", "*/*.py", "*/*/*.py"):
        with suppress(OSError):
            found += itertools.islice(folder.glob(pattern), _MAX_MODULES_IN_CACHE_KEY)
    return sorted(found)


def _run_script_with_help(python: str, command: tuple[str, ...], folder: str) -> ScriptHelp:
    answer = run_child([python, *command, "--help"], _DEADLINE_SECONDS, _HELP_RUN_ENVIRONMENT, folder)
    output = answer.stdout.decode("utf-8", "replace") + "\n" + answer.stderr.decode("utf-8", "replace")
    flags = parse_help(output)
    if flags and not answer.failure:
        return ScriptHelp(flags=flags)
    if answer.failure or answer.exit_code:
        return ScriptHelp(problem=answer.why_unusable())
    return ScriptHelp(problem="its --help lists no arguments")


def parse_help(text: str) -> tuple[HelpFlag, ...]:
    """Return the arguments that argparse, click, absl or the like list in this --help, without duplicates."""
    by_name: dict[str, HelpFlag] = {}
    for flags, help_text in _help_entries(_ANSI_PATTERN.sub("", text).translate(_SPACE_BY_BOX_CHARACTER).splitlines()):
        for match in _FLAG_PATTERN.finditer(flags):
            name, values = match["name"], match["rest"]
            if name in {"-h", "--help", "--helpfull", "--helpshort", "--helpxml"} or len(by_name) >= _MAX_HELP_FLAGS:
                continue
            optional_no = re.match(r"--\[no-?\]", name)
            plain_name = f"--{name[optional_no.end() :]}" if optional_no else name
            # The help may follow a later flag of the same argument.
            valued = bool(re.search(r"[A-Za-z{<\[]", values)) or _is_metavar_after_last_flag_only(flags)
            parsed_flag = HelpFlag(plain_name, help_text[:300], valued and not optional_no)
            if plain_name not in by_name or (help_text and not by_name[plain_name].help):
                by_name[plain_name] = parsed_flag
    shorts = {name for name in by_name if not name.startswith("--")}
    return tuple(flag for name, flag in by_name.items() if name not in shorts or len(shorts) == len(by_name))


def _is_metavar_after_last_flag_only(flags: str) -> bool:
    """Return whether the metavariable follows only the last of several flags, as in click."""
    last = re.split(r"[,/|]\s*(?=-)", flags)[-1]
    return bool(re.search(r"^\S+\s+[A-Z\[{<]", last))


def _help_entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags and the help of each entry, without the usage up to its blank line."""
    flags, words, indent, usage = "", [""], 0, False
    for line in lines:
        if line.strip().lower().startswith("usage:"):
            usage = True
        if not line.strip():
            usage = False
        if usage:
            continue
        entry = _HELP_ENTRY_PATTERN.match(line.expandtabs())
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


def flags_without_second_spellings(flags: tuple[HelpFlag, ...]) -> tuple[HelpFlag, ...]:
    """Return the arguments to offer: only the first of two spellings such as `--max_steps` and `--max-steps`."""
    by_name: dict[str, HelpFlag] = {}
    for flag in flags:
        by_name.setdefault(flag.name.replace("_", "-"), flag)
    return tuple(by_name.values())
