"""Several hosts over ssh that one start trains on: real sshds in network namespaces, real trainings on the CPU."""

import ast
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import netns
import pytest
from support import export_run, facts, profile, run_launch_script, values_taken_by_preset, wait_until
from tiny_trainings import TINY_RECIPE, fault_variables
from tiny_trainings import checkpoint_losses as checkpointed

from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.profile import fields

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.training, pytest.mark.xdist_group("netns")]

VALUES = {
    **TINY_RECIPE,
    "trainer.python": sys.executable,
    "trainer.launcher": "torchrun",
    "hardware.device": "cpu",
    "hardware.processes": 1,
    "recipe.micro_batch": 4,
}


@pytest.fixture
def folder():
    with netns.short_folder() as made:
        yield made


def exported_for(folder, hosts, **values):
    """A run folder for these hosts, and its plan."""
    names = tuple(host.name for host in hosts)
    chosen = profile(values_taken_by_preset({**VALUES, "nodes.hosts": names, **values}))
    name = f"my run {len([*(folder / 'runs').glob('*')])}"
    return export_run(folder / "runs" / name, chosen, facts(python=chosen.trainer.python))


def start(host, run, environment, *words, **more):
    """Start a run on a host, and return the process."""
    return subprocess.Popen(
        host.words("bash", str(run.launch_script), *words), env={**environment, **more}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def ended(started, seconds=240):
    said, _ = started.communicate(timeout=seconds)
    return started.returncode, said


def state(host, run):
    """What the supervisor in a run folder says of it, on that host."""
    said = host.run(sys.executable, "-I", "-S", str(run.path / RUNNER_ZIP_FILE_NAME), "status", "--json")
    return json.loads(said)


def log_of(run, number=1):
    return run.attempt_log(number).read_text(errors="replace") if run.attempt_log(number).exists() else ""


def losses(run, number=1):
    return [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", log_of(run, number))]


def copied(folder, *names):
    """Hosts of which only the first sees the run folders."""
    return netns.run_hosts(folder, *(names or ("gpu-a", "gpu-b")), hidden=(folder / "runs",))


LONG = {"recipe.steps": 400, "recipe.checkpoint_every": 5}


def stop(host, run, *words):
    return host.run(sys.executable, "-I", "-S", str(run.path / RUNNER_ZIP_FILE_NAME), "stop", *words)


@pytest.mark.whole
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_a_stop_saves_on_all_and_a_second_start_resumes_on_all(folder, launcher):
    with copied(folder) as (environment, hosts):
        run, _ = exported_for(folder, hosts, **LONG, **{"trainer.launcher": launcher})
        first = start(hosts[0], run, environment)
        wait_until(lambda: len(losses(run)) > 6, 120)
        stop(hosts[0], run)
        code, said = ended(first)
        assert (code, state(hosts[0], run)["state"]) == (143, "stopped"), said + log_of(run)
        assert not netns.training_processes(hosts)
        saved = max(int(path.name.rpartition("-")[2]) for path in run.path.glob("output/checkpoint-*"))
        assert saved >= len(losses(run)) - 1
        second = start(hosts[0], run, environment)
        wait_until(lambda: len(losses(run, 2)) > 3, 120)
        assert "trainer_state.json" in hosts[1].run("ls", f"{run.path}/output/checkpoint-{saved}")
        stop(hosts[0], run, "--now")
        ended(second)
        assert state(hosts[0], run)["attempts"][1]["resumed"] == saved
        assert not netns.training_processes(hosts)


SAVES = """
import os, signal, sys, time
given = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word)
stop, step = [], int(given.get("resume_from_checkpoint", "-0").rpartition("-")[2])
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
print(f"begins at {step} of {os.uname().nodename}", flush=True)
while not stop:
    time.sleep(0.1)
folder = given["output_dir"] + "/checkpoint-7"
os.makedirs(folder, exist_ok=True)
if os.environ["RANK"] == "0":
    open(folder + "/trainer_state.json", "w").write("{}")
    open(folder + "/SHARD", "w").write("0")
"""


@pytest.mark.whole
@pytest.mark.parametrize(("name", "step"), [("weights", 7), ("__0_0.distcp", 0)])
def test_a_checkpoint_is_copied_unless_each_process_has_a_part_of_it(folder, name, step):
    (folder / "train.py").write_text(SAVES.replace("SHARD", name))
    script = {"trainer.kind": "script", "trainer.preset": "hf-trainer", "trainer.script": f"{folder}/train.py"}
    with copied(folder) as (environment, hosts):
        run, _ = exported_for(folder, hosts, **script)
        for number, begins in enumerate((0, step), start=1):
            started = start(hosts[0], run, environment)
            wait_until(lambda number=number: log_of(run, number).count("begins at") == 2, 120)
            stop(hosts[0], run)
            _, said = ended(started)
            assert log_of(run, number).count(f"begins at {begins} of gpu-") == 2, said + log_of(run, number)
        assert (f"{run.path}/output/checkpoint-7 was copied to gpu-b" in said) == bool(step)
        assert ("begins with the first step" in said) == (not step)


@pytest.mark.whole
def test_four_hosts_train_together(folder):
    """The third one with two processes."""
    with copied(folder, "a", "b", "c", "d") as (environment, hosts):
        values = {"recipe.micro_batch": 2, "recipe.global_batch": 20, "nodes.processes": (1, 1, 2, 1)}
        run, plan = exported_for(folder, hosts, **values)
        code, said = ended(start(hosts[0], run, environment))
        assert code == 0, said + log_of(run)
        assert plan.world_size == 5
        assert set(re.findall(r"rank (\d/\d) \| host (\S+)", log_of(run))) == {
            ("0/5", "a"), ("1/5", "b"), ("2/5", "c"), ("3/5", "c"), ("4/5", "d"),
        }  # fmt: skip
        assert losses(run)[-1] < losses(run)[0]


@pytest.mark.whole
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_after_out_of_memory_on_one_all_fall_back_and_learn_the_same(folder, launcher):
    alone, _ = export_run(
        folder / "alone", profile(values_taken_by_preset({**VALUES, "trainer.launcher": "python"})), facts()
    )
    assert run_launch_script(alone).returncode == 0
    (folder / "notes").mkdir()
    faults = fault_variables(folder / "notes", {"in": "forward", "step": 5, "above": 2})
    with copied(folder) as (environment, hosts):
        run, _ = exported_for(folder, hosts, **{"trainer.launcher": launcher, "trainer.environment": faults})
        code, said = ended(start(hosts[0], run, environment))
        assert code == 0, said + log_of(run)
        now = state(hosts[0], run)
        assert [(each["position"], each["out_of_memory"]) for each in now["attempts"]] == [(1, True), (2, False)]
        assert now["attempts"][1]["resumed"] == 3
        assert checkpointed(run.path / "output") == pytest.approx(checkpointed(alone.path / "output"), abs=1e-4)
        assert "machine 1 (gpu-b) ended with exit code 1" in log_of(run)


@pytest.mark.whole
def test_where_a_host_fails_or_is_switched_off_all_end_and_the_log_names_it(folder):
    with copied(folder, "gpu-a", "gpu-b", "gpu-c") as (environment, hosts):
        run, _ = exported_for(folder, hosts, **LONG, **{"recipe.micro_batch": 1, "recipe.global_batch": 6})
        started = start(hosts[0], run, environment)
        wait_until(lambda: len(losses(run)) > 3, 120)
        hosts[1].power_off()
        code, said = ended(started)
        assert code != 0
        assert state(hosts[0], run)["state"] == "failed", said
        named = re.findall(r"launch\.sh: machine (\d) \((\S+)\)", log_of(run))
        assert named == [("1", "gpu-b")]
        wait_until(lambda: not netns.training_processes((hosts[0], hosts[2])), 20)


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_a_link_that_is_cut_for_a_while_changes_nothing_and_one_that_stays_cut_ends_all(folder):
    with copied(folder) as (environment, hosts):
        run, _ = exported_for(folder, hosts, **{**LONG, "recipe.steps": 4000})
        started = start(hosts[0], run, environment)
        wait_until(lambda: len(losses(run)) > 3, 120)
        hosts[1].unplug()
        time.sleep(30)
        hosts[1].unplug(off=False)
        before = len(losses(run))
        wait_until(lambda: len(losses(run)) > before + 5, 120)
        assert started.poll() is None
        hosts[1].unplug()
        code, said = ended(started, 240)
        assert code == 255, said
        assert "machine 1 (gpu-b) was lost" in log_of(run)
        wait_until(lambda: not netns.training_processes(hosts), 60)


@pytest.mark.whole
def test_what_kills_the_supervisor_or_the_fan_leaves_no_process_on_the_others(folder):
    with copied(folder) as (environment, hosts):
        run, _ = exported_for(folder, hosts, **LONG)
        started = start(hosts[0], run, environment)
        wait_until(lambda: len(losses(run)) > 2, 120)
        hosts[0].run("pkill", "-KILL", "-f", "runner.pyz fan")
        code, _ = ended(started)
        assert code == 137
        wait_until(lambda: not netns.training_processes(hosts), 30)
        started = start(hosts[0], run, environment)
        wait_until(lambda: len(losses(run, 2)) > 2, 120)
        hosts[0].run("pkill", "-KILL", "-f", "runner.pyz launch")
        ended(started)
        assert netns.training_processes(hosts[1:])
        stop(hosts[0], run)
        assert not netns.training_processes(hosts)
        # Its trainer counts from where it resumed.
        last = max(int(step) for step in re.findall(r"\b(\d+)/\d+ \[", log_of(run, 2)))
        assert (run.path / "output" / f"checkpoint-{last}" / "trainer_state.json").exists(), log_of(run, 2)


@pytest.mark.whole
def test_what_a_lost_keeper_leaves_is_named_at_the_next_start(folder):
    with copied(folder) as (environment, hosts):
        run, _ = exported_for(folder, hosts, **LONG)
        started = start(hosts[0], run, environment, TUI_TRAIN_GRACE="2")
        wait_until(lambda: len(losses(run)) > 2, 120)
        hosts[1].run("pkill", "-STOP", "-f", "torch.distributed.run|--expect")
        hosts[1].run("pkill", "-KILL", "-f", "runner.pyz keep")
        code, said = ended(started)
        assert code != 0
        code, said = ended(start(hosts[0], run, environment))
        pids = re.findall(r"gpu-b: .*\(kill ([\d ]+)\)", said)
        assert (code, len(pids)) == (69, 1), said
        hosts[1].run("kill", "-KILL", *pids[0].split())
        assert not netns.training_processes(hosts)


# ---- what is refused before anything starts


@pytest.fixture
def pair(folder):
    with netns.run_two_hosts(folder) as made:
        yield made


def refused(pair, values=None, **more):
    environment, hosts, folder = pair
    run, plan = exported_for(folder, hosts, **(values or {}))
    code, said = ended(start(hosts[0], run, {**environment, **more}), 60)
    assert not (run.path / "events.jsonl").exists() or "run_started" not in run.events_file.read_text(), said
    return code, said, plan


def other(folder, changes):
    """A Python that is another one on gpu-b: bash that changes its words there."""
    path = folder / "python"
    path.write_text(f'#!/bin/bash\n[ "$(hostname)" != gpu-b ] || {{ {changes}; }}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return {"trainer.python": str(path)}


@pytest.mark.whole
def test_hosts_that_cannot_take_part_are_named_before_the_start(pair):
    _, hosts, folder = pair
    (folder / "own" / "python").symlink_to(sys.executable)
    code, said, _ = refused(pair, {"trainer.python": f"{folder}/own/python"})
    assert (code, f"gpu-b has no {folder}/own/python" in said) == (69, True), said
    (folder / "old" / "torch-1.13.1.dist-info").mkdir(parents=True)
    (folder / "old" / "torch-1.13.1.dist-info" / "METADATA").write_text("Name: torch\nVersion: 1.13.1\n")
    old = f"export PYTHONPATH={folder}/old"
    code, said, _ = refused(pair, other(folder, old))
    assert (code, "gpu-b has torch 1.13.1" in said) == (69, True), said
    code, said, _ = refused(pair, {"trainer.secrets": ("A_NAME",)}, A_NAME="x")
    assert (code, "gpu-b: A_NAME is not set" in said) == (69, True), said
    code, said, _ = refused(pair, {"nodes.hosts": ("gpu-a", "nowhere")})
    assert (code, "nowhere: " in said) == (69, True), said
    code, said, _ = refused(pair, {"nodes.hosts": ("gpu-b", "gpu-a")})
    assert (code, "gpu-a: it is the machine on which this was started" in said) == (69, True), said
    netns.require_iptables()
    hosts[0].run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "29500", "-j", "REJECT")
    code, said, plan = refused(pair)
    assert (code, f"gpu-b does not reach port {plan.port}" in said) == (69, True), said


def lock_key(folder, *, old="", new=""):
    words = ["ssh-keygen", "-q", "-p", "-P", old, "-N", new, "-f", folder / "id"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.whole
def test_a_host_that_asks_for_a_password_trains_after_a_login_by_hand(pair):
    environment, hosts, folder = pair
    lock_key(folder, new="correct horse")
    code, said, _ = refused(pair)
    assert (code, "To log in: tui-train hosts login gpu-b" in said) == (69, True), said
    # Nobody is here to type: what the login asks is left out.
    lock_key(folder, old="correct horse")
    tui(hosts[0], environment | {"PYTHONPATH": str(ROOT)}, "hosts", "login", "gpu-b")
    lock_key(folder, new="correct horse")
    run, _ = exported_for(folder, hosts)
    code, said = ended(start(hosts[0], run, environment))
    assert code == 0, said + log_of(run)
    assert "host gpu-b" in log_of(run)
    (facts_of_b,) = probed(hosts[0], environment, "gpu-b")
    assert facts_of_b == ""


def probed(host, environment, *names):
    """Why hosts cannot be asked as the wizard asks them, empty where they can."""
    code = "import sys; from tui_train.facts.other_machines.training_hosts import probe_hosts\n"
    code += "print([host.problem for host in probe_hosts(sys.argv[1:], sys.executable, []).values()])"
    words = host.words(sys.executable, "-c", code, *names)
    done = subprocess.run(
        words, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


@pytest.mark.whole
@pytest.mark.parametrize("closed", ["gpu-a", "gpu-b"])
def test_a_closed_random_port_is_named_with_its_direction_before_the_start(pair, closed):
    netns.require_iptables()
    environment, hosts, folder = pair
    netns.close_random_ports(hosts[closed == "gpu-b"], but=(29500,))
    code, said, _ = refused(pair)
    direction = {"gpu-a": "from gpu-b to this machine", "gpu-b": "from this machine to gpu-b"}[closed]
    assert (code, "random ports are closed" in said, said.count("this machine")) == (69, True, 1), said
    assert direction in said, said
    # A training that names its network interface may use another network than the one that would be tried.
    run, _ = exported_for(folder, hosts, **{"communication.interface": "eth0"})
    started = start(hosts[0], run, environment)
    wait_until(lambda: "attempt_started" in run.events_file.read_text(), 60)
    stop(hosts[0], run, "--now")
    ended(started)


@pytest.mark.whole
def test_a_host_that_gets_no_answer_is_named_while_it_waits(pair):
    netns.require_iptables()
    environment, hosts, folder = pair
    for host in hosts:
        netns.close_random_ports(host, but=(29500,), target="DROP")
    run, _ = exported_for(folder, hosts, **{"communication.interface": "eth0"})
    started = start(hosts[0], run, environment)
    wait_until(lambda: "and got no answer: " in log_of(run), 180)
    assert started.poll() is None
    named = re.search(r"launch\.sh: (\S+) waits for (.+) at port (\d+)", log_of(run))
    assert named[1] in {"gpu-a", "gpu-b"}
    assert named[2] == {"gpu-a": "10.213.47.2", "gpu-b": "gpu-a (10.213.47.1)"}[named[1]]
    assert int(named[3]) > 29500
    for host in hosts:
        host.run("iptables", "-F")
    code, said = ended(started)
    assert code == 0, said


@pytest.mark.whole
def test_differences_of_the_hosts_are_findings_before_the_start(pair):
    environment, hosts, folder = pair
    data = folder / "own" / "data.txt"
    data.write_text("words\n" * 99)
    (folder / "old" / "torch").mkdir(parents=True)
    (folder / "old" / "torch" / "__init__.py").touch()
    (folder / "old" / "torch" / "version.py").write_text("__version__ = '1.13.1'\n")
    values = {**VALUES, **other(folder, f"export PYTHONPATH={folder}/old"), "recipe.global_batch": None}
    words = [f"--set={key}={fields.format_value(value)}" for key, value in values.items()]
    environment |= {"PYTHONPATH": str(ROOT)}
    words += ["--set=nodes.hosts=gpu-a,gpu-b,nowhere", f"--set=trainer.data={data}"]
    tui(hosts[0], environment, "new", "both", *words)
    # From another machine, which reaches only the first one.
    said = tui(hosts[1], environment, "run", "both", "--on", "gpu-a", code=69)
    assert "gpu-b: torch 1.13.1" in said, said
    assert f"gpu-b: there is no {data}" in said, said
    assert "nowhere: The name is unknown" in said, said
    said = tui(hosts[0], environment, "plan", "both", "--set=nodes.hosts=gpu-b,gpu-a")
    assert "would start on gpu-a" in said, said
    shutil.rmtree(folder / "old")
    right = ("--set=trainer.data=", "--set=nodes.hosts=gpu-a,gpu-b")
    assert "gpu-b:" not in tui(hosts[0], environment, "plan", "both", *right)


@pytest.mark.whole
def test_the_files_of_a_profile_are_sent_to_its_host(pair):
    environment, hosts, folder = pair
    environment |= {"PYTHONPATH": str(ROOT)}
    own = folder / "own"
    (own / "a 中 'b").mkdir()
    (own / "a 中 'b" / "train.py").write_text("first")
    (own / "data").mkdir()
    (own / "blob").write_text("x" * 5000)
    (own / "data" / "part.txt").symlink_to("../blob")
    (own / "lib").mkdir()
    (own / "lib" / "model.py").write_text("size = 1")
    (own / ".env").write_text("KEY=secret")
    values = {"trainer.kind": "script", "trainer.script": f"{own}/a 中 'b/train.py", "trainer.data": (f"{own}/data",)}
    values["trainer.working_directory"] = str(own)
    words = [f"--set={key}={fields.format_value(value)}" for key, value in values.items()]
    tui(hosts[0], environment, "new", "mine", *words, "--set=hardware.host=gpu-b")
    assert "No such file" in hosts[1].run("ls", str(own / "data"))
    assert "nothing was sent: there is no terminal to ask on" in tui(hosts[0], environment, "send", "mine", code=65)
    tui(hosts[0], environment, "send", "mine", "--yes")
    assert hosts[1].run("cat", f"{own}/lib/model.py") == "size = 1"
    assert hosts[1].run("cat", f"{own}/a 中 'b/train.py", f"{own}/data/part.txt") == "first" + "x" * 5000
    assert "No such file" in hosts[1].run("ls", str(own / ".env"))
    none = ("--set=trainer.script=/not/there", "--set=trainer.data=")
    assert "no files to send" in tui(hosts[1], environment, "send", "mine", *none, code=65)


@pytest.mark.whole
def test_clocks_apart_are_said(pair):
    environment, hosts, folder = pair
    ahead = 'set -- "${@//time.time()/time.time() + 3600}"'
    run, _ = exported_for(folder, hosts, **other(folder, ahead))
    code, said = ended(start(hosts[0], run, environment))
    assert code == 0, said
    assert re.search(r"clock of gpu-b is 3\d\d\d s ahead", said)


# ---- by the program itself


def tui(host, environment, *words, code=0):
    """What the program prints on a host."""
    done = subprocess.run(
        host.words(sys.executable, "-m", "tui_train", *words), env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.whole
@pytest.mark.parametrize("host", ["", "gpu-a"])
def test_the_program_starts_stops_resumes_and_shows_it(folder, host):
    """On the first host, or from another machine that has a copy of the run."""
    with netns.run_hosts(folder, "gpu-a", "gpu-b", "laptop", hidden=(folder / "runs",)) as (environment, hosts):
        at = hosts[2] if host else hosts[0]
        own = folder / "laptop"
        places = {f"XDG_{name}_HOME": str(own / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
        environment |= {"PYTHONPATH": str(ROOT), **places}
        values = {**VALUES, **LONG, "recipe.steps": 200}
        words = [f"--set={key}={fields.format_value(value)}" for key, value in values.items()]
        words += ["--set=nodes.hosts=gpu-a,gpu-b", f"--set=hardware.host={host}"]
        tui(at, environment, "new", "both", *words)
        assert "Slurm" not in tui(at, environment, "plan", "both")
        tui(at, environment, "run", "both", "--detach")
        # Where it runs, and, from another machine, in the copy there.
        wait_until(lambda: sum(path.read_text().count("'loss'") > 2 for path in folder.rglob("attempt-1.log")), 120)
        assert "running" in tui(at, environment, "runs")
        assert "no process of it is left" in tui(at, environment, "stop", "last")
        assert not netns.training_processes(hosts)
        tui(at, environment, "resume", "last")
        (run,) = json.loads(tui(at, environment, "runs", "--json"))
        assert run["state"] == "finished"
        (events,) = {path.read_text() for path in folder.rglob("events.jsonl")}
        starts = [json.loads(line) for line in events.splitlines() if '"attempt_started"' in line]
        assert starts[1]["resumed"] > 0, events
