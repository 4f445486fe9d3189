"""Every form in which training scripts print their progress, and what only looks like one."""

import pytest

from tests.log_forms import FALSE_FRIENDS, FORMS
from tui_train.supervisor.lines import fold
from tui_train.supervisor.progress import Progress, advance


def read(lines):
    return advance(Progress(), [shown for line in lines for shown in fold(line.encode())])


def points(curve):
    return [(point.step, point.loss) for point in curve.points()]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read(form):
    lines, *expected = FORMS[form]
    found = read(lines)
    assert [found.step, found.steps, points(found.curve), points(found.evaluations)] == expected


@pytest.mark.parametrize("line", FALSE_FRIENDS)
def test_what_only_looks_like_progress_gives_no_loss_of_the_training(line):
    assert points(read([line]).curve) == []
