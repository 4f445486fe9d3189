"""Jump keys: a letter on each panel and group, which goes there, and which nothing else sees."""

import re

import pytest
from pilot import (
    CPU_MACHINE,
    PRETRAIN_KEY,
    finished_run,
    go_to_fields,
    open_wizard,
    out_of_memory_run,
    press_keys,
    screen_text,
    wait_for_text,
    wait_for_workers,
)
from support import profile, sample
from textual.content import Content
from textual.geometry import Offset
from tui_train.screens.run.log_view import LogView
from tui_train.screens.widgets.file_viewer import FileViewer
from tui_train.screens.widgets.form.form import Form
from tui_train.screens.widgets.jump import JumpScreen, jump_letters
from tui_train.screens.widgets.text_layout import heading, heading_title, share_bar, styled

from tui_train.profile import store

RECIPE = (PRETRAIN_KEY, "enter", "enter")


def letters(pilot):
    """The letters on the screen, each with the line on which it lies."""
    lines = screen_text(pilot).split("\n")
    drawn = pilot.app.screen.query(".letter")
    return {lines[each.region.y][each.region.x]: lines[each.region.y][each.region.x + 1 :] for each in drawn}


@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        (("Model", "Batch", "Learning"), "mbl"),
        (("Batch", "Big batch", "Bob", "B b"), "bioa"),
        (("GPUs", "Ü", "4"), "gab"),
        (("", "a"), "ab"),
    ],
)
def test_a_letter_is_of_its_title_where_one_is_free(titles, expected):
    assert "".join(jump_letters(titles)) == expected


def test_of_more_titles_than_letters_the_last_have_none():
    found = jump_letters(["same"] * 30)
    assert sorted(found[:26]) == [*map(chr, range(ord("a"), ord("z") + 1))]
    assert found[26:] == [""] * 4


@pytest.mark.parametrize("width", [12, 40, 80])
def test_a_heading_is_told_from_other_lines(width):
    assert heading_title(heading("Findings", "2 must be fixed", width)).startswith("Findin")
    assert heading_title(heading("Log", "", width)) == "Log"
    for line in (styled(("bold", "b")), share_bar(0.5, width), styled(("✗ ─", "b $error")), Content()):
        assert heading_title(line) == ""


@pytest.mark.parametrize("size", sample([(80, 24), (40, 12), (120, 40)], 2), ids=str)
async def test_in_a_form_the_cursor_goes_to_a_group(seed, size):
    async with open_wizard(*RECIPE, "ctrl+o", size=size) as pilot:
        assert "Model" in letters(pilot)["m"]
        assert all(len(line) > 10 for line in letters(pilot).values())
        # The last line may wrap.
        assert "o Out of memory" in " ".join(screen_text(pilot).replace("\N{NO-BREAK SPACE}", " ").split())
        for letter, row, title in (
            ("l", "recipe.steps", "Learning ──"),
            ("m", "recipe.layers", "Model ──"),
            ("a", "advanced", "Advanced"),
            ("b", "recipe.sequence_length", "Batch ──"),
        ):
            await press_keys(letter)(pilot)
            form = pilot.app.screen.query_one(Form)
            assert (form.cursor, form.holds_focus) == (row, True)
            assert title in screen_text(pilot)
            await press_keys("ctrl+o")(pilot)


@pytest.mark.whole
async def test_what_is_typed_stays_the_letter_is_typed_nowhere_and_another_size_ends_it(seed):
    async with open_wizard(*RECIPE) as pilot:
        await go_to_fields(pilot, "recipe.micro_batch")
        await press_keys("1", "6", "ctrl+o")(pilot)
        form = pilot.app.screen_stack[-2].query_one(Form)
        for key in ("z", "escape", "ctrl+o"):
            await press_keys(key)(pilot)
            assert not isinstance(pilot.app.screen, JumpScreen)
            assert (form.cursor, form.entry.value, form.holds_focus) == ("recipe.micro_batch", "16", True)
            await press_keys("ctrl+o")(pilot)
        await press_keys("m")(pilot)
        assert (form.cursor, form.entry.value) == ("recipe.layers", "")
        await press_keys("ctrl+o")(pilot)
        assert isinstance(pilot.app.screen, JumpScreen)
        await pilot.resize_terminal(100, 30)
        await wait_for_workers(pilot)
        assert not isinstance(pilot.app.screen, JumpScreen)


async def test_hardware_has_its_gpus_as_well(seed):
    async with open_wizard(PRETRAIN_KEY, "ctrl+o", "t", "ctrl+o") as pilot:
        assert "GPUs" in letters(pilot)["g"]
        await press_keys("g")(pilot)
        assert pilot.app.screen.focused.id == "gpus"


async def test_on_home_it_goes_to_the_panels_of_the_list(machine, tmp_path):
    machine(CPU_MACHINE)
    finished_run(tmp_path)
    store.save_profile(profile({"name": "quick-start"}))
    async with open_wizard() as pilot:
        await wait_for_text(pilot, "Runs ──", "Profiles ──")
        await press_keys("slash", *"quick", "ctrl+o", "r")(pilot)
        assert pilot.app.screen.focused.id == "list"
        assert pilot.app.screen.row_list.cursor.startswith("run:")


# Where rows are few the findings are a stop as well, and have their letter.
@pytest.mark.whole
@pytest.mark.parametrize(("size", "files"), sample([((80, 24), "i"), ((120, 40), "f")], 2), ids=str)
async def test_on_preview_it_goes_to_what_is_said_and_to_the_files(machine, size, files):
    machine(CPU_MACHINE)
    async with open_wizard(*RECIPE, "enter", "ctrl+o", size=size) as pilot:
        assert "What will happen" in letters(pilot)["w"]
        await press_keys(files)(pilot)
        assert pilot.app.screen.query_one(FileViewer).display
        assert pilot.app.screen.focused.id == "page"
        if size == (80, 24):
            await press_keys("escape", "ctrl+o", "c")(pilot)
            page = pilot.app.screen.query_one("#body")
            assert page.has_focus
            assert page.scroll_y == page.max_scroll_y


@pytest.mark.whole
async def test_a_failure_goes_to_its_line_in_the_log(machine, tmp_path):
    run = out_of_memory_run(tmp_path)
    with run.attempt_log(2).open("a") as log:
        log.write("at exit\n" * 200)
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "The GPU's memory was full")
        view = pilot.app.screen.query_one(LogView)
        assert "Tried to allocate" not in screen_text(pilot).partition("Log ")[2]
        await press_keys("ctrl+o", "f")(pilot)
        await wait_for_text(pilot, "[rank1]: torch.OutOfMemoryError")
        assert view.hit is not None
        await press_keys("G", "ctrl+o", "l")(pilot)
        assert (view.has_focus, view.following) == (True, True)


async def test_letters_lie_in_the_margin(seed):
    async with open_wizard(*RECIPE) as pilot:
        before = screen_text(pilot).split("\n")
        await press_keys("ctrl+o")(pilot)
        places = {each.region.offset for each in pilot.app.screen.query(".letter")}
        assert all(before[place.y][place.x] == " " for place in places)
        after = screen_text(pilot).split("\n")
        for y, (old, new) in enumerate(zip(before[:-1], after, strict=False)):
            if not any(place.y == y for place in places):
                assert old == new
        assert re.match(r"m Model ─{9}", after[5]), "a blank between the letter and the title"
        assert any(re.match(r"a Advanced {2,}0 of 8", line) for line in after), "the same of a group that folds"
        assert Offset(0, 5) in places
