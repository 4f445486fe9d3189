"""Backend: what trains, what starts it, and with which Python."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, Static

from tui_train.errors import Unavailable
from tui_train.facts.script_help import offered
from tui_train.facts.types import ScriptHelp
from tui_train.plan.resolve import Resolved, started
from tui_train.text import visible

from .messages import AskScript, Chosen, Complaint
from .step import Step, row_of
from .widgets.dialogs import Ask, AskText
from .widgets.rows import TextRow


class Backend(Step):
    """The second step."""

    HELP = """Backend

What trains: the built-in trainer, or a script of yours with a preset that passes it the recipe.
Launcher: what starts the processes. What cannot work here stands there with its reason.
Sharding: what each GPU holds, all of the model or a share of it.
Python: the interpreter that trains; O names another one than those found.
H runs the script with --help and offers the arguments that it lists: only then is it run before the training."""
    TITLE_OF_STEP = "Backend"
    KEYS = (
        "trainer.kind",
        "trainer.script",
        "trainer.preset",
        "trainer.config",
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
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "other_python", "Other Python"),
        Binding("h", "script_help", "Script's help"),
    ]

    def __init__(self) -> None:
        """Begin with nothing asked."""
        super().__init__()
        self._waits: Literal["", "asked", "running"] = ""

    def content(self) -> Sequence[Widget]:
        """The rows in groups."""
        what, start = self.KEYS[:6], self.KEYS[6:10]
        return [
            *(row_of(key) for key in what),
            Static(),
            *(row_of(key) for key in start),
            Static(),
            *(row_of(key) for key in self.KEYS[10:]),
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a script has a help of its own."""
        if action == "script_help":
            return self.profile.trainer.kind == "script"
        return super().check_action(action, parameters)

    def action_script_help(self) -> None:
        """Have the script run with --help."""
        self._waits = "asked"
        self.post_message(AskScript())

    def refresh_rest(self, resolved: Resolved) -> None:
        """Offer what the script lists, once it has answered."""
        del resolved
        if self._waits and "help" in self.looking:
            self._waits = "running"
        found = self._help()
        if self._waits != "running" or "help" in self.looking or found is None:
            return
        self._waits = ""
        if found.problem:
            remedy = "Run it with --help in a shell: what it needs to start is missing."
            self.post_message(Complaint(Unavailable(f"the script lists no arguments: {found.problem}", remedy)))
            return
        flags = offered(found.flags)
        answers = tuple((flag.name, visible(f"{flag.name}  {flag.help}")[:300]) for flag in flags)
        self.app.push_screen(Ask("What the script takes", answers), self._take)

    def _help(self) -> ScriptHelp | None:
        resolved = self._resolved(self.facts) if self.facts else None
        key = started(self.profile, resolved.preset) if resolved else ""
        return self.facts.help.get(key) if self.facts else None

    def _take(self, name: str | None) -> None:
        found = self._help()
        flag = next((one for one in found.flags if one.name == name), None) if found else None
        if flag is None:
            return
        word = f"{flag.name}=" if flag.valued else flag.name
        self.post_message(Chosen("trainer.arguments", (*self.profile.trainer.arguments, word)))
        row = next((row for row in self.query(TextRow) if row.field.key == "trainer.arguments"), None)
        if row:
            self.call_after_refresh(row.query_one(Input).focus)

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
