"""`tui-train doctor --cards`: what this program claims of a machine is proved on it, stage by stage."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from tui_train.actions.cards.proof import STAGES, Proof, Stage, load_proof, prove, proved_machine
from tui_train.actions.doctor.short_runs import Observer, Workbench
from tui_train.actions.machine_facts import FactsSource, probe_facts_for_profile, require_training_on_this_machine
from tui_train.base.app_paths import card_proof_folder
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import create_own_folder, write_atomically
from tui_train.base.text import duration_text, visible
from tui_train.cli.plans.plans import apply_edits, load_profile
from tui_train.cli.printing import print_json, report_waiting
from tui_train.memory.data_defaults import set_up
from tui_train.places.place import Place
from tui_train.profile.types import Profile
from tui_train.runs.interrupts import defer_signals
from tui_train.views.cards_report import claim_text, counts_text, report_markdown

_JSON_FILE, _MARKDOWN_FILE = "report.json", "REPORT.md"


def prove_machine(  # noqa: PLR0913 - one for each option
    reference: str,
    edits: tuple[str, ...],
    names: tuple[str, ...],
    skipped: tuple[str, ...],
    output: Path | None,
    *,
    again: bool,
    as_json: bool,
) -> None:
    """Prove the stages that were not proved yet; exits with an error where a claim differs."""
    stages = _chosen_stages(names, skipped)
    profile = _profile_of_this_machine(reference, edits)
    facts = probe_facts_for_profile(profile, FactsSource(), report_waiting)
    folder = output or card_proof_folder()
    create_own_folder(folder)
    proof = load_proof(folder / _JSON_FILE, proved_machine(set_up(profile, facts)))
    due = [stage for stage in stages if again or not proof.has_completed(stage)]
    with defer_signals(lambda text: click.echo(text, err=True)) as interrupts:
        bench = Workbench(Place(), facts, Observer(), interrupts)
        proof = _prove_and_write(due, proof, profile, bench, folder, as_json=as_json)
    if as_json:
        print_json(proof)
    else:
        click.echo(f"\n{counts_text(proof)}. Report: {visible(str(folder / _MARKDOWN_FILE))}")
    if interrupts.number:
        # What was begun is ended and removed; the next call goes on with it.
        sys.exit(interrupts.exit_code)
    if not proof.holds:
        sys.exit(Unavailable.exit_code)


def _chosen_stages(names: tuple[str, ...], skipped: tuple[str, ...]) -> list[Stage]:
    known = [stage.name for stage in STAGES]
    if unknown := [name for name in (*names, *skipped) if name not in known]:
        raise click.UsageError(f"no stage {visible(unknown[0])}: there are {', '.join(known)}")
    return [stage for stage in STAGES if stage.name in (names or known) and stage.name not in skipped]


def _profile_of_this_machine(reference: str, edits: tuple[str, ...]) -> Profile:
    profile = require_training_on_this_machine(apply_edits(load_profile(reference), edits), "--cards")
    if profile.container.engine != "none":
        raise BadInput("--cards proves a Python of this machine, not an image", "Add --set container.engine=none.")
    return profile


def _prove_and_write(  # noqa: PLR0913 - what a proof is made of
    due: Sequence[Stage], proof: Proof, profile: Profile, bench: Workbench, folder: Path, *, as_json: bool
) -> Proof:
    """Prove stages, and write the report after each claim."""
    about = {stage.name: stage.about for stage in STAGES}
    for stage in STAGES if not as_json else ():
        if stage not in due and proof.has_completed(stage):
            click.echo(f"{stage.name}: {stage.about}: proved before (--again)")
    _write_report(folder, proof)
    shown = ""
    for result in prove(due, profile, bench):
        proof = proof.with_result(result)
        _write_report(folder, proof)
        if as_json:
            continue
        if result.name != shown:
            shown = result.name
            click.echo(f"{result.name}: {about[result.name]}")
        if result.complete:
            click.echo(f"  {duration_text(result.seconds)}")
        else:
            click.echo(f"  {claim_text(result.claims[-1])}")
    return proof


def _write_report(folder: Path, proof: Proof) -> None:
    write_atomically(folder / _JSON_FILE, msgspec.json.format(msgspec.json.encode(proof)))
    write_atomically(folder / _MARKDOWN_FILE, report_markdown(proof))
