"""The GPUs of a machine in a few words."""

import msgspec
import pytest
from pilot import BARE_PYTHON, CPU_MACHINE, CUDA_PYTHON, MACHINE_WITHOUT_CARDS, THREE_CARD_MACHINE, THREE_CARDS

from tui_train.facts.types import FactGap, Facts, GpuProcess
from tui_train.views.gpus_line import gpus_line

BUSY = msgspec.structs.replace(THREE_CARDS[0], processes=(GpuProcess(7, "python", "ann", 9 << 30),))
OLD = msgspec.structs.replace(THREE_CARDS[1], compute_capability="3.5")


@pytest.mark.parametrize(
    ("cards", "toolchains", "words"),
    [
        (THREE_CARDS, (BARE_PYTHON, CUDA_PYTHON), "2 of 3 GPUs recommended"),
        ((OLD, *THREE_CARDS[::2]), (CUDA_PYTHON,), "2 of 3 GPUs can train"),
        (THREE_CARDS[:1], (CUDA_PYTHON,), "1 GPU can train"),
        ((BUSY, OLD, THREE_CARDS[2]), (CUDA_PYTHON,), "2 of 3 GPUs can train, 1 busy"),
        ((OLD,), (CUDA_PYTHON,), "the GPU cannot train"),
        ((OLD, OLD), (CUDA_PYTHON,), "0 of 2 GPUs can train"),
        (THREE_CARDS, (), "3 GPUs"),
        ((BUSY, THREE_CARDS[2]), (BARE_PYTHON,), "2 GPUs, 1 busy"),
    ],
)
def test_it_counts_the_gpus_that_can_train_or_are_recommended_and_the_busy_ones(cards, toolchains, words):
    machine = msgspec.structs.replace(THREE_CARD_MACHINE, gpus=cards)
    assert gpus_line(Facts(machine=machine, toolchains=toolchains)) == words


def test_without_gpus_it_says_whether_there_may_be_some():
    hidden = msgspec.structs.replace(
        MACHINE_WITHOUT_CARDS, gaps=(FactGap("the driver", "is not loaded", "Load it.", hides=True),)
    )
    for machine, words in (
        (MACHINE_WITHOUT_CARDS, "no GPU: the CPU trains"),
        (CPU_MACHINE, "no GPU: the CPU trains"),
        (hidden, "no usable GPU"),
    ):
        assert gpus_line(Facts(machine=machine)) == words
