"""LadderContext: the facts on which a fallback may depend."""

from collections.abc import Mapping

from msgspec import Struct

from tui_train.supervisor.memory_patterns import PHASES


class LadderContext(Struct, frozen=True, kw_only=True):
    """Facts that a rung may depend on: world size, GPUs, accepted placeholders, loaded weights.

    `refusals` are the reasons why a rung cannot help here, `why_none` is why none can. `batch_not_set`: the batch is
    not lowered because the user did not set it. `eval_batch` is the trainer's own evaluation batch (0: same as the
    micro batch); `evaluates`: memory can run out in an evaluation. `min_micro`: the smallest micro batch
    that trains.
    """

    world_size: int
    cuda: bool
    accepted: frozenset[str]
    loads_model: bool
    refusals: Mapping[str, str] = {}
    why_none: str = ""
    eval_batch: int = 0
    evaluates: bool = True
    batch_not_set: bool = False
    min_micro: int = 1

    def why_refused(self, name: str) -> str:
        """Return why a rung cannot help here, empty where it can."""
        return self.why_none or self.refusals.get(name, "")

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases in which memory can run out."""
        return tuple(phase for phase in PHASES if phase != "eval" or self.evaluates)
