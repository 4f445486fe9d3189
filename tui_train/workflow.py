"""The steps that both front ends take: look, prepare, begin."""

import shutil

import msgspec
from msgspec import Struct

from tui_train.checks import Finding, check
from tui_train.errors import TuiTrainError
from tui_train.facts import images, probe
from tui_train.facts.types import ContainerImage, Facts
from tui_train.files import PRIVATE, write_beside
from tui_train.places import last_profile
from tui_train.plan.plan import plan
from tui_train.plan.types import Plan
from tui_train.profile import fields, store
from tui_train.profile.types import Profile
from tui_train.render import File, render
from tui_train.runs import rundir
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import start


class Prepared(Struct, frozen=True, kw_only=True):
    """A profile made ready: its findings, and, where none is an error, the plan and the files that it becomes."""

    profile: Profile
    findings: tuple[Finding, ...]
    plan: Plan | None
    files: tuple[File, ...]


def look(profile: Profile) -> Facts:
    """Return the facts that a profile needs; takes up to some seconds, so never on a screen's thread."""
    inside = profile.container.engine != "none"
    return Facts(
        machine=probe.machine(),
        toolchains=() if inside else probe.toolchains(named_python(profile)),
        paths=probe.paths(fields.paths_of(profile)),
        engines=images.engines() if inside else (),
        images=chosen_image(profile),
    )


def chosen_image(profile: Profile) -> tuple[ContainerImage, ...]:
    """Return what the image that the profile names holds, nothing where it names none; takes up to a minute."""
    chosen = profile.container
    return (images.image(chosen.engine, chosen.image),) if chosen.engine != "none" and chosen.image else ()


def named_python(profile: Profile) -> tuple[str, ...]:
    """Return the Python that the profile names, for the probe to ask besides those that it finds."""
    return (profile.trainer.python,) if profile.trainer.python else ()


def prepare(profile: Profile, facts: Facts) -> Prepared:
    """Return the profile's findings, plan and files; pure."""
    findings = check(profile, facts)
    if any(finding.level == "error" for finding in findings):
        return Prepared(profile=profile, findings=findings, plan=None, files=())
    made = plan(profile, facts)
    return Prepared(profile=profile, findings=findings, plan=made, files=render(made, profile))


def begin(prepared: Prepared, made: Plan) -> RunDir:
    """Write the run folder of these very files and start it."""
    run = rundir.create(made.name, prepared.files, msgspec.json.encode(made))
    try:
        start(run)
    except TuiTrainError:
        # It never ran: nothing is lost with it, and it would stand in every list.
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    remember(prepared.profile)
    return run


def remember(profile: Profile) -> None:
    """Keep the profile without secrets for the next session, if it can be written; nothing else depends on it."""
    values = {name: value for name, value in profile.trainer.environment.items() if not fields.looks_secret(name)}
    try:
        write_beside(last_profile(), store.dumps(fields.put(profile, "trainer.environment", values)), PRIVATE)
    except TuiTrainError:
        return


def last() -> Profile:
    """Return the profile of the last session, the default where there is none that can be read."""
    try:
        return store.load(str(last_profile()))
    except TuiTrainError:
        return Profile()
