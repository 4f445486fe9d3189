"""Faults of Textual that a fast key or a narrow terminal meets, each fixed in its own function.

Each names the version that has the fault and the issue at github.com/Textualize/textual; a test of each turns red where
Textual no longer has it, and then the fix goes.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from contextvars import copy_context
from functools import lru_cache, partial, wraps
from typing import Any

from textual import screen
from textual._styles_cache import StylesCache
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.color import Color
from textual.content import Content
from textual.driver import Driver
from textual.events import Key, Paste, Resize, ScreenResume
from textual.geometry import Offset, Size
from textual.screen import Screen
from textual.style import Style
from textual.widget import AwaitMount, Widget
from textual.widgets import Input, OptionList
from textual.worker import Worker, active_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.fault_log import record_fault

_PENDING_FIXES: list[tuple[type, str, Callable[..., Any]]] = []  # those that are not in place yet


def fix_textual() -> None:
    """Put the fixes in place, once."""
    while _PENDING_FIXES:
        _patch_method(*_PENDING_FIXES.pop())
    # A second frame waits for up to two periods: at 60 a second that is 33 ms after a key, which is felt (8.2.8; no
    # issue upstream: TEXTUAL_FPS is read as it is imported).
    screen.UPDATE_PERIOD = 1 / 240  # type: ignore[misc]


def _patch_method(owner: type, name: str, fix: Callable[..., Any]) -> None:
    """Have a class call a fix instead of its own method, which the fix is given first."""
    own_method = getattr(owner, name)

    @wraps(own_method)
    def fixed(self: Any, *arguments: Any, **named: Any) -> Any:
        return fix(own_method, self, *arguments, **named)

    setattr(owner, name, fixed)


def _replacing_method(owner: type, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fix: Callable[..., Any]) -> Callable[..., Any]:
        _PENDING_FIXES.append((owner, name, fix))
        return fix

    return register


@_replacing_method(OptionList, "_move_page")
def _ignore_page_key_in_new_list(move_page: Callable[..., None], listed: OptionList, direction: Any) -> None:
    """A page key in a list that was not laid out is no error (8.2.8; no issue upstream)."""
    # A list has no lines until it has a size: a page key that comes before has nowhere to go.
    if (listed.highlighted or 0) in listed._index_to_line:
        move_page(listed, direction)


@_replacing_method(Screen, "dismiss")
def _dismiss_once(dismiss: Callable[..., AwaitComplete], screen: Screen[Any], result: Any = None) -> AwaitComplete:
    """A screen is dismissed once (8.2.8; no issue upstream: #2575 made it an error for screens below the top only)."""
    # A second Enter or click may still be queued: it would close the screen below, or end the wizard on the last.
    return dismiss(screen, result) if screen.is_active else AwaitComplete()


@_replacing_method(OptionList, "get_visual_style")
def _apply_reverse_style_to_options(
    own_style: Callable[..., Style], listed: OptionList, *classes: str, partial: bool = False
) -> Style:
    """An option that a style reverses is drawn so (8.2.8; no issue upstream): without colours nothing else marks it."""
    style = own_style(listed, *classes, partial=partial)
    is_reversed = any(listed.get_component_styles(name).text_style.reverse for name in classes)
    return style + Style(reverse=True) if is_reversed else style


@_replacing_method(Content, "_wrap_and_format")
def _wrap_to_at_least_one_column(
    wrap: Callable[..., Any], text: Content, width: int, *arguments: Any, **named: Any
) -> Any:
    """Text has lines also where no column is left (8.2.8; no issue upstream)."""
    # Where no column is left it divides by the width: range() with a step of 0.
    return wrap(text, max(1, width), *arguments, **named)


@_replacing_method(Screen, "get_widget_and_offset_at")
def _find_no_removed_widget(
    find: Callable[..., tuple[Widget | None, Offset | None]], screen: Screen[Any], x: int, y: int
) -> tuple[Widget | None, Offset | None]:
    """A click does not find what was removed since the last layout (8.2.8; upstream #5629 for other ways there)."""
    # Until the next layout it finds what has just been removed, whose parent, in which text is selected, is gone.
    widget, offset = find(screen, x, y)
    return (None, None) if widget is not None and widget.parent is None else (widget, offset)


@_replacing_method(Input, "__init__")
def _stop_cursor_blinking(initialize: Callable[..., None], entry: Input, *arguments: Any, **named: Any) -> None:
    """An input's cursor does not blink (8.2.8; a default, and no fault)."""
    # A cursor that blinks is drawn twice a second, over whatever line there is.
    initialize(entry, *arguments, **named)
    entry.set_reactive(Input.cursor_blink, False)


@_replacing_method(Input, "_on_paste")
def _paste_all_lines(paste: Callable[..., None], entry: Input, event: Paste) -> None:
    """An input takes all lines of what is pasted, as one (8.2.8; no issue upstream): it would take the first alone."""
    lines = [line for line in event.text.splitlines() if line.strip()]
    if len(lines) > 1:
        # A command may continue in the next line, by a backslash at its end.
        event.text = " ".join(line.strip().removesuffix("\\").rstrip() for line in lines)
    paste(entry, event)


@_replacing_method(Screen, "_screen_resized")
def _skip_second_layout(resized: Callable[..., None], screen: Screen[Any], size: Size) -> None:
    """A screen is not laid out again for the size that it has (8.2.8; no issue upstream)."""
    # A new screen is laid out, and then told the size that this was for.
    if size != screen._size:
        resized(screen, size)


@_replacing_method(Screen, "_on_resize")
async def _ignore_outdated_sizes(on_resize: Callable[..., Awaitable[None]], screen: Screen[Any], event: Resize) -> None:
    """A screen is laid out for the size that the terminal has now (8.2.8; no issue upstream)."""
    # Each layout tells the screen its size once more. Two sizes that wait at once, as of a corner that is dragged,
    # would call each other back for ever, or the older one would win.
    event.stop()
    now = screen.app.size
    await on_resize(screen, event if event.size == now else Resize(now, now))


@_replacing_method(Screen, "_on_screen_resume")
def _skip_second_drawing(resume: Callable[..., None], screen: Screen[Any], event: ScreenResume) -> None:
    """The styles of a new screen are found once (8.2.8; no issue upstream)."""
    # The styles of a new screen have just been found, and it is drawn as it is laid out: not all that again.
    new = screen._size != screen.app.size and screen.is_attached
    if new:
        event.refresh_styles = False
    resume(screen, event)
    if new:
        screen._repaint_required = False
        screen._dirty_regions.clear()
        screen._repaint_regions.clear()


@_replacing_method(AwaitMount, "__await__")
def _skip_layout_of_mounted_screen(wait: Callable[..., Generator[None]], mounted: AwaitMount) -> Generator[None]:
    """A new screen is not laid out and drawn twice more once it is mounted (8.2.8; no issue upstream)."""
    # It is laid out as it is resumed; what is mounted on a screen that is shown needs a layout.
    if mounted._widgets == [mounted._parent]:
        return mounted._parent._mounted_event.wait().__await__()
    return wait(mounted)


@_replacing_method(StylesCache, "get_inner_outer")
def _keep_no_widget_in_style_cache(
    _find: object, _cache: StylesCache, base_background: Color, background: Color
) -> Any:
    """A cache of colours keeps no widget (8.2.8; upstream #6665)."""
    return _inner_and_outer_style(base_background, background)


# Its own cache has the object among its keys, and so the drawn lines of a thousand widgets that are gone.
_inner_and_outer_style = lru_cache(1024)(partial(StylesCache.get_inner_outer.__wrapped__, None))


@_replacing_method(Worker, "_run_threaded")
async def _keep_no_worker_in_idle_thread(run: Callable[..., Awaitable[Any]], worker: Worker[Any]) -> Any:
    """An idle thread keeps no worker, nor its screen (8.2.8; no issue upstream)."""
    # It is made the active one in a context of the thread's own, and an idle thread keeps it with all its screen.
    work = worker._work
    if not callable(work) or inspect.iscoroutinefunction(getattr(work, "func", work)):
        return await run(worker)

    def alone() -> Any:
        active_worker.set(worker)
        return _do_work_and_record_error(worker, work)

    return await asyncio.get_running_loop().run_in_executor(None, copy_context().run, alone)


def _do_work_and_record_error(worker: Worker[Any], work: Callable[[], Any]) -> Any:
    """Do the work of a thread; record an error after a newer worker of its group replaced it: nobody is told of it."""
    try:
        return work()
    except Exception as error:
        # What fails as its screen is closed, or the app ends, misses what is gone.
        if worker.is_cancelled and worker.node.is_attached and not isinstance(error, TuiTrainError):
            record_fault(error)
        raise


@_replacing_method(Worker, "cancel")
def _close_unstarted_work(cancel: Callable[..., None], worker: Worker[Any]) -> None:
    """A worker that is cancelled before it began leaves no coroutine (8.2.8; no issue upstream)."""
    cancel(worker)
    # Python warns on the terminal of what was never awaited: a suggestion for an input that is left, for one.
    if inspect.iscoroutine(worker._work) and inspect.getcoroutinestate(worker._work) == inspect.CORO_CREATED:
        worker._work.close()


# What Textual does for itself only (8.2.8; no issue upstream).


def driver_of(app: App[Any]) -> Driver | None:
    """Return what writes to the terminal: there is no other way to write a sequence."""
    return app._driver


def forward_key(widget: Widget, event: Key) -> None:
    """Give a widget a key, as the app does: one that is posted to it the app would forward once more."""
    widget._forward_event(Key(event.key, event.character))
