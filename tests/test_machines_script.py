"""Several machines: where each one starts, the script finds the interface that leads to the first."""

import os
import shutil
import socket
import subprocess

import pytest
from support import bash, exported, facts, gpu, plain_environment, profile, stub, taken

PROFILE = {
    "trainer.launcher": "torchrun",
    "hardware.processes": 1,
    "nodes.count": 2,
    "recipe.global_batch": 16,
    "trainer.python": "/usr/bin/env",
}


def run_of(tmp_path, address, gpus=(), **more):
    found = facts(python="/usr/bin/env", gpus=gpus)
    return exported(tmp_path / "run", profile({**PROFILE, "nodes.address": address, **more}), found)[0]


@pytest.fixture
def network(tmp_path):
    """Return a function that puts an `ip` and a `getent` on PATH that say these, and returns the environment."""

    def say(known="", addresses="", route=""):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "getent").write_text(f"#!/bin/sh\n[ -n '{known}' ] || exit 2\necho '{known}   STREAM x'\n")
        (folder / "ip").write_text(
            f"#!/bin/sh\ncase $* in *addr*) echo '{addresses}' ;; *route*) echo '{route}' ;; esac\n"
        )
        for file in folder.iterdir():
            file.chmod(0o755)
        environment = plain_environment()
        return {**environment, "PATH": f"{folder}:{environment['PATH']}"}

    return say


def exported_words(run, environment, *more):
    done = bash(run, "--dry-run", "--node-rank=1", *more, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    return next(line for line in done.stdout.decode().splitlines() if line.startswith("export ")).split()


@pytest.mark.parametrize(
    ("answers", "interface"),
    [
        ({"known": "10.9.9.9", "route": "10.9.9.9 via 10.1.1.1 dev eth7 src 10.1.1.5 uid 0 \\    cache"}, "eth7"),
        ({"known": "10.9.9.9", "addresses": "3: bond0.5@bond0    inet 10.9.9.9/24 scope global bond0.5"}, "bond0.5"),
        ({"known": "10.9.9.9"}, ""),
    ],
    ids=["another machine", "this machine", "no route is told"],
)
def test_the_interface_that_leads_to_the_first_machine(tmp_path, network, answers, interface):
    words = exported_words(run_of(tmp_path, "first"), network(**answers))
    told = [word for word in words if "SOCKET_IFNAME" in word]
    assert told == ([f"GLOO_SOCKET_IFNAME={interface}"] if interface else [])


def test_nccl_is_told_only_where_it_is_used(tmp_path, network):
    environment = network(known="10.9.9.9", route="10.9.9.9 dev eth7 src 10.1.1.5")

    def told(run, *words, **more):
        found = exported_words(run, {**environment, **more}, *words)
        return [word for word in found if "SOCKET_IFNAME" in word]

    on_cards = run_of(tmp_path / "cards", "first", (gpu(0),))
    assert told(on_cards, "--cards=GPU-a") == ["NCCL_SOCKET_IFNAME==eth7", "GLOO_SOCKET_IFNAME=eth7"]
    by_gloo = run_of(tmp_path / "gloo", "first", (gpu(0),), **{"communication.backend": "gloo"})
    assert told(by_gloo, "--cards=GPU-a") == ["GLOO_SOCKET_IFNAME=eth7"]
    # What whoever starts it has exported wins over what is found.
    exported = ["NCCL_SOCKET_IFNAME=ib", "GLOO_SOCKET_IFNAME=eth7"]
    assert told(on_cards, "--cards=GPU-a", NCCL_SOCKET_IFNAME="ib") == exported
    assert told(by_gloo, "--cards=GPU-a", GLOO_SOCKET_IFNAME="mine") == ["GLOO_SOCKET_IFNAME=mine"]


@pytest.mark.skipif(not shutil.which("ip") or not socket.has_ipv6, reason="NOT TESTED: no ip, or no IPv6")
def test_an_address_of_either_kind_is_understood(tmp_path):
    """By the real tools: ::1 is on the loopback interface of every machine that has IPv6."""
    told = subprocess.run(["ip", "-o", "addr", "show", "to", "::1"], capture_output=True, text=True, check=False)
    if "lo" not in told.stdout:
        pytest.skip("NOT TESTED: IPv6 is off")
    for number, address in enumerate(("::1", "127.0.0.1")):
        words = exported_words(run_of(tmp_path / str(number), address), plain_environment())
        assert "GLOO_SOCKET_IFNAME=lo" in words


def test_an_address_is_no_option(tmp_path):
    done = bash(run_of(tmp_path, "--help"), "--dry-run", "--node-rank=0")
    assert done.returncode == 69
    assert "no address is known here for --help" in done.stderr.decode()


def test_an_interface_of_ones_own_wins(tmp_path, network):
    answers = {"known": "10.9.9.9", "route": "10.9.9.9 dev eth7 src 10.1.1.5"}
    own = run_of(tmp_path, "first", **{"trainer.environment": {"GLOO_SOCKET_IFNAME": "mine"}})
    words = exported_words(own, network(**answers))
    assert words.index("GLOO_SOCKET_IFNAME=mine") > words.index("GLOO_SOCKET_IFNAME=eth7")


def test_a_named_interface_is_not_looked_for(tmp_path):
    found = facts(python="/usr/bin/env")
    chosen = profile({**PROFILE, "nodes.address": "10.0.0.1", "communication.interface": "eth0"})
    run, made = exported(tmp_path / "run", chosen, found)
    assert not made.find_interface
    words = exported_words(run, plain_environment())
    assert [word for word in words if "SOCKET_IFNAME" in word] == ["GLOO_SOCKET_IFNAME=eth0"]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ("127.0.1.1", "first is 127.0.1.1 on this machine"),
        ("::1", "first is ::1 on this machine"),
        ("", "no address is known here for first"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(tmp_path, network, known, said):
    """Debian's /etc/hosts gives a machine's own name the address 127.0.1.1: the others would wait for minutes."""
    done = bash(run_of(tmp_path, "first"), "--dry-run", "--node-rank=0", env=network(known))
    assert done.returncode == 69
    assert said in done.stderr.decode()
    assert "IP address" in done.stderr.decode()


def resuming(tmp_path, **more):
    """A run folder for a script of Hugging Face on two machines, and its output folder."""
    (tmp_path / "train.py").write_text("")
    values = {
        **PROFILE,
        "trainer.kind": "script",
        "trainer.preset": "hf-trainer",
        "trainer.python": str(stub(tmp_path / "python")),
        "trainer.script": str(tmp_path / "train.py"),
        "trainer.output": str(tmp_path / "out"),
        "nodes.address": "127.0.0.1",
        **more,
    }
    return exported(tmp_path / "run", profile(taken(values)), facts(python=tmp_path / "python"))[0], tmp_path / "out"


def test_machines_resume_only_together(tmp_path):
    """One that sees no checkpoint would begin anew while the others go on: each has to be told, and to see one."""
    run, output = resuming(tmp_path)
    environment = plain_environment(STUB_NOTES=str(tmp_path / "notes"))
    alone = bash(run, "--node-rank=1", "--resume", env=environment)
    assert alone.returncode == 69
    assert f"this machine sees no complete checkpoint in {output}" in alone.stderr.decode()
    assert bash(run, "--node-rank=1", env=environment).returncode == 0
    (output / "checkpoint-20").mkdir(parents=True)
    (output / "checkpoint-20" / "trainer_state.json").write_text("{}")
    for words in ((), ("--dry-run",)):
        unasked = bash(run, "--node-rank=0", *words, env=environment)
        assert unasked.returncode == 64
        assert f"there is a checkpoint at {output}/checkpoint-20: add --resume on every" in unasked.stderr.decode()
    assert not run.events_file.exists()
    for words, more in ((("--resume",), {}), ((), {"TUI_TRAIN_RESUME": "1"})):
        shown = bash(run, "--node-rank=0", "--dry-run", *words, env=environment | more)
        assert f"--resume_from_checkpoint={output}/checkpoint-20" in shown.stdout.decode()
    assert bash(run, "--node-rank=0", "--resume", env=environment).returncode == 0


def test_what_cannot_resume_says_so(tmp_path):
    run, _ = resuming(tmp_path, **{"trainer.preset": "custom"})
    done = bash(run, "--node-rank=0", "--resume")
    assert (done.returncode, b"--resume: this training cannot resume" in done.stderr) == (64, True)
    one, _ = exported(tmp_path / "one", profile(), facts())
    done = bash(one, "--resume")
    assert (done.returncode, b"this trains on one" in done.stderr) == (64, True)


def test_machines_fill_the_same_file_at_once(tmp_path):
    """In a folder that they share: none may take away what another is about to move to its place."""
    run, _ = resuming(tmp_path)
    (run.path / "c.yaml").write_text('a: "@TUI_TRAIN_RUN_DIR@"\n')
    text = run.script.read_text()
    assert "launch " in text
    run.script.write_text(text.replace("  launch ", "  fill c.yaml c.filled.yaml null\n  launch ", 1))
    slow = tmp_path / "bin" / "mv"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\ncase $* in *filled*) sleep 1 ;; esac\nexec {shutil.which("mv")} "$@"\n')
    slow.chmod(0o755)
    environment = plain_environment(STUB_NOTES=str(tmp_path / "notes"))
    environment["PATH"] = f"{slow.parent}:{os.environ['PATH']}"
    started = [
        subprocess.Popen(
            ["bash", run.script, f"--node-rank={rank}"], env=environment, stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    assert [process.wait(timeout=60) for process in started] == [0, 0]
    assert [path.name for path in run.path.glob("c.filled*")] == ["c.filled.yaml"]
