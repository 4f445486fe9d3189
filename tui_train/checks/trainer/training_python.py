"""Checks of the Python that trains."""

import shlex
from collections.abc import Iterator

from tui_train.base.text import display_path
from tui_train.checks.finding import EnvironmentInstall, Finding, error
from tui_train.facts.types import Toolchain
from tui_train.profile.changes import Change
from tui_train.setup.machine.toolchain import why_python_unusable
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo, trainer_has_own_field

_LABEL_OF_PYTHON_ON_PATH = "python on PATH"
_ENVIRONMENT_SIZE_TEXT, _CUDA_ENVIRONMENT_SIZE_TEXT = "3 GB", "8 GB, with CUDA"  # on disk


def unusable_training_python(setup: Setup) -> Iterator[Finding]:
    """A Python, or an image of a container, that lacks what trains."""
    profile, facts = setup.profile, setup.facts
    if profile.container.engine != "none":
        return
    if profile.trainer.strategy.startswith("zero") and setup.device != "cuda":
        return  # the missing GPU is the reason and is reported; installing packages would not fix it
    more = " deepspeed" if profile.trainer.strategy.startswith("zero") else ""
    make = f"Make one that can: tui-train env create {setup.trainer.package_set}. Or"
    if more:
        install = (
            f"Install them there (`pip install torch accelerate transformers{more}`), or choose another Python "
            "(trainer.python)."
        )
    elif trainer_has_own_field(profile, "nemo"):
        install = f"{make} train in an image, {nemo.RECOMMENDED_IMAGES_TEXT}."
    else:
        packages = " ".join(("torch", *(setup.trainer.needed_packages() or ("accelerate",))))
        install = f"{make} name one that has them (trainer.python), or `pip install {packages}` there."
    chosen = profile.trainer.python
    unchosen = [tool for tool in facts.toolchains if tool.unchosen and profile.trainer.python in {"", tool.python}]
    if setup.toolchain is None and unchosen:
        yield _untrusted_python_finding(unchosen[0], install)
    elif setup.toolchain is None and chosen:
        message = f"python: {chosen} was not found"
        remedy = "Choose one of the list (trainer.python), or leave it empty for the best one."
        yield error("trainer.python", message, remedy, machine=True)
    elif setup.toolchain is None:
        problems = [
            f"{_LABEL_OF_PYTHON_ON_PATH if tool.label == 'PATH' else tool.label or tool.python} {problem}"
            for tool, problem in setup.pythons_and_why_unusable
        ]
        message = f"no Python here can train this: {'; '.join(problems) or 'none was found'}"
        can_make = facts.can_create_environment and not more
        size = _CUDA_ENVIRONMENT_SIZE_TEXT if facts.machine.gpus else _ENVIRONMENT_SIZE_TEXT
        name = _installed_name(setup)
        new = EnvironmentInstall(setup.trainer.package_set, f"install {name} ({size.partition(',')[0]})")
        keys = f"F2 installs {name} into an environment of its own ({size}). F4 on Backend names a Python that has it."
        yield error(
            "trainer.python", message, install, install=new if can_make else None, keys=keys * can_make, machine=True
        )
    elif problem := why_python_unusable(profile, setup.toolchain):
        message = f"{setup.toolchain.python} {problem}"
        remedy = "Choose another Python (trainer.python)." if setup.toolchain.problem else install
        yield error("trainer.python", message, remedy, machine=True)


def _installed_name(setup: Setup) -> str:
    """Return the name of what an environment is made for."""
    if trainer_has_own_field(setup.profile, "nemo"):
        return "NeMo"
    return "TRL" if setup.trainer.requires_user_data else "torch"


def _untrusted_python_finding(tool: Toolchain, install_remedy: str) -> Finding:
    """Return the finding that only a Python is left which the user must choose before it is started."""
    name = display_path(tool.python)
    change = Change(f"use {name}", "you trust it", (("trainer.python", tool.python),))
    remedy = f"If you trust this folder: --set trainer.python={shlex.quote(tool.python)}. Or: {install_remedy}"
    message = f"{name} {tool.problem}"
    return error("trainer.python", message, remedy, change=change, machine=True)
