"""A real Slurm on this machine: a controller and two nodes, whose daemons and files are in a temporary folder."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import warm
from support import free_port, profile

from tui_train.profile.store import save_profile
from tui_train.runs import run_folders

_DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
# A requeued job waits for as long as credentials may last: two minutes, or these seconds.
_EXPIRE = 5
_NODES = 2
_SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire={expire}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=20
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MailProg=/bin/true
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
"""


def why_unavailable() -> str:
    """Reason why no Slurm can be started here; empty where it can."""
    absent = [name for name in (*_DAEMONS, *COMMANDS) if not shutil.which(name, path=_PATH)]
    return f"{', '.join(absent)}: apt-get install slurm-wlm munge" if absent else ""


@contextlib.contextmanager
def run_cluster(*, gpus: str = "", accounting: bool = False) -> Iterator[dict[str, str]]:
    """Run a Slurm of nodes n1 and n2 and give the environment that leads its commands to it.

    Skips, saying so, where its packages are missing. Partition `debug` is the default; `long` has no time limit.
    With `gpus`, such as `a100:4`, a node n0 claims to have these, alone in the partition `gpu`. With `accounting` there
    is a slurmdbd with a database of its own.
    """
    if why := why_unavailable():
        pytest.skip(f"NOT TESTED: no real Slurm: {why}")
    ports = [free_port() for _ in range(_NODES + 2)]
    with contextlib.ExitStack() as daemons:
        folder = Path(daemons.enter_context(tempfile.TemporaryDirectory(prefix="tui-train-slurm-")))
        _write_configuration(folder, ports)
        if gpus:
            _add_gpus(folder, ports[-1], gpus)
        environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        daemons.enter_context(_run_daemon(
            folder, "munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
            f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munged.seed",
        ))  # fmt: skip
        _wait_until(folder, (folder / "munge.sock").exists)
        if accounting:
            daemons.enter_context(_run_accounting(folder, environment))
        daemons.enter_context(_run_daemon(folder, "slurmctld", "-D", "-c", **environment))
        _wait_until(folder, lambda: _is_port_open(ports[0]))
        for number in range(1, _NODES + 1):
            daemons.enter_context(_run_daemon(folder, "slurmd", "-D", "-N", f"n{number}", **environment))
        if gpus:
            daemons.enter_context(_run_daemon(folder, "slurmd", "-D", "-N", "n0", **environment))
        _wait_until(folder, lambda: _idle_node_count(environment) == _NODES)
        yield environment
        subprocess.run(["scancel", "--state=PENDING"], env={**os.environ, **environment}, check=False)
        subprocess.run(["scancel", "--signal=KILL", "--state=RUNNING"], env={**os.environ, **environment}, check=False)
        _wait_until(folder, lambda: not _listed_jobs(environment), 30)


def kill_node(environment: dict[str, str], node: str) -> None:
    """Kill all processes of a node at once, as where its power is cut, and tell the controller that it is down."""
    daemons, tasks = set(), set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            variables = process.environ()
            if variables.get("SLURM_CONF") != environment["SLURM_CONF"]:
                continue
            if process.cmdline()[:4] == ["slurmd", "-D", "-N", node]:
                daemons.add(process)
            elif variables.get("SLURMD_NODENAME") == node:
                tasks.add(process)
                parent = process.parent()
                daemons |= {parent} if parent and parent.name() == "slurmstepd" else set()
    # Those that would report the end of the tasks go first.
    for process in (*daemons, *tasks):
        with contextlib.suppress(psutil.Error):
            process.kill()
    down = ["scontrol", "update", f"nodename={node}", "state=down", "reason=power"]
    subprocess.run(down, env={**os.environ, **environment}, check=True)


def _write_configuration(folder: Path, ports: list[int]) -> None:
    folder.chmod(0o755)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    host = socket.gethostname().partition(".")[0]
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    lines = [_SLURM_CONF.format(host=host, port=ports[0], user=user, folder=folder, expire=_EXPIRE)]
    for number in range(1, _NODES + 1):
        (folder / "spool" / f"n{number}").mkdir(parents=True)
        address = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[number]}"
        lines.append(f"NodeName=n{number} {address} CPUs=2 RealMemory=4000\n")
    lines.append(f"PartitionName=debug Nodes=n[1-{_NODES}] Default=YES MaxTime=01:00:00 DefaultTime=10 State=UP\n")
    lines.append(f"PartitionName=long Nodes=n[1-{_NODES}] MaxTime=INFINITE State=UP\n")
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text("".join(lines))


@contextlib.contextmanager
def _run_accounting(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a database and slurmdbd, which slurm.conf names from then on; skips where they are not installed."""
    programs = ("mariadbd", "mariadb-install-db", "mariadb", "slurmdbd")
    if absent := [name for name in programs if not shutil.which(name, path=_PATH)]:
        pytest.skip(f"NOT TESTED: accounting of Slurm: {', '.join(absent)}: apt-get install slurmdbd mariadb-server")
    database_port, port, data = free_port(), free_port(), folder / "database"
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    options = [f"--datadir={data}", f"--user={user}"]
    install = ["mariadb-install-db", "--no-defaults", *options, "--auth-root-authentication-method=normal"]
    searched = {**os.environ, "PATH": _PATH}
    subprocess.run([*install, "--skip-test-db"], env=searched, check=True, capture_output=True)
    with contextlib.ExitStack() as daemons:
        daemons.enter_context(_run_daemon(
            folder, "mariadbd", "--no-defaults", *options, f"--port={database_port}", "--bind-address=127.0.0.1",
            f"--socket={folder}/database.sock", "--innodb-buffer-pool-size=64M",
        ))  # fmt: skip
        _wait_until(folder, (folder / "database.sock").exists)
        users = "CREATE USER slurm@localhost IDENTIFIED BY 'slurm'; GRANT ALL ON *.* TO slurm@localhost"
        client = ["mariadb", "--no-defaults", f"--socket={folder}/database.sock", "-u", "root"]
        subprocess.run([*client, "-e", users], env=searched, check=True)
        (folder / "slurmdbd.conf").write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={folder}/munge.sock\nDbdHost=localhost\nDbdPort={port}\n"
            f"SlurmUser={user}\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={database_port}\nStorageUser=slurm\nStoragePass=slurm\nPidFile={folder}/slurmdbd.pid\n"
            f"LogFile={folder}/slurmdbd.log\n"
        )
        (folder / "slurmdbd.conf").chmod(0o600)
        daemons.enter_context(_run_daemon(folder, "slurmdbd", "-D", **environment))
        _wait_until(folder, lambda: _is_port_open(port))
        conf = folder / "slurm.conf"
        text = conf.read_text().replace("accounting_storage/none", "accounting_storage/slurmdbd")
        conf.write_text(
            f"{text}AccountingStorageHost=127.0.0.1\nAccountingStoragePort={port}\n"
            f"AccountingStoragePass={folder}/munge.sock\n"
        )
        for words in (("cluster", "test"), ("account", "lab"), ("qos", "long"), ("user", user, "account=lab")):
            subprocess.run(["sacctmgr", "-i", "add", *words], env={**searched, **environment}, check=True)
        subprocess.run(
            ["sacctmgr", "-i", "modify", "user", user, "set", "qos=normal,long"],
            env={**searched, **environment}, check=True,
        )  # fmt: skip
        yield


def _add_gpus(folder: Path, port: int, gpus: str) -> None:
    """Add the node n0 with GPUs that are only counted: no device is there."""
    kind, _, count = gpus.partition(":")
    for number in range(int(count)):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(
        f"AutoDetect=off\nNodeName=n0 Name=gpu Type={kind} File={folder}/gpu[0-{int(count) - 1}]\n"
    )
    (folder / "spool" / "n0").mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    with (folder / "slurm.conf").open("a") as conf:
        address = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        conf.write(f"GresTypes=gpu\nNodeName=n0 {address} CPUs=8 RealMemory=64000 Gres=gpu:{gpus}\n")
        conf.write("PartitionName=gpu Nodes=n0 MaxTime=2-00:00:00 State=UP\n")


@contextlib.contextmanager
def _run_daemon(folder: Path, *words: str, **environment: str) -> Iterator[None]:
    with (folder / "daemons.log").open("ab") as log:
        process = subprocess.Popen(
            words, env={**os.environ, **environment, "PATH": _PATH}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_port_open(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def _idle_node_count(environment: dict[str, str]) -> int:
    return len(_output_lines(environment, "sinfo", "-h", "-N", "-p", "debug", "-t", "idle"))


def _listed_jobs(environment: dict[str, str]) -> list[str]:
    return _output_lines(environment, "squeue", "-h", "-o", "%i")


def _output_lines(environment: dict[str, str], *words: str) -> list[str]:
    env = {**os.environ, **environment}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False).stdout.splitlines()


def _wait_until(folder: Path, condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace")[-1500:] for path in folder.glob("*.log"))
            raise RuntimeError(f"Slurm does not start or end in time:\n{logs}")
        time.sleep(0.05)


SAVING_SCRIPT = """
import os, signal, sys, time
folder, steps = sys.argv[1], int(sys.argv[2])
given = sys.argv[3] if len(sys.argv) > 3 else ""
begun = int(given.rpartition("-")[2]) if given else 0
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
for step in range(begun + 1, steps + 1):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
    if stop:
        os.makedirs(f"{folder}/checkpoint-{step}")
        open(f"{folder}/checkpoint-{step}/trainer_state.json", "w").write("{}")
        sys.exit(143)
os.makedirs(folder, exist_ok=True)
open(f"{folder}/made.txt", "w").write("done")
"""
SAVING_PRESET = """\
label = "saves"
about = "saves when it is stopped"
arguments = [{ words = ["{output}", "{steps}"] }]

[checkpoints]
prefix = "checkpoint-"
complete = ["trainer_state.json"]
resume = ["{checkpoint}"]

[stop]
grace = 5
"""


def run_cli(*words, code=0, timeout=300):
    """Run the program; where it fails, with the log of the launcher."""
    done = subprocess.run(
        warm.cli_command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done.stdout + done.stderr + _launcher_log()
    return done


def _launcher_log():
    return "".join(run.launch_log.read_text() for run in run_folders.list_runs()[:1] if run.launch_log.exists())


def save_saving_profile(tmp_path, steps, **values):
    """The saved profile `job` of a script that counts its steps, and saves where it is stopped."""
    (tmp_path / "train.py").write_text(SAVING_SCRIPT)
    presets = Path(os.environ["XDG_CONFIG_HOME"], "tui-train", "presets")
    presets.mkdir(parents=True, exist_ok=True)
    (presets / "saves.toml").write_text(SAVING_PRESET)
    chosen = profile({
        "name": "job",
        "trainer.kind": "script",
        "trainer.preset": "saves",
        "trainer.script": f"{tmp_path}/train.py",
        "trainer.python": sys.executable,
        "recipe.steps": steps,
        "hardware.device": "cpu",
        **values,
    })  # fmt: skip
    save_profile(chosen, overwrite=True)


def logged_steps(run, attempt):
    return [int(step) for step in re.findall(r"^step (\d+)$", run.attempt_log(attempt).read_text(), re.MULTILINE)]
