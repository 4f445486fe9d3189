"""Faults of Textual that a fast key or a narrow terminal meets, each fixed in its own method.

Each names the version that has the fault and the issue at github.com/Textualize/textual; a test of each turns red where
Textual no longer has it, and then the fix goes.
"""

import asyncio
import inspect
from collections.abc import Callable, Generator
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
from textual.events import Key, Resize, ScreenResume
from textual.geometry import Offset, Size
from textual.screen import Screen
from textual.style import Style
from textual.widget import AwaitMount, Widget
from textual.widgets import Input, OptionList
from textual.worker import Worker, active_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.fault_log import record_fault

_FIXED_ATTRIBUTE = "_tui_train_fixed"


def fix_textual() -> None:
    """Put the fixes in place, once."""
    if getattr(OptionList, _FIXED_ATTRIBUTE, False):
        return
    setattr(OptionList, _FIXED_ATTRIBUTE, True)
    _fix_page_key_in_new_list()
    _fix_second_dismiss()
    _fix_wrap_to_no_columns()
    _fix_click_on_removed_widget()
    _fix_reversed_options()
    _stop_cursor_blinking()
    _skip_second_layout()
    _ignore_sizes_of_before()
    _skip_second_drawing()
    _skip_layout_of_mounted_screen()
    _fix_widgets_kept_by_cache()
    _fix_workers_kept_by_thread()
    _close_unstarted_workers()
    _shorten_frame_period()


def _fix_page_key_in_new_list() -> None:
    """A page key in a list that was not laid out is no error (8.2.8; no issue upstream)."""
    move_page = OptionList._move_page

    @wraps(move_page)
    def fixed(self: OptionList, direction: Any) -> None:
        # A list has no lines until it has a size: a page key that comes before has nowhere to go.
        if (self.highlighted or 0) in self._index_to_line:
            move_page(self, direction)

    OptionList._move_page = fixed  # type: ignore[method-assign]


def _fix_second_dismiss() -> None:
    """A screen is dismissed once (8.2.8; no issue upstream: #2575 made it an error for screens below the top only)."""
    dismiss = Screen.dismiss

    @wraps(dismiss)
    def fixed(self: Screen[Any], result: Any = None) -> AwaitComplete:
        # A second Enter or click may still be queued: it would close the screen below, or end the wizard on the last.
        return dismiss(self, result) if self.is_active else AwaitComplete()

    Screen.dismiss = fixed  # type: ignore[method-assign]


def _fix_reversed_options() -> None:
    """An option that a style reverses is drawn so (8.2.8; no issue upstream): without colours nothing else marks it."""
    own_style: Callable[..., Style] = OptionList.get_visual_style

    @wraps(own_style)
    def fixed(self: Widget, *component_classes: str, partial: bool = False) -> Style:
        style = own_style(self, *component_classes, partial=partial)
        is_reversed = any(self.get_component_styles(name).text_style.reverse for name in component_classes)
        return style + Style(reverse=True) if is_reversed else style

    OptionList.get_visual_style = fixed  # type: ignore[method-assign]


def _fix_wrap_to_no_columns() -> None:
    """Text has lines also where no column is left (8.2.8; no issue upstream)."""
    wrap = Content._wrap_and_format

    @wraps(wrap)
    def fixed(self: Content, width: int, *arguments: Any, **named: Any) -> Any:
        # Where no column is left it divides by the width: range() with a step of 0.
        return wrap(self, max(1, width), *arguments, **named)

    Content._wrap_and_format = fixed  # type: ignore[method-assign]


def _fix_click_on_removed_widget() -> None:
    """A click does not find what was removed since the last layout (8.2.8; upstream #5629 for other ways there)."""
    widget_at = Screen.get_widget_and_offset_at

    @wraps(widget_at)
    def fixed(self: Screen[Any], x: int, y: int) -> tuple[Widget | None, Offset | None]:
        # Until the next layout it finds what has just been removed, whose parent, in which text is selected, is gone.
        widget, offset = widget_at(self, x, y)
        return (None, None) if widget is not None and widget.parent is None else (widget, offset)

    Screen.get_widget_and_offset_at = fixed  # type: ignore[method-assign]


def _stop_cursor_blinking() -> None:
    """An input's cursor does not blink (8.2.8; a default, and no fault)."""
    initialize = Input.__init__

    @wraps(initialize)
    def fixed(self: Input, *arguments: Any, **named: Any) -> None:
        # A cursor that blinks is drawn twice a second, over whatever line there is.
        initialize(self, *arguments, **named)
        self.set_reactive(Input.cursor_blink, False)

    Input.__init__ = fixed  # type: ignore[method-assign]


def _skip_second_layout() -> None:
    """A screen is not laid out again for the size that it has (8.2.8; no issue upstream)."""
    resized = Screen._screen_resized

    @wraps(resized)
    def fixed(self: Screen[Any], size: Size) -> None:
        # A new screen is laid out, and then told the size that this was for.
        if size != self._size:
            resized(self, size)

    Screen._screen_resized = fixed  # type: ignore[method-assign]


def _ignore_sizes_of_before() -> None:
    """A screen is laid out for the size that the terminal has now (8.2.8; no issue upstream)."""
    on_resize = Screen._on_resize

    @wraps(on_resize)
    async def fixed(self: Screen[Any], event: Resize) -> None:
        # Each layout tells the screen its size once more. Two sizes that wait at once, as of a corner that is dragged,
        # would call each other back for ever, or the older one would win.
        event.stop()
        now = self.app.size
        await on_resize(self, event if event.size == now else Resize(now, now))

    Screen._on_resize = fixed  # type: ignore[method-assign]


def _skip_second_drawing() -> None:
    """The styles of a new screen are found once (8.2.8; no issue upstream)."""
    resume = Screen._on_screen_resume

    @wraps(resume)
    def fixed(self: Screen[Any], event: ScreenResume) -> None:
        # The styles of a new screen have just been found, and it is drawn as it is laid out: not all that again.
        new = self._size != self.app.size and self.is_attached
        if new:
            event.refresh_styles = False
        resume(self, event)
        if new:
            self._repaint_required = False
            self._dirty_regions.clear()
            self._repaint_regions.clear()

    Screen._on_screen_resume = fixed  # type: ignore[method-assign]


def _skip_layout_of_mounted_screen() -> None:
    """A new screen is not laid out and drawn twice more once it is mounted (8.2.8; no issue upstream)."""
    wait = AwaitMount.__await__

    @wraps(wait)
    def fixed(self: AwaitMount) -> Generator[None, None, None]:
        # It is laid out as it is resumed; what is mounted on a screen that is shown needs a layout.
        if self._widgets == [self._parent]:
            yield from self._parent._mounted_event.wait().__await__()
        else:
            yield from wait(self)

    AwaitMount.__await__ = fixed  # type: ignore[method-assign]


def _fix_widgets_kept_by_cache() -> None:
    """A cache of colours keeps no widget (8.2.8; upstream #6665)."""
    kept = StylesCache.get_inner_outer
    by_colours = lru_cache(1024)(partial(kept.__wrapped__, None))

    @wraps(kept)
    def fixed(_self: StylesCache, base_background: Color, background: Color) -> tuple[Style, Style]:
        # Its cache has the object among its keys, and so the drawn lines of a thousand widgets that are gone.
        return by_colours(base_background, background)

    StylesCache.get_inner_outer = fixed  # type: ignore[method-assign,assignment]


def _fix_workers_kept_by_thread() -> None:
    """An idle thread keeps no worker, nor its screen (8.2.8; no issue upstream)."""
    run = Worker._run_threaded

    @wraps(run)
    async def fixed(self: Worker[Any]) -> Any:
        # It is made the active one in a context of the thread's own, and an idle thread keeps it with all its screen.
        work = self._work
        if not callable(work) or inspect.iscoroutinefunction(getattr(work, "func", work)):
            return await run(self)

        def alone() -> Any:
            active_worker.set(self)
            return _result_or_recorded_error(self, work)

        return await asyncio.get_running_loop().run_in_executor(None, copy_context().run, alone)

    Worker._run_threaded = fixed  # type: ignore[method-assign]


def _result_or_recorded_error(worker: Worker[Any], work: Callable[[], Any]) -> Any:
    """Do the work of a thread; record an error after a newer worker of its group replaced it: nobody is told of it."""
    try:
        return work()
    except Exception as error:
        # What fails as its screen is closed, or the app ends, misses what is gone.
        if worker.is_cancelled and worker.node.is_attached and not isinstance(error, TuiTrainError):
            record_fault(error)
        raise


def _close_unstarted_workers() -> None:
    """A worker that is cancelled before it began leaves no coroutine (8.2.8; no issue upstream)."""
    cancel = Worker.cancel

    @wraps(cancel)
    def fixed(self: Worker[Any]) -> None:
        cancel(self)
        # Python warns on the terminal of what was never awaited: a suggestion for an input that is left, for one.
        if inspect.iscoroutine(self._work) and inspect.getcoroutinestate(self._work) == inspect.CORO_CREATED:
            self._work.close()

    Worker.cancel = fixed  # type: ignore[method-assign]


def _shorten_frame_period() -> None:
    """Something is drawn within 8 ms of a key (8.2.8; no issue upstream: TEXTUAL_FPS is read as it is imported)."""
    # A second frame waits for up to two periods: at 60 a second that is 33 ms after a key, which is felt.
    screen.UPDATE_PERIOD = 1 / 240  # type: ignore[misc]


# What Textual does for itself only (8.2.8; no issue upstream).


def driver_of(app: App[Any]) -> Driver | None:
    """Return what writes to the terminal: there is no other way to write a sequence."""
    return app._driver


def forward_key(widget: Widget, event: Key) -> None:
    """Give a widget a key, as the app does: one that is posted to it the app would forward once more."""
    widget._forward_event(Key(event.key, event.character))
