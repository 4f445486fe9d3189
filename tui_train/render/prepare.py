"""A profile made ready to start."""

from msgspec import Struct

from tui_train.checks import Finding, check
from tui_train.facts.types import Facts
from tui_train.plan.plan import plan
from tui_train.plan.types import Plan
from tui_train.profile.types import Profile
from tui_train.render import File, render


class Prepared(Struct, frozen=True, kw_only=True):
    """A profile made ready: its findings, and, where none is an error, the plan and the files that it becomes."""

    profile: Profile
    findings: tuple[Finding, ...]
    plan: Plan | None
    files: tuple[File, ...]


def prepare(profile: Profile, facts: Facts) -> Prepared:
    """Return the profile's findings, plan and files; pure."""
    findings = check(profile, facts)
    if any(finding.forbids for finding in findings):
        return Prepared(profile=profile, findings=findings, plan=None, files=())
    made = plan(profile, facts, findings)
    return Prepared(profile=profile, findings=findings, plan=made, files=render(made, profile))
