"""prepare_plan(): the findings, plan and files of a profile."""

from msgspec import Struct

from tui_train.checks import Finding, find_problems
from tui_train.plan.plan import make_plan
from tui_train.plan.render import render_files
from tui_train.plan.run_files import RenderedFile
from tui_train.plan.types import Plan
from tui_train.profile.types import Profile
from tui_train.setup.setup import Setup


class PreparedPlan(Struct, frozen=True, kw_only=True):
    """A profile with its findings and, unless one is an error, its plan and files."""

    profile: Profile
    findings: tuple[Finding, ...]
    plan: Plan | None
    files: tuple[RenderedFile, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that forbid a start: a plan may be exported with errors that would stop it here."""
        return tuple(finding for finding in self.findings if finding.level == "error")


def prepare_plan(setup: Setup) -> PreparedPlan:
    """Return the profile's findings, plan and files; pure."""
    findings = find_problems(setup)
    if any(finding.forbids_plan for finding in findings):
        return PreparedPlan(profile=setup.profile, findings=findings, plan=None, files=())
    planned = make_plan(setup, findings)
    return PreparedPlan(
        profile=setup.profile, findings=findings, plan=planned, files=render_files(planned, setup.profile)
    )
