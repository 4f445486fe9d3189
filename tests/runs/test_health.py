"""Worries: a loss that is none and a standstill are said; what is well is not."""

import math
import os
import time

import pytest

from tui_train.runner.logs import curve
from tui_train.runner.logs.curve import LossPoint
from tui_train.runner.logs.progress import Progress, advance_progress
from tui_train.runs import follow
from tui_train.runs.follow import LogSilence
from tui_train.runs.health import health_problems


def losses(*values, gradient_norm=None):
    points = (LossPoint(step, value) for step, value in enumerate(values, 1))
    return Progress(curve=curve.build_loss_curve(points), gradient_norm=gradient_norm)


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (losses(), ""),
        (losses(3.0, 2.0), ""),
        (losses(3.0, math.nan, 2.0), ""),
        (losses(3.0, math.nan, math.nan), "the loss is NaN since step 2"),
        (losses(3.0, math.inf), "the loss is infinite since step 2"),
        (losses(3.0, math.inf, math.nan), "the loss is NaN or infinite since step 2"),
        (losses(0.0, 0.0), ""),
        (losses(0.0, 0.0, 0.0), "the loss is 0 since step 1"),
        (losses(2.0, 0.0, 0.0, 0.0, gradient_norm=0.0), "the loss is 0 since step 2"),
        (losses(2.0, 0.0, 0.0, 0.0, gradient_norm=math.nan), "the loss is 0 since step 2, and its gradients are NaN"),
        # A regression that has converged.
        (losses(1.0, 0.0, 0.0, 0.0), ""),
        (losses(1.0, 0.0, 0.0, 0.0, gradient_norm=0.2), ""),
        (losses(1.0, 0.001, 0.0, 0.0, 0.0, gradient_norm=0.0), ""),
    ],
)
def test_a_loss_that_is_none(progress, said):
    found = health_problems(progress, 0, None)
    assert bool(found) == bool(said)
    assert not said or found[0].startswith(said)
    assert not health_problems(progress, 0, None, is_diagnosed=True)


@pytest.mark.parametrize(
    ("norm", "said"), [("0.3", ""), ("nan", ""), ("0", "all answers to a prompt got the same reward")]
)
def test_a_loss_of_0_is_usual_where_rewards_are_learned_from(norm, said):
    lines = (f"{{'loss': '0', 'grad_norm': '{norm}', 'reward': '0.5', 'epoch': '0.{n}'}}" for n in range(1, 5))
    progress = advance_progress(Progress(), lines)
    assert progress.curve.size
    found = " ".join(health_problems(progress, 0, None))
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("quiet", "idle", "said"),
    [
        (2, None, ()),
        (7, None, ("no output for 7 min",)),
        (7, 0.5, ()),
        (7, 6.9, ("no output for 7 min, its GPUs idle for 6 min",)),
        (1, 60.0, ()),
    ],
)
def test_a_standstill(quiet, idle, said):
    assert health_problems(Progress(), quiet, idle) == said


def test_silence_is_that_of_the_log(tmp_path):
    log, now = tmp_path / "log", time.time()
    assert LogSilence(log, now - 130).minutes() == 2
    log.write_bytes(b"")
    assert LogSilence(log, now - 130).minutes() == 0
    os.utime(log, (now - 400, now - 400))
    assert LogSilence(log, now - 1000).minutes() == 6
    assert LogSilence(log, now - 130).minutes() == 2


@pytest.mark.parametrize("by", [7200, -7200])
def test_a_clock_that_is_set_makes_no_silence(tmp_path, monkeypatch, by):
    log, real, passed = tmp_path / "log", time.time, time.monotonic
    log.write_bytes(b"")
    silence = LogSilence(log, real() - 1000)
    monkeypatch.setattr(follow.time, "time", lambda: real() + by)
    assert silence.minutes() == 0
    monkeypatch.setattr(follow.time, "monotonic", lambda: passed() + 200)
    assert silence.minutes() == 3
    log.write_bytes(b"a line\n")
    assert silence.minutes() == 0
