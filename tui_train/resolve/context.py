"""LadderContext: the facts on which a fallback may depend."""

from collections.abc import Mapping

from msgspec import Struct

from tui_train.supervisor.memory_words import PHASES


class LadderContext(Struct, frozen=True, kw_only=True):
    """What a rung may depend on: world size, GPUs or not, what the trainer takes, whether weights are loaded.

    `refused` says why a rung is of no use here, `refuses_all` why none is. `eval_batch` is how many samples the trainer
    evaluates at a time by itself, 0 where as many as it trains on; of one that `evaluates` nothing memory cannot run
    out there.
    """

    world_size: int
    cuda: bool
    takes: frozenset[str]
    loads_model: bool
    refused: Mapping[str, str] = {}
    refuses_all: str = ""
    eval_batch: int = 0
    evaluates: bool = True

    def why_refused(self, name: str) -> str:
        """Return why a rung cannot help here, empty where it can."""
        return self.refuses_all or self.refused.get(name, "")

    @property
    def phases(self) -> tuple[str, ...]:
        """Where memory can run out."""
        return tuple(phase for phase in PHASES if phase != "eval" or self.evaluates)
