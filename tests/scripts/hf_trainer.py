"""A script of a user's own: a tiny GPT-2 on random data with transformers.Trainer, which may run out of memory."""

import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


@dataclass
class Own:
    """What this script takes besides the usual arguments."""

    memory_for: int = 1000
    fails_in_step: int = 0
    evaluates_for: int = 1000


class Tokens(torch.utils.data.Dataset):
    """Sixty-four samples that are the same in each start."""

    def __init__(self):
        self.rows = torch.randint(0, 32, (64, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Memory(TrainerCallback):
    """Runs out of memory in a step, while the batch of one device is too large."""

    def on_step_begin(self, args, state, _control, **_more):
        fails = state.global_step + 1 == own.fails_in_step
        if fails and args.per_device_train_batch_size > own.memory_for:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def evaluation(model, _args, inputs):
    """Run out of memory where too many samples are evaluated at a time."""
    if model.training:
        return
    sys.stdout.write(f"evaluated {len(inputs['input_ids'])} at a time\n")
    if len(inputs["input_ids"]) > own.evaluates_for:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Counting(Trainer):
    """Counts the samples that this process trains on."""

    seen = 0

    def training_step(self, model, inputs, *more, **named):
        self.seen += len(inputs["input_ids"])
        return super().training_step(model, inputs, *more, **named)


arguments, own = HfArgumentParser((TrainingArguments, Own)).parse_args_into_dataclasses(sys.argv[1:])
torch.manual_seed(arguments.seed)
sizes = {
    "n_layer": 1,
    "n_head": 2,
    "n_embd": 16,
    "vocab_size": 32,
    "n_positions": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
model.register_forward_pre_hook(evaluation, with_kwargs=True)
trainer = Counting(model, arguments, train_dataset=Tokens(), eval_dataset=Tokens(), callbacks=[Memory()])
first = int((arguments.resume_from_checkpoint or "-0").rpartition("-")[2])
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
several = dist.is_initialized()
seen = torch.tensor(trainer.seen)
if several:
    dist.all_reduce(seen)
backend = dist.get_backend() if several else "none"
sys.stdout.write(f"rank {arguments.process_index}/{arguments.world_size} | backend {backend}\n")
if arguments.process_index == 0:
    sys.stdout.write(f"samples {int(seen) // (trainer.state.global_step - first)}\n")
if several:
    dist.barrier()
    dist.destroy_process_group()
sys.stdout.flush()
# An interpreter that takes its time to end can be aborted by Gloo's threads.
os._exit(0)
