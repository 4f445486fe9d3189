"""Plain python: one process, one device."""

from tui_train.base.command import CommandPart
from tui_train.launchers.launcher import Launcher


class Python(Launcher):
    """Starts one process by the interpreter itself."""

    label = "python"
    description = "one process on one device"
    starts_nemo_recipes = True

    def command_parts(self) -> tuple[CommandPart, ...]:
        """Return the interpreter alone."""
        return (CommandPart((self.job.python,)),)
