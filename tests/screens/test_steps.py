"""The steps of the wizard cost what they show: a step that is left is released, and an unchanged one writes nothing."""

import gc
import os
import re
import select
import sys
import weakref
from typing import Any

import pytest
from msgspec.structs import replace
from pilot import (
    CUDA_PYTHON,
    PRETRAIN_KEY,
    THREE_CARD_MACHINE,
    go_to_fields,
    open_wizard,
    press_keys,
    screen_text,
    until_true,
    wait_for_step,
    wait_for_text,
    wait_for_workers,
)
from support import profile
from terminal import Terminal, go_to_recipe
from textual._styles_cache import StylesCache
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from tui_train.screens.messages import TYPING_PAUSE_SECONDS, OpenStep
from tui_train.screens.steps.step import ADVANCED_GROUP_KEY, StepScreen
from tui_train.screens.widgets.form.form import Form
from tui_train.screens.widgets.hint import Hint
from tui_train.screens.widgets.key_bar import KeyBar
from tui_train.screens.widgets.text_layout import fit

from tui_train.base.app_paths import last_profile_file, webhooks_folder
from tui_train.facts.machine import probe
from tui_train.profile import store
from tui_train.profile.fields import profile_with_value
from tui_train.profile.types import Profile
from tui_train.wizard import make_wizard

DOWN = "\x1b[B"
PARSER = "import argparse\np = argparse.ArgumentParser()\n"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> "weakref.WeakSet[Widget]":
    """Collect every widget that is made, for as long as anything holds it."""
    widgets: weakref.WeakSet[Widget] = weakref.WeakSet()
    begin = Widget.__init__

    def counted(self: Widget, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        widgets.add(self)

    monkeypatch.setattr(Widget, "__init__", counted)
    return widgets


@pytest.mark.whole
async def test_steps_that_are_left_are_released(machine, made):
    """Also while the profile stays as it is, and nothing tells the app which of its watchers are gone."""
    machine(THREE_CARD_MACHINE)
    async with open_wizard() as pilot:
        kept = []
        for rounds in (1, 2):
            for _ in range(rounds):
                await press_keys(PRETRAIN_KEY, *["enter"] * 3, *["escape"] * 4)(pilot)
            gc.collect()
            kept.append(sum(isinstance(part, StylesCache) for part in gc.get_objects()))
        assert [type(widget).__name__ for widget in made if isinstance(widget, Screen)] == ["HomeScreen"]
        assert len(made) < 20, "widgets of steps that are gone"
        assert kept[1] <= kept[0] + 5, "drawn lines of widgets that are gone"


@pytest.mark.whole
async def test_what_is_left_is_cleared_away_before_the_next_step(machine):
    """Else Python looks for it while a step is made."""
    async with open_wizard() as pilot:
        left: weakref.WeakSet[Screen[Any]] = weakref.WeakSet()
        gc.disable()
        try:
            for _ in range(2):
                await press_keys("enter", "enter")(pilot)
                left |= set(pilot.app.screen_stack[1:])
                assert len(left) >= 2
                await press_keys("escape", "escape")(pilot)
            await until_true(pilot, lambda: not left)
        finally:
            gc.enable()


@pytest.mark.whole
async def test_a_step_shows_what_changes_while_it_is_covered(seed):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "enter") as pilot:
        recipe = pilot.app.screen_stack[-2]
        pilot.app.edits.set_profile(type(pilot.app.profile)())
        await press_keys("escape", "4", "2")(pilot)
        assert pilot.app.screen is recipe
        assert pilot.app.profile.recipe.layers == 42
        steps = [screen.profile for screen in pilot.app.screen_stack if isinstance(screen, StepScreen)]
        assert steps == [pilot.app.profile] * 3
        assert "42" in screen_text(pilot)


@pytest.mark.whole
async def test_enter_in_a_row_that_is_wrong_stays_in_it(machine):
    """Also where something else is wrong, and was found first."""
    machine(THREE_CARD_MACHINE)
    async with open_wizard(PRETRAIN_KEY, "enter", "left", size=(80, 40)) as pilot:
        wrong = [finding.form_row_key for finding in pilot.app.screen.findings() if finding.forbids_plan]
        assert {"trainer.model", "trainer.data"} < set(wrong)
        form = pilot.app.screen.query_one(Form)
        for row in ("trainer.data", "trainer.model"):
            form.go_to_row(row)
            await press_keys("enter")(pilot)
            assert form.cursor == row
        form.go_to_row("trainer.launcher")
        await press_keys("enter")(pilot)
        assert form.cursor == wrong[0] != "trainer.launcher"


async def test_enter_goes_to_the_row_that_is_wrong_and_says_that_it_is_in_the_way(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", "right") as pilot:
        form, hint = pilot.app.screen.query_one(Form), pilot.app.screen.query_one(Hint)
        assert (form.cursor, "Enter goes on once" in str(hint.render())) == ("trainer.kind", False)
        for _ in range(2):
            await press_keys("enter")(pilot)
            assert form.cursor == "trainer.script"
            assert "✗ Enter goes on once this is fixed. No script is named." in str(hint.render())
        await press_keys("up")(pilot)
        assert "Enter goes on once" not in str(hint.render())


async def test_a_path_that_is_being_typed_is_not_called_wrong(machine, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    # Without a pause only what ends the typing is seen.
    monkeypatch.setattr("tui_train.screens.widgets.form.form.TYPING_PAUSE_SECONDS", 600)
    async with open_wizard(PRETRAIN_KEY, "enter", "right", "down") as pilot:
        assert "✗ no script is named" in screen_text(pilot)
        for letter in "tra":
            await press_keys(letter)(pilot)
            assert "✗" not in screen_text(pilot)
        await press_keys("enter")(pilot)
        assert "✗ Enter goes on once this is fixed." in screen_text(pilot)
        await press_keys("i", "down")(pilot)
        assert "does not exist" in screen_text(pilot)
        await press_keys("up", "end", *"n.py")(pilot)
        await press_keys("enter")(pilot)
        await wait_for_step(pilot, "Recipe")


async def test_a_path_is_called_wrong_after_a_pause(machine, monkeypatch):
    monkeypatch.setattr("tui_train.screens.widgets.form.form.TYPING_PAUSE_SECONDS", 0.1)
    async with open_wizard(PRETRAIN_KEY, "enter", "right", "down", "x") as pilot:
        await wait_for_text(pilot, "✗ does not exist")


async def test_a_missing_path_is_told_with_the_name_that_is_like_it_and_f2_takes_that(machine, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)

    def said(pilot: Any) -> str:
        return " ".join(screen_text(pilot).split())

    async with open_wizard(PRETRAIN_KEY, "enter", "right", "down", *"trian.py", "down", "up") as pilot:
        await wait_for_text(pilot, "F2 Use train.py", "←→ Edit")
        assert "does not exist; there is train.py." in said(pilot)
        await press_keys("f2")(pilot)
        assert pilot.app.profile.trainer.script == str(tmp_path / "train.py")
        await press_keys("down", "up", *"sub/x.py", "down", "up")(pilot)
        await until_true(pilot, lambda: "does not exist: no sub in /" in said(pilot))


async def test_a_path_that_tab_completes_is_not_called_missing(machine, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    async with open_wizard(PRETRAIN_KEY, "enter", "right", "down", *"tra") as pilot:
        await wait_for_text(pilot, "Tab completes", "Tab Complete")
        await pilot.pause(TYPING_PAUSE_SECONDS * 2)
        assert "does not exist" not in screen_text(pilot)
        await press_keys("tab")(pilot)
        await until_true(pilot, lambda: pilot.app.profile.trainer.script == str(tmp_path / "train.py"))
        assert "Tab completes" not in screen_text(pilot)
        await press_keys("backspace", "x")(pilot)
        await wait_for_text(pilot, "✗ does not exist")


async def test_values_that_do_not_reach_a_script_are_folded_away(machine, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"{PARSER}p.add_argument('--lr', type=float)\np.parse_args()\n")
    values = {"trainer.kind": "script", "trainer.script": str(script), "recipe.seed": 3}
    async with open_wizard() as pilot:
        pilot.app.edits.set_profile(profile(values))
        pilot.app.screen.post_message(OpenStep("recipe"))
        await wait_for_step(pilot, "Recipe")
        state = pilot.app.screen.query_one(Form).state
        unused = {row.key for group in state.groups if group.key == "unused" for row in group.rows}
        # A value that was chosen stays where it is, with what is wrong with it.
        assert unused & {"recipe.layers", "recipe.learning_rate", "recipe.seed"} == {"recipe.layers"}
        assert "recipe.layers" not in state.cursor_stop_keys
        await go_to_fields(pilot, "unused")
        assert "recipe.layers" in state.cursor_stop_keys


@pytest.mark.whole
async def test_a_row_says_its_own_help_once_a_finding_of_another_was_said(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", "right") as pilot:

        def hint() -> str:
            return str(pilot.app.screen.query_one(Hint).render())

        assert "No script is named" in hint()
        form = pilot.app.screen.query_one(Form)
        for row, said in (("trainer.script", True), ("trainer.preset", False), ("start", False)):
            await press_keys("down")(pilot)
            assert (form.cursor, "No script is named" in hint(), bool(hint().strip())) == (row, said, True)
        await press_keys("up", "up")(pilot)
        assert "No script is named" in hint()


@pytest.mark.whole
async def test_the_address_of_a_webhook_is_typed_and_only_its_host_shown(machine):
    address = "https://h.example/planted0"
    async with open_wizard(PRETRAIN_KEY, "enter", size=(80, 40)) as pilot:
        app = pilot.app
        await go_to_fields(pilot, ADVANCED_GROUP_KEY, "notify.webhook")
        form = app.screen.query_one(Form)
        await press_keys(*address)(pilot)
        assert app.profile.notify.webhook == address
        await press_keys("up")(pilot)
        assert "h.example/…" in screen_text(pilot)
        assert "planted" not in screen_text(pilot)
        await press_keys("down")(pilot)
        assert form.entry.value == "h.example/…"
        await press_keys("end", "backspace")(pilot)
        assert "F2 Use h.example/…" in screen_text(pilot)
        await press_keys("f2")(pilot)
        assert (form.entry.value, app.profile.notify.webhook) == ("h.example/…", address)
        # Another step, and the profile names a file.
        await press_keys("enter")(pilot)
        assert "planted" not in screen_text(pilot)
    (file,) = webhooks_folder().iterdir()
    assert app.profile.notify.webhook == str(file)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (f"{address}\n", 0o600)
    assert "planted" not in last_profile_file().read_text()


@pytest.mark.whole
async def test_a_part_that_is_opened_scrolls_into_view_and_what_is_not_kept_for_the_next_session_is_said(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", notifications=True) as pilot:
        assert "Webhook at the end" not in screen_text(pilot)
        await go_to_fields(pilot, ADVANCED_GROUP_KEY)
        assert "Webhook at the end" in screen_text(pilot)
        await go_to_fields(pilot, "notify.command")
        await press_keys(*"curl -u me:planted0 h.example", "escape")(pilot)
        await wait_for_text(pilot, "Not kept for the next session", "notify.command")
    assert "planted0" not in last_profile_file().read_text()


async def test_a_hint_has_the_lines_that_it_needs(seed):
    async with open_wizard(PRETRAIN_KEY, "enter") as pilot:
        hint = pilot.app.screen.query_one(Hint)
        heights = []
        for words in ("short", "word " * 40, "short"):
            hint.show_text(Content(words))
            await wait_for_workers(pilot)
            heights.append(hint.size.height)
        assert heights == [2, 3, 2]


@pytest.mark.parametrize("size", [(80, 24), (40, 10)], ids=str)
async def test_help_stays_among_the_keys_and_none_is_cut(seed, size):
    async with open_wizard(PRETRAIN_KEY, "enter", "right", "right", size=size) as pilot:
        line = str(pilot.app.screen.query_one(KeyBar).render())
        assert len(line) <= size[0]
        assert "F1 Help" in line
        assert "…" not in line


@pytest.mark.parametrize(
    ("line", "width", "cut"),
    [
        ("all of it fits", 14, "all of it fits"),
        ("the rest is left out", 12, "the rest is…"),
        ("the rest is left out", 11, "the rest…"),
        ("one, two, three", 10, "one, two…"),
        ("○ one  ✗ two", 10, "○ one…"),
        ("a/path/that/is/longer/than/what/there/is/room/for", 30, "a/path/that/is/longer/than/wh…"),
        ("words", 0, ""),
    ],
)
def test_a_line_is_cut_after_a_word(line, width, cut):
    assert fit(line, width).plain == cut


def written(terminal: Terminal, seconds: float) -> int:
    """Return how many bytes come until nothing has come for so long."""
    size = 0
    while select.select([terminal.child.fileno()], [], [], seconds)[0]:
        size += len(os.read(terminal.child.fileno(), 65536))
    return size


@pytest.mark.whole
@pytest.mark.training
def test_a_step_writes_nothing_that_has_not_changed(terminals):
    terminals.append(terminal := Terminal(SSH_CONNECTION=""))
    go_to_recipe(terminal)
    terminal.wait_for_any("× accumulation")
    written(terminal, 1)
    for _ in range(4):  # rows that are in sight
        terminal.child.send(DOWN)
        assert 100 < written(terminal, 0.7) <= 1500
    assert written(terminal, 2.5) == 0, "a cursor in a field blinks"


@pytest.mark.whole
async def test_a_terminal_that_changes_its_size_is_filled(seed):
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        for pressed in ((), (PRETRAIN_KEY, "enter", "enter")):
            await press_keys(*pressed)(pilot)
            for width, height in ((60, 20), (120, 40), (160, 50), (80, 24)):
                await pilot.resize_terminal(width, height)
                await wait_for_workers(pilot)
                assert pilot.app.screen.query_one(KeyBar).region == (0, height - 1, width, 1)


@pytest.mark.training
@pytest.mark.parametrize("changes", [{"NO_COLOR": "1"}, {"TERM": "linux"}], ids=str)
def test_without_colour_the_terminals_own_are_left(terminals, changes):
    """Neither black on black nor any other pair of its own: text is bold, dim or reversed."""
    terminals.append(terminal := Terminal(SSH_CONNECTION="", **changes))
    terminal.wait_for_any("See it work")
    fragments = [fragment for line in terminal.screen.buffer.values() for fragment in line.values()]
    assert {fragment.bg for fragment in fragments} == {"default"}
    assert "black" not in {fragment.fg for fragment in fragments}


async def test_what_starts_is_one_line_until_something_of_it_is_chosen(seed):
    async with open_wizard(PRETRAIN_KEY, "enter") as pilot:
        shown = screen_text(pilot)
        assert re.search(r"Python, launcher ▸ +torchrun, 2 processes +torch 2\.7\.1\+cu126, ddp", shown)
        assert "Launcher" not in shown
        pilot.app.edits.set_profile(profile_with_value(pilot.app.profile, "trainer.python", "/no/such"))
        await wait_for_workers(pilot)
        assert re.search(r"Python, launcher ▸ .* ✗ ", screen_text(pilot))
        await go_to_fields(pilot, "start", "trainer.python")
        assert not re.search(r"Python, launcher ▾ .* ✗ ", screen_text(pilot))
        await press_keys("escape", "enter")(pilot)
        assert "Python, launcher ▾" in screen_text(pilot)


async def test_the_cursor_stays_in_sight_where_an_error_takes_some_of_the_entry(machine, tmp_path):
    (tmp_path / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\nparser.parse_args()\n"
    )
    chosen = profile_with_value(Profile(), "trainer.kind", "script")
    async with open_wizard(PRETRAIN_KEY, "enter") as pilot:
        pilot.app.edits.set_profile(profile_with_value(chosen, "trainer.script", str(tmp_path / "train.py")))
        await wait_for_workers(pilot)
        await go_to_fields(pilot, ADVANCED_GROUP_KEY, "trainer.arguments")
        entry = pilot.app.screen.query_one(Form).entry
        width = entry.size.width
        await press_keys(*"--lr=1 " * 9, *"--n")(pilot)
        assert entry.size.width < width
        assert entry.scroll_offset.x <= entry._cursor_offset <= entry.scroll_offset.x + entry.size.width


async def test_a_script_whose_help_fails_is_said_once_on_the_step_that_one_returns_to(machine, tmp_path, monkeypatch):
    said: list[str] = []
    script, go = tmp_path / "train.py", tmp_path / "go"
    script.write_text(
        f"import os, sys, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.02)\nsys.exit('no licence')\n"
    )
    values = {"trainer.kind": "script", "trainer.preset": "custom", "trainer.script": str(script)}
    chosen = profile(values | {"hardware.device": "cpu"})
    real = replace(CUDA_PYTHON, python=sys.executable)
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (real,))
    async with open_wizard(PRETRAIN_KEY, "enter") as pilot:
        pilot.app.edits.set_profile(chosen)
        await wait_for_workers(pilot)
        monkeypatch.setattr(pilot.app, "notify", lambda message, **_: said.append(message))
        await pilot.press("h")
        await until_true(pilot, lambda: "help" in pilot.app.awaited_parts)
        await pilot.press("enter")
        await until_true(pilot, lambda: type(pilot.app.screen).__name__ == "RecipeScreen")
        go.touch()
        await wait_for_workers(pilot)
        for _ in range(2):
            await press_keys("escape")(pilot)
            assert type(pilot.app.screen).__name__ == "BackendScreen"
            running, failed = said
            assert running.startswith("Running ")
            assert failed.startswith(
                "The script lists no arguments: it ended with exit code 1: no licence. Run it with --help in a shell"
            )
            await press_keys("enter")(pilot)


async def test_a_script_that_was_corrected_is_read_again_by_enter_and_when_the_step_is_shown_again(machine, tmp_path):
    script, module = tmp_path / "train.py", tmp_path / "arguments.py"
    script.touch()
    store.save_profile(profile({"name": "job", "trainer.kind": "script", "trainer.script": str(script)}))
    async with open_wizard() as pilot:
        pilot.app.open_saved_profile("job")
        pilot.app.action_go_to_step("backend")
        await wait_for_text(pilot, "● 2 Backend", "without code")
        script.write_text("print(1)\n")
        await pilot.press("enter")
        await until_true(pilot, lambda: "without code" not in screen_text(pilot))
        script.write_text("")
        await pilot.press("f1")
        await wait_for_text(pilot, "Esc")
        await pilot.press("escape")
        await wait_for_text(pilot, "● 2 Backend", "without code")
        read_before = pilot.app.facts
        await pilot.press("enter")
        await wait_for_text(pilot, "without code")
        assert pilot.app.facts is read_before
        module.touch()
        await pilot.press("enter")
        await until_true(pilot, lambda: pilot.app.facts is not read_before)
