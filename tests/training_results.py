"""Results of trainings made by hand: adapters, models, and runs that have ended."""

import json
import shutil
import subprocess
import sys
import time

import warm
from support import SCRIPTS, export_run, facts, profile, write_attempt_events

from tui_train.actions.evaluate import Evaluation, ScoreFile, SideScore

ADAPTER_CONFIG = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 32, "base_model_name_or_path": "org/base"}


def safetensors_bytes(size=8, cut=0):
    """The bytes of a safetensors file with one tensor, without its last bytes."""
    header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(size)
    return whole[: len(whole) - cut]


def write_adapter(folder, config=ADAPTER_CONFIG, data=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").write_bytes(data or safetensors_bytes())
    return folder


def write_evaluation(run, rows=40, by="loss"):
    """Write an evaluation that finds the result of a run better than its base on each of some rows."""
    kept = ScoreFile(run, {"by": by, "function": "", "data": [], "earlier": None})
    for number in range(rows):
        kept.add(SideScore("result", number, -10, 10))
        kept.add(SideScore("other", number, -20, 10))
    kept.write_summary(Evaluation(by=by, other_name="base", rows=(), usable_rows=rows))


def write_model(folder, config=None, **files):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {"architectures": ["Qwen2ForCausalLM"]}))
    for name, data in (files or {"model.safetensors": safetensors_bytes()}).items():
        (folder / name).write_bytes(data)
    return folder


def ended_run(folder, lines=(), state="finished", python=sys.executable, **values):
    """The folder of a run of a script that ended a moment ago, with what its log said."""
    chosen = {"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": "/no/model", "recipe.steps": 20}
    values = chosen | {"hardware.device": "cpu"} | values
    named = dict.fromkeys((values["trainer.model"],), "folder")
    packages = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0"}
    run, _ = export_run(folder, profile(values), facts(python=python, paths=named, packages=packages))
    write_attempt_events(run, 90, state, began=time.time() - 3600)
    run.attempt_log(1).write_text("".join(f"{line}\n" for line in lines))
    return run


LOG_LINES = [
    "{'loss': '3.0', 'grad_norm': '1', 'learning_rate': '1e-3', 'epoch': '0.5'}",
    "50%|#####     | 10/20 [00:01<00:01,  1.00it/s]",
    "{'loss': '1.5', 'grad_norm': '1', 'learning_rate': '1e-3', 'epoch': '1.0'}",
    "{'eval_loss': '1.75', 'epoch': '1.0'}",
    "100%|##########| 20/20 [00:02<00:00,  1.00it/s]",
    "{'loss': '2.0', 'grad_norm': '1', 'learning_rate': '1e-3', 'epoch': '2.0'}",
    "{'eval_loss': '1.875', 'epoch': '2.0'}",
]


def run_that_left(output, folder, base):
    """The folder of a run that trained the model in `base`, and whose output is the one in `output`."""
    run = ended_run(folder, LOG_LINES, python=warm.training(), **{"trainer.model": str(base)})
    (run.path / "output").symlink_to(output)
    return run


def make_chat_model(folder, *options):
    words = [warm.training(), str(SCRIPTS / "chat_model.py"), str(folder), *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    return folder


OWN_MODEL_CODE = """
from transformers import Qwen2Config, Qwen2ForCausalLM
open(%r, "w").close()
class OwnConfig(Qwen2Config):
    model_type = "own"
class OwnModel(Qwen2ForCausalLM):
    config_class = OwnConfig
"""
OWN_MODEL_CLASSES = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnModel"}


def copy_model_with_own_code(folder, model, marker):
    """A copy of a model that needs Python code of its own, which leaves a marker."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": OWN_MODEL_CLASSES}))
    (folder / "modeling_own.py").write_text(OWN_MODEL_CODE % str(marker))
    return folder
