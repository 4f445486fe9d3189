"""Helpers of many tests: machines and profiles made by hand, run folders, a stub interpreter, and waiting."""

import atexit
import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import psutil
import pytest
import warm

from tui_train import checks
from tui_train.actions.environments import pip_settings
from tui_train.base.command import argv
from tui_train.facts.types import ContainerEngine, ContainerImage, Facts, Gpu, Machine, NemoRecipes, Toolchain
from tui_train.memory.data_defaults import make_setup
from tui_train.plan.plan import make_plan as planned
from tui_train.plan.render import prepare as preparing
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.profile import fields
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, accepted_placeholders, shipped_presets
from tui_train.profile.types import Profile
from tui_train.runner.system.processes import ProcessFamily, machine_boot_id, process_with_pid
from tui_train.runs import run_folders
from tui_train.runs.local_start import start_run
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

GIB = 2**30
UUIDS = ("GPU-ac50e9bd-5330-6ce2-2d4b-8f95df663b60", "GPU-ff67d0d7-648f-d302-c50e-49297407cd04")
SCRIPTS = Path(__file__).parent / "scripts"
# bash itself sets these in whatever it starts.
BASH_OWN_VARIABLES = {"PWD", "OLDPWD", "SHLVL", "_"}

# A sample of each matrix, unless TUI_TRAIN_TEST_MATRIX says that all of it is tried.
RUN_WHOLE_MATRICES = os.environ.get("TUI_TRAIN_TEST_MATRIX") == "all"

# Values that a careless script would split, expand, run or lose.
HOSTILE_VALUES = (
    "two words",
    " spaces around ",
    "it's",
    '"quoted"',
    "a'b\"c",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "&& touch pwned || touch pwned",
    "$HOME ${PATH} $$",
    "line\nbreak",
    "\nbefore and after\n",
    "tab\tand\rreturn",
    "中文 数据",
    "🚀 é",
    "-n",
    "--help",
    "=",
    "a=b",
    "[a]=b",
    "#no comment",
    "*",
    "?[a-z]{a,b}",
    "~",
    "~root",
    "!!",
    "back\\slash\\",
    "\\",
    "%s%n",
    "{steps} {unknown} {}",
    "\x07bell \x1b[31mred",
    "\u202eright to left",
    "\\\n$'\\n' <(touch pwned) \x85\u2028\ufeff @TUI_TRAIN_RUN_DIR@ ${settings[@]}\nEOF\ntouch pwned\n",
    "",
)  # fmt: skip


def sample(cases, every, first=0):
    """One of so many cases, in their order; all of them where whole matrices are tried."""
    cases = [*cases]
    return cases if RUN_WHOLE_MATRICES else cases[first::every]


def example_count(number):
    """A fifth of so many examples; all of them where whole matrices are tried."""
    return number if RUN_WHOLE_MATRICES else -(-number // 5)


def gpu(index, uuid="", **more):
    """A card that can train: an RTX 3090 unless told otherwise."""
    more = {
        "name": "NVIDIA GeForce RTX 3090",
        "compute_capability": "8.6",
        "memory_total": 24 * GIB,
        "sm_count": 82,
    } | more
    return Gpu(
        index=index,
        uuid=uuid or UUIDS[index],
        memory_free=more["memory_total"],
        pci_bus=f"00000000:0{index}:00.0",
        **more,
    )


def machine(cpu_count=2, gpus=()):
    driver = {"driver_version": "570.86.15", "driver_cuda": "12.8"} if gpus else {}
    return Machine(hostname="box", cpu_count=cpu_count, memory_total=64 * GIB, gpus=tuple(gpus), **driver)


def toolchain(python=sys.executable, **changed):
    """A Python that has everything but NeMo; `changed` are fields of it."""
    usual = {
        "arch_list": ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
        "version": "3.11.7",
        "torch": "2.13.0",
        "cuda": "12.8",
        "accelerate": "1.15.0",
        "transformers": "5.23.0",
        "packages": {"axolotl": "0.19.0", "llamafactory": "0.9.5"},
    }
    return Toolchain(python=str(python), **(usual | changed))


def facts(*, python=sys.executable, cpu_count=2, gpus=(), paths=None, recipes=None, **of_python):
    """A machine with one Python, of which `of_python` are fields; `recipes` by Python, or why they cannot be listed."""
    told = {
        name: NemoRecipes(problem=found) if isinstance(found, str) else NemoRecipes(found)
        for name, found in (recipes or {}).items()
    }
    tools = (toolchain(python, **of_python),)
    return Facts(machine=machine(cpu_count, gpus), toolchains=tools, paths=paths or {}, recipes=told)


def boxed(engine="docker", image="nemo:25.04", *, gpus=(), paths=None, about=None, **of_python):
    """A machine with one engine and one image; `about` are fields of the engine, `of_python` of the image's Python."""
    inside = toolchain("/usr/bin/python", label=image, **of_python)
    return Facts(
        machine=machine(2, gpus),
        paths=paths or {},
        engines=(ContainerEngine(**{"name": engine, "version": "28.2.2", "gpus": True} | (about or {})),),
        images=(ContainerImage(engine=engine, name=image, id="1", toolchain=inside),),
    )


def inside(engine="docker", image="nemo:25.04", **more):
    """The values of a profile that trains in a container."""
    return {"container.engine": engine, "container.image": image} | dotted(more)


def dotted(values):
    """The values of a profile by their keys, of which words of Python may have `__` for a dot."""
    return {key.replace("__", "."): value for key, value in values.items()}


def profile(values=None, base=None, **more):
    """A profile with these values put at these keys; most scripts in it are only names, so their preset is named."""
    made, values = base or Profile(), {**(values or {}), **dotted(more)}
    if values.get("trainer.kind") == "script" and "trainer.preset" not in values:
        made = fields.profile_with_value(made, "trainer.preset", "hf-trainer")
    for key, value in values.items():
        made = fields.profile_with_value(made, key, value)
    return made


def sleeper_profile(*arguments, **more):
    """A profile whose training is tests/scripts/sleeper.py with these arguments."""
    values = {
        "name": "sleeper",
        "hardware.device": "cpu",
        "trainer.kind": "script",
        "trainer.preset": "custom",
        "trainer.script": str(SCRIPTS / "sleeper.py"),
        "trainer.arguments": arguments,
        "trainer.python": sys.executable,
    }
    return profile(values, **more)


def pids_with_argument(word):
    """The processes that have a word among their arguments, found without what the program knows of them."""
    known = psutil.process_iter(["cmdline", "status"])
    living = [process for process in known if process.info["status"] != psutil.STATUS_ZOMBIE]
    return [process.pid for process in living if word in (process.info["cmdline"] or [])]


# A whole recipe, as of somebody who leaves nothing to the trainer.
FULL_RECIPE = {
    "recipe.layers": 4,
    "recipe.hidden_size": 128,
    "recipe.heads": 4,
    "recipe.sequence_length": 128,
    "recipe.micro_batch": 8,
    "recipe.global_batch": 16,
    "recipe.learning_rate": 3e-3,
    "recipe.precision": "fp32",
    "recipe.steps": 60,
    "recipe.activation_checkpointing": False,
    "recipe.checkpoint_every": 20,
    "recipe.seed": 1,
}


def values_taken_by_preset(values, own=None):
    """A whole recipe with these values, without what the preset that they name does not take; ours takes any."""
    if values.get("trainer.kind") != "script":
        return values
    chosen = own or shipped_presets()[values.get("trainer.preset", "hf-trainer")]
    keys = {
        KEY_BY_PLACEHOLDER[name] for name in accepted_placeholders(chosen, tuple(values.get("trainer.arguments", ())))
    }
    keys |= {"recipe.precision"} if values.get("trainer.launcher") == "accelerate" else set()
    values = {**FULL_RECIPE, **values}
    return {key: value for key, value in values.items() if not key.startswith("recipe.") or key in keys}


def findings_of(profile, facts):
    """The findings of a profile on a machine."""
    return checks.find_problems(make_setup(profile, facts))


def prepare(profile, facts):
    """The findings, plan and files of a profile on a machine."""
    return preparing.prepare_plan(make_setup(profile, facts))


def prepare_without_errors(chosen, found):
    """Findings, plan and files of a profile on a machine; fails where a finding prevents the plan."""
    prepared = prepare(chosen, found)
    assert prepared.plan is not None, prepared.findings
    return prepared


def create_run(chosen, found=None, name=""):
    """A run folder of this user for a profile, which is not started."""
    return run_folders.create_run_folder(name or chosen.name, prepare_without_errors(chosen, found or facts()).files)


def export_run(folder, chosen, found):
    """The run folder that Export writes, and its plan."""
    prepared = prepare_without_errors(chosen, found)
    run_folders.export_plan_files(Path(folder), prepared.files)
    return RunFolder(Path(folder)), prepared.plan


def write_attempt_events(run, seconds, state="finished", *, began=1000.0, position=1, **end):
    """Write down that a run had one attempt, and how that ended."""
    over = {"time": began + seconds, "exit_code": 0}
    events = [
        {"time": began, "event": "run_started", "mark": "m", "pid": 1, "start_ticks": 0, "boot_id": "none"},
        {"time": began, "event": "attempt_started", "attempt": 1, "position": position},
        {"event": "attempt_ended", "attempt": 1, **over, **end},
        {"event": "run_ended", "state": state, **over},
    ]
    run.events_file.write_text("".join(f"{json.dumps(event)}\n" for event in events))


# What all runs of a test session keep in common: the modules of the runner, compiled.
SHARED_CACHE = tempfile.mkdtemp(prefix="tui-train-cache-")
atexit.register(shutil.rmtree, SHARED_CACHE, ignore_errors=True)
(Path(SHARED_CACHE) / "tui-train" / "runner").mkdir(parents=True)


def plain_environment(**more):
    """An environment without this machine's own settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TUI_TRAIN_QUEUE") if name in os.environ}
    return {**kept, "XDG_CACHE_HOME": SHARED_CACHE, "LC_ALL": "C.UTF-8", **more}


def set_variables(monkeypatch, variables):
    """Have environment variables until a test has ended."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def install_packages(folder, *words):
    """Install packages without what they need into a folder, by uv where it is there; why it failed, or nothing."""
    given = ["install", "-q", "--no-deps", "--target", folder, *words]
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {**os.environ, **pip_settings.uv_variables(pip_settings.read_pip_settings(sys.executable))}
    uv = shutil.which("uv", path=beside)
    command = [uv, "--no-config", "pip", *given[:1], "--python", sys.executable, *given[1:]] if uv else None
    if command and subprocess.run(command, env=settings, capture_output=True, check=False).returncode == 0:
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "pip", *given], capture_output=True, text=True, check=False)
    return done.stderr[-300:] if done.returncode else ""


def package_folder(requirement, what, temporary):
    """Folder of a package without its dependencies, installed once; skips the test where that fails."""
    folder = Path(__file__).parent / ".built" / requirement.replace("==", "-")
    if not folder.is_dir():
        if said := install_packages(temporary / "lib", requirement, "--compile"):
            pytest.skip(f"NOT TESTED: {what}: {requirement} cannot be installed: {said}")
        folder.parent.mkdir(exist_ok=True)
        own = f"{folder}.{os.getpid()}"
        # With the times of its files: by them Python knows what it has compiled.
        subprocess.run(["cp", "-a", temporary / "lib", own], check=True)
        try:
            Path(own).rename(folder)
        except OSError:  # another worker was first
            shutil.rmtree(own)
    return str(folder)


def run_launch_script(run, *arguments, env=None, timeout=120):
    """Run a run folder's launch.sh to its end."""
    return subprocess.run(
        ["bash", str(run.launch_script), *arguments],
        env=plain_environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def run_cli(*words, code=0, **more):
    """Run the program to its end, in a Python that has imported it; nothing it says is ever a traceback."""
    options = {"capture_output": True, "text": True, "timeout": 240, **more}
    if "input" not in more:
        options["stdin"] = subprocess.DEVNULL
    done = subprocess.run(warm.cli_command(*words), check=False, **options)
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done


def make_stub(path):
    """Make an executable that notes how it was started, says $STUB_SAYS and ends with $STUB_CODE."""
    return script_at(path, "stub.py")


def make_engine_stub(path):
    """Make an executable that stands in for a container engine, under its name."""
    return script_at(path, "engine.py")


def script_at(path, script):
    """Make an executable of one of tests/scripts/."""
    return make_executable(path, f"#!{Path(sys.executable).resolve()} -IS\n" + (SCRIPTS / script).read_text())


def make_executable(path, text):
    """Make an executable of this text, and the folder that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def stub_calls(folder):
    """The starts of the stub, in order: argv, env and cwd of each."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def plan(profile, facts):
    """The plan of a profile, as both front ends make it."""
    setup = make_setup(profile, facts)
    return planned(setup, checks.find_problems(setup))


def words_after_script(chosen, found):
    """The words of a plan's command after the script's name."""
    command = argv(plan(chosen, found).attempts[0].command, "/run")
    return command[command.index(chosen.trainer.script) + 1 :]


def wait_until(condition, seconds=20.0, what=""):
    """Wait for a condition, and return its value; fail when it does not come true. A file may not be there yet."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        try:
            value = condition()
        except FileNotFoundError:
            value = None
        if value:
            return value
        assert time.monotonic() < deadline, what or "it did not come true in time"
        # Looks that cost much would slow what is waited for.
        time.sleep(min(0.5, max(0.02, 4 * (time.monotonic() - began))))


# Below the ports that the kernel gives to whoever asks for any; each worker has a thousand of its own.
_FIRST_PORT = 1000 * (10 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 20)
_PORT_OFFSETS = itertools.count(os.getpid())


def free_port():
    """A port that no other test is given: not of this worker, nor of one that runs beside it."""
    for _ in range(1000):
        port = _FIRST_PORT + next(_PORT_OFFSETS) % 1000
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("", port))
            return port
    pytest.fail(f"no port from {_FIRST_PORT} to {_FIRST_PORT + 999} is free")


def newest_attempt_log(run):
    attempts = read_status(run).attempts
    return run.attempt_log(attempts[-1].number).read_bytes() if attempts else b""


def running_training(run):
    """Wait until the newest attempt's training prints; return its processes."""
    wait_until(lambda: run.events() and b"tick" in newest_attempt_log(run), 60)
    return living_run_pids(read_status(run).mark)


def start_training(run):
    """Start a run, and wait until it trains; return its processes."""
    start_run(run)
    return running_training(run)


def living_run_pids(mark, leader=0):
    """The living processes of a run, but for its supervisor."""
    return tuple(sorted(ProcessFamily(mark, process_with_pid(leader)).living_ticks_by_pid()))


def start_folder_holder(folder):
    """A process that stands for the supervisor of a run: it lives for two minutes and holds the folder open."""
    opened = os.open(folder, os.O_RDONLY)
    os.set_inheritable(opened, True)
    me = process_with_pid(os.posix_spawnp("sleep", ["sleep", "120"], os.environ, setsid=True))
    os.close(opened)
    return {"pid": me.pid, "start_ticks": me.ticks, "boot_id": machine_boot_id(), "mark": "m"}


def old_python():
    """The oldest Python that the supervisor runs on; None where there is none here."""
    found = [*Path("~/.pyenv/versions").expanduser().glob("3.8.*/bin/python3.8"), shutil.which("python3.8")]
    for python in filter(None, found):
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(python)
    return None


TRL_PYTHON = os.environ.get("TUI_TRAIN_TEST_TRL", "")
needs_trl = pytest.mark.skipif(
    not TRL_PYTHON,
    reason="NOT TESTED with TRL itself: what it learns of data, for which TUI_TRAIN_TEST_TRL names a Python",
)


def copy_checkout(folder):
    """A copy of this checkout, without what is built in it."""
    left = shutil.ignore_patterns(
        ".git", ".venv", ".built", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist"
    )
    return Path(shutil.copytree(Path(__file__).parents[1], folder / "tui-train", ignore=left))


def make_run_copies(run, count):
    """Copies of a run, which are older the more there are."""
    for number in range(count):
        copy = run.path.with_name(f"2025{number // 28 + 1:02}{number % 28 + 1:02}-120000-copy-{number}")
        shutil.copytree(run.path, copy)
        (copy / ".number").write_text("0\n")


def patch_runner_module(run, module, old, new):
    """Change a module in a run folder's own runner."""
    path = run.path / RUNNER_ZIP_FILE_NAME
    with zipfile.ZipFile(path) as packed:
        texts = {name: packed.read(name).decode() for name in packed.namelist()}
    (name,) = [path for path in texts if path.endswith(f"/{module}")]
    assert old in texts[name]
    texts[name] = texts[name].replace(old, new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in texts.items():
            packed.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)


XDG_VARIABLES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")


def parse_command_lines(tool, lines, path=""):
    """Result of a tool's own parser for command lines; `path` is the folder of another version of it."""
    environment = plain_environment(
        CUDA_VISIBLE_DEVICES="", HF_HOME="/nowhere", **({"PYTHONPATH": path} if path else {})
    )
    python = sys.executable if path else warm.training()
    done = subprocess.run(
        [python, SCRIPTS / "parse.py"], input=json.dumps({"tool": tool, "lines": lines}), env=environment,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
