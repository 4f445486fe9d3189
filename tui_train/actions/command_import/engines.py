"""What a training is started in: a container of docker or podman, and a job of Slurm."""

import re
from collections.abc import Sequence
from typing import cast

from tui_train.actions.command_import.shell import Word
from tui_train.actions.command_import.table import ImportTable
from tui_train.actions.command_import.variables import import_visible_gpus
from tui_train.base.errors import BadInput
from tui_train.checks.other_machines.slurm import SBATCH_OPTIONS_SET_BY_PLAN
from tui_train.facts.other_machines.cluster import parse_gres_gpus
from tui_train.profile.mounts import parse_mount
from tui_train.profile.types import ContainerEngine

_CONTAINER_SWITCHES = frozenset({
    "rm", "d", "detach", "i", "interactive", "t", "tty", "it", "ti", "dit", "init", "privileged", "read-only", "q",
    "quiet", "P", "publish-all", "no-healthcheck", "oom-kill-disable", "sig-proxy", "disable-content-trust",
})  # fmt: skip
_LONG_OPTION_BY_SHORT = {
    "e": "env", "v": "volume", "w": "workdir", "u": "user", "h": "hostname", "m": "memory", "p": "publish",
    "l": "label", "a": "attach", "c": "cpu-shares",
}  # fmt: skip
_REASON_BY_CONTAINER_OPTION = {
    **dict.fromkeys(("rm", "init", "name", "user"), "the plan sets its own"),
    **dict.fromkeys(("d", "detach", "i", "interactive", "t", "tty", "it", "ti", "dit"), "a run goes on by itself"),
    **dict.fromkeys(("network", "net"), "the plan uses the host's where several machines train"),
    "runtime": "the plan names the GPUs by UUID",
}
_REASON_BY_CONTAINER_SETTING = {
    ("gpus", "all"): "the plan shows the container the chosen GPUs alone, by UUID",
    ("ipc", "host"): "as the plan has it (container.shared_memory=host)",
    ("ulimit", "memlock=-1"): "the plan sets as much as the machine allows",
    ("ulimit", "stack=67108864"): "the plan sets it",
}
_KEY_BY_SBATCH_OPTION = {
    "partition": "slurm.partition", "account": "slurm.account", "time": "slurm.time", "nodes": "nodes.count",
    "cpus-per-task": "slurm.cpus", "job-name": "name",
}  # fmt: skip
_LONG_SBATCH_OPTION_BY_SHORT = {
    "p": "partition", "A": "account", "t": "time", "N": "nodes", "c": "cpus-per-task", "J": "job-name", "n": "ntasks",
    "o": "output", "e": "error", "G": "gpus", "q": "qos", "w": "nodelist", "x": "exclude", "C": "constraint",
    "d": "dependency", "D": "chdir", "a": "array",
}  # fmt: skip
_GPU_COUNT_PATTERN = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d+)", re.ASCII)
_SBATCH_LINE_PATTERN = re.compile(r"^#SBATCH[ \t]+(.*?)[ \t]*(?:[ \t]#.*)?$", re.MULTILINE)


def import_container(table: ImportTable, words: Sequence[Word]) -> tuple[Sequence[Word], dict[str, Word]]:
    """Take the options of `docker run`; return the command inside, and the variables that it is given."""
    engine, *rest = words
    if not rest or rest[0].text != "run":
        raise BadInput(
            f"{engine.text} is not told to run an image", f"Give the line that begins with {engine.text} run."
        )
    name = cast("ContainerEngine", engine.text.rpartition("/")[2])
    table.take_value(f"{engine.text} run", "container.engine", name)
    environment: dict[str, Word] = {}
    position = 1
    while position < len(rest) and rest[position].text.startswith("-"):
        word = rest[position]
        written, equals, value = word.text.partition("=")
        option = written.lstrip("-")
        is_switch = option in _CONTAINER_SWITCHES
        if not written.startswith("--") and not is_switch and len(option) > 1:
            option, equals, value = option[0], "=", option[1:] + equals + value
        takes_next = not equals and not is_switch
        given = rest[position + 1] if takes_next and position + 1 < len(rest) else Word(value, word.problem)
        position += 1 + takes_next
        shown = f"{word.text} {given.text}" if takes_next else word.text
        _import_container_option(table, shown, _LONG_OPTION_BY_SHORT.get(option, option), given, environment)
    if position + 1 >= len(rest):
        raise BadInput("that container starts no command", "Give the whole line, with the image and the command in it.")
    table.take(rest[position].text, "container.image", rest[position])
    return rest[position + 1 :], environment


def _import_container_option(
    table: ImportTable, words: str, option: str, given: Word, environment: dict[str, Word]
) -> None:
    name, equals, value = given.text.partition("=")
    if option == "env" and not (given.problem and not equals):
        if equals:
            environment[name] = Word(value, given.problem)
        else:
            table.take_value(words, "trainer.secrets", (name,), "passed from your shell")
    elif why := _REASON_BY_CONTAINER_OPTION.get(option) or _REASON_BY_CONTAINER_SETTING.get((option, given.text)):
        table.note_replaced(words, why)
    elif given.problem:
        table.leave_out(words, given.problem)
    elif option == "gpus" and (device := re.fullmatch(r'"?device=([^"]+)"?', given.text)):
        import_visible_gpus(table, words, device[1], counted_as_nvidia_smi=True)
    elif option == "workdir":
        table.folder = table.folder / given.text
        table.note_replaced(words, f"the same folder of the machine is used: {table.path_on_machine(given.text)}")
    elif option == "shm-size":
        table.take(words, "container.shared_memory", given)
    elif mount := _mount_text(table, option, given.text):
        table.take_value(words, "container.mounts", (mount,))
        parsed = parse_mount(mount)
        if parsed:
            table.folder_by_mount = {parsed.inside: parsed.host, **table.folder_by_mount}
    else:
        table.leave_out(words, "no key of a profile says this")


def _mount_text(table: ImportTable, option: str, text: str) -> str:
    """Return a mount as profiles have it, empty for what is none, or a volume of the engine."""
    if option == "mount":
        fields = {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
        source, target = fields.get("source", fields.get("src", "")), fields.get("target", fields.get("dst", ""))
        ending = ":ro" if {"readonly", "ro"} & fields.keys() else ""
        text = f"{source}:{target}{ending}" if fields.get("type") == "bind" else ""
    host, colon, rest = text.partition(":")
    if option not in {"mount", "volume"} or not colon or not host.startswith(("/", ".", "~")):
        return ""
    mount = f"{(table.folder / host).resolve() if host.startswith('.') else host}:{rest}"
    return mount if parse_mount(mount) else ""


def import_sbatch_options(table: ImportTable, text: str) -> None:
    """Take the `#SBATCH` lines of a script, where it has any."""
    lines = _SBATCH_LINE_PATTERN.findall(text)
    if lines:
        table.take_value("#SBATCH", "hardware.scheduler", "slurm")
    options: list[tuple[str, str, str]] = []
    for line in lines:
        words: list[str] = line.split()
        while words:
            written, equals, value = words.pop(0).partition("=")
            option = written.lstrip("-")
            if not written.startswith("--") and len(option) > 1:
                option, value = option[0], option[1:] + equals + value
            elif not equals and words and not words[0].startswith("-"):
                value = words.pop(0)
            shown = f"#SBATCH {written}{equals or ' '}{value}".rstrip()
            options.append((shown, _LONG_SBATCH_OPTION_BY_SHORT.get(option, option), value.strip("\"'")))
    for shown, option, value in sorted(options, key=lambda each: each[1] != "nodes"):
        _import_sbatch_option(table, shown, option, value)


def _import_sbatch_option(table: ImportTable, words: str, option: str, value: str) -> None:
    requested = parse_gres_gpus(value) if option == "gres" else ()
    count = _GPU_COUNT_PATTERN.fullmatch(value) if option in {"gpus", "gpus-per-node"} else None
    per_node = sum(number for _, number in requested) or int(count[1] if count else 0)
    per_node //= table.profile.nodes.count if option == "gpus" else 1
    if key := _KEY_BY_SBATCH_OPTION.get(option):
        table.take(words, key, value)
    elif per_node:
        table.take_value(words, "hardware.processes", per_node, "one for each GPU of a machine")
        if any(kind for kind, _ in requested):
            table.take_value(words, "slurm.options", (f"--gres={value}",))
    elif option in SBATCH_OPTIONS_SET_BY_PLAN:
        table.note_replaced(words, "the plan sets its own")
    else:
        table.take_value(words, "slurm.options", (f"--{option}={value}" if value else f"--{option}",))
