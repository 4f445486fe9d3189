"""Checks of the paths that a profile names: what is missing, damaged or in the way."""

from collections.abc import Iterator

from tui_train.base.text import display_path, nearest_path_clause
from tui_train.checks.finding import Finding, error, warning
from tui_train.facts.types import PathState
from tui_train.memory.workload import chosen_model_name
from tui_train.profile import fields
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.recipe import no_effect
from tui_train.setup.recipe.hub_model import model_to_download
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field
from tui_train.trainers.script import script_or_module_to_start


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


def _use_similar_path_change(profile: Profile, key: str, path: str, similar_path: str) -> Change | None:
    """Return the change that names a file of a similar name in the place of one that is missing; None for a folder."""
    if not similar_path or similar_path.endswith("/"):
        return None
    value = fields.get_value(profile, key)
    new: fields.FieldValue = similar_path
    if isinstance(value, tuple):
        new = tuple(similar_path if each == path else each for each in value)
    return Change(f"use {similar_path.rpartition('/')[2]}", "it exists", ((key, new),))


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
