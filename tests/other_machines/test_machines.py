"""Several machines that are started by hand: which one this is, the port, and the way to the first one."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import (
    export_run,
    facts,
    free_port,
    make_stub,
    plain_environment,
    profile,
    run_launch_script,
    set_variables,
    stub_calls,
    values_taken_by_preset,
    wait_until,
)

from tui_train.runner import attempt as attempts
from tui_train.runner import run as supervised
from tui_train.runner.machines import node_network, unanswered
from tui_train.runner.run_folder.supervisor_plan import SupervisorPlan
from tui_train.runner.system.refused import Refused

TWO = SupervisorPlan(nodes=2, world_size=2, address="first", find_interface=True, backend="gloo")
THREE = SupervisorPlan(nodes=3, world_size=6)


@pytest.mark.parametrize(
    ("option", "environment", "rank"), [("0", "", 0), ("2", "", 2), ("02", "", 2), ("", "1", 1), ("2", "1", 2)]
)
def test_which_machine_this_is(option, environment, rank):
    assert (
        node_network.node_rank_from_option_or_environment(THREE, option, {"TUI_TRAIN_NODE_RANK": environment}) == rank
    )


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("", "3 machines train together: give the rank of this one, --node-rank=0 (the first) to --node-rank=2"),
        ("3", "--node-rank=3 is not one of the ranks 0 to 2"),
        ("x", "--node-rank=x is no number from 0 to 2"),
        ("-1", "is no number from 0 to 2"),
        ("٣", "is no number from 0 to 2"),
        ("9" * 20, "is no number from 0 to 2"),
        ("\x1b[31m", r"--node-rank=\x1b[31m is no number"),
    ],
)
def test_a_machine_must_be_named(option, part):
    with pytest.raises(Refused) as refused:
        node_network.node_rank_from_option_or_environment(THREE, option, {})
    assert (refused.value.code, part in refused.value.message) == (64, True), refused.value.message


# ---- connections that a firewall swallows


@pytest.fixture
def connecting():
    """Connect to a port of this machine that does not answer, as its queue is full."""
    opened = []

    def connect(port):
        server = socket.create_server(("127.0.0.1", port), backlog=0)
        opened.append(server)
        for client in [socket.socket() for _ in range(4)]:
            opened.append(client)
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        return server.getsockname()[1]

    yield connect
    for each in opened:
        each.close()


def test_a_connection_without_an_answer_is_named_after_a_minute_and_once(connecting):
    plan = SupervisorPlan(nodes=2, world_size=2, port=29500, hosts=("gpu-a", "gpu-b"), backend="nccl")
    port = connecting(0)
    assert port >= 10000
    connecting(next(lower for lower in range(9000, 9999) if is_free(lower)))
    waiting = unanswered.UnansweredConnections(plan, "127.0.0.1")
    mine = [os.getpid()]
    assert [waiting.new_sentences(mine, now) for now in (0.0, 59.0)] == [[], []]
    assert waiting.new_sentences([os.getppid()], 70.0) == []
    assert waiting.new_sentences(mine, 100.0) == [], "a new wait begins"
    (line,) = waiting.new_sentences(mine, 160.0)
    assert f"waits for gpu-a (127.0.0.1) at port {port}, and got no answer" in line
    assert "NCCL uses random ones besides port 29500" in line
    assert waiting.new_sentences(mine, 300.0) == []


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


# ---- the port at which the others meet the first machine


def planned_at(port):
    return TWO._replace(port=port)


@pytest.mark.parametrize(
    ("family", "place"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::1")]
)
def test_a_port_that_is_taken_after_the_export(family, place):
    """On the first machine alone: the others only go there."""
    with socket.socket(family, socket.SOCK_STREAM) as other:
        try:
            other.bind((place, 0))
        except OSError:
            pytest.skip("NOT TESTED: IPv6 is off")
        other.listen(1)
        port = other.getsockname()[1]
        with pytest.raises(Refused) as refused:
            node_network.require_free_port(planned_at(port), 0)
        assert refused.value.code == 75
        assert f"port {port} of this machine is in use by another program: choose another" in refused.value.message
        node_network.require_free_port(planned_at(port), 1)
    node_network.require_free_port(planned_at(port), 0)
    node_network.require_free_port(planned_at(0), 0)


def test_a_port_that_a_connection_goes_out_from_is_taken_too():
    """Nothing listens there, and still no training can."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = client.getsockname()[1]
        with pytest.raises(Refused, match="in use by another program"):
            node_network.require_free_port(planned_at(port), 0)


def test_what_is_left_of_a_connection_is_not_in_the_way():
    """A port where a training has just ended is free for the next one."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    with server, socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        accepted.close()
        client.recv(1)
    # The state of a connection that waits for late packets.
    wait_until(lambda: re.search(rf":{port:04X} [0-9A-F:]+ 06 ", Path("/proc/net/tcp").read_text()))
    node_network.require_free_port(planned_at(port), 0)


# ---- the interface by which the first machine is reached


@pytest.fixture
def network(tmp_path, monkeypatch):
    """Return what puts an `ip` and a `getent` on PATH that say these."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def say(known="", addresses="", route=""):
        (folder / "getent").write_text(f"#!/bin/sh\n[ -n '{known}' ] || exit 2\necho '{known}   STREAM x'\n")
        (folder / "ip").write_text(
            f"#!/bin/sh\ncase $* in *addr*) echo '{addresses}' ;; *route*) echo '{route}' ;; esac\n"
        )
        for file in folder.iterdir():
            file.chmod(0o755)

    return say


@pytest.mark.parametrize(
    ("answers", "interface"),
    [
        ({"known": "10.9.9.9", "route": "10.9.9.9 via 10.1.1.1 dev eth7 src 10.1.1.5 uid 0 \\    cache"}, "eth7"),
        ({"known": "10.9.9.9", "addresses": "3: bond0.5@bond0    inet 10.9.9.9/24 scope global bond0.5"}, "bond0.5"),
        ({"known": "10.9.9.9"}, ""),
    ],
    ids=["another machine", "this machine", "no route is told"],
)
def test_the_interface_that_leads_to_the_first_machine(network, answers, interface):
    network(**answers)
    told = {"GLOO_SOCKET_IFNAME": interface} if interface else {}
    assert node_network.network_interface_variables(TWO, {}) == told
    assert node_network.network_interface_variables(TWO._replace(find_interface=False), {}) == {}


def test_nccl_is_told_only_where_it_is_used_and_what_is_exported_wins(network):
    network(known="10.9.9.9", route="10.9.9.9 dev eth7 src 10.1.1.5")
    nccl = TWO._replace(backend="nccl")
    gloo = {"GLOO_SOCKET_IFNAME": "eth7"}
    assert node_network.network_interface_variables(nccl, {}) == {"NCCL_SOCKET_IFNAME": "=eth7", **gloo}
    assert node_network.network_interface_variables(TWO, {}) == gloo
    assert node_network.network_interface_variables(nccl, {"NCCL_SOCKET_IFNAME": "ib"}) == gloo
    assert node_network.network_interface_variables(TWO, {"GLOO_SOCKET_IFNAME": "mine"}) == {}


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ("127.0.1.1", "first is 127.0.1.1 on this machine"),
        ("::1", "first is ::1 on this machine"),
        ("", "no address is known here for first"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(network, known, said):
    """Debian's /etc/hosts gives a machine's own name the address 127.0.1.1: the others would wait for minutes."""
    network(known)
    with pytest.raises(Refused) as refused:
        node_network.network_interface_variables(TWO, {})
    assert refused.value.code == 69
    assert said in refused.value.message
    assert "IP address" in refused.value.message


def test_a_machine_without_these_tools_asks_its_library(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node_network.network_interface_variables(TWO._replace(address="127.0.0.1"), {}) == {}
    with pytest.raises(Refused, match=r"no address is known here for no\.such\.invalid"):
        node_network.network_interface_variables(TWO._replace(address="no.such.invalid"), {})


@pytest.mark.parametrize(
    ("planned", "told", "unknown"), [("127.0.0.1", "no.such.invalid", "no.such.invalid"), ("--help", "", "--help")]
)
def test_an_address_that_is_known_only_at_the_start_and_one_that_is_an_option(planned, told, unknown):
    with pytest.raises(Refused, match=f"no address is known here for {re.escape(unknown)}"):
        node_network.network_interface_variables(
            TWO._replace(address=planned), {"TUI_TRAIN_ADDRESS": told} if told else {}
        )


IN_A_NETWORK = """
ip link add eth-a type veth peer name x; ip link set eth-a up; ip link set x up
ip link add ib-b type veth peer name y; ip link set ib-b up; ip link set y up
ip addr add 10.99.0.1/24 dev eth-a; ip addr add 10.98.0.1/24 dev ib-b; ip addr add fd00::1/64 dev ib-b nodad
exec "$@"
"""
ASKED = """
import json, sys
from tui_train.runner.machines import node_network
from tui_train.runner.run_folder.supervisor_plan import SupervisorPlan
two = SupervisorPlan(nodes=2, world_size=2, find_interface=True, backend="gloo")
print(json.dumps([node_network.network_interface_variables(two._replace(address=one), {}) for one in sys.argv[1:]]))
"""


def test_in_a_network_of_its_own():
    """By the real tools: addresses of this machine, one that a route leads to, and one that none does."""
    inside = ["unshare", "--map-root-user", "--net"]
    tried = [*inside, "ip", "link", "add", "x", "type", "veth", "peer", "name", "y"]
    if not shutil.which("ip") or subprocess.run(tried, check=False, capture_output=True).returncode:
        pytest.skip("NOT TESTED: no network namespaces, or no ip")
    addresses = ["10.99.0.1", "10.98.0.7", "fd00::1", "fd00::7", "192.0.2.1"]
    words = [*inside, "sh", "-c", IN_A_NETWORK, "sh", sys.executable, "-c", ASKED, *addresses]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert [one.get("GLOO_SOCKET_IFNAME", "") for one in told] == ["eth-a", "ib-b", "ib-b", "ib-b", ""]


# ---- a stop on another machine


def happened(folder, *events):
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"event": event, "time": at}) + "\n" for event, at in events)
    (folder / "events.jsonl").write_text("".join(lines))


def test_a_stop_on_another_machine_is_seen_in_a_folder_that_they_share(tmp_path):
    """Whatever their clocks say: those of the second are an hour behind."""
    folder, began = str(tmp_path), ("run_started", 4000.0)
    happened(tmp_path, began)
    happened(tmp_path / "node-1", ("run_started", 400.0))
    earlier = (("run_started", 10.0), ("stopping", 20.0), began)
    happened(tmp_path / "node-2", *earlier)
    before = [node_network.stop_count_of_each_machine(THREE, folder, rank) for rank in range(3)]
    happened(tmp_path / "node-1", ("run_started", 400.0), ("stopping", 500.0))
    # Its own stop is no other's, and that of an earlier start is over.
    seen = [node_network.other_rank_asked_to_stop(THREE, folder, rank, before[rank]) for rank in range(3)]
    assert seen == [1, None, 1]
    happened(tmp_path, began, ("stopping", 4200.0))
    assert node_network.other_rank_asked_to_stop(THREE, folder, 1, before[1]) == 0
    alone = str(tmp_path / "a folder of its own")
    assert (
        node_network.other_rank_asked_to_stop(THREE, alone, 1, node_network.stop_count_of_each_machine(THREE, alone, 1))
        is None
    )


@pytest.mark.parametrize(("elsewhere", "state", "code"), [(None, "finished", 0), (1, "stopped", 143)])
def test_a_stop_elsewhere_counts_only_before_the_end(tmp_path, elsewhere, state, code):
    """A training whose ranks agree to stop may end with 0; one that had finished before the stop has finished."""
    start = SimpleNamespace(planned=THREE, run_dir=str(tmp_path), signals=SimpleNamespace(stop=""))
    ended = attempts.AttemptEnd(0, rank_asked_to_stop=elsewhere)
    outcome = supervised._outcome_after_attempt(start, ended, 1, 1)
    assert (outcome.state, outcome.code) == (state, code)


# ---- the whole of it


def resuming(tmp_path, **more):
    """A run folder for a script of Hugging Face on two machines, its output folder, and an environment."""
    (tmp_path / "train.py").write_text("")
    values = {
        "trainer.kind": "script", "trainer.launcher": "torchrun", "trainer.preset": "hf-trainer",
        "trainer.python": str(make_stub(tmp_path / "python")), "trainer.script": str(tmp_path / "train.py"),
        "trainer.output": str(tmp_path / "out"), "hardware.processes": 1, "nodes.count": 2,
        "nodes.address": "127.0.0.1", "nodes.port": free_port(), "recipe.global_batch": 16, **more,
    }  # fmt: skip
    run, made = export_run(tmp_path / "run", profile(values_taken_by_preset(values)), facts(python=tmp_path / "python"))
    return run, made, plain_environment(STUB_NOTES=str(tmp_path / "notes"))


def test_a_taken_port_is_said_before_anything_starts(tmp_path):
    run, made, environment = resuming(tmp_path)
    with socket.create_server(("127.0.0.1", made.port)):
        done = run_launch_script(run, "--node-rank=0", env=environment)
        assert done.returncode == 75
        assert f"port {made.port} of this machine is in use by another program" in done.stderr.decode()
        assert not run.events_file.exists()
        assert run_launch_script(run, "--node-rank=1", env=environment).returncode == 0
    assert run_launch_script(run, "--node-rank=0", env=environment).returncode == 0


def test_machines_resume_only_together(tmp_path):
    """One that sees no checkpoint would begin with the first step while the others go on: each has to see one."""
    run, _, environment = resuming(tmp_path)
    output = tmp_path / "out"
    alone = run_launch_script(run, "--node-rank=1", "--resume", env=environment)
    assert alone.returncode == 69
    assert f"this machine sees no complete checkpoint in {output}" in alone.stderr.decode()
    assert run_launch_script(run, "--node-rank=1", env=environment).returncode == 0
    (output / "checkpoint-20").mkdir(parents=True)
    (output / "checkpoint-20" / "trainer_state.json").write_text("{}")
    unasked = run_launch_script(run, "--node-rank=0", env=environment)
    assert unasked.returncode == 64
    assert f"there is a checkpoint at {output}/checkpoint-20: add --resume on every" in unasked.stderr.decode()
    assert not run.events_file.exists()
    assert run_launch_script(run, "--node-rank=0", "--resume", env=environment).returncode == 0
    assert f"--resume_from_checkpoint={output}/checkpoint-20" in stub_calls(tmp_path / "notes")[-1]["argv"]


def test_what_cannot_resume_says_so(tmp_path):
    run, _, environment = resuming(tmp_path, **{"trainer.preset": "custom"})
    done = run_launch_script(run, "--node-rank=0", "--resume", env=environment)
    assert (done.returncode, b"--resume: this training cannot resume" in done.stderr) == (64, True)
    one, _ = export_run(tmp_path / "one", profile(), facts())
    done = run_launch_script(one, "--resume")
    assert (done.returncode, b"this trains on one" in done.stderr) == (64, True)


def test_resume_of_what_cannot_resume_begins_with_the_first_step(tmp_path, monkeypatch):
    """As `tui-train resume` and R start it: with a sentence, and without the option that would be refused."""
    run, _, environment = resuming(tmp_path, **{"trainer.preset": "custom"})
    set_variables(monkeypatch, environment)
    command = [sys.executable, "-m", "tui_train", "resume", "--detach", str(run.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot resume: it begins with the first step" in done.stdout
    assert "bash launch.sh --node-rank=N\n" in done.stdout
    wait_until(lambda: run.events()[-1].event == "run_ended")
    assert run.events()[-1].state == "finished"
