"""slurm.sh: the job that runs launch.sh on the machines that Slurm chooses."""

import re

from tui_train.base.text import visible
from tui_train.checks.other_machines.slurm import SIGNAL_MARGIN_SECONDS
from tui_train.plan.render.quoting import quoted_with_home
from tui_train.plan.render.script.script_head import takes_checkpoint
from tui_train.plan.types import Plan, SlurmJob
from tui_train.runner.questions.answer_lines import TIME_LIMIT_FILE_NAME

SLURM_SCRIPT_FILE_NAME = "slurm.sh"
# Where the time limit ends a start, and the job may be queued again.
_MARK_TIME_LIMIT_COMMAND = f': > "$run_dir/{TIME_LIMIT_FILE_NAME}"'
_BATCH_SCRIPT_HEAD_TEMPLATE = """\
# {title}
# Submit it from this folder, which all machines must see: cd FOLDER && sbatch {name}
# scancel --batch --signal=TERM JOB stops it: it saves first."""
_FIND_RUN_FOLDER_SCRIPT = """\
set -u
run_dir=${SLURM_SUBMIT_DIR:?submit it with sbatch}
if [ ! -f "$run_dir/launch.sh" ]; then
  echo "slurm.sh: $run_dir is not the folder of this run: cd there, then sbatch slurm.sh" >&2
  exit 69
fi
# Where this node is lost, nothing else says on which the job was.
where="${SLURM_JOB_NODELIST-}, first ${SLURMD_NODENAME-}"
printf '%(%T)T slurm.sh: job %s on %s\\n' -1 "$SLURM_JOB_ID" "$where\""""
_EXPORT_STEP_CPUS_LINE = (
    "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK-} # newer versions of srun do not take it from the job"
)
_RUN_LAUNCH_SCRIPT = """\
child=''
ask() { if [ -n "$child" ]; then kill -s "$1" "$child" 2> /dev/null; fi; }
trap 'ask TERM' TERM
trap 'ask USR1' USR1 # end at once
trap '{limit}' USR2 # the time limit is near
bash "$run_dir/launch.sh" &
child=$!
while :; do # a signal ends the waiting
  wait "$child"
  code=$?
  kill -0 "$child" 2> /dev/null || break
done"""
_REQUEUE_AT_TIME_LIMIT_SCRIPT = """\
if [ -n "$limit" ] && [ "$code" -ne 0 ] && [ "$(newest)" != "$before" ]; then
  exec scontrol requeue "$SLURM_JOB_ID" # it resumes
fi
rm -f -- "$run_dir/{limit}\""""
_NEWEST_CHECKPOINT_FUNCTION = 'newest() { {python} -I -S -X utf8 "$run_dir/runner.pyz" checkpoint all 2> /dev/null; }'


def render_batch_script(plan: Plan, job: SlurmJob) -> str:
    """Return the text of slurm.sh; near its time limit the training saves, and is queued again where it can resume."""
    requeues = plan.resumes_itself or (plan.attempts[0].checkpoints is not None and takes_checkpoint(plan))
    lines = ["#!/usr/bin/env bash", *(f"#SBATCH {option}" for option in _sbatch_options(plan, job, requeues=requeues))]
    lines += [
        _BATCH_SCRIPT_HEAD_TEMPLATE.format(title=visible(f"{plan.name}: {plan.title}"), name=SLURM_SCRIPT_FILE_NAME),
        "",
        _FIND_RUN_FOLDER_SCRIPT,
    ]
    lines += [_EXPORT_STEP_CPUS_LINE] if plan.nodes > 1 else []
    if requeues:
        # Without a newer checkpoint, of whichever attempt, it would be queued for ever.
        python = f'"${{TUI_TRAIN_PYTHON:-{quoted_with_home(plan.python)}}}"'
        lines += [_NEWEST_CHECKPOINT_FUNCTION.replace("{python}", python), "before=$(newest)", "limit=''"]
    lines.append(
        _RUN_LAUNCH_SCRIPT.replace(
            "{limit}", f"limit=yes; {_MARK_TIME_LIMIT_COMMAND}; ask TERM" if requeues else "ask TERM"
        )
    )
    lines += [_REQUEUE_AT_TIME_LIMIT_SCRIPT.replace("{limit}", TIME_LIMIT_FILE_NAME)] if requeues else []
    return "\n".join([*lines, 'exit "$code"']) + "\n"


def _sbatch_options(plan: Plan, job: SlurmJob, *, requeues: bool) -> list[str]:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plan.name).strip("-") or "tui-train"
    options = [
        f"--job-name={name}",
        f"--nodes={plan.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={job.cpus}",
        *([f"--gres=gpu:{job.gpus}"] if job.gpus else []),
        *([f"--partition={job.partition}"] if job.partition else []),
        *([f"--account={job.account}"] if job.account else []),
        *([f"--time={job.time}"] if job.time else []),
        f"--signal=B:USR2@{plan.grace + SIGNAL_MARGIN_SECONDS}",
        "--requeue" if requeues else "--no-requeue",
        "--output=launch.log",
        "--open-mode=append",
    ]
    return [*options, *job.options]
