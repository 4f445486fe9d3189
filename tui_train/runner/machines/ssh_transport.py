"""Several machines that are started from the first of them over ssh: each attempt is one fan, which keeps them all."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Mapping

from ..containers import container
from ..run_folder.start import RunStart, print_message
from ..run_folder.supervisor_plan import SupervisorPlan
from ..system import other_programs, runner_command, untrusted_json
from ..system.processes import Process
from ..system.refused import UNAVAILABLE_EXIT_CODE, Refused
from ..system.safe_text import visible
from ..system.signals import END_AT_ONCE_SIGNAL
from ..system.transport import LocalTransport, NodeCommand
from . import node, node_network

# Seconds for all to answer, which takes at most half of it, and for a fan to end what it keeps.
_HOST_ANSWER_SECONDS = 60.0
_MAX_REMOTE_END_SECONDS = 12.0
# Clocks that are further apart give confusing times in logs.
_MAX_CLOCK_SKEW_SECONDS = 30.0
_PYTHON_BESIDE_CONTAINER = "python3"
_SHARD_FILE_NAME_PATTERN = re.compile(r"\.distcp$|^zero_pp_rank_\d|_optim_states\.pt$")


class SshTransport(LocalTransport):
    """The machines of a start: `python` is the one of each, `answers` are those of all but the first.

    A command is started by a fan, which asks all machines where it gets SIGTERM.
    """

    def __init__(self, start: RunStart, python: str, answers: list[dict[str, Any]]) -> None:
        super().__init__()
        self._start, self._python = start, python
        own = {"host": start.planned.hosts[0]}
        names = ("address", "shared", "connection")
        others = [
            {"host": host, **{name: answer[name] for name in names}}
            for host, answer in zip(start.planned.hosts[1:], answers)
        ]
        engine = start.planned.engine
        self._attempt_request = {"hosts": [own, *others], "python": python, "grace": start.grace, "engine": engine}

    def share_checkpoint_or_say_why_not(self, checkpoint: str) -> str:
        """Copy a checkpoint to the machines that do not see it; return why it is of no use there, empty where it is.

        Raises Refused (69) where it cannot be copied to one of them.
        """
        sharded = _is_sharded_checkpoint(checkpoint)
        answers = _ask_other_machines(self._start, self._python, checkpoint, only_look=sharded)
        absent = []
        for host, answer in zip(self._start.planned.hosts[1:], answers):
            if answer.get("problem"):
                raise Refused(UNAVAILABLE_EXIT_CODE, f"{visible(host)}: {visible(str(answer['problem']))}")
            absent += [] if answer["there"] else [visible(host)]
        if absent and sharded:
            return f"it has a shard of each machine, and {', '.join(absent)} sees another disk (trainer.output)"
        if absent:
            print_message(f"{visible(checkpoint)} was copied to {', '.join(absent)}")
        return ""

    def start(self, command: NodeCommand) -> Process:
        """Start a command on each machine, their output to one log."""
        words = (*runner_command.runner_command("fan", json.dumps(self._attempt_request)), *command.words)
        return super().start(command._replace(words=words))

    def end_remote_parts(self, leader: Process) -> None:
        """Have the fan close its links, by which the others end everything of theirs."""
        self._send_signal_and_wait(leader, END_AT_ONCE_SIGNAL, _MAX_REMOTE_END_SECONDS)


def with_transport_to_ready_hosts(start: RunStart) -> RunStart:
    """Return a start that trains on all machines of its plan; Refused (69) names the first that cannot take part."""
    plan = start.planned
    python = sys.executable if os.environ.get("TUI_TRAIN_PYTHON") else plan.python
    # In a container trains its own Python: on the machine around it any will do.
    python = _PYTHON_BESIDE_CONTAINER if plan.engine else python
    answers = _ask_other_machines(start, python)
    torch, image = node.torch_version(), container.image_identity(plan.engine, plan.image) if plan.engine else ""
    for host, answer in zip(plan.hosts[1:], answers):
        _require_host_ready(plan, host, answer, python, torch)
        if answer["image"] != image:
            name = f"{visible(host)} has another image {visible(plan.image)} than this machine"
            raise Refused(UNAVAILABLE_EXIT_CODE, f"{name}: put the same one on all")
        if abs(answer["off"]) > _MAX_CLOCK_SKEW_SECONDS:
            direction = "ahead of" if answer["off"] > 0 else "behind"
            print_message(f"the clock of {visible(host)} is {abs(answer['off']):.0f} s {direction} this one")
        if not answer["there"]:
            print_message(f"{visible(host)} does not see this run folder: it was copied there")
    _require_open_ports(plan, answers)
    environment = {**start.environment, node_network.FIRST_ADDRESS_VARIABLE: answers[0]["address"]}
    environment.update(node_network.network_interface_variables(plan, {**os.environ, **environment}))
    return start._replace(transport=SshTransport(start, python, answers), environment=environment)


def _ask_other_machines(
    start: RunStart, python: str, checkpoint: str = "", *, only_look: bool = False
) -> list[dict[str, Any]]:
    """Return what the other machines answer, in their order; a checkpoint takes as long as it takes."""
    question = {
        "mark": start.mark,
        "python": python,
        "script": os.path.basename(start.script),
        "checkpoint": checkpoint,
        "only_look": only_look,
    }
    words = runner_command.runner_command("reach", json.dumps(question))
    asked = other_programs.run_program(words, float("inf") if checkpoint else _HOST_ANSWER_SECONDS)
    try:
        answers: list[dict[str, Any]] = untrusted_json.parse_json(asked.out.encode(), list)
    except untrusted_json.Unparsable:
        last = (asked.err.strip().splitlines() or ["no answer"])[-1]
        raise Refused(UNAVAILABLE_EXIT_CODE, f"the other machines cannot be asked: {visible(last)}") from None
    return answers


def _is_sharded_checkpoint(checkpoint: str) -> bool:
    """Tell whether each process wrote a part of a checkpoint: FSDP2's and Megatron's by torch, or DeepSpeed's."""
    return any(_SHARD_FILE_NAME_PATTERN.search(name) for _, _, names in os.walk(checkpoint) for name in names)


def _require_host_ready(
    plan: SupervisorPlan, host: str, answer: Mapping[str, Any], python_path: str, torch_version: str
) -> None:
    name, problem = visible(host), visible(str(answer.get("problem", "")))
    if problem == "no_python":
        remedy = "install it" if plan.engine else "put the same environment at the same path there"
        raise Refused(UNAVAILABLE_EXIT_CODE, f"{name} has no {visible(python_path)}: {remedy}")
    if problem:
        raise Refused(UNAVAILABLE_EXIT_CODE, f"{name}: {problem}")
    if not plan.engine and answer["torch"].partition("+")[0] != torch_version.partition("+")[0]:
        words = (
            f"{name} has torch {visible(answer['torch']) or 'not at all'}, and this machine {torch_version or 'none'}"
        )
        raise Refused(UNAVAILABLE_EXIT_CODE, f"{words}: install the same version on all")
    if not answer["address"]:
        tried = ", ".join(map(visible, answer["tried"])) or "no address that leads here"
        remedy = "open it in the firewall of this machine, or name its address (nodes.address)"
        raise Refused(
            UNAVAILABLE_EXIT_CODE, f"{name} does not reach port {plan.port} of this machine (tried {tried}): {remedy}"
        )


def _require_open_ports(plan: SupervisorPlan, answers: list[dict[str, Any]]) -> None:
    """Refuse (69) where a random port was tried in vain; none is where an interface is named that was not tried."""
    others = list(zip(map(visible, plan.hosts[1:]), answers))
    from_others = [host for host, answer in others if not answer.get("reaches_first", True)]
    from_here = [host for host, answer in others if not answer.get("reached", True)]
    closed = [
        *([f"from {', '.join(from_others)} to this machine"] if from_others else []),
        *([f"from this machine to {', '.join(from_here)}"] if from_here else []),
    ]
    if closed:
        library = "NCCL" if plan.backend == "nccl" else "Gloo"
        words = f"random ports are closed {' and '.join(closed)}, and {library} needs them besides port {plan.port}"
        remedy = (
            "open all TCP ports between the hosts in their firewalls, or name the network interface on which they are"
        )
        raise Refused(UNAVAILABLE_EXIT_CODE, f"{words}: {remedy} (communication.interface)")
