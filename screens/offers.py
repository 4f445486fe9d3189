"""What the palette offers: the keys of the screen, then steps, fields, profiles and runs."""

from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.dom import DOMNode
from textual.screen import Screen

from tui_train.base.text import visible

from . import STEPS
from .themes import NAMES

if TYPE_CHECKING:
    from .app import Wizard
    from .step import Step

_MOST_RUNS = 200  # the newest


def offers(app: "Wizard", screen: Screen[Any]) -> Iterable[SystemCommand]:
    """Yield every action of the screen by its key's words, then where one can go, and what holds everywhere."""
    yield from _keys(app, screen)
    of_run = hasattr(screen, "run")
    for step in STEPS[:-1]:
        about = f"Step {step.title}, with the values of this run" if of_run else "A step"
        yield SystemCommand(f"Go to {step.title}", about, partial(app.action_go, step.module))
    yield from _fields(app)
    yield from _profiles(app)
    yield from _runs(app)
    yield SystemCommand("Look again", "Read the machine and its Pythons again", app.action_look)
    for name in NAMES:
        if name != app.theme:
            yield SystemCommand(f"Theme {name}", "Change the colours", partial(app.action_theme, name))


def _keys(app: "Wizard", screen: Screen[Any]) -> Iterable[SystemCommand]:
    async def act(action: str, node: DOMNode) -> None:
        await app.run_action(action, node)

    offered: set[str] = set()
    # Those at the bottom of the screen first.
    for active in sorted(screen.active_bindings.values(), key=lambda active: not active.binding.show):
        binding = active.binding
        if binding.description and active.enabled and binding.description not in {"palette", *offered}:
            offered.add(binding.description)
            about = f"Key {app.get_key_display(binding)}"
            yield SystemCommand(binding.description, about, partial(act, binding.action, active.node))


def _fields(app: "Wizard") -> Iterable[SystemCommand]:
    """Yield a command for each field of a step's form that the profile has a use for: it goes there."""
    from tui_train.profile import fields
    from tui_train.workflow import choices

    for step in STEPS[:-1]:
        kind: type[Step] = import_module(f".{step.module}", __package__).SCREEN
        for key in (key for section in kind.SECTIONS for key in section.keys):
            if choices.applies(key, app.profile):
                go = partial(app.action_go, step.module, key)
                yield SystemCommand(fields.field(key).label, f"{step.title}: {key}", go)


def _profiles(app: "Wizard") -> Iterable[SystemCommand]:
    from tui_train.profile import store

    for name in store.names():
        opens = partial(app.call_later, app.open_profile, name)
        yield SystemCommand(f"Profile {visible(name)}", "Open its steps", opens)


def _runs(app: "Wizard") -> Iterable[SystemCommand]:
    from tui_train.runs.rundir import runs_by_name

    for run in runs_by_name()[:_MOST_RUNS]:
        yield SystemCommand(f"Run {visible(run.name)}", "Open it", partial(app.call_later, app.open_run, run))
