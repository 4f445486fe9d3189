"""What the child that watches cards says of them, with a driver library that is a fake."""

import json
import os
import subprocess
import sys

import pytest
from fake_driver import driver_environment
from support import UUIDS, plain_environment

from tui_train.channel.runner_zip import runner_zip
from tui_train.runner.gpus.card_watch import CardUsage, ProcessOnCard

CARD = "[card]\nuuid = {}\nname = RTX\nmemory = 24576 MiB\nused = {} MiB\n{}\n"
GIB = 2**30


@pytest.fixture
def look(tmp_path):
    """Return the first look at cards of a machine, by their UUIDs."""
    (tmp_path / "runner.pyz").write_bytes(runner_zip())

    def first(cards, *uuids):
        machine = tmp_path / "machine.txt"
        machine.write_text("".join(CARD.format(*card) for card in cards))
        words = [sys.executable, "-I", "-S", str(tmp_path / "runner.pyz"), "watch", str(os.getpid()), *uuids]
        environment = plain_environment(**driver_environment(str(machine)))
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as child:
            line = child.stdout.readline()
            child.kill()
        return {
            uuid: CardUsage(
                card["number"], card["total"], card["free"], tuple(ProcessOnCard(*user) for user in card["users"])
            )
            for uuid, card in json.loads(line)["cards"].items()
        }

    return first


@pytest.mark.parametrize(
    ("used", "processes", "pids", "is_free"),
    [
        (2, (), (), True),
        (2, ("5000001 compute ? python train.py",), (5000001,), False),
        (9000, ("5000001 compute 400 MiB python", "5000002 compute 8000 MiB python"), (5000001, 5000002), False),
        (300, ("5000001 graphics 250 MiB Xorg", "5000002 both 50 MiB gnome-shell"), (), True),
        (90, ("5000001 compute 30 MiB nvidia-cuda-mps-server",), (), True),
        (20000, (), (), False),
    ],
)  # fmt: skip
def test_a_card_is_free_where_no_process_computes_on_it(look, used, processes, pids, is_free):
    card = look([(UUIDS[0], used, "\n".join(f"process = {each}" for each in processes))], UUIDS[0])[UUIDS[0]]
    assert tuple(user.pid for user in card.users) == pids
    assert (card.memory_if_free is not None) == is_free


def test_cards_have_the_numbers_of_nvidia_smi_and_one_that_is_gone_is_none(look):
    cards = look([(UUIDS[0], 2, ""), (UUIDS[1], 2, "")], UUIDS[1], "GPU-gone")
    assert {uuid: card.number for uuid, card in cards.items()} == {UUIDS[1]: 1}


def test_a_process_that_can_be_seen_is_named_by_its_first_words_and_no_secret(look):
    words = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "--token=secret", "secret"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        (user,) = look([(UUIDS[0], 2, f"process = {process.pid} compute 1 MiB python")], UUIDS[0])[UUIDS[0]].users
        process.stdin.close()
    assert user.command.startswith("python")
    assert not [word for word in ("secret", "import sys") if word in user.command]
    assert user.since > 0


def test_a_card_that_shares_the_memory_of_its_machine_may_have_enough():
    assert CardUsage(0, None, None).memory_if_free > 10**6 * GIB
    assert CardUsage(0, None, None, (ProcessOnCard(5),)).memory_if_free is None
