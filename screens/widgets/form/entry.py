"""The input of a form: one for all of its rows, put over the value of the row in which the cursor is."""

from functools import cache
from typing import ClassVar

from textual.binding import Binding, BindingsMap, BindingType
from textual.dom import DOMNode
from textual.events import Key
from textual.geometry import Region
from textual.message import Message
from textual.suggester import SuggestionReady
from textual.widgets import Input

from ..dialogs import show_candidates
from ..path_suggester import PathSuggester


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

    class CompletionOffered(Message):
        """There is something to complete."""

    class TypingRefused(Message):
        """What was typed begins no value."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.next", "Next", key_display="Enter"),
        Binding("tab", "complete", "Complete", key_display="Tab"),
        Binding("f3", "list_names", show=False),
        Binding("left", "cursor_left", "Edit", key_display="←→"),
    ]

    def __init__(self) -> None:
        """Make it as flat as the form."""
        super().__init__(select_on_focus=False, validate_on=())
        # As `compact=True` does, which finds all styles of the input before it is anywhere.
        self.set_reactive(Input.compact, True)  # pyright: ignore[reportArgumentType] - what a class has
        self.add_class("-textual-compact", update=False)
        self.is_number = False
        self._completion: SuggestionReady | None = None
        self._was_all_selected = False

    @property
    def is_all_selected(self) -> bool:
        """True where typing replaces all, until an arrow key keeps it."""
        return bool(self.value) and self.selected_text == self.value

    def watch_selection(self) -> None:
        """Tell the key bar where that changes."""
        if self._was_all_selected != self.is_all_selected and self.is_attached:
            self._was_all_selected = self.is_all_selected
            self.screen.refresh_bindings()

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
        elif (not self.value or self.is_all_selected) and self._begins_no_value(event.character or ""):
            self.post_message(self.TypingRefused())
        elif self.selection.is_empty:
            self.insert_text_at_cursor(event.character or "")
        else:
            self.replace(event.character or "", *self.selection)

    def _begins_no_value(self, character: str) -> bool:
        # A letter there was meant for another screen: it would replace the number.
        return character.isalpha() if self.is_number else character == " " and isinstance(self.suggester, PathSuggester)

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
        self.post_message(self.CompletionOffered())

    def on_focus(self) -> None:
        """Forget the completion that was offered, as the input does."""
        self._completion = None

    @property
    def _has_completion(self) -> bool:
        return bool(self._completion and self._completion.value == self.value)

    @property
    def is_begun_name(self) -> bool:
        """True where what is typed is the beginning of a name, which is offered, and no name itself."""
        return self._has_completion and not self._is_whole_name

    @property
    def _candidates(self) -> tuple[str, ...]:
        return self.suggester.candidates(self.value) if isinstance(self.suggester, PathSuggester) else ()

    @property
    def _is_whole_name(self) -> bool:
        return not {self.value, f"{self.value}/"}.isdisjoint(self._candidates)

    @property
    def _is_ambiguous(self) -> bool:
        """True where a name is begun, and several in its folder begin so; one that is whole may be meant."""
        return len(self._candidates) > 1 and not self._is_whole_name and not self.value.endswith("/")

    def action_complete(self) -> None:
        """Take what is suggested, or choose among several names."""
        if self._has_completion:
            self.action_cursor_right()
        else:
            show_candidates(self)

    def action_list_names(self) -> None:
        """Choose among the names with which the path may go on."""
        show_candidates(self)
