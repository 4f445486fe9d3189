"""The commands about machines, profiles, plans and data."""

from pathlib import Path
from typing import Any

import click

from tui_train.cli.group import (
    JSON_OPTION,
    PATH_PARAMETER_TYPE,
    PROFILE_ARGUMENT,
    SET_OPTION,
    YES_OPTION,
    cli,
    host_option,
    lazy_completer,
    machine_options,
)

_SAVED_PROFILE_ARGUMENT = click.argument("name", shell_complete=lazy_completer("profiles"))
_SAVED_HOST_ARGUMENT = click.argument("name", shell_complete=lazy_completer("hosts"))
_FETCH_OPTION = click.option(
    "--fetch-config",
    "fetch",
    is_flag=True,
    help="Fetch config.json, a few kB, of a model that is not here, for the memory estimate.",
)


@cli.command(
    reads="this machine or the named one",
    writes="FILE",
    only_with="--save",
    answer="tui_train.cli.plans.plans:facts_answer_type",
)
@JSON_OPTION
@click.option(
    "--save", metavar="FILE", type=PATH_PARAMETER_TYPE, help="Write them to FILE, for --machine or a bug report."
)
@machine_options(
    machine_help="Show the machine in that file, not this one.",
    host_help="Show another host, over ssh: one of `tui-train hosts`, or a name that ssh knows.",
    slurm_help="Show the partitions of the Slurm cluster, and a node of the default one.",
)
@click.option(
    "--toolchain",
    metavar="FILE",
    type=PATH_PARAMETER_TYPE,
    help="Judge the GPUs for the PyTorch in that file: JSON with torch, cuda and arch_list, as torch prints them.",
)
def facts(**options: Any) -> None:
    """Print what this machine has: GPUs and whether they can train, host, Pythons."""
    from tui_train.cli.plans import plans

    plans.print_facts(**options)


@cli.command(
    reads="the profile, this machine or the named one",
    writes="config.json of the model, in the Hub's cache",
    only_with="--fetch-config",
    answer="tui_train.cli.plans.plans:PlanAnswer",
)
@PROFILE_ARGUMENT
@click.option(
    "--diff",
    "against",
    metavar="[RUN]",
    is_flag=False,
    flag_value="previous",
    shell_complete=lazy_completer("runs"),
    help="Show what has changed since RUN; without RUN, since the newest run of this profile.",
)
@_FETCH_OPTION
@JSON_OPTION
@SET_OPTION
@machine_options()
def plan(profile: str, **options: Any) -> None:
    """Print what PROFILE would start, and what is wrong with it; nothing is started."""
    from tui_train.cli.plans import plans

    plans.print_plan(profile, **options)


@cli.command(
    reads="the profile, this machine or the named one",
    writes="config.json of the model, in the Hub's cache",
    only_with="--fetch-config",
    answer="tui_train.cli.plans.estimate:EstimateAnswer",
)
@PROFILE_ARGUMENT
@click.option("--trace", is_flag=True, help="Trace the model's own code with fake tensors: some seconds, no GPU.")
@click.option("--measure", is_flag=True, help="Take two real steps with random weights.")
@_FETCH_OPTION
@JSON_OPTION
@SET_OPTION
@machine_options()
def estimate(profile: str, *, trace: bool, measure: bool, **options: Any) -> None:
    """Estimate a training's memory by phase, and whether it fits."""
    from tui_train.cli.plans import estimate

    if trace and measure:
        raise click.UsageError("Give --trace or --measure, not both.")
    method = "trace" if trace else "measure" if measure else ""
    estimate.print_estimate(profile, method=method, **options)


@cli.command(
    reads="the profile, this machine or the named one",
    writes="the table and the logs of the trials, in a folder of ours",
    starts="trials, one after the other",
    answer="tui_train.cli.runs.tune:TuningAnswer",
    dry_run_answer="tui_train.cli.runs.tune:SettingsToTry",
    exit_codes={1: "no trial could be timed"},
)
@PROFILE_ARGUMENT
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(["fp32", "bf16", "fp16"]),
    help="Try this precision as well; it changes the result slightly.",
)
@click.option(
    "--seconds", type=click.IntRange(5, 3600), default=180, show_default=True, help="Time limit of each trial."
)
@click.option("--when-free", is_flag=True, help="Wait until its GPUs or CPU cores are free, and hold them to the end.")
@click.option("--dry-run", is_flag=True, help="Show what would be tried, and try nothing.")
@JSON_OPTION
@SET_OPTION
@machine_options()
def tune(profile: str, *, dry_run: bool, seconds: int, when_free: bool, **options: Any) -> None:
    """Find the fastest micro batch that fits, with or without activation checkpointing, by short real trainings."""
    from tui_train.cli.runs import tune

    if dry_run:
        tune.print_settings_to_try(profile, **options)
    else:
        tune.tune_profile(profile, seconds=seconds, when_free=when_free, **options)


@cli.command(
    reads="the profile, this machine or the named one",
    writes="what was found, for the checks; with --cards the report",
    starts="the test, with --cards the stages of the proof",
    answer="tui_train.cli.plans.doctor:ExaminationAnswer tui_train.actions.cards.proof:Proof",
)
@click.argument("profile", required=False, default="", shell_complete=lazy_completer("profiles"))
@click.option(
    "--seconds",
    type=click.IntRange(20, 3600),
    default=60,
    show_default=True,
    help="Time limit of the whole test, with all changes that it tries.",
)
@click.option("--cards", is_flag=True, help="Test by real trainings what this program says of these GPUs.")
@click.option("--stage", "stages", metavar="NAME", multiple=True, help="With --cards: only this stage.")
@click.option("--skip", "skipped", metavar="NAME", multiple=True, help="With --cards: all but this stage.")
@click.option("--output", metavar="FOLDER", type=PATH_PARAMETER_TYPE, help="With --cards: write the report to FOLDER.")
@click.option("--again", is_flag=True, help="With --cards: repeat also the stages that passed before.")
@JSON_OPTION
@SET_OPTION
@machine_options()
def doctor(  # noqa: PLR0913 - those of --cards
    profile: str,
    *,
    cards: bool,
    stages: tuple[str, ...],
    skipped: tuple[str, ...],
    output: Path | None,
    again: bool,
    seconds: int,
    **options: Any,
) -> None:
    """Test whether the processes of a profile reach each other, and what helps where they do not.

    With --cards: test by real trainings, in about ten minutes, what this program says of a machine's GPUs (which can
    train, what fits), with PROFILE's Python; the results are in a report.
    """
    from tui_train.cli.plans import doctor

    if cards:
        from tui_train.cli.plans.cards import prove_machine

        prove_machine(profile or "quickstart", stages=stages, skipped=skipped, output=output, again=again, **options)
        return
    if not profile:
        raise click.UsageError("Name a profile (tui-train doctor quickstart), or test the machine itself: --cards.")
    if stages or skipped or output or again:
        raise click.UsageError("--stage, --skip, --output and --again need --cards.")
    doctor.examine_profile(profile, seconds=seconds, **options)


@cli.command(
    reads="the profile, this machine or the named one",
    writes="launch.sh and its files in FOLDER",
    removes="with --force the files of these names",
)
@PROFILE_ARGUMENT
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--for",
    "kind",
    type=click.Choice(["jobset", "trainjob", "skypilot"]),
    help="Also write a manifest for Kubernetes, Kubeflow Trainer or SkyPilot; nothing is submitted.",
)
@click.option(
    "--claim",
    "claims",
    metavar="CLAIM:/FOLDER",
    multiple=True,
    help="With --for: mount this PersistentVolumeClaim there; the first one holds the run folder.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@SET_OPTION
@machine_options()
def export(profile: str, folder: Path, *, kind: str | None, claims: tuple[str, ...], **options: Any) -> None:
    """Write launch.sh and what it needs to FOLDER, with `--for` a manifest for Kubernetes or SkyPilot."""
    from tui_train.cli.plans import export as exports

    if kind:
        exports.export_manifest(kind, claims, profile, folder, **options)
    elif claims:
        raise click.UsageError("--claim needs --for jobset or --for trainjob.")
    else:
        exports.export_plan(profile, folder, **options)


@cli.command(
    reads="the image, and the GPUs of this machine or of --on",
    answer="tui_train.actions.image_check:ImageCheckResult",
)
@click.argument("image")
@click.option("--engine", type=click.Choice(["docker", "podman", "apptainer"]), help="Use this engine.")
@click.option("--recipe", metavar="NAME", default="", help="Check for this NeMo recipe, such as qwen25_500m.")
@host_option("Look at it on another host, over ssh: one of `tui-train hosts`, or a name for ssh.")
@JSON_OPTION
def image(image: str, **options: Any) -> None:
    """Print what the container image IMAGE has, and whether it sees the GPUs; it must be here: it is never pulled."""
    from tui_train.cli.plans import plans

    plans.print_image_check(image, **options)


@cli.group(invoke_without_command=True, reads="the saved profiles", answer="tui_train.cli.plans.plans:SavedProfiles")
@JSON_OPTION
@click.pass_context
def profiles(context: click.Context, *, as_json: bool) -> None:
    """List the saved profiles."""
    from tui_train.cli.plans import plans

    if context.invoked_subcommand is None:
        plans.print_profiles(as_json=as_json)


@profiles.command("rm", removes="the saved profiles")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=lazy_completer("profiles"))
@YES_OPTION
def profiles_rm(names: tuple[str, ...], **options: Any) -> None:
    """Remove saved profiles; their runs stay."""
    from tui_train.cli.runs import tidy

    tidy.remove_profiles(names, **options)


@profiles.command("change", reads="the profile", writes="the profile")
@_SAVED_PROFILE_ARGUMENT
@SET_OPTION
def profiles_change(name: str, **options: Any) -> None:
    """Change values of the saved profile NAME; the others stay."""
    from tui_train.cli.plans import plans

    plans.change_saved_profile(name, **options)


@profiles.command("mv", reads="the profile", writes="the profile NEW", removes="the profile NAME")
@_SAVED_PROFILE_ARGUMENT
@click.argument("new")
def profiles_mv(name: str, new: str) -> None:
    """Rename the saved profile NAME to NEW."""
    from tui_train.cli.runs import tidy

    tidy.rename_profile(name, new)


@profiles.command("cp", reads="the profile", writes="the profile NEW")
@_SAVED_PROFILE_ARGUMENT
@click.argument("new")
def profiles_cp(name: str, new: str) -> None:
    """Copy the saved profile NAME to NEW."""
    from tui_train.cli.runs import tidy

    tidy.duplicate_profile(name, new)


@cli.command(reads="the profile of --like", writes="the profile NAME", removes="with --force the one of that name")
@click.argument("name")
@click.option(
    "--like",
    metavar="PROFILE",
    default="quickstart",
    shell_complete=lazy_completer("profiles"),
    help="Start from the values of this profile.",
)
@click.option("--force", is_flag=True, help="Replace a saved profile of that name.")
@SET_OPTION
def new(name: str, **options: Any) -> None:
    """Save a profile, the settings of a training, under NAME."""
    from tui_train.cli.plans import plans

    plans.save_new_profile(name, **options)


@cli.command(
    "import",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    reads="the words, FILE, or with - standard input; the script that they start",
    writes="the profile",
    removes="with --force the one of that name",
    answer="tui_train.cli.plans.imports:ImportAnswer",
    dry_run_answer="tui_train.cli.plans.imports:ImportAnswer",
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="FILE|COMMAND...")
@click.option(
    "--name", default="", help="Name of the profile; without it, made of the names of the script and its folder."
)
@click.option("--force", is_flag=True, help="Replace a saved profile of that name.")
@JSON_OPTION
@SET_OPTION
def import_command(words: tuple[str, ...], **options: Any) -> None:
    """Make a profile of the command, shell script or YAML that you train with now; show what becomes of each word."""
    from tui_train.cli.plans import imports

    imports.import_training(words, **options)


@cli.command(answer="tui_train.cli.plans.keys:Keys")
@click.argument("word", required=False, default="")
@JSON_OPTION
def keys(word: str, **options: Any) -> None:
    """List the keys of a profile, or those with WORD in them: meaning, allowed values, default."""
    from tui_train.cli.plans import keys

    keys.print_keys(word, **options)


@cli.command(reads="the presets", answer="tui_train.cli.plans.presets:Presets")
@click.argument("name", required=False)
@JSON_OPTION
def presets(name: str, **options: Any) -> None:
    """List the presets: which values each passes to a script; with NAME, print that one, to make your own of it."""
    from tui_train.cli.plans import presets

    presets.print_presets(name, **options)


@cli.command(reads="the NeMo of a Python", answer="tui_train.cli.environments.environments:Recipes")
@click.option("--python", metavar="PATH", default="", help="Use this Python, not the first one with NeMo.")
@JSON_OPTION
def recipes(**options: Any) -> None:
    """List the NeMo recipes that a Python has."""
    from tui_train.cli.environments import environments

    environments.print_nemo_recipes(**options)


@cli.command(reads="FILES, here or on --on", answer="tui_train.cli.plans.data:DataAnswer")
@click.argument("files", nargs=-1, required=True, type=PATH_PARAMETER_TYPE)
@click.option(
    "--model", metavar="M", default="", help="Count tokens for this model: a folder, or an id in the Hub's cache."
)
@click.option("--revision", metavar="R", default="", help="Branch, tag or commit of that model in the cache.")
@click.option("--python", metavar="PATH", default="", help="Read with this Python, not the best one for fine-tuning.")
@click.option(
    "--method",
    type=click.Choice(["sft", "dpo", "kto", "reward", "grpo", "rloo"]),
    default="sft",
    show_default=True,
    help="Check the data for this method.",
)
@click.option("--length", type=click.IntRange(1), default=None, metavar="N", help="Cut samples at N tokens.")
@click.option(
    "--batch", type=click.IntRange(1), default=None, metavar="N", help="Count the steps of this global batch."
)
@click.option(
    "--weights",
    metavar="N,N",
    default="",
    help=("How much each file counts in an epoch: 3,1 takes three rows of the first for one of the second."),
)
@click.option("--answers-only", is_flag=True, help="Learn only what the assistant says.")
@host_option("Read it on this host: FILES, the model and the Python are those there.")
@JSON_OPTION
def data(files: tuple[Path, ...], **options: Any) -> None:
    """Print what training data holds, what is wrong with it, and what the model would learn."""
    from tui_train.cli.plans import data

    data.print_data_report(files, **options)


@cli.group(
    invoke_without_command=True,
    reads="the saved hosts, over ssh",
    answer="tui_train.cli.plans.hosts:HostsAnswer",
)
@JSON_OPTION
@click.pass_context
def hosts(context: click.Context, *, as_json: bool) -> None:
    """List the hosts saved by name (`--on NAME`), as they answer: their GPUs, and who uses them, since when."""
    from tui_train.cli.plans import hosts

    if context.invoked_subcommand is None:
        hosts.print_hosts(as_json=as_json)


@hosts.command("add", writes="the list of hosts")
@click.argument("name")
@click.argument("address", default="")
@click.option("--force", is_flag=True, help="Replace a host of that name.")
def hosts_add(name: str, address: str, **options: Any) -> None:
    """Save the host at ADDRESS, as ssh takes it, under NAME; without ADDRESS the name is the address."""
    from tui_train.cli.plans import hosts

    hosts.add_saved_host(name, address, **options)


@hosts.command(
    "login",
    reads="the list of hosts",
    starts="ssh on this terminal, whose connection stays for twelve hours",
)
@_SAVED_HOST_ARGUMENT
def hosts_login(name: str) -> None:
    """Log in to a host that asks for a password, a code or a key's touch; the connection stays for twelve hours."""
    from tui_train.cli.plans import hosts

    hosts.log_in_to_saved_host(name)


@hosts.command("rm", removes="the host from the list of hosts")
@_SAVED_HOST_ARGUMENT
def hosts_rm(name: str) -> None:
    """Forget a host; its runs stay, there and here."""
    from tui_train.cli.plans import hosts

    hosts.forget_saved_host(name)
