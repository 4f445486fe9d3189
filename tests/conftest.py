"""Fixtures: folders of its own for each test's profiles and runs, and those that tests of several folders use."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import container_engines
import psutil
import pytest
import try_counts
import warm
from chat_data import ANSWER_MARKING_TEMPLATE
from hypothesis import HealthCheck, settings
from pilot import BARE_PYTHON, CPU_MACHINE, CUDA_PYTHON, DOCKER_ENGINE
from support import RUN_WHOLE_MATRICES, SCRIPTS, SHARED_CACHE, living_run_pids, set_variables
from training_results import make_chat_model, run_that_left

from tui_train.facts.gpus import live_samples
from tui_train.facts.machine import container_images, probe
from tui_train.facts.machine.child_process import set_children_cancelled
from tui_train.runner.queue.tickets import OwnTicket, QueueFolder, ticket_name
from tui_train.runner.queue.turns import ResourceRequest, Ticket
from tui_train.runner.run_folder.lock_owner import this_process_as_owner
from tui_train.runs.run_folders import list_runs
from tui_train.runs.status import read_status

# Whoever starts tests in the background leaves Ctrl-C ignored, nohup a hang-up, in every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Another test may have the processor.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """Keep the developer's own profiles and runs out of the tests, and the tests out of them."""
    home = tmp_path_factory.mktemp("xdg")
    for name in ("CONFIG", "STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    monkeypatch.setenv("TUI_TRAIN_QUEUE", str(home / "queue"))
    (home / "cache" / "tui-train").mkdir(parents=True)
    (home / "cache" / "tui-train" / "runner").symlink_to(Path(SHARED_CACHE) / "tui-train" / "runner")


@pytest.fixture
def queued():
    """Have this process take a card in the queue, or wait for it, as a run of a name; until the test has ended."""
    tickets = []

    def ask(name, card, *, waits=False):
        request = ResourceRequest((card,), 1)
        owner = this_process_as_owner(name, f"/runs/{name}")
        ticket = Ticket(
            ticket_name(f"{len(tickets)}-{name}"), os.geteuid(), owner, request, waits, () if waits else (card,)
        )
        tickets.append(OwnTicket(QueueFolder(make=True), ticket))

    yield ask
    for ticket in tickets:
        ticket.release()


@pytest.fixture(autouse=True)
def _accept_questions_again():
    """A wizard that was left gives up all questions of its process, which has other tests to come."""
    set_children_cancelled(cancelled=False)


@pytest.fixture(scope="session", autouse=True)
def _warm(tmp_path_factory):
    """Folder in which the workers share the servers of warm.py; the first that needs one starts it."""
    base = tmp_path_factory.getbasetemp()
    warm.server_folders[:] = [base.parent if "PYTEST_XDIST_WORKER" in os.environ else base]
    yield
    warm.close_servers()


@pytest.fixture(scope="session")
def warm_python(_warm):
    """A Python that has imported what trains."""
    return warm.training()


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory, warm_python):
    """Return the folder of a tokenizer with a chat template, each made once."""
    made = {}

    def make(template=None):
        if template not in made:
            folder = tmp_path_factory.mktemp("tokenizer")
            words = []
            if template is not None:
                (folder / "template").write_text(template)
                words = [f"--template={folder}/template"]
            done = subprocess.run(
                [warm_python, str(SCRIPTS / "tokenizer.py"), str(folder), *words], capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr[-500:]
            made[template] = str(folder)
        return made[template]

    return make


@pytest.fixture(scope="session")
def model(tmp_path_factory, warm_python):
    """The folder of a small model with a chat template that marks answers."""
    folder = tmp_path_factory.mktemp("model") / "tiny-qwen"
    folder.mkdir()
    (folder / "template").write_text(ANSWER_MARKING_TEMPLATE)
    words = [warm_python, str(SCRIPTS / "tokenizer.py"), str(folder), "--with-model", f"--template={folder}/template"]
    subprocess.run(words, check=True, capture_output=True)
    return folder


@pytest.fixture
def machine(monkeypatch):
    """Make the probe tell of a machine that is not this one, so that pictures are the same everywhere."""

    def be(found):
        monkeypatch.setattr(probe, "probe_machine", lambda *_args, **_named: found)
        monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (CUDA_PYTHON, BARE_PYTHON))
        monkeypatch.setattr(container_images, "read_engines", lambda: (DOCKER_ENGINE,))

    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    if "HF_HOME" not in os.environ:
        # The models of this machine are not in the pictures.
        monkeypatch.setenv("HF_HUB_CACHE", "/not/there")
    monkeypatch.setattr(live_samples, "yield_changed_samples", lambda _cancelled: iter(()))
    be(CPU_MACHINE)
    return be


@pytest.fixture
def terminals():
    """Collect the test's terminals, and close them and end all runs after it."""
    opened = []
    yield opened
    for terminal in opened:
        terminal.child.close(force=True)
    for run in list_runs():
        for pid in (read_status(run).pid, *living_run_pids(read_status(run).mark or "-")):
            if pid > 1 and psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session", params=["docker", "podman"])
def engines(request):
    """An engine that is started for these tests alone, and its name."""
    if why := container_engines.why_unavailable(request.param):
        pytest.skip(f"NOT TESTED: no real {request.param}: {why}")
    # Not below pytest's own folder: the path of a socket is short.
    folder = Path(tempfile.mkdtemp(prefix="tui-train-"))
    folder.chmod(0o755)
    made = {"docker": container_engines.Docker, "podman": container_engines.Podman}[request.param](folder)
    yield request.param, made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def engine(engines, monkeypatch):
    """The engine's name, with the environment that leads to it; whatever runs in it is ended afterwards."""
    name, made = engines
    set_variables(monkeypatch, made.environment)
    monkeypatch.setenv("TUI_TRAIN_GRACE", "5")
    yield name
    if left := made.run("ps", "-aq").stdout.split():
        made.run("rm", "-f", *left)


@pytest.fixture
def containers(engine, engines):
    """Return the names of all containers there are, running or not."""

    def names():
        return engines[1].run("ps", "-a", "--format", "{{.Names}}").stdout.split()

    return names


def pytest_collection_modifyitems(config, items):
    """Count what is tried by a test for each try; one engine does for what both do alike."""
    try_counts.mark_single_tries(items)
    if not RUN_WHOLE_MATRICES:
        kept = [item for item in items if not is_only_for_whole_matrices(item)]
        config.hook.pytest_deselected(items=[item for item in items if is_only_for_whole_matrices(item)])
        items[:] = kept


def is_only_for_whole_matrices(item):
    """True for a test that only runs with whole matrices."""
    of_second_engine = hasattr(item, "callspec") and item.callspec.params.get("engines") == "podman"
    return of_second_engine or bool(item.get_closest_marker("whole"))


def pytest_terminal_summary(terminalreporter):
    """Say how often what was tried, and what this machine could not test: a skipped test alone is easily overlooked."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    for line in try_counts.tries_table(reports):
        terminalreporter.write_line(line)
    reasons = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()) if report.longrepr}
    for reason in sorted(reason for reason in reasons if "NOT TESTED" in reason):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tiny base model, and another one that stands for what was trained of it."""
    folder = tmp_path_factory.mktemp("models")
    return make_chat_model(folder / "base"), make_chat_model(folder / "tuned", "--seed=1")


@pytest.fixture
def full_run(tmp_path, models):
    """A run whose output is a full model."""
    base, tuned = models
    return run_that_left(tuned, tmp_path / "run", base)


@pytest.fixture
def mounted(tmp_path):
    """Mount something on a folder for the time of a test."""
    folder = tmp_path / "mounted"
    folder.mkdir()

    def mount(*arguments):
        subprocess.run(["mount", *arguments, folder], check=True)
        return folder

    yield mount
    subprocess.run(["umount", "-l", folder], check=False)
