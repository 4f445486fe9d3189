"""Makes the pictures of README and docs from the real program, while it trains twice: `make pictures`."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Input

from tui_train.profile.fields import profile_with_value
from tui_train.profile.store import save_profile
from tui_train.profile.types import Profile
from tui_train.wizard import make_wizard

_SIZE = (100, 30)
# The environment of this program under a name that says nothing of this machine.
_ENVIRONMENT = Path(tempfile.gettempdir(), "train")
_STEPS = 150
_SEEN = 0.9  # of the steps, when the picture of a run is taken
_STEPS_OF_THE_WAY = ("Hardware", "Backend", "Recipe", "Preview")
_SIZES = {"recipe.layers": 2, "recipe.hidden_size": 64, "recipe.heads": 2, "recipe.steps": _STEPS}
# What the second run tries, compared with the first.
_OTHER = {"name": "small-fast", "recipe.learning_rate": 0.006}


async def picture() -> None:
    """Train two settings from Home, and save each screen on the way."""
    app = make_wizard()
    async with app.run_test(size=_SIZE) as pilot:
        await train(pilot, {**_SIZES, "name": "small"}, pictured=False)
        await train(pilot, {**_SIZES, **_OTHER}, pictured=True)
        await until(pilot, lambda: "small-fast" in shown(pilot) and "finished" in shown(pilot))
        home = app.screen
        home.row_list.go_to_row(next(iter(home.state.runs)))
        await settle(pilot)
        take(pilot, "home")
        for run in tuple(home.state.runs):
            home.row_list.go_to_row(run)
            await pilot.press("space")
        await pilot.press("c")
        await until(pilot, lambda: type(app.screen).__name__ == "CompareScreen")
        await settle(pilot)
        take(pilot, "compare")


async def train(pilot: Pilot[int], values: dict[str, object], *, pictured: bool) -> None:
    """Walk from Home to the end of a run of these values, and back."""
    app = pilot.app
    profile = profile_with_value(Profile(), "trainer.python", str(_ENVIRONMENT / "bin" / "python"))
    for key, value in values.items():
        profile = profile_with_value(profile, key, value)
    save_profile(profile, overwrite=True)
    row, home = f"profile:{profile.name}", app.screen
    await until(pilot, lambda: row in home.state.profiles)
    home.row_list.go_to_row(row)
    await pilot.press("enter")
    for step in _STEPS_OF_THE_WAY:
        await until(pilot, lambda name=step: type(app.screen).__name__ == f"{name}Screen" and not app.looking)
        await settle(pilot)
        if pictured:
            take(pilot, step.lower())
        await pilot.press("enter")
    await until(pilot, lambda: type(app.screen).__name__ == "RunScreen")
    run = app.screen
    await until(pilot, lambda: run.view.news is not None and run.view.news.progress.step >= _STEPS * _SEEN)
    if pictured:
        take(pilot, "run")
    await until(pilot, lambda: not run.view.still_trains)
    await pilot.press("escape")
    await until(pilot, lambda: type(app.screen).__name__ == "HomeScreen")


def take(pilot: Pilot[int], name: str) -> None:
    """Save the screen under a name."""
    for entry in pilot.app.screen.query(Input):
        entry.cursor_blink = False
    pilot.app.save_screenshot(str(Path(__file__).with_name(f"{name}.svg")))


def shown(pilot: Pilot[int]) -> str:
    """Return the text on the screen."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def settle(pilot: Pilot[int]) -> None:
    """Wait until what is read has been drawn."""
    await pilot.pause(1.5)


async def until(pilot: Pilot[int], true: Callable[[], bool]) -> None:
    """Wait until something holds."""
    while not true():
        await pilot.pause(0.05)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_STATE_HOME=folder, XDG_CONFIG_HOME=folder, TEXTUAL_ANIMATIONS="none")
        # A Python in the current folder would have to be chosen first.
        os.chdir(folder)
        _ENVIRONMENT.symlink_to(sys.prefix)
        try:
            asyncio.run(picture())
        finally:
            _ENVIRONMENT.unlink()
