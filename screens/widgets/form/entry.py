"""The input of a form: one for all of its rows, put over the value of the row in which the cursor is."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ClassVar

from textual.binding import Binding, BindingsMap, BindingType
from textual.dom import DOMNode
from textual.events import Key
from textual.geometry import Region
from textual.suggester import Suggester, SuggestionReady
from textual.widgets import Input

from tui_train.base.text import visible
from tui_train.facts.machine.folder_names import names_in_local_folder

# A host that does not answer must not hold the threads that all workers share.
_COMPLETION_EXECUTOR = ThreadPoolExecutor(1)
# Returns the names in a folder, folders with a slash.
ListFolderNames = Callable[[str], list[str]]


class PathSuggester(Suggester):
    """Completes a path by what is in its folder, found while nobody waits."""

    def __init__(
        self,
        separator: str = "",
        names: tuple[str, ...] = (),
        *,
        list_folder_names: ListFolderNames | None = names_in_local_folder,
    ) -> None:
        """Complete the whole text, or what follows the last separator; to one of these names first, or only."""
        super().__init__(use_cache=False, case_sensitive=True)
        self._separator = separator
        self._names = names
        self._list_folder_names = list_folder_names
        self._candidates: tuple[str, tuple[str, ...]] = ("", ())

    async def get_suggestion(self, value: str) -> str | None:
        """Return the text completed, or nothing."""
        if named := next((name for name in self._names if value and name != value and name.startswith(value)), ""):
            return named
        if not self._list_folder_names:
            return None
        before, separator, path = value.rpartition(self._separator) if self._separator else ("", "", value)
        space = path[: len(path) - len(path.lstrip())]
        loop = asyncio.get_running_loop()
        names = await loop.run_in_executor(
            _COMPLETION_EXECUTOR, names_that_path_may_mean, path.strip(), self._list_folder_names
        )
        start = f"{before}{separator}{space}{path.strip()}"
        folder = start[: len(start) - len(path.strip().rpartition("/")[2])]
        self._candidates = value, tuple(f"{folder}{name}" for name in names)
        rest = _common_rest(path.strip(), names)
        return f"{start}{rest}" if rest else None

    def candidates(self, value: str) -> tuple[str, ...]:
        """Return the texts that a value may be completed to, as far as they were found by now."""
        return self._candidates[1] if self._candidates[0] == value else ()


def path_completion(path: str, list_folder_names: ListFolderNames = names_in_local_folder) -> str:
    """Return what follows of the one name in its folder that a path may mean, or what all those have in common."""
    return _common_rest(path, names_that_path_may_mean(path, list_folder_names))


def names_that_path_may_mean(path: str, list_folder_names: ListFolderNames) -> list[str]:
    """Return the names in its folder with which a path may go on, in their order, hidden ones only once begun."""
    folder, slash, start = path.rpartition("/")
    if not path or path == "~":
        return []
    names = list_folder_names(f"{folder}{slash}")
    may_be_meant = (name for name in names if name.startswith(start) and (start or not name.startswith(".")))
    return sorted(name for name in may_be_meant if visible(name) == name)


def _common_rest(path: str, names: list[str]) -> str:
    common = os.path.commonprefix(names)  # noqa: RUF071 - what the names begin with is meant
    return common[len(path.rpartition("/")[2]) :]


def list_candidates(entry: Input) -> None:
    """Show the names with which the path in an input may go on, to choose from."""
    from ..dialogs import ChoiceDialog

    def take(text: str | None) -> None:
        if text:
            entry.value = text
            entry.cursor_position = len(text)

    candidates = entry.suggester.candidates(entry.value) if isinstance(entry.suggester, PathSuggester) else ()
    if candidates:
        rows = [(text, text.rstrip("/").rpartition("/")[2] + "/" * text.endswith("/")) for text in candidates]
        entry.app.push_screen(ChoiceDialog("Which one?", rows), take)


async def run_key_binding(event: Key, *nodes: DOMNode | None) -> bool:
    """Do what a key is bound to in one of some widgets, and return whether it was.

    Textual passes a key through the screen first, and letters that were typed after it would come before it.
    """
    for node in nodes:
        for binding in _bindings_by_key(type(node)).get(event.key, ()) if node else ():
            if node and await node.app.run_action(binding.action, node):
                event.stop()
                event.prevent_default()
                return True
    return False


@cache
def _bindings_by_key(widget_class: type[DOMNode]) -> dict[str, list[Binding]]:
    """Return what keys are bound to in a class of widgets, else in those that it is made from."""
    maps = (BindingsMap(vars(each).get("BINDINGS", ())) for each in reversed(widget_class.__mro__))
    return {key: bound for each in maps for key, bound in each.key_to_bindings.items()}


class Entry(Input):
    """An input in which Enter goes to the next step, like everywhere, and a path is completed by Tab."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.next", "Next", key_display="Enter"),
        Binding("tab", "complete", show=False),
        Binding("f3", "list_names", show=False),
    ]

    def __init__(self) -> None:
        """Make it as flat as the form."""
        super().__init__(select_on_focus=False, validate_on=())
        # As `compact=True` does, which finds all styles of the input before it is anywhere.
        self.set_reactive(Input.compact, True)  # pyright: ignore[reportArgumentType] - what a class has
        self.add_class("-textual-compact", update=False)
        self.is_number = False
        self._completion: SuggestionReady | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tab completes, or lists what a path may mean, only where there is something to complete; else it goes on."""
        if action == "complete":
            return self.cursor_at_end and (self._has_completion or self._is_ambiguous)
        if action == "list_names":
            return isinstance(self.suggester, PathSuggester) and bool(self.suggester.candidates(self.value))
        return super().check_action(action, parameters)

    async def type_key(self, event: Key) -> None:
        """Type a key, also one that came to the form before the focus did; in a number ? asks for help."""
        event.stop()
        event.prevent_default()
        if self.is_number and event.character == "?":
            await self.run_action("app.help")
        elif self.selection.is_empty:
            self.insert_text_at_cursor(event.character or "")
        else:
            self.replace(event.character or "", *self.selection)

    async def on_key(self, event: Key) -> None:
        """Do at once what a key is bound to, here and in the form."""
        if not await run_key_binding(event, self, self.parent) and event.is_printable:
            await self.type_key(event)

    def on_resize(self) -> None:
        """Keep the cursor in sight where an error beside it takes some of the room."""
        self.scroll_to_region(Region(self._cursor_offset, 0, width=1, height=1), force=True, animate=False)

    def on_suggestion_ready(self, event: SuggestionReady) -> None:
        """Know that there is something to complete."""
        self._completion = event

    def on_focus(self) -> None:
        """Forget it, as the input does."""
        self._completion = None

    @property
    def _has_completion(self) -> bool:
        return bool(self._completion and self._completion.value == self.value)

    @property
    def _is_ambiguous(self) -> bool:
        """True where a name is begun, and several in its folder begin so; one that is whole may be meant."""
        candidates = self.suggester.candidates(self.value) if isinstance(self.suggester, PathSuggester) else ()
        whole = {self.value, f"{self.value}/"} & {*candidates}
        return len(candidates) > 1 and not whole and not self.value.endswith("/")

    def action_complete(self) -> None:
        """Take what is suggested, or choose among several names."""
        if self._has_completion:
            self.action_cursor_right()
        else:
            list_candidates(self)

    def action_list_names(self) -> None:
        """Choose among the names with which the path may go on."""
        list_candidates(self)
