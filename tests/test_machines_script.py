"""Several machines: where each one starts, the script finds the interface that leads to the first."""

import pytest
from support import bash, exported, facts, plain_environment, profile

PROFILE = {
    "trainer.launcher": "torchrun",
    "hardware.processes": 1,
    "nodes.count": 2,
    "recipe.global_batch": 16,
    "trainer.python": "/usr/bin/env",
}


def run_of(tmp_path, address, **more):
    return exported(
        tmp_path / "run", profile({**PROFILE, "nodes.address": address, **more}), facts(python="/usr/bin/env")
    )[0]


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


def exported_words(run, environment, rank=1):
    done = bash(run, "--dry-run", f"--node-rank={rank}", env=environment)
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
    wanted = [f"NCCL_SOCKET_IFNAME=={interface}", f"GLOO_SOCKET_IFNAME={interface}"]
    assert told == (wanted if interface else [])


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
    [("127.0.1.1", "first is 127.0.1.1 on this machine"), ("", "no address is known here for first")],
)
def test_an_address_that_leads_nowhere_is_refused(tmp_path, network, known, said):
    """Debian's /etc/hosts gives a machine's own name the address 127.0.1.1: the others would wait for minutes."""
    done = bash(run_of(tmp_path, "first"), "--dry-run", "--node-rank=0", env=network(known))
    assert done.returncode == 69
    assert said in done.stderr.decode()
    assert "IP address" in done.stderr.decode()
