"""The part of the wizard that asks the other hosts of a training, as the first one reaches them."""

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .data_reading import DataReadingApp

if TYPE_CHECKING:
    from tui_train.actions.machine_facts import FactsSource
    from tui_train.actions.training_hosts import TrainingHostsQuestion

_HOSTS_FACTS_PART = "training_hosts"
_FACTS_PARTS_OF_FIRST_HOST = {"machine", "toolchains", "paths"}


class HostProbingApp(DataReadingApp):
    """An app that has each of `nodes.hosts` asked once; names that are being typed are asked at the next step."""

    def __init__(self, source: "FactsSource | None" = None) -> None:
        super().__init__(source)
        self._asked_hosts: TrainingHostsQuestion | None = None

    def watch_profile(self) -> None:
        """Ask the hosts of a changed profile."""
        super().watch_profile()
        self._ask_hosts_unless_typed()

    def watch_facts(self) -> None:
        """Ask once the first host is known."""
        super().watch_facts()
        self._ask_hosts_unless_typed()

    def watch_looking(self) -> None:
        """Ask once nothing of the first host is awaited."""
        super().watch_looking()
        self._ask_hosts_unless_typed()

    def action_look(self, delay_seconds: float = 0) -> None:
        """Look at everything again, the other hosts as well."""
        self._asked_hosts = None
        super().action_look(delay_seconds)
        self.ask_training_hosts()

    def _ask_hosts_unless_typed(self) -> None:
        if self._edited_key != "nodes.hosts":
            self.ask_training_hosts()

    def ask_training_hosts(self) -> None:
        """Ask the hosts of the profile, unless that was done, or the first one is not known yet."""
        profile, facts = self.profile, self.facts
        if facts is None or self.looking & _FACTS_PARTS_OF_FIRST_HOST or not (profile.nodes.hosts or self._asked_hosts):
            return
        from tui_train.actions.machine_facts import FactsSource
        from tui_train.actions.training_hosts import training_hosts_question
        from tui_train.facts.other_machines.training_hosts import probe_hosts

        asked = training_hosts_question(profile, facts, self._source or FactsSource())
        if asked == self._asked_hosts:
            return
        self._asked_hosts = asked
        self.facts = replace(facts, training_hosts={})
        if asked is None:
            self.workers.cancel_group(self, _HOSTS_FACTS_PART)
            self.looking -= {_HOSTS_FACTS_PART}
            return
        self.mark_parts_expected(_HOSTS_FACTS_PART)
        self.run_query(_HOSTS_FACTS_PART, partial(probe_hosts, *asked))
