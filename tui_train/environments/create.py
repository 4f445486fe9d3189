"""Creates an environment for training and verifies it; a failed one is removed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from tui_train import environments
from tui_train.base.errors import CannotWrite, Unavailable
from tui_train.base.files import writing
from tui_train.base.text import counted, visible
from tui_train.environments import Set, pip_settings
from tui_train.facts import probe
from tui_train.facts.ask import ask, on_path
from tui_train.facts.gpus import judge
from tui_train.facts.recipes import recipes
from tui_train.facts.types import Machine, Toolchain
from tui_train.facts.wheels import Wheel, of_machine

# Seconds; the first import of torch reads a gigabyte.
_PATIENCE = 180.0

# Credentials in a URL: everything before the last @.
_SECRET = re.compile(r"://[^/\s]*@")
_INDEX = "TUI_TRAIN_INDEX"


class Making(Struct, frozen=True, kw_only=True):
    """The commands that create an environment, in order, and their variables."""

    wanted: Set
    path: Path
    commands: tuple[tuple[str, ...], ...]
    variables: dict[str, str]

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.path / "bin" / "python"


def making(package_set: Set, path: Path, python: str, wheel: Wheel, uv: str) -> Making:
    """Return the commands that install a set at `path` with uv, or with pip if `uv` is empty."""
    inside = str(path / "bin" / "python")
    torch = environments.torch(package_set)
    index = ("--index-url", wheel.index) if wheel.index else ()
    if uv:
        create_venv: tuple[str, ...] = (uv, "venv", "--quiet", "--allow-existing", "--python", python, str(path))
        install: tuple[str, ...] = (uv, "pip", "install", "--compile-bytecode", "--python", inside)
    else:
        create_venv = (python, "-m", "venv", str(path))
        install = (inside, "-m", "pip", "install", "--progress-bar", "off")
    commands = (create_venv, (*install, *index, torch), (*install, "-r", str(package_set.lock)))
    variables = pip_settings.for_uv(pip_settings.read(python)) if uv else {}
    return Making(wanted=package_set, path=path, commands=commands, variables=variables)


def find_uv() -> str:
    """Return the path of uv, on PATH or beside this Python, empty if there is none."""
    beside = Path(sys.executable).with_name("uv")
    return on_path("uv") or (str(beside) if beside.is_file() else "")


def find_python(package_set: Set) -> str:
    """Return a Python that the set supports: this one, or one on PATH; Unavailable if there is none."""
    names = [sys.executable, *(f"python3.{minor}" for minor in range(package_set.newest, package_set.oldest - 1, -1))]
    for name in names:
        if fits(package_set, name):
            return on_path(name) or name
    remedy = f"Install Python 3.{package_set.newest}, or give one: --python /path/to/python3"
    raise Unavailable(
        f"{package_set.name} needs Python 3.{package_set.oldest} to 3.{package_set.newest}, and none was found", remedy
    )


def fits(package_set: Set, python: str) -> bool:
    """Return whether the set supports the version of an interpreter."""
    version = ask([python, "-c", "import sys; print(*sys.version_info[:2])"], 10, folder=None).out.split()
    return version[:1] == [b"3"] and package_set.oldest <= int(version[1]) <= package_set.newest


def create(plan: Making, machine: Machine, say: Callable[[str], None]) -> Toolchain:
    """Create the environment and return its contents; it is removed if any step fails."""
    refuse_to_overwrite(plan.path)
    with writing(plan.path):
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        plan.path.mkdir()
    try:
        for command in plan.commands:
            _run(command, plan)
        say("Checking it …")
        return prove(plan, machine, say)
    except BaseException:
        shutil.rmtree(plan.path, ignore_errors=True)
        raise


def refuse_to_overwrite(path: Path) -> None:
    """Raise CannotWrite if `path` exists."""
    if os.path.lexists(path):
        remedy = "Choose another path with --path, or remove it first."
        raise CannotWrite(f"{visible(str(path))} already exists", remedy)


def shown(command: Sequence[str]) -> str:
    """Return a command as typed in a shell, safe to show, without credentials in URLs."""
    return visible(_SECRET.sub("://***@", shlex.join(command)))


def _run(command: Sequence[str], plan: Making) -> None:
    environment = {**os.environ, **plan.variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PIP_USER", None)
    environment.pop("PIP_TARGET", None)
    try:
        code = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise Unavailable(
            f"{visible(command[0])} cannot be started: {error.strerror}", "Choose another Python (--python)."
        ) from None
    if code:
        remedy = (
            "See its output above. If an index cannot be reached: --index-url none installs torch from pip's default"
            " index. If Python has no venv (Debian): apt install python3-venv, or pip install uv."
        )
        raise Unavailable(f"exit code {code}: {shown(command)}", remedy)


def prove(plan: Making, machine: Machine, say: Callable[[str], None]) -> Toolchain:
    """Return the contents of the environment after checking torch, its support of the cards, and NeMo."""
    python = str(plan.python)
    answer = ask([python, "-c", "import torch; print(torch.__version__)"], _PATIENCE)
    if answer.code != 0:
        raise Unavailable(f"torch cannot be imported: {visible(answer.ending())}", "Please report this set.")
    contents = probe.toolchain(python, 20)
    say(f"torch {answer.out.decode('utf-8', 'replace').strip()} is imported")
    verdicts = judge(machine.gpus, contents, machine.driver_cuda)
    usable = sum(verdict.kind != "blocked" for verdict in verdicts)
    if verdicts:
        say(f"it supports {usable} of {counted(len(verdicts), 'GPU')}")
        for gpu, verdict in zip(machine.gpus, verdicts, strict=True):
            if verdict.kind == "blocked":
                say(visible(f"  GPU {gpu.index} {gpu.name}: {'; '.join(verdict.reasons)}"))
    if plan.wanted.recipe:
        nemo = recipes(python)
        if plan.wanted.recipe not in nemo.tasks:
            why = nemo.problem or f"it has no {plan.wanted.recipe}"
            raise Unavailable(f"NeMo does not work in it: {visible(why)}", "Please report this set.")
        say(f"NeMo has {counted(len(nemo.tasks), 'recipe')}, {plan.wanted.recipe} among them")
    return contents


def build_for(machine: Machine, index: str) -> Wheel:
    """Return the build of torch for a machine, from `index` if given; Unavailable if there is none."""
    index = index or os.environ.get(_INDEX, "")
    if index == "none":
        return Wheel("", "the build in pip's default index")
    if index:
        return Wheel(index, "the build in the given index")
    return of_machine(machine)
