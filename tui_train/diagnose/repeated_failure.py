"""Judgement whether another start of a failed run would fail as its last one did."""

import os
import re

from tui_train.base.errors import TuiTrainError
from tui_train.diagnose.run_diagnosis import diagnose_run
from tui_train.diagnose.types import Diagnosis
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.follow import read_progress
from tui_train.runs.results.resuming import newest_checkpoint, why_not_resumable
from tui_train.runs.run_folders import RunFolder

# What follows from the command, the settings and the installed packages alone.
_REPEATING_FAILURES = frozenset({
    "api_mismatch", "batch_config", "chat_template_missing", "config_invalid", "dataset_script_unsupported",
    "deepspeed_config_mismatch", "fsdp_wrap_class", "import_mismatch", "launcher_arg_mismatch",
    "launcher_config_invalid", "lora_target_modules", "megatron_config", "missing_module", "precision_unsupported",
    "tokenizer_pad_token", "torch_cpu_build", "user_args",
})  # fmt: skip
# Of the errors of a script itself, those that no other start escapes.
_REPEATING_ERROR_PATTERN = re.compile(
    r"^(SyntaxError|IndentationError|TabError|NameError|KeyError: '(LOCAL_)?RANK'|KeyError: 'WORLD)"
)


def failure_that_would_repeat(
    run: RunFolder, run_status: RunStatus, diagnosis: Diagnosis | None = None
) -> Diagnosis | None:
    """Return why another start would fail as the last one did, None where it may not; `diagnosis` is why that failed.

    So it is where the failure follows from what is started, nothing of that has changed since, no step was made and
    there is no checkpoint.
    """
    last = run_status.attempts[-1] if run_status.attempts else None
    if run_status.state != "failed" or last is None or newest_checkpoint(run, last.position):
        return None
    if read_progress(run, run_status.attempts).step or _have_files_changed_since(run, last.ended):
        return None
    try:
        diagnosis = diagnosis or diagnose_run(run)
    except TuiTrainError:
        return None
    same = diagnosis is not None and (
        diagnosis.failure in _REPEATING_FAILURES or _REPEATING_ERROR_PATTERN.match(diagnosis.line)
    )
    return diagnosis if same else None


def why_not_restartable(run: RunFolder, run_status: RunStatus, diagnosis: Diagnosis | None = None) -> str:
    """Return why another start would not go on where a run ended, as words after "it"; empty where it would."""
    same = failure_that_would_repeat(run, run_status, diagnosis)
    return f"would fail again. {same.cause} {same.remedy}".rstrip(".") if same else why_not_resumable(run, run_status)


def _have_files_changed_since(run: RunFolder, since_time: float | None) -> bool:
    """Return whether the script, its config file or launch.sh was written after a time."""
    if (profile := run.read_profile()) is None:
        return True
    for path in filter(None, (str(run.launch_script), profile.trainer.script, profile.trainer.config)):
        try:
            if since_time is None or os.stat(path).st_mtime > since_time:  # noqa: PTH116 - answers for a path of any length
                return True
        except (OSError, ValueError):
            continue  # the module of a package, or a file of another machine
    return False
