"""DESCRIPTION_BY_STRATEGY: how the model is held by the GPUs, and why one of them cannot be used here."""

from tui_train.launchers import launchers_supporting
from tui_train.profile import fields
from tui_train.profile.types import Strategy
from tui_train.setup.machine.toolchain import pick_toolchain, why_python_unusable
from tui_train.setup.setup import Setup

# Each strategy, and what it shares out among the GPUs.
DESCRIPTION_BY_STRATEGY: dict[Strategy, str] = {
    "ddp": "each GPU holds all of the model",
    "fsdp2": "PyTorch's own: each GPU holds a share",
    "zero1": "DeepSpeed: a share of the optimizer's state",
    "zero2": "DeepSpeed: and of the gradients",
    "zero3": "DeepSpeed: and of the weights",
}


def why_strategy_unusable(strategy: Strategy, setup: Setup) -> str:
    """Return why a strategy cannot be used with the rest of the profile, empty where it can."""
    profile = setup.profile
    if strategy == "ddp":
        return ""
    if setup.device != "cuda":
        return "needs GPUs: accelerate shards none on the CPU"
    if profile.trainer.launcher not in ("auto", *(launchers := launchers_supporting(strategy))):
        return f"needs the launcher {' or '.join(launchers)}, and {profile.trainer.launcher} is chosen"
    supported = setup.preset.strategies
    if supported and strategy not in supported:
        return f"the {setup.preset.label.lower()} takes {', '.join(supported)} only"
    changed = fields.profile_with_value(profile, "trainer.strategy", strategy)
    tool = pick_toolchain(changed, setup.facts)
    if tool is None:
        return "DeepSpeed is not installed" if strategy.startswith("zero") else "no Python here has accelerate 1.6"
    problem = why_python_unusable(changed, tool)
    return f"the chosen Python {problem}" if problem else ""
