"""Checks of the Python that trains, of paths, variables and arguments."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tui_train.base import secrets, webhook
from tui_train.base.app_paths import webhooks_folder
from tui_train.base.text import display_path, nearest_path_clause
from tui_train.checks.finding import EnvironmentInstall, Finding, error, warning
from tui_train.checks.trainer.declared_arguments import PROFILE_KEYS_OF_MODEL_AND_DATA
from tui_train.facts.types import PathState, Toolchain
from tui_train.memory.workload import chosen_model_name
from tui_train.profile import batch, fields, secret_values
from tui_train.profile.changes import Change, remove_variables_change
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, PLACEHOLDER_PATTERN, Preset
from tui_train.profile.types import Profile
from tui_train.setup.machine.toolchain import why_python_unusable
from tui_train.setup.recipe import no_effect
from tui_train.setup.recipe.hub_model import model_to_download
from tui_train.setup.recipe.options import UserOption, option_names_of_value, script_options, user_options_for_value
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo, trainer_has_own_field
from tui_train.trainers.script import script_or_module_to_start

_REMEDY_BY_PLAN_VARIABLE = {
    "CUDA_VISIBLE_DEVICES": "choose the GPUs on the Hardware screen (hardware.gpus)",
    "CUDA_DEVICE_ORDER": "the plan names the GPUs by their UUIDs, whatever their order",
    "ACCELERATE_USE_CPU": "choose the device on the Hardware screen (hardware.device)",
    "TUI_TRAIN_RUN_ID": "it marks the processes of a run",
    "TUI_TRAIN_BACKEND": "choose the communication on the Backend screen (communication.backend)",
    "TUI_TRAIN_MICRO_BATCH": "choose it on the Recipe screen (recipe.micro_batch)",
    **dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"), "the launcher sets it"),
}
_LABEL_OF_PYTHON_ON_PATH = "python on PATH"
_ENVIRONMENT_SIZE_TEXT, _CUDA_ENVIRONMENT_SIZE_TEXT = "3 GB", "8 GB, with CUDA"  # on disk
_THREAD_COUNT_VARIABLES = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
_READ_FROM_VARIABLE_REMEDY = (
    "Have the training read it from a variable. Name the variable under trainer.secrets, and export it "
    "where you start the run."
)
_SECRET_REMEDY_BY_KEY = {
    "trainer.arguments": (
        "Have the script read it from a variable, such as HF_TOKEN. Name that under trainer.secrets, and "
        "export it where you start the run."
    ),
    "trainer.secrets": (
        "Write only the name of a variable here, such as HF_TOKEN, and export it where you start the run."
    ),
    "notify.command": (
        "Put it into a variable that you export, and read it by a shell: sh -c '… \"$NAME\"'. For an address "
        "set notify.webhook."
    ),
}


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
            for tool, problem in setup.python_problems
        ]
        message = f"no Python here can train this: {'; '.join(problems) or 'none was found'}"
        new = EnvironmentInstall(setup.trainer.package_set, "install what is missing")
        can_make = facts.can_create_environment and not more
        size = _CUDA_ENVIRONMENT_SIZE_TEXT if facts.machine.gpus else _ENVIRONMENT_SIZE_TEXT
        keys = f"F2 installs them into an environment of its own ({size}). Or press o on Backend for one that has them."
        keys = keys if can_make else ""
        yield error("trainer.python", message, install, install=new if can_make else None, keys=keys, machine=True)
    elif problem := why_python_unusable(profile, setup.toolchain):
        message = f"{setup.toolchain.python} {problem}"
        remedy = "Choose another Python (trainer.python)." if setup.toolchain.problem else install
        yield error("trainer.python", message, remedy, machine=True)


def _use_similar_path_change(profile: Profile, key: str, path: str, similar_path: str) -> Change | None:
    """Return the change that names a file of a similar name in the place of one that is missing; None for a folder."""
    if not similar_path or similar_path.endswith("/"):
        return None
    value = fields.get_value(profile, key)
    new: fields.FieldValue = similar_path
    if isinstance(value, tuple):
        new = tuple(similar_path if each == path else each for each in value)
    return Change(f"use {similar_path.rpartition('/')[2]}", "it exists", ((key, new),))


def _untrusted_python_finding(tool: Toolchain, install_remedy: str) -> Finding:
    """Return the finding that only a Python is left which the user must choose before it is started."""
    name = display_path(tool.python)
    change = Change(f"use {name}", "you trust it", (("trainer.python", tool.python),))
    remedy = f"If you trust this folder: --set trainer.python={shlex.quote(tool.python)}. Or: {install_remedy}"
    message = f"{name} {tool.problem}"
    return error("trainer.python", message, remedy, change=change, machine=True)


def unusable_paths(setup: Setup) -> Iterator[Finding]:
    """Paths that do not exist, or are of another kind than expected."""
    profile, facts = setup.profile, setup.facts
    trainer = profile.trainer
    script = trainer_has_own_field(profile, "trainer.script")
    if script and not script_or_module_to_start(profile, setup.preset):
        yield error("trainer.script", "no script is named", "Name the Python file that trains (trainer.script).")
    expected: list[tuple[str, str, PathState]] = [("trainer.working_directory", trainer.working_directory, "folder")]
    if script and setup.preset.can_start_script:
        expected.append(("trainer.script", trainer.script, "file"))
    if not script or "model" in setup.ladder_context.accepted_placeholders:
        expected.append(("trainer.model", trainer.model, "folder"))
    recipe = trainer_has_own_field(profile, "nemo")
    folder = recipe and profile.nemo.task == "finetune"
    folders = {path for path, state in facts.paths.items() if state == "folder" and setup.trainer.requires_user_data}
    expected.extend(("trainer.data", path, "folder" if folder or path in folders else "file") for path in trainer.data)
    expected.extend(
        ("trainer.validation_data", path, "folder" if path in folders else "file") for path in trainer.validation_data
    )
    expected.extend(("trainer.test_data", path, "file") for path in trainer.test_data)
    if recipe:
        expected.append(("nemo.tokenizer", profile.nemo.tokenizer, "folder"))
    for key, path, kind in expected:
        state = facts.paths.get(path, kind)
        if path and state != kind:
            what = {"missing": "does not exist", "unreadable": "cannot be read"}.get(state, f"is not a {kind}")
            host = facts.other_machine
            where = f" on {host}" if host else ""
            near = facts.similar_paths.get(path, "") if state == "missing" else ""
            message = f"{fields.get_field(key).label.lower()}: {path} {what}{where}"
            message += nearest_path_clause(path, near)
            remedy = f"Name a {kind} that exists and that you may read ({key})."
            if host and state == "missing" and key != "trainer.working_directory":
                send = f"tui-train send {profile.name} --on {host}"
                remedy = f"Copy it there from here: {send}. Or name one that is there ({key})."
            yield error(key, message, remedy, change=_use_similar_path_change(profile, key, path, near))
    yield from _unusable_or_existing_output_folder(setup)


def damaged_weights(setup: Setup) -> Iterator[Finding]:
    """Weights of the model that cannot be loaded, such as those of an interrupted copy; a download is completed."""
    if model_to_download(setup):
        return
    named = setup.profile.trainer.model
    model = setup.facts.models.get(chosen_model_name(setup.profile, setup.trainer_options))
    if model and model.bad_weights:
        yield error(
            "trainer.model" if named else "trainer.arguments",
            f"the weights of the model cannot be loaded: {model.bad_weights}",
            "Copy or download that file again.",
        )


def _unusable_or_existing_output_folder(setup: Setup) -> Iterator[Finding]:
    """An output folder in which nothing can be written, or that is there already."""
    profile, facts = setup.profile, setup.facts
    key, output = "trainer.output", profile.trainer.output or setup.user_output_folder
    why_unwritable = facts.unwritable.get(output, "")
    if not output or no_effect.why_no_effect(key, setup):
        return
    if why_unwritable or facts.paths.get(output) == "file":
        problem = f"cannot be used: {why_unwritable}" if why_unwritable else "is a file"
        message = f"the output folder {display_path(output)} {problem}"
        remedy = "Name a folder in a place where you may write (trainer.output)."
        change = Change("the run's own folder", "where runs are kept", ((key, ""),)) if profile.trainer.output else None
        yield error(key, message, remedy, change=change)
    elif facts.paths.get(output) == "folder":
        message = f"the output folder {output} exists already"
        resumes = setup.preset.checkpoints or setup.trainer.resumes_itself
        goes_on = (
            "The run resumes from the newest complete checkpoint in it. To start fresh, name another folder "
            "(trainer.output)."
        )
        starts_over = (
            "The run starts at the first step, and may overwrite what is in it. To keep that, name another "
            "folder (trainer.output)."
        )
        yield warning(key, message, goes_on if resumes else starts_over)


def refused_environment_variables(setup: Setup) -> Iterator[Finding]:
    """Variables that may not be set, and secrets by value."""
    trainer = setup.profile.trainer
    for name, value in trainer.environment.items():
        if name in _REMEDY_BY_PLAN_VARIABLE:
            message = f"{name} is set by tui-train itself"
            remedy = f"Remove it from trainer.environment: {_REMEDY_BY_PLAN_VARIABLE[name]}."
            yield error("trainer.environment", message, remedy)
        elif fields.is_secret_variable(name) or secrets.has_surely_secret_format(value):
            remaining = {other: text for other, text in trainer.environment.items() if other != name}
            edits: tuple[tuple[str, fields.FieldValue], ...] = (
                ("trainer.environment", remaining),
                ("trainer.secrets", tuple(dict.fromkeys((*trainer.secrets, name)))),
            )
            change = Change(f"pass {name} as a secret", "its value is read from your shell, and written nowhere", edits)
            yield error(
                "trainer.environment",
                f"{name} looks like a secret, and trainer.environment is written to files",
                "Name it under trainer.secrets instead, and export it where you start the run.",
                change=change,
            )
    for name in trainer.secrets:
        if not secrets.has_secret_format(name) and not (name.isidentifier() and name.isascii()):
            # After an equals sign comes its value.
            message = f"{name.partition('=')[0]!r} is not a variable name"
            remedy = "Write only the name of a variable, such as HF_TOKEN (trainer.secrets)."
            yield error("trainer.secrets", message, remedy)
    for name, value in trainer.environment.items():
        if name in _THREAD_COUNT_VARIABLES and not re.fullmatch(r"\s*[1-9]\d*(,[1-9]\d*)*\s*", value):
            message = f"{name}={value} is not a number of threads"
            change = remove_variables_change(setup.profile, (name,), "chosen for you from the cores")
            remedy = "Give a whole number from 1 on (trainer.environment)."
            yield error("trainer.environment", message, remedy, change=change)
        if not (name.isidentifier() and name.isascii()):
            message = f"{name!r} is not a variable name"
            remedy = "Use letters, digits and _ (trainer.environment)."
            yield error("trainer.environment", message, remedy)


def secret_values_in_profile(setup: Setup) -> Iterator[Finding]:
    """Secrets in the profile, which end up in launch.sh, the profile and the process list; never shown here."""
    for secret in secret_values.find_profile_secrets(setup.profile):
        if secret.key != secret_values.ENVIRONMENT_PROFILE_KEY or not secret.certain:
            what = "arguments are" if secret.key == "trainer.arguments" else "it is"
            yield (error if secret.certain else warning)(
                secret.key,
                f"{secret.description} looks like a secret, and {what} written to files",
                _SECRET_REMEDY_BY_KEY.get(secret.key, _READ_FROM_VARIABLE_REMEDY),
            )


def webhook_file_missing_on_other_machine(setup: Setup) -> Iterator[Finding]:
    """The address of a webhook in a file of this machine, for a run that another one supervises."""
    profile = setup.profile
    host, path = profile.hardware.host, Path(webhook.webhook_file_or_name(profile.notify.webhook))
    if host and path.parent == webhooks_folder():
        yield error(
            "notify.webhook",
            f"the webhook's address lies in a file on this machine, and {host}, where the run is, cannot read it",
            "Export the address there as a variable and set notify.webhook to $NAME, or name a file there (mode 0600).",
        )


def arguments_setting_recipe_values(setup: Setup) -> Iterator[Finding]:
    """The user's arguments that set a value of the recipe too, or a batch that fallbacks could then not lower."""
    profile = setup.profile
    preset, chosen = setup.preset, set(fields.chosen_keys(profile))
    settings_by_name = {name: user_options_for_value(name, profile, preset) for name in KEY_BY_PLACEHOLDER}
    for name, own_settings in settings_by_name.items():
        key = KEY_BY_PLACEHOLDER[name]
        if not own_settings or not key.startswith("recipe.") or name in batch.BATCH_PLACEHOLDERS or key not in chosen:
            continue
        words = " ".join(dict.fromkeys(" ".join(setting.words) for setting in own_settings))
        change = Change(
            f"without {words}",
            "the value on Recipe is used",
            (("trainer.arguments", _arguments_without_options(profile, own_settings)),),
        )
        yield _set_by_argument_and_recipe_finding(words, fields.get_field(key).label.lower(), preset, change)
    batch_settings = {
        name: own_settings
        for name, own_settings in settings_by_name.items()
        if own_settings and name in batch.BATCH_PLACEHOLDERS
    }
    if not batch_settings:
        return
    words = " ".join(
        dict.fromkeys(" ".join(setting.words) for own_settings in batch_settings.values() for setting in own_settings)
    )
    move_to_recipe = _move_batch_into_recipe_change(setup, batch_settings)
    if any(KEY_BY_PLACEHOLDER[name] in chosen for name in batch_settings):
        yield _set_by_argument_and_recipe_finding(words, "batch", preset, move_to_recipe)
    elif (
        "micro_batch" in profile.ladder.rungs
        and not preset.user_arguments_first
        # Without an accumulation that it takes, it cannot be lowered anyway.
        and setup.ladder_context.accepted_placeholders & batch.BATCH_PLACEHOLDERS != {"micro_batch"}
    ):
        message = f"{words} in your arguments sets the batch: if memory runs out, no smaller one can be tried"
        remedy = "Remove it from trainer.arguments, and set recipe.micro_batch and recipe.global_batch."
        yield warning("trainer.arguments", message, remedy, change=move_to_recipe)


def _set_by_argument_and_recipe_finding(words: str, value_label: str, preset: Preset, change: Change | None) -> Finding:
    """Return the finding that a value is set twice; the later argument wins."""
    recipe_wins = preset.user_arguments_first
    wins = (
        f"has no effect: the {value_label} on Recipe comes after it"
        if recipe_wins
        else f"overrides the {value_label} on Recipe"
    )
    return (warning if recipe_wins else error)(
        "trainer.arguments",
        f"{words} in your arguments {wins}",
        f"Remove it from trainer.arguments, or leave the {value_label} of the recipe unset.",
        change=change,
    )


def _arguments_without_options(profile: Profile, own_settings: Iterable[UserOption]) -> tuple[str, ...]:
    positions = {
        index for setting in own_settings for index in range(setting.position, setting.position + len(setting.words))
    }
    return tuple(word for index, word in enumerate(profile.trainer.arguments) if index not in positions)


def batch_lowered_by_trainer(setup: Setup) -> Iterator[Finding]:
    """A trainer that lowers the batch by itself, which no accumulation makes up for."""
    batch_option = "per_device_train_batch_size" in option_names_of_value("micro_batch", setup.preset)
    if batch_option and script_options(setup.profile, setup.facts.documents).is_on("auto_find_batch_size"):
        yield warning(
            "trainer.arguments",
            "after out of memory auto_find_batch_size lowers the micro batch, and the global batch with it",
            "Remove it from trainer.arguments: the fallbacks here keep the global batch.",
        )


def _move_batch_into_recipe_change(setup: Setup, batch_settings: Mapping[str, tuple[UserOption, ...]]) -> Change | None:
    """Return the change that moves a batch from the arguments into the recipe; None if that is ambiguous."""
    profile = setup.profile
    values = {name: own_settings[-1].value for name, own_settings in batch_settings.items()}
    every_setting = [setting for own_settings in batch_settings.values() for setting in own_settings]
    remaining = _arguments_without_options(profile, every_setting)
    if setup.preset.user_arguments_first:
        return Change(
            f"without {' '.join(sorted(batch_settings))}", "nothing else", (("trainer.arguments", remaining),)
        )
    if batch_settings.keys() - {"micro_batch", "accumulation"} or len(
        {setting.position for setting in every_setting}
    ) < len(every_setting):
        return None
    if not all(re.fullmatch(r"[1-9]\d{0,8}", value) for value in values.values()):
        return None
    recipe = setup.effective_profile.recipe
    micro = int(values.get("micro_batch", recipe.micro_batch or 0))
    unit = micro * setup.model_copies
    steps = values.get("accumulation") or (max(1, recipe.global_batch // unit) if unit and recipe.global_batch else 1)
    total = unit * int(steps)
    edits: dict[str, fields.FieldValue] = {
        "trainer.arguments": remaining,
        "recipe.micro_batch": micro,
        "recipe.global_batch": total,
    }
    return Change(f"micro batch {micro} in the recipe", f"global batch {total}", tuple(edits.items()))


def unknown_or_empty_placeholders(setup: Setup) -> Iterator[Finding]:
    """Placeholders in the arguments that mean nothing, or have no value."""
    profile = setup.profile
    for name in dict.fromkeys(PLACEHOLDER_PATTERN.findall("\n".join(profile.trainer.arguments))):
        key = KEY_BY_PLACEHOLDER.get(name, "")
        if not key and name != "checkpoint":
            yield warning(
                "trainer.arguments",
                f"{{{name}}} is no placeholder: the script gets it as it stands",
                fields.similar_word_remedy(name, tuple(KEY_BY_PLACEHOLDER)),
            )
            continue
        effective = setup.effective_values.get(key.removeprefix("recipe."))
        is_empty = key in PROFILE_KEYS_OF_MODEL_AND_DATA and not fields.get_value(profile, key)
        if is_empty or (effective and effective.value is None):
            message = f"{{{name}}} in trainer.arguments has no value, so the argument would be left out"
            yield error(key, message, f"Set {key}, or remove the argument.")
