"""The runner's modules for themselves: nothing but the standard library, under the oldest Python that they name."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support import old_python

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


@pytest.fixture(scope="module")
def python():
    found = old_python()
    if not found:
        pytest.skip("there is no Python 3.8 on this machine")
    return found


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


def test_a_module_imports_itself_and_the_standard_library_alone():
    for module in MODULES:
        for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names, module
            assert not isinstance(node, ast.ImportFrom) or node.level < 2, module
