"""Makes an environment for training on this machine or a host, by what that has; it goes on where the link is cut."""

import os
import re
import secrets
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib import resources
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tui_train.actions import environments
from tui_train.actions.environments import PackageSet
from tui_train.actions.environments.progress import is_index_unreachable, why_install_failed_and_remedy
from tui_train.base.errors import AlreadyExists, CannotWrite, NoAnswer, TuiTrainError, Unavailable
from tui_train.base.text import quantity, size_text, visible
from tui_train.channel.session import Session, ask_host, machine_name
from tui_train.facts.gpus.verdicts import gpu_verdicts, recommended_torch_build
from tui_train.facts.machine import probe, trusted_pythons
from tui_train.facts.machine.child_process import RUN_PROGRAM_TEXT_CODE
from tui_train.facts.machine.torch_builds import WHEEL_INDEX_URL, TorchBuild
from tui_train.facts.other_machines.host_commands import text_for_host
from tui_train.facts.other_machines.remote import run_on_machine
from tui_train.facts.types import Machine
from tui_train.runner.questions.environment import REQUIREMENTS_FILE_NAME, STEP_PREFIX

_STEP_TEXTS = ("Making the environment …", "Installing torch …", "Installing the other libraries …", "Checking it …")
_TORCH_STEP, _CHECK_STEP = 1, 3
_ANSWER_SECONDS = 60.0
# Seconds for which a lost host is asked again, and between two tries.
_MAX_LOST_SECONDS, _RETRY_SECONDS = 600.0, 3.0
_MAX_KEPT_LINES = 40
_CHECK_CODE = """\
import json, subprocess, sys, torch
needs_cuda, recipe, recipes_program = sys.argv[1:]
if needs_cuda and not torch.version.cuda:
    sys.exit(f"the index has torch {torch.__version__} only, which cannot use GPUs")
print(f"torch {torch.__version__} is imported", flush=True)
if recipe:
    command = [sys.executable, "-B", "-c", recipes_program]
    listed = json.loads(subprocess.run(command, capture_output=True).stdout.splitlines()[-1])
    if recipe not in listed.get("tasks", ()):
        sys.exit(f"NeMo does not work in it: {listed.get('problem') or 'it has no ' + recipe}")
    print(f"NeMo has {len(listed['tasks'])} recipes, {recipe} among them")
"""
# pip is to install into the environment, whatever the user has set for it.
_PIP_VARIABLES = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0", "PIP_TARGET": ""}
_TORCH_INDEX_VARIABLE = "TUI_TRAIN_INDEX"
# Credentials in a URL: everything before the last @.
_URL_CREDENTIALS_PATTERN = re.compile(r"://[^/\s]*@")


class InstallCancelled(TuiTrainError):
    """The user cancelled an installation."""


class _IndexUnreachable(Unavailable):
    """A package index cannot be reached."""

    why = ""


class _InstallingPython(Struct, frozen=True):
    """A Python that was found; `makes`: it can make environments with pip."""

    path: str
    major: int
    minor: int
    makes: bool


class Installers(Struct, frozen=True, kw_only=True):
    """What a machine could make an environment with, and where: its `standing` is free, taken or making.

    `free_name` is a path that is free, `free` the bytes there, None where they are not known; `work` is the folder of
    what is kept about it, `id` that of the making under way.
    """

    error: str = ""
    folder: str = ""
    free_name: str = ""
    standing: str = ""
    work: str = ""
    free: int | None = None
    uv: str = ""
    pythons: tuple[_InstallingPython, ...] = ()
    id: str = ""


class _InstallLine(Struct, frozen=True):
    """A line about an environment that is made: what was printed up to a byte of the log, or how it ended."""

    error: str = ""
    text: str = ""
    at: int = 0
    end: bool = False
    step: int = -1
    code: int = 0
    said: str = ""


class InstallPlan(Struct, frozen=True, kw_only=True):
    """An environment to be made on a host (empty: this machine): a command for each step, the last one checks it.

    `id` is that of its making, which may be under way already; `free` are the bytes there, if known.
    """

    host: str
    package_set: PackageSet
    path: Path
    commands: tuple[tuple[str, ...], ...]
    variables: dict[str, str]
    id: str
    is_under_way: bool = False
    free: int | None = None

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.path / "bin" / "python"


def ask_for_installers(
    host: str, package_set: PackageSet, path: str = "", python: str = "", *, first_free: bool = False
) -> Installers:
    """Ask a machine what it could make an environment with; Unavailable where it cannot lie there.

    With `first_free` it lies at a path that does not exist yet.
    """
    names = [f"python3.{minor}" for minor in range(package_set.newest_minor, package_set.oldest_minor - 1, -1)]
    names = [python] if python else [*([] if host else [sys.executable]), *names, "python3"]
    question = {"do": "installers", "set": package_set.name, "path": path, "first_free": first_free, "pythons": names}
    answer = ask_host(host, question, Installers, _ANSWER_SECONDS)
    if answer.error or not answer.folder.startswith("/") or visible(answer.folder) != answer.folder:
        why = visible(answer.error) or "no folder is named"
        raise Unavailable(f"{machine_name(host)}: {why}", "Name a whole path of that machine: --path FOLDER")
    return answer


def choose_torch_build(machine: Machine, index: str = "", host: str = "") -> TorchBuild:
    """Return the build of torch for a machine, from `index` if given; Unavailable if there is none."""
    index = index or os.environ.get(_TORCH_INDEX_VARIABLE, "")
    if index == "none":
        return TorchBuild("", "the build in pip's default index")
    if index:
        return TorchBuild(index, "the build in the given index")
    try:
        return recommended_torch_build(machine)
    except Unavailable as error:
        raise Unavailable(error.message, text_for_host(error.remedy, host)) from None


def plan_install(
    host: str, package_set: PackageSet, installers: Installers, wheel: TorchBuild, python: str = ""
) -> InstallPlan:
    """Return how an environment is made; AlreadyExists, CannotWrite or Unavailable where it cannot be.

    One that is being made there is followed, however it was planned.
    """
    name, folder = machine_name(host), Path(installers.folder)
    if installers.standing == "taken":
        where = f" on {name}" if host else ""
        remedy = f"Choose another path, such as --path {shlex.quote(installers.free_name)}, or remove it first."
        raise AlreadyExists(f"{visible(installers.folder)} already exists{where}", visible(remedy))
    is_under_way = installers.standing == "making"
    needed = package_set.bytes_on_disk(cuda=bool(wheel.cuda))
    if not is_under_way and installers.free is not None and installers.free < needed:
        where = f"{name}:{installers.folder}" if host else str(folder.parent)
        message = f"{visible(where)} has {size_text(installers.free)} free, and the environment takes about"
        remedy = text_for_host("Free some space, or choose another disk: tui-train env create NAME", host)
        raise CannotWrite(f"{message} {size_text(needed)}", f"{remedy} --path FOLDER.")
    chosen = _choose_python(host, package_set, installers, python)
    requirements = f"{installers.work}/{REQUIREMENTS_FILE_NAME}"
    commands = (
        *_install_commands(package_set, folder, chosen, wheel, installers.uv, requirements),
        (str(folder / "bin" / "python"), "-c", _CHECK_CODE, wheel.cuda, package_set.recipe, _recipes_program_text()),
    )
    asked = chosen if chosen.startswith("/") else "python3"
    return InstallPlan(
        host=host, package_set=package_set, path=folder, commands=commands,
        variables=_read_pip_settings_for_uv(host, asked) if installers.uv else {},
        id=installers.id if is_under_way else secrets.token_hex(8), is_under_way=is_under_way, free=installers.free,
    )  # fmt: skip


def _recipes_program_text() -> str:
    return resources.files("tui_train").joinpath("programs/nemo_recipes.py").read_text("utf-8")


def _install_commands(  # noqa: PLR0913, PLR0917 - what the commands are made of
    package_set: PackageSet, path: Path, python: str, wheel: TorchBuild, uv: str, requirements_file: str
) -> tuple[tuple[str, ...], ...]:
    """Return the commands that install a set at `path` with uv, or with pip if `uv` is empty."""
    inside = str(path / "bin" / "python")
    torch = [environments.torch_requirement(package_set), package_set.torch_companion]
    index = ("--index-url", wheel.index) if wheel.index else ()
    if uv:
        create_venv: tuple[str, ...] = (uv, "venv", "--quiet", "--allow-existing", "--python", python, str(path))
        install: tuple[str, ...] = (uv, "pip", "install", "--compile-bytecode", "--python", inside)
    else:
        create_venv = (python, "-m", "venv", str(path))
        install = (inside, "-m", "pip", "install", "--progress-bar", "off")
    return (create_venv, (*install, *index, *filter(None, torch)), (*install, "-r", requirements_file))


def _choose_python(host: str, package_set: PackageSet, installers: Installers, python: str) -> str:
    """Return the Python that makes the environment; uv may bring one."""
    name, there = machine_name(host), " there" if host else ""
    minors = range(package_set.oldest_minor, package_set.newest_minor + 1)
    known = [each for each in installers.pythons if each.major == 3 and each.minor in minors]
    named = [each for each in known if python in {"", each.path, Path(each.path).name}]
    if found := next((each.path for each in named if installers.uv or each.makes), ""):
        return found
    versions = f"Python 3.{package_set.oldest_minor} to 3.{package_set.newest_minor}"
    if python:
        raise Unavailable(
            f"{visible(python)} on {name} is not a {versions} that can make environments",
            "Name another one of that machine: --python /path/to/python3",
        )
    if installers.uv:
        return f"3.{package_set.newest_minor - 1}"
    if known:
        message = f"{visible(known[0].path)} on {name} cannot make environments: it lacks venv or ensurepip"
        raise Unavailable(
            message, f"Install them{there} (Debian: apt install python3-venv), or uv, which needs no root."
        )
    raise Unavailable(
        f"{package_set.name} needs {versions}, and {name} has none",
        f"Install uv{there}, which brings one (https://docs.astral.sh/uv), or Python 3.{package_set.newest_minor};"
        " or name one: --python /path/to/python3",
    )


def _read_pip_settings_for_uv(host: str, python: str) -> dict[str, str]:
    """Return the settings of a Python's pip as variables for uv."""
    program = resources.files("tui_train.actions.environments").joinpath("pip_settings.py").read_text("utf-8")
    said = run_on_machine(host, [python, "-c", program], _ANSWER_SECONDS).stdout.decode(errors="replace").splitlines()
    return {name: value for name, equals, value in (line.partition("=") for line in said) if equals}


def install_command_text(command: Sequence[str]) -> str:
    """Return a command as typed in a shell, safe to show, without credentials in URLs."""
    return visible(_URL_CREDENTIALS_PATTERN.sub("://***@", shlex.join(command)))


def create_environment(
    plan: InstallPlan,
    machine: Machine,
    print_message: Callable[[str], None],
    on_line: Callable[[str], None],
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Make the environment and follow it to its end; a failed or `cancelled` one is removed.

    It goes on where the host is lost, and is followed again once that answers; NoAnswer after some minutes.
    """
    try:
        _follow_to_end(plan, print_message, on_line, cancelled)
    except _IndexUnreachable as error:
        # An index that the user has set is no other one's to replace.
        if (instead := _without_pytorch_index(plan)).commands == plan.commands:
            raise
        # The news first: a screen shows one line.
        print_message(f"{error.why}: trying pip's own index …")
        _follow_to_end(instead, print_message, on_line, cancelled)
    if not plan.host:
        trusted_pythons.remember_chosen_python(str(plan.python))
    for line in _supported_gpu_lines(plan, machine):
        print_message(line)


def _without_pytorch_index(plan: InstallPlan) -> InstallPlan:
    """Return an installation without PyTorch's own index, so that pip's default index is used."""
    commands = [*plan.commands]
    words = commands[_TORCH_STEP]
    for number, (option, index) in enumerate(pairwise(words)):
        if option == "--index-url" and index.startswith(WHEEL_INDEX_URL):
            commands[_TORCH_STEP] = (*words[:number], *words[number + 2 :])
    return replace(plan, commands=tuple(commands), id=secrets.token_hex(8))


def _supported_gpu_lines(plan: InstallPlan, machine: Machine) -> Iterator[str]:
    """Yield how many GPUs of the machine the new environment supports, and why not the others."""
    command = [str(plan.python), "-B", "-c", RUN_PROGRAM_TEXT_CODE, probe.probe_program_text()]
    answer = run_on_machine(plan.host, command, _ANSWER_SECONDS).last_answer(probe.ProbeAnswer)
    if answer is None or not machine.gpus:
        return
    verdicts = gpu_verdicts(machine.gpus, answer.toolchain, machine.driver_cuda)
    usable = sum(verdict.kind != "blocked" for verdict in verdicts)
    yield f"it supports {usable} of {quantity(len(verdicts), 'GPU')}"
    for gpu, verdict in zip(machine.gpus, verdicts, strict=True):
        if verdict.kind == "blocked":
            yield visible(f"  GPU {gpu.index} {gpu.name}: {'; '.join(verdict.reasons)}")


def _follow_to_end(
    plan: InstallPlan,
    print_message: Callable[[str], None],
    on_line: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> None:
    """Print what is printed there, also after a lost link, until it is made; Unavailable where that failed."""
    last: deque[str] = deque(maxlen=_MAX_KEPT_LINES)

    def print_log(text: str) -> None:
        for line in text.splitlines():
            if line.startswith(STEP_PREFIX):
                print_message(line[len(STEP_PREFIX) :])
            elif line.strip():
                last.append(line)
                on_line(line)

    try:
        end = _wait_for_end(plan, print_log, print_message, cancelled)
    except (InstallCancelled, KeyboardInterrupt):
        _cancel(plan)
        raise
    if end.code:
        raise _install_failure(plan, end, list(last))


def _wait_for_end(
    plan: InstallPlan,
    print_log: Callable[[str], None],
    print_message: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> _InstallLine:
    at, lost_since = 0, 0.0
    while True:
        try:
            for line in _install_lines(plan, at, cancelled):
                lost_since = 0.0
                if line.end:
                    return line
                at = max(at, line.at)
                print_log(line.text)
        except NoAnswer as error:
            if cancelled():
                raise InstallCancelled(
                    "the installation was cancelled", "Nothing of the environment is left."
                ) from None
            if not lost_since:
                lost_since = time.monotonic()
                print_message(f"{error.message}. It goes on there; asking again …")
            if time.monotonic() - lost_since > _MAX_LOST_SECONDS:
                remedy = "It goes on there. The same command follows it again once the host answers."
                raise NoAnswer(error.message, remedy) from None
        _pause(cancelled)


def _install_lines(plan: InstallPlan, at: int, cancelled: Callable[[], bool]) -> Iterator[_InstallLine]:
    """Yield what a machine says of an environment from a byte of the log on; NoAnswer where the link is lost."""
    question = {
        "do": "make", "id": plan.id, "at": at, "folder": str(plan.path),
        "steps": list(zip(_STEP_TEXTS, plan.commands, strict=True)), "variables": {**plan.variables, **_PIP_VARIABLES},
        "requirements": plan.package_set.requirements_file.read_text("utf-8"),
    }  # fmt: skip
    with closing(Session(plan.host, question, is_cancelled=cancelled)) as session:
        for sent in session.answers(_InstallLine):
            if sent.error:
                raise Unavailable(f"{session.name}: {visible(sent.error)}", "Choose another path with --path.")
            yield sent
            if sent.end:
                return


def _pause(cancelled: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _RETRY_SECONDS
    while time.monotonic() < deadline and not cancelled():
        time.sleep(0.1)


def _cancel(plan: InstallPlan) -> None:
    """Have it removed; NoAnswer where the host does not say that it was."""
    question = {"do": "unmake", "folder": str(plan.path), "id": plan.id}
    try:
        ask_host(plan.host, question, dict[str, bool], _ANSWER_SECONDS)
    except NoAnswer as error:
        remedy = "It may go on there. Once the host answers, the same command follows it, and Ctrl-C then cancels it."
        raise NoAnswer(f"it was not cancelled: {error.message}", remedy) from None


def _install_failure(plan: InstallPlan, end: _InstallLine, lines: list[str]) -> TuiTrainError:
    where = f" on {machine_name(plan.host)}" if plan.host else ""
    if end.step == _CHECK_STEP and not end.said:
        why = visible(lines[-1])[:300] if lines else "torch cannot be imported"
        remedy = (
            "Give another index (--index-url URL, or TUI_TRAIN_INDEX=URL); with that as well, report this package set."
        )
        return Unavailable(f"the environment{where} does not work: {why}", remedy)
    why, remedy = (end.said, "See its last lines.") if end.said else why_install_failed_and_remedy(lines)
    message = f"torch and its libraries could not be installed{where}: {visible(why)}"
    if end.step != _TORCH_STEP or not is_index_unreachable(lines):
        return Unavailable(message, remedy)
    failure = _IndexUnreachable(message, remedy)
    failure.why = visible(why)
    return failure
