"""Machine and toolchain files, without names of users, hosts and home folders."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tui_train.base.errors import AlreadyExists, BadInput, NotFound
from tui_train.base.files import write_if_absent
from tui_train.base.parse import MissingFile, Unparsable, parse_json_as, read_file_to_parse
from tui_train.base.text import visible
from tui_train.facts.types import Facts, Gpu, Machine, Toolchain

_FILE_FORMAT_MARK = "tui-train machine 1"
_MACHINE_FILE_REMEDY = "Create one with `tui-train facts --save FILE`."
_MAX_FILE_BYTES = 2**24
# A masked part of a path.
_MASKED_PATH_PATTERN = re.compile(r"/(?:user\d*|host)(?=/)")
_HOME_FOLDER_PATTERN = re.compile(r"/(?:home|Users)/[^/\s'\":;,]+")
# Larger numbers are not valid amounts.
_MAX_NUMBER_IN_FILE = 2**62
_FileType = TypeVar("_FileType")


class MachineFile(Struct, kw_only=True):
    """A machine file of `tui-train facts --save`, or of its `--json`, with the cards beside the host."""

    machine: Machine
    format: str = ""
    gpus: tuple[Gpu, ...] | None = None
    toolchains: tuple[Toolchain, ...] = ()


class _ToolchainFile(Struct):
    """A toolchain file, as torch reports itself; `cuda` null is a build without CUDA."""

    torch: str
    cuda: str | None
    arch_list: tuple[str, ...]
    python: str = ""
    version: str = ""
    accelerate: str | None = None
    transformers: str | None = None


def machine_file_text(facts: Facts) -> str:
    """Return the text of a machine file with masked names; it has no modules and commands, which may be private."""
    toolchains = [msgspec.structs.replace(tool, modules=()) for tool in facts.toolchains]
    machine = msgspec.structs.replace(facts.machine, gpus=tuple(map(_without_commands, facts.machine.gpus)))
    data = msgspec.to_builtins({"format": _FILE_FORMAT_MARK, "machine": machine, "toolchains": toolchains})
    users = sorted({process.user for gpu in facts.machine.gpus for process in gpu.processes if process.user})
    data = _with_texts_changed(data, make_name_masker(facts.machine.hostname, users))
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def _without_commands(gpu: Gpu) -> Gpu:
    processes = (msgspec.structs.replace(process, command="") for process in gpu.processes)
    return msgspec.structs.replace(gpu, processes=tuple(processes))


def save_machine_file(path: Path, facts: Facts) -> None:
    """Write a new machine file; CannotWrite if it exists or cannot be written."""
    if not write_if_absent(path, machine_file_text(facts), create_parents=False):
        raise _already_exists_error(path)


def refuse_to_overwrite(path: Path) -> None:
    """Raise CannotWrite if `path` exists."""
    if os.path.lexists(path):
        raise _already_exists_error(path)


def _already_exists_error(path: Path) -> AlreadyExists:
    return AlreadyExists(f"{visible(str(path))} already exists", "Choose another name, or remove it first.")


def load_machine_file(path: Path) -> Facts:
    """Return the facts in a machine file; NotFound or BadInput if it cannot be used."""
    return _facts_of_file(_load_file(path, MachineFile, _MACHINE_FILE_REMEDY))


def load_facts_for_planning(path: Path) -> Facts:
    """Return the facts in a machine file for planning, with Pythons whose paths are usable there."""
    saved = _load_file(path, MachineFile, _MACHINE_FILE_REMEDY)
    tools = tuple(map(_with_masked_path_problem, saved.toolchains)) if saved.format else saved.toolchains
    facts = _facts_of_file(saved)
    return msgspec.structs.replace(facts, toolchains=tools, other_machine=visible(str(path)), engines=None)


def _with_masked_path_problem(tool: Toolchain) -> Toolchain:
    """Return a Python of a masked file, with a problem if its path contains masked names (`~` is expanded there)."""
    if tool.problem or not _MASKED_PATH_PATTERN.search(tool.python):
        return tool
    problem = "has a masked path: write the file there with `tui-train facts --json > FILE`, which masks nothing"
    return msgspec.structs.replace(tool, problem=problem)


def _facts_of_file(saved: MachineFile) -> Facts:
    machine = saved.machine if saved.gpus is None else msgspec.structs.replace(saved.machine, gpus=saved.gpus)
    return Facts(machine=machine, toolchains=saved.toolchains)


def load_toolchain_file(path: Path) -> Toolchain:
    """Return the toolchain in a file that holds at least `torch`, `cuda` and `arch_list`, as torch prints them."""
    remedy = 'Write it like {"torch": "2.13.0+cu126", "cuda": "12.6", "arch_list": ["sm_50", "sm_86"]}.'
    saved = _load_file(path, _ToolchainFile, remedy)
    named = {"python": saved.python or str(path), "label": "saved"}
    return msgspec.convert(msgspec.structs.asdict(saved) | named, Toolchain)


def _load_file(path: Path, file_type: type[_FileType], remedy: str) -> _FileType:
    name = visible(str(path))
    try:
        data = read_file_to_parse(path, _MAX_FILE_BYTES)
    except MissingFile:
        raise NotFound(f"{name} does not exist", "Give an existing file.") from None
    except Unparsable as error:
        readable = "Give a readable file that `tui-train facts` wrote."
        raise BadInput(f"{name} cannot be read: {error}", readable) from None
    try:
        decoded = parse_json_as(data, file_type)
    except Unparsable as error:
        raise BadInput(f"{name} cannot be used: {error}", remedy) from None
    largest = max((abs(number) for number in _all_numbers(msgspec.to_builtins(decoded))), default=0)
    if largest > _MAX_NUMBER_IN_FILE:
        raise BadInput(f"{name} cannot be used: a number in it is too large", remedy)
    return decoded


def _all_numbers(data: Any) -> Iterable[float]:
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, (list, tuple)):
        for each in data:
            yield from _all_numbers(each)
    elif isinstance(data, (int, float)):
        yield data


def make_name_masker(hostname: str, users: Iterable[str] = ()) -> Callable[[str], str]:
    """Return a function that masks names of this host and its users, and home folders, in a text."""
    names = {name: f"user{number}" for number, name in enumerate(users, 1)}
    for name in (os.environ.get("USER", ""), os.environ.get("LOGNAME", ""), Path.home().name):
        names.setdefault(name, "user")
    hosts = {hostname: "host", hostname.partition(".")[0]: "host"}
    # Short and universal names identify nobody; masking them would damage other text.
    universal = {"root", "localhost", "user", "host", ""}
    words = {**hosts, **names}
    words = {word: mask for word, mask in words.items() if len(word) > 1 and word not in universal}
    longest = sorted(words, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])") if words else None
    home = str(Path.home())

    def mask(text: str) -> str:
        if len(home) > 1:
            text = re.sub(re.escape(home) + r"(?![^/\s])", "~", text)
        text = _HOME_FOLDER_PATTERN.sub("/home/user", text)
        return pattern.sub(lambda match: words[match.group()], text) if pattern else text

    return mask


def _with_texts_changed(data: Any, change_text: Callable[[str], str]) -> Any:
    """Return parsed JSON with every text changed, except keys."""
    if isinstance(data, str):
        return change_text(data)
    if isinstance(data, dict):
        return {key: _with_texts_changed(value, change_text) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_with_texts_changed(value, change_text) for value in data]
    return data
