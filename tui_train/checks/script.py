"""Checks of a script's source: whether it loads a checkpoint, and how it reads its rank."""

from collections.abc import Iterator

from tui_train.checks.finding import Finding
from tui_train.facts.types import Facts, Source
from tui_train.launchers import LAUNCHERS
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import Resolved
from tui_train.trainers.script import started

_RESUME = "--resume_from_checkpoint"
_KEY = "trainer.script"


def resumes(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A script that does not load the checkpoint that a second start and each fallback pass to it."""
    source, rule = _source(profile, facts, resolved), resolved.preset.checkpoints
    if source is None or rule is None or not any(word.startswith(_RESUME) for word in rule.resume):
        return
    effect = "a second start, and each fallback, trains from step 0 again"
    if source.bare_train:
        message = f"line {source.bare_train} of the script passes no checkpoint on to train(): {effect}"
        yield Finding(level="warning", key=_KEY, message=message, remedy=f"Write `{source.train_words}` there.")
    elif source.accelerates and not source.names_checkpoint:
        message = f"the script does not read {_RESUME}: {effect}"
        remedy = "Take that argument, and before the first step: accelerator.load_state(args.resume_from_checkpoint)"
        yield Finding(level="warning", key=_KEY, message=message, remedy=f"{remedy}.")


def local_rank(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A script that waits for --local_rank, which only torch.distributed.launch passed."""
    source = _source(profile, facts, resolved)
    if source is None or not source.local_rank or source.reads_local_rank or not LAUNCHERS[resolved.launcher].SEVERAL:
        return
    message = f"line {source.local_rank} of the script takes --local_rank, which {resolved.launcher} does not pass"
    remedy = 'Write `default=int(os.environ.get("LOCAL_RANK", 0))` there, without required=True.'
    yield Finding(level="warning", key=_KEY, message=message, remedy=remedy)


def _source(profile: Profile, facts: Facts, resolved: Resolved) -> Source | None:
    """Return the facts on the source of the script that is started, None where there is none or it is not Python."""
    path = profile.trainer.script
    if not path or started(profile, resolved.preset) != path:
        return None
    source = facts.sources.get(path)
    return None if source is None or source.problem else source
