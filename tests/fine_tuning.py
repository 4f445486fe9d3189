"""Fine-tuning: profiles of it, and the data as the run prepares them."""

import json
import subprocess
import sys
from pathlib import Path

from support import profile

PREPARE_DATA_PROGRAM = Path(__file__).parents[1] / "tui_train" / "programs" / "data" / "prepare_data.py"
TUNING_LIBRARIES = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0", "bitsandbytes": "0.49.0"}


def finetune_profile(**values):
    return profile({"trainer.kind": "finetune", "trainer.model": "/m", "trainer.data": ("/d.jsonl",)}, **values)


def run_prepare_data(folder, *words, code=0, python=sys.executable):
    """Prepare data into a folder, and return what was said."""
    command = [str(python), "-B", str(PREPARE_DATA_PROGRAM), f"--into={folder}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
