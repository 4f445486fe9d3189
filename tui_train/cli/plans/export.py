"""`tui-train export`: writes a plan's files into a folder, for bash or for a cluster."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from tui_train.actions import machine_facts
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.cli import answers, printing
from tui_train.cli.plans import plans
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.plan.outside_files import outside_files_text
from tui_train.plan.render import files_for_display
from tui_train.plan.render.manifests import MANIFESTS, with_cluster_address
from tui_train.plan.render.manifests.cluster import VolumeClaim, plan_for_cluster
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.plan.render.slurm import SLURM_SCRIPT_FILE_NAME
from tui_train.plan.run_files import LAUNCH_SCRIPT_FILE_NAME, RenderedFile
from tui_train.profile import fields
from tui_train.profile.cluster_defaults import with_cluster_defaults
from tui_train.runs import run_folders
from tui_train.setup.machine.container import ISOLATING_ENGINES


def export_plan(reference: str, folder: Path, *, edits: tuple[str, ...], named_place: Place, force: bool) -> None:
    """Write the files of a profile's plan to a folder."""
    profile = plans.apply_edits(plans.load_profile(reference), edits)
    place = machine_facts.place_for_profile(profile, named_place)
    prepared = prepare_plan(make_setup(profile, place.probe_facts_for(profile, printing.report_waiting)))
    made_plan = plans.print_findings_and_require_plan(prepared)
    target = _write_files_and_print_paths(folder, prepared.files, force=force)
    if outside := outside_files_text(prepared.profile):
        click.echo(f"Not in it, and needed at its own path: {visible(outside)}")
    script = visible(shlex.quote(str(target / LAUNCH_SCRIPT_FILE_NAME)))
    if place.host or (place.machine_file and not place.slurm):
        click.echo(f"Copy {visible(str(target))} to {visible(place.host or 'that machine')}.")
        script = LAUNCH_SCRIPT_FILE_NAME
    if made_plan.slurm and place.host:
        click.echo(f"Submit it there, from its folder: sbatch {SLURM_SCRIPT_FILE_NAME}")
        return
    if made_plan.slurm:
        click.echo(f"Submit it with: cd {visible(shlex.quote(str(target)))} && sbatch {SLURM_SCRIPT_FILE_NAME}")
        return
    click.echo(f"Run it with: bash {script}" + (" --node-rank=N" if made_plan.is_started_by_hand else ""))
    plans.print_notes_for_other_machines(made_plan)


def export_manifest(  # noqa: PLR0913 - one for each option
    manifest_name: str,
    claims: Sequence[str],
    reference: str,
    folder: Path,
    *,
    edits: tuple[str, ...],
    named_place: Place,
    force: bool,
) -> None:
    """Write the files of a profile's plan, and the manifest by which a cluster runs it, to a folder."""
    member = MANIFESTS[manifest_name]
    if claims and not member.ACCEPTS_CLAIMS:
        raise BadInput(f"--claim: {member.LABEL} has no PersistentVolumeClaims", "Leave it out.")
    volumes = [_parse_volume_claim(text) for text in claims]
    chosen = plans.load_profile(reference)
    with_defaults = with_cluster_defaults(chosen)
    if added := [key for key in fields.chosen_keys(with_defaults) if not fields.is_chosen(chosen, key)]:
        click.echo(f"Defaults of cluster.toml: {', '.join(added)}")
    profile = plans.apply_edits(with_defaults, edits)
    if named_place.machine_file and profile.container.engine in ISOLATING_ENGINES:
        # A file knows no images: the plan is for a Python of that machine, and the pod is the container all the same.
        profile = fields.profile_with_value(profile, "container.engine", "none")
    # A manifest is for another scheduler.
    profile = with_cluster_address(fields.profile_with_value(profile, "hardware.scheduler", "none"), manifest_name)
    place = machine_facts.place_for_profile(profile, named_place)
    setup = make_setup(profile, place.probe_facts_for(profile, printing.report_waiting))
    made_plan = plans.print_findings_and_require_plan(_without_unused_image_warnings(prepare_plan(setup)))
    cluster = plan_for_cluster(made_plan, profile, claims=volumes, paths=setup.facts.paths, toolchain=setup.toolchain)
    made = member.render_manifest(cluster)
    _write_files_and_print_paths(folder, (*cluster.files, RenderedFile(member.FILE_NAME, made.text)), force=force)
    click.echo("\n".join(map(visible, made.notes)))


def _without_unused_image_warnings(prepared: PreparedPlan) -> PreparedPlan:
    """Return it without the findings that the image is not used: a cluster takes it without an engine."""
    if prepared.profile.container.engine != "none":
        return prepared
    findings = tuple(
        finding for finding in prepared.findings if finding.level == "error" or not finding.key.startswith("container.")
    )
    return msgspec.structs.replace(prepared, findings=findings)


def _parse_volume_claim(text: str) -> VolumeClaim:
    name, colon, folder = text.partition(":")
    if not colon or not folder.startswith("/"):
        raise BadInput(f"--claim {visible(text)} is not CLAIM:/FOLDER", "Write it as --claim data:/data.")
    return VolumeClaim(name, folder)


def _write_files_and_print_paths(folder: Path, files: Sequence[RenderedFile], *, force: bool) -> Path:
    """Write files to a folder, print their paths and return the folder."""
    target = expand_home(str(folder)).absolute()
    if not force:
        run_folders.refuse_existing([target / file.path for file in files])
    answers.announce_changes(writes=tuple(f"{target}/{file.path}" for file in files))
    run_folders.export_plan_files(target, files, overwrite=force)
    for file in files_for_display(files):
        click.echo(visible(f"{target}/{file.path}"))
    return target
