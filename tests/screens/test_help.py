"""Help that keeps its tables, dialogs without boxes, and a palette that finds fields and steps."""

import pytest
from pilot import SEED, keys, settle, shows
from support import sample
from textual.widgets import Input
from tui_train.screens.help_lines import help_lines
from tui_train.screens.home.screen import Home
from tui_train.screens.recipe.screen import Recipe
from tui_train.screens.run.screen import RunScreen

from tui_train.profile import fields
from tui_train.wizard import wizard


def drawn(screen, width):
    """The help of a screen as lines."""
    return [line.plain for line in help_lines(screen.HELP, (), width)]


@pytest.mark.parametrize("width", [30, 44, 58, 78, 118, 198])
@pytest.mark.parametrize("screen", [Home, Recipe, RunScreen], ids=lambda screen: screen.__name__)
def test_help_fits_and_loses_nothing(screen, width):
    lines = drawn(screen, width)
    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(lines).replace("─", " ").split())
    for word in screen.HELP.split():
        assert word in words


@pytest.mark.parametrize("width", [58, 78, 118])
def test_a_key_stands_alone_in_its_column(width):
    lines = drawn(RunScreen, width)
    (row,) = (line for line in lines if line.startswith("w ") and "wrap" in line)
    column = row.index("wrap")
    others = [line for line in lines if line.startswith(("f ", "n N ", "Esc "))][-3:]
    assert len(others) == 3
    for other in others:
        assert other[column - 1] == " " != other[column]


@pytest.mark.parametrize("size", sample([(60, 24), (80, 24), (200, 50)], 3, 1), ids=str)
async def test_help_of_a_step_explains_its_fields(machine, size):
    machine(SEED)
    async with wizard().run_test(size=size) as pilot:
        await keys("enter", "enter", "enter", "f1", "end")(pilot)
        assert "recipe.lr_base_batch" in shows(pilot) or "ladder.consent" in shows(pilot)
        await keys("escape")(pilot)
        assert type(pilot.app.screen) is Recipe


@pytest.mark.parametrize("size", [(60, 24), (80, 24)], ids=str)
async def test_a_question_is_no_box(machine, size):
    async with wizard().run_test(size=size) as pilot:
        await keys("enter", "enter", "enter", "enter", "s")(pilot)
        shown = shows(pilot)
        assert "Save the profile" in shown
        assert not {*shown} & {*"╭╮╰╯┌┐└┘│"}
        assert isinstance(pilot.app.focused, Input)


@pytest.mark.whole
async def test_the_palette_goes_to_a_field_and_to_a_step(machine):
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter")(pilot)
        offered = {command.title.partition(" (")[0] for command in app.get_system_commands(app.screen)}
        assert {"Go to Recipe", "Go to Hardware", "Learning rate", "Seed"} <= offered
        for field in ("Seed", "Training data", "Learning rate"):
            (command,) = (one for one in app.get_system_commands(app.screen) if one.title.startswith(f"{field} ("))
            command.callback()
            await pilot.pause(0.4)
            await settle(pilot)
            assert fields.field(app.screen.form.cursor).label == field
        await keys("ctrl+p", *"learningr", "enter")(pilot)
        await pilot.pause(0.4)
        assert app.screen.form.cursor == "recipe.learning_rate"
