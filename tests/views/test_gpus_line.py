"""The GPUs of a machine in a few words."""

import msgspec
import pytest
from pilot import BARE, CARDS, CPU, CUDA, HOST, SEED

from tui_train.facts.types import FactGap, Facts, GpuProcess
from tui_train.views.gpus_line import gpus_line

BUSY = msgspec.structs.replace(CARDS[0], processes=(GpuProcess(7, "python", "ann", 9 << 30),))
OLD = msgspec.structs.replace(CARDS[1], compute_capability="3.5")


@pytest.mark.parametrize(
    ("cards", "toolchains", "words"),
    [
        (CARDS, (BARE, CUDA), "2 of 3 GPUs can train"),
        (CARDS[:1], (CUDA,), "1 GPU can train"),
        ((BUSY, OLD, CARDS[2]), (CUDA,), "2 of 3 GPUs can train, 1 busy"),
        ((OLD,), (CUDA,), "the GPU cannot train"),
        ((OLD, OLD), (CUDA,), "0 of 2 GPUs can train"),
        (CARDS, (), "3 GPUs"),
        ((BUSY, CARDS[2]), (BARE,), "2 GPUs, 1 busy"),
    ],
)
def test_it_counts_the_gpus_that_can_train_and_the_busy_ones(cards, toolchains, words):
    machine = msgspec.structs.replace(SEED, gpus=cards)
    assert gpus_line(Facts(machine=machine, toolchains=toolchains)) == words


def test_without_gpus_it_says_whether_there_may_be_some():
    hidden = msgspec.structs.replace(HOST, gaps=(FactGap("the driver", "is not loaded", "Load it.", hides=True),))
    for machine, words in ((HOST, "no GPU"), (CPU, "no GPU"), (hidden, "no usable GPU")):
        assert gpus_line(Facts(machine=machine)) == words
