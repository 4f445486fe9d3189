"""Containers: what only this machine knows of them, and how one is found, ended and removed by its name."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from typing import Callable, Mapping

from ..run_folder.supervisor_plan import SupervisorPlan
from ..system import other_programs
from ..system.processes import NO_PROCESS, Process, process_with_pid, send_signal
from ..system.refused import CANNOT_WRITE_EXIT_CODE, UNAVAILABLE_EXIT_CODE, Refused
from ..system.safe_text import visible
from ..system.signals import reset_signals

# Engines whose containers live beside whoever started them, and are stopped by name.
ENGINES_STOPPED_BY_NAME = frozenset({"docker", "podman"})
# events.jsonl is a file that others may have written.
_CONTAINER_NAME_PATTERN = re.compile(r"tui-train-[\w.-]+", re.ASCII)
# The name that launch.sh gives a container.
CONTAINER_NAME_VARIABLE = "TUI_TRAIN_CONTAINER_NAME"
# Seconds for an engine to answer.
_ENGINE_ANSWER_SECONDS = 60.0
# And for it to have removed a container, however it hangs.
_REMOVE_TIMEOUT_SECONDS = 90.0
_CSV_SPECIAL_PATTERN = re.compile('[,"\n\r]')


def prepare_container_variables(planned: SupervisorPlan, run_dir: str) -> Mapping[str, str]:
    """Return the variables by which launch.sh is told of this machine: who you are to the engine, where caches lie.

    The folders that are mounted are made. Raises Refused (69) where the engine or its image is not there, for nothing
    is fetched unasked, or where it has no way to mount a folder; (73) where a folder cannot be made.
    """
    engine = planned.engine
    image_identity(engine, planned.image)
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cache = os.path.join(caches, "tui-train/container")
    hugging_face = os.environ.get("HF_HOME") or os.path.join(caches, "huggingface")
    values = {
        "TUI_TRAIN_RUN_MOUNT": _require_mount_option(engine, run_dir, run_dir),
        "TUI_TRAIN_HUGGING_FACE_MOUNT": _require_mount_option(engine, hugging_face, "/cache/huggingface"),
        "TUI_TRAIN_CACHE_MOUNT": _apptainer_home_option(cache)
        if engine == "apptainer"
        else _require_mount_option(engine, cache, "/cache"),
    }
    if engine in ENGINES_STOPPED_BY_NAME:
        rootless = _is_rootless_engine(engine)
        values["TUI_TRAIN_CONTAINER_USER"] = _user_option(engine, rootless)
        values["TUI_TRAIN_MEMLOCK"] = str(_locked_memory_limit(rootless))
        # What it said last must still be there where its client is gone.
        values["TUI_TRAIN_REMOVE"] = "--rm=false"
    for folder in (os.path.join(cache, "huggingface"), hugging_face, *planned.folders):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise Refused(
                CANNOT_WRITE_EXIT_CODE, f"cannot make the folder {visible(folder)}: {error.strerror}"
            ) from None
    return values


def image_identity(engine: str, image: str) -> str:
    """Return what tells an image from another of its name, of a file its size; Refused (69) without engine or image."""
    if not shutil.which(engine):
        raise Refused(UNAVAILABLE_EXIT_CODE, f"there is no {visible(engine)} on this machine: install it")
    if engine == "apptainer":
        try:
            return str(os.stat(image).st_size)
        except OSError:
            raise Refused(UNAVAILABLE_EXIT_CODE, f"there is no {visible(image)}: build or copy it first") from None
    answer = other_programs.run_program((engine, "ps", "-q"), _ENGINE_ANSWER_SECONDS)
    if answer.code != 0:
        answered = visible((answer.err.strip() or f"no word in {_ENGINE_ANSWER_SECONDS:.0f} s").splitlines()[-1])
        raise Refused(UNAVAILABLE_EXIT_CODE, f"{engine} does not answer: {answered}")
    asked = (engine, "image", "inspect", "--format", "{{.Id}}", image)
    answer = other_programs.run_program(asked, _ENGINE_ANSWER_SECONDS)
    if answer.code != 0:
        where = f"the image {visible(image)} is not on this machine"
        raise Refused(UNAVAILABLE_EXIT_CODE, f"{where}: {engine} pull {visible(image)}")
    return answer.out.strip()


def _is_rootless_engine(engine: str) -> bool:
    if engine == "podman":
        return os.geteuid() != 0
    return (
        "name=rootless" in other_programs.run_program(("docker", "info", "--format", "{{.SecurityOptions}}"), 20.0).out
    )


def _user_option(engine: str, rootless: bool) -> str:
    """Return who the container runs as, so that what it writes is yours.

    To an engine without root's rights its user is root inside, or, where it can keep the number, the same.
    """
    if rootless:
        return "--user=0:0" if engine == "docker" else "--userns=keep-id"
    return f"--user={os.geteuid()}:{os.getegid()}"


def _locked_memory_limit(rootless: bool) -> int:
    """Return how many bytes it may lock, -1 for any: without root's rights no more than you may yourself."""
    if not rootless:
        return -1
    import resource

    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]


def _apptainer_home_option(cache_folder: str) -> str:
    if re.search("[:,]", cache_folder):
        why = f"apptainer has no way to mount {visible(cache_folder)}"
        raise Refused(UNAVAILABLE_EXIT_CODE, f"{why}: set XDG_CACHE_HOME to a folder without : and ,")
    return f"--home={cache_folder}:/cache"


def mount_option(engine: str, host_path: str, inside_path: str, *, read_only: bool = False) -> str | None:
    """Return the engine's word that mounts a path, None where it has no way to say it."""
    if engine == "podman":
        # Its `--mount` knows no quotes before version 5, its `--volume` no colons.
        if ":" not in host_path + inside_path and not host_path.endswith("\\"):
            return f"--volume={host_path}:{inside_path}{':ro' if read_only else ''}"
        if _CSV_SPECIAL_PATTERN.search(host_path + inside_path):
            return None
        return f"--mount=type=bind,src={host_path},dst={inside_path}{',ro=true' if read_only else ''}"
    if "\r\n" in host_path + inside_path:
        return None
    mode = (",ro" if engine == "apptainer" else ",readonly") if read_only else ""
    return f"--mount=type=bind,{_quoted_csv_field('src=' + host_path)},{_quoted_csv_field('dst=' + inside_path)}{mode}"


def _require_mount_option(engine: str, host_path: str, inside_path: str) -> str:
    word = mount_option(engine, host_path, inside_path)
    if word is None:
        separators = "line breaks" if engine != "podman" else "colons, commas and quotes"
        raise Refused(
            UNAVAILABLE_EXIT_CODE,
            f"{engine} has no way to mount {visible(host_path)}: choose a folder without {separators}",
        )
    return word


def _quoted_csv_field(field: str) -> str:
    quoted = field.replace('"', '""')
    return f'"{quoted}"' if _CSV_SPECIAL_PATTERN.search(field) else field


def container_name(engine: str, run_mark: str, attempt_number: int) -> str:
    """Return the name of the container of a start's attempt; empty where the engine names none."""
    return f"tui-train-{run_mark}-{attempt_number}" if engine in ENGINES_STOPPED_BY_NAME else ""


def is_run_container_name(engine: str, container: str) -> bool:
    """Tell whether a container is called as ours are, and its engine is one that knows it by name."""
    return engine in ENGINES_STOPPED_BY_NAME and bool(_CONTAINER_NAME_PATTERN.fullmatch(container))


def _inspect_state_command(engine: str, container: str) -> tuple[str, ...]:
    return (engine, "container", "inspect", "--format", "{{.State.Running}} {{.State.ExitCode}}", container)


def container_exit_code(engine: str, container: str) -> int | None:
    """Return the exit code of a container that has ended; None where it runs, or is not there."""
    asked = _inspect_state_command(engine, container)
    answer = other_programs.run_program(asked, _ENGINE_ANSWER_SECONDS, interruptible=False)
    running, _, code = answer.out.strip().partition(" ")
    return int(code) if answer.code == 0 and running == "false" and code.lstrip("-").isdigit() else None


def must_rejoin_container(engine: str, container: str, code: int, any_process_alive: Callable[[], bool]) -> bool:
    """Tell whether a container must be rejoined after its client ended with this code, as a shell counts it.

    So it is where it trains on, and where it has ended otherwise than its client says: then its last lines may be
    missing from the log. An engine that restarts is waited for as long as processes of the run live
    (`any_process_alive`); a start that is asked to stop does not wait.
    """
    while True:
        answer = other_programs.run_program(_inspect_state_command(engine, container), _ENGINE_ANSWER_SECONDS)
        if answer.code == 0:
            return answer.out.split() != ["false", str(code)]
        if other_programs.is_interrupted():
            return any_process_alive()
        if (
            other_programs.run_program((engine, "ps", "-q"), _ENGINE_ANSWER_SECONDS).code == 0
            or not any_process_alive()
        ):
            return False
        time.sleep(1.0)


def stop_container(
    engine: str, container: str, grace: int, is_client_alive: Callable[[], bool] = lambda: False
) -> None:
    """Ask a container to save and end within so many seconds, after which its engine kills it.

    It is asked again as long as its client lives, for the container may only be about to begin.
    """
    asked = (engine, "stop", "-t", str(grace), container)
    seconds = grace + _ENGINE_ANSWER_SECONDS
    while other_programs.run_program(asked, seconds, interruptible=False).code != 0 and is_client_alive():
        time.sleep(0.5)


def request_stop(engine: str, container: str, grace: int, leader: Process) -> Process:
    """Ask a training to end: its container, where it has a name, by a child that is returned, else its leader."""
    if not container:
        send_signal(leader, signal.SIGTERM)
        return NO_PROCESS
    pid = os.fork()
    if pid == 0:
        try:
            reset_signals()
            stop_container(engine, container, grace, lambda: leader.is_alive)
        finally:
            os._exit(0)
    return process_with_pid(pid)


def remove_container(engine: str, container: str) -> None:
    """Kill and remove a container; looks twice, for the engine may still be making what its killed client asked for."""
    missed = 0
    deadline = time.monotonic() + _REMOVE_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        other_programs.run_program((engine, "rm", "-f", container), _ENGINE_ANSWER_SECONDS, interruptible=False)
        asked = (engine, "container", "inspect", container)
        inspected = other_programs.run_program(asked, _ENGINE_ANSWER_SECONDS, interruptible=False)
        missed = 0 if inspected.code == 0 else missed + 1
        if missed == 2:
            return
        time.sleep(0.2)


def running_containers_of_folder(engine: str, run_dir: str) -> tuple[str, ...]:
    """Return the names of the containers of runs that have a run folder mounted, whichever start of it made them."""
    if engine not in ENGINES_STOPPED_BY_NAME:
        return ()
    asked = (engine, "ps", "--filter", f"volume={run_dir}", "--format", "{{.Names}}")
    names = other_programs.run_program(asked, _ENGINE_ANSWER_SECONDS, interruptible=False).out.split()
    return tuple(name for name in names if is_run_container_name(engine, name))


def container_name_on_machine(container: str, rank: int) -> str:
    """Return the name that another machine gives its container of an attempt: hosts may share an engine."""
    return f"{container}-{rank}" if container else ""


def remove_ended_containers_and_list_running(engine: str, run_mark: str) -> tuple[str, ...]:
    """Return the names of the containers of an earlier start that still train; those that have ended are removed."""
    if engine not in ENGINES_STOPPED_BY_NAME:
        return ()
    names = _container_names_with_mark(engine, run_mark, "ps")
    for ended in set(_container_names_with_mark(engine, run_mark, "ps", "-a")) - set(names):
        if container_exit_code(engine, ended) is not None:
            other_programs.run_program((engine, "rm", ended), _ENGINE_ANSWER_SECONDS, interruptible=False)
    return names


def _container_names_with_mark(engine: str, run_mark: str, *ps_words: str) -> tuple[str, ...]:
    beginning = container_name(engine, run_mark, 0)[:-1]
    asked = (engine, *ps_words, "--filter", "name=" + beginning, "--format", "{{.Names}}")
    names = other_programs.run_program(asked, _ENGINE_ANSWER_SECONDS, interruptible=False).out.split()
    # To the engine it is an expression, which may be found anywhere in a name.
    return tuple(found for found in names if found.startswith(beginning) and _CONTAINER_NAME_PATTERN.fullmatch(found))
