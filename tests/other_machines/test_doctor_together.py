"""The communication test of two hosts over ssh, and what stands between them."""

import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import netns
import pytest
from support import wait_until

pytestmark = [pytest.mark.training, pytest.mark.whole, pytest.mark.xdist_group("netns")]

ROOT = Path(__file__).parents[2]
TWO_HOSTS = (
    "--set=nodes.hosts=gpu-a,gpu-b", "--set=hardware.device=cpu", "--set=hardware.processes=1",
    f"--set=trainer.python={sys.executable}",
)  # fmt: skip


@pytest.fixture
def pair():
    with netns.short_folder() as folder, netns.run_two_hosts(folder) as made:
        yield made


def started(pair, *words):
    """The doctor on the first host, of a training on both."""
    environment, hosts, folder = pair
    places = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    return subprocess.Popen(
        hosts[0].words(sys.executable, "-m", "tui_train", "doctor", "quickstart", *TWO_HOSTS, "--json", *words),
        env=environment | places | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def outcome(process, pair, code):
    """What it printed, once it has ended by itself and left nothing."""
    _, hosts, folder = pair
    out, said = process.communicate(timeout=150)
    assert process.returncode == code, out + said
    wait_until(lambda: not netns.training_processes(hosts), 30)
    assert not [*(folder / "data").rglob("communication-test*")]
    return json.loads(out) if out else said


def test_two_hosts_reach_each_other(pair):
    made = outcome(started(pair), pair, 0)
    assert (made["result"]["works"], made["result"]["processes"], made["cures"]) == (True, 2, [])


def test_a_closed_port_of_the_rendezvous_is_named(pair):
    netns.require_iptables()
    _, hosts, _ = pair
    hosts[0].run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "29500", "-j", "REJECT")
    said = outcome(started(pair), pair, 69)
    assert "gpu-b does not reach port 29500" in str(said)


def test_closed_random_ports_are_named_with_their_machine(pair):
    netns.require_iptables()
    _, hosts, _ = pair
    # Gloo's second process goes to the first one.
    netns.close_random_ports(hosts[0], but=(29500,), target="DROP")
    # With an interface named, nothing is tried before the start.
    made = outcome(started(pair, "--set=communication.interface=eth0"), pair, 69)
    assert "gpu-b gets no answer from" in made["result"]["cause"]
    assert "Open all TCP ports" in made["result"]["remedy"]


def test_the_wrong_interface_is_named(pair):
    made = outcome(started(pair, "--set=communication.interface=lo"), pair, 69)
    assert "interface" in made["result"]["cause"] + made["result"]["remedy"], made


@contextmanager
def cut_once_they_have_met(pair):
    """Pull the cable of the second host as soon as the processes exchange data."""
    _, hosts, folder = pair

    def cut():
        wait_until(lambda: any("process group" in log.read_text() for log in folder.rglob("attempt-1.log")), 100)
        hosts[1].unplug()

    cutting = threading.Thread(target=cut)
    cutting.start()
    yield
    cutting.join()
    hosts[1].unplug(off=False)


def test_a_link_that_is_cut_ends_in_time(pair):
    process = started(pair)
    with cut_once_they_have_met(pair):
        out, said = process.communicate(timeout=200)
    made = json.loads(out)
    assert process.returncode == 69, said
    assert made["result"]["works"] is False
    assert made["result"]["cause"]
