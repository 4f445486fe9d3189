"""Reads which container engines work on a machine, and what the Python in an image has; nothing is pulled."""

import re
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec

from tui_train.base.app_paths import image_facts_folder
from tui_train.base.errors import Unavailable
from tui_train.base.parse import Unparsable, parse_json_as, parse_json_object
from tui_train.facts.answer_cache import answer_file, load_cached_answer, store_answer
from tui_train.facts.machine.child_process import RUN_PROGRAM_TEXT_CODE, ChildResult, run_child
from tui_train.facts.machine.probe import ProbeAnswer, probe_program_text
from tui_train.facts.types import ContainerEngine, ContainerImage

# Runs a command on a machine within so many seconds.
CommandRunner = Callable[[Sequence[str], float], ChildResult]

ENGINE_NAMES = ("docker", "podman", "apptainer")
_ENGINE_DEADLINE_SECONDS = 8.0
_NVIDIA_HOOK_PROGRAMS = ("nvidia-container-runtime-hook", "nvidia-container-runtime")
_NVIDIA_CDI_MARK = "nvidia.com/gpu"
# Prints which of the programs that it is given are there, and a mark where files describe the GPUs for CDI.
_LIST_INSTALLED_SCRIPT = f"""\
for name; do if command -v "$name" > /dev/null; then echo "$name"; fi; done
for file in /etc/cdi/* /var/run/cdi/* /run/cdi/*; do
  case $file in
    *.json | *.yaml | *.yml) if grep -qsF {_NVIDIA_CDI_MARK} "$file"; then echo {_NVIDIA_CDI_MARK}; fi ;;
  esac
done
"""
# Of apptainer an image is a file.
_APPTAINER_ENGINE = "apptainer"
_INSPECT_FORMAT = "{{.Id}} {{.Architecture}} {{.Size}}"
_PROGRAM_NOT_FOUND_CODE = 127
_RUNTIME_ERROR_PATTERN = re.compile(
    r"OCI runtime|failed to (start|create) shim|\b(runc|crun)\b.{0,80}(not found|no such file|error)"
)
# The runtime works then, but the image lacks something.
_PYTHON_NOT_IN_IMAGE_PATTERN = re.compile(r"executable file [`'\"]?python|exec: \"python\"|[Pp]ython[`'\"]? not found")


def read_engines(run: CommandRunner = run_child) -> tuple[ContainerEngine, ...]:
    """Return the engines that are installed where `run` runs commands; an unusable one has a `problem`."""
    asked = ("/bin/sh", "-c", _LIST_INSTALLED_SCRIPT, "sh", *ENGINE_NAMES, *_NVIDIA_HOOK_PROGRAMS)
    installed = run(asked, _ENGINE_DEADLINE_SECONDS).stdout.decode("utf-8", "replace").split()
    readers = {"docker": _read_docker_engine, "podman": _read_podman_engine, _APPTAINER_ENGINE: _read_apptainer_engine}
    with ThreadPoolExecutor(len(ENGINE_NAMES)) as pool:
        return tuple(pool.map(lambda name: readers[name](installed, run), (n for n in ENGINE_NAMES if n in installed)))


def choose_engine(image_name: str, engines: Sequence[ContainerEngine]) -> str:
    """Return the engine for an image: apptainer for a .sif file, else one that has it, else one that works."""
    if image_name.endswith(".sif"):
        return "apptainer"
    working = [engine for engine in engines if not engine.problem and engine.name != "apptainer"]
    if not working:
        reasons = "; ".join(f"{engine.name}: {engine.problem}" for engine in engines if engine.problem)
        raise Unavailable(
            f"no container engine works here ({reasons or 'none is installed'})", "Install docker or podman."
        )
    with_image = [engine for engine in working if image_name in engine.images]
    return (with_image or working)[0].name


def probe_image(engine: str, image_name: str, run: CommandRunner = run_child, deadline: float = 60.0) -> ContainerImage:
    """Return what the Python in an image has, from the cache or by running it without network.

    `run` runs the engine's commands where the image is.
    """
    unread = ContainerImage(engine=engine, name=image_name)
    if not image_name or image_name.startswith("-"):
        return msgspec.structs.replace(unread, problem="the image cannot be read: it has no valid name")
    unread = inspect_image(engine, image_name, run)
    if unread.missing or unread.problem:
        return unread
    program = probe_program_text()
    file = answer_file(image_facts_folder(), f"{unread.id}{program}".encode())
    with suppress(Unparsable):
        cached_image = parse_json_as(load_cached_answer(file) or b"", ContainerImage)
        return msgspec.structs.replace(unread, toolchain=cached_image.toolchain)
    answer = run_in_image(engine, image_name, ("python", "-B", "-c", RUN_PROGRAM_TEXT_CODE, program), deadline, run=run)
    if probe := answer.last_answer(ProbeAnswer):
        toolchain = msgspec.structs.replace(probe.toolchain, label=image_name)
        probed = msgspec.structs.replace(unread, toolchain=toolchain)
        store_answer(file, msgspec.json.encode(probed))
        return probed
    problem = "no `python` on its PATH" if answer.exit_code == _PROGRAM_NOT_FOUND_CODE else answer.why_unusable()
    problem = oci_runtime_problem(answer.stderr) or problem
    return msgspec.structs.replace(unread, problem=problem)


def run_in_image(  # noqa: PLR0913 - two have a default
    engine: str,
    image_name: str,
    command: Sequence[str],
    deadline: float,
    gpu_options: Sequence[str] = (),
    *,
    run: CommandRunner = run_child,
) -> ChildResult:
    """Run a command in a container of an image without a network, with the engine's `gpu_options`."""
    if engine == _APPTAINER_ENGINE:
        return run([engine, "exec", *gpu_options, "--cleanenv", "--no-home", image_name, *command], deadline)
    container_name = f"tui-train-look-{secrets.token_hex(6)}"
    options = (
        "--rm",
        "--init",
        f"--name={container_name}",
        "--pull=never",
        "--network=none",
        "--security-opt=label=disable",
    )
    answer = run([engine, "run", *options, *gpu_options, image_name, *command], deadline)
    if answer.failure:
        # Only the client has ended, not its container.
        run([engine, "rm", "-f", container_name], 20)
    return answer


def inspect_image(engine: str, image_name: str, run: CommandRunner = run_child) -> ContainerImage:
    """Return an image with its identity, architecture and size; `missing` or a `problem` if it cannot be run."""
    unread = ContainerImage(engine=engine, name=image_name)
    if unread.engine == _APPTAINER_ENGINE:
        answer = run(["stat", "-L", "-c", "%s %Y %Z %i", unread.name], _ENGINE_DEADLINE_SECONDS)
        state = answer.stdout.decode("utf-8", "replace").strip()
        if answer.exit_code != 0:
            return msgspec.structs.replace(unread, missing=True)
        size = state.partition(" ")[0]
        return msgspec.structs.replace(unread, id=f"{unread.name} {state}", size=int(size) if size.isdigit() else None)
    answer = run([unread.engine, "image", "inspect", "--format", _INSPECT_FORMAT, unread.name], 20)
    error = answer.stderr.lower()
    if answer.exit_code and (b"no such" in error or b"not known" in error or b"not found" in error):
        return msgspec.structs.replace(unread, missing=True)
    if answer.exit_code != 0:
        return msgspec.structs.replace(unread, problem=answer.why_unusable())
    identity, architecture, size, *_ = [*answer.stdout.decode("utf-8", "replace").split(), "", "", ""]
    return msgspec.structs.replace(
        unread,
        id=identity.removeprefix("sha256:"),
        architecture=architecture,
        size=int(size) if size.isdigit() else None,
    )


def oci_runtime_problem(error_output: bytes) -> str:
    """Return the problem of an engine's OCI runtime, empty if its output shows none."""
    lines = error_output.decode("utf-8", "replace").splitlines()
    message = next((line for line in lines if _RUNTIME_ERROR_PATTERN.search(line)), "")
    if not message or _PYTHON_NOT_IN_IMAGE_PATTERN.search(message):
        return ""
    return f"the OCI runtime, which starts containers (runc or crun), does not work: {message.strip()[:200]}"


def _read_docker_engine(installed: Sequence[str], run: CommandRunner) -> ContainerEngine:
    answer = run(["docker", "info", "--format", "{{json .}}"], _ENGINE_DEADLINE_SECONDS)
    info = _parse_json(answer.stdout)
    if "host" in info and "ServerVersion" not in info:
        return ContainerEngine(name="docker", problem="docker is podman here: choose podman")
    if answer.exit_code != 0 or not info.get("ServerVersion"):
        errors = info.get("ServerErrors") or [answer.why_unusable()]
        other = ", or use podman" if "podman" in installed else ""
        return ContainerEngine(name="docker", problem=_docker_problem(str(errors[0]), other))
    runtimes = info.get("Runtimes") or {}
    return ContainerEngine(
        name="docker",
        version=str(info["ServerVersion"]),
        gpus="nvidia" in runtimes or not {*_NVIDIA_HOOK_PROGRAMS, _NVIDIA_CDI_MARK}.isdisjoint(installed),
        images=_list_local_images("docker", run),
    )


def _docker_problem(error_output: str, alternative: str) -> str:
    if "permission denied" in error_output.lower():
        return f"permission denied: join the group docker (`sudo usermod -aG docker $USER`, log in again){alternative}"
    if "cannot connect" in error_output.lower():
        return f"its daemon does not run: `sudo systemctl start docker`{alternative}"
    return error_output[:300]


def _read_podman_engine(installed: Sequence[str], run: CommandRunner) -> ContainerEngine:
    answer = run(["podman", "info", "--format", "json"], _ENGINE_DEADLINE_SECONDS)
    info = _parse_json(answer.stdout)
    if answer.exit_code != 0 or "host" not in info:
        return ContainerEngine(name="podman", problem=answer.why_unusable()[:300])
    return ContainerEngine(
        name="podman",
        version=str((info.get("version") or {}).get("Version", "")),
        gpus=_NVIDIA_CDI_MARK in installed,
        images=_list_local_images("podman", run),
    )


def _read_apptainer_engine(_installed: Sequence[str], run: CommandRunner) -> ContainerEngine:
    answer = run(["apptainer", "--version"], _ENGINE_DEADLINE_SECONDS)
    if answer.exit_code != 0:
        return ContainerEngine(name="apptainer", problem=answer.why_unusable()[:300])
    version = answer.stdout.decode("utf-8", "replace").strip().rpartition(" ")[2]
    return ContainerEngine(name="apptainer", version=version, gpus=True)


def _list_local_images(engine: str, run: CommandRunner) -> tuple[str, ...]:
    answer = run([engine, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"], _ENGINE_DEADLINE_SECONDS)
    lines = answer.stdout.decode("utf-8", "replace").split() if answer.exit_code == 0 else []
    return tuple(dict.fromkeys(line for line in lines if "<none>" not in line))


def _parse_json(text: bytes) -> dict[str, Any]:
    try:
        return parse_json_object(text)
    except Unparsable:
        return {}
