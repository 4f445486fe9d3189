"""Runs as jobs of a real Slurm: submitted, watched, stopped, queued again at the time limit, resumed."""

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import slurm
from slurm import logged_steps, run_cli, save_saving_profile
from support import facts, findings_of, gpu, make_executable, plan, profile, set_variables, wait_until
from tiny_trainings import TINY_RECIPE, fault_variables
from tiny_trainings import checkpoint_losses as checkpointed

from tui_train.facts.other_machines.slurm import read_cluster
from tui_train.places import place_of_run
from tui_train.places.place import Place
from tui_train.plan.render.slurm import render_batch_script
from tui_train.profile.store import save_profile
from tui_train.runner.questions.answer_lines import TIME_LIMIT_FILE_NAME
from tui_train.runs import run_folders, slurm_job
from tui_train.runs.status import read_status

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("slurm")]


@pytest.fixture(scope="module")
def cluster():
    with slurm.run_cluster() as environment:
        yield environment


@pytest.fixture
def nodes(cluster, monkeypatch):
    set_variables(monkeypatch, cluster)


def in_queue(run):
    return place_of_run(run).ask_state(run)


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_a_job_is_watched_to_its_end(nodes, tmp_path):
    save_saving_profile(tmp_path, 12)
    lines = run_cli("run", "job", "--slurm").stdout.splitlines()
    run = run_folders.find_run("last")
    number = slurm_job.read_known_job(run.path).number
    assert lines[0].startswith(f"{run.name} is job {number}")
    assert [line for line in lines if line.startswith("step ")] == [f"step {step}" for step in range(1, 13)]
    assert read_status(run).state == "finished"
    wait_until(lambda: in_queue(run).state == "finished" and not slurm_job.read_known_job(run.path).state)
    assert (run.path / "output" / "made.txt").read_text() == "done"


def test_a_job_that_waits_says_why_is_not_its_copy_and_is_cancelled(nodes, tmp_path):
    save_saving_profile(tmp_path, 3)
    run_cli("run", "job", "--slurm", "--detach", "--set", "slurm.options=--begin=now+3600")
    run = run_folders.find_run("last")
    assert (read_status(run).state, in_queue(run).state) == ("queued", "queued")
    assert "waits: BeginTime" in run_cli("runs").stdout
    assert "queued or running already" in run_cli("resume", "last", code=69).stderr or read_status(run).is_live
    copy = run_folders.RunFolder(Path(shutil.copytree(run.path, run.path.with_name(f"{run.name}-copy"))))
    assert (in_queue(copy).state, in_queue(run).state) == ("new", "queued")
    place_of_run(copy).stop(copy)
    assert in_queue(run).state == "queued"
    (copy.path / slurm_job.SLURM_JOB_FILE_NAME).write_text('{"number": "--user=root", "starts": 0}')
    assert slurm_job.read_known_job(copy.path) is None
    assert "had not started" in run_cli("stop", run.name).stdout
    assert (in_queue(run).state, run.events()) == ("stopped", ())


@pytest.mark.whole
def test_a_job_whose_nodes_are_drained_is_queued_with_a_warning(nodes, tmp_path):
    save_saving_profile(tmp_path, 3)
    drain = ("scontrol", "update", "nodename=n[1-2]")
    subprocess.run([*drain, "state=drain", "reason=fan"], check=True)
    try:
        done = run_cli("run", "job", "--slurm", "--detach")
        assert "the job waits until they are back" in done.stdout + done.stderr
        assert in_queue(run_folders.find_run("last")).state == "queued"
    finally:
        subprocess.run([*drain, "state=resume"], check=True)
    run = run_folders.find_run("last")
    wait_until(lambda: in_queue(run).state == "finished", 60)


@pytest.mark.whole
def test_who_follows_a_job_that_somebody_cancels_in_the_queue_is_told(nodes, tmp_path):
    save_saving_profile(tmp_path, 3)
    words = ("run", "job", "--slurm", "--set", "slurm.options=--begin=now+3600")
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(run_cli, *words, code=143)
        wait_until(lambda: run_folders.list_runs() and slurm_job.read_known_job(run_folders.find_run("last").path), 60)
        run = run_folders.find_run("last")
        wait_until(lambda: slurm_job.read_known_job(run.path).reason == "BeginTime", 30)
        subprocess.run(["scancel", slurm_job.read_known_job(run.path).number], check=True)
        followed.result(60)
    assert "cancelled while it waited" in run_cli("runs").stdout


@pytest.mark.whole
def test_an_array_has_so_many_jobs_at_a_time(nodes, tmp_path):
    save_saving_profile(tmp_path, 3)
    run_cli("run", "job", "--slurm", "--array", "recipe.steps=20,21,22%1")
    waiting = [slurm_job.read_known_job(run.path).number for run in run_folders.list_runs()]
    listed = subprocess.run(["squeue", "-h", "-o", "%i %E"], capture_output=True, text=True, check=True).stdout
    assert sum("afterany" in line for line in listed.splitlines() if line.split()[0] in waiting) >= 1
    wait_until(lambda: all(in_queue(run).state == "finished" for run in run_folders.list_runs()), 90)
    ended = [run.events() for run in reversed(run_folders.list_runs())]
    assert all(before[-1].time <= after[0].time for before, after in pairwise(ended))


@pytest.mark.whole
def test_accounting_knows_how_a_job_ended_and_what_it_may_ask_for(tmp_path, monkeypatch):
    """squeue has forgotten it by then."""
    forgets = make_executable(tmp_path / "bin" / "squeue", "#!/bin/sh\nexit 0\n")
    user = getpass.getuser()
    with slurm.run_cluster(accounting=True) as environment:
        set_variables(monkeypatch, environment)

        def reason_after(end, *options):
            run_cli("run", "job", "--slurm", "--detach", *options)
            run = run_folders.find_run("last")
            wait_until(lambda: options or (run.attempt_log(1).exists() and logged_steps(run, 1)), 60)
            number = slurm_job.read_known_job(run.path).number
            end(number)
            wait_until(lambda: output("sacct", "-nXPo", "End", "-j", number) not in {"", "Unknown"}, 60)
            with monkeypatch.context() as later:
                later.setenv("PATH", f"{forgets.parent}:{os.environ['PATH']}")
                assert in_queue(run).state != "queued"
            return slurm_job.slurm_end_reason(run.path).replace(number, "N")

        # Slurm does not queue it again.
        save_saving_profile(tmp_path, None, **{"trainer.preset": "custom", "trainer.arguments": ("{output}", "9000")})
        waits = ("--set", "slurm.options=--begin=now+3600")
        assert reason_after(partial(output, "scancel"), *waits) == f"job N was cancelled by {user} while it waited"
        assert reason_after(partial(output, "scancel", "--signal=KILL", "--full")) == f"job N was cancelled by {user}"
        lost = []

        def lose_node(number):
            lost.append(output("squeue", "-h", "-o", "%N", "-j", number))
            slurm.kill_node(environment, lost[0])

        assert reason_after(lose_node) == f"its node {lost[0]} was lost"
        assert f"Slurm     its node {lost[0]} was lost" in run_cli("diagnose", "last").stdout
        known = read_cluster()
        assert set(known.accounts) - {"root"} == {"lab"}, "root has an account of its name"
        assert (known.qos, known.reservations) == (("long", "normal"), ())


@pytest.mark.whole
def test_a_job_is_queued_again_where_its_first_node_is_lost_and_says_so(tmp_path, monkeypatch):
    """Nothing is left that could write so into its log."""
    with slurm.run_cluster() as environment:
        set_variables(monkeypatch, environment)
        save_saving_profile(tmp_path, 600)
        run_cli("run", "job", "--slurm", "--detach")
        run = run_folders.find_run("last")
        wait_until(lambda: run.attempt_log(1).exists() and logged_steps(run, 1), 60)
        node = output("squeue", "-h", "-o", "%N", "-j", slurm_job.read_known_job(run.path).number)
        slurm.kill_node(environment, node)
        wait_until(lambda: in_queue(run).state == "queued", 60)
        assert f"its node {node} was lost" in run_cli("runs").stdout
        wait_until(lambda: run.attempt_log(2).exists() and in_queue(run).state == "running", 60)
        assert slurm_job.slurm_end_reason(run.path) == ""
        run_cli("stop", "last")


@pytest.mark.whole
def test_what_slurm_refuses_leaves_no_run(nodes, tmp_path):
    save_saving_profile(tmp_path, 3)
    for wrong in ("slurm.partition=nope", "nodes.count=3", "slurm.time=2-0"):
        assert run_cli("run", "job", "--slurm", "--set", wrong, code=69).stderr.startswith("error: ")
    refused = ("run", "job", "--slurm", "--set")
    assert "feature" in run_cli(*refused, "slurm.options=--constraint=nope", code=69).stderr
    # The limit of a quality of service may be above the partition's, so that only Slurm knows.
    longer = ("slurm.options=--qos=any", "--set", "slurm.time=2-0")
    assert "PartitionTimeLimit" in run_cli(*refused, *longer, code=69).stderr
    assert run_folders.list_runs() == ()


def test_a_dry_run_submits_and_writes_nothing(nodes, tmp_path):
    save_saving_profile(tmp_path, 3)
    state = Path(os.environ["XDG_STATE_HOME"])
    before = sorted(state.rglob("*"))
    for more, starts in (
        ((), ["job"]),
        (("--array", "recipe.steps=3,4"), ["job with recipe.steps=3", "job with recipe.steps=4"]),
    ):
        told = json.loads(run_cli("run", "job", "--slurm", *more, "--dry-run", "--json").stdout)
        assert (told["dry_run"], told["starts"]) == (True, starts)
    assert (sorted(state.rglob("*")), output("squeue", "--noheader", "--states=PENDING,RUNNING")) == (before, "")


@pytest.mark.whole
def test_a_job_that_cannot_start_says_why(nodes, tmp_path):
    save_saving_profile(tmp_path, 3)
    done = run_cli("run", "job", "--slurm", "--set", "trainer.secrets=NOT_SET_ANYWHERE", code=69)
    assert "NOT_SET_ANYWHERE is not set" in done.stderr


@pytest.mark.whole
def test_scancel_by_hand_saves_too(nodes, tmp_path):
    save_saving_profile(tmp_path, 600)
    run_cli("run", "job", "--slurm", "--detach")
    run = run_folders.find_run("last")
    wait_until(lambda: run.attempt_log(1).exists() and logged_steps(run, 1), 60)
    subprocess.run(["scancel", slurm_job.read_known_job(run.path).number], check=True)
    wait_until(lambda: read_status(run).state == "stopped", 60)
    saved = logged_steps(run, 1)[-1]
    assert (run.path / "output" / f"checkpoint-{saved}" / "trainer_state.json").is_file()


@pytest.mark.whole
def test_near_its_time_limit_a_job_saves_is_queued_again_and_resumes(nodes, tmp_path):
    """Whoever follows it sees all of it."""
    save_saving_profile(tmp_path, 700, **{"slurm.time": "2"})
    said = run_cli("run", "job", "--slurm", timeout=290).stdout
    run = run_folders.find_run("last")
    assert (read_status(run).state, len(read_status(run).attempts) > 1) == ("finished", True)
    every = [step for attempt in read_status(run).attempts for step in logged_steps(run, attempt.number)]
    assert every == [*range(1, 701)]
    assert re.findall(r"^step (\d+)$", said, re.MULTILINE) == [str(step) for step in every]
    assert not (run.path / TIME_LIMIT_FILE_NAME).exists()


def losses(run, attempt):
    said = run.attempt_log(attempt).read_text(errors="replace")
    return [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", said)]


@pytest.mark.whole
def test_two_nodes_train_together_stop_and_resume(nodes):
    chosen = profile({
        "name": "two",
        "hardware.device": "cpu",
        "hardware.processes": 1,
        "nodes.count": 2,
        "trainer.python": sys.executable,
        "recipe.micro_batch": 2,
        "recipe.global_batch": 8,
        "recipe.steps": 400,
        "recipe.layers": 2,
        "recipe.hidden_size": 64,
        "recipe.sequence_length": 64,
        "recipe.checkpoint_every": 10,
    })  # fmt: skip
    save_profile(chosen, overwrite=True)
    run_cli("run", "two", "--slurm", "--detach")
    run = run_folders.find_run("last")
    wait_until(lambda: run.attempt_log(1).exists() and len(losses(run, 1)) > 2, 180)
    assert "Resume it" in run_cli("stop", "last").stdout
    assert read_status(run).state == "stopped"
    text = run.attempt_log(1).read_text(errors="replace")
    assert {"rank 0/2", "rank 1/2"} <= set(re.findall(r"rank \d+/\d+", text))
    run_cli("resume", "last")
    assert (read_status(run).state, read_status(run).attempts[-1].resumed > 0) == ("finished", True)
    assert losses(run, 2)[-1] < losses(run, 1)[0]


@pytest.mark.whole
@pytest.mark.parametrize("values", [("hardware.processes=2",), ("hardware.processes=1", "nodes.count=2")])
def test_processes_of_a_job_reach_each_other(nodes, values):
    chosen = [f"--set={value}" for value in (f"trainer.python={sys.executable}", *values)]
    made = json.loads(run_cli("doctor", "quickstart", "--slurm", *chosen, "--json").stdout)
    assert (made["result"]["works"], made["result"]["processes"], made["cures"]) == (True, 2, [])
    assert run_folders.list_runs() == ()


@pytest.mark.whole
def test_two_nodes_fall_back_together_after_out_of_memory(nodes, tmp_path, monkeypatch):
    """Memory runs out on one of them; the next attempt resumes on both, with the same global batch."""
    values = {**TINY_RECIPE, "name": "two", "hardware.device": "cpu", "hardware.processes": 1, "nodes.count": 2}
    save_profile(profile({**values, "recipe.micro_batch": 4}), overwrite=True)
    run_cli("run", "two", "--slurm")
    undisturbed = run_folders.find_run("last")
    set_variables(monkeypatch, fault_variables(tmp_path, {"in": "forward", "step": 5, "above": 2}))
    run_cli("run", "two", "--slurm")
    run = run_folders.find_run("last")
    assert [(each.position, each.out_of_memory) for each in read_status(run).attempts] == [(1, True), (2, False)]
    assert read_status(run).attempts[1].resumed == 3
    assert checkpointed(run.path / "output") == pytest.approx(checkpointed(undisturbed.path / "output"), abs=1e-4)


def test_cards_are_asked_for_by_count():
    cluster = msgspec.structs.replace(facts(gpus=[gpu(0), gpu(1)]), scheduler="slurm")
    several = profile({"nodes.count": 2, "recipe.global_batch": 64, "slurm.time": "4:00:00", "slurm.cpus": 8})
    for launcher in ("torchrun", "accelerate"):
        made = plan(msgspec.structs.replace(several, trainer=profile({"trainer.launcher": launcher}).trainer), cluster)
        script = render_batch_script(made, made.slurm)
        assert (made.gpus, made.slurm.gpus, made.address) == ((), 2, "")
        assert "GPU-" not in json.dumps(msgspec.to_builtins(made))
        asked = set(re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE))
        assert {"--nodes=2", "--gres=gpu:2", "--cpus-per-task=8", "--time=4:00:00", "--requeue"} <= asked
        assert not any(setting.name == "CUDA_VISIBLE_DEVICES" for setting in made.attempts[0].command.env)
        assert len(made.attempts) > 1


REFUSED_OPTIONS = ("--wait", "--clusters=b", "--partitio=x", "--arra=1-9", "--gpus-per-no=1", "--gres=gpu:a100:4")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"slurm.partition": "a b"}, "slurm.partition"),
        ({"slurm.account": "x\n#SBATCH --wrap=id"}, "slurm.account"),
        ({"slurm.time": "`id`"}, "slurm.time"),
        ({"slurm.options": ("--mem 3G",)}, "slurm.options"),
        ({"slurm.options": ("--nodes=4",)}, "slurm.options"),
        *(({"slurm.options": (option,)}, "slurm.options") for option in REFUSED_OPTIONS),
        ({"slurm.time": "1"}, "slurm.time"),
        ({"slurm.time": "0:30"}, "slurm.time"),
        ({"container.engine": "docker", "container.image": "x"}, "container.engine"),
    ],
)
def test_what_a_job_cannot_have_is_refused_before(values, key):
    cluster = msgspec.structs.replace(facts(), scheduler="slurm")
    errors = [finding.key for finding in findings_of(profile(values), cluster) if finding.level == "error"]
    assert key in errors


@pytest.mark.parametrize("option", ["--mem=64G", "--qos=long", "--gres=gpu:a100:1,gpu:v100:1", "--wait-all-nodes=1"])
def test_other_options_of_a_job_are_passed_on(option):
    cluster = msgspec.structs.replace(facts(gpus=[gpu(0), gpu(1)]), scheduler="slurm")
    chosen = profile({"slurm.options": (option,), "slurm.time": "1-0"})
    assert not [each for each in findings_of(chosen, cluster) if each.level == "error" and each.key.startswith("slurm")]
    made = plan(chosen, cluster)
    assert f"#SBATCH {option}" in render_batch_script(made, made.slurm).splitlines()


def test_here_the_keys_of_slurm_change_nothing():
    chosen = profile({"slurm.partition": "a b", "hardware.device": "cpu"})
    assert plan(chosen, facts()).slurm is None


def test_the_facts_of_a_node_are_read_from_its_file(tmp_path, monkeypatch):
    run_cli("facts", "--save", str(tmp_path / "node.json"))
    seen = Place(slurm=True, machine_file=tmp_path / "node.json").probe_facts_for(
        profile({"trainer.script": "/nowhere/train.py"})
    )
    assert (seen.scheduler, seen.other_machine) == ("slurm", "")
