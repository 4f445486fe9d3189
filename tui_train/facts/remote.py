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
from tui_train.facts import documents, probe, sources
from tui_train.facts.ask import ChildResult, run_child
from tui_train.facts.hub import HubCache
from tui_train.facts.saved import facts_of
from tui_train.facts.types import Document, Facts, Gap, Gpu, Machine, PathState, Source, Toolchain

_FIELDS = "index,uuid,name,pci.bus_id,compute_cap,memory.total,memory.free,display_active,driver_version"
SMI = f"nvidia-smi --query-gpu={_FIELDS} --format=csv,noheader,nounits"
_NOT_FOUND = 127
_OF_HOST = ("kernel", "cpu_name", "cpu_count", "memory_total", "memory_available", "shm_total", "shm_free")


class Said(msgspec.Struct, frozen=True):
    """What a command there printed, and its exit code."""

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
    said: Said | None = None
    clock: float = 0.0
    identity: str = ""
    submits: bool = False

    @property
    def documents(self) -> dict[str, Document]:
        """The files, parsed as YAML."""
        return {path: _document(text) for path, text in self.files.items()}


def _document(text: str | None) -> Document:
    """Return the content of a file that a host sent in base64."""
    try:
        return documents.read(base64.b64decode(text or "-", validate=True))
    except ValueError:
        return Document(problem="it cannot be read on that host")


def _source(text: str | None) -> Source:
    """Return the facts of a script that a host sent in base64; its imports are not read."""
    try:
        return sources.read(base64.b64decode(text or "-", validate=True))
    except ValueError:
        return Source(problem="it cannot be read on that host")


def to_plan(
    host: str, pythons: tuple[str, ...], paths: tuple[str, ...], files: tuple[str, ...], script: str = ""
) -> Facts:
    """Return the facts of a host for planning, with these Pythons, paths and YAML files, and this training script."""
    host_facts = facts(host)
    answer = survey(host, pythons, paths, (*files, *filter(None, (script,))))
    if answer is None:
        return msgspec.structs.replace(host_facts, elsewhere=host)
    new = {tool.python for tool in answer.toolchains} - {tool.python for tool in host_facts.toolchains}
    tools = (*host_facts.toolchains, *(tool for tool in answer.toolchains if tool.python in new))
    machine = host_facts.machine
    if machine.memory_total is None:
        fields = {name: getattr(answer.machine, name) for name in _OF_HOST}
        machine = msgspec.structs.replace(machine, **fields)
    return msgspec.structs.replace(
        host_facts,
        machine=machine,
        toolchains=tuple(sorted(tools, key=probe.rank)),
        paths=answer.paths,
        closed=answer.closed,
        free=answer.free,
        documents={path: document for path, document in answer.documents.items() if path != script},
        sources={script: _source(answer.files.get(script))} if script else {},
        accelerate_config=answer.accelerate_config,
        hub=answer.hub,
        elsewhere=host,
        submits=answer.submits,
    )


def survey(
    host: str, pythons: tuple[str, ...], paths: tuple[str, ...], files: tuple[str, ...], deadline: float = 60.0
) -> Survey | None:
    """Return the result of a survey program that is sent to a host, None if it has no Python."""
    reader = resources.files("tui_train.target").joinpath("hub_cache.py").read_text(encoding="utf-8")
    words = sent({"hub": reader, "pythons": pythons, "paths": paths, "files": files})
    return answered(_ask(host, shlex.join(words), deadline).out)


def sent(question: dict[str, object]) -> tuple[str, ...]:
    """Return the command that asks a host, with the survey program in it."""
    program = resources.files("tui_train.target").joinpath("survey.py").read_text(encoding="utf-8")
    whole = {"probe": probe.source(), "run": probe.RUN, **question}
    return ("python3", "-c", program, msgspec.json.encode(whole).decode())


def answered(out: bytes) -> Survey | None:
    """Return the answer in what a host printed, None for none: login scripts may print as well."""
    for line in reversed(out.splitlines()):
        try:
            return json_as(line, Survey)
        except Unparsable:
            continue
    return None


def facts(host: str, deadline: float = 40.0) -> Facts:
    """Return the facts of a host within about `deadline` seconds; Unavailable if it does not answer.

    ssh does not prompt: log in by hand once to a host that is unknown or requires a password.
    """
    ends = monotonic() + deadline
    answer = _ask(host, "tui-train facts --json", deadline)
    if answer.code == 0:
        try:
            # Output of login scripts may come first.
            start = 0 if answer.out.startswith(b"{") else answer.out.find(b"\n{") + 1
            return facts_of(answer.out[start:], host)
        except BadInput:
            pass
    fallback = _ask(host, SMI, max(1.0, ends - monotonic()))
    if fallback.code == 0:
        return Facts(machine=of_nvidia_smi(host, fallback.out.decode("utf-8", "replace")))
    if fallback.code == _NOT_FOUND and (found := survey(host, (), (), (), max(1.0, ends - monotonic()))):
        gap = Gap("No NVIDIA GPU", "nvidia-smi was not found on that host", "Trainings run on the CPU of that host.")
        return Facts(machine=msgspec.structs.replace(found.machine, gaps=(gap,)), toolchains=found.toolchains)
    message = f"{host} has no working tui-train, nvidia-smi or python3: {fallback.ending()}"
    raise Unavailable(visible(message), f"Check `ssh {host} nvidia-smi`.")


def of_nvidia_smi(host: str, text: str) -> Machine:
    """Return the machine described by the CSV lines of nvidia-smi; without cards it has a Gap."""
    gpus: list[Gpu] = []
    strange: list[str] = []
    driver = None
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 9 or not _count(cells[0]):
            strange.append(line)
            continue
        # A name may contain commas.
        index, uuid, name, (bus, capability, total, free, display, version) = (
            cells[0],
            cells[1],
            ", ".join(cells[2:-6]),
            cells[-6:],
        )
        driver = driver or _reported(version)
        gpus.append(
            Gpu(
                index=int(index),
                uuid=uuid if re.fullmatch(r"GPU-[0-9A-Za-z-]+", uuid) else "",
                name=_reported(name) or "",
                pci_bus=_reported(bus),
                compute_capability=_reported(capability),
                memory_total=_mib(total),
                memory_free=_mib(free),
                display_active={"Enabled": True, "Disabled": False}.get(display),
                problem="" if uuid.startswith("GPU-") else f"nvidia-smi: {uuid}",
            )
        )
    gaps: tuple[Gap, ...] = ()
    if not gpus:
        # With cards listed, such a line is output of a login script.
        reason = f"nvidia-smi: {strange[0][:200]}" if strange else "nvidia-smi lists no GPU on that host"
        gaps = (Gap("No NVIDIA GPU", reason, "Trainings run on the CPU of that host.", hides=bool(strange)),)
    return Machine(hostname=host, driver_version=driver, gpus=tuple(gpus), gaps=gaps)


def _ask(host: str, command: str, deadline: float) -> ChildResult:
    answer = run_child([*ssh.ssh_command(host), command], deadline, folder=None)
    if answer.failure or answer.code == ssh.SSH_FAILED:
        why = visible(answer.ending())
        raise Unavailable(f"ssh to {host} failed: {why}", f"Check whether `ssh -o BatchMode=yes {host} true` works.")
    return answer


def _reported(text: str) -> str | None:
    """Return a value of nvidia-smi, None for [N/A], [Not Supported] and the like."""
    return None if not text or text.startswith("[") or text == "N/A" else text


def _count(text: str) -> bool:
    return bool(re.fullmatch(r"\d{1,9}", text, re.ASCII))


def _mib(text: str) -> int | None:
    return int(text) * 2**20 if _count(text) else None
