"""What is installed: the wheel holds the whole program and nothing else, and works away from the checkout."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import msgspec
import pytest
from support import copy_checkout

import tui_train
from tui_train.actions.environments import pip_settings

ROOT = Path(__file__).parents[2]
# What is installed with this Python is found, also where it is not activated.
BESIDE = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
HOSTILE = ("click", "json", "msgspec", "psutil", "screens", "torch", "tui_train")
PROJECT = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())
SETUPTOOLS = PROJECT["tool"]["setuptools"]

# One worker builds once.
pytestmark = pytest.mark.xdist_group("packaging")


def sources():
    """The program's files in the checkout, by the name that they have once installed."""
    for folder, name in (("tui_train", "tui_train"), ("screens", "tui_train/screens")):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{name}/{path.relative_to(ROOT / folder)}", path


def run(*command, **options):
    """Run a command to its end; return what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


def build(folder, *words):
    """Build into a folder; with uv, which reads none of pip's settings, the environments for it are made sooner."""
    uv = ["--installer", "uv"] if which("uv", path=BESIDE) else []
    settings = {**os.environ, **pip_settings.uv_variables(pip_settings.read_pip_settings(sys.executable))}
    run(sys.executable, "-m", "build", *uv, "--outdir", folder, *words, env={**settings, "PATH": BESIDE})


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources: a build leaves nothing in the checkout, and takes nothing that an earlier one left."""
    return copy_checkout(tmp_path_factory.mktemp("a copy"))


@pytest.fixture(scope="module")
def distributions(tree):
    """The sdist, and the wheel that is built from it."""
    build(tree / "dist", tree)
    (sdist,), (wheel,) = (tree / "dist").glob("*.tar.gz"), (tree / "dist").glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory):
    """A Python in which the wheel alone is installed, and which finds everything else where this one has it."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-deps", "--no-index"]
    run(*pip, distributions[1])
    # A path in a .pth file adds a folder to those imported from, but no .pth file in there is read: so the modules that
    # are installed there are found, which saves installing torch, and the checkout, which one of those names, is not.
    paths = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site / "third-party.pth").write_text("\n".join(paths))
    return folder / "bin"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A user's folder with modules of the same names as ours and those that we use."""
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the folder in which it was started')\n")
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_packages_are_the_folders():
    found = {str(Path(name).parent).replace("/", ".") for name, path in sources() if path.name == "__init__.py"}
    assert sorted(SETUPTOOLS["packages"]) == sorted(found)


@pytest.mark.whole
@pytest.mark.packaging
def test_wheel_holds_the_program(distributions):
    with zipfile.ZipFile(distributions[1]) as wheel:
        inside = {name: wheel.read(name) for name in wheel.namelist() if not re.match(r"[^/]+\.dist-info/", name)}
        info = {name.partition(".dist-info/")[2] for name in wheel.namelist() if ".dist-info/" in name}
    expected = {name: path.read_bytes() for name, path in sources()}
    man_page = f"tui_train-{tui_train.__version__}.data/data/share/man/man1/tui-train.1"
    expected[man_page] = (ROOT / "assets" / "tui-train.1").read_bytes()
    assert inside == expected
    assert "licenses/LICENSE" in info


@pytest.mark.packaging
@pytest.mark.whole
def test_sdist_gives_the_wheel_of_the_checkout(distributions, tree):
    build(tree / "direct", "--wheel", tree)
    (direct,) = (tree / "direct").glob("*.whl")
    with zipfile.ZipFile(direct) as one, zipfile.ZipFile(distributions[1]) as other:
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }


@pytest.mark.packaging
def test_installed_version(installed, hostile):
    assert run(installed / "tui-train", "--version", cwd=hostile) == f"tui-train {tui_train.__version__}\n"


@pytest.mark.whole
@pytest.mark.packaging
def test_installed_facts(installed, hostile):
    facts = json.loads(run(installed / "tui-train", "facts", "--json", cwd=hostile))
    assert facts["machine"]["cpu_count"] == os.cpu_count()
    assert facts["toolchains"][0]["python"] == str(installed / "python")
    assert facts["toolchains"][0]["torch"]


@pytest.mark.packaging
@pytest.mark.training
@pytest.mark.whole
def test_installed_quickstart(installed, hostile):
    out = run(installed / "tui-train", "quickstart", cwd=hostile)
    first, last = map(float, re.search(r"loss from ([\d.]+) to ([\d.]+)", out).groups())
    assert last < first / 2
    assert "finished after" in out


def environment(tree, python, *, code=0, **more):
    """Run what `make run` begins with; return what it printed."""
    variables = {name: value for name, value in os.environ.items() if name not in {"TORCH", "PIP_ARGS"}}
    variables |= {"PYTHON": str(python), "PATH": BESIDE, **more}
    command = ["bash", ".ci/environment", "run"]
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(command, cwd=tree, env=variables, stdout=pipe, stderr=both, text=True, check=False)
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.mark.packaging
@pytest.mark.skipif(find_spec("torch") is None, reason="it would download one")
@pytest.mark.whole
def test_make_run_installs_once_and_takes_the_torch_that_is_there(tmp_path):
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    tree = copy_checkout(folder)
    assert "Taking the torch" in environment(tree, sys.executable)
    assert run(tree / ".venv/bin/tui-train", "--version") == f"tui-train {tui_train.__version__}\n"
    assert not list(tree.glob(".venv/lib/*/site-packages/torch"))
    assert environment(tree, sys.executable) == ""

    (tree / ".venv/.ready").unlink()
    (tree / ".venv/bin/tui-train").unlink()
    again = environment(tree, sys.executable, PIP_ARGS="--no-deps")
    assert again.startswith("The last install was interrupted: making it again\n")
    assert (tree / ".venv/bin/tui-train").exists()


def test_make_run_leaves_an_environment_of_the_user(tmp_path):
    tree = copy_checkout(tmp_path)
    (tree / ".venv").mkdir()
    (tree / ".venv/mine").touch()
    assert "It was not made by make" in environment(tree, sys.executable, code=1)
    assert (tree / ".venv/mine").exists()


@pytest.mark.parametrize(("python", "message"), [("nope", "there is no nope"), ("false", "false does not run")])
def test_make_run_needs_a_python(tmp_path, python, message):
    tree = copy_checkout(tmp_path)
    assert message in environment(tree, python, code=1)
    assert not (tree / ".venv").exists()
