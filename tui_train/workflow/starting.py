"""A profile that is to start at once: the look at this machine, and what forbids the start."""

from tui_train.checks import Finding
from tui_train.profile.types import Profile
from tui_train.render.prepare import Prepared, prepare
from tui_train.targets.here import look


def ready(profile: Profile) -> Prepared:
    """Return what starting a profile here takes, and what was found; takes up to some seconds."""
    return prepare(profile, look(profile))


def refusals(prepared: Prepared) -> tuple[Finding, ...]:
    """Return the findings that forbid a start: a plan may be exported with errors that would stop it here."""
    return tuple(finding for finding in prepared.findings if finding.level == "error")
