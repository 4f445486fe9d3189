"""What is imported when: the core works without the screens and without what trains, and --version without anything."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec

import tui_train

ROOT = Path(tui_train.__file__).parents[1]
CORE = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "tui_train").rglob("*.py")
    if "programs" not in path.relative_to(ROOT).parts and "screens" not in path.relative_to(ROOT / "tui_train").parts
)
FOREIGN = {"textual", "rich", "torch", "accelerate", "transformers", "numpy", "tui_train.screens", "screens"}


# Each in a fork, which has none of the others of its layer; those of the layers below are there already.
EACH = """
import importlib, os, sys
import click, collections.abc, contextlib, dataclasses, json, msgspec, pathlib, re, subprocess, typing
for layer in LAYERS:
    for name in layer:
        read, write = os.pipe()
        if not os.fork():
            try:
                importlib.import_module(name)
                told = " ".join(sys.modules)
            except BaseException as error:
                told = f"! {error!r}"
            with os.fdopen(write, "w") as pipe:
                pipe.write(told)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            print(name, pipe.read())
        os.wait()
    if layer is not LAYERS[-1]:
        for name in layer:
            importlib.import_module(name)
"""


def layers():
    """The modules of the core by layers, the lowest first: a lower one imports no higher one, as lint-imports holds."""
    (contract,) = (
        one
        for one in msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers" and one["containers"] == ["tui_train"]
    )
    left = [*CORE]
    for layer in reversed(contract["layers"]):
        names = {f"tui_train.{name}" for name in re.findall(r"\w+", layer)}
        yield [name for name in left if ".".join(name.split(".")[:2]) in names]
        left = [name for name in left if ".".join(name.split(".")[:2]) not in names]
    yield left


def test_each_module_can_be_imported_first():
    """Before the others of its layer, so that none of them hides a circle, and with nothing foreign."""
    code = EACH.replace("LAYERS", repr([*layers()]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(name for name, *_ in lines) == CORE
    for name, *loaded in lines:
        assert name in loaded, f"{name}: {' '.join(loaded)}"
        assert not {other.partition(".")[0] for other in loaded} & FOREIGN, name
        assert not any(other.startswith("tui_train.screens") for other in loaded), name


def test_the_version_is_told_at_once():
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    code += "sys.argv = ['tui-train', '--version']\nfrom tui_train.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "tui_train.__main__" in done.stderr.split()
    assert not {*done.stderr.split()} & (FOREIGN | {"click", "msgspec", "yaml", "psutil"})
    assert done.stdout == f"tui-train {tui_train.__version__}\n"
