"""Checks of a container that is chosen: its engine, its image, what is mounted and how much memory is shared."""

from collections.abc import Iterator

from tui_train.checks.finding import Finding, error, note, warning
from tui_train.facts.data.data_use import image_folders_of_data
from tui_train.facts.types import ContainerImage, Facts
from tui_train.profile import mounts
from tui_train.profile.changes import Change, remove_variables_change
from tui_train.profile.types import Container, Profile
from tui_train.setup.machine import container
from tui_train.setup.machine.toolchain import find_image, why_python_unusable
from tui_train.setup.recipe.hub_model import loaded_model_id
from tui_train.setup.setup import Setup

# A mount over one of these would hide what the image needs.
_PROTECTED_IMAGE_FOLDERS = frozenset({
    "/", "/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr", "/var", "/usr/bin", "/usr/lib",
    "/usr/local", "/usr/local/bin", "/usr/local/lib", container.CONTAINER_CACHE_FOLDER,
})  # fmt: skip
_HUB_CACHE_VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
_KERNEL_FILE_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
_ENGINE_ARCHITECTURE_BY_MACHINE = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}
_GPU_SETUP_REMEDY_BY_ENGINE = {
    "docker": "set it up (`sudo nvidia-ctk runtime configure --runtime=docker`, then restart docker)",
    "podman": "describe the GPUs (`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`)",
}


def unusable_engine(setup: Setup) -> Iterator[Finding]:
    """An engine that is not installed, does not answer, or cannot show the chosen cards."""
    facts = setup.facts
    name = setup.profile.container.engine
    if facts.engines is None:
        message = f"{name} can only be looked into on the machine that trains, and that is {facts.other_machine}"
        yield error("container.engine", message, "Run tui-train on that machine.")
        return
    where = facts.other_machine or "this machine"
    bare = Change(
        "no container", f"trains with a Python of {where}", (("container.engine", "none"), ("container.image", ""))
    )
    state = next((candidate for candidate in facts.engines or () if candidate.name == name), None)
    reason = state.problem if state else "it is not installed"
    if reason:
        message = f"{name} cannot be used: {reason}"
        remedy = "Fix that, or choose another engine or none (container.engine)."
        yield error("container.engine", message, remedy, change=bare, machine=True)
    elif state and setup.gpus and not state.gpus:
        message = f"{name} cannot show the GPUs of {where} to a container: NVIDIA's Container Toolkit is not set up"
        remedy = f"Install nvidia-container-toolkit and {_GPU_SETUP_REMEDY_BY_ENGINE.get(name, 'set it up')}."
        yield error("container.engine", message, remedy, machine=True)


def unusable_image(setup: Setup) -> Iterator[Finding]:
    """An image that is not on the machine that trains, is for another one, or lacks what trains."""
    profile, facts = setup.profile, setup.facts
    chosen = profile.container
    if facts.engines is None:
        return
    where = facts.other_machine or "this machine"
    chosen_image = find_image(profile, facts)
    if not chosen.image:
        message, remedy = "no image is named", "Name one (container.image), such as nvcr.io/nvidia/nemo:25.04."
        yield error("container.image", message, remedy)
    elif not _is_valid_image_name(chosen):
        message = f"{chosen.image} is not a valid image name"
        remedy = (
            "Rename the file (container.image)."
            if chosen.engine == "apptainer"
            else f"Write it as `{chosen.engine} images` prints it: NAME:TAG (container.image)."
        )
        yield error("container.image", message, remedy)
    elif chosen.engine == "apptainer" and not chosen.image.startswith("/"):
        message = f"{chosen.image} is not an absolute path"
        remedy = "Write the full path of the .sif file, from / (container.image)."
        yield error("container.image", message, remedy)
    elif any(candidate.name == chosen.engine and candidate.problem for candidate in facts.engines):
        return
    elif chosen_image and (foreign := _architecture_needed_instead(chosen_image, facts)):
        message = f"the image {chosen.image} is for {chosen_image.architecture}, and {where} is {foreign}"
        remedy = f"Fetch the one for it: `{chosen.engine} pull --platform linux/{foreign} {chosen.image}`."
        yield error("container.image", message, remedy, machine=True)
    elif chosen_image is None or chosen_image.missing:
        yield _missing_image_finding(profile, facts)
    elif reason := chosen_image.problem or (
        why_python_unusable(profile, chosen_image.toolchain) if chosen_image.toolchain else "it could not be started"
    ):
        message = f"the image {chosen.image} cannot train this: {reason}"
        remedy = "Choose an image that has it (container.image)."
        yield error("container.image", message, remedy, machine=True)


def _architecture_needed_instead(image: ContainerImage, facts: Facts) -> str:
    """Return the architecture of the machine, as engines name it, where the image is for another one; else empty."""
    here = _ENGINE_ARCHITECTURE_BY_MACHINE.get(facts.machine.architecture, "")
    return here if here and image.architecture not in {"", here} else ""


def _is_valid_image_name(container_choice: Container) -> bool:
    if container_choice.image.startswith("-") or not container_choice.image.isprintable():
        return False
    return container_choice.engine == "apptainer" or not any(letter.isspace() for letter in container_choice.image)


def _missing_image_finding(profile: Profile, facts: Facts) -> Finding:
    chosen = profile.container
    message = f"the image {chosen.image} is not on {facts.other_machine or 'this machine'}"
    if chosen.engine == "apptainer":
        remedy = "Build the image, or copy it to that path."
    else:
        local = next((candidate.images for candidate in facts.engines or () if candidate.name == chosen.engine), ())
        listing = f" Images there: {', '.join(local[:4])}." if local else ""
        remedy = f"Fetch it: `{chosen.engine} pull {chosen.image}`. Images of NVIDIA are many GB.{listing}"
    return error("container.image", message, remedy, machine=True)


def invalid_shared_memory_size(setup: Setup) -> Iterator[Finding]:
    """A size that no engine reads."""
    chosen = setup.profile.container
    if chosen.shared_memory == container.SHARED_MEMORY_OF_HOST:
        return
    host = Change("shared memory of the machine", "it is as large as it can be", (("container.shared_memory", "host"),))
    if container.shared_memory_bytes(chosen) is None:
        message = f"{chosen.shared_memory!r} is not a memory size"
        remedy = "Set container.shared_memory to host, or to a size such as 16g."
        yield error("container.shared_memory", message, remedy, change=host)
    elif chosen.engine == "apptainer":
        message = "apptainer always shares the machine's /dev/shm, so this size has no effect"
        remedy = "Set container.shared_memory to host."
        yield note("container.shared_memory", message, remedy, change=host)


def invalid_mounts(setup: Setup) -> Iterator[Finding]:
    """Mounts that do not parse, do not exist, cannot be written for the engine, or hide what the image needs."""
    profile, facts = setup.profile, setup.facts
    chosen = profile.container
    for text in chosen.mounts:
        mount_point = mounts.parse_mount(text)
        if mount_point is None:
            message = f"{text} does not say what to mount where"
            remedy = "Write PATH_HERE:PATH_IN_CONTAINER, both from /; add :ro to forbid writing."
            yield error("container.mounts", message, remedy)
        elif facts.paths.get(mount_point.host) in {"missing", "unreadable"}:
            what = {"missing": "does not exist", "unreadable": "cannot be read"}[facts.paths[mount_point.host]]
            message, remedy = f"the mount {mount_point.host} {what}", "Name a path that exists (container.mounts)."
            yield error("container.mounts", message, remedy)
    for path in container.unmountable_paths(profile):
        message = f"{chosen.engine} cannot mount {path}"
        remedy = "Move that file or folder to a path without colons, commas, quotes and line breaks."
        yield error(_profile_key_of_path(profile, path), message, remedy)
    for mount in container.container_mounts(profile, (profile.trainer.output,)):
        inside = mount.inside.rstrip("/") or "/"
        if inside in _PROTECTED_IMAGE_FOLDERS or any(
            f"{inside}/".startswith(f"{folder}/") for folder in _KERNEL_FILE_SYSTEM_FOLDERS
        ):
            message = f"{mount.host} would hide the image's own {inside}"
            remedy = "Move your files to another folder, such as one in your home."
            yield error(_profile_key_of_path(profile, mount.host), message, remedy)


def unmounted_hub_cache(setup: Setup) -> Iterator[Finding]:
    """A cache of Hugging Face that ends with the container."""
    profile = setup.profile
    own = profile.trainer.environment
    persistent = (f"{container.CONTAINER_CACHE_FOLDER}/", *_visible_folders(profile))
    lost_variables = [
        name for name in _HUB_CACHE_VARIABLES if own.get(name) and not f"{own[name]}/".startswith(persistent)
    ]
    if not lost_variables:
        return
    change = remove_variables_change(profile, lost_variables, "the machine's own cache is mounted")
    yield (error if loaded_model_id(setup) else warning)(
        "trainer.environment",
        f"{lost_variables[0]}={own[lost_variables[0]]} is not mounted into the container: "
        "what is downloaded there is lost at its end",
        "Remove it from trainer.environment, and export HF_HOME in the shell where you start the run: "
        "launch.sh mounts that folder.",
        change=change,
    )


def _visible_folders(profile: Profile) -> tuple[str, ...]:
    """Return the folders that the container sees, with a slash at the end."""
    mounts = container.container_mounts(profile, (profile.trainer.output,))
    return tuple(f"{mount.inside.rstrip('/')}/" for mount in mounts)


def unmounted_paths(setup: Setup) -> Iterator[Finding]:
    """Paths in the arguments, or for modules, that the container does not see."""
    profile = setup.profile
    chosen = profile.container
    visible_folders = _visible_folders(profile)
    words = profile.trainer.arguments
    paths = [word.partition("=")[2] if word.startswith("-") else word for word in words]
    for path in (*paths, *profile.trainer.environment.get("PYTHONPATH", "").split(":")):
        if not path.startswith("/") or f"{path}/".startswith(visible_folders):
            continue
        mount = f"{path}:{path}:ro"
        change = Change(
            f"mount {path}", "the training can then read it", (("container.mounts", (*chosen.mounts, mount)),)
        )
        message = f"the container does not see {path}, unless the image has it"
        remedy = "Mount it (container.mounts)."
        yield warning("container.mounts", message, remedy, change=change)


def unmounted_images(setup: Setup) -> Iterator[Finding]:
    """Images that rows of the data name, in folders that the container does not see."""
    profile = setup.profile
    chosen = profile.container
    folders = image_folders_of_data(profile.trainer.data, setup.facts.data)
    if hidden := [folder for folder in folders if not f"{folder}/".startswith(_visible_folders(profile))]:
        mounted = tuple(f"{folder}:{folder}:ro" for folder in hidden)
        yield error(
            "container.mounts",
            f"rows of the data name images in {', '.join(hidden)}, which the container does not see",
            "Mount these folders (container.mounts).",
            change=Change(
                "mount them", "rows without them are left out", (("container.mounts", (*chosen.mounts, *mounted)),)
            ),
        )


def _profile_key_of_path(profile: Profile, path: str) -> str:
    trainer = profile.trainer
    if path == trainer.working_directory:
        return "trainer.working_directory"
    if path == trainer.output:
        return "trainer.output"
    for name in ("data", "validation_data", "test_data"):
        if path in getattr(trainer, name):
            return f"trainer.{name}"
    if path == container.script_mount_path(profile):
        return "trainer.script"
    return "trainer.model" if trainer.model.startswith(path) else "container.mounts"
