"""Questions to the other hosts of a training, as the first one reaches them."""

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..discovery.discovery import DiscoveryApp

if TYPE_CHECKING:
    from tui_train.actions.training_hosts import TrainingHostsQuestion

_HOSTS_FACTS_PART = "training_hosts"
_FACTS_PARTS_NEEDED_OF_FIRST_HOST = {"machine", "toolchains", "paths"}


class HostProber:
    """Queries each of `nodes.hosts` once."""

    def __init__(self, app: DiscoveryApp) -> None:
        """Begin with no host asked."""
        self._app = app
        self._asked_hosts: TrainingHostsQuestion | None = None

    def forget_answered_hosts(self) -> None:
        """Forget the answers, so that all hosts are queried again."""
        self._asked_hosts = None

    def query_hosts_if_changed(self) -> None:
        """Ask the hosts of the profile, unless that was done, or the first one is not known yet."""
        profile, facts = self._app.profile, self._app.facts
        if (
            facts is None
            or self._app.awaited_parts & _FACTS_PARTS_NEEDED_OF_FIRST_HOST
            or not (profile.nodes.hosts or self._asked_hosts)
        ):
            return
        from tui_train.actions.training_hosts import training_hosts_question
        from tui_train.facts.other_machines.training_hosts import probe_hosts

        asked = training_hosts_question(profile, facts, self._app.place_for(profile))
        if asked == self._asked_hosts:
            return
        self._asked_hosts = asked
        self._app.facts = replace(facts, training_hosts={})
        if asked is None:
            self._app.workers.cancel_group(self._app, _HOSTS_FACTS_PART)
            self._app.awaited_parts -= {_HOSTS_FACTS_PART}
            return
        self._app.mark_parts_awaited(_HOSTS_FACTS_PART)
        self._app.run_query(_HOSTS_FACTS_PART, partial(probe_hosts, *asked))
