"""Backend: what trains, what starts it, and with which Python."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from .messages import Chosen, Complaint
from .step import Step, row_of
from .widgets.dialogs import AskText


class Backend(Step):
    """The second step."""

    HELP = """Backend

What trains: the built-in trainer, or a script of yours with a preset that passes it the recipe.
Launcher: what starts the processes. What cannot work here stands there with its reason.
Sharding: what each GPU holds, all of the model or a share of it.
Python: the interpreter that trains; O names another one than those found."""
    TITLE_OF_STEP = "Backend"
    KEYS = (
        "trainer.kind",
        "trainer.script",
        "trainer.preset",
        "trainer.model",
        "trainer.data",
        "trainer.launcher",
        "trainer.strategy",
        "trainer.offload",
        "trainer.python",
        "trainer.arguments",
        "nodes.count",
        "nodes.address",
        "nodes.port",
        "trainer.working_directory",
        "trainer.output",
        "trainer.environment",
        "trainer.secrets",
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "other_python", "Other Python")]

    def content(self) -> Sequence[Widget]:
        """The rows in groups."""
        what, start = self.KEYS[:5], self.KEYS[5:9]
        return [
            *(row_of(key) for key in what),
            Static(),
            *(row_of(key) for key in start),
            Static(),
            *(row_of(key) for key in self.KEYS[9:]),
        ]

    def action_other_python(self) -> None:
        """Ask for the path of a Python."""
        question = "Path of the Python that trains (an environment's bin/python):"
        self.app.push_screen(AskText(question, self.profile.trainer.python), self._named)

    def _named(self, path: str | None) -> None:
        from tui_train.errors import BadInput
        from tui_train.profile import fields

        if path:
            try:
                self.post_message(Chosen("trainer.python", fields.parse(fields.field("trainer.python"), path)))
            except BadInput as error:
                self.post_message(Complaint(error))


SCREEN = Backend
