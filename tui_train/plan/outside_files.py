"""Files of the user that a run needs and that its folder does not have."""

from tui_train.profile.types import Profile


def outside_files_text(profile: Profile) -> str:
    """Return the files that a run reads at their own paths, as a list in words; empty where all is in its folder."""
    trainer = profile.trainer
    script = f"{trainer.script} and what it imports" if trainer.kind == "script" and trainer.script else ""
    model = trainer.model if trainer.model.startswith(("/", "~")) else ""
    data = () if trainer.kind == "script" else (*trainer.data, *trainer.validation_data, *trainer.test_data)
    return ", ".join(filter(None, (script, model, *data)))
