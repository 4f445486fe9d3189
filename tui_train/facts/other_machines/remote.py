"""Facts of another host over ssh, on which nothing of this program needs to be installed."""

import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.channel.session import ask_host
from tui_train.facts import yaml_documents
from tui_train.facts.gpus.reported_cards import CardReport, GpuWithCudaCores, machine_with_cards
from tui_train.facts.machine import probe
from tui_train.facts.machine.child_process import (
    CHILDREN_CANCELLED_EVENT,
    DEADLINE_PASSED_REASON,
    RUN_PROGRAM_TEXT_CODE,
    ChildResult,
)
from tui_train.facts.models.hub import HubCache
from tui_train.facts.scripts import script_source
from tui_train.facts.scripts.script_imports import MAX_NAMES_BESIDE_SCRIPT
from tui_train.facts.types import (
    FactGap,
    Facts,
    GpuProcess,
    Machine,
    PathState,
    ScriptSource,
    Toolchain,
    YamlDocument,
)
from tui_train.runner.queue.listing import CardInQueue

_NVIDIA_SMI_FIELDS = "index,uuid,name,pci.bus_id,compute_cap,memory.total,memory.free,display_active,driver_version"
_NVIDIA_SMI_COMMAND = ("nvidia-smi", f"--query-gpu={_NVIDIA_SMI_FIELDS}", "--format=csv,noheader,nounits")
# Of each process on a GPU: which, its number, its MiB.
_NVIDIA_SMI_PROCESSES_COMMAND = (
    "nvidia-smi",
    "--query-compute-apps=gpu_uuid,pid,used_memory",
    "--format=csv,noheader,nounits",
)
_UNREADABLE_THERE = "it cannot be read on that host"
# What an import can name.
_SOURCE_NAME_PATTERN = re.compile(r"(\w{1,100}/){0,6}\w{1,100}\.py")
# The seconds for the driver, and what is run where its library does not answer.
_CHILD_CONNECTION_SECONDS = 60.0
CARDS_SURVEY_QUESTION = {"cards": 8.0, "smi": _NVIDIA_SMI_COMMAND, "processes": _NVIDIA_SMI_PROCESSES_COMMAND}

# Seconds for the cards alone, with the connection.
_CARDS_SECONDS = 45.0


class CommandOutput(msgspec.Struct, frozen=True):
    """Output of a command on the host, and its exit code."""

    code: int
    text: str


class CardProcess(GpuProcess, frozen=True, kw_only=True):
    """A process that computes on the card of a UUID."""

    uuid: str


class HostSurvey(msgspec.Struct, kw_only=True):
    """The answer of a host; `beside` are the names next to the script, `files` None where unreadable.

    `clock` is in seconds since 1970.
    """

    machine: Machine
    toolchains: tuple[Toolchain, ...] = ()
    paths: dict[str, PathState] = {}
    closed: dict[str, str] = {}
    free: dict[str, int | None] = {}
    files: dict[str, bytes | None] = {}
    beside: tuple[str, ...] = ()
    sources: dict[str, bytes] = {}
    accelerate_config: str = ""
    hub: HubCache | None = None
    cards: CardReport | None = None
    smi: CommandOutput | None = None
    processes: tuple[CardProcess, ...] = ()
    cards_in_queue: tuple[CardInQueue, ...] = ()
    clock: float = 0.0
    identity: str = ""
    submits: bool = False

    @property
    def knows_cards(self) -> bool:
        """Return whether the driver or nvidia-smi answered."""
        return self.cards is not None or (self.smi is not None and self.smi.code == 0)


def _parse_sent_document(data: bytes | None) -> YamlDocument:
    return YamlDocument(problem=_UNREADABLE_THERE) if data is None else yaml_documents.parse_document(data)


def parse_sent_source(data: bytes | None, names_beside: Collection[str], sources: Mapping[str, bytes]) -> ScriptSource:
    """Return the facts of a script that a host sent, with what it imports of the `sources` beside it."""
    if data is None:
        return ScriptSource(problem=_UNREADABLE_THERE)
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources.items():
            if not _SOURCE_NAME_PATTERN.fullmatch(name):
                continue
            path = Path(folder, name)
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(source)
        return script_source.parse_script_source(data, folder if sources and names_beside else "", names_beside)


class PathsNamedByPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Pythons, paths, YAML files and training script that a plan for a host names there."""

    pythons: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    script: str = ""
    hub_variables: dict[str, str] = {}
    """Variables that say where the cache of models is, in place of the host's own."""


def read_planning_facts(host: str, named: PathsNamedByPlan) -> Facts:
    """Return the facts of a host for planning, with those of what is named there."""
    script = named.script
    question: dict[str, Any] = {
        "pythons": named.pythons,
        "paths": named.paths,
        "files": (*named.files, *filter(None, (script,))),
        "hub_variables": named.hub_variables,
    }
    question |= {"script": script, "most": MAX_NAMES_BESIDE_SCRIPT} if script else {}
    survey = survey_host(host, {**question, **CARDS_SURVEY_QUESTION}, 90.0)
    return msgspec.structs.replace(
        _surveyed_facts(host, survey),
        paths=survey.paths,
        unwritable=survey.closed,
        free=survey.free,
        documents={path: _parse_sent_document(data) for path, data in survey.files.items() if path != script},
        sources={script: parse_sent_source(survey.files.get(script), survey.beside, survey.sources)} if script else {},
        accelerate_config=survey.accelerate_config,
        hub=survey.hub,
        has_sbatch=survey.submits,
    )


def read_host_facts(host: str, deadline: float = 75.0) -> Facts:
    """Return the facts of a host within about `deadline` seconds; Unavailable if it does not answer."""
    return _surveyed_facts(host, survey_host(host, CARDS_SURVEY_QUESTION, deadline))


def read_host_cards(host: str, is_cancelled: Callable[[], bool]) -> Facts:
    """Return the GPUs of a host and who uses them, without its Pythons; Unavailable if it does not answer."""
    question = {"do": "survey", **CARDS_SURVEY_QUESTION}
    return _surveyed_facts(host, ask_host(host, question, HostSurvey, _CARDS_SECONDS, is_cancelled=is_cancelled))


def _surveyed_facts(host: str, survey: HostSurvey) -> Facts:
    toolchains = sorted(survey.toolchains, key=probe.toolchain_incompleteness_rank)
    return Facts(
        machine=surveyed_machine(host, survey),
        toolchains=tuple(toolchains),
        cards_in_queue=survey.cards_in_queue,
        other_machine=host,
    )


def surveyed_machine(host: str, survey: HostSurvey) -> Machine:
    """Return a host with its cards as its driver knows them, else as nvidia-smi does."""
    machine = msgspec.structs.replace(survey.machine, hostname=host)
    if survey.cards:
        return machine_with_cards(machine, survey.cards)
    if survey.smi is None:
        gap = FactGap(
            "No NVIDIA GPU", "nvidia-smi was not found on that host", "Trainings run on the CPU of that host."
        )
        return machine_with_cards(machine, CardReport(gaps=(gap,)))
    return _machine_with_processes(machine_with_cards(machine, _parse_nvidia_smi(survey.smi.text)), survey.processes)


def _machine_with_processes(machine: Machine, processes: Sequence[CardProcess]) -> Machine:
    """Return a machine whose cards say who computes on them."""
    by_card: dict[str, list[GpuProcess]] = {}
    for each in processes:
        found = GpuProcess(
            each.pid, visible(each.name), visible(each.user), each.memory,
            command=visible(each.command), seconds=each.seconds,
        )  # fmt: skip
        by_card.setdefault(each.uuid, []).append(found)
    cards = (msgspec.structs.replace(gpu, processes=tuple(by_card.get(gpu.uuid, ()))) for gpu in machine.gpus)
    return msgspec.structs.replace(machine, gpus=tuple(cards))


def survey_host(
    host: str, question: Mapping[str, Any], deadline: float, *, asking_host: str | None = None
) -> HostSurvey:
    """Return the answer of a host to a survey; `asking_host`: see `answering_python_command` of the channel."""
    hub_reader = resources.files("tui_train.programs").joinpath("hub_cache.py").read_text(encoding="utf-8")
    python = {"probe": probe.probe_program_text(), "run": RUN_PROGRAM_TEXT_CODE}
    asked = {"do": "survey", "hub": hub_reader, **python, **question}
    return ask_host(
        host,
        asked,
        HostSurvey,
        deadline,
        asking_host=asking_host,
        is_cancelled=CHILDREN_CANCELLED_EVENT.is_set,
    )


def _parse_nvidia_smi(text: str) -> CardReport:
    """Return the cards in the CSV lines of nvidia-smi; without any, why."""
    gpus: list[GpuWithCudaCores] = []
    unreadable_lines: list[str] = []
    driver = None
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 9 or not _is_whole_number(cells[0]):
            unreadable_lines.append(line)
            continue
        # A name may contain commas.
        index, uuid, *name_parts, bus, capability, total, free, display, version = cells
        driver = driver or _nvidia_smi_value(version)
        gpus.append(
            GpuWithCudaCores(
                index=int(index),
                uuid=uuid if re.fullmatch(r"GPU-[0-9A-Za-z-]+", uuid) else "",
                name=_nvidia_smi_value(", ".join(name_parts)) or "",
                pci_bus=_nvidia_smi_value(bus),
                compute_capability=_nvidia_smi_value(capability),
                memory_total=_mib_text_as_bytes(total),
                memory_free=_mib_text_as_bytes(free),
                display_active={"Enabled": True, "Disabled": False}.get(display),
                problem="" if uuid.startswith("GPU-") else f"nvidia-smi: {uuid}",
            )
        )
    gaps: tuple[FactGap, ...] = ()
    if not gpus:
        # With cards listed, such a line is output of a login script.
        reason = (
            f"nvidia-smi: {unreadable_lines[0][:200]}" if unreadable_lines else "nvidia-smi lists no GPU on that host"
        )
        gaps = (
            FactGap("No NVIDIA GPU", reason, "Trainings run on the CPU of that host.", hides=bool(unreadable_lines)),
        )
    return CardReport(driver_version=driver, gpus=tuple(gpus), gaps=gaps)


def _nvidia_smi_value(text: str) -> str | None:
    """Return a value of nvidia-smi, None for [N/A], [Not Supported] and the like."""
    return None if not text or text.startswith("[") or text == "N/A" else text


def _is_whole_number(text: str) -> bool:
    return bool(re.fullmatch(r"\d{1,9}", text, re.ASCII))


def _mib_text_as_bytes(text: str) -> int | None:
    return int(text) * 2**20 if _is_whole_number(text) else None


class _HostProgramOutput(msgspec.Struct, frozen=True):
    """What a program printed on a host; `code` is null where it took too long."""

    code: int | None
    out: str
    said: str


def run_on_machine(  # noqa: PLR0913 - each has a default but three
    host: str,
    command: Sequence[str],
    seconds: float,
    variables: Mapping[str, str] | None = None,
    is_cancelled: Callable[[], bool] = CHILDREN_CANCELLED_EVENT.is_set,
    *,
    asking_host: str | None = None,
) -> ChildResult:
    """Run a program on a host (empty: this machine) for one answer; where there is none, the result says why."""
    question = {"do": "child", "command": tuple(command), "seconds": seconds, "variables": variables or {}}
    try:
        answer = ask_host(
            host,
            question,
            _HostProgramOutput,
            seconds + _CHILD_CONNECTION_SECONDS,
            asking_host=asking_host,
            is_cancelled=is_cancelled,
        )
    except Unavailable as error:
        return ChildResult(failure=visible(error.message))
    if answer.code is None:
        return ChildResult(failure=DEADLINE_PASSED_REASON)
    return ChildResult(answer.out.encode(), answer.said.encode(), answer.code)
