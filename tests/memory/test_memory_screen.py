"""The memory that the screens show is what `estimate` judges by."""

import re

import msgspec
import pytest
from support import GIB, facts, gpu, profile

from screens.widgets.memory_lines import memory_lines
from tui_train.base.text import percent, size_text
from tui_train.memory.predict import predict_memory
from tui_train.memory.trace import CountedMemory
from tui_train.setup.setup import Setup

WHERE = facts()
HOST = msgspec.structs.replace(WHERE, machine=msgspec.structs.replace(WHERE.machine, memory_available=60 * GIB))
LARGE = {"recipe.hidden_size": 2048, "recipe.heads": 16, "recipe.layers": 16}


@pytest.mark.parametrize(
    ("values", "where"),
    [
        (LARGE, facts(gpus=(gpu(0),))),
        (LARGE, facts(gpus=(gpu(0), gpu(1)))),
        (LARGE | {"hardware.processes": 2, "hardware.device": "cpu", "trainer.launcher": "torchrun"}, HOST),
    ],
)
@pytest.mark.parametrize("width", [58, 78, 118])
def test_what_is_reserved_is_shown_and_its_parts_add_up_to_it(values, where, width):
    found = predict_memory(Setup(profile(values), where))
    _, bar, *keys = (line.plain for line in memory_lines(found, (), None, note="", width=width))
    key = " ".join(keys)
    verdict = found.place_verdicts[0][1]
    error = percent(found.estimate.relative_error)
    assert f"{size_text(verdict.reserved_bytes)} ±{error} of {size_text(verdict.available_bytes)}" in bar
    assert ("  needs " in bar, " free  " in bar) == (width >= 70,) * 2
    assert bar.endswith(verdict.band)
    assert len(bar) <= width
    parts = [float(held) for held in re.findall(r"([\d.]+) GiB", key)]
    if len(parts) == len(re.findall("GiB|MiB", key)) == 4:
        assert sum(parts) == pytest.approx(verdict.reserved_bytes / GIB, abs=0.2)


@pytest.mark.parametrize(("width", "line_count"), [(118, 1), (58, 2), (34, 4)])
def test_each_part_of_the_bar_is_named_in_more_lines_where_one_is_too_short(width, line_count):
    found = predict_memory(Setup(profile(LARGE), facts(gpus=(gpu(0), gpu(1)))))
    _, _, *key = (line.plain for line in memory_lines(found, (), None, note="", width=width))
    assert len(key) == line_count
    assert max(map(len, key)) <= width
    assert [mark for mark in "█▓▒░" if mark in " ".join(key)] == ["█", "▓", "▒", "░"]
    assert "activations 166 MiB" in " ".join(key)


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (CountedMemory(phases={"step": GIB}), "a second estimate (F3): 1.0 GiB ±10 %; judged by the first"),
        (CountedMemory(phases={"step": 900 * GIB}), "a second estimate (F3) is more: 900.0 GiB ±10 %"),
        (CountedMemory(problem="no torch"), "no second estimate: no torch"),
    ],
)
def test_beside_a_count_it_is_said_which_figure_counts(counted, said):
    found = predict_memory(Setup(profile(LARGE), facts(gpus=(gpu(0), gpu(1)))))
    assert f"Memory per GPU  {said} " in memory_lines(found, (), counted, note="estimated", width=100)[0].plain
