"""Runs the user's script with --help, and offers the arguments that it lists."""

from typing import Literal

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.facts.scripts.script_help import flags_without_second_spellings
from tui_train.facts.types import ScriptHelp
from tui_train.trainers.script import script_or_module_to_start

from ..messages import QueryScriptHelp, ValueChosen
from ..steps.step import StepScreen


class StepWithScriptHelp(StepScreen):
    """A step that takes arguments from the list of a script."""

    _waiting_for: Literal["", "asked", "running"] = ""

    def action_query_script_help(self) -> None:
        """Run the script with --help."""
        self._waiting_for = "asked"
        self.post_message(QueryScriptHelp())

    def offer_arguments_if_asked(self) -> None:
        """Show the arguments that the script lists, once after a query."""
        if self._waiting_for and "help" in self.awaited_parts:
            self._waiting_for = "running"
        found = self._known_script_help()
        if self._waiting_for != "running" or "help" in self.awaited_parts or found is None:
            return
        self._waiting_for = ""
        if found.problem:
            remedy = "Run it with --help in a shell: what it needs to start is missing."
            # Raised it would end the drawing that this is a part of.
            self.wizard.show_error(Unavailable(f"the script lists no arguments: {found.problem}", remedy))
            return
        flags = flags_without_second_spellings(found.flags)
        answers = ((flag.name, visible(f"{flag.name}  {flag.help}")[:300]) for flag in flags)
        self.ask_choice("What the script takes", answers, self._append_picked_argument)

    def _known_script_help(self) -> ScriptHelp | None:
        setup = self.setup
        key = script_or_module_to_start(self.profile, setup.preset) if setup else ""
        return self.facts.help.get(key) if self.facts else None

    def _append_picked_argument(self, name: str) -> None:
        found = self._known_script_help()
        flag = next((one for one in found.flags if one.name == name), None) if found else None
        if flag is None:
            return
        word = f"{flag.name}=" if flag.valued else flag.name
        self.post_message(ValueChosen("trainer.arguments", (*self.profile.trainer.arguments, word)))
        self.call_after_refresh(self.form.go_to_row, "trainer.arguments")
