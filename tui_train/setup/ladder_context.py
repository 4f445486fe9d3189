"""LadderContext: the facts on which a fallback may depend."""

from collections.abc import Mapping

from msgspec import Struct

from tui_train.runner.memory_patterns import FALLBACK_PHASES


class LadderContext(Struct, frozen=True, kw_only=True):
    """Facts that a rung may depend on."""

    world_size: int
    cuda: bool
    accepted: frozenset[str]
    """The placeholders that the trainer accepts."""
    loads_model: bool
    refusals: Mapping[str, str] = {}
    """By rung, why it cannot help here."""
    why_none: str = ""
    """Why no rung can help."""
    eval_batch: int = 0
    """The trainer's own evaluation batch; 0: the micro batch."""
    evaluates: bool = True
    """Memory can run out in an evaluation."""
    batch_not_set: bool = False
    """The batch is not lowered because the user did not set it."""
    min_micro: int = 1
    """The smallest micro batch that trains."""

    def why_rung_refused(self, rung: str) -> str:
        """Return why a rung cannot help here, empty where it can."""
        return self.why_none or self.refusals.get(rung, "")

    @property
    def out_of_memory_phases(self) -> tuple[str, ...]:
        """Phases in which memory can run out."""
        return tuple(phase for phase in FALLBACK_PHASES if phase != "eval" or self.evaluates)
