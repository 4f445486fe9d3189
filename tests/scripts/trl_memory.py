"""Counts the most bytes that live in two real steps of TRL's DPO on the CPU: trl_memory.py REQUEST.

The request has `programs` (the folder of what traces), `folder` (the model), `micro_batch`, `length`, `checkpointing`,
`lora` and `out`.
"""

import json
import sys
import warnings

import torch  # noqa: F401 - before the account, which counts what it makes

warnings.simplefilter("ignore")
asked = json.loads(sys.argv[1])
sys.path.insert(0, asked["programs"])

import trl  # noqa: E402
from datasets import Dataset  # noqa: E402
from memory_trace import AllocationCounter, MemoryAccount  # noqa: E402
from peft import LoraConfig  # noqa: E402

account = MemoryAccount(1)
text = "the quick brown fox jumps over the lazy dog " * 200
rows = Dataset.from_list([{"prompt": "the", "chosen": text, "rejected": text[::-1]}] * 8)
adapter = LoraConfig(r=16, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
how = trl.DPOConfig(
    output_dir=asked["out"], per_device_train_batch_size=asked["micro_batch"], max_length=asked["length"], max_steps=2,
    gradient_checkpointing=asked["checkpointing"], report_to="none", save_strategy="no", bf16=False, use_cpu=True,
    disable_tqdm=True, learning_rate=1e-5, dataloader_pin_memory=False,
)  # fmt: skip
with AllocationCounter(account):
    trainer = trl.DPOTrainer(
        model=asked["folder"], args=how, train_dataset=rows, peft_config=adapter if asked["lora"] else None
    )
    for model in filter(None, (trainer.model, trainer.ref_model)):
        for tensor in (*model.parameters(), *model.buffers()):
            account.add(tensor)
    account.phase = "step"
    trainer.train()
print(json.dumps({"peak": account.peaks["step"], "reference": trainer.ref_model is not None}))
