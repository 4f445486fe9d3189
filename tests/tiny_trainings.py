"""Tiny trainings on the CPU: their values, faults in them, and what they leave."""

import json
import re
import subprocess
import sys

from support import SCRIPTS, export_run, facts, plain_environment, profile, run_launch_script

from tui_train.runs.logs.tail import LogTail

TINY_RECIPE = {
    "trainer.python": sys.executable,
    "recipe.layers": 2,
    "recipe.hidden_size": 32,
    "recipe.heads": 2,
    "recipe.sequence_length": 32,
    "recipe.micro_batch": 8,
    "recipe.global_batch": 8,
    "recipe.learning_rate": 0.01,
    "recipe.steps": 8,
    "recipe.checkpoint_every": 3,
    "ladder.rungs": ("micro_batch",),
}


def fault_variables(folder, *faults):
    """The variables of a training with faults, as tests/scripts/faults has them; it needs an existing folder."""
    return {"PYTHONPATH": str(SCRIPTS / "faults"), "FAULTS": json.dumps(faults), "NOTES": str(folder)}


def train_tiny_model(folder, *, faults=(), code=0):
    """Train the tiny model through its exported script to the end."""
    run, plan = export_run(folder / "my run", profile(TINY_RECIPE), facts(python=TINY_RECIPE["trainer.python"]))
    done = run_launch_script(
        run, env=plain_environment(**fault_variables(folder, *faults) if faults else {}), timeout=240
    )
    assert done.returncode == code, done.stdout.decode() + attempt_log_text(run, 1)
    return run, plan


def attempt_log_text(run, number):
    return "\n".join(LogTail(run.attempt_log(number)).remaining_lines())


def logged_losses(run, number=1):
    """The losses in the log of an attempt of transformers' Trainer."""
    return [float(text) for text in re.findall(r"'loss': '?([\d.]+)", attempt_log_text(run, number))]


def checkpoint_losses(output):
    """The loss of each step, exactly, as the newest checkpoint has it."""
    newest = max(output.glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime_ns)
    return {entry["step"]: entry["loss"] for entry in json.loads(newest.read_text())["log_history"] if "loss" in entry}


def train_on_machines(runs, *words, **variables):
    """Start the script of each machine at once, each with its rank; return their exit codes and what they said."""
    env = plain_environment(HF_HUB_OFFLINE="1", **variables)
    started = [
        subprocess.Popen(
            ["bash", str(run.launch_script), f"--node-rank={rank}", *words], env=env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, run in enumerate(runs)
    ]  # fmt: skip
    said = [process.communicate(timeout=240)[0] for process in started]
    return [process.returncode for process in started], said
