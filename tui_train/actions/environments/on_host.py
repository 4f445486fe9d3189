"""Creates an environment for training on another host, by what that has; it goes on there when the link is cut."""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path

from msgspec import Struct

from tui_train.actions.environments import PackageSet
from tui_train.actions.environments import create as making
from tui_train.actions.environments.create import InstallCancelled, InstallPlan
from tui_train.actions.environments.progress import why_install_failed_and_remedy
from tui_train.base.errors import AlreadyExists, NoAnswer, TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.channel.session import Session, ask_host, machine_name
from tui_train.facts.machine.child_process import RUN_PROGRAM_TEXT_CODE
from tui_train.facts.machine.torch_builds import TorchBuild
from tui_train.facts.models.nemo_models import parse_recipes
from tui_train.facts.other_machines import remote
from tui_train.facts.other_machines.host_commands import text_for_host
from tui_train.facts.types import Machine
from tui_train.runner.questions.environment import REQUIREMENTS_FILE_NAME, STEP_PREFIX

_ANSWER_SECONDS = 60.0
_RECIPES_SECONDS = 180.0
# Seconds for which a lost host is asked again, and between two tries.
MAX_LOST_SECONDS, _RETRY_SECONDS = 600.0, 3.0
_MAX_KEPT_LINES = 40
_CHECK_STEP_TEXT = "Checking it …"
_CHECK_CODE = """\
import sys, torch
if sys.argv[1:] and not torch.version.cuda:
    sys.exit(f"the index has torch {torch.__version__} only, which cannot use GPUs")
print(f"torch {torch.__version__} is imported")
"""
# pip is to install into the environment, whatever the user has set for it.
_PIP_VARIABLES = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0", "PIP_TARGET": ""}


class _InstallingPython(Struct, frozen=True):
    """A Python of a host; `makes`: it can make environments with pip."""

    path: str
    major: int
    minor: int
    makes: bool


class HostInstallers(Struct, frozen=True, kw_only=True):
    """What a host could make an environment with, and where: its `standing` is free, taken or making.

    `free` are bytes, None where they are not known; `work` is the folder of what is kept about it.
    """

    error: str = ""
    folder: str = ""
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


class HostInstall(Struct, frozen=True, kw_only=True):
    """An environment to be made on a host; `id` is that of its making, which may be under way already."""

    host: str
    plan: InstallPlan
    id: str
    is_under_way: bool = False
    free: int | None = None


def ask_host_for_installers(
    host: str, package_set: PackageSet, path: str = "", python: str = "", *, first_free: bool = False
) -> HostInstallers:
    """Ask a host what it could make an environment with; Unavailable where it cannot lie there."""
    minors = range(package_set.newest, package_set.oldest - 1, -1)
    names = [python] if python else [*(f"python3.{minor}" for minor in minors), "python3"]
    question = {"do": "installers", "set": package_set.name, "path": path, "first_free": first_free, "pythons": names}
    answer = ask_host(host, question, HostInstallers, _ANSWER_SECONDS)
    if answer.error or not answer.folder.startswith("/") or visible(answer.folder) != answer.folder:
        why = visible(answer.error) or "no folder is named"
        raise Unavailable(f"{machine_name(host)}: {why}", "Name a whole path of that host: --path FOLDER")
    return answer


def choose_torch_build_for_host(host: str, machine: Machine, index: str = "") -> TorchBuild:
    """Return the build of torch for the machine of a host, from `index` if given; Unavailable if there is none."""
    try:
        return making.choose_torch_build(machine, index)
    except Unavailable as error:
        raise Unavailable(error.message, text_for_host(error.remedy, host)) from None


def plan_host_install(
    host: str, package_set: PackageSet, installers: HostInstallers, wheel: TorchBuild, python: str = ""
) -> HostInstall:
    """Return how an environment is made on a host; AlreadyExists or Unavailable where it cannot be.

    One that is being made there is followed, however it was planned.
    """
    name, folder = machine_name(host), Path(installers.folder)
    if installers.standing == "taken":
        raise AlreadyExists(
            f"{visible(installers.folder)} already exists on {name}",
            "Choose another path with --path, or remove it there.",
        )
    chosen = _choose_python(name, package_set, installers, python)
    requirements = f"{installers.work}/{REQUIREMENTS_FILE_NAME}"
    commands = making.install_commands(package_set, folder, chosen, wheel, installers.uv, requirements)
    check = (str(folder / "bin" / "python"), "-c", _CHECK_CODE, *(("cuda",) if wheel.cuda else ()))
    variables = (
        _read_pip_settings_for_uv(host, chosen if chosen.startswith("/") else "python3") if installers.uv else {}
    )
    plan = InstallPlan(
        package_set=package_set, path=folder, commands=(*commands, check), variables=variables, cuda=wheel.cuda
    )
    under_way = installers.standing == "making"
    if not under_way and installers.free is not None:
        making.refuse_too_little_room(plan, f"{name}:{installers.folder}", installers.free, host)
    return HostInstall(
        host=host, plan=plan, id=installers.id if under_way else secrets.token_hex(8), is_under_way=under_way,
        free=installers.free,
    )  # fmt: skip


def _choose_python(name: str, package_set: PackageSet, installers: HostInstallers, python: str) -> str:
    """Return the Python of a host that makes the environment; uv may bring one."""
    minors = range(package_set.oldest, package_set.newest + 1)
    known = [each for each in installers.pythons if each.major == 3 and each.minor in minors]
    named = [each for each in known if python in {"", each.path, Path(each.path).name}]
    if found := next((each.path for each in named if installers.uv or each.makes), ""):
        return found
    versions = f"Python 3.{package_set.oldest} to 3.{package_set.newest}"
    if python:
        raise Unavailable(
            f"{visible(python)} on {name} is not a {versions} that can make environments",
            "Name another one of that host: --python /path/to/python3",
        )
    if installers.uv:
        return f"3.{package_set.newest - 1}"
    if known:
        message = f"{visible(known[0].path)} on {name} cannot make environments: it lacks venv or ensurepip"
        raise Unavailable(message, "Install them there (Debian: apt install python3-venv), or uv, which needs no root.")
    raise Unavailable(
        f"{package_set.name} needs {versions}, and {name} has none",
        f"Install uv there, which brings one (https://docs.astral.sh/uv), or Python 3.{package_set.newest}.",
    )


def _read_pip_settings_for_uv(host: str, python: str) -> dict[str, str]:
    """Return the settings of a Python's pip on a host as variables for uv."""
    program = resources.files("tui_train.actions.environments").joinpath("pip_settings.py").read_text("utf-8")
    said = (
        remote.run_on_host(host, [python, "-c", program], _ANSWER_SECONDS).stdout.decode(errors="replace").splitlines()
    )
    return {name: value for name, equals, value in (line.partition("=") for line in said) if equals}


def create_host_environment(
    install: HostInstall,
    print_message: Callable[[str], None],
    on_line: Callable[[str], None],
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Create the environment there and follow it to its end; a failed or `cancelled` one is removed there.

    It goes on where the host is lost, and is followed again once that answers; NoAnswer after some minutes.
    """
    last: deque[str] = deque(maxlen=_MAX_KEPT_LINES)
    try:
        end = _follow_to_end(install, last, print_message, on_line, cancelled)
    except (InstallCancelled, KeyboardInterrupt):
        _cancel_on_host(install)
        raise
    if end.code:
        raise _install_failure(install, end, list(last))


def verify_host_environment(install: HostInstall, machine: Machine, print_message: Callable[[str], None]) -> None:
    """Print what a new environment of a host can train on; Unavailable where NeMo does not work in it."""
    python = str(install.plan.python)
    facts = remote.read_planning_facts(install.host, remote.PathsNamedByPlan(pythons=(python,)))
    for tool in facts.toolchains:
        if tool.python == python:
            for line in making.supported_gpu_lines(machine, tool):
                print_message(line)
    if install.plan.package_set.recipe:
        source = resources.files("tui_train").joinpath("programs/nemo_recipes.py").read_text("utf-8")
        command = [python, "-B", "-c", RUN_PROGRAM_TEXT_CODE, source, "recipes"]
        recipes = parse_recipes(remote.run_on_host(install.host, command, _RECIPES_SECONDS))
        print_message(making.nemo_support_text(install.plan.package_set, recipes))


def _follow_to_end(
    install: HostInstall,
    last: deque[str],
    print_message: Callable[[str], None],
    on_line: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> _InstallLine:
    """Print what is printed there, also after a lost link, and return how it ended."""
    at, lost_since = 0, 0.0
    while True:
        try:
            for line in _install_lines(install, at, cancelled):
                lost_since = 0.0
                if line.end:
                    return line
                at = max(at, line.at)
                _print_log(line.text, last, print_message, on_line)
        except NoAnswer as error:
            if cancelled():
                raise InstallCancelled("the installation was cancelled", "Nothing of it is left there.") from None
            if not lost_since:
                lost_since = time.monotonic()
                print_message(f"{error.message}. It goes on there; asking again …")
            if time.monotonic() - lost_since > MAX_LOST_SECONDS:
                remedy = "It goes on there. The same command follows it again once the host answers."
                raise NoAnswer(error.message, remedy) from None
        _pause(cancelled)


def _print_log(
    text: str, last: deque[str], print_message: Callable[[str], None], on_line: Callable[[str], None]
) -> None:
    for line in text.splitlines():
        if line.startswith(STEP_PREFIX):
            print_message(line[len(STEP_PREFIX) :])
        elif line.strip():
            last.append(line)
            on_line(line)


def _install_lines(install: HostInstall, at: int, cancelled: Callable[[], bool]) -> Iterator[_InstallLine]:
    """Yield what a host says of an environment from a byte of the log on; NoAnswer where the link is lost."""
    plan = install.plan
    steps = list(zip((*making.INSTALL_STEP_TEXTS, _CHECK_STEP_TEXT), plan.commands, strict=True))
    question = {"do": "make", "id": install.id, "at": at, "folder": str(plan.path), "steps": steps}
    question["variables"] = {**plan.variables, **_PIP_VARIABLES}
    question["requirements"] = plan.package_set.requirements_file.read_text("utf-8")
    with closing(Session(install.host, question, is_cancelled=cancelled)) as session:
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


def _cancel_on_host(install: HostInstall) -> None:
    """Have it removed there; NoAnswer where the host does not say that it was."""
    question = {"do": "unmake", "folder": str(install.plan.path), "id": install.id}
    try:
        ask_host(install.host, question, dict[str, bool], _ANSWER_SECONDS)
    except NoAnswer as error:
        remedy = "It may go on there. Once the host answers, the same command follows it, and Ctrl-C then cancels it."
        raise NoAnswer(f"it was not cancelled: {error.message}", remedy) from None


def _install_failure(install: HostInstall, end: _InstallLine, lines: list[str]) -> TuiTrainError:
    name = machine_name(install.host)
    if end.step == len(making.INSTALL_STEP_TEXTS):
        why = visible(lines[-1])[:300] if lines else "torch cannot be imported"
        return Unavailable(f"the environment on {name} does not work: {why}", "Give another index: --index-url URL.")
    why, remedy = (end.said, "See its last lines.") if end.said else why_install_failed_and_remedy(lines)
    return Unavailable(f"torch and its libraries could not be installed on {name}: {visible(why)}", remedy)
