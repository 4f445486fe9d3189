"""Checks of what other live runs use: cards, an output folder, a port."""

from collections.abc import Iterator

from tui_train.base.text import visible
from tui_train.checks.finding import Finding
from tui_train.facts.gpus import recommended
from tui_train.facts.ports import clash, spelled
from tui_train.facts.types import Facts, Taken
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import Resolved

_END = "Wait for it, or end it (tui-train stop {})"


def cards(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """Cards on which a live run trains: two on one card run out of its memory, or halve each other's speed."""
    del profile
    for words, other in _clashes(Taken(gpus=tuple(gpu.uuid for gpu in resolved.gpus)), facts):
        used = {uuid for run in facts.taken for uuid in run.gpus}
        pairs = zip(facts.machine.gpus, resolved.verdicts, strict=True)
        free = [(gpu, verdict) for gpu, verdict in pairs if gpu.uuid not in used]
        others = recommended([gpu for gpu, _ in free], [verdict for _, verdict in free])
        change = Change("train on free GPUs", "another run uses the chosen ones", (("hardware.gpus", others),))
        yield Finding(
            level="error",
            key="hardware.gpus",
            message=words,
            remedy=f"{_END.format(visible(other.run))}, or choose other GPUs.",
            change=change if others else None,
            machine=True,
            start=True,
        )


def output(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """The output folder of a live run: their checkpoints would replace each other."""
    for words, other in _clashes(Taken(outputs=spelled(profile.trainer.output or resolved.user_output)), facts):
        remedy = f"{_END.format(visible(other.run))}, or name another output folder."
        yield Finding(level="error", key="trainer.output", message=words, remedy=remedy, machine=True, start=True)


def port(profile: Profile, facts: Facts, _resolved: Resolved) -> Iterator[Finding]:
    """The port at which several machines meet: the first one has to open it."""
    if profile.nodes.machines == 1 or facts.scheduler:
        return
    for words, _ in _clashes(Taken(port=profile.nodes.port), facts):
        remedy = "Choose another one, for all machines (nodes.port)."
        yield Finding(level="error", key="nodes.port", message=words, remedy=remedy, machine=True, start=True)


def _clashes(resources: Taken, facts: Facts) -> Iterator[tuple[str, Taken]]:
    conflicts = ((clash(resources, other), other) for other in facts.taken)
    yield from ((words, other) for words, other in conflicts if words)
