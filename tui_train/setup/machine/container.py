"""The container around a training: the words of docker, podman and apptainer; pure.

Every path is the same inside as on the machine, so that no argument has to be translated.
"""

import re
from collections.abc import Iterable, Sequence

from tui_train.base.command import (
    GPUS_VARIABLE,
    Command,
    CommandPart,
    CommandWord,
    ContainerWrapper,
    EnvSetting,
    RuntimeVariable,
    argv,
    expand_word,
    join_pieces,
    word_in_run_dir,
)
from tui_train.profile.mounts import Mount, parse_mount
from tui_train.profile.types import Container, Profile
from tui_train.runner.containers.container import ENGINES_STOPPED_BY_NAME, mount_option
from tui_train.trainers import hub_model_id, trainer_has_own_field, trainer_of

SHARED_MEMORY_OF_HOST = "host"
# Their containers have cards, limits and CPUs of their own; apptainer's have those of the process that starts them.
ISOLATING_ENGINES = frozenset({"docker", "podman"})
CONTAINER_CACHE_FOLDER = "/cache"
_MEMORY_SIZE_PATTERN = re.compile(r"([1-9]\d{0,9})(?:b|([kmg])(?:i?b)?)?", re.IGNORECASE | re.ASCII)
_STACK_LIMIT_BYTES = 64 * 2**20
# A variable that is passed would hide the image's own, which some need to find their libraries.
_PREPEND_SHIM_TO_PYTHON_PATH_SCRIPT = 'export PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}"; exec "$@"'
# One stream: where its client is lost, the end of the log shows which of its output is still missing.
_MERGE_STREAMS_SUFFIX = " 2>&1"


def container_wrapper(
    profile: Profile, gpu_uuids: tuple[str, ...], outputs: tuple[CommandWord, ...]
) -> ContainerWrapper | None:
    """Return the container that a profile asks for, None for none; `outputs` are the output folders."""
    chosen = profile.container
    if chosen.engine == "none":
        return None
    inner = (
        *_card_parts(chosen.engine, gpu_uuids, on_several_machines=profile.nodes.machine_count > 1),
        *_mount_parts(profile, outputs),
    )
    if chosen.engine == "apptainer":
        parts = (*_apptainer_parts(), *inner)
    else:
        parts = (*_docker_or_podman_parts(profile), *inner, *_secret_and_run_id_parts(profile))
    plain = tuple(folder for folder in dict.fromkeys(outputs) if isinstance(folder, str))
    inner_words = (
        "sh",
        "-c",
        _PREPEND_SHIM_TO_PYTHON_PATH_SCRIPT
        + (_MERGE_STREAMS_SUFFIX if chosen.engine in ENGINES_STOPPED_BY_NAME else ""),
        word_in_run_dir("shim"),
    )
    return ContainerWrapper(engine=chosen.engine, image=chosen.image, parts=parts, folders=plain, before=inner_words)


def container_variables(container: Container) -> tuple[EnvSetting, ...]:
    """Return the variables that every container gets: whoever it runs as must have a home and a name there."""
    if container.engine == "none":
        return ()
    why_kept = "kept on the machine from one container to the next"
    rows = (
        ("HOME", "", "a home that may be written, whoever the image thinks you are"),
        ("HF_HOME", "/huggingface", "your own models and data sets of Hugging Face"),
        ("TORCH_HOME", "/torch", why_kept),
        ("TORCHINDUCTOR_CACHE_DIR", "/inductor", why_kept),
        ("TRITON_CACHE_DIR", "/triton", why_kept),
    )
    home, *caches = (EnvSetting(name, CONTAINER_CACHE_FOLDER + below, why, "container") for name, below, why in rows)
    why_named = "libraries ask for a name, and the image knows none for your number"
    # apptainer refuses HOME and sets it by an option of its own.
    homes = () if container.engine == "apptainer" else (home,)
    return (*homes, EnvSetting("USER", "trainer", why_named, "container"), *caches)


def container_command(
    wrapper: ContainerWrapper, command: Command, values: dict[str, str], uneven_processes: Sequence[int] = ()
) -> list[str]:
    """Return the exact words that an attempt is started with; `values` are by runtime variable, CHECKPOINT too."""
    folder = expand_word(command.cwd, values)
    checkpoint, address = values.get("CHECKPOINT", ""), values.get("ADDRESS", "")
    inner = [
        *(expand_word(word, values) for word in wrapper.before),
        *argv(command, values["RUN_DIR"], checkpoint, address=address, uneven_processes=uneven_processes),
    ]
    outer = [expand_word(word, values) for part in wrapper.parts for word in part.words]
    if wrapper.engine == "apptainer":
        return [*outer, f"--pwd={folder}", wrapper.image, *inner]
    passed = [f"--env={setting.name}={expand_word(setting.value, values)}" for setting in command.env]
    return [*outer, *passed, f"--workdir={folder}", wrapper.image, *inner]


def shared_memory_bytes(chosen: Container) -> int | None:
    """Return the size of a container's own shared memory, None for the machine's, or for what engines do not read."""
    size = _MEMORY_SIZE_PATTERN.fullmatch(chosen.shared_memory)
    if not size:
        return None
    number, unit = size.groups(" ")
    return int(number) << 10 * " kmg".index(unit.lower())


def card_options(engine: str, gpu_uuids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that show a container these cards and no others (apptainer shows all)."""
    if not gpu_uuids:
        return ()
    if engine == "podman":
        return tuple(f"--device=nvidia.com/gpu={uuid}" for uuid in gpu_uuids)
    # docker reads the value as CSV: without the quotes inside the second card would be a field of its own.
    return ("--nv",) if engine == "apptainer" else ("--gpus", f'"device={",".join(gpu_uuids)}"')


def container_mounts(profile: Profile, outputs: Iterable[CommandWord] = ()) -> tuple[Mount, ...]:
    """Return what is mounted besides the run folder and the caches, each path once; writing wins over reading."""
    trainer = profile.trainer
    by_path: dict[str, Mount] = {}
    config = trainer.config.rpartition("/")[0] if trainer_has_own_field(profile, "trainer.config") else ""
    scripts = (script_mount_path(profile), config, trainer.working_directory)
    writable = (*scripts, *(folder for folder in outputs if isinstance(folder, str)))
    for path in filter(None, writable):
        by_path[path] = Mount(path, path)
    folders = tuple(f"{folder}/" for folder in (trainer.model, *trainer.data) if folder)
    own_outside = (path for path in trainer_of(profile).own_paths() if not path.startswith(folders))
    model = "" if hub_model_id(profile) else _folder_to_mount_for_model(trainer.model)
    readable = (model, *trainer.data, *trainer.validation_data, *trainer.test_data, *own_outside)
    for path in filter(None, readable):
        by_path.setdefault(path, Mount(path, path, read_only=True))
    for mount in filter(None, map(parse_mount, profile.container.mounts)):
        by_path[mount.inside] = mount
    return tuple(by_path.values())


def script_mount_path(profile: Profile) -> str:
    """Return what is mounted for a script: its folder, from which it imports; the file alone where that is `/`."""
    script = profile.trainer.script
    if not trainer_has_own_field(profile, "trainer.script") or not script:
        return ""
    return script.rpartition("/")[0] or script


def _folder_to_mount_for_model(path: str) -> str:
    """Return the folder that holds a model: the files of a Hugging Face snapshot are links to others beside it."""
    before, separator, _ = path.partition("/snapshots/")
    return before if separator and before.rpartition("/")[2].startswith("models--") else path


def _docker_or_podman_parts(profile: Profile) -> tuple[CommandPart, ...]:
    chosen = profile.container
    shared_memory = (
        ("--ipc=host", "shares the machine's /dev/shm: the engine's own is 64 MB, too small for workers and NCCL")
        if chosen.shared_memory == SHARED_MEMORY_OF_HOST
        else (f"--shm-size={chosen.shared_memory}", "its own /dev/shm, for workers that load data and for NCCL")
    )
    options: list[tuple[CommandWord, str]] = [
        ("--rm", "leaves nothing behind"),
        ("--init", "passes signals on to the training, and collects its dead"),
        (
            join_pieces(("--name=", RuntimeVariable("CONTAINER"))),
            "by which it is stopped, even when its client is gone",
        ),
        ("--pull=never", "nothing is fetched unasked"),
        (join_pieces((RuntimeVariable("USER"),)), "what it writes is yours"),
        shared_memory,
        (
            join_pieces(("--ulimit=memlock=", RuntimeVariable("MEMLOCK"))),
            "memory that network cards reach must be locked",
        ),
        (f"--ulimit=stack={_STACK_LIMIT_BYTES}", "as NVIDIA's images ask for"),
        ("--security-opt=label=disable", "SELinux would deny what is mounted; relabelling would change your files"),
    ]
    if profile.nodes.machine_count > 1:
        options.append(("--network=host", "the other machines must reach it"))
    return (CommandPart((chosen.engine, "run")), *(CommandPart((word,), why) for word, why in options))


def _apptainer_parts() -> tuple[CommandPart, ...]:
    return (
        CommandPart(("apptainer", "exec")),
        CommandPart(("--cleanenv",), "the machine's variables are not the image's"),
        CommandPart(("--no-eval",), "values are no shell code"),
    )


def _card_parts(engine: str, gpu_uuids: tuple[str, ...], *, on_several_machines: bool) -> tuple[CommandPart, ...]:
    if not gpu_uuids:
        return ()
    why = "the chosen GPUs; the others are not even seen"
    shown = (
        card_options_of_running_machine(engine)
        if on_several_machines and engine in ENGINES_STOPPED_BY_NAME
        else card_options(engine, gpu_uuids)
    )
    return (CommandPart(shown, "the driver's libraries" if engine == "apptainer" else why),)


def card_options_of_running_machine(engine: str) -> tuple[CommandWord, ...]:
    """Return `card_options` of several machines, each of which has cards of its own."""
    if engine == "podman":
        return (join_pieces((RuntimeVariable("CARD_DEVICES"),)),)
    return ("--gpus", join_pieces(('"device=', GPUS_VARIABLE, '"')))


def _mount_parts(profile: Profile, outputs: tuple[CommandWord, ...]) -> tuple[CommandPart, ...]:
    script = script_mount_path(profile)
    parts = [
        CommandPart((join_pieces((RuntimeVariable("RUN_MOUNT"),)),), "the run folder, at its own path like all others"),
        CommandPart((join_pieces((RuntimeVariable("CACHE_MOUNT"),)),), "home and caches"),
        CommandPart(
            (join_pieces((RuntimeVariable("HUGGING_FACE_MOUNT"),)),),
            "models and data sets that are on this machine already",
        ),
    ]
    for mount in container_mounts(profile, outputs):
        word = _engine_mount_option(profile, mount)
        why = "the script's folder: it may write beside itself" if mount.host == script else ""
        parts += [CommandPart((word,), why)] if word else []
    return tuple(parts)


def _secret_and_run_id_parts(profile: Profile) -> tuple[CommandPart, ...]:
    names = tuple(f"--env={name}" for name in profile.trainer.secrets)
    run_id = CommandPart(("--env=TUI_TRAIN_RUN_ID",), "by it the run's processes are found")
    return (run_id, *((CommandPart(names, "by name: their values are written nowhere"),) if names else ()))


def _engine_mount_option(profile: Profile, mount: Mount) -> str | None:
    return mount_option(profile.container.engine, mount.host, mount.inside, read_only=mount.read_only)


def unmountable_paths(profile: Profile) -> tuple[str, ...]:
    """Return the paths that the chosen engine cannot mount."""
    trainer = profile.trainer
    outputs: tuple[CommandWord, ...] = (trainer.output,) if trainer.output else ()
    all_mounts = container_mounts(profile, outputs)
    return tuple(mount.host for mount in all_mounts if _engine_mount_option(profile, mount) is None)
