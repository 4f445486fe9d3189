"""Asks the script of the user for its --help, and offers the arguments that it lists."""

from typing import Literal

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.facts.script_help import offered
from tui_train.facts.types import ScriptHelp
from tui_train.trainers.script import entry_point

from .messages import AskScript, Chosen, Complaint
from .step import Step
from .widgets.dialogs import Ask


class ScriptAsker(Step):
    """A step that takes arguments from the list of a script."""

    _waits: Literal["", "asked", "running"] = ""

    def action_script_help(self) -> None:
        """Have the script run with --help."""
        self._waits = "asked"
        self.post_message(AskScript())

    def offer_arguments(self) -> None:
        """Show what the script lists, once after it was asked."""
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
        setup = self.setup
        key = entry_point(self.profile, setup.preset) if setup else ""
        return self.facts.help.get(key) if self.facts else None

    def _take(self, name: str | None) -> None:
        found = self._help()
        flag = next((one for one in found.flags if one.name == name), None) if found else None
        if flag is None:
            return
        word = f"{flag.name}=" if flag.valued else flag.name
        self.post_message(Chosen("trainer.arguments", (*self.profile.trainer.arguments, word)))
        self.call_after_refresh(self.form.go, "trainer.arguments")
