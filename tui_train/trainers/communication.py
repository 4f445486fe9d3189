"""A test of how processes exchange data: programs/communication_test.py in the place of a training."""

from functools import cached_property

from tui_train.base.command import CommandPart, ProgramFile, word_in_run_dir
from tui_train.profile.presets import Preset, shipped_presets
from tui_train.trainers.trainer import Trainer

_SCRIPT_FILE = "communication_test.py"


class CommunicationTestTrainer(Trainer):
    """Trains nothing: starts on the same machines, GPUs and Python, as a training would be, and exchanges data."""

    name = "Communication test"
    about = "each exchange of data once, timed"
    label = "the communication test"
    is_training = False
    # Before the limits of its own stages.
    connection_wait = 4
    reads_backend_variable = True

    @cached_property
    def preset(self) -> Preset:
        """The preset that passes nothing."""
        return shipped_presets()["custom"]

    def may_evaluate(self) -> bool:
        """Return false."""
        return False

    def program_parts(self) -> tuple[CommandPart, ...]:
        """Return the test."""
        return (CommandPart((word_in_run_dir(_SCRIPT_FILE),)),)

    def program_files(self) -> tuple[ProgramFile, ...]:
        """Return the test."""
        return (ProgramFile(_SCRIPT_FILE, f"programs/{_SCRIPT_FILE}"), *super().program_files())
