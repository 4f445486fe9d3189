"""YAML files of other trainers, and profiles that name them."""

import msgspec
from support import facts, gpu, profile

from tui_train.facts.yaml_documents import read_document
from tui_train.profile.presets import shipped_presets

LLAMA_FACTORY_CONFIG = """\
model_name_or_path: /models/qwen
stage: sft
do_train: true
finetuning_type: lora
dataset: alpaca_zh   # mine
template: qwen
cutoff_len: 4096
output_dir: saves/qwen
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
learning_rate: 1.0e-5
num_train_epochs: 3.0
bf16: true
disable_gradient_checkpointing: false
"""
AXOLOTL_CONFIG = """\
base_model: /models/qwen
datasets: [{path: /d.jsonl, type: alpaca}]
batch_size: 16
micro_batch_size: 2
sequence_len: 4096
learning_rate: 0.00001
num_epochs: 3
bf16: auto
saves_per_epoch: 2
output_dir: /data/out
"""
TOTAL_BATCH_CONFIG = """\
training: {batch_size: 32, accumulation_steps: 2, learning_rate: 2e-5, use_ddp: true}
model: {name: x}
"""
CONFIG_BY_PRESET = {
    "llama-factory": LLAMA_FACTORY_CONFIG,
    "axolotl": AXOLOTL_CONFIG,
    "total-batch-yaml": TOTAL_BATCH_CONFIG,
}
TWO_CARD_FACTS = facts(gpus=(gpu(0), gpu(1)))


def profile_with_config(folder, name, text="", **more):
    """A profile in which only a preset and its YAML file are chosen, and facts that know the file."""
    path = folder / "mine.yaml"
    path.write_text(text or CONFIG_BY_PRESET[name])
    values = {"trainer.kind": "script", "trainer.preset": name, "trainer.config": str(path), **more}
    if shipped_presets()[name].can_start_script:
        values["trainer.script"] = "/t.py"
    return profile(values), msgspec.structs.replace(TWO_CARD_FACTS, documents={str(path): read_document(str(path))})
