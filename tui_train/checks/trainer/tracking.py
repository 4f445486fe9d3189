"""Checks of trackers: their packages in the Python that trains, a library that knows Trackio, and a key for W&B."""

from collections.abc import Iterator, Mapping

from tui_train.base.text import display_path
from tui_train.base.versions import is_known_older
from tui_train.checks.finding import Finding, error, warning
from tui_train.facts.types import Toolchain
from tui_train.profile import fields
from tui_train.profile.changes import Change
from tui_train.setup.recipe import no_effect
from tui_train.setup.recipe.options import TrainerOptions, script_options
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field

# The first versions of the libraries by which trainers report that know Trackio.
_MIN_TRANSFORMERS_WITH_TRACKIO = "4.54"
_MIN_ACCELERATE_WITH_TRACKIO = "1.9"
_WANDB_KEY_VARIABLE = "WANDB_API_KEY"
_WANDB_MODES_NEEDING_NO_KEY = {"offline", "disabled", "dryrun"}


def missing_tracker_packages(setup: Setup) -> Iterator[Finding]:
    """A tracker that was chosen and is not installed where it trains."""
    tool = setup.toolchain
    for key, label in _passed_trackers(setup):
        name = key.partition(".")[2]
        if tool is None or name in tool.packages:
            continue
        where = _python_or_image_text(setup, tool)
        install = f"Install it there: `{display_path(tool.python)} -m pip install {name}`."
        yield error(
            key,
            f"{label} is chosen, and {where} does not have the package {name}",
            "Use an image that has it (container.image)." if where == "the image" else install,
            change=Change(f"without {label}", "it is not installed there", ((key, False),)),
        )


def trackio_unknown_to_library(setup: Setup) -> Iterator[Finding]:
    """Trackio was chosen, and transformers, or accelerate for its examples, is too old to know it."""
    tool = setup.toolchain
    if tool is None or "tracking.trackio" not in dict(_passed_trackers(setup)):
        return
    library, version, minimum = "transformers", tool.transformers, _MIN_TRANSFORMERS_WITH_TRACKIO
    if "log_with" in setup.ladder_context.accepted_placeholders:
        library, version, minimum = "accelerate", tool.accelerate, _MIN_ACCELERATE_WITH_TRACKIO
    if not is_known_older(version, minimum):
        return
    where = _python_or_image_text(setup, tool)
    update = f"Update it there: `{display_path(tool.python)} -m pip install '{library}>={minimum}'`."
    yield error(
        "tracking.trackio",
        f"Trackio is chosen, and {library} {version} of {where} is older than {minimum}, the first that reports to it",
        "Use an image with a newer one." if where == "the image" else update,
        change=Change("without Trackio", f"that {library} does not know it", (("tracking.trackio", False),)),
    )


def more_trackers_than_script_takes(setup: Setup) -> Iterator[Finding]:
    """Several trackers for a script that takes one, or all that are installed."""
    passed = tuple(_passed_trackers(setup))
    if len(passed) < 2 or "log_with" not in setup.ladder_context.accepted_placeholders:
        return
    (kept, label), *others = passed
    without = tuple((key, False) for key, _ in others)
    yield error(
        kept,
        f"{setup.preset.name_in_sentence} reports to one tracker or to all that are installed, "
        f"and {' and '.join(name for _, name in passed)} are chosen",
        "Choose one of them.",
        change=Change(f"{label} alone", "the script takes one", without),
    )


def _passed_trackers(setup: Setup) -> Iterator[tuple[str, str]]:
    """Yield key and label of each chosen tracker that the trainer can be told of."""
    for name in setup.profile.tracking.chosen_trackers:
        key = f"tracking.{name}"
        if not no_effect.why_no_effect(key, setup):
            yield key, fields.get_field(key).label


def _python_or_image_text(setup: Setup, tool: Toolchain) -> str:
    return "the image" if setup.profile.container.engine != "none" else display_path(tool.python)


def missing_wandb_key(setup: Setup) -> Iterator[Finding]:
    """No key for W&B, where the script's version of transformers, or its words, have it report there."""
    profile, facts = setup.profile, setup.facts
    trainer, tool = profile.trainer, setup.toolchain
    if facts.wandb_key or tool is None or "wandb" not in tool.packages:
        return
    options = script_options(profile, facts.documents)
    mode = trainer.environment.get("WANDB_MODE") or str(options.get("wandb_mode", ""))
    if (
        _WANDB_KEY_VARIABLE in trainer.secrets
        or mode.lower() in _WANDB_MODES_NEEDING_NO_KEY
        or not (why := _why_reports_to_wandb(options, setup, tool))
    ):
        return
    environment = {**trainer.environment, "WANDB_MODE": "offline"}
    change = Change(
        "wandb offline", "needs no key; upload later with wandb sync", (("trainer.environment", environment),)
    )
    message = f"no W&B key was found, and the training reports there ({why})"
    remedy = (
        f"Name {_WANDB_KEY_VARIABLE} under trainer.secrets and export it where you start the run, "
        "run `wandb login`, or do not report there."
    )
    yield warning("trainer.secrets", message, remedy, change=change)


def _why_reports_to_wandb(options: TrainerOptions, setup: Setup, tool: Toolchain) -> str:
    """Return why the training reports to W&B: the profile says so, or its script does by itself; empty if neither."""
    profile = setup.profile
    if profile.tracking.wandb:
        return "tracking.wandb is chosen"
    if not trainer_has_own_field(profile, "trainer.preset"):
        return ""
    return _why_script_reports_to_wandb(options, profile.trainer.environment, setup, tool)


def _why_script_reports_to_wandb(
    options: TrainerOptions, environment: Mapping[str, str], setup: Setup, tool: Toolchain
) -> str:
    """Return why a training reports to W&B, empty where it does not, or that is not known."""
    report_to = options.get("report_to")
    names = report_to if isinstance(report_to, list) else str(report_to or "").replace(",", " ").split()
    if "wandb" in names:
        return "report_to says so"
    # Presets that save as transformers' Trainer does start one.
    rule = setup.preset.checkpoints
    if rule is None or "trainer_state.json" not in rule.complete:
        return ""
    if options.get("wandb_project") or options.is_on("use_wandb"):
        return "its configuration names a project of W&B"
    is_old = is_known_older(tool.transformers, "5")
    if is_old and environment.get("WANDB_DISABLED", "").lower() in {"1", "true", "yes", "on"}:
        return ""
    if "all" in names:
        return "report_to=all, and wandb is installed"
    return (
        f"transformers {tool.transformers} reports to every tracker that is installed" if is_old and not names else ""
    )
