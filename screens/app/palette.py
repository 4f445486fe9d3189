"""The palette: the keys of the screen, then steps, fields, profiles and runs, found by what is typed."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import App, SystemCommand
from textual.binding import ActiveBinding, Binding
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.dom import DOMNode
from textual.events import Click
from textual.fuzzy import Matcher
from textual.markup import escape
from textual.screen import Screen

from tui_train.base.text import visible

from .. import STEPS, load_step_module
from ..home.screen import HomeScreen
from ..themes import THEME_NAMES
from ..widgets.text_layout import MUTED, styled

if TYPE_CHECKING:
    from ..steps.step import StepScreen
    from .app import Wizard

_MAX_RUNS_LISTED = 200  # the newest
# Of two that match nearly alike the one that stands first in the whole list comes first.
_MAX_ORDER_BONUS = 0.0001
_MAX_COMMANDS = 1000
_NAME_WIDTH = 26  # cells of a command before its key


class PaletteCommands(Provider):
    """Commands that the app offers for a screen, in its order."""

    @property
    def _offered_commands(self) -> Iterable[SystemCommand]:
        return self.app.get_system_commands(self.screen)

    async def discover(self) -> Hits:
        """Yield all."""
        for command in self._offered_commands:
            line = _title_in_columns(Content.from_markup(command.title))
            yield DiscoveryHit(line, command.callback, line.plain)

    async def search(self, query: str) -> Hits:
        """Yield what matches."""
        matcher = self.matcher(query)
        for number, command in enumerate(self._offered_commands):
            if (match := _match_score(matcher, command.title)) > 0:
                score = match + _MAX_ORDER_BONUS * (_MAX_COMMANDS - number) / _MAX_COMMANDS
                line = _title_in_columns(matcher.highlight(command.title))
                yield Hit(score, line, command.callback, line.plain)


def _match_score(matcher: Matcher, title: str) -> float:
    """Return how well a command matches: one that has the query in its words comes before one that has it as a key."""
    words = title.partition(" (")[0]
    return matcher.match(title) + (matcher.query.casefold() in words.casefold())


def _title_in_columns(title: Content) -> Content:
    """Return a command with what is in brackets behind it, its key or its field, in a column of its own."""
    words, bracket, beside = title.plain.partition(" (")
    if not bracket or not beside.endswith(")"):
        return title
    name = title[: len(words)]
    gap = " " * max(2, _NAME_WIDTH - name.cell_length)
    return styled(name, gap, title[len(words) + len(bracket) : -1].stylize_before(MUTED))


class Palette(CommandPalette):
    """Textual's, with these commands alone."""

    def __init__(self) -> None:
        """Have no id: the palette before may still be closing, and ids are unique."""
        super().__init__([PaletteCommands])

    def on_click(self, event: Click) -> None:
        """Leave alone a click where the screen ended meanwhile: Textual looks there for what was clicked."""
        if not self.region.contains(event.screen_x, event.screen_y):
            event.prevent_default()


def palette_commands(app: "Wizard", screen: Screen[Any]) -> Iterable[SystemCommand]:
    """Yield every action of the screen by its key's words, then where one can go, and what holds everywhere.

    A line each, which the palette reads as markup.
    """
    yield from _key_commands(app, screen)
    if not isinstance(screen, HomeScreen):
        yield _make_command("Go to Home", app.action_go_home)
    of_run = hasattr(screen, "run")
    for step in STEPS[:-1]:
        values = ", with the values of this run" if of_run else ""
        yield _make_command(f"Go to {step.title}{values}", partial(app.action_go_to_step, step.module))
    yield from _field_commands(app)
    yield from _profile_commands(app)
    yield from _commands_opening_runs(app)
    yield _make_command("Look again at this machine and its Pythons", app.action_refresh_facts)
    for name in THEME_NAMES:
        if name != app.theme:
            yield _make_command(f"Theme {name}", partial(app.change_and_save_theme, name))


def _make_command(title: str, callback: Callable[[], Any]) -> SystemCommand:
    return SystemCommand(escape(title), "", callback)


def _key_commands(app: "Wizard", screen: Screen[Any]) -> Iterable[SystemCommand]:
    async def act(action: str, node: DOMNode) -> None:
        # A screen may be left while its keys are offered.
        if node.display and node.is_attached:
            await app.run_action(action, node)

    offered: set[str] = set()
    # Those at the bottom of the screen first.
    for active in sorted(screen.active_bindings.values(), key=lambda active: not active.binding.show):
        binding = active.binding
        if _is_scroll_or_typing_key(active):
            continue
        if binding.description and active.enabled and binding.description not in {"palette", *offered}:
            offered.add(binding.description)
            words = f"{binding.description} ({app.get_key_display(binding)})"
            yield _make_command(words, partial(act, binding.action, active.node))


def _is_scroll_or_typing_key(active: ActiveBinding) -> bool:
    """Tell whether a key is one with which Textual's widgets scroll and type: nobody looks for these by name."""
    kinds = (kind for kind in type(active.node).__mro__ if kind.__module__.startswith("textual.") and kind is not App)
    own = (each for kind in kinds for each in vars(kind).get("BINDINGS", ()))
    return any(isinstance(each, Binding) and each.action == active.binding.action for each in own)


def _field_commands(app: "Wizard") -> Iterable[SystemCommand]:
    """Yield a command for each field of a step's form that the profile has a use for: it goes there."""
    from tui_train.profile import fields
    from tui_train.views import choices

    for step in STEPS[:-1]:
        kind: type[StepScreen] = load_step_module(step.module).SCREEN
        for key in (key for section in kind.SECTIONS for key in section.keys):
            if choices.is_field_shown(key, app.profile):
                go = partial(app.action_go_to_step, step.module, key)
                yield _make_command(f"{fields.get_field(key).label} ({step.title}: {key})", go)


def _profile_commands(app: "Wizard") -> Iterable[SystemCommand]:
    from tui_train.profile import store

    for name in store.saved_profile_names():
        opens = partial(app.call_later, app.open_saved_profile, name)
        yield _make_command(f"Profile {visible(name)}", opens)


def _commands_opening_runs(app: "Wizard") -> Iterable[SystemCommand]:
    from tui_train.runs.run_folders import runs_newest_first_by_name

    for run in runs_newest_first_by_name()[:_MAX_RUNS_LISTED]:
        yield _make_command(f"Run {visible(run.name)}", partial(app.call_later, app.open_run, run))
