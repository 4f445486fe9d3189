"""render(): the plan as files; Preview shows, Export writes and Run starts exactly these texts."""

from collections.abc import Iterable
from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct

from tui_train.plan.render import slurm
from tui_train.plan.render.nemo.automodel import automodel_yaml
from tui_train.plan.render.nemo.megatron_bridge import megatron_bridge
from tui_train.plan.render.nemo.nemo_recipe import nemo_recipe
from tui_train.plan.render.script.launch import launch_script
from tui_train.plan.types import Plan
from tui_train.profile.store import dumps
from tui_train.profile.types import Profile

SCRIPT_NAME = "launch.sh"
PROFILE_NAME = "profile.toml"
PLAN_NAME = "plan.json"
SUPERVISOR_FOLDER = "supervisor/"
_NEMO_RENDERERS = {
    "nemo_recipe.py": nemo_recipe,
    "megatron_bridge.py": megatron_bridge,
    "automodel.yaml": automodel_yaml,
}


class File(Struct, frozen=True):
    """A file by its path in the run folder, and its text."""

    path: str
    text: str


def render_files(plan: Plan, profile: Profile) -> tuple[File, ...]:
    """Return the files of a run, launch.sh first; `profile` is that of the plan."""
    package = resources.files("tui_train")
    return (
        File(SCRIPT_NAME, launch_script(plan)),
        *([File(slurm.SCRIPT_NAME, slurm.batch_script(plan, plan.slurm))] if plan.slurm else []),
        *_config_files(plan),
        *_nemo_file(plan),
        *(File(program.path, package.joinpath(program.resource).read_text("utf-8")) for program in plan.programs),
        File(PROFILE_NAME, dumps(profile)),
        File(PLAN_NAME, msgspec.json.encode(plan).decode()),
        *_supervisor_files(),
    )


def shown_files(files: Iterable[File]) -> tuple[File, ...]:
    """Return the files as shown to users: the supervisor as one entry, plan.json by a description."""
    every_file = tuple(files)
    modules = [file for file in every_file if file.path.startswith(SUPERVISOR_FOLDER)]
    lines = "".join(f"{file.path}  {file.text.partition(chr(10))[0].strip(chr(34))}\n" for file in modules)
    plain = tuple(
        File(PLAN_NAME, "The plan as data, read by supervisor/ and by viewers.\n") if file.path == PLAN_NAME else file
        for file in every_file
        if not file.path.startswith(SUPERVISOR_FOLDER)
    )
    return (*plain, *((File(SUPERVISOR_FOLDER, lines),) if modules else ()))


def _config_files(plan: Plan) -> tuple[File, ...]:
    if not plan.configs:
        return ()
    from tui_train.plan.render.config_yaml import config_yaml

    return tuple(File(config.path, config_yaml(config)) for config in plan.configs)


def _nemo_file(plan: Plan) -> tuple[File, ...]:
    if plan.nemo is None:
        return ()
    return (File(plan.nemo.path, _NEMO_RENDERERS[plan.nemo.path](plan.nemo)),)


@cache
def _supervisor_files() -> tuple[File, ...]:
    """Return the modules of the supervisor, which is copied into every run folder."""
    modules = (item for item in resources.files("tui_train.supervisor").iterdir() if item.name.endswith(".py"))
    return tuple(
        File(SUPERVISOR_FOLDER + item.name, item.read_text("utf-8"))
        for item in sorted(modules, key=lambda item: item.name)
    )
