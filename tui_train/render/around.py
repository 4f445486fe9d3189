"""The container around the command: its engine's words, and for a start by hand what else only the machine knows."""

from tui_train.base.command import Part, Wrapping
from tui_train.plan.types import Plan
from tui_train.render.quoting import Expansion, quoted
from tui_train.render.variants import Line, Variants
from tui_train.resolve.container import card_words, cards_of_each
from tui_train.supervisor.container import OUTLIVE

_REMOVE = Expansion("${TUI_TRAIN_REMOVE:---rm}")
_NAMES_OF_INTERFACES = {"nccl": ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")}


def prefix(plan: Plan) -> str:
    """Return what stands before the name of a variable that is passed on to the training."""
    if plan.container is None:
        return ""
    return "--env=" if plan.container.engine in OUTLIVE else "APPTAINERENV_"


def machine(around: Wrapping) -> list[str]:
    """Return the lines that say what of the machine is mounted, and which folders must be there."""
    podman = around.engine == "podman"

    def mount(name: str, host: str, inside: str) -> str:
        default = f"--volume={host}:{inside}" if podman else f"--mount=type=bind,src={host},dst={inside}"
        return f"{name.lower()}=${{TUI_TRAIN_{name}:-{default}}}"

    home = "cache_mount=${TUI_TRAIN_CACHE_MOUNT:---home=$cache:/cache}"
    folders = "".join(f" {quoted(folder)}" for folder in around.folders)
    lines = [
        "# The supervisor sets the variables TUI_TRAIN_* where this machine's engine needs other words.",
        "cache=${XDG_CACHE_HOME:-~/.cache}/tui-train/container",
        "hugging_face=${HF_HOME:-${XDG_CACHE_HOME:-~/.cache}/huggingface}",
        f'folders=("$cache/huggingface" "$hugging_face"{folders}) # they must be there to be mounted',
        mount("RUN_MOUNT", "$run_dir", "$run_dir"),
        home if around.engine == "apptainer" else mount("CACHE_MOUNT", "$cache", "/cache"),
        mount("HUGGING_FACE_MOUNT", "$hugging_face", "/cache/huggingface"),
    ]
    return [*lines, ""]


def wrapped(plan: Plan, around: Wrapping, made: Variants) -> tuple[Line, ...]:
    """Return the lines of the command with its container around it."""
    outer = [_line(part, plan, around) for part in around.parts]
    named = around.engine in OUTLIVE
    inner = [Line(quoted(around.image))]
    if around.before:
        inner.append(Line(" ".join(quoted(word) for word in around.before)))
    folder = Line(quoted("--workdir=" if named else "--pwd=", made.folder))
    passed = (*_interfaces(plan, named=True), *made.settings) if named else ()
    return (*outer, *passed, folder, *inner, *made.command)


def settings(plan: Plan, around: Wrapping, made: Variants) -> tuple[Line, ...]:
    """Return the variables that the engine's own process needs to pass them on; none where its words do."""
    if around.engine in OUTLIVE:
        return ()
    mark = Line('"APPTAINERENV_TUI_TRAIN_RUN_ID=${TUI_TRAIN_RUN_ID-}"')
    return (*_interfaces(plan, named=False), *made.settings, mark)


def _line(part: Part, plan: Plan, around: Wrapping) -> Line:
    words = part.words
    if plan.gpus and around.engine in OUTLIVE and words == card_words(around.engine, plan.gpus):
        words = cards_of_each(around.engine)
    return Line(" ".join(quoted(_REMOVE) if word == "--rm" else quoted(word) for word in words), part.why)


def _interfaces(plan: Plan, *, named: bool) -> tuple[Line, ...]:
    """Return the words by which the network interface that each machine found reaches the container; before yours."""
    if not plan.find_interface:
        return ()
    names = _NAMES_OF_INTERFACES.get(plan.backend, ("GLOO_SOCKET_IFNAME",))
    if named:
        return (Line(" ".join(f"--env={name}" for name in names), "the interface that leads to the first machine"),)
    return tuple(Line(f'${{{name}:+"APPTAINERENV_{name}=${name}"}}') for name in names)
