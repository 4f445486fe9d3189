"""Backend: what trains, what starts it, and with which Python."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from tui_train import choices
from tui_train.errors import BadInput
from tui_train.plan.resolve import Resolved
from tui_train.profile import fields
from tui_train.text import counted, visible

from .messages import AskRecipes, Chosen, Complaint
from .step import Step, row_of
from .widgets.dialogs import Ask, AskText
from .widgets.rows import TextRow, row_id

_WHAT = ("trainer.kind", "trainer.script", "trainer.preset")
_NEMO = (
    "nemo.recipe",
    "nemo.task",
    "nemo.peft",
    "nemo.own_size",
    "nemo.mock_data",
    "nemo.tokenizer",
    "nemo.tensor_parallel",
    "nemo.pipeline_parallel",
    "nemo.context_parallel",
)
_DATA = ("trainer.model", "trainer.data")
_START = ("trainer.launcher", "trainer.python")
_REST = (
    "trainer.arguments",
    "trainer.working_directory",
    "trainer.output",
    "trainer.environment",
    "trainer.secrets",
)


class Backend(Step):
    """The second step."""

    HELP = """Backend

What trains: the built-in trainer, a script of yours with a preset that passes it the recipe, or a NeMo recipe.
Launcher: what starts the processes. What cannot work here stands there with its reason.
Python: the interpreter that trains; O names another one than those found.
NeMo: R shows its recipes to choose from, N asks the Python which it really has."""
    TITLE_OF_STEP = "Backend"
    KEYS = (*_WHAT, *_NEMO, *_DATA, *_START, *_REST)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "other_python", "Other Python"),
        Binding("r", "recipes", "Recipes"),
        Binding("n", "ask_recipes", "Ask NeMo"),
    ]

    def content(self) -> Sequence[Widget]:
        """The rows in groups."""
        return [
            *(row_of(key) for key in (*_WHAT, *_NEMO, *_DATA)),
            Static(),
            *(row_of(key) for key in _START),
            Static(),
            *(row_of(key) for key in _REST),
        ]

    def refresh_rest(self, resolved: Resolved) -> None:
        """Say which recipes are known."""
        if self.facts is None or self.profile.trainer.kind != "nemo":
            return
        options = choices.options("nemo.recipe", self.profile, self.facts, resolved)
        asked = bool(options and options[0].note)
        whose = "of this Python" if asked else "of NeMo 2.7; N asks this Python"
        note = f"R shows {counted(len(options), 'recipe')} {whose}"
        if "recipes" in self.looking:
            note = "asking NeMo …"
        self.query_one(f"#{row_id('nemo.recipe')}", TextRow).note(note)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of NeMo are there when it trains."""
        if action in {"recipes", "ask_recipes"}:
            return self.profile.trainer.kind == "nemo"
        return super().check_action(action, parameters)

    def action_ask_recipes(self) -> None:
        """Have the chosen Python asked for its recipes."""
        resolved = self._resolved(self.facts) if self.facts else None
        if resolved and resolved.toolchain and resolved.nemo == "recipes":
            self.post_message(AskRecipes(resolved.toolchain.python))
        else:
            error = BadInput("no Python with NeMo recipes is chosen", "Make one: tui-train env create nemo.")
            self.post_message(Complaint(error))

    def action_recipes(self) -> None:
        """Show the recipes to choose from."""
        resolved = self._resolved(self.facts) if self.facts else None
        if resolved is None or self.facts is None:
            return
        found = choices.options("nemo.recipe", self.profile, self.facts, resolved)
        answers = tuple((option.value, visible(option.label)) for option in found)
        self.app.push_screen(Ask("Which recipe?", answers), self._recipe)

    def _recipe(self, name: str | None) -> None:
        if name:
            self.post_message(Chosen("nemo.recipe", name))

    def action_other_python(self) -> None:
        """Ask for the path of a Python."""
        question = "Path of the Python that trains (an environment's bin/python):"
        self.app.push_screen(AskText(question, self.profile.trainer.python), self._named)

    def _named(self, path: str | None) -> None:
        if path:
            try:
                self.post_message(Chosen("trainer.python", fields.parse(fields.field("trainer.python"), path)))
            except BadInput as error:
                self.post_message(Complaint(error))


SCREEN = Backend
