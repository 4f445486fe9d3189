"""The part of the wizard that asks the other hosts of a training, as the first one reaches them."""

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .reading import Reading

if TYPE_CHECKING:
    from tui_train.workflow.machines import Source
    from tui_train.workflow.peers import Asking

_PART = "peers"
_FIRST = {"machine", "toolchains", "paths"}


class AskingHosts(Reading):
    """An app that has each of `nodes.hosts` asked once; names that are being typed are asked at the next step."""

    def __init__(self, source: "Source | None" = None) -> None:
        """Begin with none asked."""
        super().__init__(source)
        self._peers: Asking | None = None

    def watch_profile(self) -> None:
        """Ask the hosts of a changed profile."""
        super().watch_profile()
        self._ask_unless_typed()

    def watch_facts(self) -> None:
        """Ask once the first host is known."""
        super().watch_facts()
        self._ask_unless_typed()

    def watch_looking(self) -> None:
        """Ask once nothing of the first host is awaited."""
        super().watch_looking()
        self._ask_unless_typed()

    def action_look(self, later: float = 0) -> None:
        """Look at everything again, the other hosts as well."""
        self._peers = None
        super().action_look(later)
        self.ask_peers()

    def _ask_unless_typed(self) -> None:
        if self._key != "nodes.hosts":
            self.ask_peers()

    def ask_peers(self) -> None:
        """Ask the hosts of the profile, unless that was done, or the first one is not known yet."""
        profile, facts = self.profile, self.facts
        if facts is None or self.looking & _FIRST or not (profile.nodes.hosts or self._peers):
            return
        from tui_train.facts.peers import peers
        from tui_train.workflow.machines import Source
        from tui_train.workflow.peers import asking

        asked = asking(profile, facts, self._source or Source())
        if asked == self._peers:
            return
        self._peers = asked
        self.facts = replace(facts, peers={})
        if asked is None:
            self.workers.cancel_group(self, _PART)
            self.looking -= {_PART}
            return
        self.expect(_PART)
        self.ask(_PART, partial(peers, *asked))
