"""What stands for a Python in many of these tests: it is one, but for the time that it takes."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from support import until

TELLS = """\
import json, os, sys
sys.stderr.write("err\\n")
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["MARK"], sys.stdin.read(), os.getppid(), sys.path[0]]))
print("imported" if "torch" in sys.modules else "")
sys.exit(7)
"""
WAITS = """\
import os, signal, sys, time
if sys.argv[1:]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
print(os.getpid(), flush=True)
# A signal that comes just before a sleep begins is seen at its end.
for _ in range(600):
    time.sleep(0.1)
"""


@pytest.fixture
def script(tmp_path):
    def written(text):
        (tmp_path / "a script.py").write_text(text)
        return str(tmp_path / "a script.py")

    return written


def is_gone(pid):
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_script_is_started_as_it_would_be(script, tmp_path):
    done = [
        subprocess.run([python, "-u", script(TELLS), "two words", "é\n"], input="in", cwd=tmp_path, check=False,
                       capture_output=True, text=True, env={**os.environ, "MARK": "é"})
        for python in (sys.executable, warm.training())
    ]  # fmt: skip
    assert [one.returncode for one in done] == [7, 7]
    assert done[0].stderr == done[1].stderr == "err\n"
    assert json.loads(done[0].stdout.splitlines()[0]) == json.loads(done[1].stdout.splitlines()[0])
    assert [one.stdout.splitlines()[1] for one in done] == ["", "imported"]


@pytest.mark.parametrize("listens", [False, True])
def test_a_signal_reaches_it_and_it_ends_as_its_process_does(script, listens):
    with subprocess.Popen([warm.training(), script(WAITS), *["x"] * listens], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        assert pid != process.pid
        process.terminate()
        assert process.wait(20) == (9 if listens else -signal.SIGTERM)
        assert is_gone(pid)


def test_it_does_not_live_on_without_its_process(script):
    with subprocess.Popen([warm.training(), script(WAITS)], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        process.kill()
    until(lambda: is_gone(pid), what="it lives on")


def test_its_limits_are_those_of_its_process(script, tmp_path):
    text = "open('big', 'wb').write(bytes(99999))"
    limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))}
    done = subprocess.run([warm.training(), script(text)], cwd=tmp_path, check=False, stderr=subprocess.PIPE, **limits)
    assert b"OSError" in done.stderr


def test_the_real_one_takes_what_it_cannot(tmp_path):
    code = "import sys; print('torch' in sys.modules, sys.flags.isolated)"
    done = subprocess.run([warm.training(), "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False 1\n"
    done = subprocess.run([*warm.program("--version")], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("tui-train ")


def test_modules_on_the_path_and_a_sitecustomize_are_found(tmp_path, script):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 1\n")
    (tmp_path / "mine.py").write_text("value = 2\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [warm.training(), script("import builtins, mine; print(builtins.mine, mine.value)")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1 2\n"


def test_what_waits_for_a_module_hears_of_it_and_so_do_those_that_took_from_it(tmp_path, script):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "def act(module):\n"
        "    module.init_process_group = 'changed'\n"
        "class Waits:\n"
        "    after = {'torch.distributed.distributed_c10d': act}\n"
        "    def find_spec(self, *_): return None\n"
        "sys.meta_path.insert(0, Waits())\n"
    )
    command = [warm.training(), script("import torch.distributed as d; print(d.init_process_group)")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "changed\n"


def test_a_server_that_is_gone_is_started_again(tmp_path):
    """As where one worker ends before another asks for the first time."""
    code = (
        "import os, pathlib, subprocess, sys, time, warm\n"
        f"warm.shared[:] = [pathlib.Path({str(tmp_path)!r})]\n"
        "for _ in range(2):\n"
        "    words = warm.program('--version')\n"
        "    done = subprocess.run(words, capture_output=True, text=True)\n"
        "    print(done.returncode, done.stdout.strip())\n"
        "    warm.close()\n"
        "    time.sleep(0.5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        check=True,
        timeout=60,
    )
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith("0 ")
