"""The runner's modules for themselves: nothing but the standard library, under the oldest Python that they name."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tui_train.plan.render import RUNNER_NAME, runner_file

FOLDER = Path(__file__).parents[2] / "tui_train" / "runner"
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__main__")
OOM = "Traceback (most recent call last):\n  File 'a.py', line 1, in forward\nRuntimeError: CUDA out of memory.\n"
CALLS = {
    "safe_text": "safe_text.visible('a\\x1b') == 'a\\\\x1b'",
    "lines": "lines.fold(b'a\\rb') == ['b'] and lines.fold_styled(b'\\x1b[1ma')[0][0].colour == '1'",
    "curve": "curve.curve_of([curve.Point(1, 2.0)]).last.loss == 2.0",
    "progress": "progress.advance(progress.Progress(), ['step 3/9 | loss 2.0']).curve.last[:2] == (3, 2.0)",
    "memory_patterns": "set(memory_patterns.PHASES) < set(memory_patterns.PHASE_TEXT)",
    "tracebacks": "tracebacks.read_errors(open(log))[0].kind == 'memory'",
    "memory_end": "memory_end.memory_end(log, ()) == ('loss', '', False)",
    "holders": "holders.other_holder('nobody') is None",
    "first_step": "first_step.ignored_first_step(log, 5, first_step.Reading()) == 0",
    "group_check": "group_check.trained_apart(log, 2) is False",
    "checkpoints": "checkpoints.step_of('/a/checkpoint-12') == 12 and checkpoints.is_complete_file(log)",
    "fill": "fill.yaml_value([1e-05, 'a', None]) == '[1.0e-05, \"a\", null]'",
}


def pythons():
    """Pythons 3.8 of this machine, by their usual names and places."""
    named = [shutil.which("python3.8"), *map(str, Path.home().glob(".pyenv/versions/3.8*/bin/python3.8"))]
    return [path for path in filter(None, named) if _answers(path)]


def _answers(path):
    done = subprocess.run([path, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False)
    return done.stdout.strip() == b"(3, 8)"


@pytest.fixture(scope="module")
def python():
    found = pythons()
    if not found:
        pytest.skip("there is no Python 3.8 on this machine")
    return found[0]


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
        exec(f"from runner import {name}\\nassert {call}", {"log": log})
    except BaseException:
        failed = True
        print(name, traceback.format_exc(), file=sys.stderr)
sys.exit(failed)
"""


def test_each_module_works_under_python_3_8(python, tmp_path):
    """As a run folder has it: without site-packages, and without what lies around."""
    assert CALLS.keys() <= {*MODULES}
    (tmp_path / RUNNER_NAME).write_bytes(runner_file().content)
    (tmp_path / "log").write_text(OOM)
    words = [str(tmp_path / RUNNER_NAME), str(tmp_path / "log")]
    for module in MODULES:
        words += [module, CALLS.get(module, "True")]
    command = [python, "-I", "-S", "-W", "error", "-c", _EACH, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_itself_and_the_standard_library_alone(module):
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module.partition(".")[0] in sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1
            assert os.path.exists(FOLDER / f"{(node.module or '__init__').partition('.')[0]}.py")  # noqa: PTH110
