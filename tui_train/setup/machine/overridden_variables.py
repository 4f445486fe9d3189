"""The variables that keys of a profile set, which its own environment could override; and the interfaces they name."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tui_train.base.command import EnvSetting
from tui_train.base.versions import is_known_older
from tui_train.facts.types import Toolchain
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS, why_workaround_ignored
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_of

NETWORK_INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
# The newer name holds where both are set, and is unknown before torch 2.10.
CUDA_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_PROFILE_KEY_BY_VARIABLE = {
    **{cure.name: "communication.without" for cure in NCCL_WORKAROUNDS.values()},
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
    value_of_key: str


def communication_variables(setup: Setup, *, cuda: bool) -> tuple[EnvSetting, ...]:
    """Return the variables for the backend of the processes: only those that it, its version and the script read."""
    profile, backend, chosen = setup.profile, setup.communication_backend, setup.profile.communication
    variables: list[EnvSetting] = []
    if backend == "nccl":
        workarounds = [NCCL_WORKAROUNDS[name] for name in chosen.without if name in NCCL_WORKAROUNDS]
        variables += [
            EnvSetting(cure.name, cure.value, f"NCCL without {cure.label}: {cure.cost}", "profile")
            for cure in workarounds
            if not why_workaround_ignored(cure, setup.toolchain)
        ]
        if chosen.debug != "none":
            variables.append(EnvSetting("NCCL_DEBUG", chosen.debug.upper(), "how much NCCL logs", "profile"))
        if chosen.interface:
            why = "exactly this interface: without the = it would match every name with this prefix"
            variables.append(EnvSetting("NCCL_SOCKET_IFNAME", f"={chosen.interface}", why, "profile"))
    reads_variable = trainer_of(profile).reads_backend_variable
    if backend == "gloo" and reads_variable and (cuda or chosen.backend == "gloo"):
        why = "makes any script communicate over Gloo, whatever it asks for"
        variables.append(EnvSetting("TUI_TRAIN_BACKEND", "gloo", why, "profile"))
    if backend == "gloo" and profile.nodes.machine_count == 1 and not chosen.interface:
        why = "one host: Gloo needs no other interface, and some host names resolve to none that works"
        variables.append(EnvSetting("GLOO_SOCKET_IFNAME", "lo", why, "launcher"))
    if backend and chosen.interface:
        variables.append(EnvSetting("GLOO_SOCKET_IFNAME", chosen.interface, "the interface that you named", "profile"))
    return tuple(variables)


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
    for setting in communication_variables(setup, cuda=setup.device == "cuda"):
        if setting.origin == "profile" and setting.name in _PROFILE_KEY_BY_VARIABLE:
            yield _PROFILE_KEY_BY_VARIABLE[setting.name], setting.name, str(setting.value)
    if profile.tracking.wandb and profile.tracking.project:
        yield "tracking.project", "WANDB_PROJECT", profile.tracking.project
    if profile.tracking.trackio and profile.tracking.project and _reads_trackio_project(setup.toolchain):
        yield "tracking.project", "TRACKIO_PROJECT", profile.tracking.project
    if profile.recipe.precision and any(
        variable.name == "ACCELERATE_MIXED_PRECISION" for variable in setup.preset.variables
    ):
        mixed = {"fp32": "no"}.get(profile.recipe.precision, profile.recipe.precision)
        yield "recipe.precision", "ACCELERATE_MIXED_PRECISION", mixed


def _reads_trackio_project(toolchain: Toolchain | None) -> bool:
    """Return whether this transformers is known to take Trackio's project from a variable, also beside its argument."""
    return toolchain is not None and is_known_older(toolchain.transformers, "5.2")


def interfaces_and_is_exact(variable: str, value: str) -> tuple[tuple[str, ...], bool]:
    """Return the interfaces that a variable asks for, and whether by their whole names; none where it excludes some.

    NCCL's value is a list of prefixes, or after = of names; after ^ are those to leave out.
    """
    exact = variable != "NCCL_SOCKET_IFNAME" or value.startswith("=")
    if value.startswith("^"):
        return (), exact
    names = (_PORT_SUFFIX_PATTERN.sub("", word.strip()) for word in value.removeprefix("=").split(","))
    return tuple(filter(None, names)), exact
