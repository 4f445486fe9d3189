"""What stands for a Python in many of these tests: it is one, but for the time that it takes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm

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
