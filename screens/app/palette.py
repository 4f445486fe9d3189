"""The palette: what the screen can do, then steps, fields, profiles and runs, found by what is typed."""

from collections.abc import Iterable

from textual.app import SystemCommand
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.events import Click

# Of two that match nearly alike the one that stands first in the whole list comes first.
_ORDER_SCORE = 0.0001
_MAX_COMMANDS = 1000


class Commands(Provider):
    """Offers what the app offers for a screen, in its order."""

    @property
    def _offered(self) -> Iterable[SystemCommand]:
        return self.app.get_system_commands(self.screen)

    async def discover(self) -> Hits:
        """Yield all."""
        for command in self._offered:
            yield DiscoveryHit(command.title, command.callback, help=command.help)

    async def search(self, query: str) -> Hits:
        """Yield what matches."""
        matcher = self.matcher(query)
        for number, command in enumerate(self._offered):
            if (match := matcher.match(command.title)) > 0:
                score = match + _ORDER_SCORE * (_MAX_COMMANDS - number) / _MAX_COMMANDS
                yield Hit(score, matcher.highlight(command.title), command.callback, command.title, command.help)


class Palette(CommandPalette):
    """Textual's, with these commands alone."""

    def __init__(self) -> None:
        """Have no id: the palette before may still be closing, and ids are unique."""
        super().__init__([Commands])

    def on_click(self, event: Click) -> None:
        """Leave alone a click where the screen ended meanwhile: Textual looks there for what was clicked."""
        if not self.region.contains(event.screen_x, event.screen_y):
            event.prevent_default()
