"""Facts of another host over ssh: from tui-train there, or from nvidia-smi if that is not installed."""

import base64
import re
import shlex
from importlib import resources
from time import monotonic

import msgspec

from tui_train.base import ssh
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.parse import Unparsable, json_as
from tui_train.base.text import visible
from tui_train.facts import yaml_documents
from tui_train.facts.machine import probe
from tui_train.facts.machine.child_process import ChildResult, run_child
from tui_train.facts.models.hub import HubCache
from tui_train.facts.other_machines.machine_files import parse_machine_file
from tui_train.facts.scripts import script_source
from tui_train.facts.types import Facts, Gap, Gpu, Machine, PathState, ScriptSource, Toolchain, YamlDocument

_SMI_FIELDS = "index,uuid,name,pci.bus_id,compute_cap,memory.total,memory.free,display_active,driver_version"
NVIDIA_SMI_COMMAND = f"nvidia-smi --query-gpu={_SMI_FIELDS} --format=csv,noheader,nounits"
_PROGRAM_NOT_FOUND_CODE = 127
_MACHINE_FIELDS_FROM_SURVEY = (
    "kernel",
    "cpu_name",
    "cpu_count",
    "memory_total",
    "memory_available",
    "shm_total",
    "shm_free",
)


class CommandOutput(msgspec.Struct, frozen=True):
    """Output of a command on the host, and its exit code."""

    code: int
    text: str


class Survey(msgspec.Struct, kw_only=True):
    """The answer of a host; `files` are in base64, `clock` is in seconds since 1970."""

    machine: Machine
    toolchains: tuple[Toolchain, ...] = ()
    paths: dict[str, PathState] = {}
    closed: dict[str, str] = {}
    free: dict[str, int | None] = {}
    files: dict[str, str | None] = {}
    accelerate_config: str = ""
    hub: HubCache | None = None
    said: CommandOutput | None = None
    clock: float = 0.0
    identity: str = ""
    submits: bool = False

    @property
    def documents(self) -> dict[str, YamlDocument]:
        """The files, parsed as YAML."""
        return {path: _parse_base64_document(text) for path, text in self.files.items()}


def _parse_base64_document(text: str | None) -> YamlDocument:
    """Return the content of a file that a host sent in base64."""
    try:
        return yaml_documents.parse_document(base64.b64decode(text or "-", validate=True))
    except ValueError:
        return YamlDocument(problem="it cannot be read on that host")


def _parse_base64_source(text: str | None) -> ScriptSource:
    """Return the facts of a script that a host sent in base64; its imports are not read."""
    try:
        return script_source.parse_source(base64.b64decode(text or "-", validate=True))
    except ValueError:
        return ScriptSource(problem="it cannot be read on that host")


def read_planning_facts(
    host: str, pythons: tuple[str, ...], paths: tuple[str, ...], files: tuple[str, ...], script: str = ""
) -> Facts:
    """Return the facts of a host for planning, with these Pythons, paths and YAML files, and this training script."""
    host_facts = read_host_facts(host)
    host_survey = survey_host(host, pythons, paths, (*files, *filter(None, (script,))))
    if host_survey is None:
        return msgspec.structs.replace(host_facts, other_machine=host)
    new_pythons = {tool.python for tool in host_survey.toolchains} - {tool.python for tool in host_facts.toolchains}
    tools = (*host_facts.toolchains, *(tool for tool in host_survey.toolchains if tool.python in new_pythons))
    machine = host_facts.machine
    if machine.memory_total is None:
        fields = {name: getattr(host_survey.machine, name) for name in _MACHINE_FIELDS_FROM_SURVEY}
        machine = msgspec.structs.replace(machine, **fields)
    return msgspec.structs.replace(
        host_facts,
        machine=machine,
        toolchains=tuple(sorted(tools, key=probe.toolchain_rank)),
        paths=host_survey.paths,
        unwritable=host_survey.closed,
        free=host_survey.free,
        documents={path: document for path, document in host_survey.documents.items() if path != script},
        sources={script: _parse_base64_source(host_survey.files.get(script))} if script else {},
        accelerate_config=host_survey.accelerate_config,
        hub=host_survey.hub,
        other_machine=host,
        has_sbatch=host_survey.submits,
    )


def survey_host(
    host: str, pythons: tuple[str, ...], paths: tuple[str, ...], files: tuple[str, ...], deadline: float = 60.0
) -> Survey | None:
    """Return the result of a survey program that is sent to a host, None if it has no Python."""
    reader = resources.files("tui_train.programs").joinpath("hub_cache.py").read_text(encoding="utf-8")
    words = survey_command({"hub": reader, "pythons": pythons, "paths": paths, "files": files})
    return parse_survey(_run_over_ssh(host, shlex.join(words), deadline).out)


def survey_command(question: dict[str, object]) -> tuple[str, ...]:
    """Return the command that asks a host, with the survey program in it."""
    program = resources.files("tui_train.programs").joinpath("survey.py").read_text(encoding="utf-8")
    full_question = {"probe": probe.probe_program_text(), "run": probe.RUN_PROBE_CODE, **question}
    return ("python3", "-c", program, msgspec.json.encode(full_question).decode())


def parse_survey(output: bytes) -> Survey | None:
    """Return the answer in what a host printed, None for none: login scripts may print as well."""
    for line in reversed(output.splitlines()):
        try:
            return json_as(line, Survey)
        except Unparsable:
            continue
    return None


def read_host_facts(host: str, deadline: float = 40.0) -> Facts:
    """Return the facts of a host within about `deadline` seconds; Unavailable if it does not answer.

    ssh does not prompt: log in by hand once to a host that is unknown or requires a password.
    """
    end_time = monotonic() + deadline
    answer = _run_over_ssh(host, "tui-train facts --json", deadline)
    if answer.code == 0:
        try:
            # Output of login scripts may come first.
            start = 0 if answer.out.startswith(b"{") else answer.out.find(b"\n{") + 1
            return parse_machine_file(answer.out[start:], host)
        except BadInput:
            pass
    fallback = _run_over_ssh(host, NVIDIA_SMI_COMMAND, max(1.0, end_time - monotonic()))
    if fallback.code == 0:
        return Facts(machine=parse_nvidia_smi(host, fallback.out.decode("utf-8", "replace")))
    if fallback.code == _PROGRAM_NOT_FOUND_CODE and (
        host_survey := survey_host(host, (), (), (), max(1.0, end_time - monotonic()))
    ):
        gap = Gap("No NVIDIA GPU", "nvidia-smi was not found on that host", "Trainings run on the CPU of that host.")
        return Facts(
            machine=msgspec.structs.replace(host_survey.machine, gaps=(gap,)), toolchains=host_survey.toolchains
        )
    message = f"{host} has no working tui-train, nvidia-smi or python3: {fallback.why_unusable()}"
    raise Unavailable(visible(message), f"Check `ssh {host} nvidia-smi`.")


def parse_nvidia_smi(host: str, text: str) -> Machine:
    """Return the machine described by the CSV lines of nvidia-smi; without cards it has a Gap."""
    gpus: list[Gpu] = []
    unreadable_lines: list[str] = []
    driver = None
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 9 or not _is_whole_number(cells[0]):
            unreadable_lines.append(line)
            continue
        # A name may contain commas.
        index, uuid, name, (bus, capability, total, free, display, version) = (
            cells[0],
            cells[1],
            ", ".join(cells[2:-6]),
            cells[-6:],
        )
        driver = driver or _value_or_none(version)
        gpus.append(
            Gpu(
                index=int(index),
                uuid=uuid if re.fullmatch(r"GPU-[0-9A-Za-z-]+", uuid) else "",
                name=_value_or_none(name) or "",
                pci_bus=_value_or_none(bus),
                compute_capability=_value_or_none(capability),
                memory_total=_bytes_from_mib(total),
                memory_free=_bytes_from_mib(free),
                display_active={"Enabled": True, "Disabled": False}.get(display),
                problem="" if uuid.startswith("GPU-") else f"nvidia-smi: {uuid}",
            )
        )
    gaps: tuple[Gap, ...] = ()
    if not gpus:
        # With cards listed, such a line is output of a login script.
        reason = (
            f"nvidia-smi: {unreadable_lines[0][:200]}" if unreadable_lines else "nvidia-smi lists no GPU on that host"
        )
        gaps = (Gap("No NVIDIA GPU", reason, "Trainings run on the CPU of that host.", hides=bool(unreadable_lines)),)
    return Machine(hostname=host, driver_version=driver, gpus=tuple(gpus), gaps=gaps)


def _run_over_ssh(host: str, command: str, deadline: float) -> ChildResult:
    answer = run_child([*ssh.ssh_command_prefix(host), command], deadline, folder=None)
    if answer.failure or answer.code == ssh.SSH_FAILED_EXIT_CODE:
        why = visible(answer.why_unusable())
        raise Unavailable(f"ssh to {host} failed: {why}", f"Check whether `ssh -o BatchMode=yes {host} true` works.")
    return answer


def _value_or_none(text: str) -> str | None:
    """Return a value of nvidia-smi, None for [N/A], [Not Supported] and the like."""
    return None if not text or text.startswith("[") or text == "N/A" else text


def _is_whole_number(text: str) -> bool:
    return bool(re.fullmatch(r"\d{1,9}", text, re.ASCII))


def _bytes_from_mib(text: str) -> int | None:
    return int(text) * 2**20 if _is_whole_number(text) else None
