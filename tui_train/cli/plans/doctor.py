"""`tui-train doctor`: what a profile needs is tried, before a training of hours."""

import sys

import click
from msgspec.structs import asdict

from tui_train.actions.doctor.communication import communication_profile
from tui_train.actions.doctor.communication_fixes import examine_communication
from tui_train.actions.doctor.short_runs import ShortRunContext, ShortRunObserver
from tui_train.actions.machine_facts import place_for_profile
from tui_train.actions.training_hosts import probe_facts_for_start
from tui_train.base.app_paths import communication_tests_folder
from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.cli import answers
from tui_train.cli.plans.plans import apply_edits, load_profile, print_findings_and_require_plan
from tui_train.cli.printing import print_json, report_waiting
from tui_train.facts.machine.communication_tests import Examination, RankStage
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.plan.render.prepare import prepare_plan
from tui_train.profile.changes import Change
from tui_train.runs.interrupts import record_signals
from tui_train.views.communication_report import communication_test_title, examination_text, stage_text


class ExaminationAnswer(Examination, frozen=True, kw_only=True):
    """An examination, and the change that makes it work, null for none."""

    change: Change | None


def examine_profile(
    reference: str, *, edits: tuple[str, ...], named_place: Place, seconds: float, as_json: bool
) -> None:
    """Test how the processes of a profile communicate; exits with an error where they do not."""
    profile = apply_edits(load_profile(reference), edits)
    place = place_for_profile(profile, named_place)
    facts = probe_facts_for_start(profile, place, report_waiting)
    setup = make_setup(profile, facts)
    # What the training lacks besides, such as a model, does not matter here.
    print_findings_and_require_plan(prepare_plan(make_setup(communication_profile(setup), facts)), starts=True)
    answers.announce_changes(
        starts=(f"a test of its processes' communication{f' on {place.host}' if place.host else ''}",),
        writes=(str(communication_tests_folder()),),
    )
    observer = ShortRunObserver() if as_json else _StagePrinter(communication_test_title(setup))
    with record_signals(lambda text: click.echo(text, err=True)) as interrupts:
        run_context = ShortRunContext(place, facts, observer, interrupts)
        examination = examine_communication(profile, run_context, seconds)
    if interrupts.number:
        # What was begun is ended and removed.
        sys.exit(interrupts.exit_code)
    if as_json:
        print_json(ExaminationAnswer(**asdict(examination), change=examination.proven_fix))
    else:
        click.echo(f"\n{examination_text(setup, examination)}")
    if not examination.result.works:
        sys.exit(Unavailable.exit_code)


class _StagePrinter(ShortRunObserver):
    """Prints each stage of the first process, and every problem."""

    def __init__(self, title: str) -> None:
        self._title = title

    def begin_test(self, change: Change | None) -> None:
        """Print what is tested now."""
        click.echo(f"\nwith {visible(change.title)}:" if change else self._title)

    def note_stage(self, stage: RankStage) -> None:
        """Print what the first process has done, and every problem."""
        if stage.rank == 0 or stage.problem:
            click.echo(f"  {stage_text(stage)}")
