"""The environment variables of an attempt, each with its reason and origin."""

from collections.abc import Mapping

from tui_train.base.command import (
    GPUS_VARIABLE,
    PYTHONPATH_VARIABLE,
    RUN_DIR_VARIABLE,
    CommandWord,
    EnvSetting,
    JoinedWord,
    join_pieces,
    word_in_run_dir,
)
from tui_train.base.versions import is_at_least_or_unknown, is_known_older
from tui_train.launchers import LAUNCHERS
from tui_train.launchers.launcher import LauncherJob
from tui_train.profile.presets import PresetArgument
from tui_train.profile.rewards import reward_folders
from tui_train.profile.types import Profile
from tui_train.setup.machine import container, overridden_variables
from tui_train.setup.recipe import no_effect
from tui_train.setup.recipe.placeholder_values import (
    PlaceholderValue,
    fill_placeholders,
    placeholder_words,
    takes_trackio_project_as_argument,
)
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo, trainer_has_own_field
from tui_train.trainers.trainer import SHIM_FOLDER_NAME

_TORCHRUN_GRACE_SECONDS = 30
_UNBUFFERED_SETTING = EnvSetting("PYTHONUNBUFFERED", "1", "log lines are written at once", "launcher")
# Older versions of the Hugging Face Trainer resume with the micro batch of the checkpoint, ignoring the argument.
_MIN_TRANSFORMERS_TAKING_MICRO_BATCH = "5.2"


def attempt_variables(
    setup: Setup, job: LauncherJob, placeholder_values: Mapping[str, PlaceholderValue]
) -> tuple[EnvSetting, ...]:
    """Return the variables of an attempt; the user's variables override those of the plan."""
    profile = setup.effective_profile
    cores = (profile.slurm.cpus or job.processes) if job.is_slurm_job else setup.facts.machine.cpu_count
    threads = max(1, cores // max((job.processes, *job.uneven_processes)))
    settings = [
        _UNBUFFERED_SETTING,
        EnvSetting("OMP_NUM_THREADS", str(threads), "CPU cores divided among the processes", "machine"),
    ]
    if job.gpus:
        order = "GPU indices as in nvidia-smi"
        cards = "the chosen GPUs by UUID, which does not depend on their order"
        settings.append(EnvSetting("CUDA_DEVICE_ORDER", "PCI_BUS_ID", order, "machine"))
        uuids: CommandWord = ",".join(job.gpus) if job.nodes == 1 else JoinedWord((GPUS_VARIABLE,))
        settings += [] if job.is_slurm_job else [EnvSetting("CUDA_VISIBLE_DEVICES", uuids, cards, "profile")]
    else:
        settings.append(EnvSetting("CUDA_VISIBLE_DEVICES", "", "trains on the CPU: hides all GPUs", "profile"))
    settings += LAUNCHERS[setup.launcher](job).environment_settings()
    settings += overridden_variables.communication_variables(setup, cuda=bool(job.gpus))
    grace = setup.preset.stop.grace
    torch = setup.toolchain.torch if setup.toolchain else None
    if job.world_size > 1 and grace > _TORCHRUN_GRACE_SECONDS and is_at_least_or_unknown(torch, "2.12"):
        why = "seconds to save after a stop; the default of torch is 30"
        settings.append(EnvSetting("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(grace), why, "launcher"))
    settings += container.container_variables(profile.container)
    if setup.nemo_flavour:
        settings += nemo.variables_for_split_model(profile.nemo, setup.nemo_flavour, setup.gpus)
    if profile.recipe.expandable_segments and job.gpus:
        why = "the allocator grows its segments: less memory lost to fragmentation"
        settings.append(EnvSetting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", why, "ladder"))
    if placeholder_values["micro_batch"] and _resumes_with_saved_micro_batch(setup):
        why = (
            f"transformers before {_MIN_TRANSFORMERS_TAKING_MICRO_BATCH} resumes with the micro batch of the checkpoint"
        )
        settings.append(EnvSetting("TUI_TRAIN_MICRO_BATCH", str(profile.recipe.micro_batch), why, "ladder"))
    settings += _tracker_settings(setup)
    words = placeholder_words(placeholder_values)
    for variable in setup.preset.variables:
        filled = fill_placeholders(PresetArgument((variable.value,), variable.when), words)
        settings += [EnvSetting(variable.name, str(value[0]), "set by the preset", "profile") for value in filled[:1]]
    return _last_of_each_name([*settings, *_settings_by_user(profile), *_python_path_with_shim(profile)])


def preparation_variables(profile: Profile) -> tuple[EnvSetting, ...]:
    """Return the variables of what is done before the training; the user's variables override those of the plan."""
    settings = [
        _UNBUFFERED_SETTING,
        EnvSetting("CUDA_VISIBLE_DEVICES", "", "needs no GPU", "launcher"),
        *container.container_variables(profile.container),
    ]
    return _last_of_each_name([*settings, *_settings_by_user(profile)])


def _settings_by_user(profile: Profile) -> list[EnvSetting]:
    return [EnvSetting(name, value, "set by you", "profile") for name, value in profile.trainer.environment.items()]


def _last_of_each_name(settings: list[EnvSetting]) -> tuple[EnvSetting, ...]:
    return tuple({setting.name: setting for setting in settings}.values())


def _tracker_settings(setup: Setup) -> list[EnvSetting]:
    """Return the variables by which the chosen trackers know their project, and W&B where it keeps its files."""
    tracking = setup.effective_profile.tracking
    chosen = {name for name in tracking.chosen_trackers if not no_effect.why_no_effect(f"tracking.{name}", setup)}
    settings = []
    if "wandb" in chosen:
        why = "W&B keeps its own files in the run folder"
        settings.append(EnvSetting("WANDB_DIR", word_in_run_dir(""), why, "profile"))
    if "wandb" in chosen and tracking.project:
        settings.append(EnvSetting("WANDB_PROJECT", tracking.project, "the project at W&B", "profile"))
    if "trackio" in chosen and tracking.project and not takes_trackio_project_as_argument(setup.toolchain):
        settings.append(EnvSetting("TRACKIO_PROJECT", tracking.project, "the project of Trackio", "profile"))
    return settings


def _resumes_with_saved_micro_batch(setup: Setup) -> bool:
    rule, tool = setup.preset.checkpoints, setup.toolchain
    saves = rule is not None and "trainer_state.json" in rule.complete
    takes_micro_batch = "micro_batch" in setup.ladder_context.accepted_placeholders
    return (
        saves
        and takes_micro_batch
        and tool is not None
        and is_known_older(tool.transformers, _MIN_TRANSFORMERS_TAKING_MICRO_BATCH)
    )


def _python_path_with_shim(profile: Profile) -> list[EnvSetting]:
    """Return PYTHONPATH with the shim first, then folders of rewards, then the value of the profile or of the shell."""
    rewards = reward_folders(profile.finetune) if trainer_has_own_field(profile, "finetune") else ()
    user_path = profile.trainer.environment.get("PYTHONPATH")
    if profile.container.engine != "none":
        # The shell in the container adds the shim.
        value = ":".join((*rewards, *filter(None, (user_path,))))
        return [EnvSetting("PYTHONPATH", value, "rewards are imported from there", "profile")] if rewards else []
    given = PYTHONPATH_VARIABLE if user_path is None else f":{user_path}" if user_path else ""
    after = ("".join(f":{folder}" for folder in rewards), given)
    why = "prints the device of each process; TUI_TRAIN_SHOW_DEVICES=0 turns it off"
    why += "; then where rewards are imported from" if rewards else ""
    path = join_pieces((RUN_DIR_VARIABLE, f"/{SHIM_FOLDER_NAME}", *after))
    return [EnvSetting("PYTHONPATH", path, why, "launcher")]
