"""Machines and toolchains in files: what a bug report can carry, without names of users, hosts and home folders."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tui_train.base.errors import AlreadyExists, BadInput, NotFound
from tui_train.base.files import read_regular, reason, write_new
from tui_train.base.parse import built
from tui_train.base.text import visible
from tui_train.facts.types import Facts, Gpu, Machine, Toolchain

_FORMAT = "tui-train machine 1"
_MOST = 2**24
# A part of a path that `masking` has put there.
_MASKED = re.compile(r"/(?:user\d*|host)(?=/)")
_HOME = re.compile(r"/(?:home|Users)/[^/\s'\":;,]+")
# Numbers beyond this are no amount of anything.
_LARGEST = 2**62
_Kind = TypeVar("_Kind")


class Saved(Struct, kw_only=True):
    """A machine file as `tui-train facts --save` writes it, or its `--json`, which has the cards beside the host."""

    machine: Machine
    format: str = ""
    gpus: tuple[Gpu, ...] | None = None
    toolchains: tuple[Toolchain, ...] = ()


class _Torch(Struct):
    """A toolchain file: what torch prints of itself; `cuda` null is a build without CUDA."""

    torch: str
    cuda: str | None
    arch_list: tuple[str, ...]
    python: str = ""
    version: str = ""
    accelerate: str | None = None
    transformers: str | None = None


def machine_file(facts: Facts) -> str:
    """Return the text of a machine file with the facts, names that tell who and where masked."""
    data = msgspec.to_builtins({"format": _FORMAT, "machine": facts.machine, "toolchains": facts.toolchains})
    users = sorted({process.user for gpu in facts.machine.gpus for process in gpu.processes if process.user})
    data = _each_text(data, masking(facts.machine.hostname, users))
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def save(path: Path, facts: Facts) -> None:
    """Write a machine file that was not there before; CannotWrite otherwise."""
    text = machine_file(facts)
    refuse_to_overwrite(path)
    if not write_new(path, text, parents=False):
        raise _exists(path)


def refuse_to_overwrite(path: Path) -> None:
    """Raise CannotWrite where something stands at `path` already."""
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> AlreadyExists:
    return AlreadyExists(f"{visible(str(path))} already exists", "Choose another name, or remove it first.")


def load_machine(path: Path) -> Facts:
    """Return the facts in a machine file; NotFound or BadInput where it cannot be used."""
    return facts_of(_read(path), visible(str(path)))


def load_to_plan(path: Path) -> Facts:
    """Return the facts in a machine file as a plan for that machine needs them: with Pythons that can be started."""
    shown = visible(str(path))
    saved = _saved(_read(path), shown)
    tools = tuple(_with_whole_path(tool) for tool in saved.toolchains) if saved.format else saved.toolchains
    return msgspec.structs.replace(_facts(saved), toolchains=tools, elsewhere=shown)


def _with_whole_path(tool: Toolchain) -> Toolchain:
    """Return a Python of a masked file, with a problem where its path is not whole: `~` is known there, a name not."""
    if tool.problem or not _MASKED.search(tool.python):
        return tool
    problem = "has a path that the file leaves names out of: `tui-train facts --json > FILE` there leaves none out"
    return msgspec.structs.replace(tool, problem=problem)


def facts_of(data: bytes, source: str) -> Facts:
    """Return the facts in the JSON text of a machine file, which came from `source`; BadInput where it is none."""
    return _facts(_saved(data, source))


def _saved(data: bytes, source: str) -> Saved:
    return _decoded(data, Saved, source, "Make one with `tui-train facts --save FILE`.")


def _facts(saved: Saved) -> Facts:
    machine = saved.machine if saved.gpus is None else msgspec.structs.replace(saved.machine, gpus=saved.gpus)
    return Facts(machine=machine, toolchains=saved.toolchains)


def load_toolchain(path: Path) -> Toolchain:
    """Return the toolchain in a file that holds at least `torch`, `cuda` and `arch_list`, as torch prints them."""
    remedy = 'Write it like {"torch": "2.13.0+cu126", "cuda": "12.6", "arch_list": ["sm_50", "sm_86"]}.'
    told = _decoded(_read(path), _Torch, visible(str(path)), remedy)
    return Toolchain(
        python=told.python or str(path),
        label="saved",
        version=told.version,
        torch=told.torch,
        cuda=told.cuda,
        arch_list=told.arch_list,
        accelerate=told.accelerate,
        transformers=told.transformers,
    )


def _read(path: Path) -> bytes:
    shown = visible(str(path))
    try:
        return read_regular(path, _MOST)
    except FileNotFoundError:
        raise NotFound(f"{shown} is not there", "Name a file that is.") from None
    except OSError as error:
        remedy = "Name a file that `tui-train facts` wrote, and that you may read."
        raise BadInput(f"{shown} cannot be read: {reason(error)}", remedy) from error


def _decoded(data: bytes, kind: type[_Kind], source: str, remedy: str) -> _Kind:
    try:
        found = msgspec.json.decode(data, type=built(kind))
        largest = max((abs(number) for number in _numbers(msgspec.to_builtins(found))), default=0)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(f"{source} cannot be used: {visible(str(error))[:300]}", remedy) from error
    if largest > _LARGEST:
        raise BadInput(f"{source} cannot be used: it holds a number that is too large", remedy)
    return found


def _numbers(data: Any) -> Iterable[float]:
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, (list, tuple)):
        for each in data:
            yield from _numbers(each)
    elif isinstance(data, (int, float)):
        yield data


def masking(hostname: str, users: Iterable[str] = ()) -> Callable[[str], str]:
    """Return a function that replaces this host's name, users' names and home folders in a text."""
    names = {name: f"user{number}" for number, name in enumerate(users, 1)}
    for name in (os.environ.get("USER", ""), os.environ.get("LOGNAME", ""), Path.home().name):
        names.setdefault(name, "user")
    hosts = {hostname: "host", hostname.partition(".")[0]: "host"}
    # Short words, and what is on every machine, tell nobody: masking them would only spoil the rest.
    known = {"root", "localhost", "user", "host", ""}
    words = {**hosts, **names}
    words = {word: mask for word, mask in words.items() if len(word) > 1 and word not in known}
    longest = sorted(words, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])") if words else None
    home = str(Path.home())

    def mask(text: str) -> str:
        if len(home) > 1:
            text = re.sub(re.escape(home) + r"(?![^/\s])", "~", text)
        text = _HOME.sub("/home/user", text)
        return pattern.sub(lambda match: words[match.group()], text) if pattern else text

    return mask


def _each_text(data: Any, change: Callable[[str], str]) -> Any:
    """Return parsed JSON with every text in it changed; the keys stay."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, dict):
        return {key: _each_text(value, change) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_each_text(value, change) for value in data]
    return data
