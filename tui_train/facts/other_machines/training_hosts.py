"""The hosts of a training over ssh, asked side by side: the GPUs, the Python, the paths and the clock of each."""

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import msgspec

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.facts.machine import container_images
from tui_train.facts.other_machines.remote import (
    CARDS_SURVEY_QUESTION,
    HostSurvey,
    run_on_machine,
    survey_host,
    surveyed_machine,
)
from tui_train.facts.types import ContainerEngine, TrainingHost
from tui_train.profile.types import Container
from tui_train.runner.system.processes import machine_and_boot_identity

NO_CONTAINER = Container()
_ENGINE_NOT_INSTALLED_TEXT = "it is not installed"
_SECONDS_PER_HOST = 30.0
_MIN_TOTAL_SECONDS = 90.0
# More ssh at once would leave the screen too little of the processor; a connection that is shared takes sshd's
# MaxSessions.
_MAX_PARALLEL_PROBES, _MAX_PARALLEL_PROBES_VIA_HOST = 16, 8


def probe_hosts(
    hosts: Sequence[str], python: str, paths: Sequence[str], asking_host: str = "", container: Container = NO_CONTAINER
) -> dict[str, TrainingHost]:
    """Return what each of some hosts answers within 30 s; `asking_host` asks them (empty: this machine).

    `python` is the one that is to train; empty in a container, whose image is looked at.
    """
    question = {
        "pythons": [python] if python else [],
        "only_named": True,
        "paths": [*([python] if python else []), *paths],
        "hub": "",
        **CARDS_SURVEY_QUESTION,
    }
    at_once = _MAX_PARALLEL_PROBES_VIA_HOST if asking_host else _MAX_PARALLEL_PROBES
    total_seconds = max(_MIN_TOTAL_SECONDS, _SECONDS_PER_HOST * math.ceil(len(hosts) / at_once))
    end_time = time.monotonic() + total_seconds
    asking = _read_asking_machine(asking_host)

    def probe(host: str) -> _HostAnswer:
        left = end_time - time.monotonic()
        if left <= 0:
            return _HostAnswer(TrainingHost(problem=f"was not asked within {total_seconds:.0f} s"))
        deadline = min(_SECONDS_PER_HOST, left)
        try:
            survey = survey_host(host, question, deadline, asking_host=asking_host)
        except Unavailable as error:
            why = error.message.removeprefix(f"{visible(host)} ").removeprefix("did not answer: ")
            return _HostAnswer(TrainingHost(problem=why))
        answer = _host_answer_from_survey(host, survey, asking)
        if container.engine == "none":
            return answer
        run = partial(run_on_machine, host, asking_host=asking_host)
        absent = ContainerEngine(name=container.engine, problem=_ENGINE_NOT_INSTALLED_TEXT)
        engine = next((each for each in container_images.read_engines(run) if each.name == container.engine), absent)
        image = None if engine.problem else container_images.inspect_image(engine.name, container.image, run)
        return answer._replace(host=msgspec.structs.replace(answer.host, engine=engine, image=image))

    with ThreadPoolExecutor(at_once) as pool:
        return _with_same_machines_marked(dict(zip(hosts, pool.map(probe, hosts), strict=True)))


class _HostAnswer(NamedTuple):
    """A host's answer, and the identity of its machine (empty: unknown)."""

    host: TrainingHost
    identity: str = ""


def _with_same_machines_marked(answers: Mapping[str, _HostAnswer]) -> dict[str, TrainingHost]:
    """Return the hosts; of several names of one machine, each but the first says so."""
    name_by_identity: dict[str, str] = {}
    hosts = {}
    for name, answer in answers.items():
        first = name_by_identity.setdefault(answer.identity, name) if answer.identity else name
        hosts[name] = msgspec.structs.replace(answer.host, same_as="" if first == name else first)
    return hosts


class _AskingMachine(NamedTuple):
    """The machine that asks: what no other has, empty where that is not known, and its clock against this one's."""

    identity: str
    clock_offset: float


def _read_asking_machine(asking_host: str) -> _AskingMachine:
    if not asking_host:
        return _AskingMachine(machine_and_boot_identity(), 0.0)
    try:
        survey = survey_host(asking_host, {"probe": "", "hub": ""}, _SECONDS_PER_HOST)
    except Unavailable:
        return _AskingMachine("", 0.0)
    return _AskingMachine(survey.identity, survey.clock - time.time())


def _host_answer_from_survey(host: str, survey: HostSurvey, asking_machine: _AskingMachine) -> _HostAnswer:
    compared = asking_machine.identity and survey.identity
    answer = TrainingHost(
        machine=surveyed_machine(host, survey) if survey.knows_cards else None,
        is_first=survey.identity == asking_machine.identity if compared else None,
        toolchain=survey.toolchains[0] if survey.toolchains else None,
        paths=survey.paths,
        clock_offset=survey.clock - time.time() - asking_machine.clock_offset,
    )
    return _HostAnswer(answer, survey.identity)
