"""Backend: what trains, what starts it, and with which Python."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, Static

from tui_train.errors import Unavailable
from tui_train.facts.script_help import offered
from tui_train.facts.types import ScriptHelp
from tui_train.plan.resolve import Resolved, started
from tui_train.profile.types import Profile
from tui_train.text import visible

from .messages import AskScript, Chosen, Complaint
from .step import Step, row_of
from .widgets.dialogs import Ask, AskText, Help
from .widgets.rows import TextRow


class Backend(Step):
    """The second step."""

    HELP = """Backend

What trains: the built-in trainer, or a script of yours with a preset that passes it the recipe.
Launcher: what starts the processes. What cannot work here stands there with its reason.
Sharding: what each GPU holds, all of the model or a share of it.
Python: the interpreter that trains; O names another one than those found.
H runs the script with --help and offers the arguments that it lists: only then is it run before the training.
Container: trains in an image, by its own Python; V looks into the image, and whether it sees the chosen cards."""
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
        "container.engine",
        "container.image",
        "container.mounts",
        "container.shared_memory",
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
        Binding("v", "validate", "Validate image"),
    ]

    def __init__(self) -> None:
        """Begin with nothing asked."""
        super().__init__()
        self._waits: Literal["", "asked", "running"] = ""

    def content(self) -> Sequence[Widget]:
        """The rows in groups."""
        at = [self.KEYS.index(key) for key in ("trainer.launcher", "trainer.arguments")]
        what, start, rest = self.KEYS[: at[0]], self.KEYS[at[0] : at[1]], self.KEYS[at[1] :]
        return [
            *(row_of(key) for key in what),
            Static(),
            *(row_of(key) for key in start),
            Static(),
            *(row_of(key) for key in rest),
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what there is: a script's help, an image to look into, or a Python of this machine to name."""
        container = self.profile.container
        if action == "script_help":
            return self.profile.trainer.kind == "script" and container.engine == "none"
        if action == "validate":
            return container.engine != "none" and bool(container.image)
        if action == "other_python":
            return container.engine == "none"
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
