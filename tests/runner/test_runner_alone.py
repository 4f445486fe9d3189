"""The runner's modules for themselves: nothing but the standard library, under the oldest Python that they name."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import (
    example_count,
    export_run,
    facts,
    old_python,
    plain_environment,
    profile,
    sleeper_profile,
    wait_until,
)

from tui_train.plan.render import runner_file
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.runs.status import read_status

FOLDER = Path(__file__).parents[2] / "tui_train" / "runner"
PACKAGES = {
    path.stem: ".".join(("runner", *path.relative_to(FOLDER).parts[:-1]))
    for path in sorted(FOLDER.rglob("[!_]*.py"))
    if path.parent.name != "questions"
}
OOM = "Traceback (most recent call last):\n  File 'a.py', line 1, in forward\nRuntimeError: CUDA out of memory.\n"
CALLS = {
    "safe_text": "safe_text.visible('a\\x1b') == 'a\\\\x1b'",
    "lines": (
        "lines.lines_left_on_terminal(b'a\\rb') == ['b'] and "
        "lines.styled_lines_left_on_terminal(b'\\x1b[1ma')[0][0].colour == '1'"
    ),
    "curve": "curve.build_loss_curve([curve.LossPoint(1, 2.0)]).last.loss == 2.0",
    "progress": "progress.advance_progress(progress.Progress(), ['step 3/9 | loss 2.0']).curve.last[:2] == (3, 2.0)",
    "memory_patterns": "set(memory_patterns.FALLBACK_PHASES) < set(memory_patterns.TEXT_BY_MEMORY_PHASE)",
    "tracebacks": "tracebacks.parse_errors(open(log))[0].kind == 'memory'",
    "memory_failure": "memory_failure.read_memory_failure(log, ()) == ('loss', '', False)",
    "memory_holders": "memory_holders.largest_other_holder('nobody') is None",
    "log_head": (
        "log_head.first_step_if_checkpoint_ignored(log, 5, log_head.LogReadingOptions()) == 0 and "
        "log_head.has_each_process_trained_alone(log, 2) is False"
    ),
    "checkpoints": "checkpoints.step_in_name('/a/checkpoint-12') == 12 and checkpoints.is_complete_file(log)",
    "fill_config": "fill_config.yaml_text(1e-05) == '1.0e-05'",
}


# Each module is imported first, as if the others had not been, and the failures of all are told at once.
_EACH = """
import sys, traceback
folder, log, *calls = sys.argv[1:]
sys.path.insert(0, folder)
failed = False
for name, call in zip(calls[::2], calls[1::2]):
    for loaded in [each for each in sys.modules if each.partition(".")[0] == "runner"]:
        del sys.modules[loaded]
    try:
        exec(f"{name}\\nassert {call}", {"log": log})
    except BaseException:
        failed = True
        print(name, traceback.format_exc(), file=sys.stderr)
sys.exit(failed)
"""


def test_each_module_works_under_python_3_8(tmp_path):
    """As a run folder has it: without site-packages, and without what lies around."""
    python = old_python() or pytest.skip("there is no Python 3.8 on this machine")
    assert CALLS.keys() <= PACKAGES.keys()
    (tmp_path / RUNNER_ZIP_FILE_NAME).write_bytes(runner_file().content)
    (tmp_path / "log").write_text(OOM)
    words = [str(tmp_path / RUNNER_ZIP_FILE_NAME), str(tmp_path / "log")]
    for module, package in PACKAGES.items():
        words += [f"from {package} import {module}", CALLS.get(module, "True")]
    command = [python, "-I", "-S", "-W", "error", "-c", _EACH, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_module_imports_itself_and_the_standard_library_alone():
    for module in (
        path for path in FOLDER.rglob("*.py") if path.name != "__main__.py" and path.parent.name != "questions"
    ):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            # Its own name, where it is the zip that runs.
            assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names, "runner"}, module
            assert not isinstance(node, ast.ImportFrom) or node.level < 3, module


def asked(run, *words, **environment):
    """What the runner of a run folder says, and with which code, from a folder of its own."""
    work = run.path.parent / "work"
    work.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], **environment}
    words = [sys.executable, "-I", "-S", run.path / RUNNER_ZIP_FILE_NAME, *words]
    done = subprocess.run(words, env=environment, cwd=work, capture_output=True, text=True, check=False)
    assert [*work.iterdir()] == []
    return done.returncode, done.stdout, done.stderr


NOTHING_TO_LAUNCH = (64, "", "launch.sh: launch: which script?\n")


def spoiled(path, chance):
    content = bytearray(path.read_bytes())
    content[chance % len(content)] ^= 1
    path.write_bytes(content)


def planted(path, _chance):
    path.write_bytes(b"not what was compiled")
    path.chmod(0o666)


@pytest.mark.whole
@pytest.mark.parametrize("damage", [spoiled, planted, lambda path, _: path.write_bytes(path.read_bytes()[:9000])])
def test_compiled_modules_are_kept_once_and_made_anew_where_they_are_damaged(tmp_path, damage):
    (one, _), (other, _) = (export_run(tmp_path / name, profile(), facts()) for name in ("one", "other"))
    assert asked(one, "status", XDG_CACHE_HOME=str(tmp_path))[0] == 0
    assert not (tmp_path / "tui-train").exists(), "whoever only asks writes nothing"
    assert asked(one, "launch", XDG_CACHE_HOME=str(tmp_path)) == NOTHING_TO_LAUNCH
    (kept,) = (tmp_path / "tui-train" / "runner").iterdir()
    when = kept.stat().st_mtime_ns
    assert asked(other, "launch", XDG_CACHE_HOME=str(tmp_path)) == NOTHING_TO_LAUNCH
    assert kept.stat().st_mtime_ns == when
    for chance in range(example_count(20)):
        damage(kept, 7919 * chance)
        assert asked(one, "launch", XDG_CACHE_HOME=str(tmp_path)) == NOTHING_TO_LAUNCH
    assert kept.stat().st_mtime_ns != when


@pytest.mark.parametrize("environment", [{}, {"XDG_CACHE_HOME": "relative"}, {"XDG_CACHE_HOME": "/proc/self/no"}])
def test_where_nothing_can_be_kept_it_comes_from_the_zip(tmp_path, environment):
    run, _ = export_run(tmp_path / "run", profile(), facts())
    assert asked(run, "launch", HOME="", **environment) == NOTHING_TO_LAUNCH


@pytest.mark.parametrize("cache", ["cache", ""])
def test_a_run_goes_on_to_its_end_without_the_zip_that_it_came_from_and_what_was_kept(tmp_path, cache):
    """Also what is imported last, where that was kept: whoever notifies."""
    told, go = tmp_path / "told", tmp_path / "go"
    chosen = sleeper_profile(f"--until={go}", **({"notify.command": ("touch", str(told))} if cache else {}))
    run, _ = export_run(tmp_path / "run", chosen, facts())
    environment = plain_environment(XDG_CACHE_HOME=str(tmp_path / cache) if cache else "relative")
    with subprocess.Popen(["bash", run.launch_script], env=environment, stdout=subprocess.DEVNULL) as training:
        wait_until(lambda: read_status(run).attempts)
        shutil.rmtree(tmp_path / "cache", ignore_errors=not cache)
        (run.path / RUNNER_ZIP_FILE_NAME).rename(tmp_path / "replaced")
        go.touch()
    assert (training.returncode, read_status(run).state, told.exists()) == (0, "finished", bool(cache))
