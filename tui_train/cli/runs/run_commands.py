"""The commands about runs and what they made."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from tui_train.cli.group import (
    JSON_OPTION,
    PATH_PARAMETER_TYPE,
    PROFILE_ARGUMENT,
    RUN_ARGUMENT,
    RUNS_ARGUMENT,
    SET_OPTION,
    YES_OPTION,
    cli,
    host_option,
    lazy_completer,
    machine_options,
)


def when_free_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options to wait, as `when_free`."""

    @click.option("--when-free", "waits", is_flag=True, help="Wait until its GPUs or CPU cores are free.")
    @click.option(
        "--any-gpus",
        is_flag=True,
        help=("With --when-free: wait for any GPUs of the chosen kind, as many as are chosen."),
    )
    @wraps(command)
    def with_when_free(*arguments: Any, waits: bool, any_gpus: bool, **options: Any) -> None:
        if any_gpus and not waits:
            raise click.UsageError("--any-gpus needs --when-free.")
        command(*arguments, when_free="any" if any_gpus else "chosen" if waits else "", **options)

    return with_when_free


@cli.command(
    reads="the profile, this machine or the named one",
    writes="a run folder, here and on the host",
    starts="the training; --detach leaves it",
    trained="always",
)
@PROFILE_ARGUMENT
@click.option("--detach", is_flag=True, help="Start it and return at once.")
@machine_options(
    machine_help="With --slurm: facts of a node (`facts --save` there).",
    host_help="On that host, over ssh: one of `tui-train hosts`, or a name for ssh; nothing is installed there.",
    slurm_help="As a job of Slurm, submitted from here, or from the host of --on.",
)
@when_free_options
@click.option(
    "--array",
    metavar="KEY=V1,V2",
    help="Start a run for each value of a key, or of your script's --ARGUMENT, and return.",
)
@SET_OPTION
def run(profile: str, **options: Any) -> None:
    """Run a profile and show its log; the run continues when the connection is lost."""
    from tui_train.cli.runs import run_and_resume

    run_and_resume.run_profile(profile, **options)


@cli.command(reads="this machine", writes="a run folder", starts="the training, to its end", trained="always")
@SET_OPTION
def quickstart(**options: Any) -> None:
    """See it work: train a small model on sample text from start to end, with defaults."""
    from tui_train.cli.runs import run_and_resume

    run_and_resume.run_quickstart(**options)


@cli.group(
    invoke_without_command=True,
    reads="the run folders, here or on --on",
    answer="tui_train.cli.runs.runs:runs_answer_type",
)
@JSON_OPTION
@host_option("List the runs on that host, whoever started them.")
@click.pass_context
def runs(context: click.Context, host: str, *, as_json: bool) -> None:
    """List the runs, newest first, with their state."""
    from tui_train.cli.runs import runs

    if context.invoked_subcommand is None:
        runs.print_runs(host, as_json=as_json)
    elif host:
        raise click.UsageError(f"--on only lists: write it after {context.invoked_subcommand}, if that takes it.")


@runs.command("rm", reads="the run folders", removes="the run folders with logs and checkpoints, also on their host")
@RUNS_ARGUMENT
@host_option("Remove RUNs of `runs --on NAME` from that host; copies of them here stay.")
@click.option("--here", is_flag=True, help="Of a run on a host, remove only its folder here.")
@YES_OPTION
def runs_rm(runs: tuple[str, ...], host: str, *, here: bool, yes: bool) -> None:
    """Remove run folders with their logs and checkpoints, also on their host; a live run has to be stopped first."""
    from tui_train.cli.runs import tidy

    if host and here:
        raise click.UsageError("Give --on or --here, not both.")
    if host:
        tidy.remove_runs_on_host(runs, host, yes=yes)
    else:
        tidy.remove_runs(runs, yes=yes, only_here=here)


@runs.command("mv", reads="the run folder", writes="the run folder by its new name", removes="the one by its old name")
@RUN_ARGUMENT
@click.argument("name")
def runs_mv(run: str, name: str) -> None:
    """Rename RUN to NAME; the time at the beginning of its id stays."""
    from tui_train.cli.runs import tidy

    tidy.rename_run(run, name)


@runs.command("note", reads="the run folder", writes="its note", removes="the note, where TEXT is empty")
@RUN_ARGUMENT
@click.argument("text", required=False)
def runs_note(run: str, text: str | None) -> None:
    """Keep a line about RUN, which lists show; without TEXT print it, an empty TEXT removes it."""
    from tui_train.cli.runs import tidy

    tidy.print_or_write_note(run, text)


@cli.group(
    invoke_without_command=True,
    reads="the queue of this machine or of --on",
    answer="tui_train.cli.runs.queue:queue_answer_type",
)
@JSON_OPTION
@host_option("List what waits on that host.")
@click.pass_context
def queue(context: click.Context, host: str, *, as_json: bool) -> None:
    """List the runs of all users that wait for GPUs or CPU cores of this machine, in order, and why."""
    from tui_train.cli.runs import queue

    if context.invoked_subcommand is None:
        queue.print_queue(host, as_json=as_json)
    elif host:
        raise click.UsageError(f"--on only lists: {context.invoked_subcommand} knows itself where RUN is.")


@queue.command("first", reads="the queue", writes="the order of your own runs in it")
@RUN_ARGUMENT
def queue_first(run: str) -> None:
    """Let RUN go before all other runs of yours that wait; other users keep their places."""
    from tui_train.cli.runs import queue

    queue.move_run(run, to_front=True)


@queue.command("last", reads="the queue", writes="the order of your own runs in it")
@RUN_ARGUMENT
def queue_last(run: str) -> None:
    """Let RUN go after all other runs of yours that wait."""
    from tui_train.cli.runs import queue

    queue.move_run(run, to_front=False)


@cli.command(reads="the run folder", trained="with --follow")
@RUN_ARGUMENT
@click.option("--follow", "-f", is_flag=True, help="Follow until the run ends.")
@click.option("--attempt", type=click.IntRange(min=1), help="Show only this attempt.")
def logs(run: str, *, attempt: int | None, follow: bool) -> None:
    """Print the log of RUN (an id, its beginning, `last`, a folder, or a profile: its newest run)."""
    from tui_train.cli.runs import watch

    if follow and attempt is not None:
        raise click.UsageError("Give --follow or --attempt, not both.")
    watch.print_logs(run, attempt, follow=follow)


@cli.command(reads="the log, or the run folder", answer="tui_train.cli.results.diagnose:DiagnosisAnswer")
@click.argument("log", shell_complete=lazy_completer("logs"))
@click.option("--exit-code", type=int, metavar="N", help="Exit code of the training, if known.")
@JSON_OPTION
def diagnose(log: str, **options: Any) -> None:
    """Print why LOG's training failed and what to do: any log, `-`, or a run (an id, `last`, a folder, a profile)."""
    from tui_train.cli.results import diagnose

    diagnose.print_diagnosis(log, **options)


@cli.command(reads="the run folder", trained="without a terminal")
@RUN_ARGUMENT
def attach(run: str) -> None:
    """Open RUN in the wizard; without a terminal, follow its log."""
    from tui_train.cli.runs import watch

    watch.attach_run(run)


@cli.command(reads="the run folders", stops="the runs, with every process of them")
@RUNS_ARGUMENT
@click.option("--now", is_flag=True, help="Stop at once, without time to save.")
def stop(runs: tuple[str, ...], **options: Any) -> None:
    """End RUNS and every process of them; `last` is the newest run that is live."""
    from tui_train.cli.runs.runs import stop_runs_and_report

    stop_runs_and_report(runs, **options)


@cli.command(
    reads="the run folder",
    writes="the same run folder",
    starts="its training; --detach leaves it",
    trained="always",
)
@RUN_ARGUMENT
@click.option("--detach", is_flag=True, help="Start it and return at once.")
@click.option("--force", is_flag=True, help="Also start a run that would fail again or start over, or has finished.")
@when_free_options
def resume(run: str, **options: Any) -> None:
    """Continue RUN from its newest complete checkpoint, in the same run folder."""
    from tui_train.cli.runs import run_and_resume

    run_and_resume.resume_run(run, **options)


@cli.command(
    reads="the profile, and the files that it names",
    sends="what its hosts lack, replacing other versions there",
)
@PROFILE_ARGUMENT
@host_option("Send to that host (one of `tui-train hosts`, or a name for ssh), not to that of the profile.")
@SET_OPTION
@click.option("--yes", "-y", is_flag=True, help="Send without asking.")
def send(profile: str, **options: Any) -> None:
    """Copy the project, data and model of PROFILE from here to its hosts, to the same paths."""
    from tui_train.cli.runs import send

    send.send_profile_files(profile, **options)


@cli.command(reads="the run folder on its host", writes="the results, in the run folder here")
@RUN_ARGUMENT
@click.option("--checkpoints", is_flag=True, help="Fetch its checkpoints too.")
def fetch(run: str, **options: Any) -> None:
    """Copy what RUN made from the host on which it ran into its folder here."""
    from tui_train.cli.runs import runs

    runs.fetch_results_and_report(run, **options)


@cli.command(
    reads="the run folder, its machine",
    writes="FILE, else RUN.tar.gz",
    removes="with --force the file of that name",
)
@RUN_ARGUMENT
@click.argument("file", required=False, type=PATH_PARAMETER_TYPE)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def report(run: str, file: Path | None, **options: Any) -> None:
    """Write RUN to one archive for a colleague or a bug report, without secrets."""
    from tui_train.cli.runs import runs

    runs.write_run_archive(run, file, **options)


@cli.command(reads="the run folders", answer="tui_train.cli.results.compare:ComparisonAnswer")
@RUNS_ARGUMENT
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help=("Compare also this metric (`tui-train metrics RUN` lists them)."),
)
@JSON_OPTION
def compare(runs: tuple[str, ...], *, metrics: tuple[str, ...], **options: Any) -> None:
    """Print RUNS side by side: losses, speed, memory, and the settings in which they differ.

    Each is an id, its beginning, `last`, a folder, or the name of a profile: its newest run.
    """
    from tui_train.cli.results import compare

    compare.print_comparison(runs, metrics, **options)


_PYTHON_OPTION = click.option("--python", metavar="PATH", default="", help="Use this Python, not the one that trained.")

_TRUST_OPTION = click.option(
    "--trust-remote-code",
    "trusted",
    is_flag=True,
    help=("Run Python code that came with the model, this time."),
)


_RESULT_HOST_OPTION = host_option("On the run's host, even if its result was fetched.")
_MAX_TOKENS_OPTION = click.option(
    "--max-tokens",
    type=click.IntRange(1),
    metavar="N",
    default=256,
    show_default=True,
    help="End an answer after so many tokens.",
)


@cli.command(reads="the run folder", answer="tui_train.cli.results.result:ResultAnswer")
@RUN_ARGUMENT
@JSON_OPTION
def result(run: str, **options: Any) -> None:
    """Print what RUN made: adapter or model, its path and size, losses, time, and the commands that serve it."""
    from tui_train.cli.results import result

    result.print_result(run, **options)


@cli.command(reads="the logs of the run", answer="tui_train.cli.results.metrics:MetricsAnswer")
@RUN_ARGUMENT
@JSON_OPTION
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: a row for each step (of very many steps, their means).")
@click.option("--only", multiple=True, metavar="NAME", help="Show only this metric, or a pattern such as 'rewards/*'.")
def metrics(run: str, *, as_json: bool, as_csv: bool, **options: Any) -> None:
    """Print all metrics of RUN's log: loss, reward, accuracy, gradient norm, speed and others."""
    from tui_train.cli.results import metrics

    if as_json and as_csv:
        raise click.UsageError("Give --json or --csv, not both.")
    metrics.print_metrics(run, as_json=as_json, as_csv=as_csv, **options)


@cli.command(reads="the result of the run, its base model", writes="FOLDER, which has to be new")
@RUN_ARGUMENT
@click.argument("folder")
@click.option(
    "--base", metavar="MODEL", default="", help=("Merge into this base model, not the one that was trained on.")
)
@_PYTHON_OPTION
@_TRUST_OPTION
@_RESULT_HOST_OPTION
def merge(  # noqa: PLR0913 - one for each option
    run: str, folder: str, *, base: str, python: str, trusted: bool, host: str
) -> None:
    """Merge RUN's adapter into its base model, as the new model folder FOLDER, and check that it answers the same.

    Of a run on a host it is merged there, and FOLDER is an absolute path on that host, unless its result was fetched
    and the Python that trained is on this machine.
    """
    from tui_train.actions.merge import MergeOptions
    from tui_train.cli.results import result

    result.merge_adapter_and_report(run, folder, MergeOptions(base, python, trusted, host))


@cli.command("try", reads="the result of the run, loaded by the Python that trained")
@RUN_ARGUMENT
@click.option("--prompt", metavar="TEXT", default=None, help="Answer this and end; without it, piped text or a chat.")
@click.option(
    "--image",
    "images",
    type=PATH_PARAMETER_TYPE,
    metavar="FILE",
    multiple=True,
    help="Show this picture with the (first) prompt; in a chat: /image FILE.",
)
@_MAX_TOKENS_OPTION
@click.option("--base", is_flag=True, help="Let the base model answer as well.")
@_PYTHON_OPTION
@_TRUST_OPTION
@_RESULT_HOST_OPTION
def try_(run: str, **options: Any) -> None:
    """Chat with what RUN made, in the terminal; the model is loaded where the result lies."""
    from tui_train.cli.results import result

    result.chat_with_result(run, **options)


@cli.command(
    reads="the result of the run, its base model",
    writes="the scores, in the run folder",
    starts="the Python that trained, until it is done",
    answer="tui_train.cli.results.evaluate:EvaluationAnswer tui_train.cli.results.evaluate:CheckpointsAnswer",
    exit_codes={1: "no difference", 2: "worse"},
)
@RUN_ARGUMENT
@click.option(
    "--by", metavar="HOW", default="", help="loss, exact, regex:PATTERN, or function:FILE.py:NAME (a reward, too)."
)
@click.option("--data", multiple=True, metavar="FILE", help="Rows to score, in place of those that the run held out.")
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="Score a task of lm-eval, or of FILE.yaml.")
@click.option("--chat-template", is_flag=True, help="Format the prompts of tasks with the chat template.")
@click.option(
    "--rows", type=click.IntRange(0), metavar="N", default=200, show_default=True, help="Score so many rows; 0: all."
)
@_MAX_TOKENS_OPTION
@click.option("--against", metavar="RUN", default="", help="Compare with this run's result, not with the base model.")
@click.option(
    "--checkpoints", is_flag=True, help="Find the best of RUN's checkpoints, in place of comparing its result."
)
@_PYTHON_OPTION
@_TRUST_OPTION
@_RESULT_HOST_OPTION
@JSON_OPTION
def evaluate(  # noqa: PLR0913 - those that EvaluationOptions does not have by these names
    run: str,
    *,
    rows: int,
    max_tokens: int,
    trusted: bool,
    against: str,
    checkpoints: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Tell whether RUN made its model better, on rows that it did not learn: exit code 0 if so, 2 if worse, else 1.

    An evaluation that was interrupted continues when the same command is given again.
    """
    from tui_train.actions.evaluate import EvaluationOptions
    from tui_train.cli.results import evaluate

    chosen = EvaluationOptions(row_count=rows, max_answer_tokens=max_tokens, trusts_model_code=trusted, **options)
    evaluate_chosen = evaluate.choose_checkpoint_and_print if checkpoints else evaluate.evaluate_and_print
    evaluate_chosen(run, chosen, against, as_json=as_json)


@cli.command("export-model", reads="the result of the run", writes="FOLDER, which has to be new")
@RUN_ARGUMENT
@click.argument("folder")
@click.option(
    "--for",
    "server",
    type=click.Choice(["gguf", "ollama", "vllm"]),
    default="gguf",
    show_default=True,
    help="For llama.cpp's programs, with a Modelfile for Ollama, or as a folder for vLLM.",
)
@click.option(
    "--type",
    "weights_type",
    metavar="TYPE",
    default="",
    help="Of GGUF: f16 (the default), bf16, f32, q8_0; q6_k, q5_k_m, q4_k_m or q3_k_m with llama-quantize.",
)
@click.option(
    "--llama-cpp", metavar="DIR", default="", help="llama.cpp's folder, where it is not ~/llama.cpp or on PATH."
)
@_PYTHON_OPTION
@_TRUST_OPTION
def export_model(run: str, folder: str, *, trusted: bool, **options: Any) -> None:
    """Write what RUN made into the new FOLDER as a GGUF file, or for vLLM as a model folder; an adapter is merged."""
    from tui_train.actions.export_model import ExportModelOptions
    from tui_train.cli.results import export_model

    export_model.export_and_report(run, folder, ExportModelOptions(trusts_model_code=trusted, **options))


@cli.command(
    reads="the result of the run, the repository on the Hub",
    sends="the result and its card",
    answer="tui_train.cli.results.publish:PublishAnswer",
    dry_run_answer="tui_train.cli.results.publish:PublishAnswer",
)
@RUN_ARGUMENT
@click.argument("repo")
@click.option("--public", is_flag=True, help="Make it public; without this, a new repository is private.")
@click.option(
    "--base", metavar="MODEL", default="", help="The base model's id on the Hub, where the run names a folder."
)
@click.option("--dry-run", is_flag=True, help="Only print the card and what would be sent; needs no login.")
@click.option("--yes", "-y", is_flag=True, help="Send without asking.")
@_PYTHON_OPTION
@JSON_OPTION
def publish(  # noqa: PLR0913 - those of PublishOptions, and one that is named otherwise
    run: str, repo: str, *, public: bool, base: str, python: str, yes: bool, **options: Any
) -> None:
    """Send what RUN made to REPO (OWNER/NAME) on the Hugging Face Hub, with a card that says how it was trained."""
    from tui_train.actions.publish import PublishOptions
    from tui_train.cli.results import publish

    chosen = PublishOptions(public=public, base=base, python=python)
    publish.publish_and_report(run, repo, chosen, confirmed=yes, **options)
