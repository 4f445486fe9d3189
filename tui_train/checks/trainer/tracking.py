"""The check of loggers: TensorBoard and W&B report only where the Python that trains has their packages."""

from collections.abc import Iterator

from tui_train.base.text import display_path
from tui_train.checks.finding import Finding, error
from tui_train.profile.changes import Change
from tui_train.setup.recipe import no_effect
from tui_train.setup.setup import Setup

_LABELS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}


def packages(setup: Setup) -> Iterator[Finding]:
    """A logger that was chosen and is not installed where it trains."""
    profile = setup.profile
    tool = setup.toolchain
    for name, label in _LABELS.items():
        key = f"tracking.{name}"
        wanted = getattr(profile.tracking, name) and not no_effect.why_no_effect(key, setup)
        if not wanted or tool is None or name in tool.packages:
            continue
        where = "the image" if profile.container.engine != "none" else display_path(tool.python)
        install = f"Install it there: `{display_path(tool.python)} -m pip install {name}`."
        yield error(
            key,
            f"{label} is chosen, and {where} has no package {name}",
            "Use an image that has it." if where == "the image" else install,
            change=Change(f"without {label}", "it is not installed there", ((key, False),)),
        )
