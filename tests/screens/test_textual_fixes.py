"""Faults of Textual that fast keys and narrow terminals meet: none of them shows, and each fix is still needed."""

import asyncio
import gc
import inspect
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pilot import finished_run, open_wizard, press_keys, wait_for_workers
from support import sample
from textual import constants
from textual import screen as textual_screen
from textual._styles_cache import StylesCache
from textual.app import App, ComposeResult
from textual.color import Color
from textual.content import Content
from textual.events import Click, Key, Paste, Resize
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import AwaitMount, Widget
from textual.widgets import Input, OptionList
from textual.worker import Worker, active_worker
from tui_train.screens.textual_fixes import forward_key
from tui_train.screens.themes import THEME_NAMES
from tui_train.screens.widgets.cursor_list import CursorList
from tui_train.screens.widgets.dialogs import ChoiceDialog

from tui_train.views.chosen_theme import save_chosen_theme_name
from tui_train.wizard import make_wizard


def unfixed(method: Any) -> Any:
    """Return Textual's own method."""
    return method.__wrapped__


async def test_a_click_on_the_palette_may_come_where_the_screen_has_ended(machine):
    async with open_wizard("ctrl+p") as pilot:
        palette = pilot.app.screen
        for row, there in ((99, True), (23, False)):
            palette.post_message(Click(palette, 70, row, 0, 0, 1, False, False, False, 70, row))
            await wait_for_workers(pilot)
            assert (pilot.app.screen is palette) is there


async def test_a_reversed_option_is_drawn_so():
    make_wizard()

    class Listed(App[None]):
        CSS = "OptionList > .option-list--option-highlighted { text-style: reverse; }"

        def compose(self) -> ComposeResult:
            yield OptionList("a", "b")

    async with Listed().run_test() as pilot:
        listed, of_marked = pilot.app.query_one(OptionList), "option-list--option-highlighted"
        assert not unfixed(OptionList.get_visual_style)(listed, of_marked).reverse
        assert listed.get_visual_style(of_marked).reverse
        assert not listed.get_visual_style("option-list--option").reverse


async def test_a_page_key_before_a_list_is_drawn():
    make_wizard()

    class Listed(App[None]):
        def compose(self) -> ComposeResult:
            listed = OptionList("a", "b")
            listed.display = False
            yield listed

    async with Listed().run_test() as pilot:
        listed = pilot.app.query_one(OptionList)
        with pytest.raises(KeyError):
            unfixed(OptionList._move_page)(listed, 1)
        listed.action_page_down()
        listed.display = True
        await pilot.pause()
        listed.action_page_down()
        assert listed.highlighted == 1


@pytest.mark.parametrize("key", ["enter", "escape"])
async def test_a_key_that_comes_twice_closes_one_screen_only(machine, tmp_path, key):
    async with open_wizard(run=finished_run(tmp_path)) as pilot:
        answers = []
        ask = ChoiceDialog("Which?", (("a", "b"),))
        pilot.app.push_screen(ask, answers.append)
        await press_keys()(pilot)
        for _ in range(3):
            ask.dismiss(key)
        await press_keys()(pilot)
        assert answers == [key]
        assert [type(screen).__name__ for screen in pilot.app.screen_stack] == ["HomeScreen", "RunScreen"]


@pytest.mark.parametrize("more", [{}, {"no_wrap": True}], ids=str)
def test_text_is_formatted_also_where_no_column_is_left(more):
    make_wizard()
    with pytest.raises(ValueError, match=r"range\(\) arg 3 must not be zero"):
        unfixed(Content._wrap_and_format)(Content("words"), 0, **more)
    assert Content("words")._wrap_and_format(0, **more)  # type: ignore[arg-type]


async def test_a_click_on_what_was_just_removed(machine):
    async with open_wizard() as pilot:
        screen = pilot.app.screen
        listed = screen.query_one(CursorList)
        assert screen.get_widget_and_offset_at(5, 5)[0] is listed
        parent, listed._parent = listed._parent, None
        assert unfixed(Screen.get_widget_and_offset_at)(screen, 5, 5)[0] is listed
        assert screen.get_widget_and_offset_at(5, 5) == (None, None)
        listed._parent = parent


def test_the_cursor_of_an_input_does_not_blink():
    make_wizard()
    entry = Input.__new__(Input)
    unfixed(Input.__init__)(entry)
    assert (entry.cursor_blink, Input().cursor_blink) == (True, False)


async def test_an_input_takes_all_lines_of_what_is_pasted():
    make_wizard()

    class Typed(App[None]):
        def compose(self) -> ComposeResult:
            yield Input()

    async with Typed().run_test() as pilot:
        entry = pilot.app.query_one(Input)
        unfixed(Input._on_paste)(entry, Paste("a.jsonl\nb.jsonl\n"))
        assert entry.value == "a.jsonl"
        entry.value = ""
        entry.post_message(Paste("a.jsonl\r\n\r\nb.jsonl\r\n"))
        await pilot.pause()
        assert entry.value == "a.jsonl b.jsonl"
        entry.value = ""
        entry.post_message(Paste("--a 1 \\\n  --b 2"))
        await pilot.pause()
        assert entry.value == "--a 1 --b 2"


def test_a_cache_of_colours_keeps_no_widget():
    make_wizard()
    black = Color(0, 0, 0)
    kept = []
    for find in (unfixed(StylesCache.get_inner_outer), StylesCache.get_inner_outer):
        cache = StylesCache()
        find(cache, black, black)
        known = weakref.ref(cache)
        del cache
        gc.collect()
        kept.append(known() is not None)
    unfixed(StylesCache.get_inner_outer).cache_clear()
    assert kept == [True, False]


async def test_an_idle_thread_keeps_no_worker(monkeypatch):
    make_wizard()
    fixed, kept = Worker._run_threaded, []
    for run in (unfixed(fixed), fixed):
        monkeypatch.setattr(Worker, "_run_threaded", run)
        async with App[None]().run_test() as pilot:
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1))
            worker = pilot.app.run_worker(lambda: None, thread=True)
            await worker.wait()
            kept.append(await loop.run_in_executor(None, active_worker.get, None) is worker)
    assert kept == [True, False]


async def test_a_worker_that_never_began_leaves_no_coroutine():
    make_wizard()

    async def work() -> None:
        """Do nothing."""

    async with App[None]().run_test() as pilot:
        begun = []
        for cancel in (unfixed(Worker.cancel), Worker.cancel):
            coroutine = work()
            cancel(pilot.app.run_worker(coroutine))
            begun.append(inspect.getcoroutinestate(coroutine))
            coroutine.close()
    assert begun == [inspect.CORO_CREATED, inspect.CORO_CLOSED]


def test_a_frame_does_not_wait_for_two_periods():
    make_wizard()
    assert textual_screen.UPDATE_PERIOD < 1 / constants.MAX_FPS <= 1 / 60


async def test_a_screen_is_not_laid_out_again_for_the_size_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wizard()
    times: list[Any] = []
    async with App[None]().run_test() as pilot:
        monkeypatch.setattr(Screen, "_refresh_layout", lambda _screen, *_size, **_how: times.append(resized))
        for resized in (unfixed(Screen._screen_resized), Screen._screen_resized):
            resized(pilot.app.screen, pilot.app.screen.size)
        monkeypatch.undo()
    assert times == [unfixed(Screen._screen_resized)]


@pytest.mark.parametrize("is_fixed", [True, False])
async def test_a_screen_keeps_to_the_size_that_the_terminal_has(monkeypatch, is_fixed):
    """A layout tells its size again, which is an old one by then while somebody drags the corner of a terminal."""
    make_wizard()
    if not is_fixed:
        monkeypatch.setattr(Screen, "_on_resize", unfixed(Screen._on_resize))
    async with App[None]().run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        pilot.app.screen.post_message(Resize(Size(120, 40), Size(120, 40)))
        await pilot.pause()
        assert (pilot.app.screen._size == Size(100, 30)) is is_fixed
        await pilot.resize_terminal(90, 20)
        assert pilot.app.screen._size == Size(90, 20)


async def test_a_new_screen_is_not_laid_out_again_once_it_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wizard()
    layouts: list[Any] = []
    async with App[None]().run_test() as pilot:
        screen, widget = pilot.app.screen, Widget()
        await screen.mount(widget)
        await pilot.pause()
        monkeypatch.setattr(screen, "refresh", lambda **how: layouts.append(how))
        await AwaitMount(screen, [screen])
        assert not layouts
        await AwaitMount(screen, [widget])
        assert len(layouts) == 1, "what comes later has its place found"
        monkeypatch.setattr(AwaitMount, "__await__", unfixed(AwaitMount.__await__))
        await AwaitMount(screen, [screen])
        assert len(layouts) == 2
        monkeypatch.undo()


async def test_a_key_that_is_posted_to_a_widget_comes_to_it_twice() -> None:
    keys_seen: list[str] = []

    class Typed(Widget, can_focus=True):
        def on_key(self, event: Key) -> None:
            keys_seen.append(event.key)

    class Typing(App[None]):
        def compose(self) -> ComposeResult:
            yield Typed()

    async with Typing().run_test() as pilot:
        typed = pilot.app.query_one(Typed)
        typed.post_message(Key("a", "a"))
        await pilot.pause()
        forward_key(typed, Key("b", "b"))
        await pilot.pause()
    assert keys_seen == ["a", "a", "b"]


async def test_the_palette_opens_while_the_one_before_closes(machine):
    async with open_wizard() as pilot:
        for _ in range(6):
            pilot.app.action_command_palette()
            pilot.app.pop_screen()
        pilot.app.action_command_palette()
        await press_keys()(pilot)
        assert type(pilot.app.screen).__name__ == "Palette"
        assert len(pilot.app.screen_stack) == 2


@pytest.mark.parametrize("name", sample(THEME_NAMES, 2))
async def test_a_theme_looks_the_same_from_the_start_as_when_it_is_chosen(machine, name):
    drawn = []
    for first in (name, next(other for other in THEME_NAMES if other != name)):
        save_chosen_theme_name(first)
        async with open_wizard() as pilot:
            pilot.app.change_and_save_theme(name)
            await wait_for_workers(pilot)
            drawn.append([list(strip) for strip in pilot.app.screen._compositor.render_strips()])
    assert drawn[0] == drawn[1]


@pytest.mark.whole
async def test_the_styles_of_a_new_screen_are_found_once(machine, monkeypatch):
    """Textual looks for all of them again as soon as the screen is shown, and once it knows how wide it is."""
    app = make_wizard()
    found = []
    drawn, times = [], []
    updated = App.update_styles

    def counted(self: Any, node: Any, **how: Any) -> None:
        found.append(node)
        updated(self, node, **how)

    monkeypatch.setattr(App, "update_styles", counted)
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys()(pilot)
        for fixed in (True, False):
            if not fixed:
                monkeypatch.setattr(Screen, "_on_screen_resume", unfixed(Screen._on_screen_resume))
                monkeypatch.setattr(app, "_add_size_classes", lambda _screen: None)
            found.clear()
            await press_keys("enter")(pilot)
            drawn.append([list(strip) for strip in app.screen._compositor.render_strips()])
            times.append(sum(node is app.screen for node in found))
            await press_keys("escape")(pilot)
    assert drawn[0] == drawn[1]
    assert times == [0, 2]
