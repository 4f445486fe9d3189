"""What `tui-train export` does: a plan's files in a folder, for bash or for a cluster."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from tui_train.base.errors import BadInput
from tui_train.base.places import expanded
from tui_train.base.text import visible
from tui_train.cli import columns, plans
from tui_train.memory.length import set_up
from tui_train.profile import fields
from tui_train.render import SCRIPT, File, listed
from tui_train.render.manifests import MANIFESTS, Claim, for_cluster, placed
from tui_train.render.prepare import Prepared, prepare
from tui_train.render.slurm import NAME as SUBMITTED
from tui_train.runs import rundir
from tui_train.workflow import machines
from tui_train.workflow.machines import Source


def export(reference: str, folder: Path, edits: tuple[str, ...], source: Source, *, force: bool) -> None:
    """Write the files of a profile's plan to a folder."""
    profile = plans.edited(plans.load(reference), edits)
    source = machines.source_for(profile, source)
    prepared = prepare(set_up(profile, machines.facts_for(profile, source, columns.waiting)))
    made_plan = plans.require(prepared)
    target = _write(folder, prepared.files, force=force)
    script = visible(shlex.quote(str(target / SCRIPT)))
    if source.host or (source.machine and not source.slurm):
        click.echo(f"Copy {visible(str(target))} to {visible(source.host or 'that machine')}.")
        script = SCRIPT
    if made_plan.slurm and source.host:
        click.echo(f"Submit it there, from its folder: sbatch {SUBMITTED}")
        return
    if made_plan.slurm:
        click.echo(f"Submit it with: cd {visible(shlex.quote(str(target)))} && sbatch {SUBMITTED}")
        return
    click.echo(f"Run it with: bash {script}" + (" --node-rank=N" if made_plan.by_hand else ""))
    plans.show_machines(made_plan)


def export_for(  # noqa: PLR0913, PLR0917 - one for each option
    kind: str,
    reference: str,
    folder: Path,
    edits: tuple[str, ...],
    source: Source,
    claims: Sequence[str],
    *,
    force: bool,
) -> None:
    """Write the files of a profile's plan, and the manifest by which a cluster runs it, to a folder."""
    member = MANIFESTS[kind]
    if claims and not member.CLAIMS:
        raise BadInput(f"--claim: {member.LABEL} has no PersistentVolumeClaims", "Leave it out.")
    volumes = [_claim(text) for text in claims]
    profile = plans.edited(plans.load(reference), edits)
    # A manifest is for another scheduler.
    profile = placed(fields.put(profile, "hardware.scheduler", "none"), kind)
    setup = set_up(profile, machines.facts_for(profile, source, columns.waiting))
    made_plan = plans.require(_taken(prepare(setup)))
    cluster = for_cluster(made_plan, profile, claims=volumes, paths=setup.facts.paths, toolchain=setup.toolchain)
    made = member.manifest(cluster)
    _write(folder, (*cluster.files, File(member.FILE, made.text)), force=force)
    click.echo("\n".join(map(visible, made.said)))


def _taken(prepared: Prepared) -> Prepared:
    """Return it without the findings that the image is not used: a cluster takes it without an engine."""
    if prepared.profile.container.engine != "none":
        return prepared
    findings = tuple(
        finding for finding in prepared.findings if finding.level == "error" or not finding.key.startswith("container.")
    )
    return msgspec.structs.replace(prepared, findings=findings)


def _claim(text: str) -> Claim:
    name, colon, folder = text.partition(":")
    if not colon or not folder.startswith("/"):
        raise BadInput(f"--claim {visible(text)} is not CLAIM:/FOLDER", "Write it as --claim data:/data.")
    return Claim(name, folder)


def _write(folder: Path, files: Sequence[File], *, force: bool) -> Path:
    """Write files to a folder, print their paths and return the folder."""
    target = expanded(str(folder)).absolute()
    rundir.export(target, files, overwrite=force)
    for file in listed(files):
        click.echo(visible(f"{target}/{file.path}"))
    return target
