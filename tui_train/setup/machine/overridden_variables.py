"""The variables that keys of a profile set, which its own environment could override; and the interfaces they name."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tui_train.base.command import EnvSetting
from tui_train.setup.machine import communication
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field

NETWORK_INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
# The newer name holds where both are set, and is unknown before torch 2.10.
CUDA_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_PROFILE_KEY_BY_VARIABLE = {
    **{cure.name: "communication.without" for cure in communication.NCCL_WORKAROUNDS.values()},
    **dict.fromkeys(NETWORK_INTERFACE_VARIABLES, "communication.interface"),
    "NCCL_DEBUG": "communication.debug",
}
_EXPANDABLE_SEGMENTS_PATTERN = re.compile(r"expandable_segments\s*:\s*true", re.IGNORECASE)
_PORT_SUFFIX_PATTERN = re.compile(r":\d+$")


class VariableOverridingKey(NamedTuple):
    """A variable of the profile's environment that says otherwise than a key that was chosen."""

    name: str
    value: str
    key: str
    by_key: str


def backend_variables(setup: Setup, *, cuda: bool) -> tuple[EnvSetting, ...]:
    """Return the variables for the backend of the processes."""
    profile = setup.profile
    return communication.communication_variables(
        profile.communication,
        setup.backend,
        setup.toolchain,
        cuda=cuda,
        nodes=profile.nodes.machine_count,
        reads_backend_variable=trainer_has_own_field(profile, "trainer.script"),
    )


def variables_overriding_keys(setup: Setup) -> Iterator[VariableOverridingKey]:
    """Yield what the profile's environment overrides: the last one that is set holds."""
    profile = setup.profile
    own = profile.trainer.environment
    for key, name, value in _chosen_keys_with_variable_and_value(setup):
        if name in own and own[name].strip().lstrip("=").lower() != value.lstrip("=").lower():
            yield VariableOverridingKey(name, own[name], key, value)
    if profile.recipe.expandable_segments and setup.device == "cuda":
        for name in CUDA_ALLOCATOR_VARIABLES:
            if name in own and not _EXPANDABLE_SEGMENTS_PATTERN.search(own[name]):
                yield VariableOverridingKey(name, own[name], "recipe.expandable_segments", "expandable_segments:True")


def _chosen_keys_with_variable_and_value(setup: Setup) -> Iterator[tuple[str, str, str]]:
    profile = setup.profile
    for setting in backend_variables(setup, cuda=setup.device == "cuda"):
        if setting.origin == "profile" and setting.name in _PROFILE_KEY_BY_VARIABLE:
            yield _PROFILE_KEY_BY_VARIABLE[setting.name], setting.name, str(setting.value)
    if profile.tracking.wandb and profile.tracking.project:
        yield "tracking.project", "WANDB_PROJECT", profile.tracking.project
    if profile.recipe.precision and any(
        variable.name == "ACCELERATE_MIXED_PRECISION" for variable in setup.preset.variables
    ):
        mixed = {"fp32": "no"}.get(profile.recipe.precision, profile.recipe.precision)
        yield "recipe.precision", "ACCELERATE_MIXED_PRECISION", mixed


def interfaces_and_is_exact(variable: str, value: str) -> tuple[tuple[str, ...], bool]:
    """Return the interfaces that a variable asks for, and whether by their whole names; none where it excludes some.

    NCCL's value is a list of prefixes, or after = of names; after ^ are those to leave out.
    """
    exact = variable != "NCCL_SOCKET_IFNAME" or value.startswith("=")
    if value.startswith("^"):
        return (), exact
    names = (_PORT_SUFFIX_PATTERN.sub("", word.strip()) for word in value.removeprefix("=").split(","))
    return tuple(filter(None, names)), exact
