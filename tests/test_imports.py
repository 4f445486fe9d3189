"""What is imported when: the core works without the screens and without what trains, and --version without anything."""

import subprocess
import sys
from pathlib import Path

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
    assert {"tui_train.cli.app", "tui_train.wizard", "tui_train.runs.rundir", "tui_train.facts.probe"} <= set(CORE)
    assert len(CORE) > 35


def test_the_whole_core_needs_neither_screens_nor_what_trains():
    loaded = modules_after(f"import importlib\nfor name in {CORE!r}:\n    importlib.import_module(name)")
    assert not loaded & FOREIGN


# Each in a fork, which has none of the others; what they all stand on is there already.
EACH = """
import importlib, os, sys
import click, collections.abc, contextlib, dataclasses, json, msgspec, pathlib, re, subprocess, typing
for name in NAMES:
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
"""


def imported_first(names, folder=ROOT):
    """What is loaded after each of some modules was imported before any other, by their names."""
    code = EACH.replace("NAMES", repr(names))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, *_ in lines] == names
    return {name: loaded for name, *loaded in lines}


def test_each_module_can_be_imported_first():
    """Alone, so that no other one hides a circle, and with nothing foreign."""
    for name, loaded in imported_first(CORE).items():
        assert name in loaded, f"{name}: {' '.join(loaded)}"
        assert not {other.partition(".")[0] for other in loaded} & FOREIGN, name
        assert not any(other.startswith("tui_train.screens") for other in loaded), name


def test_the_test_would_see_a_circle_and_a_foreign_import(tmp_path):
    for name, text in {
        "one": "import two\nvalue = two.value",
        "two": "import one\nvalue = 1",
        "far": "import numpy",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = imported_first(["one", "two", "far"], tmp_path)
    assert "one" in found["one"]
    assert found["two"][0] == "!"
    assert "numpy" in found["far"]


def test_the_version_is_told_at_once():
    code = "sys.argv = ['tui-train', '--version']\nfrom tui_train.__main__ import main\nmain()"
    assert not modules_after(code) & (FOREIGN | {"click", "msgspec", "yaml", "psutil"})
    told = subprocess.run([sys.executable, "-m", "tui_train", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"tui-train {tui_train.__version__}\n"


def test_the_test_would_see_a_foreign_import():
    assert "numpy" in modules_after("import numpy") & FOREIGN
