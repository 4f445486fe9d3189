"""Reads which container engines work here, and what the Python in an image has; nothing is pulled."""

import re
import secrets
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tui_train.base.app_paths import image_facts_folder
from tui_train.base.errors import Unavailable
from tui_train.base.parse import Unparsable, parse_json_as, parse_json_object
from tui_train.facts.answer_cache import answer_file, load_cached_answer, store_answer
from tui_train.facts.machine.child_process import RUN_PROGRAM_TEXT_CODE, ChildResult, run_child
from tui_train.facts.machine.probe import ProbeAnswer, probe_program_text
from tui_train.facts.types import ContainerEngine, ContainerImage
from tui_train.runner.system import safe_open

ENGINE_NAMES = ("docker", "podman", "apptainer")
_ENGINE_DEADLINE_SECONDS = 8.0
_MAX_FILE_BYTES = 1 << 20
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
_NVIDIA_HOOK_PROGRAMS = ("nvidia-container-runtime-hook", "nvidia-container-runtime")
_PROGRAM_NOT_FOUND_CODE = 127
_RUNTIME_ERROR_PATTERN = re.compile(
    r"OCI runtime|failed to (start|create) shim|\b(runc|crun)\b.{0,80}(not found|no such file|error)"
)
# The runtime works then, but the image lacks something.
_PYTHON_NOT_IN_IMAGE_PATTERN = re.compile(r"executable file [`'\"]?python|exec: \"python\"|[Pp]ython[`'\"]? not found")


def read_engines() -> tuple[ContainerEngine, ...]:
    """Return the installed engines; an unusable one has a `problem`."""
    readers = {"docker": _read_docker_engine, "podman": _read_podman_engine, "apptainer": _read_apptainer_engine}
    installed = [name for name in ENGINE_NAMES if shutil.which(name)]
    with ThreadPoolExecutor(len(ENGINE_NAMES)) as pool:
        return tuple(pool.map(lambda name: readers[name](), installed))


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


def read_image(engine: str, image_name: str, deadline: float = 60.0) -> ContainerImage:
    """Return what the Python in an image has, from the cache or by running it without network."""
    unread = ContainerImage(engine=engine, name=image_name)
    if shutil.which(engine) is None or not image_name or image_name.startswith("-"):
        return msgspec.structs.replace(unread, problem="the image cannot be read: no such engine or name")
    identity = _image_identity_or_problem(unread)
    if isinstance(identity, ContainerImage):
        return identity
    program = probe_program_text()
    file = answer_file(image_facts_folder(), f"{identity}{program}".encode())
    with suppress(Unparsable):
        cached_image = parse_json_as(load_cached_answer(file) or b"", ContainerImage)
        return msgspec.structs.replace(cached_image, engine=engine, name=image_name)
    answer = run_in_image(engine, image_name, ("python", "-B", "-c", RUN_PROGRAM_TEXT_CODE, program), deadline)
    if probe := answer.last_answer(ProbeAnswer):
        toolchain = msgspec.structs.replace(probe.toolchain, label=image_name)
        probed = msgspec.structs.replace(unread, id=identity, toolchain=toolchain)
        store_answer(file, msgspec.json.encode(probed))
        return probed
    problem = "no `python` on its PATH" if answer.exit_code == _PROGRAM_NOT_FOUND_CODE else answer.why_unusable()
    problem = oci_runtime_problem(answer.stderr) or problem
    return msgspec.structs.replace(unread, id=identity, problem=problem)


def run_in_image(
    engine: str, image_name: str, command: Sequence[str], deadline: float, gpu_options: Sequence[str] = ()
) -> ChildResult:
    """Run a command in a container of an image without a network, with the engine's `gpu_options`."""
    if engine == "apptainer":
        return run_child([engine, "exec", *gpu_options, "--cleanenv", "--no-home", image_name, *command], deadline)
    container_name = f"tui-train-look-{secrets.token_hex(6)}"
    options = (
        "--rm",
        "--init",
        f"--name={container_name}",
        "--pull=never",
        "--network=none",
        "--security-opt=label=disable",
    )
    answer = run_child([engine, "run", *options, *gpu_options, image_name, *command], deadline)
    if answer.failure:
        # Only the client has ended, not its container.
        run_child([engine, "rm", "-f", container_name], 20)
    return answer


def _image_identity_or_problem(unread: ContainerImage) -> str | ContainerImage:
    """Return the identity of an image version, or the answer if it cannot be run."""
    if unread.engine == "apptainer":
        try:
            state = Path(unread.name).stat()
        except OSError:
            return msgspec.structs.replace(unread, missing=True)
        return f"{Path(unread.name).absolute()} {state.st_size} {state.st_mtime_ns} {state.st_ino}"
    answer = run_child([unread.engine, "image", "inspect", "--format", "{{.Id}}", unread.name], 20)
    error = answer.stderr.lower()
    if answer.exit_code and (b"no such" in error or b"not known" in error or b"not found" in error):
        return msgspec.structs.replace(unread, missing=True)
    if answer.exit_code != 0:
        return msgspec.structs.replace(unread, problem=answer.why_unusable())
    return answer.stdout.decode("utf-8", "replace").strip().removeprefix("sha256:")


def oci_runtime_problem(error_output: bytes) -> str:
    """Return the problem of an engine's OCI runtime, empty if its output shows none."""
    lines = error_output.decode("utf-8", "replace").splitlines()
    message = next((line for line in lines if _RUNTIME_ERROR_PATTERN.search(line)), "")
    if not message or _PYTHON_NOT_IN_IMAGE_PATTERN.search(message):
        return ""
    return f"the OCI runtime, which starts containers (runc or crun), does not work: {message.strip()[:200]}"


def _read_docker_engine() -> ContainerEngine:
    answer = run_child(["docker", "info", "--format", "{{json .}}"], _ENGINE_DEADLINE_SECONDS)
    info = _parse_json(answer.stdout)
    if "host" in info and "ServerVersion" not in info:
        return ContainerEngine(name="docker", problem="docker is podman here: choose podman")
    if answer.exit_code != 0 or not info.get("ServerVersion"):
        errors = info.get("ServerErrors") or [answer.why_unusable()]
        return ContainerEngine(name="docker", problem=_docker_problem(str(errors[0])))
    runtimes = info.get("Runtimes") or {}
    return ContainerEngine(
        name="docker",
        version=str(info["ServerVersion"]),
        gpus="nvidia" in runtimes or any(map(shutil.which, _NVIDIA_HOOK_PROGRAMS)) or _has_nvidia_cdi(),
        images=_list_local_images("docker"),
    )


def _docker_problem(error_output: str) -> str:
    if "permission denied" in error_output.lower():
        return "permission denied: join the group docker (`sudo usermod -aG docker $USER`, log in again), or use podman"
    if "cannot connect" in error_output.lower():
        return "its daemon does not run: `sudo systemctl start docker`, or use podman"
    return error_output[:300]


def _read_podman_engine() -> ContainerEngine:
    answer = run_child(["podman", "info", "--format", "json"], _ENGINE_DEADLINE_SECONDS)
    info = _parse_json(answer.stdout)
    if answer.exit_code != 0 or "host" not in info:
        return ContainerEngine(name="podman", problem=answer.why_unusable()[:300])
    return ContainerEngine(
        name="podman",
        version=str((info.get("version") or {}).get("Version", "")),
        gpus=_has_nvidia_cdi(),
        images=_list_local_images("podman"),
    )


def _read_apptainer_engine() -> ContainerEngine:
    answer = run_child(["apptainer", "--version"], _ENGINE_DEADLINE_SECONDS)
    if answer.exit_code != 0:
        return ContainerEngine(name="apptainer", problem=answer.why_unusable()[:300])
    version = answer.stdout.decode("utf-8", "replace").strip().rpartition(" ")[2]
    return ContainerEngine(name="apptainer", version=version, gpus=True)


def _list_local_images(engine: str) -> tuple[str, ...]:
    answer = run_child([engine, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"], _ENGINE_DEADLINE_SECONDS)
    lines = answer.stdout.decode("utf-8", "replace").split() if answer.exit_code == 0 else []
    return tuple(dict.fromkeys(line for line in lines if "<none>" not in line))


def _has_nvidia_cdi() -> bool:
    for folder in _CDI_FOLDERS:
        with suppress(OSError):
            specifications = (path for path in Path(folder).iterdir() if path.suffix in {".json", ".yaml", ".yml"})
            if any(b"nvidia.com/gpu" in safe_open.read_bounded(path, _MAX_FILE_BYTES) for path in specifications):
                return True
    return False


def _parse_json(text: bytes) -> dict[str, Any]:
    try:
        return parse_json_object(text)
    except Unparsable:
        return {}
