"""Slurm where one chooses it: what the cluster has, what a job may ask for, and the wizard from H to the log."""

import json
import subprocess

import msgspec
import pytest
import slurm
from pilot import press_keys, screen_text, wait_for_step, wait_for_text, wait_for_workers
from slurm import logged_steps, run_cli, save_saving_profile
from support import GIB, facts, findings_of, plan, profile, set_variables, wait_until

from tui_train.facts.gpus.known_gpus import gpu_of_slurm_type
from tui_train.facts.other_machines.cluster import (
    Cluster,
    NodeGroup,
    Partition,
    Reservation,
    parse_gres_gpus,
    parse_reservations,
    parse_sinfo,
    sbatch_time_limit_text,
)
from tui_train.facts.other_machines.slurm import planned_machine, planned_node_group
from tui_train.memory.data_defaults import make_setup
from tui_train.places import jobs
from tui_train.places.profile_facts import node_for_profile
from tui_train.profile import store
from tui_train.profile.changes import apply_change
from tui_train.runs import run_folders, slurm_job
from tui_train.runs.slurm_job import slurm_end_reason
from tui_train.runs.status import read_status
from tui_train.views import choices
from tui_train.wizard import make_wizard

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("slurm")]

BIG = NodeGroup(count=4, idle=1, cores=64, memory=512 * GIB, cards=(("a100", 4),))
OLD = NodeGroup(count=8, idle=8, cores=32, memory=128 * GIB, cards=(("2080ti", 2),))
PLAIN = NodeGroup(count=9, cores=16)
CLUSTER = Cluster(
    partitions=(
        Partition(name="cpu", default=True, limit=3600, nodes=(PLAIN,)),
        Partition(name="gpu", limit=86400, nodes=(BIG,)),
        Partition(name="all", nodes=(BIG, OLD, PLAIN)),
        Partition(name="shut", up=False, nodes=(PLAIN,)),
        Partition(name="closed", up=False, closed=True, nodes=(PLAIN,)),
        Partition(name="broken", nodes=(msgspec.structs.replace(BIG, idle=0, out=3),)),
    ),
    accounts=("lab", "thesis"),
    qos=("long", "normal"),
    reservations=(Reservation(name="monday", active=True, ends="2026-12-01 18:00:00", partition="gpu"),),
)


# What sinfo says


def test_partitions_are_read_from_sinfo():
    lines = """\
debug*|up|1:00:00|3|idle|8|4000|(null)
debug*|up|1:00:00|1|down*|8|4000|(null)
gpu|up|2-00:00:00|2|mixed|64|512000|gpu:a100:4(S:0-1),nvme:1
gpu|up|2-00:00:00|1|idle~|64|512000|gpu:a100:4(S:0-1),nvme:1
gpu|up|2-00:00:00|1|idle*|64|512000|gpu:a100:4(S:0-1),nvme:1
old|inact|infinite|0|n/a|0|0|(null)
a line of a login script | with bars
x|up|1:00|many|idle|1|1|(null)
"""
    debug, gpu, old = parse_sinfo(lines)
    assert (debug.name, debug.default, debug.limit) == ("debug", True, 3600)
    assert [(kind.count, kind.idle, kind.out) for kind in debug.nodes] == [(4, 3, 1)]
    assert (gpu.default, gpu.limit) == (False, 2 * 86400)
    assert [(kind.count, kind.idle, kind.out, kind.cards) for kind in gpu.nodes] == [(4, 1, 1, (("a100", 4),))]
    assert (old.up, old.closed, old.limit, old.nodes) == (False, True, None, ())
    assert parse_sinfo("\x1b[31m|\x00||||||\n") == ()


def test_reservations_are_read_from_scontrol():
    line = (
        "ReservationName=monday StartTime=2026-11-30T08:00:00 EndTime=2026-12-01T18:00:00 Duration=1-10:00:00 "
        "Nodes=n1 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=(null) Flags=SPEC_NODES Users=root State=INACTIVE\n"
    )
    assert parse_reservations(line) == (Reservation(name="monday", ends="2026-12-01 18:00:00", holders="root"),)
    assert parse_reservations("No reservations in the system\n") == ()


def test_what_an_option_of_the_job_may_be_is_listed_beside_those_that_are_chosen():
    chosen = profile({"slurm.partition": "gpu", "slurm.options": ("--mem=64G", "--qo=normal")})
    offered = choices.field_options("slurm.options", make_setup(chosen, on_cluster(chosen)))
    assert {option.label: option.value for option in offered} == {
        "--qos=long": "--mem=64G --qos=long",
        "--qos=normal": "--mem=64G --qos=normal",
        "--reservation=monday": "--mem=64G --qo=normal --reservation=monday",
        "--gres=gpu:a100:4": "--mem=64G --qo=normal --gres=gpu:a100:4",
    }


@pytest.mark.parametrize(
    ("gres", "cards"),
    [
        ("(null)", ()),
        ("gpu:4", (("", 4),)),
        ("gpu:a100:2(S:0),gpu:h100:2(S:1)", (("a100", 2), ("h100", 2))),
        ("gpu:tesla_v100-sxm2-32gb:8(IDX:0-7),shard:8", (("tesla_v100-sxm2-32gb", 8),)),
        ("gpu", (("", 1),)),
        ("gpu:2080ti", (("2080ti", 1),)),
        ("gpu:1g.10gb:7", (("1g.10gb", 7),)),
        ("mps:100,gpux:3", ()),
    ],
)
def test_cards_are_counted_by_type(gres, cards):
    assert parse_gres_gpus(gres) == cards


@pytest.mark.parametrize("limit", [60, 3600, 86399, 86400, 7 * 86400 + 61])
def test_a_limit_is_written_as_it_is_read(limit):
    (part,) = parse_sinfo(f"x|up|{sbatch_time_limit_text(limit)}|1|idle|1|1|(null)\n")
    assert part.limit == limit


@pytest.mark.parametrize(
    ("kind", "capability", "memory"),
    [
        ("a100", "8.0", 40),
        ("NVIDIA_A100-SXM4-80GB", "8.0", 80),
        ("tesla_v100-sxm2-32gb", "7.0", 32),
        ("rtx3090", "8.6", 24),
        ("2080ti", "7.5", 11),
        ("rtx_6000_ada", "8.9", 48),
        ("nvidia_h100_80gb_hbm3_1g.10gb", "9.0", 10),
        ("l40s", "8.9", 48),
        ("rtx3080ti", None, None),
        ("a1000", None, None),
        ("gold", None, None),
    ],
)
def test_a_type_is_known_by_its_name_or_not_at_all(kind, capability, memory):
    chip = gpu_of_slurm_type(kind)
    assert (chip.compute_capability, chip.memory_total) == (capability, memory and memory * GIB)


def test_it_is_planned_for_the_least_node_that_a_job_may_get():
    assert planned_node_group(CLUSTER, "") == PLAIN
    assert planned_node_group(CLUSTER, "gpu") == BIG
    assert planned_node_group(CLUSTER, "all") == OLD
    assert planned_node_group(CLUSTER, "all", "gpu:a100:2") == BIG
    assert planned_node_group(CLUSTER, "nope") is None
    here = facts().machine
    two = planned_machine(here, CLUSTER, "all", "gpu:a100:2")
    assert [(card.name, card.memory_total) for card in two.gpus] == [("A100", 40 * GIB)] * 2
    assert (two.cpu_count, two.memory_total) == (64, 512 * GIB)
    unknown = planned_machine(here, Cluster(problem="sinfo: no"), "", "")
    assert unknown.hostname == here.hostname
    assert unknown.gaps[0].why == "sinfo: no"


# What a job may ask for


def on_cluster(chosen):
    where = msgspec.structs.replace(facts(), scheduler="slurm", cluster=CLUSTER)
    return msgspec.structs.replace(where, machine=node_for_profile(where.machine, CLUSTER, chosen))


@pytest.mark.parametrize(
    ("values", "key", "level", "fixed"),
    [
        ({"slurm.partition": "gpux"}, "slurm.partition", "error", True),
        ({"slurm.partition": "gpu,gpux"}, "slurm.partition", "error", True),
        ({"slurm.partition": "shut"}, "slurm.partition", "warning", False),
        ({"slurm.partition": "broken", "nodes.count": 2}, "slurm.partition", "warning", False),
        ({"slurm.partition": "closed"}, "slurm.partition", "error", True),
        ({"slurm.options": ("--qos=fast",)}, "slurm.options", "warning", True),
        ({"slurm.options": ("--reservation=friday",)}, "slurm.options", "error", True),
        ({"slurm.account": "other"}, "slurm.account", "error", True),
        ({"slurm.time": "1-0"}, "slurm.time", "error", True),
        ({"slurm.partition": "gpu", "slurm.time": "2-0"}, "slurm.time", "error", True),
        ({"slurm.time": "2-0", "slurm.options": ("--qos=long",)}, "slurm.time", "warning", True),
        ({"slurm.partition": "gpu", "slurm.options": ("--gres=gpu:h100:4",)}, "slurm.options", "error", True),
        ({"slurm.partition": "gpu", "nodes.count": 5}, "nodes.count", "error", True),
        ({"slurm.partition": "all", "hardware.device": "auto"}, "slurm.options", "warning", True),
    ],
)  # fmt: skip
def test_what_the_cluster_does_not_have_is_found_before(values, key, level, fixed):
    chosen = profile({"hardware.device": "cpu", **values})
    findings = [each for each in findings_of(chosen, on_cluster(chosen)) if (each.key, each.level) == (key, level)]
    assert findings
    changes = [each.change for each in findings if each.change]
    assert bool(changes) == fixed
    for change in changes:
        after = apply_change(change, chosen)
        left = findings_of(after, on_cluster(after))
        assert not {each.message for each in left} & {each.message for each in findings if each.change == change}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"slurm.partition": "gpu", "slurm.account": "lab", "slurm.time": "1-00:00:00", "nodes.count": 4},
        {"slurm.partition": "all", "slurm.time": "30-0", "slurm.options": ("--gres=gpu:a100:4",)},
    ],
)
def test_what_the_cluster_has_is_no_finding(values):
    chosen = profile({"recipe.global_batch": 512, "recipe.micro_batch": 8, **values})
    keys_found = {each.key for each in findings_of(chosen, on_cluster(chosen)) if each.level != "note"}
    assert not {key for key in keys_found if key.startswith(("slurm.", "nodes."))}


def test_the_cards_of_the_partition_are_asked_for():
    chosen = profile({"slurm.partition": "gpu"})
    assert plan(chosen, on_cluster(chosen)).slurm.gpus == 4
    chosen = profile({"slurm.partition": "gpu", "hardware.gpus": ("0", "1")})
    assert plan(chosen, on_cluster(chosen)).slurm.gpus == 2


# A real cluster


@pytest.fixture(scope="module")
def cluster():
    with slurm.run_cluster(gpus="a100:4") as environment:
        yield environment


@pytest.fixture
def nodes(cluster, monkeypatch):
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    set_variables(monkeypatch, cluster)


def said(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


async def test_the_wizard_chooses_slurm_submits_and_shows_the_queue_and_the_log(nodes, tmp_path):
    save_saving_profile(tmp_path, 12)
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_workers(pilot)
        chosen = store.load_profile_file("job")
        await pilot.press("n", "enter")
        app.edits.set_profile(chosen, save_as_draft=False)
        await wait_for_step(pilot, "Hardware")
        await press_keys("h", "up", "enter")(pilot)
        await wait_for_step(pilot, "Hardware")
        assert (app.profile.hardware.scheduler, app.facts.scheduler) == ("slurm", "slurm")
        assert [part.name for part in app.facts.cluster.partitions] == ["debug", "long", "gpu"]
        for words in ("for Slurm", "debug*", "2 of 2", "4 a100", "Partition"):
            assert words in screen_text(pilot)
        for step in ("Hardware", "Backend", "Recipe"):
            await wait_for_step(pilot, step)
            await pilot.press("enter")
        await wait_for_step(pilot, "Preview")
        blocking = said("sbatch", "--parsable", "-N2", "--exclusive", "-o/dev/null", "--wrap=sleep 99")
        await pilot.press("enter")
        await wait_for_text(pilot, "queued on Slurm", "job ", "waits: ", seconds=90)
        said("scancel", blocking)
        await wait_for_text(pilot, "finished", "step 12", seconds=90)
    run = run_folders.find_run("last")
    assert slurm_job.read_known_job(run.path).number
    assert logged_steps(run, 1) == [*range(1, 13)]


@pytest.mark.whole
async def test_the_values_of_a_field_are_what_the_cluster_has(nodes, tmp_path):
    save_saving_profile(tmp_path, 3, **{"hardware.scheduler": "slurm"})
    app = make_wizard()
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_workers(pilot)
        await pilot.press("n", "enter")
        app.edits.set_profile(store.load_profile_file("job"), save_as_draft=False)
        await wait_for_step(pilot, "Hardware")
        app.screen.form.go_to_row("slurm.partition")
        await press_keys("f3", "down", "down", "enter")(pilot)
        assert app.profile.slurm.partition == "gpu"
        assert [card.name for card in app.facts.machine.gpus] == ["A100"] * 4
        app.screen.form.go_to_row("slurm.time")
        await press_keys(*"9-0")(pilot)
        assert "2-00:00:00" in screen_text(pilot)
        await press_keys("f2")(pilot)
        assert app.profile.slurm.time == "2-00:00:00"
        app.screen.form.go_to_row("slurm.partition")
        await press_keys(*"x")(pilot)
        assert any(each.key == "slurm.partition" for each in app.screen.findings())
        await press_keys("f2")(pilot)
        assert app.profile.slurm.partition == ""
        app.screen.form.go_to_row("hardware.device")
        await press_keys("h", "enter")(pilot)
        await wait_for_step(pilot, "Hardware")
        assert (app.profile.hardware.scheduler, app.facts.scheduler, app.facts.cluster) == ("none", "", None)
        assert "for Slurm" not in screen_text(pilot)


@pytest.mark.whole
def test_a_profile_for_slurm_goes_there_and_the_command_says_so(nodes, tmp_path):
    save_saving_profile(tmp_path, 3, **{"hardware.scheduler": "slurm"})
    assert "hardware.scheduler" in run_cli("run", "job").stdout
    run = run_folders.find_run("last")
    assert (read_status(run).state, bool(slurm_job.read_known_job(run.path))) == ("finished", True)
    run_cli("run", "job", "--set", "hardware.scheduler=none")
    assert slurm_job.read_known_job(run_folders.find_run("last").path) is None
    run_cli("run", "job", "--set", "hardware.scheduler=none", "--slurm")
    assert store.load_profile_file(str(run_folders.find_run("last").profile_file)).hardware.scheduler == "slurm"
    assert "hardware.scheduler=none" in run_cli("tune", "job", code=65).stderr


@pytest.mark.whole
def test_an_array_is_a_job_and_a_run_for_each_value(nodes, tmp_path):
    save_saving_profile(tmp_path, 3)
    shared = ("run", "job", "--slurm", "--array", "recipe.steps=4,9", "--set", f"trainer.output={tmp_path}/out")
    assert str(tmp_path / "out") in run_cli(*shared, code=65).stderr
    assert run_folders.list_runs() == ()
    said_of_all = run_cli("run", "job", "--slurm", "--array", "recipe.steps=4,300,9").stdout
    run_of_change = {run.note(): run for run in run_folders.list_runs()}
    runs = short, long, last = tuple(run_of_change.pop(f"steps={steps}") for steps in (4, 300, 9))
    assert not run_of_change
    assert all(run.name in said_of_all for run in runs)
    assert len({slurm_job.read_known_job(run.path).number for run in runs}) == 3
    wait_until(lambda: jobs.refresh_jobs([long]) or read_status(long).state == "running", 60)
    wait_until(lambda: long.attempt_log(1).exists() and logged_steps(long, 1), 60)
    run_cli("stop", long.name)
    for run, steps in ((short, 4), (last, 9)):
        wait_until(lambda run=run: jobs.refresh_jobs([run]) or read_status(run).state == "finished", 60)
        assert logged_steps(run, 1) == [*range(1, steps + 1)]
    assert read_status(long).state == "stopped"
    run_cli("resume", long.name, "--detach")
    wait_until(lambda: long.attempt_log(2).exists() and logged_steps(long, 2), 60)
    assert logged_steps(long, 2)[0] == logged_steps(long, 1)[-1] + 1
    run_cli("stop", long.name)


@pytest.mark.whole
def test_the_command_line_has_the_cluster_too(nodes, tmp_path):
    known_here = json.loads(run_cli("facts", "--slurm", "--json").stdout)
    partitions = {part["name"]: part for part in known_here["cluster"]["partitions"]}
    assert (partitions["debug"]["limit"], partitions["gpu"]["nodes"][0]["cards"]) == (3600, [["a100", 4]])
    assert all(name in run_cli("facts", "--slurm").stdout for name in ("debug*", "long", "4 a100"))
    save_saving_profile(tmp_path, 3)
    wrong = run_cli("plan", "job", "--slurm", "--set", "slurm.partition=gpux", code=69).stderr
    assert "debug, long, gpu" in wrong


@pytest.mark.whole
@pytest.mark.parametrize("resumes", [True, False])
def test_a_run_whose_node_goes_down_is_queued_again_or_says_why_it_ended(nodes, tmp_path, resumes):
    """Draining alone changes nothing of a job that runs."""
    own = {"trainer.preset": "custom", "trainer.arguments": ("{output}", "900"), "recipe.steps": None}
    save_saving_profile(tmp_path, 600, **({} if resumes else own))
    run_cli("run", "job", "--slurm", "--detach")
    run = run_folders.find_run("last")
    wait_until(lambda: run.attempt_log(1).exists() and len(logged_steps(run, 1)) > 3, 60)
    node = said("squeue", "-h", "-o", "%N", f"--jobs={slurm_job.read_known_job(run.path).number}")
    drain = ("scontrol", "update", f"nodename={node}", "reason=fan")
    try:
        said(*drain, "state=drain")
        jobs.refresh_jobs([run])
        assert read_status(run).state == "running"
        said(*drain, "state=down")
        wait_until(lambda: read_status(run).state == "stopped", 60)
        assert f"{node}: node failure" in slurm_end_reason(run.path)
        jobs.refresh_jobs([run])
        if resumes:
            assert read_status(run).state == "queued"
            assert f"{node}: node failure" in run_cli("runs").stdout
            wait_until(lambda: jobs.refresh_jobs([run]) or (run.attempt_log(2).exists() and logged_steps(run, 2)), 60)
            assert logged_steps(run, 2)[0] == logged_steps(run, 1)[-1] + 1
            assert slurm_end_reason(run.path) == ""
        else:
            wait_until(lambda: jobs.refresh_jobs([run]) or slurm_job.read_known_job(run.path).state == "", 60)
            for words in (("runs",), ("diagnose", "last")):
                assert f"{node}: node failure" in run_cli(*words).stdout
    finally:
        said("scontrol", "update", f"nodename={node}", "state=resume")
    run_cli("stop", "last")


def test_the_node_that_failed_is_named_and_not_the_one_that_says_so(tmp_path):
    slurm_job.write_known_job(tmp_path, slurm_job.KnownJob(number="2", starts=0, state=""))
    end = "slurmstepd-n1: error: *** JOB 2 ON n1 CANCELLED AT 2026-11-23T20:57:28 DUE TO NODE FAILURE, SEE LOG ***\n"
    (tmp_path / "launch.log").write_text(end)
    (tmp_path / "attempt-2.log").write_text("srun: error: Node failure on n1\n")
    (tmp_path / "attempt-10.log").write_text("step 3\nsrun: error: Node failure on n2\n")
    assert slurm_end_reason(tmp_path) == "Slurm ended it on n2: node failure"


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        ("CANCELLED", "job 2 was cancelled while it waited"),
        ("CANCELLED by alice", "job 2 was cancelled by alice while it waited"),
        ("NODE_FAIL", "Slurm ended job 2: node fail"),
        ("TIMEOUT", "Slurm ended job 2: timeout"),
        ("FAILED", ""),
        ("\x1b[31m", ""),
    ],
)
def test_how_a_job_left_the_queue_is_kept(tmp_path, ended, why):
    slurm_job.write_known_job(tmp_path, slurm_job.KnownJob(number="2", starts=0, state="", ended=ended))
    assert slurm_end_reason(tmp_path) == why
    stopped = read_status(run_folders.RunFolder(tmp_path)).state
    assert stopped == ("stopped" if ended.startswith("CANCELLED") else "new")


def test_why_slurm_ended_a_job_is_that_of_its_last_start(tmp_path):
    (tmp_path / "slurm.json").write_text("{}")
    line = "slurmstepd-n1: error: *** JOB 2 ON n1 CANCELLED AT 2026-11-23T20:57:28 DUE TO NODE FAILURE, SEE LOG ***\n"
    begun = "20:57:24 launch.sh: attempt 1 of 1 (as planned) writes it\n"
    for text, why in ((begun + line, "n1: node failure"), (line + begun, ""), (begun, ""), ("\x1b[31m" + line, "")):
        (tmp_path / "launch.log").write_text(text)
        assert slurm_end_reason(tmp_path).endswith(why)
        assert bool(slurm_end_reason(tmp_path)) == bool(why)
