"""Makes the pictures of README and docs from the real program, while it trains twice: `make pictures`.

The GPUs of Hardware are simulated, by the driver library of the tests.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

from recording import Frame, moving_picture
from textual.pilot import Pilot
from textual.widgets import Input

from tui_train.profile.fields import profile_with_value
from tui_train.profile.store import save_profile
from tui_train.profile.types import Profile
from tui_train.wizard import make_wizard

_HERE = Path(__file__).parent
_SIZE, _SIZE_WITH_CARD = (100, 30), (120, 32)
_GPU_BOX = "seed-3090-gt1030-3090"
# The environment of this program under a name that says nothing of this machine.
_ENVIRONMENT = Path(tempfile.gettempdir(), "train")
_STEPS = 150
_SEEN = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the steps, when pictures of a run are taken
_CAPTION_BY_STEP = {
    "Hardware": "Hardware: what this machine has, and what trains on it",
    "Backend": "Backend: what is trained, and what starts it",
    "Recipe": "Recipe: batch and rate, over the memory that they need",
    "Preview": "Preview: what will happen, and the one command",
}
_SIZES = {"recipe.layers": 2, "recipe.hidden_size": 64, "recipe.heads": 2, "recipe.steps": _STEPS}
# What the second run tries, compared with the first.
_OTHER = {"name": "small-fast", "recipe.learning_rate": 0.006}


async def picture() -> None:
    """Train two settings from Home, and save each screen on the way."""
    app, frames = make_wizard(), list[Frame]()
    async with app.run_test(size=_SIZE) as pilot:
        await train(pilot, {**_SIZES, "name": "small"}, None)
        await train(pilot, {**_SIZES, **_OTHER}, frames)
        await until(pilot, lambda: "small-fast" in shown(pilot) and "finished" in shown(pilot))
        home = app.screen
        home.row_list.go_to_row(next(iter(home.state.runs)))
        await settle(pilot)
        take(pilot, "home")
        frames.append(Frame(picture_of(pilot), "Home: every run and profile; a run needs no viewer", 4))
        (_HERE / "tour.svg").write_text(moving_picture(frames))
        for run in tuple(home.state.runs):
            home.row_list.go_to_row(run)
            await pilot.press("space")
        await pilot.press("c")
        await until(pilot, lambda: type(app.screen).__name__ == "CompareScreen")
        await settle(pilot)
        take(pilot, "compare")


async def train(pilot: Pilot[int], values: dict[str, object], frames: list[Frame] | None) -> None:
    """Walk from Home to the end of a run of these values, and back; `frames` takes what is seen on the way."""
    app = pilot.app
    profile = profile_with_value(Profile(), "trainer.python", str(_ENVIRONMENT / "bin" / "python"))
    for key, value in values.items():
        profile = profile_with_value(profile, key, value)
    save_profile(profile, overwrite=True)
    row, home = f"profile:{profile.name}", app.screen
    await until(pilot, lambda: row in home.state.profiles)
    home.row_list.go_to_row(row)
    await pilot.press("enter")
    for step, caption in _CAPTION_BY_STEP.items():
        await until(pilot, lambda name=step: type(app.screen).__name__ == f"{name}Screen" and not app.looking)
        await settle(pilot)
        if frames is not None:
            frames.append(Frame(picture_of(pilot), caption, 3))
            if step != "Hardware":
                take(pilot, step.lower())
        await pilot.press("enter")
    await until(pilot, lambda: type(app.screen).__name__ == "RunScreen")
    run = app.screen
    for share in _SEEN:
        at = _STEPS * share
        await until(pilot, lambda at=at: run.view.news is not None and run.view.news.progress.step >= at)
        if frames is not None:
            frames.append(Frame(picture_of(pilot), "Run: its state, its losses and its log", 1))
            take(pilot, "run")
    await until(pilot, lambda: not run.view.still_trains)
    if frames is not None:
        await settle(pilot)
        frames.append(Frame(picture_of(pilot), "Its end: what it leaves, and what is next", 3))
    await pilot.press("escape")
    await until(pilot, lambda: type(app.screen).__name__ == "HomeScreen")


async def picture_of_gpus() -> None:
    """Save Hardware as it is on the machine whose driver was loaded."""
    app = make_wizard()
    async with app.run_test(size=_SIZE_WITH_CARD) as pilot:
        profile = profile_with_value(Profile(name="small"), "trainer.python", str(_ENVIRONMENT / "bin" / "python"))
        save_profile(profile, overwrite=True)
        await until(pilot, lambda: f"profile:{profile.name}" in app.screen.state.profiles)
        app.screen.row_list.go_to_row(f"profile:{profile.name}")
        await pilot.press("enter")
        await until(pilot, lambda: type(app.screen).__name__ == "HardwareScreen" and not app.looking)
        await settle(pilot)
        app.screen.query_one("#gpus").focus()
        await pilot.press("down")
        await settle(pilot)
        take(pilot, "hardware")


def make_environment_for_cuda() -> None:
    """Make an environment whose torch is a build for CUDA, as far as its files say; nothing can run in it."""
    venv.create(_ENVIRONMENT)
    packages = next(_ENVIRONMENT.glob("lib/python*/site-packages"))
    for name, version in {"accelerate": "1.15.0", "transformers": "5.23.0"}.items():
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(f"__version__ = '{version}'\n")
        (packages / f"{name}-{version}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (packages / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
    torch = packages / "torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("__version__ = '2.13.0+cu126'\ncuda = '12.6'\n")
    (torch / "lib" / "libtorch_python.so").write_bytes(b"\0sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90\0")


def take(pilot: Pilot[int], name: str) -> None:
    """Save the screen under a name."""
    (_HERE / f"{name}.svg").write_text(picture_of(pilot))


def picture_of(pilot: Pilot[int]) -> str:
    """Return the screen as an SVG document."""
    for entry in pilot.app.screen.query(Input):
        entry.cursor_blink = False
    return str(pilot.app.export_screenshot())


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


def main() -> None:
    """Take all pictures, those of the GPUs in a process that loads the simulated driver."""
    if sys.argv[1:] != ["gpus"] and (_ENVIRONMENT.exists() or _ENVIRONMENT.is_symlink()):
        sys.exit(f"{_ENVIRONMENT} exists: the pictures need this name for an environment that is removed after them")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_STATE_HOME=folder, XDG_CONFIG_HOME=folder, TEXTUAL_ANIMATIONS="none")
        # A Python in the current folder would have to be chosen first.
        os.chdir(folder)
        if sys.argv[1:] == ["gpus"]:
            asyncio.run(picture_of_gpus())
            return
        sys.path.insert(0, str(_HERE.parent / "tests"))
        from fake_driver import driver_environment

        try:
            make_environment_for_cuda()
            subprocess.run(
                [sys.executable, __file__, "gpus"], env={**os.environ, **driver_environment(_GPU_BOX)}, check=True
            )
        finally:
            shutil.rmtree(_ENVIRONMENT)
        _ENVIRONMENT.symlink_to(sys.prefix)
        try:
            asyncio.run(picture())
        finally:
            _ENVIRONMENT.unlink()


if __name__ == "__main__":
    main()
