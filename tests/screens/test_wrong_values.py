"""What the steps do with values that cannot be: what they say of them, what F2 makes of them, and how one gets back."""

from typing import Any

import pytest
from msgspec.structs import replace
from pilot import CUDA_PYTHON, PRETRAIN_KEY, THREE_CARD_MACHINE, go_to_fields, press_keys, screen_text, wait_for_workers
from support import facts, profile
from textual.events import Key
from tui_train.screens.messages import ValueChosen
from tui_train.screens.widgets.dialogs import HelpScreen
from tui_train.screens.widgets.form.form import Form
from tui_train.screens.widgets.hint import Hint
from tui_train.screens.widgets.key_bar import KeyBar

from tui_train.facts.machine import probe
from tui_train.memory.predict import predict_memory
from tui_train.profile import fields
from tui_train.setup.setup import Setup
from tui_train.wizard import make_wizard

TO_RECIPE = (PRETRAIN_KEY, "enter", "enter")
OWN = {"trainer.kind": "script", "trainer.script": "/x/sft.py", "trainer.preset": "custom", "trainer.model": "gpt2"}


@pytest.fixture
def app(machine: Any) -> Any:
    machine(THREE_CARD_MACHINE)
    return make_wizard()


def hint(app: Any) -> str:
    return str(app.screen.query_one(Hint).render())


def footer(app: Any) -> str:
    return str(app.screen.query_one(KeyBar).render())


async def choose(pilot: Any, **values: Any) -> None:
    for key, value in values.items():
        pilot.app.screen.post_message(ValueChosen(key.replace("__", "."), value))
        await wait_for_workers(pilot)


# What is read


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("recipe.steps", "0", 1),
        ("recipe.steps", "-3", 1),
        ("recipe.steps", "1.5k", 1500),
        ("recipe.steps", "10,000", 10000),
        ("recipe.steps", "5?q", 5),
        ("recipe.steps", "1e3", 1000),
        pytest.param("recipe.steps", "9" * 300, None, id="long"),
        ("recipe.micro_batch", "70000", 65536),
        ("recipe.micro_batch", "1e9", None),
        pytest.param("recipe.steps", "9" * 400, None, id="beyond all numbers"),
        ("recipe.steps", "many", None),
        ("recipe.learning_rate", "0,003", 0.003),
        ("recipe.learning_rate", "3e-4x", 3e-4),
        ("trainer.arguments", '--name "two words', ("--name", "two words")),
        ("trainer.environment", "no equals", None),
    ],
)
def test_the_nearest_value_is_what_a_text_seems_to_mean(key, text, value):
    assert fields.most_likely_meant_value(fields.get_field(key), text) == value


@pytest.mark.whole
async def test_f2_takes_the_nearest_value_or_the_one_before(app):
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys(*TO_RECIPE)(pilot)
        await go_to_fields(pilot, "recipe.steps")
        await press_keys("0")(pilot)
        assert "F2 Use 1" in footer(app)
        await press_keys("f2")(pilot)
        assert app.profile.recipe.steps == 1
        assert "F2" not in footer(app)
        await press_keys("end", "x", "up", "f2")(pilot)
        assert app.screen.query_one(Form).cursor == "recipe.steps", "F2 went where it was needed"
        assert (app.profile.recipe.steps, app.screen.query_one(Form).state.unparsable_row_key) == (1, "")
        app.screen.form.go_to_row("recipe.micro_batch")
        await press_keys("1", "e", "9")(pilot)
        assert "65536" not in footer(app), "the largest that is taken is not what was meant"
        await press_keys("f2")(pilot)
        await go_to_fields(pilot, "recipe.global_batch")
        await press_keys("-", "3")(pilot)
        assert "Global batch is -3" in hint(app)


@pytest.mark.whole
async def test_a_fix_is_offered_by_the_footer_alone_where_an_error_is_long(app):
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys(*TO_RECIPE)(pilot)
        await choose(pilot, recipe__global_batch=15)
        (line,) = (line for line in screen_text(pilot).splitlines() if line[1:].startswith("Global batch"))
        assert "✗" in line
        assert "F2" not in line
        assert "F2" in footer(app)
        await press_keys("f2")(pilot)
        await choose(pilot, recipe__global_batch=17)
        await press_keys("f2")(pilot)
        assert len(app._notifications) == 1, "only the last change can be taken back"
        await press_keys("ctrl+z")(pilot)
        assert "Taken back" in hint(app)
        app.screen.form.go_to_row("recipe.precision")
        await wait_for_workers(pilot)
        assert "bf16 needs" in hint(app)


@pytest.mark.whole
async def test_f2_is_there_only_where_it_fixes_what_is_said(app):
    """A file that is missing cannot be made up, and another error's fix is not offered for it."""
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys(*TO_RECIPE[:2])(pilot)
        await choose(pilot, trainer__data=("/none/at/all.txt",), recipe__global_batch=15)
        await go_to_fields(pilot, "trainer.data")
        assert "training data: /none/at/all.txt does not exist" in hint(app)
        (line,) = (line for line in screen_text(pilot).splitlines() if "✗" in line and "Training data" in line)
        assert line.count("/none/at/all.txt") == 1
        assert "does not exist" in line
        assert "F2" not in footer(app)
        await press_keys("f2")(pilot)
        assert app.profile.recipe.global_batch == 15


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_an_error_is_in_its_row_and_in_full_once(app, size, monkeypatch):
    """In Findings, where they stand beside the form; else in the hint. No line under the row repeats it."""
    missing = "/none/at/all.txt"
    tuning = replace(CUDA_PYTHON, packages=dict.fromkeys(("trl", "peft", "datasets", "accelerate"), "1.16.0"))
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (tuning,))
    async with app.run_test(size=size) as pilot:
        await press_keys(*TO_RECIPE[:2])(pilot)
        await choose(pilot, trainer__kind="finetune", trainer__model="gpt2", trainer__data=(missing,))
        await go_to_fields(pilot, "trainer.data")
        lines = [line[: 80 if size[0] > 100 else None] for line in screen_text(pilot).splitlines()]
        (row,) = (number for number, line in enumerate(lines) if "Training data " in line and "✗" in line)
        assert "does not exist" not in lines[row + 1]
        are_findings_beside = size[0] > 100
        assert ("does not exist" in " ".join(hint(app).split())) is not are_findings_beside
        assert screen_text(pilot).count("does not exist") == 2
        await press_keys("enter")(pilot)
        assert "Enter goes on once this is fixed." in hint(app)
        assert ("does not exist" in " ".join(hint(app).split())) is not are_findings_beside


# What is not said while something is wrong


@pytest.mark.whole
@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_no_estimate_stands_beside_what_cannot_be_read(app, size):
    follows = ("✓ fits", "accumulation") + (("What starts",) if size[0] > 100 else ())
    async with app.run_test(size=size) as pilot:
        await press_keys(*TO_RECIPE)(pilot)
        assert [words for words in follows if words in screen_text(pilot)] == [*follows]
        await go_to_fields(pilot, "recipe.micro_batch")
        await press_keys("4", "x")(pilot)
        assert [words for words in follows if words in screen_text(pilot)] == []
        await press_keys("f3")(pilot)
        assert app.screen._traced_workload is None, "nothing is traced for the value before"
        await press_keys("backspace")(pilot)
        assert "✓ fits" in screen_text(pilot)
        await choose(pilot, recipe__global_batch=15)
        assert "fits" not in screen_text(pilot)


@pytest.mark.whole
async def test_preview_offers_run_only_where_it_runs_and_enter_says_why_not(app):
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys(*TO_RECIPE, "enter")(pilot)
        assert "Enter Run" in footer(app)
        await choose(pilot, trainer__data=("/none/at/all.txt",))
        assert not [offered for offered in ("Enter", "F2", "Copy") if offered in footer(app)], "there is no command"
        assert "/none/at/all.txt" in hint(app)
        await press_keys("enter")(pilot)
        (said,) = app._notifications
        assert "/none/at/all.txt" in said.message
        assert "4 Preview" in screen_text(pilot)
        await choose(pilot, trainer__data=(), recipe__micro_batch=8, recipe__global_batch=15)
        assert ("F2" in footer(app), "Nothing can be run" in screen_text(pilot)) == (True, True)
        await press_keys("f2")(pilot)
        assert "Enter Run" in footer(app)


# Where nothing can be typed


def test_a_preset_without_a_micro_batch_is_not_asked_for_one():
    setup = Setup(profile(OWN), facts())
    assert "micro_batch" not in setup.ladder_context.accepted_placeholders
    assert "recipe.micro_batch" not in predict_memory(setup).why_no_estimate


@pytest.mark.whole
async def test_digits_where_none_are_taken_are_answered(app, monkeypatch):
    rung = []
    async with app.run_test(size=(80, 24)) as pilot:
        monkeypatch.setattr(app, "bell", lambda: rung.append(True))
        await press_keys(*TO_RECIPE)(pilot)
        await choose(pilot, trainer__kind="script", trainer__preset="hf-trainer")
        await press_keys("down", "5")(pilot)
        assert rung
        assert "this preset does not pass it" in hint(app)
        await go_to_fields(pilot, "recipe.precision")
        for pressed, said in ((), False), (("6",), True), (("down",), False):
            await press_keys(*pressed)(pilot)
            assert ("← → to choose" in hint(app)) is said


async def test_letters_are_text_in_every_field_that_takes_text(app):
    """Also the first one, which comes before the input has the focus."""
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys(*TO_RECIPE[:2])(pilot)
        await choose(pilot, trainer__kind="script")
        for key, letter in (("down", None), ("question_mark", "?"), ("q", "q"), ("o", "o"), ("space", " "), ("h", "h")):
            app.post_message(Key(key, letter))
        await wait_for_workers(pilot)
        form = app.screen.query_one(Form)
        assert form.cursor == "trainer.script"
        assert form.entry.value == "?qo h"
        assert "q Quit" not in footer(app)
        assert "F1 Help" in footer(app)


# The way back


@pytest.mark.whole
async def test_undo_takes_back_what_is_typed_here_before_anything_else(app):
    """A question mark is none of a number, and what is none holds Enter up."""
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys(*TO_RECIPE, "9", "question_mark")(pilot)
        assert isinstance(app.screen, HelpScreen)
        await press_keys("escape", "down", "minus", "enter")(pilot)
        assert "Type a whole number" in screen_text(pilot)
        form = app.screen.query_one(Form)

        def state() -> tuple[Any, ...]:
            recipe = app.profile.recipe
            return recipe.layers, recipe.hidden_size, form.state.unparsable_row_key

        assert state() == (9, None, "recipe.hidden_size")
        await press_keys("ctrl+z")(pilot)
        assert (*state(), form.entry.value) == (9, None, "", "")
        await press_keys("6", "4", "minus", "ctrl+z")(pilot)
        assert state() == (9, None, "")
        assert "64 → " in hint(app)
        await press_keys("ctrl+z")(pilot)
        assert app.profile.recipe.layers is None
        assert "Layers" in hint(app)
        await press_keys("up")(pilot)
        assert "→" not in hint(app)
