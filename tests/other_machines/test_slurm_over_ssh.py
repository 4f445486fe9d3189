"""Jobs of a real Slurm that are submitted, watched, stopped and resumed over a real ssh; nothing is installed there."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import slurm
import ssh as secure_shell
from slurm import SAVING_SCRIPT, logged_steps, run_cli, save_saving_profile
from ssh import runs_of_host
from support import prepare, profile, wait_until
from try_counts import count_tries

from tui_train.actions.machine_facts import place_for_profile
from tui_train.base.errors import Unavailable
from tui_train.channel.session import PYTHON_COMMAND, ask_host
from tui_train.places import jobs
from tui_train.places.place import Place
from tui_train.places.run_mirror import RunMirror
from tui_train.profile import hosts, store
from tui_train.runs import run_folders, slurm_job
from tui_train.runs.remote_run import read_remote_location
from tui_train.runs.status import read_status

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("slurm")]
CUTS = int(os.environ.get("TUI_TRAIN_TEST_CUTS", "5"))
SEED = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))


@pytest.fixture(scope="module")
def cluster():
    with slurm.run_cluster(gpus="a100:4") as environment:
        yield environment


_SSH = """\
#!/bin/bash
last=${{@: -1}}
path=$(cat {folder}/path)
if [ -e {folder}/cut ]; then echo "ssh: connect to host box port 22: Connection refused" >&2; exit 255; fi
case $last in *--parsable*) [ ! -e {folder}/cut-after ] || exec > /dev/null ;; esac
exec {words} "${{@:1:$#-1}}" "export {there} PATH=$path; $last"
"""


class Login:
    """A host `box` from which jobs are submitted, with a home of its own; here Slurm's commands do nothing."""

    def __init__(self, folder, environment):
        self.home = folder / "home"
        self._folder, self._environment = folder, environment
        self.path(f"{self.home}/bin:/usr/bin:/bin")

    def path(self, text):
        """Set what commands over ssh have as their PATH."""
        (self._folder / "path").write_text(text)

    def cut(self, *, after=False):
        """Cut the link: at once, or once a job was submitted, before its number is here."""
        (self._folder / ("cut-after" if after else "cut")).touch()

    def joined(self):
        for name in ("cut", "cut-after"):
            (self._folder / name).unlink(missing_ok=True)

    def says(self, *words):
        """What a command says there."""
        command = [f"/usr/bin/{words[0]}", *words[1:]]
        environment = {**os.environ, **self._environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    def jobs(self):
        return self.says("squeue", "-h", "-o", "%i").split()


@pytest.fixture
def login(cluster, tmp_path, monkeypatch):
    home, client = tmp_path / "home", tmp_path / "client"
    # Home folders are often links.
    (tmp_path / "disk" / "bin").mkdir(parents=True)
    home.symlink_to(tmp_path / "disk")
    client.mkdir()
    (home / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    (home / "train.py").write_text(SAVING_SCRIPT)
    for name in slurm.COMMANDS:
        (client / name).write_text("#!/bin/sh\necho this is not the login node >&2; exit 1\n")
        (client / name).chmod(0o755)
    with secure_shell.run_sshd(tmp_path, what="jobs of Slurm over ssh") as words:
        there = {"HOME": home, "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": "", **cluster}
        exports = " ".join(f"{name}={value}" for name, value in there.items())
        (client / "ssh").write_text(_SSH.format(folder=tmp_path, words=" ".join(words), there=exports))
        (client / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{client}:{os.environ['PATH']}")
        monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
        yield Login(tmp_path, cluster)


BLOCKING = ("sbatch", "--parsable", "-N2", "--exclusive", "-o/dev/null", "--wrap=sleep 99")
RUN = ("run", "job", "--on", "box", "--slurm")


@pytest.mark.whole
def test_a_job_over_ssh_says_why_it_waits_and_is_followed_to_its_end(login):
    save_saving_profile(login.home, 3)
    blocking = login.says(*BLOCKING)
    said = run_cli(*RUN, "--detach").stdout
    run = run_folders.find_run("last")
    (folder,) = runs_of_host(login.home)
    number = slurm_job.read_known_job(run.path).number
    assert said.startswith(f"{run.name} is job {number}, waits: ")
    assert (read_remote_location(run.path).folder, read_status(run).host) == (str(folder), "box (Slurm)")
    assert store.load_profile_file(str(run.profile_file)).hardware.host == "box"
    assert f"job {number}, waits: " in run_cli("runs").stdout
    login.says("scancel", blocking)
    assert run_cli("logs", "last", "--follow").stdout.splitlines() == ["step 1", "step 2", "step 3"]
    assert read_status(run).state == "finished"
    assert (folder / "output" / "made.txt").exists()
    assert not (run.path / "output").exists()


@pytest.mark.whole
def test_a_job_over_ssh_is_stopped_and_resumed(login):
    save_saving_profile(login.home, 200)
    run_cli(*RUN, "--detach")
    run = run_folders.find_run("last")
    number = slurm_job.read_known_job(run.path).number
    assert "is running" in run_cli("resume", "last", code=69).stderr or read_status(run).state == "queued"
    wait_until(lambda: jobs.refresh_jobs([run]) or (run.attempt_log(1).exists() and len(logged_steps(run, 1)) > 3), 60)
    assert "running on box (Slurm)" in run_cli("runs").stdout
    assert "Resume it" in run_cli("stop", "last").stdout
    assert (read_status(run).state, slurm_job.read_known_job(run.path).state, login.jobs()) == ("stopped", "", [])
    saved = logged_steps(run, 1)[-1]
    assert (Path(read_remote_location(run.path).folder) / "output" / f"checkpoint-{saved}").is_dir()
    assert run_cli("resume", "last").stdout.count("step 200") == 1
    assert logged_steps(run, 2) == [*range(saved + 1, 201)]
    assert (read_status(run).state, slurm_job.read_known_job(run.path).number != number) == ("finished", True)
    assert "nothing is left to train" in run_cli("resume", "last").stdout


@pytest.mark.whole
def test_a_link_that_is_lost_while_a_job_waits_changes_nothing_of_it(login):
    save_saving_profile(login.home, 30)
    blocking = login.says(*BLOCKING)
    run_cli(*RUN, "--detach")
    run, told = run_folders.find_run("last"), []
    mirror = RunMirror(run, told.append)
    wait_until(lambda: told)
    login.cut()
    wait_until(lambda: any(told), 30)
    assert read_status(run).state == "queued"
    lost = run_cli("runs")
    assert ("queued" in lost.stdout, "Connection refused" in lost.stderr) == (True, True)
    assert run_cli("stop", "last", code=69).stderr
    assert run_cli("resume", "last", code=69).stderr
    login.says("scancel", blocking)
    wait_until(lambda: "RUNNING" in login.says("squeue", "-h", "-o", "%T"), 60)
    login.joined()
    mirror.wait()
    assert told[-1] == ""
    assert (read_status(run).state, logged_steps(run, 1)) == ("finished", [*range(1, 31)])


@pytest.mark.whole
def test_a_job_whose_number_was_not_heard_is_found_by_its_folder(login):
    save_saving_profile(login.home, 3)
    login.cut(after=True)
    found = run_cli(*RUN, "--detach", "--set", "slurm.options=--begin=now+3600")
    run = run_folders.find_run("last")
    assert [slurm_job.read_known_job(run.path).number] == login.jobs()
    assert login.jobs()[0] in found.stdout
    (run.path / slurm_job.SLURM_JOB_FILE_NAME).unlink()
    slurm_job.write_known_job(run.path, slurm_job.KnownJob(number="", starts=0))
    login.cut()
    assert slurm_job.read_queued_job(run.path)
    login.joined()
    assert f"job {login.jobs()[0]}, " in run_cli("runs").stdout
    run_cli("stop", "last")
    assert login.jobs() == []


@pytest.mark.whole
@pytest.mark.timeout(300 + CUTS * 30)
def test_a_link_that_is_cut_while_a_job_is_submitted_leaves_one_job_or_none(login, tmp_path, record_property):
    save_saving_profile(login.home, 3, **{"slurm.options": ("--begin=now+3600",)})
    place, chosen = Place("box", slurm=True), store.load_profile_file("job")
    prepared = prepare(chosen, place.probe_facts_for(chosen))
    began = time.monotonic()
    place.submit(prepared, prepared.plan)
    took = time.monotonic() - began
    with count_tries(record_property, "cuts of a submission") as made:
        for number in range(CUTS):
            moment = random.Random(f"submission {SEED} {number}").uniform(0.0, took)
            with made.one(f"cut {number}, seed {SEED}: after {moment:.2f} s of {took:.2f} s"):
                timer = secure_shell.cut_connections_later(tmp_path, moment)
                with contextlib.suppress(Unavailable):
                    place.submit(prepared, prepared.plan)
                timer.join()
                wait_until(lambda: settled(run_folders.list_runs()), 60)
                known = [slurm_job.read_queued_job(run.path) for run in run_folders.list_runs()]
                assert sorted(login.jobs()) == sorted(job.number for job in known if job)
    for job in login.jobs():
        login.says("scancel", job)


def settled(runs):
    with contextlib.suppress(Unavailable):
        jobs.refresh_jobs(runs)
    return all(read_status(run).state != "unconfirmed" for run in runs)


_LAPTOP = ("unshare", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child", "sh", "-c")


@pytest.mark.whole
@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can make namespaces: a home shared with Slurm")
def test_a_home_that_a_laptop_shares_with_a_login_node_has_each_job_once(login, cluster, tmp_path):
    shared = {**os.environ, "HOME": str(login.home), "XDG_STATE_HOME": "", "PYTHONPATH": str(Path(__file__).parents[2])}
    there = {**shared, **cluster, "PATH": shared["PATH"].removeprefix(f"{tmp_path}/client:")}

    def says(machine, environment, *words):
        command = [*machine, sys.executable, "-m", "tui_train", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def laptop(*words):
        return says((*_LAPTOP, 'hostname laptop && exec "$@"', "sh"), shared, *words)

    def node(*words):
        return says((), there, *words)

    def listed():
        runs = [json.loads(tui("runs", "--json")) for tui in (laptop, node)]
        return [[(run["state"], run["host"]) for run in of_machine] for of_machine in runs]

    save_saving_profile(login.home, 30)
    assert "step 30" in laptop(*RUN)
    assert len(list(login.home.glob(".local/state/tui-train/runs/*/output/made.txt"))) == 1
    assert listed() == [[("finished", "box (Slurm)")], [("finished", "")]]
    assert [tui("logs", "last").count("step 30") for tui in (laptop, node)] == [1, 1]
    laptop(*RUN, "--detach", "--set", "slurm.options=--begin=now+3600")
    assert [of_machine[0] for of_machine in listed()] == [("queued", "box (Slurm)"), ("queued", "Slurm")]
    assert "had not started" in node("stop", "last")
    assert login.jobs() == []
    assert [[state for state, _ in of_machine] for of_machine in listed()] == [["stopped", "finished"]] * 2


@pytest.mark.whole
def test_a_job_over_ssh_that_fails_is_diagnosed_and_what_it_made_is_fetched(login):
    save_saving_profile(login.home, 3)
    (login.home / "train.py").write_text(f"{SAVING_SCRIPT}\nimport not_there_anywhere\n")
    run_cli(*RUN, code=1)
    run = run_folders.find_run("last")
    assert read_status(run).state == "failed"
    assert "not_there_anywhere" in run_cli("diagnose", "last").stdout
    assert "step 3" in run_cli("attach", "last", code=1).stdout
    assert "fetched from box" in run_cli("fetch", "last").stdout
    assert (run.path / "output" / "made.txt").exists()


@pytest.mark.whole
def test_a_run_whose_folder_there_is_gone_is_let_go_and_hides_no_other(login):
    for steps in (3, 4):
        save_saving_profile(login.home, steps)
        run_cli(*RUN, "--detach", "--set", "slurm.options=--begin=now+3600")
    other, run = sorted(run_folders.list_runs(), key=lambda run: slurm_job.read_known_job(run.path).number)
    shutil.rmtree(read_remote_location(run.path).folder)
    login.says("scancel", slurm_job.read_known_job(run.path).number)
    assert run_cli("runs").stderr == ""
    assert (slurm_job.read_queued_job(run.path), bool(slurm_job.read_queued_job(other.path))) == (None, True)
    assert "is gone" in run_cli("logs", run.name, code=65).stderr
    assert run_cli("runs", "rm", "-y", run.name).stdout
    login.says("scancel", slurm_job.read_known_job(other.path).number)


@pytest.mark.whole
def test_a_host_without_sbatch_is_named_and_one_where_only_a_login_shell_finds_it_is_not(login):
    for name in ("bash", "env", "cat"):
        (login.home / "bin" / name).symlink_to(f"/usr/bin/{name}")
    login.path(f"{login.home}/bin")
    known = json.loads(run_cli("facts", "--slurm", "--on", "box", "--json").stdout)["cluster"]
    assert [part["name"] for part in known["partitions"]] == ["debug", "long", "gpu"]
    (login.home / ".bash_profile").write_text(f"PATH={login.home}/bin\n")
    save_saving_profile(login.home, 3)
    said = run_cli(*RUN, code=69).stderr
    assert "sbatch cannot be started on box" in said
    assert "ssh box sbatch --version" in said
    assert (run_folders.list_runs(), runs_of_host(login.home)) == ((), [])
    assert "sinfo" in run_cli("facts", "--slurm", "--on", "box").stdout


# The rules


@pytest.mark.parametrize(
    ("own", "named", "goes"),
    [
        (("", "none"), Place(), ("", False)),
        (("lab", "slurm"), Place(), ("lab", True)),
        (("lab", "slurm"), Place("lab"), ("lab", True)),
        (("lab", "slurm"), Place("box"), ("box", False)),
        (("lab", "slurm"), Place("ann@login"), ("ann@login", True)),
        (("", "slurm"), Place("box"), ("box", False)),
        (("lab", "none"), Place(slurm=True), ("lab", True)),
        (("lab", "slurm"), Place("box", slurm=True), ("box", True)),
        (("lab", "none"), Place(machine_file=Path("m.json")), ("", False)),
    ],
)
def test_where_a_profile_goes(own, named, goes):
    host, scheduler = own
    hosts.save_host("lab", "ann@login")
    place = place_for_profile(profile({"hardware.host": host, "hardware.scheduler": scheduler}), named)
    assert (place.host, place.slurm) == goes


def test_what_a_login_shell_sets_is_left_out_again(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text('#!/bin/sh\necho "${SBATCH_OUTPUT-none} ${SLURM_CONF-none} $1"\n')
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "bash").symlink_to("/usr/bin/bash")
    (tmp_path / ".bash_profile").write_text(f"export PATH={tmp_path}/bin:$PATH SBATCH_OUTPUT=x SLURM_CONF=/c\n")
    asked = {"do": "slurm", "commands": [["sbatch", "a b"]], "input": ""}
    words = ["env", "-i", f"HOME={tmp_path}", f"PATH={tmp_path}/few", sys.executable, *PYTHON_COMMAND[1:]]
    with secure_shell.answering_by(words):
        (answer,) = ask_host("here", asked, list, 30.0)
    assert answer["out"] == "none /c a b\n"
