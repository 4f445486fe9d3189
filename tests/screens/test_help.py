"""Help that keeps its tables, dialogs without boxes, and a palette that finds fields and steps."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import pytest
from pilot import (
    PRETRAIN_KEY,
    finished_run,
    open_wizard,
    press_keys,
    screen_text,
    until_true,
    wait_for_text,
    wait_for_workers,
)
from support import sample
from textual.actions import parse
from textual.app import App
from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen
from tui_train.screens.help_lines import help_lines
from tui_train.screens.home.screen import HomeScreen
from tui_train.screens.recipe.screen import RecipeScreen
from tui_train.screens.run.screen import RunScreen
from tui_train.screens.widgets.text_layout import heading, keep_titles_with_text

from tui_train import screens
from tui_train.profile import fields


def drawn(screen, width):
    """The help of a screen as lines."""
    return [line.plain for line in help_lines(screen.HELP, (), width)]


def own_nodes() -> Iterator[type[DOMNode]]:
    """Yield the app, the screens and the widgets of the wizard."""
    for module in pkgutil.walk_packages(screens.__path__, f"{screens.__name__}."):
        for node in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(node) and issubclass(node, DOMNode) and node.__module__ == module.name:
                yield node


def test_each_key_has_its_action():
    """Textual does nothing, and says nothing, where a key's action has no method of its name."""
    nodes = tuple(own_nodes())
    for node in nodes:
        for binding in Binding.make_bindings(vars(node).get("BINDINGS", ())):
            target, name, _ = parse(binding.action)
            kind = {"app": App, "screen": Screen}.get(target)
            having = [each for each in nodes if issubclass(each, kind)] if kind else [node]
            methods = {f"action_{name}", f"_action_{name}"}
            assert any(methods & {*dir(each)} for each in having), f"{node.__name__}: {binding}"


@pytest.mark.parametrize("width", [30, 44, 58, 78, 118, 198])
@pytest.mark.parametrize("screen", [HomeScreen, RecipeScreen, RunScreen], ids=lambda screen: screen.__name__)
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


@pytest.mark.parametrize("width", [78, 118, 158])
def test_what_a_key_does_goes_on_under_its_words_in_lines_that_are_read_well(width):
    lines = drawn(RecipeScreen, width)
    (first,) = (number for number, line in enumerate(lines) if line.startswith("F3 "))
    (after,) = (number for number, line in enumerate(lines) if line.startswith("F4 "))
    assert after - first in {3, 4}
    for line in lines[first + 1 : after]:
        assert line.startswith(" " * 4)
        assert line[4] != " "
    told = [line for line in lines if not line.endswith("─")]
    assert max(map(len, told)) <= min(width, 104)
    assert len(lines[first]) > min(width, 104) - 12, "the line is filled"


@pytest.mark.parametrize(("height", "title_at"), [(9, 5), (7, 7), (6, 6), (5, 5), (4, 5)])
def test_a_page_of_help_ends_on_no_title(height, title_at):
    lines = [*map(Content, ("a", "b", "c", "d", "")), heading("Title", "", 40), Content("e"), Content("f")]
    shown = keep_titles_with_text(lines, height)
    assert [line.plain for line in shown if line.plain] == [line.plain for line in lines if line.plain]
    assert [line.plain.startswith("Title") for line in shown].index(True) == title_at


@pytest.mark.parametrize(("size", "scrolls"), [((80, 24), True), ((160, 60), False)], ids=str)
async def test_help_names_the_keys_that_scroll_where_they_do(machine, size, scrolls):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "f1", size=size) as pilot:
        await until_true(pilot, lambda: ("↑↓ Scroll" in screen_text(pilot)) is scrolls)
        assert "Esc Close" in screen_text(pilot)


@pytest.mark.parametrize("size", sample([(60, 24), (80, 24), (200, 50)], 3, 1), ids=str)
async def test_help_of_a_step_explains_its_fields(seed, size):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "f1", "end", size=size) as pilot:
        assert "recipe.lr_base_batch" in screen_text(pilot) or "ladder.consent" in screen_text(pilot)
        await press_keys("escape")(pilot)
        assert type(pilot.app.screen) is RecipeScreen


@pytest.mark.whole
async def test_the_palette_goes_to_a_field_and_to_a_step(machine):
    async with open_wizard(PRETRAIN_KEY) as pilot:
        app = pilot.app
        for wanted in ("Seed", "Training data", "Learning rate"):
            (command,) = (each for each in app.get_system_commands(app.screen) if each.title.startswith(f"{wanted} ("))
            command.callback()
            await until_true(pilot, lambda label=wanted: fields.get_field(app.screen.form.cursor).label == label)
            await wait_for_workers(pilot)
        await press_keys("ctrl+p", *"learningr", "enter")(pilot)
        await until_true(pilot, lambda: app.screen.form.cursor == "recipe.learning_rate")


async def test_the_palette_finds_a_command_by_its_words_before_a_key_of_that_name(machine, tmp_path):
    async with open_wizard(run=finished_run(tmp_path)) as pilot:
        assert any("(Home)" in command.title for command in pilot.app.get_system_commands(pilot.app.screen))
        await press_keys("ctrl+p", *"home")(pilot)
        await wait_for_text(pilot, "Go to Home")
        await press_keys("enter")(pilot)
        await until_true(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))


async def test_the_palette_leaves_out_the_keys_with_which_one_types_and_scrolls(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter") as pilot:
        titles = [command.title for command in pilot.app.get_system_commands(pilot.app.screen)]
        assert "Second estimate (F3)" in titles
        assert not [
            title for title in titles if title.startswith(("Select", "Delete", "Move cursor", "Scroll", "Page"))
        ]
        await press_keys("ctrl+p")(pilot)
        await until_true(pilot, lambda: re.search(r"Second estimate {2,}F3", screen_text(pilot)))
