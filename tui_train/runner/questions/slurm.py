"""Slurm on a machine from which jobs are submitted: its commands, and the job of a run folder."""

from __future__ import annotations

import getpass
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Collection, Sequence

from .answer_lines import RequestFailedError, send_json_line

COMMAND_TIMEOUT_SECONDS = 30.0  # seconds for a command
NOT_FOUND_EXIT_CODE = 127
# Those of a job that has ended, which squeue may still list for a while.
_ENDED_JOB_STATES = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
})  # fmt: skip
# What each command says where slurmctld does not answer.
_CONTROLLER_DOWN_TEXT = "unable to contact slurm controller"
# Seconds in which a job that was submitted is listed, however late sbatch was.
_MAX_SECONDS_UNTIL_LISTED = 60.0
# The variables that change a question; those of sbatch take the place of options in slurm.sh, or have it wait for the
# end of the job.
_VARIABLES_REMOVED_FROM_QUERIES_PATTERN = r"SINFO_PARTITION|(SQUEUE_|SCANCEL_|SLURM_CLUSTERS).*"
_VARIABLES_REMOVED_FROM_SBATCH_PATTERN = (
    "SBATCH_(ARRAY_INX|ERROR|GPUS|GPUS_PER_NODE|GPUS_PER_TASK|GRES|NO_REQUEUE|OPEN_MODE|OUTPUT|REQUEUE|SIGNAL|WAIT)"
)
_CLUSTER_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
# What a login shell reads may set again what is left out.
_LOGIN_SHELL_SCRIPT = """
without=$1; shift
for name in $(compgen -e); do [[ $name =~ ^($without)$ ]] && unset -v "$name"; done
exec "$@"
"""


def send_command_results(question: dict[str, Any]) -> None:
    """Run commands one after the other, the first with an `input`, and send what each answered."""
    answers = [_run_slurm_command(words, stdin_data=question["input"]) for words in question["commands"]]
    sys.stdout.write(json.dumps(answers) + "\n")


def _run_slurm_command(
    words: Sequence[str], *, stdin_data: str = "", folder: Path | None = None, kept_open: Sequence[int] = ()
) -> dict[str, Any]:
    """Return the output and the exit code of a command, None where it is late; `{user}` in it is the user's name here.

    It goes on with files that are `kept_open` where this process ends.
    """
    removed = (
        _VARIABLES_REMOVED_FROM_SBATCH_PATTERN if words[0] == "sbatch" else _VARIABLES_REMOVED_FROM_QUERIES_PATTERN
    )
    try:
        if "{user}" in "".join(words):
            words = [word.replace("{user}", getpass.getuser()) for word in words]
        if shutil.which(words[0]) is None:
            # Many clusters add the folder of Slurm's commands in what only a login shell reads.
            words = ["bash", "-lc", _LOGIN_SHELL_SCRIPT, "bash", removed, *words]
        done = subprocess.run(
            words, input=stdin_data.encode(), capture_output=True, timeout=COMMAND_TIMEOUT_SECONDS, check=False,
            env={name: value for name, value in os.environ.items() if not re.fullmatch(removed, name)},
            # A program of that name in the current folder is not Slurm's.
            cwd=folder or "/", start_new_session=True, pass_fds=kept_open,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"code": None}
    except (OSError, KeyError) as error:
        return {"code": NOT_FOUND_EXIT_CODE, "error": str(error)}
    return {
        "code": done.returncode,
        "out": done.stdout.decode(errors="replace"),
        "error": done.stderr.decode(errors="replace"),
    }


def submit_job(run: Path, lock: int, after_job: str = "") -> dict[str, Any]:
    """Submit slurm.sh of a run folder whose `lock` is held, and return what became of it (see run_start).

    It starts once the job with the number `after_job` has ended, however that ends.
    """
    later = [f"--dependency=afterany:{after_job}"] if after_job.isdigit() else []
    # squeue gives the folder as it is written here, whatever the links there.
    words = ["sbatch", "--parsable", f"--chdir={run}", *later, "slurm.sh"]
    done = _run_slurm_command(words, folder=run, kept_open=(lock,))
    number, _, cluster = (done.get("out", "").strip().splitlines() or [""])[-1].partition(";")
    if done["code"] == 0 and number.isdigit():
        return {"started": True, "job": number, "cluster": cluster}
    said = f"sbatch: {last_error_line(done['code'], done.get('error', ''))}"
    if done["code"] and "timed out" not in said.lower():
        return {"started": False, "said": said}
    # A program around sbatch may print no number: Slurm has taken the job all the same.
    found = find_submission_outcome(run, time.time())
    return found if "started" in found else {"unclear": said}


def find_submission_outcome(run: Path, submitted_at: float) -> dict[str, Any]:
    """Return what became of a job that may have been submitted from a run folder: Slurm lists it, or never will."""
    try:
        clusters = _clusters_to_submit_to()
    except RequestFailedError as error:
        return {"unclear": str(error)}
    unclear = ""
    for cluster in clusters:
        try:
            (job,) = _query_jobs(cluster, [("", str(run))])
        except RequestFailedError as error:
            # Another one may have it.
            unclear = str(error)
            continue
        if job and job["state"]:
            return {"started": True, "job": job["number"], "cluster": cluster}
    if time.time() - submitted_at < _MAX_SECONDS_UNTIL_LISTED:
        unclear = unclear or "Slurm does not list the job, and may do so yet"
    return {"unclear": unclear} if unclear else {"started": False, "said": "Slurm has no such job"}


def send_listed_jobs(question: dict[str, Any]) -> None:
    """Send how a cluster lists `jobs`, each asked for by its number (empty: not known) and run folder."""
    send_json_line(jobs=_query_jobs(question["cluster"], question["jobs"]))


def _query_jobs(cluster: str, jobs: Sequence[Sequence[str]]) -> list[dict[str, str] | None]:
    """Return how squeue lists jobs; of one that has left the queue how it `ended`, None where nothing knows that.

    squeue knows that for some minutes, then sacct where the cluster has accounting; only sacct knows who cancelled it.
    """
    numbers = {number for number, _ in jobs}
    which = "--user={user}" if "" in numbers else f"--jobs={','.join(sorted(numbers))}"
    option = [f"--clusters={cluster}"] if cluster else []
    done = _run_slurm_command(["squeue", *option, "-h", "--states=all", which, "-o", "%i|%T|%r|%S|%Z"])
    # Of a single job that is long gone it says that there is none.
    if done["code"] != 0 and "Invalid job id" not in done.get("error", ""):
        raise RequestFailedError(f"squeue: {last_error_line(done['code'], done.get('error', ''))}")
    rows = [line.split("|", 4) for line in done["out"].splitlines() if line.count("|") > 3]
    listed = [_find_listed_job(rows, number, os.path.realpath(folder)) for number, folder in jobs]
    gone = {number for (number, _), job in zip(jobs, listed) if number and _may_sacct_know_more(job)}
    rows = _query_ended_job_rows(option, gone) if gone else []
    return [
        (_find_listed_job(rows, number, os.path.realpath(folder)) or job) if _may_sacct_know_more(job) else job
        for (number, folder), job in zip(jobs, listed)
    ]


def _may_sacct_know_more(listed: dict[str, str] | None) -> bool:
    return listed is None or listed.get("ended") == "CANCELLED"


def _query_ended_job_rows(cluster_option: Sequence[str], numbers: Collection[str]) -> list[list[str]]:
    """Return what sacct says of jobs that have ended, in the columns of squeue; nothing without accounting.

    One whose end slurmdbd never heard of stays there as running for good.
    """
    words = ["sacct", *cluster_option, "-nXP", f"--jobs={','.join(sorted(numbers))}", "-o", "JobIDRaw,State,WorkDir"]
    done = _run_slurm_command(words)
    rows = [line.split("|", 2) for line in done.get("out", "").splitlines() if line.count("|") > 1]
    return [[number, _with_user_name(state), "", "", folder] for number, state, folder in rows if _has_ended(state)]


def _has_ended(state: str) -> bool:
    """Return whether a state, which may name who cancelled the job, is that of one that has ended."""
    return state.partition(" ")[0] in _ENDED_JOB_STATES


def _with_user_name(state: str) -> str:
    """Return a state of sacct, such as `CANCELLED by 1000`, with the name of that user where it is known here."""
    word, by, uid = state.partition(" by ")
    try:
        return f"{word} by {pwd.getpwuid(int(uid)).pw_name}" if by else word
    except (KeyError, ValueError, OverflowError):
        return state


def _find_listed_job(rows: Sequence[Sequence[str]], number: str, folder: str) -> dict[str, str] | None:
    """Return the job of a folder, one in the queue before one that has ended."""
    ended = None
    for listed, state, reason, begins, submitted_in in rows:
        # Numbers come again, and a folder may be a copy: whose job it is, its folder says. sacct has none of a job that
        # never began.
        is_here = os.path.realpath(submitted_in) == folder if submitted_in else bool(number)
        if number not in {"", listed} or not is_here or not listed.isdigit():
            continue
        if not _has_ended(state):
            return {"number": listed, "state": state, "reason": reason, "begins": begins}
        ended = {"number": listed, "state": "", "reason": "", "begins": "", "ended": state}
    return ended


def last_error_line(code: int | None, error: str) -> str:
    """Return why a command failed: the last line that it said as an error, or that it took too long."""
    if code is None:
        return f"no answer in {COMMAND_TIMEOUT_SECONDS:.0f} s"
    if is_controller_down(error):
        return "Slurm's controller (slurmctld) does not answer"
    return (error.strip().splitlines() or ["it does not say why"])[-1]


def is_controller_down(error: str) -> bool:
    """Return whether a command said that slurmctld does not answer."""
    return _CONTROLLER_DOWN_TEXT in error.lower()


def _clusters_to_submit_to() -> list[str]:
    """Return the clusters that the user's variables name, of which sbatch takes one; an empty name: the default one."""
    chosen = os.environ.get("SBATCH_CLUSTERS") or os.environ.get("SLURM_CLUSTERS") or ""
    if chosen == "all":
        done = _run_slurm_command(["sacctmgr", "-nP", "show", "clusters", "format=cluster"])
        if done["code"] != 0:
            raise RequestFailedError(f"sacctmgr: {last_error_line(done['code'], done.get('error', ''))}")
        chosen = done["out"]
    return [name for name in re.split(r"[,\s]+", chosen) if _CLUSTER_NAME_PATTERN.fullmatch(name)] or [""]
