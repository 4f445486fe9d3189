"""A trainer in the manner of nanoGPT: --key=value replaces its globals, and there is one checkpoint file, ckpt.pt."""

import os
import sys
from ast import literal_eval
from contextlib import suppress

import torch
import torch.distributed as dist

out_dir = "out"
eval_interval = 2000
always_save_checkpoint = False
init_from = "scratch"
gradient_accumulation_steps = 40
batch_size = 12
block_size = 1024
n_layer = 12
n_head = 12
n_embd = 768
learning_rate = 6e-4
max_iters = 600000
lr_decay_iters = 600000
device = "cuda"
dtype = "bfloat16"
compile = True  # noqa: A001
memory_for = 1000
fails_at = 0
for word in sys.argv[1:]:
    if "=" not in word:
        with open(word) as file:
            exec(file.read())  # noqa: S102
        continue
    key, value = word.removeprefix("--").split("=")
    with suppress(SyntaxError, ValueError):
        value = literal_eval(value)
    assert type(value) is type(globals()[key]), (key, value)
    globals()[key] = value

ddp = int(os.environ.get("RANK", "-1")) != -1
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if ddp:
    dist.init_process_group("gloo")
    assert gradient_accumulation_steps % world == 0
    gradient_accumulation_steps //= world
tokens = gradient_accumulation_steps * world * batch_size * block_size
print(f"tokens per iteration will be: {tokens:,}", flush=True)
os.makedirs(out_dir, exist_ok=True)
path = os.path.join(out_dir, "ckpt.pt")
weight, number = torch.zeros(1), 0
if init_from == "resume":
    print(f"Resuming training from {out_dir}", flush=True)
    saved = torch.load(path)
    weight, number = saved["model"], saved["iter_num"]
if ddp:
    dist.barrier()  # the first rank saves at once, to the file that the others still read
while True:
    if number % eval_interval == 0 and rank == 0:
        loss = float((weight - 1) ** 2)
        print(f"step {number}: train loss {loss:.4f}, val loss {loss:.4f}", flush=True)
        if number > 0 and always_save_checkpoint:
            print(f"saving checkpoint to {out_dir}", flush=True)
            torch.save({"model": weight, "iter_num": number}, path)
    if ddp:
        dist.barrier()
    if number == fails_at and fails_at and batch_size > memory_for:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    loss = float((weight - 1) ** 2)
    weight = weight - learning_rate * 2 * (weight - 1)
    if rank == 0:
        print(f"iter {number}: loss {loss:.4f}, time 1.23ms, mfu -100.00%", flush=True)
    number += 1
    if number > max_iters:
        break
if ddp:
    dist.barrier()
    dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
