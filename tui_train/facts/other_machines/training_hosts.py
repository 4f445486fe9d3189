"""The hosts of a training over ssh, asked side by side: the GPUs, the Python, the paths and the clock of each."""

import math
import shlex
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tui_train.base import ssh as connections
from tui_train.base.text import visible
from tui_train.facts.machine.child_process import run_child
from tui_train.facts.other_machines.remote import NVIDIA_SMI_COMMAND, parse_nvidia_smi, parse_survey, survey_command
from tui_train.facts.types import TrainingHost
from tui_train.runner import ssh

_SECONDS_PER_HOST = 30.0
_MIN_TOTAL_SECONDS = 90.0
# More ssh at once would leave the screen too little of the processor; a connection that is shared takes sshd's
# MaxSessions.
_MAX_PARALLEL, _MAX_PARALLEL_VIA_HOST = 16, 8


def probe_hosts(
    hosts: Sequence[str], python: str, paths: Sequence[str], asking_host: str = ""
) -> dict[str, TrainingHost]:
    """Return what each of some hosts answers within 30 s; `asking_host` asks them (empty: this machine).

    `python` is the one that is to train.
    """
    question = {"pythons": [python], "only_named": True, "paths": [python, *paths], "files": []}
    command = survey_command({**question, "command": shlex.split(NVIDIA_SMI_COMMAND)})
    at_once = _MAX_PARALLEL_VIA_HOST if asking_host else _MAX_PARALLEL
    total_seconds = max(_MIN_TOTAL_SECONDS, _SECONDS_PER_HOST * math.ceil(len(hosts) / at_once))
    end_time = time.monotonic() + total_seconds
    asking = _read_asking_machine(asking_host)

    def probe(host: str) -> TrainingHost:
        words: Sequence[str] = ssh.ssh_command(host, command)
        # The keys of the wizard come first. The connection to `asking_host` is shared with what comes later, and
        # keeps its priority.
        words = [*connections.ssh_command_prefix(asking_host), shlex.join(words)] if asking_host else ["nice", *words]
        left = end_time - time.monotonic()
        if left <= 0:
            return TrainingHost(problem=f"was not asked within {total_seconds:.0f} s")
        return _probe_host(host, words, asking, min(_SECONDS_PER_HOST, left))

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(hosts, pool.map(probe, hosts), strict=True))


class _AskingMachine(NamedTuple):
    """The machine that asks: what no other has, empty where that is not known, and its clock against this one's."""

    identity: str
    clock_offset: float


def _read_asking_machine(asking_host: str) -> _AskingMachine:
    command = ["sh", "-c", 'echo "$(uname -n) $(cat /proc/sys/kernel/random/boot_id) $(date +%s)"']
    words = [*connections.ssh_command_prefix(asking_host), shlex.join(command)] if asking_host else command
    lines = run_child(words, _SECONDS_PER_HOST, folder=None).out.decode("utf-8", "replace").strip().splitlines()
    identity, _, clock = (lines or [""])[-1].strip().rpartition(" ")
    known = clock.isascii() and clock.isdigit() and len(clock) < 15
    return _AskingMachine(identity, float(clock) - time.time()) if known else _AskingMachine("", 0.0)


def _probe_host(host: str, command: Sequence[str], asking_machine: _AskingMachine, deadline: float) -> TrainingHost:
    answer = run_child(command, deadline, folder=None)
    survey = parse_survey(answer.out)
    if survey is None:
        return TrainingHost(problem=visible(answer.failure) if answer.failure else ssh.failure_advice(answer.error))
    return TrainingHost(
        machine=parse_nvidia_smi(host, survey.said.text) if survey.said and not survey.said.code else None,
        is_first=bool(asking_machine.identity) and survey.identity == asking_machine.identity,
        toolchain=survey.toolchains[0] if survey.toolchains else None,
        paths=survey.paths,
        clock_offset=survey.clock - time.time() - asking_machine.clock_offset,
    )
