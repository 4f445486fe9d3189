"""render_files(): the plan as files; Preview shows, Export writes and Run starts exactly these texts."""

from collections.abc import Iterable
from importlib import resources

import msgspec

from tui_train.channel.runner_zip import runner_texts, runner_zip
from tui_train.plan.outside_files import outside_files_text
from tui_train.plan.render import slurm
from tui_train.plan.render.nemo.automodel import render_automodel_yaml
from tui_train.plan.render.nemo.megatron_bridge import render_megatron_bridge
from tui_train.plan.render.nemo.nemo_recipe import render_nemo_recipe
from tui_train.plan.render.script.launch_script import render_launch_script
from tui_train.plan.run_files import (
    LAUNCH_SCRIPT_FILE_NAME,
    PLAN_JSON_FILE_NAME,
    PROFILE_FILE_NAME,
    RUNNER_ZIP_FILE_NAME,
    RenderedFile,
)
from tui_train.plan.types import Plan
from tui_train.profile.store import profile_to_toml
from tui_train.profile.types import Profile

_NEMO_RENDERER_BY_FILE = {
    "nemo_recipe.py": render_nemo_recipe,
    "megatron_bridge.py": render_megatron_bridge,
    "automodel.yaml": render_automodel_yaml,
}


def render_files(plan: Plan, profile: Profile) -> tuple[RenderedFile, ...]:
    """Return the files of a run, launch.sh first; `profile` is that of the plan."""
    package = resources.files("tui_train")
    return (
        RenderedFile(LAUNCH_SCRIPT_FILE_NAME, render_launch_script(plan, outside_files_text(profile))),
        *(
            [RenderedFile(slurm.SLURM_SCRIPT_FILE_NAME, slurm.render_batch_script(plan, plan.slurm))]
            if plan.slurm
            else []
        ),
        *_config_files(plan),
        *([RenderedFile(plan.nemo.path, _NEMO_RENDERER_BY_FILE[plan.nemo.path](plan.nemo))] if plan.nemo else []),
        *(
            RenderedFile(program.path, package.joinpath(program.resource).read_text("utf-8"))
            for program in plan.programs
        ),
        RenderedFile(PROFILE_FILE_NAME, profile_to_toml(profile)),
        RenderedFile(PLAN_JSON_FILE_NAME, msgspec.json.encode(plan).decode()),
        runner_file(),
    )


def files_for_display(files: Iterable[RenderedFile]) -> tuple[RenderedFile, ...]:
    """Return the files as shown to users: plan.json by a description."""
    described = RenderedFile(PLAN_JSON_FILE_NAME, "The plan as data, read by runner.pyz and by viewers.\n")
    return tuple(described if file.path == PLAN_JSON_FILE_NAME else file for file in files)


def _config_files(plan: Plan) -> tuple[RenderedFile, ...]:
    if not plan.configs:
        return ()
    from tui_train.plan.render.config_yaml import render_config_yaml

    return tuple(RenderedFile(config.path, render_config_yaml(config)) for config in plan.configs)


def runner_file() -> RenderedFile:
    """Return the program that keeps the run."""
    modules = runner_texts().items()
    listed = "".join(f"{name}  {text.partition(chr(10))[0].strip(chr(34))}\n" for name, text in modules)
    return RenderedFile(RUNNER_ZIP_FILE_NAME, listed, runner_zip())
