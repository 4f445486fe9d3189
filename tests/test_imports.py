"""What is imported when: the core works without the screens and without what trains, and --version without anything."""

import subprocess
import sys
from pathlib import Path

import pytest

import tui_train

ROOT = Path(tui_train.__file__).parents[1]
CORE = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "tui_train").rglob("*.py")
    if "target" not in path.relative_to(ROOT).parts and "screens" not in path.relative_to(ROOT / "tui_train").parts
)
FOREIGN = {"textual", "rich", "torch", "accelerate", "transformers", "numpy", "tui_train.screens", "screens"}


def modules_after(code):
    """The top-level modules that are loaded after a child ran this, and those of the screens."""
    child = f"import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n{code}"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, cwd=ROOT, check=True)
    names = set(done.stderr.split())
    assert "sys" in names
    return {name.partition(".")[0] for name in names} | {name for name in names if name.startswith("tui_train.screens")}


def test_the_core_is_found():
    assert {"tui_train.cli", "tui_train.wizard", "tui_train.runs.rundir", "tui_train.facts.probe"} <= set(CORE)
    assert len(CORE) > 35


def test_the_whole_core_needs_neither_screens_nor_what_trains():
    loaded = modules_after(f"import importlib\nfor name in {CORE!r}:\n    importlib.import_module(name)")
    assert not loaded & FOREIGN


@pytest.mark.parametrize("name", CORE)
def test_each_module_can_be_imported_first(name):
    """Alone, so that no other one hides a circle, and with nothing foreign."""
    assert not modules_after(f"import {name}") & FOREIGN


def test_the_version_is_told_at_once():
    code = "sys.argv = ['tui-train', '--version']\nfrom tui_train.__main__ import main\nmain()"
    assert not modules_after(code) & (FOREIGN | {"click", "msgspec", "yaml", "psutil"})
    told = subprocess.run([sys.executable, "-m", "tui_train", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"tui-train {tui_train.__version__}\n"


def test_the_test_would_see_a_foreign_import():
    assert "numpy" in modules_after("import numpy") & FOREIGN
