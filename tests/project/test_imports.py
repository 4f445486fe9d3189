"""What is imported when: the core works without the screens and without what trains, and --version without anything."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
from support import sample

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
    for name in filter(CHOSEN.__contains__, layer):
        read, write = os.pipe()
        if not os.fork():
            try:
                importlib.import_module(name)
                told = ""
            except BaseException as error:
                told = repr(error)
            with os.fdopen(write, "w") as pipe:
                pipe.write(told)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            print(name, pipe.read())
        os.wait()
    for name in layer:
        importlib.import_module(name)
print(*sys.modules)
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
    """Before the others of its layer, so that none of them hides a circle, and all of them with nothing foreign."""
    chosen = sample(CORE, 3)
    code = EACH.replace("LAYERS", repr([*layers()])).replace("CHOSEN", repr({*chosen}))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    *each, loaded = done.stdout.splitlines()
    assert sorted(line.strip() for line in each) == chosen
    assert {*CORE} <= {*loaded.split()}
    assert not {name for name in loaded.split() if FOREIGN & {name, name.partition(".")[0]}}


def test_the_version_is_told_at_once():
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    code += "sys.argv = ['tui-train', '--version']\nfrom tui_train.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "tui_train.__main__" in done.stderr.split()
    assert not {*done.stderr.split()} & (FOREIGN | {"click", "msgspec", "yaml", "psutil"})
    assert done.stdout == f"tui-train {tui_train.__version__}\n"
