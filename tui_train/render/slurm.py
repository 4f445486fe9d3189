"""slurm.sh: the job that runs launch.sh on the machines that Slurm chooses."""

import re

from tui_train.base.text import visible
from tui_train.checks.slurm import BEFORE_THE_END
from tui_train.plan.types import Plan, SlurmJob
from tui_train.render.head import resumes, with_home

NAME = "slurm.sh"
# In the run folder where the time limit ends a start, and the job may be queued again.
LIMIT = ".limit"
_MARKS = f': > "$run_dir/{LIMIT}"'
_HEAD = """\
# {title}
# Submit it from this folder, which all machines must see: cd FOLDER && sbatch {name}
# scancel --batch --signal=TERM JOB stops it: it saves first."""
_SETUP = """\
set -u
run_dir=${SLURM_SUBMIT_DIR:?submit it with sbatch}
if [ ! -f "$run_dir/launch.sh" ]; then
  echo "slurm.sh: $run_dir is not the folder of this run: cd there, then sbatch slurm.sh" >&2
  exit 69
fi"""
_STEPS = "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK-} # newer versions of srun do not take it from the job"
_RUN = """\
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
_AGAIN = """\
if [ -n "$limit" ] && [ "$code" -ne 0 ] && [ "$(newest)" != "$before" ]; then
  exec scontrol requeue "$SLURM_JOB_ID" # it resumes
fi
rm -f -- "$run_dir/{limit}\""""
_NEWEST = 'newest() { {python} -I -S -X utf8 -B "$run_dir/supervisor" checkpoint all 2> /dev/null; }'


def batch_script(plan: Plan, job: SlurmJob) -> str:
    """Return the text of slurm.sh; near its time limit the training saves, and is queued again where it can resume."""
    again = plan.resumes_itself or (plan.attempts[0].checkpoints is not None and resumes(plan))
    lines = ["#!/usr/bin/env bash", *(f"#SBATCH {option}" for option in _options(plan, job, again=again))]
    lines += [_HEAD.format(title=visible(f"{plan.name}: {plan.title}"), name=NAME), "", _SETUP]
    lines += [_STEPS] if plan.nodes > 1 else []
    if again:
        # Without a newer checkpoint, of whichever attempt, it would be queued for ever.
        python = f'"${{TUI_TRAIN_PYTHON:-{with_home(plan.python)}}}"'
        lines += [_NEWEST.replace("{python}", python), "before=$(newest)", "limit=''"]
    lines.append(_RUN.replace("{limit}", f"limit=yes; {_MARKS}; ask TERM" if again else "ask TERM"))
    lines += [_AGAIN.replace("{limit}", LIMIT)] if again else []
    return "\n".join([*lines, 'exit "$code"']) + "\n"


def _options(plan: Plan, job: SlurmJob, *, again: bool) -> list[str]:
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
        f"--signal=B:USR2@{plan.grace + BEFORE_THE_END}",
        "--requeue" if again else "--no-requeue",
        "--output=launch.log",
        "--open-mode=append",
    ]
    return [*options, *job.options]
