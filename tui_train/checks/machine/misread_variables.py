"""Checks of variables that are not read as meant: misspelt, with a value that is refused, or overridden by the plan."""

from collections.abc import Iterator

from tui_train.checks.finding import Finding, error, note, warning
from tui_train.facts.machine.variable_problems import VariableProblem, variable_problem
from tui_train.facts.types import Gpu
from tui_train.profile.changes import Change, remove_variables_change
from tui_train.setup.setup import Setup

_VARIABLES_OF_PLAN = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
_NO_GPU_VALUES = frozenset({"-1", "NoDevFiles"})


def misread_variables(setup: Setup) -> Iterator[Finding]:
    """Variables, of the profile or inherited, with a name or a value that is not read as meant."""
    own = setup.profile.trainer.environment
    for name, value in own.items():
        problem = variable_problem(name, value) if _does_training_read_variable(name, setup) else None
        if problem:
            change = _correct_variable_change(name, problem, setup)
            make = error if problem.ends_training else warning
            message = f"{name}={value}: {problem.why}"
            remedy = f"Correct it in trainer.environment: {change.title}."
            yield make("trainer.environment", message, remedy, change=change)
    # A container inherits none.
    for variable in setup.facts.variables if setup.profile.container.engine == "none" else ():
        if variable.problem and variable.name not in own and _does_training_read_variable(variable.name, setup):
            message = f"{variable.name}, set in {variable.source}: {variable.problem}"
            yield note("trainer.environment", message, "Correct or remove it there.")


def _does_training_read_variable(name: str, setup: Setup) -> bool:
    """Return whether what this training uses reads variables of such a name."""
    if name.startswith(("NCCL_", "TORCH_NCCL_")):
        return setup.communication_backend == "nccl"
    if name.startswith(("PYTORCH_", "CUDA_")):
        return setup.device == "cuda"
    return setup.world_size > 1 if name.startswith(("TORCH_DIST", "GLOO_")) else True


def _correct_variable_change(name: str, problem: VariableProblem, setup: Setup) -> Change:
    own = setup.profile.trainer.environment
    corrected_name = problem.name or name
    is_free = corrected_name == name or corrected_name not in own
    if not problem.value or not is_free or corrected_name in _VARIABLES_OF_PLAN:
        return remove_variables_change(setup.profile, (name,), problem.why)
    others = {other: value for other, value in own.items() if other != name}
    edits = (("trainer.environment", {**others, corrected_name: problem.value}),)
    return Change(f"{corrected_name}={problem.value}", "it is read as that", edits)


def overridden_visible_gpus(setup: Setup) -> Iterator[Finding]:
    """Fewer cards in the user's CUDA_VISIBLE_DEVICES than the plan takes, where none were chosen."""
    variable = next((each for each in setup.facts.variables if each.name == "CUDA_VISIBLE_DEVICES"), None)
    if variable is None or setup.profile.hardware.gpus or setup.facts.scheduler:
        return
    listed = [word.strip() for word in variable.value.split(",") if word.strip()]
    listed = [] if _NO_GPU_VALUES & {*listed[:1]} else listed
    if len(listed) < len(setup.gpus):
        cards = ", ".join(f"GPU {gpu.index}" for gpu in setup.gpus)
        message = f"CUDA_VISIBLE_DEVICES={variable.value} of your shell is not followed: {cards} would train"
        remedy = "Choose the GPUs of that variable (hardware.gpus), or unset it in your shell."
        yield warning("hardware.gpus", message, remedy, change=_use_listed_gpus_change(listed, setup))


def _use_listed_gpus_change(listed: list[str], setup: Setup) -> Change | None:
    """Return the change to those cards; None where their numbers may be of another order than the driver's."""
    if not listed:
        return Change("train on the CPU", "the variable hides every GPU", (("hardware.device", "cpu"),))
    cards = setup.facts.machine.gpus
    names = {gpu.name for gpu in cards}
    by_word: dict[str, Gpu] = {gpu.uuid: gpu for gpu in cards}
    by_word |= {str(gpu.index): gpu for gpu in cards} if len(names) == 1 else {}
    if not {*listed} <= by_word.keys():
        return None
    chosen = [by_word[word] for word in listed]
    title = f"train on {', '.join(f'GPU {gpu.index}' for gpu in chosen)}"
    return Change(title, "the variable lists them", (("hardware.gpus", tuple(gpu.uuid for gpu in chosen)),))
