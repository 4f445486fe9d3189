"""Checks of what a script's own text says: whether it loads a checkpoint, and how it reads its rank."""

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
    found, rule = _source(profile, facts, resolved), resolved.preset.checkpoints
    if found is None or rule is None or not any(word.startswith(_RESUME) for word in rule.resume):
        return
    effect = "a second start, and each fallback, trains from step 0 again"
    if found.bare_train:
        message = f"line {found.bare_train} of the script passes no checkpoint on to train(): {effect}"
        yield Finding(level="warning", key=_KEY, message=message, remedy=f"Write `{found.train_words}` there.")
    elif found.accelerates and not found.names_checkpoint:
        message = f"the script does not read {_RESUME}: {effect}"
        remedy = "Take that argument, and before the first step: accelerator.load_state(args.resume_from_checkpoint)"
        yield Finding(level="warning", key=_KEY, message=message, remedy=f"{remedy}.")


def local_rank(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A script that waits for --local_rank, which only torch.distributed.launch passed."""
    found = _source(profile, facts, resolved)
    if found is None or not found.local_rank or found.reads_local_rank or not LAUNCHERS[resolved.launcher].SEVERAL:
        return
    message = f"line {found.local_rank} of the script takes --local_rank, which {resolved.launcher} does not pass"
    remedy = 'Write `default=int(os.environ.get("LOCAL_RANK", 0))` there, without required=True.'
    yield Finding(level="warning", key=_KEY, message=message, remedy=remedy)


def _source(profile: Profile, facts: Facts, resolved: Resolved) -> Source | None:
    """Return what is known of the text of the script that is started, None where no script is, or it is no Python."""
    path = profile.trainer.script
    if not path or started(profile, resolved.preset) != path:
        return None
    found = facts.sources.get(path)
    return None if found is None or found.problem else found
