"""Creates an environment for training and verifies it; a failed one is removed."""

import contextlib
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from tui_train.actions import environments
from tui_train.actions.environments import PackageSet, pip_settings
from tui_train.actions.environments.progress import is_index_unreachable, why_install_failed_and_remedy
from tui_train.base.errors import CannotWrite, TuiTrainError, Unavailable
from tui_train.base.files import raising_cannot_write
from tui_train.base.text import quantity, size_text, visible
from tui_train.facts.gpus.verdicts import gpu_verdicts, recommended_torch_build
from tui_train.facts.machine import probe, trusted_pythons
from tui_train.facts.machine.child_process import absolute_search_paths, run_child
from tui_train.facts.machine.torch_builds import WHEEL_INDEX_URL, TorchBuild
from tui_train.facts.models.nemo_models import probe_recipes
from tui_train.facts.other_machines.host_commands import text_for_host
from tui_train.facts.types import Machine, NemoRecipes, Toolchain
from tui_train.runner.system.environments import (
    UNFINISHED_MARKER_NAME,
    first_free_path,
    mark_unfinished_and_lock,
    remove_if_abandoned,
)
from tui_train.runner.system.other_programs import find_on_path

# Seconds; the first import of torch reads a gigabyte.
_TORCH_IMPORT_SECONDS = 180.0
INSTALL_STEP_TEXTS = ("Making the environment …", "Installing torch …", "Installing the other libraries …")
_POLL_SECONDS = 0.2
_MAX_KEPT_LINES = 40
_MAX_LINE_BYTES = 1 << 14

# Credentials in a URL: everything before the last @.
_URL_CREDENTIALS_PATTERN = re.compile(r"://[^/\s]*@")
_TORCH_INDEX_VARIABLE = "TUI_TRAIN_INDEX"


class InstallCancelled(TuiTrainError):
    """The user cancelled an installation."""


class _IndexUnreachable(Unavailable):
    """A package index cannot be reached."""


class InstallPlan(Struct, frozen=True, kw_only=True):
    """The commands that create an environment, in order, and their variables; `cuda` is that of torch, if known."""

    package_set: PackageSet
    path: Path
    commands: tuple[tuple[str, ...], ...]
    variables: dict[str, str]
    cuda: str = ""

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.path / "bin" / "python"


def plan_install(package_set: PackageSet, path: Path, python: str, wheel: TorchBuild, uv: str) -> InstallPlan:
    """Return the plan by which a set is installed here at `path` with uv, or with pip if `uv` is empty."""
    commands = install_commands(package_set, path, python, wheel, uv, str(package_set.requirements_file))
    asked = python if os.sep in python else "python3"
    variables = pip_settings.uv_variables(pip_settings.read_pip_settings(asked)) if uv else {}
    return InstallPlan(package_set=package_set, path=path, commands=commands, variables=variables, cuda=wheel.cuda)


def install_commands(  # noqa: PLR0913, PLR0917 - what the commands are made of
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


def find_uv() -> str:
    """Return the path of uv, on PATH or beside this Python, empty if there is none."""
    beside = Path(sys.executable).with_name("uv")
    return find_on_path("uv") or (str(beside) if beside.is_file() else "")


def find_supported_python(package_set: PackageSet) -> str:
    """Return a Python that the set supports: this one, one on PATH, or the version of one that uv brings.

    Unavailable if there is none.
    """
    names = [sys.executable, *(f"python3.{minor}" for minor in range(package_set.newest, package_set.oldest - 1, -1))]
    for name in names:
        if supports_python(package_set, name):
            return find_on_path(name) or name
    if find_uv():
        return f"3.{package_set.newest - 1}"
    remedy = f"Install Python 3.{package_set.newest}, or uv, which brings one, or give one: --python /path/to/python3"
    raise Unavailable(
        f"{package_set.name} needs Python 3.{package_set.oldest} to 3.{package_set.newest}, and none was found", remedy
    )


def supports_python(package_set: PackageSet, python: str) -> bool:
    """Return whether the set supports the version of an interpreter."""
    version = run_child([python, "-c", "import sys; print(*sys.version_info[:2])"], 10, folder=None).stdout.split()
    return version[:1] == [b"3"] and package_set.oldest <= int(version[1]) <= package_set.newest


def create_environment(
    plan: InstallPlan,
    machine: Machine,
    print_message: Callable[[str], None],
    on_line: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Create the environment; it is removed if any step fails, and if it is `cancelled`.

    What the steps print goes to the terminal, or line by line to `on_line`.
    """
    refuse_existing_environment(plan.path)
    _refuse_full_disk(plan)
    with raising_cannot_write(plan.path):
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        plan.path.mkdir()
        lock = mark_unfinished_and_lock(plan.path)
    try:
        for step, command in zip(INSTALL_STEP_TEXTS, plan.commands, strict=False):
            if on_line:
                print_message(step)
            try:
                _run_install_step(command, plan, lock, on_line, cancelled)
            except _IndexUnreachable as error:
                # An index that the user has set is no other one's to replace.
                if (instead := _command_without_pytorch_index(command)) == command:
                    raise
                print_message(f"{error.message}. Installing torch from pip's own index …")
                _run_install_step(instead, plan, lock, on_line, cancelled)
        print_message("Checking it …")
        _verify_environment(plan, machine, print_message)
        (plan.path / UNFINISHED_MARKER_NAME).unlink()
    except BaseException:
        shutil.rmtree(plan.path, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    trusted_pythons.remember_chosen_python(str(plan.python))


def _command_without_pytorch_index(command: Sequence[str]) -> tuple[str, ...]:
    """Return an install command without PyTorch's own index, so that pip's default index is used."""
    words = [*command]
    for number, (option, index) in enumerate(pairwise(command)):
        if option == "--index-url" and index.startswith(WHEEL_INDEX_URL):
            del words[number : number + 2]
    return tuple(words)


def refuse_existing_environment(path: Path) -> None:
    """Raise CannotWrite if `path` exists; what an installation that was killed has left there is removed."""
    remove_if_abandoned(path)
    if os.path.lexists(path):
        remedy = f"Choose another path, such as --path {shlex.quote(str(first_free_path(path)))}, or remove it first."
        raise CannotWrite(f"{visible(str(path))} already exists", visible(remedy))


def _refuse_full_disk(plan: InstallPlan) -> None:
    """Raise CannotWrite where there is less room than the environment takes."""
    existing = next(folder for folder in plan.path.parents if folder.is_dir())
    refuse_too_little_room(plan, str(existing), shutil.disk_usage(existing).free)


def refuse_too_little_room(plan: InstallPlan, where: str, room: int, host: str = "") -> None:
    """Raise CannotWrite where a disk, of this machine or a host, has less room than the environment takes."""
    if room < (needed := plan.package_set.bytes_on_disk(cuda=bool(plan.cuda))):
        message = f"{visible(where)} has {size_text(room)} free, and the environment takes about {size_text(needed)}"
        remedy = text_for_host("Free some space, or choose another disk: tui-train env create NAME", host)
        raise CannotWrite(message, f"{remedy} --path FOLDER.")


def install_command_text(command: Sequence[str]) -> str:
    """Return a command as typed in a shell, safe to show, without credentials in URLs."""
    return visible(_URL_CREDENTIALS_PATTERN.sub("://***@", shlex.join(command)))


def _run_install_step(
    command: Sequence[str],
    plan: InstallPlan,
    lock: int,
    on_line: Callable[[str], None] | None,
    cancelled: Callable[[], bool],
) -> None:
    environment = {**os.environ, **absolute_search_paths(os.environ), **plan.variables}
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    environment.pop("PIP_USER", None)
    environment.pop("PIP_TARGET", None)
    # In the current folder uv would read its settings, and Python import its `venv.py`.
    options: dict[str, Any] = {"env": environment, "stdin": subprocess.DEVNULL, "cwd": os.sep, "pass_fds": (lock,)}
    lines: list[str] = []
    try:
        if on_line is None:
            code = subprocess.run(command, check=False, **options).returncode
        else:
            code, lines = _run_and_follow_output(command, options, on_line, cancelled)
    except OSError as error:
        raise Unavailable(
            f"{visible(command[0])} cannot be started: {error.strerror}", "Choose another Python (--python)."
        ) from None
    if code and lines:
        why, remedy = why_install_failed_and_remedy(lines)
        kind = _IndexUnreachable if is_index_unreachable(lines) else Unavailable
        raise kind(f"torch and its libraries could not be installed: {why}", remedy)
    if code:
        remedy = (
            "See its output above. If an index cannot be reached: --index-url none installs torch from pip's default"
            " index. If Python has no venv (Debian): apt install python3-venv, or pip install uv."
        )
        raise Unavailable(f"exit code {code}: {install_command_text(command)}", remedy)


def _run_and_follow_output(
    command: Sequence[str], options: dict[str, Any], on_line: Callable[[str], None], cancelled: Callable[[], bool]
) -> tuple[int, list[str]]:
    """Run a command, hand on its lines, and return its exit code and the last lines; InstallCancelled if told so."""
    last: deque[str] = deque(maxlen=_MAX_KEPT_LINES)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **options
    )  # fmt: skip
    try:
        for line in _output_lines(process, cancelled):
            last.append(line)
            on_line(line)
        return process.wait(), list(last)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Its group may outlive it.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _output_lines(process: subprocess.Popen[Any], cancelled: Callable[[], bool]) -> Iterator[str]:
    """Yield what a process prints, line by line, until it has closed its output; InstallCancelled if told so."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    rest = b""
    with selectors.DefaultSelector() as selector, process.stdout as pipe:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if cancelled():
                raise InstallCancelled("the installation was cancelled", "Nothing of the environment is left.")
            if not selector.select(_POLL_SECONDS):
                continue
            piece = os.read(pipe.fileno(), 65536)
            *lines, rest = (rest + piece).replace(b"\r", b"\n").split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines if line.strip())
            if not piece:
                return
            rest = rest[-_MAX_LINE_BYTES:]


def _verify_environment(plan: InstallPlan, machine: Machine, print_message: Callable[[str], None]) -> None:
    """Check torch, its support of the cards, and NeMo; Unavailable where one of them does not work."""
    python = str(plan.python)
    answer = run_child([python, "-c", "import torch; print(torch.__version__)"], _TORCH_IMPORT_SECONDS)
    if answer.exit_code != 0:
        raise Unavailable(
            (f"torch cannot be imported: {visible(answer.why_unusable())}"), "Please report this package set."
        )
    contents = probe.probe_toolchain(python, 20)
    if plan.cuda and not contents.cuda:
        message = f"the index has torch {contents.torch} only, which cannot use GPUs"
        raise Unavailable(
            visible(message), f"Give an index with torch for CUDA {plan.cuda}: {_TORCH_INDEX_VARIABLE}=URL."
        )
    print_message(f"torch {answer.stdout.decode('utf-8', 'replace').strip()} is imported")
    for line in supported_gpu_lines(machine, contents):
        print_message(line)
    if plan.package_set.recipe:
        print_message(nemo_support_text(plan.package_set, probe_recipes(python)))


def supported_gpu_lines(machine: Machine, contents: Toolchain) -> Iterator[str]:
    """Yield how many GPUs of a machine an environment supports, and why not the others."""
    verdicts = gpu_verdicts(machine.gpus, contents, machine.driver_cuda)
    usable = sum(verdict.kind != "blocked" for verdict in verdicts)
    if verdicts:
        yield f"it supports {usable} of {quantity(len(verdicts), 'GPU')}"
    for gpu, verdict in zip(machine.gpus, verdicts, strict=True):
        if verdict.kind == "blocked":
            yield visible(f"  GPU {gpu.index} {gpu.name}: {'; '.join(verdict.reasons)}")


def nemo_support_text(package_set: PackageSet, nemo: NemoRecipes) -> str:
    """Return in words that an environment has the recipes of its set; Unavailable where NeMo does not work in it."""
    if package_set.recipe not in nemo.tasks:
        why = nemo.problem or f"it has no {package_set.recipe}"
        raise Unavailable(f"NeMo does not work in it: {visible(why)}", "Please report this package set.")
    return f"NeMo has {quantity(len(nemo.tasks), 'recipe')}, {package_set.recipe} among them"


def choose_torch_build(machine: Machine, index: str) -> TorchBuild:
    """Return the build of torch for a machine, from `index` if given; Unavailable if there is none."""
    index = index or os.environ.get(_TORCH_INDEX_VARIABLE, "")
    if index == "none":
        return TorchBuild("", "the build in pip's default index")
    if index:
        return TorchBuild(index, "the build in the given index")
    return recommended_torch_build(machine)
