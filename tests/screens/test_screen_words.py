"""Screens name a field by its label and step, where the command line names its key."""

import pytest
from pilot import open_wizard, screen_text
from tui_train.screens.screen_words import finding_on_screen, words_on_screen

from tui_train.base.errors import BadInput
from tui_train.checks.finding import EnvironmentInstall, error
from tui_train.profile.types import Profile


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Set recipe.learning_rate to 2e-4.", "Set Learning rate on Recipe to 2e-4."),
        ("Leave it out (hardware.gpus), or wait.", "Leave it out (GPUs on Hardware), or wait."),
        ("Layers (recipe.layers) is set, but not used", "Layers on Recipe is set, but not used"),
        ("train on the CPU: --set hardware.device=cpu", "train on the CPU: Device on Hardware = cpu"),
        ("Choose communication.backend=gloo.", "Choose Communication on Backend = gloo."),
        ("no file ./trainer.data in /x/trainer.script/y", "no file ./trainer.data in /x/trainer.script/y"),
        ("tui-train new a --set trainer.kind=script", "tui-train new a --set trainer.kind=script"),
        ("try tui-train run a --set=recipe.seed=1", "try tui-train run a --set=recipe.seed=1"),
        ("Use --set=recipe.seed=1.", "Use Seed on Recipe = 1."),
        ("Write it as recipe.seed=1,2,3, or as --lr=1.", "Write it as recipe.seed=1,2,3, or as --lr=1."),
        ("my.recipe.steps and recipe.steps.more", "my.recipe.steps and recipe.steps.more"),
    ],
)
def test_a_key_is_a_label_with_its_step(text, shown):
    assert words_on_screen(text) == shown


@pytest.mark.parametrize(("with_cuda", "size"), [(False, "3 to 8 GB"), (True, "8 GB")])
def test_an_installation_names_its_size_before_it_begins(with_cuda, size):
    install = EnvironmentInstall("hf", "install TRL", with_cuda)
    missing = error("trainer.python", "no TRL", "Install it.", install=install)
    assert finding_on_screen(missing, Profile()).fix == EnvironmentInstall("hf", f"install TRL ({size})", with_cuda)


async def test_an_error_on_screen_names_labels(machine):
    async with open_wizard(notifications=True, size=(120, 24)) as pilot:
        pilot.app.show_error(BadInput("the batch does not divide", "Change recipe.micro_batch."))
        await pilot.pause()
        assert "Change Micro batch on Recipe." in screen_text(pilot)
