"""Another machine of a training: whether it can take part, and what keeps its processes, which end with its link."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Callable

from ..containers import container
from ..gpus import training_cards
from ..run_folder import supervisor_plan
from ..system import other_programs
from ..system.processes import (
    KILL_WAIT_SECONDS,
    LEFTOVER_WAIT_SECONDS,
    MARK_VARIABLE,
    ProcessFamily,
    become_subreaper,
    machine_and_boot_identity,
    process_has_variable,
    process_with_pid,
    reap_children,
)
from ..system.refused import UNAVAILABLE_EXIT_CODE, Refused
from ..system.safe_text import visible
from ..system.signals import StopSignals
from . import node_network
from .ssh import CONNECTION_LOST_EXIT_CODE
from .unanswered import UnansweredConnections

# What is written to a keeper: it lives, and its training is to save and end.
HEARTBEAT_BYTE = b"h"
STOP_BYTE = b"t"
# Seconds without a word until the one who started this is believed to be gone.
_MAX_SILENCE_SECONDS = 120.0
_POLL_SECONDS = 0.2
# Which run folder a keeper's processes are of.
_KEPT_RUN_FOLDER_VARIABLE = "TUI_TRAIN_KEPT_FOR"
_TORCH_VERSION_SECONDS = 60.0
_MAX_PENDING_OUTPUT_BYTES = 16 << 20
_TORCH_VERSION_CODE = "import importlib.metadata as m; print(m.version('torch'))"


def print_readiness(request_json: str, run_dir: str) -> int:
    """Print as JSON how this machine can take part in the training of a run folder: address, torch, what is wrong."""
    request: dict[str, Any] = json.loads(request_json)
    plan = supervisor_plan.read_plan(run_dir)
    problem = image = ""
    try:
        image = container.image_identity(plan.engine, plan.image) if plan.engine else ""
        training_cards.choose_cards(plan, "", int(request["rank"]))
        missing = [name for name in plan.secrets if not os.environ.get(name)]
        if request["identity"] == machine_and_boot_identity():
            problem = "it is the machine on which this was started: name it first among the hosts"
        elif missing:
            problem = f"{missing[0]} is not set there for commands over ssh"
        else:
            problem = earlier_start_problem(plan.engine, run_dir)
    except Refused as refused:
        problem = refused.message
    address, own_address, tried = _contact_first_machine(request)
    answer = {
        "shared": request["shared"],
        "address": address,
        "tried": tried,
        "torch": torch_version(),
        "image": image,
        "problem": problem,
    }
    if problem or not address or not request.get("random_port") or node_network.chooses_network_interface(os.environ):
        print(json.dumps(answer), flush=True)
        return 0
    token = request["token"].encode()
    answer["reaches_first"] = bool(node_network.own_address_towards(address, int(request["random_port"]), token))
    with node_network.listening_socket(own_address, 0) as server:
        print(json.dumps({**answer, "listens": server.getsockname()[:2]}), flush=True)
        server.settimeout(2 * node_network.CONNECT_TIMEOUT_SECONDS)
        with contextlib.suppress(OSError):
            node_network.send_token_to_next_client(server, token)
    return 0


def earlier_start_problem(engine: str, run_dir: str) -> str:
    """Return what an earlier start of a run folder still has at work here, and how it is ended; empty for nothing."""
    if left := _leftover_pids_text(run_dir):
        return f"processes of an earlier start still train there: end them first (kill {left})"
    if names := " ".join(container.running_containers_of_folder(engine, run_dir)):
        return f"a container of an earlier start still trains there: end it first ({engine} rm -f {names})"
    return ""


def _leftover_pids_text(run_dir: str) -> str:
    """Return the processes here of an earlier start of a run folder, whose keeper is gone or about to give up."""
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return " ".join(str(pid) for pid in pids if process_has_variable(pid, _KEPT_RUN_FOLDER_VARIABLE, run_dir))


def torch_version() -> str:
    """Return the version of torch that this Python has, empty for none."""
    answer = other_programs.run_program((sys.executable, "-c", _TORCH_VERSION_CODE), _TORCH_VERSION_SECONDS)
    return answer.out.strip() if answer.code == 0 else ""


def _contact_first_machine(request: dict[str, Any]) -> tuple[str, str, list[str]]:
    """Return the IP address at which the first machine answers, this one's towards it (empty: none), those tried."""
    from_there = os.environ.get("SSH_CONNECTION", "").split()[:1] if request["ask"] else []
    tried: list[str] = []
    for name in (*request["names"], *from_there):
        for address in node_network.resolve_ip_addresses(name):
            if address in tried or node_network.is_loopback(address):
                continue
            tried.append(address)
            own_address = node_network.own_address_towards(address, int(request["port"]), request["token"].encode())
            if own_address:
                return address, own_address, tried
    return "", "", tried


def run_machine_part(run_dir: str) -> int:
    """Start this machine's part of an attempt as stdin's first line says, and return its exit code.

    It is asked to end by a word on stdin, and ended with all that it started where stdin ends or is silent.
    """
    signals = StopSignals()
    request: dict[str, Any] = json.loads(_read_request_line())
    plan, rank = supervisor_plan.read_plan(run_dir), int(request["rank"])
    environment = {**os.environ, **request["environment"], _KEPT_RUN_FOLDER_VARIABLE: run_dir}
    environment.update(node_network.network_interface_variables(plan, environment))
    container_name = ""
    if plan.engine:
        environment.update(container.prepare_container_variables(plan, run_dir))
        # Nobody reads here what one said last.
        environment.pop("TUI_TRAIN_REMOVE", None)
        container_name = container.container_name_on_machine(
            environment.get(container.CONTAINER_NAME_VARIABLE, ""), rank
        )
        if container_name:
            environment[container.CONTAINER_NAME_VARIABLE] = container_name
    words = [*request["words"], f"--node-rank={rank}"]
    cards = training_cards.choose_cards(plan, "", rank)
    if cards:
        words.append(f"--gpus={','.join(cards)}")
    become_subreaper()
    # The link itself would stay open while any of them lives, and a slow one would have them wait.
    read_end, write_end = os.pipe()
    child = subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=write_end, stderr=write_end, start_new_session=True
    )
    os.close(write_end)
    output = _ForwardedOutput(read_end)
    leader = process_with_pid(child.pid)._replace(pid=child.pid)
    family = ProcessFamily(environment[MARK_VARIABLE], leader, os.getpid())

    def request_stop() -> None:
        family.excluded.add(container.request_stop(plan.engine, container_name, int(request["grace"]), leader).pid)

    try:
        unanswered = UnansweredConnections(plan, environment.get(node_network.FIRST_ADDRESS_VARIABLE, ""))
        code = _wait_for_exit_code(family, signals, output, unanswered, request_stop)
    finally:
        _kill_family(family)
        if container_name:
            container.remove_container(plan.engine, container_name)
        output.forward_rest()
    return 1 if code == CONNECTION_LOST_EXIT_CODE else code


class _ForwardedOutput:
    """Output of the training, passed on as fast as the link takes it; what is too much for it is dropped, and said."""

    def __init__(self, read_end: int) -> None:
        self.end = read_end
        self.open = True
        self.dropped = 0
        self.pending = bytearray()
        os.set_blocking(read_end, False)
        os.set_blocking(1, False)

    def forward(self, seconds: float, *other_ends: int) -> list[int]:
        """Pass on what there is, for at most so many seconds; return which of the others can be read."""
        reads = [*other_ends, *([self.end] if self.open else [])]
        ready, writes, _ = select.select(reads, [1] if self.pending else [], [], seconds)
        if self.end in ready:
            self._read()
        if writes:
            self._write()
        return [end for end in ready if end != self.end]

    def _read(self) -> None:
        piece = os.read(self.end, 1 << 16)
        self.open = bool(piece)
        if len(self.pending) + len(piece) > _MAX_PENDING_OUTPUT_BYTES:
            self.dropped += len(piece)
        elif self.dropped:
            self.pending += f"\nlaunch.sh: {self.dropped} bytes of output were dropped: a slow link\n".encode()
            self.dropped = 0
        if not self.dropped:
            self.pending += piece

    def _write(self) -> None:
        try:
            del self.pending[: os.write(1, self.pending)]
        except BlockingIOError:
            return
        except OSError:
            self.pending.clear()

    def forward_rest(self) -> None:
        """Pass on the rest, as long as the link takes it."""
        deadline = time.monotonic() + KILL_WAIT_SECONDS
        while (self.open or self.pending) and time.monotonic() < deadline:
            self.forward(_POLL_SECONDS)


def _read_request_line() -> bytes:
    """Return the first line of stdin, and nothing beyond it."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            raise Refused(UNAVAILABLE_EXIT_CODE, "nothing was asked")
        line += piece
    return line


def _wait_for_exit_code(
    family: ProcessFamily,
    signals: StopSignals,
    output: _ForwardedOutput,
    unanswered: UnansweredConnections,
    request_stop: Callable[[], object],
) -> int:
    """Return the exit code of a part once it has ended, or has to."""
    heard_at, asked, seen_at = time.monotonic(), False, 0.0
    while True:
        status = reap_children().get(family.leader.pid)
        if status is not None:
            code = other_programs.shell_exit_code(status)
            family.wait_until_gone(
                LEFTOVER_WAIT_SECONDS if code == 0 else 0, lambda: (output.forward(_POLL_SECONDS), reap_children())
            )
            return code
        if output.forward(_POLL_SECONDS, 0):
            received = os.read(0, 4096)
            if not received:
                return 128 + signal.SIGKILL
            heard_at = time.monotonic()
            signals.stop = signals.stop or ("asked" if STOP_BYTE in received else "")
        if signals.stop and not asked:
            asked = True
            request_stop()
        if time.monotonic() - seen_at > unanswered.check_interval:
            seen_at = time.monotonic()
            for line in unanswered.new_sentences(family.living_ticks_by_pid(), seen_at):
                os.write(2, f"{line}\n".encode(errors="replace"))
        if time.monotonic() - heard_at > _MAX_SILENCE_SECONDS:
            return 128 + signal.SIGKILL


def _kill_family(family: ProcessFamily) -> None:
    left = family.living_ticks_by_pid()
    if left:
        shown = visible(" ".join(map(str, sorted(left))))
        os.write(2, f"launch.sh: {os.uname().nodename}: ends what is left of it ({shown})\n".encode(errors="replace"))

    def pause() -> None:
        reap_children()
        time.sleep(0.05)

    family.kill(pause)
