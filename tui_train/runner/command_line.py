"""The supervisor's own command line: what launch.sh hands over to, and the remote control of a run."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Sequence

from .system.refused import USAGE_EXIT_CODE, Refused
from .system.safe_text import visible

_USAGE_TEXT = """usage: python3 RUN/runner.pyz COMMAND
  status [--json]          the run's state
  stop [--now] [--json]    end it: it saves within its grace; with --now at once
  tail [-n N] [--json]     the last lines of its newest log
  follow [--json]          its logs as they are written, until it ends
"""


def main(words: Sequence[str], run_dir: str) -> int:
    """Carry out a command for a run folder and return its exit code."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")
    try:
        return _run_command(list(words), run_dir)
    except Refused as refused:
        # Where there is no stderr to write to, the exit code says it.
        with contextlib.suppress(OSError):
            os.write(2, f"launch.sh: {refused.message}\n".encode(errors="replace"))
        return refused.code
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130


def _open_standard_streams() -> None:
    """Open the standard streams that whoever started this has closed, so that no file or pipe gets their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _run_command(words: list[str], run_dir: str) -> int:
    name, rest = (words or [""])[0], words[1:]
    if name == "launch":
        from .supervisor import launch_training

        if not rest:
            raise Refused(USAGE_EXIT_CODE, "launch: which script?")
        return launch_training(run_dir, rest[0], rest[1:])
    if name == "hold" and len(rest) == 1:
        from .waiting import hold_turn

        return hold_turn(run_dir, rest[0])
    if name in ("checkpoint", "fill", "meter", "watch", "rejoin", "fan", "reach", "look", "keep"):
        return _run_internal_command(name, rest, run_dir)
    if name in ("status", "stop", "tail", "follow"):
        return _run_viewer_command(name, rest, run_dir)
    sys.stderr.write(_USAGE_TEXT)
    return 0 if name in ("help", "--help", "-h") else USAGE_EXIT_CODE


def _run_internal_command(name: str, words: list[str], run_dir: str) -> int:
    """Carry out what only launch.sh and other parts of the supervisor ask for."""
    if name == "checkpoint" and len(words) == 1:
        return _print_checkpoints(words[0], run_dir)
    if name == "fill":
        return _fill_config_files(words, run_dir)
    if name == "meter":
        from .gpus.meter import main as meter

        meter(int(words[0]), words[1:])
        return 0
    if name == "watch":
        from .gpus.card_watch import main as watch

        watch(int(words[0]), words[1:])
        return 0
    if name == "rejoin" and len(words) == 3:
        from .containers.rejoin import main as rejoin

        return rejoin(*words)
    if name in ("fan", "reach", "look", "keep"):
        return _run_multi_machine_command(name, words, run_dir)
    raise Refused(USAGE_EXIT_CODE, f"{name} does not take {visible(' '.join(words))}", "see python3 runner.pyz help")


def _run_multi_machine_command(name: str, words: list[str], run_dir: str) -> int:
    """Do what one of several machines does for the others."""
    from .machines import ask_hosts, multi_machine_attempt, node

    if name == "keep":
        return node.run_machine_part(run_dir)
    if name == "fan" and len(words) > 1:
        return multi_machine_attempt.main(words[0], words[1:], run_dir)
    if len(words) != 1:
        raise Refused(USAGE_EXIT_CODE, f"{name}: what is asked?")
    return (ask_hosts.main if name == "reach" else node.print_readiness)(words[0], run_dir)


def _print_checkpoints(attempt_or_all: str, run_dir: str) -> int:
    """Print the checkpoint that an attempt would be given now, nothing where there is none; of `all`, a line each.

    Of a trainer that finds its checkpoints by itself, `all` is the highest step of one.
    """
    from .run_folder import checkpoints, supervisor_plan

    plan = supervisor_plan.read_plan(run_dir)
    if attempt_or_all == "all":
        if plan.resumes_itself:
            output = os.path.expanduser(plan.output) or "output"
            sys.stdout.buffer.write(b"%d\n" % checkpoints.highest_nemo_checkpoint_step(os.path.join(run_dir, output)))
        rules = [each.checkpoints for each in plan.attempts if each.checkpoints]
        paths = {os.fsencode(checkpoints.newest_complete_checkpoint(rule, run_dir)) for rule in rules}
        sys.stdout.buffer.write(b"".join(path + b"\n" for path in sorted(paths)))
        return 0
    position = int(attempt_or_all) if attempt_or_all.isdigit() else 0
    sys.stdout.buffer.write(os.fsencode(checkpoints.newest_checkpoint_of_attempt(plan, position, run_dir)))
    return 0


def _fill_config_files(words: list[str], run_dir: str) -> int:
    from .run_folder import supervisor_plan
    from .run_folder.fill_config import fill_config_files

    plan = supervisor_plan.read_plan(run_dir)
    if not words or not words[0].isdigit() or not 1 <= int(words[0]) <= len(plan.attempts):
        raise Refused(USAGE_EXIT_CODE, f"fill: which attempt, 1 to {len(plan.attempts)}?")
    fill_config_files(plan, int(words[0]), run_dir, words[1] if len(words) > 1 else "")
    return 0


def _run_viewer_command(name: str, words: list[str], run_dir: str) -> int:
    from . import viewer_commands

    as_json = "--json" in words
    words = [word for word in words if word != "--json"]
    if name == "status" and not words:
        return viewer_commands.show_status(run_dir, as_json=as_json)
    if name == "stop" and words in ([], ["--now"]):
        return viewer_commands.stop_and_show(run_dir, as_json=as_json, at_once=bool(words))
    if name == "follow" and not words:
        return viewer_commands.follow_log(run_dir, as_json=as_json)
    if name == "tail" and (not words or (len(words) == 2 and words[0] == "-n" and words[1].isdigit())):
        return viewer_commands.show_tail(run_dir, as_json=as_json, max_lines=int(words[1]) if words else 20)
    raise Refused(USAGE_EXIT_CODE, f"{name} does not take {visible(' '.join(words))}", "see python3 runner.pyz help")
