"""render(): the plan as files; what Preview shows, Export writes and Run starts are these very strings."""

from importlib import resources

from msgspec import Struct

from tui_train.plan.types import Plan
from tui_train.profile.store import dumps
from tui_train.profile.types import Profile
from tui_train.render.automodel import automodel_yaml
from tui_train.render.bash import launch_script
from tui_train.render.config_yaml import config_yaml
from tui_train.render.megatron_bridge import megatron_bridge
from tui_train.render.nemo_recipe import nemo_recipe

SCRIPT = "launch.sh"
PROFILE = "profile.toml"
_NEMO = {"nemo_recipe.py": nemo_recipe, "megatron_bridge.py": megatron_bridge, "automodel.yaml": automodel_yaml}


class File(Struct, frozen=True):
    """A file of the run folder: its path in it, and its text."""

    path: str
    text: str


def render(plan: Plan, profile: Profile) -> tuple[File, ...]:
    """Return the files of a run, launch.sh first; `profile` is the one that the plan was made from."""
    package = resources.files("tui_train")
    return (
        File(SCRIPT, launch_script(plan)),
        *(File(config.path, config_yaml(config)) for config in plan.configs),
        *_nemo(plan),
        *(File(program.path, package.joinpath(program.resource).read_text("utf-8")) for program in plan.programs),
        File(PROFILE, dumps(profile)),
    )


def _nemo(plan: Plan) -> tuple[File, ...]:
    if plan.nemo is None:
        return ()
    return (File(plan.nemo.path, _NEMO[plan.nemo.path](plan.nemo)),)
