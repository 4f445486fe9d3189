"""Many commands of the program, each in a fork of one process that has imported what they need."""

import json
import subprocess
import sys
from typing import NamedTuple

FORKING_PROGRAM = """
import json, os, signal, sys
import tui_train.cli.app, tui_train.cli.plans.plans, tui_train.cli.runs.run_and_resume
from tui_train.__main__ import main
for home, *words in json.load(sys.stdin):
    out = os.memfd_create("out")
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0); os.dup2(out, 1); os.dup2(out, 2); os.closerange(3, 50)
        if home:
            for name in ("CONFIG", "STATE", "CACHE"):
                os.environ[f"XDG_{name}_HOME"] = f"{home}/{name.lower()}"
            os.environ["HF_HUB_CACHE"] = f"{home}/hub"
            os.chdir(home)
        sys.argv = ["tui-train", *words]
        signal.alarm(30)
        try:
            main()
        except SystemExit as left:
            sys.stdout.flush()
            os._exit(left.code if isinstance(left.code, int) else 0 if left.code is None else 1)
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(99)
    _, status, used = os.wait4(pid, 0)
    said = os.pread(out, 1 << 16, 0)[-3000:].decode("utf-8", "replace")
    os.close(out)
    print(json.dumps([words, os.waitstatus_to_exitcode(status), said, used.ru_maxrss, round(used.ru_utime, 1)]))
    sys.stdout.flush()
"""


class CommandEnd(NamedTuple):
    """End of a command: its exit code or signal, its output, and the KiB and seconds that it took."""

    words: list[str]
    code: int
    said: str
    memory: int
    seconds: float


def run_commands_in_forks(commands, folder, before=()):
    """Carry out commands: each is the folder with its profiles and runs, or "", and its words."""
    command = [*before, sys.executable, "-c", FORKING_PROGRAM]
    done = subprocess.run(
        command, cwd=folder, input=json.dumps(commands), capture_output=True, text=True, check=True, timeout=3000
    )
    return [CommandEnd(*json.loads(line)) for line in done.stdout.splitlines()]
