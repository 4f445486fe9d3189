"""Which GPUs of the saved hosts are free: each host as it answers, its cards with who uses them, since when."""

import getpass
import json
import subprocess
import sys
import time

import pytest
from pilot import PRETRAIN_KEY, THREE_CARD_MACHINE, open_wizard, screen_text, wait_for_text, wait_for_workers
from ssh import lead_ssh_back
from support import run_cli

from tests.fake_driver import driver_environment
from tui_train.actions.host_cards import read_cards_of_hosts
from tui_train.profile import hosts
from tui_train.views.gpus_line import gpus_line
from tui_train.views.host_cards import free_cards_summary

_CARD = """
[card]
uuid = GPU-{number}
name = NVIDIA H100
compute = 9.0
memory = 81559 MiB
used = {used} MiB
"""


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Eight H100 behind the name `lab`: on four of them a process trains, which is given back."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)", "--token=secret"]) as training:
        cards = [_CARD.format(number=number, used=30000 if number < 4 else 10) for number in range(8)]
        used = f"process = {training.pid} compute 29000 MiB python\n"
        machine = tmp_path / "machine.txt"
        machine.write_text("driver = 580.95.05\n" + "".join(card + used * (n < 4) for n, card in enumerate(cards)))
        driver = " ".join(f"{name}={value}" for name, value in driver_environment(machine).items())
        lead_ssh_back(tmp_path / "home", tmp_path / "client", monkeypatch, driver)
        hosts.save_host("lab", "ann@gpu-box")
        yield training
        training.kill()


def test_each_card_is_free_or_says_who_uses_it_with_what_since_when(lab):
    time.sleep(1)
    hosts.save_host("dead")
    lines = run_cli("hosts").stdout.splitlines()
    assert sorted(line for line in lines if not line.startswith(" ")) == [
        "dead: not known: dead did not answer: no route to host",
        f"lab (ann@gpu-box): 4 of 8 GPUs free, in use by {getpass.getuser()}",
    ]
    (used, *_), free = ([line for line in lines if line.startswith(f"  GPU {number} ")] for number in (0, 7))
    assert free == ["  GPU 7  H100, 79.6 GiB free of 79.6 GiB: free"]
    assert used.startswith("  GPU 0  H100, 50.4 GiB free of 79.6 GiB: ")
    assert f": {getpass.getuser()}: python" in used
    assert f"(pid {lab.pid}), 28.3 GiB, for " in used
    assert "secret" not in used
    _, found = json.loads(run_cli("hosts", "--json").stdout)
    assert [gpu["free"] for gpu in found["gpus"]] == [False] * 4 + [True] * 4
    assert found["gpus"][0]["processes"][0]["seconds"] >= 1


def test_no_host_waits_for_the_slowest(lab):
    del lab
    hosts.save_host("slow")
    answers = read_cards_of_hosts(["slow", "lab"])
    first = next(answers)
    assert (first.host, free_cards_summary(first.facts)) == ("lab", f"4 of 8 GPUs free, in use by {getpass.getuser()}")
    assert gpus_line(first.facts) == "8 GPUs, 4 busy"
    begun = time.monotonic()
    answers.close()
    assert time.monotonic() - begun < 5, "who has seen enough does not wait for it either"


async def test_the_list_of_machines_fills_in_as_the_hosts_answer(lab, machine):
    del lab
    machine(THREE_CARD_MACHINE)
    for name in ("dead", "slow"):
        hosts.save_host(name)
    async with open_wizard(PRETRAIN_KEY, size=(120, 40)) as pilot:
        await pilot.press("h")
        user = getpass.getuser()
        await wait_for_text(pilot, f"4 of 8 GPUs free, in use by {user}", "dead  no answer", "slow", during=True)
        assert "slow  " not in screen_text(pilot).replace("slow   ", "")
        await pilot.press("escape")
        await wait_for_workers(pilot, 10)
