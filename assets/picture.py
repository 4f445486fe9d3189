"""Makes run.svg from the real program: `python assets/picture.py` trains the quickstart and takes its picture."""

import asyncio
import os
import tempfile
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Input

from tui_train.wizard import wizard

_STEPS = 55


async def picture() -> None:
    """Walk from Home to the running training by Enter, and save the screen when the loss has fallen."""
    app = wizard()
    async with app.run_test(size=(100, 30)) as pilot:
        for wanted in ("Hardware", "Backend", "Recipe", "Preview", "RunScreen"):
            await pilot.press("enter")
            await until(pilot, lambda name=wanted: type(app.screen).__name__ == name and not app.looking)
        await until(pilot, lambda: app.screen._told is not None and app.screen._told.progress.step >= _STEPS)
        for entry in app.screen.query(Input):
            entry.cursor_blink = False
        app.save_screenshot(str(Path(__file__).with_name("run.svg")))
        await until(pilot, lambda: not app.screen.going)


async def until(pilot: Pilot, true: object) -> None:
    """Wait until something holds."""
    while not true():
        await pilot.pause(0.05)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_STATE_HOME=folder, XDG_CONFIG_HOME=folder, TEXTUAL_ANIMATIONS="none")
        asyncio.run(picture())
