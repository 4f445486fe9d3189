"""Answers that a real Slurm gives only on a bad day, from commands of the same names in the PATH."""

import json
import os
import subprocess

import msgspec
import pytest
from slurm import run_cli
from slurm import save_saving_profile as saved_profile
from support import facts, gpu, plan, profile

from tui_train.base.errors import Unavailable
from tui_train.places import jobs, place_of_run
from tui_train.plan.render.slurm import render_batch_script
from tui_train.runner.questions.slurm import find_submission_outcome
from tui_train.runner.run_folder import events
from tui_train.runner.run_folder.events import JournalEvent
from tui_train.runs import run_folders, slurm_job
from tui_train.runs.status import read_status

# $all: what it was called with; $folder: the newest run folder.
_COMMAND = """\
#!/usr/bin/env bash
printf '%s\\n' "${{0##*/}} $*" >> {log}
all="$*" folder=$(ls -d "$XDG_STATE_HOME"/tui-train/runs/*/ 2> /dev/null | tail -n 1)
folder=${{folder%/}}
{body}
"""
_TAKES = 'case $all in *--test-only*) echo "sbatch: would start" >&2 ;; *) echo "{said}" ;; esac'
_TIMED_OUT = 'echo "error: Socket timed out on send/recv operation" >&2; exit 1'


class Fake:
    """The commands of a Slurm that is not there, each a piece of bash; `calls` are their command lines."""

    def __init__(self, folder):
        self._folder = folder
        self._log = folder / "calls"
        self.gone = folder / "gone"
        for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo"):
            self.says(name, "exit 0")

    def says(self, name, body):
        path = self._folder / name
        path.write_text(_COMMAND.format(log=self._log, body=body))
        path.chmod(0o755)

    def lists(self, state, number=4712, reason="Priority"):
        """Have squeue list one job, until it is cancelled."""
        listed = f'[ -e {self.gone} ] || echo "{number}|{state}|{reason}|N/A|$folder"'
        self.says("squeue", listed if state else "exit 0")
        self.says("scancel", f": > {self.gone}")

    def takes(self, said="4712"):
        self.says("sbatch", _TAKES.format(said=said))

    def calls(self, name):
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line for line in lines if line.startswith(name) and "--test-only" not in line]


@pytest.fixture
def fake(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Fake(folder)


def submitted(fake, tmp_path, state="PENDING", **more):
    """The run of a job that Slurm took."""
    saved_profile(tmp_path, 3)
    fake.takes(**more)
    fake.lists(state)
    run_cli("run", "job", "--slurm", "--detach")
    return run_folders.find_run("last")


def lost(run):
    """Have a run started, whose supervisor then went with its node."""
    started = JournalEvent(event="run_started", mark="0" * 32, pid=2**22 + 1, start_ticks=1, boot_id="other", host="n1")
    with (run.path / events.JOURNAL_FILE_NAME).open("a") as file:
        file.write(json.dumps(started._asdict()) + "\n")


def test_a_job_that_was_taken_is_kept_though_squeue_fails(fake, tmp_path):
    saved_profile(tmp_path, 3)
    fake.takes()
    fake.says("squeue", _TIMED_OUT)
    assert "job 4712" in run_cli("run", "job", "--slurm", "--detach").stdout
    run = run_folders.find_run("last")
    assert (slurm_job.read_known_job(run.path).number, fake.calls("scancel")) == ("4712", [])


def test_a_job_that_may_be_queued_is_found_by_its_folder(fake, tmp_path):
    """The controller took it, but sbatch did not hear so in time."""
    saved_profile(tmp_path, 3)
    fake.says("sbatch", f"case $all in *--test-only*) ;; *) {_TIMED_OUT} ;; esac")
    assert "did not confirm" in run_cli("run", "job", "--slurm", code=69).stderr
    run = run_folders.find_run("last")
    assert read_status(run).state == "unconfirmed"
    fake.lists("PENDING", 77)
    assert "job 77" in run_cli("runs").stdout
    assert slurm_job.read_known_job(run.path).number == "77"
    fake.lists("")
    jobs.refresh_jobs([run])
    assert not slurm_job.read_queued_job(run.path)


@pytest.mark.parametrize(
    "said", [f"case $all in *--test-only*) ;; *) {_TIMED_OUT} ;; esac", "echo 'your job was accepted'"]
)
def test_sbatch_that_is_late_or_says_no_number_has_a_job(fake, tmp_path, said):
    saved_profile(tmp_path, 3)
    fake.says("sbatch", said)
    fake.lists("PENDING", 78)
    assert "job 78" in run_cli("run", "job", "--slurm", "--detach").stdout


def test_what_was_refused_has_the_job_that_it_had(fake, tmp_path):
    run = submitted(fake, tmp_path)
    fake.lists("")
    fake.says("sbatch", "echo 'error: Invalid account' >&2; exit 1")
    assert "Invalid account" in run_cli("resume", "last", code=69).stderr
    assert (slurm_job.read_known_job(run.path).number, slurm_job.read_queued_job(run.path)) == ("4712", None)


def test_a_job_that_cannot_be_cancelled_keeps_its_folder(fake, tmp_path):
    saved_profile(tmp_path, 3)
    fake.takes()
    fake.lists("PENDING", reason="PartitionTimeLimit")
    fake.says("scancel", _TIMED_OUT)
    run_cli("run", "job", "--slurm", code=69)
    assert slurm_job.read_queued_job(run_folders.find_run("last").path)


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        ("QOSMaxGRESPerJob", "sacctmgr show qos"),
        ("QOSMinCpuNotSatisfied", "sacctmgr show qos"),
        ("AssocMaxCpuPerJobLimit", "sacctmgr show assoc"),
        ("PartitionNodeLimit", "scontrol show partition"),
        ("QOSMaxJobsPerUserLimit", ""),
        ("AssocGrpGRES", ""),
    ],
)
def test_a_job_above_a_limit_of_its_own_is_cancelled(fake, tmp_path, reason, command):
    """Those of a user or an account are free again once other jobs end."""
    saved_profile(tmp_path, 3)
    fake.takes()
    fake.lists("PENDING", reason=reason)
    done = run_cli("run", "job", "--slurm", "--detach", code=69 if command else 0)
    assert bool(fake.calls("scancel")) == bool(command)
    assert command in done.stderr


@pytest.mark.parametrize("state", ["CONFIGURING", "COMPLETING", "RUNNING"])
def test_a_lost_run_whose_job_slurm_has_is_not_submitted_again(fake, tmp_path, state, monkeypatch):
    run = submitted(fake, tmp_path)
    lost(run)
    fake.lists(state)
    monkeypatch.setattr(jobs, "_MAX_COMPLETING_SECONDS", 0.0)
    before = fake.calls("sbatch")
    with pytest.raises(Unavailable, match=f"4712.*{state}"):
        place_of_run(run).resume(run)
    assert fake.calls("sbatch") == before
    assert "is not running" not in run_cli("stop", "last").stdout
    assert any(call.endswith("4712") for call in fake.calls("scancel"))


@pytest.mark.whole
def test_a_job_that_is_queued_again_while_it_is_stopped_is_cancelled(fake, tmp_path):
    run = submitted(fake, tmp_path)
    lost(run)
    fake.says("squeue", f"""
        case $(grep -c ^squeue {tmp_path}/bin/calls) in [0-9]) state=RUNNING ;; *) state=PENDING ;; esac
        [ -e {fake.gone} ] || echo "4712|$state|None|N/A|$folder"
    """)  # fmt: skip
    fake.says("scancel", f'case $all in --state=PENDING*) [ "$(squeue | cut -d"|" -f2)" != PENDING ] || '
              f": > {fake.gone} ;; esac")  # fmt: skip
    jobs.stop_job(run, at_once=True, grace_seconds=1)
    assert not slurm_job.read_queued_job(run.path)
    assert len([call for call in fake.calls("scancel") if "--state=PENDING" in call]) == 1


def test_a_job_of_another_cluster_is_asked_for_there(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("SBATCH_CLUSTERS", "hpc2")
    run = submitted(fake, tmp_path, said="4712;hpc2")
    monkeypatch.setenv("SLURM_CLUSTERS", "hpc3")
    fake.says("squeue", f'[ -z "${{SLURM_CLUSTERS-}}" ] || exit 1; case $all in *--clusters=hpc2*) '
              f'[ -e {fake.gone} ] || echo "4712|PENDING|Priority|N/A|$folder" ;; esac')  # fmt: skip
    fake.says("scancel", f"case $all in *--clusters=hpc2*) : > {fake.gone} ;; esac")
    jobs.refresh_jobs([run])
    assert slurm_job.read_known_job(run.path).cluster == "hpc2"
    assert "had not started" in run_cli("stop", "last").stdout
    assert not slurm_job.read_queued_job(run.path)


@pytest.mark.parametrize("named", ["hpc1,hpc2", "all"])
def test_a_job_that_one_of_several_clusters_may_have_is_looked_for_in_each(fake, tmp_path, monkeypatch, named):
    monkeypatch.setenv("SBATCH_CLUSTERS", named)
    saved_profile(tmp_path, 3)
    fake.says("sbatch", f"case $all in *--test-only*) ;; *) {_TIMED_OUT} ;; esac")
    fake.says("sacctmgr", "exit 1")
    if named == "all":
        assert find_submission_outcome(tmp_path, 0.0)["unclear"].startswith("sacctmgr: ")
    fake.says("sacctmgr", "printf 'hpc1\\nhpc2\\n'")
    fake.says("squeue", f"case $all in *--clusters=hpc1*) {_TIMED_OUT} ;; esac")
    assert "did not confirm" in run_cli("run", "job", "--slurm", code=69).stderr
    run = run_folders.find_run("last")
    assert "Socket timed out" in find_submission_outcome(run.path, 0.0)["unclear"], "hpc1 may have it"
    listed = 'echo "79|PENDING|Priority|N/A|$folder"'
    fake.says("squeue", f"case $all in *--clusters=hpc1*) {_TIMED_OUT} ;; *--clusters=hpc2*) {listed} ;; esac")
    assert "job 79" in run_cli("runs").stdout
    assert slurm_job.read_known_job(run.path).cluster == "hpc2"


_DOWN = 'echo "x: error: Unable to contact slurm controller (connect failure)" >&2; exit 1'


def test_a_controller_that_is_down_is_named_and_nothing_was_stopped(fake, tmp_path):
    run = submitted(fake, tmp_path, "RUNNING")
    fake.says("squeue", _DOWN)
    said = run_cli("stop", run.name, code=69).stderr
    assert f"{run.name} was not stopped: " in said
    assert "Slurm's controller (slurmctld) does not answer" in said
    assert "scontrol ping" in said
    fake.lists("RUNNING")
    fake.says("scancel", _DOWN)
    assert "job 4712 was not stopped: Slurm's controller" in run_cli("stop", run.name, code=69).stderr
    fake.says("sbatch", _DOWN)
    said = run_cli("run", "job", "--slurm", code=69).stderr
    assert "the job was not submitted: Slurm's controller" in said
    assert "refuses" not in said


@pytest.mark.parametrize("by", ["squeue", "sacct"])
def test_a_job_that_somebody_cancels_while_it_waits_has_ended(fake, tmp_path, by):
    run = submitted(fake, tmp_path)
    ended = 'echo "4712|CANCELLED|None|N/A|$folder"'
    fake.says("squeue", f"case $all in *--states=all*) {ended} ;; esac" if by == "squeue" else "exit 0")
    fake.says("sacct", 'echo "4712|CANCELLED by 0|$folder"' if by == "sacct" else "exit 1")
    jobs.refresh_jobs([run])
    assert read_status(run).state == "stopped"
    who = "cancelled by root" if by == "sacct" else "cancelled"
    assert f"{who} while it waited" in run_cli("runs").stdout
    fake.takes("4713")
    fake.lists("PENDING", 4713)
    run_cli("resume", "last", "--detach")
    assert read_status(run).state == "queued"


def test_who_cancelled_a_job_that_ran_is_said(fake, tmp_path):
    run = submitted(fake, tmp_path)
    lost(run)
    fake.says("squeue", 'echo "4712|CANCELLED|None|N/A|$folder"')
    fake.says("sacct", 'echo "4712|CANCELLED by 0|$folder"')
    jobs.refresh_jobs([run])
    assert slurm_job.slurm_end_reason(run.path) == "job 4712 was cancelled by root"
    assert "job 4712 was cancelled by root" in run_cli("diagnose", "last").stdout


@pytest.mark.parametrize("listed", ["PENDING", "NODE_FAIL"])
def test_a_node_that_was_lost_without_a_word_is_named(fake, tmp_path, listed):
    """It was the first one, which writes the log of the job."""
    run = submitted(fake, tmp_path)
    begun = "03:22:07 slurm.sh: job 4712 on {0}[1-2], first {0}1\n"
    run.launch_log.write_text(begun.format("m") + begun.format("n"))
    lost(run)
    fake.lists(listed)
    jobs.refresh_jobs([run])
    assert slurm_job.slurm_end_reason(run.path) == "its node n1 was lost"
    with (run.path / events.JOURNAL_FILE_NAME).open("a") as file:
        file.write(json.dumps(JournalEvent(event="run_ended", state="stopped")._asdict()) + "\n")
    assert "was lost" not in slurm_job.slurm_end_reason(run.path)


def test_a_job_waits_for_nodes_that_are_down(fake, tmp_path):
    """The test of sbatch refuses it, and sbatch takes it."""
    saved_profile(tmp_path, 3)
    refuses = 'echo "allocation failure: Requested node configuration is not available" >&2; exit 1'
    fake.says("sbatch", f"case $all in *--test-only*) {refuses} ;; *) echo 4712 ;; esac")
    fake.lists("PENDING")
    fake.says("sinfo", 'echo "gpu*|up|1:00:00|1|idle|8|4000|(null)"')
    assert "Slurm refuses the job" in run_cli("run", "job", "--slurm", "--detach", code=69).stderr
    fake.says("sinfo", 'echo "gpu*|up|1:00:00|1|drained|8|4000|(null)"')
    done = run_cli("run", "job", "--slurm", "--detach")
    assert "job 4712" in done.stdout
    assert "the job waits until they are back" in done.stdout + done.stderr


def test_an_array_runs_so_many_jobs_at_a_time(fake, tmp_path):
    saved_profile(tmp_path, 3)
    count = f"$(grep -c '^sbatch --parsable' {tmp_path}/bin/calls)"
    fake.says("sbatch", f"case $all in *--test-only*) ;; *) echo 47{count} ;; esac")
    fake.says("squeue", f'echo "47{count}|PENDING|Priority|N/A|$folder"')
    run_cli("run", "job", "--slurm", "--array", "recipe.steps=3,4,5%2")
    after = [call.partition("--dependency=")[2].split()[:1] for call in fake.calls("sbatch")]
    assert after == [[], [], ["afterany:471"]]
    assert "only jobs of Slurm" in run_cli("run", "job", "--array", "recipe.steps=3,4%2", code=65).stderr


def test_many_runs_need_one_squeue(fake, tmp_path):
    run = submitted(fake, tmp_path)
    before = len(fake.calls("squeue"))
    copy = run_folders.RunFolder(run.path.with_name("20200101-000000-job"))
    copy.path.mkdir()
    (copy.path / slurm_job.SLURM_JOB_FILE_NAME).write_bytes((run.path / slurm_job.SLURM_JOB_FILE_NAME).read_bytes())
    jobs.refresh_jobs([run, copy])
    assert len(fake.calls("squeue")) == before + 1
    assert [bool(slurm_job.read_queued_job(each.path)) for each in (run, copy)] == [True, False]


def test_resume_asks_slurm_before_it_refuses(fake, tmp_path):
    """Somebody else cancelled the job: what was known of it is not true any more."""
    run = submitted(fake, tmp_path)
    fake.says("squeue", _TIMED_OUT)
    assert "Socket timed out" in run_cli("resume", "last", code=69).stderr
    fake.lists("")
    assert slurm_job.read_queued_job(run.path)
    run_cli("resume", "last", "--detach")
    assert len(fake.calls("sbatch")) == 2


def test_variables_of_sbatch_do_not_have_it_wait(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("SBATCH_WAIT", "1")
    saved_profile(tmp_path, 3)
    fake.says("sbatch", f'[ -z "${{SBATCH_WAIT-}}" ] || exit 1; {_TAKES.format(said="4712")}')
    run_cli("run", "job", "--slurm", "--detach")


# It writes a checkpoint where the test names one, as the time limit ends it; slurm.sh may not know its number at first.
_LAUNCH = """\
#!/usr/bin/env bash
trap '{saves} exit 143' TERM
while :; do kill -USR2 "$PPID"; sleep 0.05; done
"""


def at_its_limit(fake, run, saves):
    """What a job does whose time limit comes: how often it was queued again until then."""
    (run.path / "launch.sh").write_text(_LAUNCH.format(saves=f"{saves};" if saves else ""))
    told = {**os.environ, "SLURM_SUBMIT_DIR": str(run.path), "SLURM_JOB_ID": "4712"}
    subprocess.run(["bash", "slurm.sh"], cwd=run.path, env=told, check=False, timeout=60)
    return len([line for line in fake.calls("scontrol") if "requeue" in line])


def test_a_checkpoint_of_a_fallback_is_progress(fake, tmp_path):
    run = submitted(fake, tmp_path)
    path = run.path / "plan.json"
    made = json.loads(path.read_text())
    first = made["attempts"][0]
    folder = f"{tmp_path}/output-lora"
    made["attempts"].append({**first, "checkpoints": {**first["checkpoints"], "folder": folder}})
    path.write_text(json.dumps(made))
    saves = f"mkdir -p {folder}/checkpoint-7; echo 1 > {folder}/checkpoint-7/trainer_state.json"
    assert [at_its_limit(fake, run, each) for each in (saves, saves, "")] == [1, 1, 1]


@pytest.mark.parametrize("name", ["model--val_loss=2.1-step=9-last", "iter_0000100", "epoch_0_step_99"])
def test_a_trainer_that_resumes_itself_is_queued_again_only_with_a_new_checkpoint(fake, tmp_path, name):
    run = submitted(fake, tmp_path)
    path = run.path / "plan.json"
    made = json.loads(path.read_text())
    made["attempts"][0].pop("checkpoints")
    path.write_text(json.dumps({**made, "resumes_itself": True}))
    saves = f"mkdir -p {run.path}/output/default/checkpoints/{name}"
    assert [at_its_limit(fake, run, each) for each in ("", saves, saves)] == [0, 1, 1]


def test_the_job_of_a_trainer_that_resumes_itself_looks_for_progress():
    cluster = msgspec.structs.replace(facts(gpus=[gpu(0)]), scheduler="slurm")
    made = msgspec.structs.replace(plan(profile(), cluster), resumes_itself=True)
    attempts = tuple(msgspec.structs.replace(each, checkpoints=None) for each in made.attempts)
    made = msgspec.structs.replace(made, attempts=attempts)
    assert "before=$(newest)" in render_batch_script(made, made.slurm).splitlines()
