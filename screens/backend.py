"""Backend: what trains, what starts it, and with which Python."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from tui_train.profile.types import Profile
from tui_train.text import visible

from .messages import Chosen, Complaint
from .step import Step, row_of
from .widgets.dialogs import AskText, Help


class Backend(Step):
    """The second step."""

    HELP = """Backend

What trains: the built-in trainer, or a script of yours with a preset that passes it the recipe.
Launcher: what starts the processes. What cannot work here stands there with its reason.
Python: the interpreter that trains; O names another one than those found.
Container: trains in an image, by its own Python; V looks into the image, and whether it sees the chosen cards."""
    TITLE_OF_STEP = "Backend"
    KEYS = (
        "trainer.kind",
        "trainer.script",
        "trainer.preset",
        "trainer.model",
        "trainer.data",
        "trainer.launcher",
        "trainer.python",
        "container.engine",
        "container.image",
        "container.mounts",
        "container.shared_memory",
        "trainer.arguments",
        "trainer.working_directory",
        "trainer.output",
        "trainer.environment",
        "trainer.secrets",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "other_python", "Other Python"),
        Binding("v", "validate", "Validate image"),
    ]

    def content(self) -> Sequence[Widget]:
        """The rows in groups."""
        what, start = self.KEYS[:5], self.KEYS[5:11]
        return [
            *(row_of(key) for key in what),
            Static(),
            *(row_of(key) for key in start),
            Static(),
            *(row_of(key) for key in self.KEYS[11:]),
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what there is: an image to look into, or a Python of this machine to name."""
        container = self.profile.container
        if action == "validate":
            return container.engine != "none" and bool(container.image)
        if action == "other_python":
            return container.engine == "none"
        return super().check_action(action, parameters)

    def action_validate(self) -> None:
        """Look into the image, and whether it sees the chosen cards."""
        self.notify(visible(f"Looking into {self.profile.container.image} …"), markup=False)
        resolved = self._resolved(self.facts) if self.facts else None
        gpus = tuple(gpu.uuid for gpu in resolved.gpus) if resolved and resolved.device == "cuda" else ()
        self._validate(self.profile, gpus)

    @work(thread=True, exclusive=True, group="validate", exit_on_error=False)
    def _validate(self, profile: Profile, gpus: tuple[str, ...]) -> None:
        from tui_train.validate import shown, validate

        chosen = profile.container
        recipe = profile.nemo.recipe if profile.trainer.kind == "nemo" else ""
        text = shown(validate(chosen.engine, chosen.image, gpus, recipe))
        self.app.call_from_thread(self.app.push_screen, Help(Text(text)))

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
