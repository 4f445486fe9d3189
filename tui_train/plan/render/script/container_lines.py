"""The container around the command: the arguments of its engine, and the mounts that depend on the machine."""

from tui_train.base.command import CommandPart, ContainerWrapper
from tui_train.plan.render.quoting import BashExpansion, quoted_word
from tui_train.plan.render.script.merged_attempts import MergedAttempts, ScriptLine
from tui_train.plan.types import Plan
from tui_train.runner.containers.container import ENGINES_STOPPED_BY_NAME
from tui_train.setup.machine.container import card_options, card_options_of_running_machine

_REMOVE_CONTAINER_OPTION = BashExpansion("${TUI_TRAIN_REMOVE:---rm}")
_VARIABLE_IF_SET_TEMPLATE = '${{{name}:+"APPTAINERENV_{name}=${name}"}}'
_INTERFACE_VARIABLES_BY_BACKEND = {"nccl": ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")}


def mount_lines(container: ContainerWrapper) -> list[str]:
    """Return the lines that define the mounts and the folders that must exist for them."""
    podman = container.engine == "podman"

    def mount(name: str, host: str, inside: str) -> str:
        default = f"--volume={host}:{inside}" if podman else f"--mount=type=bind,src={host},dst={inside}"
        return f"{name.lower()}=${{TUI_TRAIN_{name}:-{default}}}"

    home = "cache_mount=${TUI_TRAIN_CACHE_MOUNT:---home=$cache:/cache}"
    folders = "".join(f" {quoted_word(folder)}" for folder in container.folders)
    lines = [
        "# The supervisor sets TUI_TRAIN_* where the engine of this machine needs other options.",
        "cache=${XDG_CACHE_HOME:-~/.cache}/tui-train/container",
        "hugging_face=${HF_HOME:-${XDG_CACHE_HOME:-~/.cache}/huggingface}",
        f'folders=("$cache/huggingface" "$hugging_face"{folders}) # must exist to be mounted',
        mount("RUN_MOUNT", "$run_dir", "$run_dir"),
        home if container.engine == "apptainer" else mount("CACHE_MOUNT", "$cache", "/cache"),
        mount("HUGGING_FACE_MOUNT", "$hugging_face", "/cache/huggingface"),
    ]
    return [*lines, ""]


def container_command_lines(plan: Plan, container: ContainerWrapper, merged: MergedAttempts) -> tuple[ScriptLine, ...]:
    """Return the lines of the command inside its container."""
    outer = [_engine_part_line(part, plan, container) for part in container.parts]
    named = container.engine in ENGINES_STOPPED_BY_NAME
    inner = [ScriptLine(quoted_word(container.image))]
    if container.before:
        inner.append(ScriptLine(" ".join(quoted_word(word) for word in container.before)))
    folder = ScriptLine(quoted_word("--workdir=" if named else "--pwd=", merged.folder))
    passed = (*_interface_lines(plan, as_options=True), *merged.settings) if named else ()
    return (*outer, *passed, folder, *inner, *merged.command)


def engine_setting_lines(plan: Plan, container: ContainerWrapper, merged: MergedAttempts) -> tuple[ScriptLine, ...]:
    """Return the variables that the engine passes on from its own environment; none if they are options."""
    if container.engine in ENGINES_STOPPED_BY_NAME:
        return ()
    mark = ScriptLine('"APPTAINERENV_TUI_TRAIN_RUN_ID=${TUI_TRAIN_RUN_ID-}"')
    # --cleanenv would drop it, and the container sees all GPUs where Slurm does not hide the others.
    cards = ScriptLine(_VARIABLE_IF_SET_TEMPLATE.format(name="CUDA_VISIBLE_DEVICES"), "those that Slurm gives the job")
    own = (*_interface_lines(plan, as_options=False), *((cards,) if plan.slurm and plan.slurm.gpus else ()))
    return (*own, *merged.settings, mark)


def _engine_part_line(part: CommandPart, plan: Plan, container: ContainerWrapper) -> ScriptLine:
    words = part.words
    if plan.gpus and container.engine in ENGINES_STOPPED_BY_NAME and words == card_options(container.engine, plan.gpus):
        words = card_options_of_running_machine(container.engine)
    return ScriptLine(
        " ".join(quoted_word(_REMOVE_CONTAINER_OPTION) if word == "--rm" else quoted_word(word) for word in words),
        part.why,
    )


def _interface_lines(plan: Plan, *, as_options: bool) -> tuple[ScriptLine, ...]:
    """Return the options that pass the network interface of each machine into the container."""
    if not plan.find_interface:
        return ()
    names = _INTERFACE_VARIABLES_BY_BACKEND.get(plan.backend, ("GLOO_SOCKET_IFNAME",))
    if as_options:
        return (
            ScriptLine(" ".join(f"--env={name}" for name in names), "the network interface towards the first machine"),
        )
    return tuple(ScriptLine(_VARIABLE_IF_SET_TEMPLATE.format(name=name)) for name in names)
