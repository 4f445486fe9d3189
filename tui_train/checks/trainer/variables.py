"""Checks of the variables of a training, and of secrets that are in a profile."""

import re
from collections.abc import Iterator
from pathlib import Path

from tui_train.base import secrets, webhook
from tui_train.base.app_paths import webhooks_folder
from tui_train.checks.finding import Finding, error, warning
from tui_train.profile import fields, secret_values
from tui_train.profile.changes import Change, remove_variables_change
from tui_train.setup.setup import Setup

_REMEDY_BY_PLAN_VARIABLE = {
    "CUDA_VISIBLE_DEVICES": "choose the GPUs on the Hardware screen (hardware.gpus)",
    "CUDA_DEVICE_ORDER": "the plan names the GPUs by their UUIDs, whatever their order",
    "ACCELERATE_USE_CPU": "choose the device on the Hardware screen (hardware.device)",
    "TUI_TRAIN_RUN_ID": "it marks the processes of a run",
    "TUI_TRAIN_BACKEND": "choose the communication on the Backend screen (communication.backend)",
    "TUI_TRAIN_MICRO_BATCH": "choose it on the Recipe screen (recipe.micro_batch)",
    **dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"), "the launcher sets it"),
}
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
    for secret in secret_values.find_secret_positions(setup.profile):
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
