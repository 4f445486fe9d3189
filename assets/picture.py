"""Makes the pictures of README and docs from the real program, while it trains twice: `make pictures`.

The GPUs of Hardware are simulated, by the driver library of the tests, and so are the two fine-tunes on them.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

from simulated_runs import write_run_that_failed, write_run_that_fell_back
from textual.pilot import Pilot
from textual.widgets import Input

from tui_train.profile.fields import profile_with_value
from tui_train.profile.store import save_profile
from tui_train.profile.types import Profile
from tui_train.wizard import make_wizard

_HERE = Path(__file__).parent
# From 110 columns on there is a second one.
_TERMINAL_SIZE = (120, 32)
_SIMULATED_MACHINE = "seed-3090-gt1030-3090"
_SIMULATED_PACKAGES = {
    "accelerate": "1.15.0", "transformers": "5.23.0", "trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0"
}  # fmt: skip
_SIMULATED_RUN_BY_PICTURE = {"out-of-memory": write_run_that_fell_back, "failure": write_run_that_failed}
# The environment of this program under a name that says nothing of this machine.
_ENVIRONMENT = Path(tempfile.gettempdir(), "train")
_STEPS = 150
_SHARES_OF_STEPS_PICTURED = (0.1, 0.3, 0.5, 0.7, 0.9)
_CAPTION_BY_STEP = {
    "Hardware": "",
    "Backend": "Backend: what is trained, and what starts it",
    "Recipe": "Recipe: batch and rate, over the memory that they need",
    "Preview": "Preview: what will happen, and the one command",
}
_HOME_CAPTION = "Home: every run and profile; a run needs no viewer"
_MODEL_SIZES = {"recipe.layers": 2, "recipe.hidden_size": 64, "recipe.heads": 2, "recipe.steps": _STEPS}
# What the second run tries, compared with the first.
_EDITS_OF_SECOND_RUN = {"name": "small-fast", "recipe.learning_rate": 0.006}
_CAPTION_HEIGHT = 44
_FONT_FACE_PATTERN = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)
_VIEW_BOX_PATTERN = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Frame(NamedTuple):
    """A picture as an SVG document, what is said below it, and for how many seconds it is shown."""

    picture: str
    caption: str
    seconds: float


async def take_run_pictures() -> None:
    """Train two settings from Home, and save each screen on the way."""
    app, frames = make_wizard(), list[Frame]()
    async with app.run_test(size=_TERMINAL_SIZE) as pilot:
        await train_on_the_way(pilot, {**_MODEL_SIZES, "name": "small"}, None)
        await train_on_the_way(pilot, {**_MODEL_SIZES, **_EDITS_OF_SECOND_RUN}, frames)
        await wait_until(pilot, lambda: "small-fast" in screen_text(pilot) and "finished" in screen_text(pilot))
        home = app.screen
        home.row_list.go_to_row(next(iter(home.state.runs)))
        await wait_until_drawn(pilot)
        save_screen(pilot, "home")
        frames.append(Frame(screen_as_svg(pilot), _HOME_CAPTION, 4))
        (_HERE / "tour.svg").write_text(moving_picture(frames))
        for run in tuple(home.state.runs):
            home.row_list.go_to_row(run)
            await pilot.press("space")
        await pilot.press("c")
        await wait_until(pilot, lambda: type(app.screen).__name__ == "CompareScreen")
        await wait_until_drawn(pilot)
        save_screen(pilot, "compare")


async def train_on_the_way(pilot: Pilot[int], values: dict[str, object], frames: list[Frame] | None) -> None:
    """Walk from Home to the end of a run of these values, and back; `frames` takes what is seen on the way."""
    app = pilot.app
    profile = profile_with_value(Profile(), "trainer.python", str(_ENVIRONMENT / "bin" / "python"))
    for key, value in values.items():
        profile = profile_with_value(profile, key, value)
    save_profile(profile, overwrite=True)
    row, home = f"profile:{profile.name}", app.screen
    await wait_until(pilot, lambda: row in home.state.profiles)
    if frames is not None:
        home.row_list.go_to_row(next(iter(home.state.runs)))
        await wait_until_drawn(pilot)
        frames.append(Frame(screen_as_svg(pilot), _HOME_CAPTION, 3))
    home.row_list.go_to_row(row)
    await pilot.press("enter")
    for step, caption in _CAPTION_BY_STEP.items():
        await wait_until(
            pilot, lambda name=step: type(app.screen).__name__ == f"{name}Screen" and not app.awaited_parts
        )
        await wait_until_drawn(pilot)
        # The Hardware that is pictured is that of the simulated machine.
        if frames is not None and caption:
            frames.append(Frame(screen_as_svg(pilot), caption, 3))
            save_screen(pilot, step.lower())
        await pilot.press("enter")
    await wait_until(pilot, lambda: type(app.screen).__name__ == "RunScreen")
    run = app.screen
    for share in _SHARES_OF_STEPS_PICTURED:
        at = _STEPS * share
        await wait_until(pilot, lambda at=at: run.view.snapshot is not None and run.view.snapshot.progress.step >= at)
        if frames is not None:
            frames.append(Frame(screen_as_svg(pilot), "Run: its state, its losses and its log", 1))
            save_screen(pilot, "run")
    await wait_until(pilot, lambda: not run.view.is_still_training)
    if frames is not None:
        await wait_until_drawn(pilot)
        frames.append(Frame(screen_as_svg(pilot), "Its end: what it leaves, and what is next", 3))
    await pilot.press("escape")
    await wait_until(pilot, lambda: type(app.screen).__name__ == "HomeScreen")


async def take_gpu_pictures() -> None:
    """Save Hardware as it is on the machine whose driver was loaded, and two fine-tunes there."""
    app = make_wizard()
    async with app.run_test(size=_TERMINAL_SIZE) as pilot:
        profile = profile_with_value(Profile(name="small"), "trainer.python", str(_ENVIRONMENT / "bin" / "python"))
        save_profile(profile, overwrite=True)
        await wait_until(pilot, lambda: f"profile:{profile.name}" in app.screen.state.profiles)
        app.screen.row_list.go_to_row(f"profile:{profile.name}")
        await pilot.press("enter")
        await wait_until(pilot, lambda: type(app.screen).__name__ == "HardwareScreen" and not app.awaited_parts)
        await wait_until_drawn(pilot)
        app.screen.query_one("#gpus").focus()
        await pilot.press("down")
        await wait_until_drawn(pilot)
        save_screen(pilot, "hardware")
        facts = app.facts
    for name, write_run in _SIMULATED_RUN_BY_PICTURE.items():
        app = make_wizard(str(write_run(facts)))
        async with app.run_test(size=_TERMINAL_SIZE) as pilot:
            await wait_until(pilot, lambda app=app: type(app.screen).__name__ == "RunScreen" and not app.awaited_parts)
            await wait_until_drawn(pilot)
            save_screen(pilot, name)


def make_environment_for_cuda() -> None:
    """Make an environment whose torch is a build for CUDA, as far as its files say; nothing can run in it."""
    venv.create(_ENVIRONMENT)
    packages = next(_ENVIRONMENT.glob("lib/python*/site-packages"))
    for name, version in _SIMULATED_PACKAGES.items():
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


def save_screen(pilot: Pilot[int], name: str) -> None:
    """Save the screen under a name."""
    (_HERE / f"{name}.svg").write_text(screen_as_svg(pilot))


def screen_as_svg(pilot: Pilot[int]) -> str:
    """Return the screen as an SVG document."""
    for entry in pilot.app.screen.query(Input):
        entry.cursor_blink = False
    return str(pilot.app.export_screenshot())


def screen_text(pilot: Pilot[int]) -> str:
    """Return the text on the screen."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def wait_until_drawn(pilot: Pilot[int]) -> None:
    """Wait until what is read has been drawn."""
    await pilot.pause(1.5)


async def wait_until(pilot: Pilot[int], true: Callable[[], bool]) -> None:
    """Wait until something holds."""
    while not true():
        await pilot.pause(0.05)


def moving_picture(frames: list[Frame]) -> str:
    """Return the frames as one SVG document, which begins again at its end; all have the size of the first."""
    size = _VIEW_BOX_PATTERN.search(frames[0].picture)
    if size is None:
        raise ValueError("the first picture says no size")
    width, height = float(size[1]), float(size[2])
    fonts = "".join(dict.fromkeys(_FONT_FACE_PATTERN.findall(frames[0].picture)))
    whole, began = sum(frame.seconds for frame in frames), 0.0
    rules, shown = [], []
    for number, frame in enumerate(frames):
        first, last = 100 * began / whole, 100 * (began + frame.seconds) / whole
        began += frame.seconds
        # What shows no animation shows the first.
        otherwise = "hidden" if number else "visible"
        rules.append(
            f".frame-{number} {{ visibility: {otherwise}; animation: show-{number} {whole:g}s step-end infinite; }}\n"
            f"@keyframes show-{number} {{ 0% {{ visibility: {otherwise}; }} {first:.3f}% {{ visibility: visible; }}"
            f" {last:.3f}%, 100% {{ visibility: hidden; }} }}"
        )
        picture = _FONT_FACE_PATTERN.sub("", frame.picture).replace(
            "<svg ", f'<svg width="{width:g}" height="{height:g}" ', 1
        )
        shown.append(
            f'<g class="frame-{number}">\n{picture}\n<text class="caption" x="{width / 2:g}" '
            f'y="{height + _CAPTION_HEIGHT * 0.6:g}">{escape(frame.caption)}</text>\n</g>'
        )
    return (
        f'<svg viewBox="0 0 {width:g} {height + _CAPTION_HEIGHT:g}" xmlns="http://www.w3.org/2000/svg">\n<style>\n{fonts}'
        ".caption { font: 20px sans-serif; fill: #8a90a2; text-anchor: middle; }\n"
        + "\n".join(rules)
        + "\n</style>\n"
        + "\n".join(shown)
        + "\n</svg>\n"
    )


def main() -> None:
    """Take all pictures, those of the GPUs in a process that loads the simulated driver."""
    if sys.argv[1:] != ["gpus"] and (_ENVIRONMENT.exists() or _ENVIRONMENT.is_symlink()):
        sys.exit(f"{_ENVIRONMENT} exists: the pictures need this name for an environment that is removed after them")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_STATE_HOME=folder, XDG_CONFIG_HOME=folder, TEXTUAL_ANIMATIONS="none")
        # A Python in the current folder would have to be chosen first.
        os.chdir(folder)
        if sys.argv[1:] == ["gpus"]:
            asyncio.run(take_gpu_pictures())
            return
        sys.path.insert(0, str(_HERE.parent / "tests"))
        from fake_driver import driver_environment

        try:
            make_environment_for_cuda()
            subprocess.run(
                [sys.executable, __file__, "gpus"],
                env={**os.environ, **driver_environment(_SIMULATED_MACHINE)},
                check=True,
            )
        finally:
            shutil.rmtree(_ENVIRONMENT)
        _ENVIRONMENT.symlink_to(sys.prefix)
        try:
            asyncio.run(take_run_pictures())
        finally:
            _ENVIRONMENT.unlink()


if __name__ == "__main__":
    main()
