"""Makes an environment that trains, and proves that it does; what did not succeed is removed."""

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
from tui_train.facts.ask import ask
from tui_train.facts.gpus import judge
from tui_train.facts.recipes import recipes
from tui_train.facts.types import Machine, Toolchain
from tui_train.facts.wheels import Wheel, of_machine

# Importing torch for the first time reads a gigabyte.
_PATIENCE = 180.0

# A name and a password in an address: all that stands before its last @.
_SECRET = re.compile(r"://[^/\s]*@")
_INDEX = "TUI_TRAIN_INDEX"


class Making(Struct, frozen=True, kw_only=True):
    """How an environment is made: the commands in order, and variables for them."""

    wanted: Set
    path: Path
    commands: tuple[tuple[str, ...], ...]
    variables: dict[str, str]

    @property
    def python(self) -> Path:
        """The interpreter in it."""
        return self.path / "bin" / "python"


def making(wanted: Set, path: Path, python: str, wheel: Wheel, uv: str) -> Making:
    """Return how a set is installed at `path` with uv, or with pip where `uv` is empty."""
    inside = str(path / "bin" / "python")
    torch = environments.torch(wanted)
    index = ("--index-url", wheel.index) if wheel.index else ()
    if uv:
        begin: tuple[str, ...] = (uv, "venv", "--quiet", "--allow-existing", "--python", python, str(path))
        install: tuple[str, ...] = (uv, "pip", "install", "--compile-bytecode", "--python", inside)
    else:
        begin = (python, "-m", "venv", str(path))
        install = (inside, "-m", "pip", "install", "--progress-bar", "off")
    commands = (begin, (*install, *index, torch), (*install, "-r", str(wanted.lock)))
    variables = pip_settings.for_uv(pip_settings.read(python)) if uv else {}
    return Making(wanted=wanted, path=path, commands=commands, variables=variables)


def find_uv() -> str:
    """Return the path of uv, on PATH or beside this Python; empty where there is none."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if beside.is_file() else "")


def find_python(wanted: Set) -> str:
    """Return a Python that the set works with: this one, or one on PATH; Unavailable where there is none."""
    names = [sys.executable, *(f"python3.{minor}" for minor in range(wanted.newest, wanted.oldest - 1, -1))]
    for name in names:
        if fits(wanted, name):
            return shutil.which(name) or name
    remedy = f"Install Python 3.{wanted.newest}, or name one: --python /path/to/python3"
    raise Unavailable(f"{wanted.name} needs Python 3.{wanted.oldest} to 3.{wanted.newest}, and none was found", remedy)


def fits(wanted: Set, python: str) -> bool:
    """Tell whether an interpreter is of a version that the set works with."""
    told = ask([python, "-c", "import sys; print(*sys.version_info[:2])"], 10, folder=None).out.split()
    return told[:1] == [b"3"] and wanted.oldest <= int(told[1]) <= wanted.newest


def create(plan: Making, machine: Machine, say: Callable[[str], None]) -> Toolchain:
    """Make the environment and return what it has; it is removed again where any of it fails."""
    refuse_to_overwrite(plan.path)
    with writing(plan.path):
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        plan.path.mkdir()
    try:
        for command in plan.commands:
            _run(command, plan)
        say("Proving it …")
        return prove(plan, machine, say)
    except BaseException:
        shutil.rmtree(plan.path, ignore_errors=True)
        raise


def refuse_to_overwrite(path: Path) -> None:
    """Raise CannotWrite where something stands at `path` already."""
    if os.path.lexists(path):
        remedy = "Choose another place with --path, or remove it first."
        raise CannotWrite(f"{visible(str(path))} is there already", remedy)


def shown(command: Sequence[str]) -> str:
    """Return a command as one would type it, safe to show: without the names and passwords in its addresses."""
    return visible(_SECRET.sub("://***@", shlex.join(command)))


def _run(command: Sequence[str], plan: Making) -> None:
    environment = {**os.environ, **plan.variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PIP_USER", None)
    environment.pop("PIP_TARGET", None)
    try:
        code = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise Unavailable(
            f"{visible(command[0])} cannot be started: {error.strerror}", "Name another Python."
        ) from None
    if code:
        remedy = (
            "Its output is above. Where an index cannot be reached: --index-url none takes torch from where pip"
            " takes everything. Where Python has no venv (Debian): apt install python3-venv, or pip install uv."
        )
        raise Unavailable(f"this failed with exit code {code}: {shown(command)}", remedy)


def prove(plan: Making, machine: Machine, say: Callable[[str], None]) -> Toolchain:
    """Return what the environment has, after torch was imported, its code compared with the cards, NeMo asked."""
    python = str(plan.python)
    answer = ask([python, "-c", "import torch; print(torch.__version__)"], _PATIENCE)
    if answer.code != 0:
        raise Unavailable(f"torch cannot be imported: {visible(answer.ending())}", "Please report this set.")
    found = probe.toolchain(python, 20)
    say(f"torch {answer.out.decode('utf-8', 'replace').strip()} is imported")
    verdicts = judge(machine.gpus, found, machine.driver_cuda)
    usable = sum(verdict.kind != "blocked" for verdict in verdicts)
    if verdicts:
        say(f"it has code for {usable} of {counted(len(verdicts), 'card')}")
        for gpu, verdict in zip(machine.gpus, verdicts, strict=True):
            if verdict.kind == "blocked":
                say(visible(f"  GPU {gpu.index} {gpu.name}: {'; '.join(verdict.reasons)}"))
    if plan.wanted.recipe:
        told = recipes(python)
        if plan.wanted.recipe not in told.tasks:
            why = told.problem or f"it has no {plan.wanted.recipe}"
            raise Unavailable(f"NeMo does not work in it: {visible(why)}", "Please report this set.")
        say(f"NeMo has {counted(len(told.tasks), 'recipe')}, {plan.wanted.recipe} among them")
    return found


def build_for(machine: Machine, index: str) -> Wheel:
    """Return the build of torch for a machine, from `index` or the one that is set; Unavailable where there is none."""
    index = index or os.environ.get(_INDEX, "")
    if index == "none":
        return Wheel("", "the build that pip finds without another index")
    if index:
        return Wheel(index, "the build in the index that was named")
    return of_machine(machine)
