"""`tui-train doctor --cards`: what this program claims of a machine is proved on it, stage by stage."""

import fcntl
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from tui_train.actions.cards.proof import (
    STAGE_BY_NAME,
    Proof,
    ProofStage,
    ProvedMachine,
    StageResult,
    load_proof,
    prove_stages,
    proved_machine,
)
from tui_train.actions.cards.trainings import machine_part_of_profile
from tui_train.actions.doctor.short_runs import ShortRunContext, ShortRunObserver
from tui_train.actions.machine_facts import place_for_profile
from tui_train.base.app_paths import card_proof_folder
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import create_own_folder, raising_cannot_write, write_atomically
from tui_train.base.text import duration_text, visible
from tui_train.cli import answers
from tui_train.cli.plans.plans import apply_edits, load_profile
from tui_train.cli.printing import print_json, report_waiting
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.profile.types import Profile
from tui_train.runner.system.safe_open import open_folder
from tui_train.runs.interrupts import record_signals
from tui_train.views.proof_report import claim_text, proof_markdown, verdict_counts_text

_JSON_FILE, _MARKDOWN_FILE = "report.json", "REPORT.md"


def prove_machine(  # noqa: PLR0913 - one for each option
    reference: str,
    *,
    edits: tuple[str, ...],
    named_place: Place,
    stages: tuple[str, ...],
    skipped: tuple[str, ...],
    output: Path | None,
    again: bool,
    as_json: bool,
) -> None:
    """Prove the stages that were not proved yet; exits with an error where a claim differs."""
    chosen = _chosen_stages(stages, skipped)
    profile = apply_edits(load_profile(reference), edits)
    place = _place_to_prove(profile, named_place)
    profile = machine_part_of_profile(profile)
    facts = place.probe_facts_for(profile, report_waiting)
    folder = output or card_proof_folder(place.address)
    machine = proved_machine(make_setup(profile, facts))
    known = load_proof(folder / _JSON_FILE, machine)
    answers.announce_changes(
        starts=tuple(stage.name for stage in chosen if again or not known.has_completed(stage)),
        writes=(str(folder / _JSON_FILE), str(folder / _MARKDOWN_FILE)),
    )
    create_own_folder(folder)
    proof, made = update_report(folder, machine, ()), dict[str, StageResult]()
    due = [stage for stage in chosen if again or not proof.has_completed(stage)]
    printer = _ClaimPrinter(quiet=as_json)
    printer.print_names_of_proved_stages([stage for stage in chosen if stage not in due])
    with record_signals(lambda text: click.echo(text, err=True)) as interrupts:
        for result in prove_stages(due, profile, ShortRunContext(place, facts, ShortRunObserver(), interrupts)):
            made[result.name] = result
            proof = update_report(folder, machine, made.values())
            printer.print_result(result)
    if as_json:
        print_json(proof)
    else:
        click.echo(f"\n{verdict_counts_text(proof)}. Report: {visible(str(folder / _MARKDOWN_FILE))}")
    if interrupts.number:
        # What was begun is ended and removed; the next call goes on with it.
        sys.exit(interrupts.exit_code)
    if not proof.holds:
        sys.exit(Unavailable.exit_code)


def _chosen_stages(names: tuple[str, ...], skipped: tuple[str, ...]) -> list[ProofStage]:
    if unknown := [name for name in (*names, *skipped) if name not in STAGE_BY_NAME]:
        raise click.UsageError(f"no stage {visible(unknown[0])}: there are {', '.join(STAGE_BY_NAME)}")
    return [stage for name, stage in STAGE_BY_NAME.items() if name in (names or STAGE_BY_NAME) and name not in skipped]


def _place_to_prove(profile: Profile, named_place: Place) -> Place:
    """Return the machine on which a profile trains; BadInput where it is not one that can be asked now."""
    place = place_for_profile(profile, named_place)
    if place.slurm:
        node = "srun --pty tui-train doctor --cards --set hardware.scheduler=none, with the options that request GPUs"
        raise BadInput("--cards proves one machine, and Slurm gives each job others", f"Prove it on a node: {node}.")
    if place.machine_file:
        raise BadInput("--cards needs the machine itself, not a file of it", "Name it with --on HOST.")
    if profile.container.engine != "none":
        raise BadInput("--cards proves a Python of the machine, not an image", "Add --set container.engine=none.")
    return place


class _ClaimPrinter:
    """Prints each claim below the name of its stage."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._stage = quiet, ""

    def print_names_of_proved_stages(self, stages: Sequence[ProofStage]) -> None:
        """Print which stages have their results already."""
        if stages and not self._quiet:
            click.echo(f"proved before: {', '.join(stage.name for stage in stages)} (--again proves them again)")

    def print_result(self, result: StageResult) -> None:
        """Print the newest claim of a stage, or how long all took."""
        if self._quiet:
            return
        if result.name != self._stage:
            self._stage = result.name
            click.echo(f"{result.name}: {STAGE_BY_NAME[result.name].about}")
        click.echo(f"  {duration_text(result.seconds) if result.complete else claim_text(result.claims[-1])}")


def update_report(folder: Path, machine: ProvedMachine, results: Iterable[StageResult]) -> Proof:
    """Add results to the report of a machine, to which another call may add others, and return all of them."""
    with raising_cannot_write(folder), open_folder(folder, readable=True) as lock:
        # Some network file systems have no locks.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        proof = load_proof(folder / _JSON_FILE, machine)
        for result in results:
            proof = proof.with_result(result)
        write_atomically(folder / _JSON_FILE, msgspec.json.format(msgspec.json.encode(proof)))
        write_atomically(folder / _MARKDOWN_FILE, proof_markdown(proof))
    return proof
