"""Checks of a script's source: whether it is Python, loads a checkpoint, and how it reads its rank."""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence

from tui_train.checks.finding import Finding, error, warning
from tui_train.launchers import LAUNCHERS
from tui_train.profile.changes import Change
from tui_train.profile.presets.log_expression import why_expression_unusable
from tui_train.setup.recipe.given_arguments import likely_input_paths_by_name
from tui_train.setup.setup import Setup
from tui_train.trainers.auto_preset import argument_file_given_alone
from tui_train.trainers.script import script_or_module_to_start

_RESUME_OPTION = "--resume_from_checkpoint"
_TRAIN_SWITCH = "--do_train"
# How a script of Hugging Face's form is told what to do: `--do_train`, `--do_eval`, and others of its own.
_TASK_SWITCH_PREFIXES = ("--do_", "--do-")
# A first argument that may hold all values.
_ENDINGS_OF_ARGUMENT_FILES = (".json", ".yaml", ".yml", ".args", ".txt")
_NOT_PYTHON_PROBLEM_PREFIX = "it is not Python: "
USE_TORCHRUN_CHANGE = Change(
    "use torchrun", "it sets RANK, LOCAL_RANK and WORLD_SIZE", (("trainer.launcher", "torchrun"),)
)


def one_process_change(gpu_uuids: Sequence[str], why: str) -> Change:
    """Return the change to a single process, on the first of the GPUs where there are some."""
    if gpu_uuids:
        return Change("one GPU", why, (("hardware.gpus", (gpu_uuids[0],)), ("hardware.processes", 0)))
    return Change("one process", why, (("hardware.processes", 1),))


def script_ignoring_checkpoint(setup: Setup) -> Iterator[Finding]:
    """A script that does not load the checkpoint that a second start and each fallback pass to it."""
    source, rule = setup.script_source, setup.preset.checkpoints
    if source is None or rule is None or not any(word.startswith(_RESUME_OPTION) for word in rule.resume):
        return
    effect = "after a restart or out of memory it starts again from step 0"
    if source.train_without_checkpoint_line:
        message = (
            f"train() on line {source.train_without_checkpoint_line} of the script is given no checkpoint: {effect}"
        )
        yield warning("trainer.script", message, f"Write `{source.corrected_train_call}` there.")
    elif source.creates_accelerator and not source.mentions_checkpoint:
        message = f"the script does not read {_RESUME_OPTION}: {effect}"
        remedy = (
            "Let the script take that argument, and before the first step call "
            "accelerator.load_state(args.resume_from_checkpoint)"
        )
        yield warning("trainer.script", message, f"{remedy}.")


def unpassed_local_rank(setup: Setup) -> Iterator[Finding]:
    """A script that waits for --local_rank, which only torch.distributed.launch passed."""
    source = setup.script_source
    if (
        source is None
        or not source.local_rank_line
        or source.reads_local_rank
        or not LAUNCHERS[setup.launcher].starts_several_processes
    ):
        return
    message = f"line {source.local_rank_line} of the script takes --local_rank, which {setup.launcher} does not pass"
    remedy = 'Give that argument `default=int(os.environ.get("LOCAL_RANK", 0))`, without required=True.'
    yield warning("trainer.script", message, remedy)


def invalid_progress_expression(setup: Setup) -> Iterator[Finding]:
    """An expression for the lines of the log that is none."""
    expression = setup.profile.trainer.progress
    if expression and (problem := why_expression_unusable(expression)):
        remedy = r"Write one such as `it (?P<step>\d+)/(?P<steps>\d+) L=(?P<loss>\S+)`."
        change = Change("unset it", "usual log lines are read without it", (("trainer.progress", ""),))
        yield error(
            "trainer.progress",
            f"trainer.progress, which reads the log: the expression {problem}",
            remedy,
            change=change,
        )


def non_python_script(setup: Setup) -> Iterator[Finding]:
    """A script that is none of Python's."""
    profile = setup.profile
    path, source = profile.trainer.script, setup.facts.sources.get(profile.trainer.script)
    if source is None or not source.problem or script_or_module_to_start(profile, setup.preset) != path:
        return
    if source.non_python_label:
        message = f"{path} is {source.non_python_label}, but Python must start the script"
        remedy = "Name the Python file that trains (trainer.script)."
        if source.non_python_label == "a notebook":
            remedy = f"Make a Python file of it: jupyter nbconvert --to script {shlex.quote(path)}."
        yield error("trainer.script", message, remedy)
    elif (why := source.problem.removeprefix(_NOT_PYTHON_PROBLEM_PREFIX)) != source.problem:
        message = f"{path} cannot be read as Python: {why}"
        remedy = "Correct the file, or name the Python file that trains (trainer.script)."
        # Another Python may read more than this one does.
        version = setup.toolchain.version if setup.toolchain else ""
        is_same = [*map(int, re.findall(r"\d+", version)[:2])] == [*sys.version_info[:2]]
        yield (error if is_same else warning)("trainer.script", message, remedy)


def script_without_train_switch(setup: Setup) -> Iterator[Finding]:
    """A script of Hugging Face's form that trains only with --do_train, which is not given."""
    source = setup.script_source
    words = setup.profile.trainer.arguments
    if source is None or not source.train_switch_line or argument_file_given_alone(source, words):
        return
    declared = next((each for each in source.parameters if each.name == _TRAIN_SWITCH), None)
    passed = (*words, *(word for argument in setup.preset.arguments for word in argument.words))
    asked = any(word.startswith(_TASK_SWITCH_PREFIXES) for word in passed)
    from_file = any(word.endswith(_ENDINGS_OF_ARGUMENT_FILES) and not word.startswith("-") for word in words[:1])
    if asked or from_file or (declared and declared.default != "False"):
        return
    message = f"line {source.train_switch_line} of the script trains only if {_TRAIN_SWITCH} is given"
    change = Change(
        f"add {_TRAIN_SWITCH}", "without it nothing is trained", (("trainer.arguments", (*words, _TRAIN_SWITCH)),)
    )
    yield error("trainer.arguments", message, f"Add {_TRAIN_SWITCH} to trainer.arguments.", change=change)


def missing_input_paths(setup: Setup) -> Iterator[Finding]:
    """Files and models in the script's arguments that do not exist."""
    source, states = setup.script_source, setup.facts.paths
    by_name = likely_input_paths_by_name(source, setup.profile) if source else {}
    for name, paths in by_name.items() if setup.profile.container.engine == "none" else ():
        for path in paths:
            if states.get(path) in {"missing", "unreadable"}:
                what = "does not exist" if states[path] == "missing" else "cannot be read"
                message = f"{name}: {path} {what}"
                remedy = "Correct the path (trainer.arguments), or put the file there."
                yield warning("trainer.arguments", message, remedy, argument=name)


def several_processes_without_process_group(setup: Setup) -> Iterator[Finding]:
    """Several processes of a script that knows of no others: each would train all of it, and write the same files."""
    source = setup.script_source
    if source and source.no_process_group and setup.world_size > 1:
        message = f"the script does not share work: each of {setup.world_size} processes would train a model of its own"
        remedy = "Use one process, or change the script to use accelerate or torch.nn.parallel.DistributedDataParallel."
        several_machines = setup.profile.nodes.machine_count > 1 or setup.is_slurm_job
        gpu_uuids = [gpu.uuid for gpu in setup.gpus if gpu.uuid]
        change = None if several_machines else one_process_change(gpu_uuids, "the script cannot use several")
        yield error("hardware.processes", message, remedy, change=change)


def ranks_unset_by_launcher(setup: Setup) -> Iterator[Finding]:
    """A script that reads a rank, and a launcher that sets none for one process."""
    launcher = LAUNCHERS[setup.launcher]
    if setup.line_needing_ranks_text and not launcher.sets_ranks and setup.world_size == 1:
        message = f"{setup.line_needing_ranks_text}, which {launcher.label} does not set for one process"
        remedy = "Start it with torchrun (trainer.launcher=torchrun)."
        yield error("trainer.launcher", message, remedy, change=USE_TORCHRUN_CHANGE)
