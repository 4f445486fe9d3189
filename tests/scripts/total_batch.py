"""A script of a user's own, of one process or several: --batch_size is the total, which it divides itself."""

import argparse
import os
import sys

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--stage", required=True)
parser.add_argument("--batch_size", type=int, required=True)
parser.add_argument("--accumulation_steps", type=int, default=1)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--memory_for", type=int, default=1000)
options = parser.parse_args()

several = "RANK" in os.environ
if several:
    dist.init_process_group("gloo")
rank, world = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
backend = dist.get_backend() if several else "none"
with open(options.config) as file:
    steps = int(file.read().partition("steps:")[2])
told = f"stage {options.stage} | batch {options.batch_size} | in {os.getcwd()} | backend {backend}"
sys.stdout.write(f"rank {rank}/{world} | {told}\n")
sys.stdout.flush()
mine = options.batch_size // world
weight = torch.zeros(1, requires_grad=True)
for step in range(1, steps + 1):
    seen = torch.zeros(1)
    for _ in range(options.accumulation_steps):
        samples = torch.ones(mine)
        (((weight - samples) ** 2).sum() / (options.batch_size * options.accumulation_steps)).backward()
        seen += mine
    if several:
        dist.all_reduce(weight.grad)
        dist.all_reduce(seen)
    with torch.no_grad():
        loss = float((weight - 1) ** 2)
        weight -= options.lr * weight.grad
        weight.grad.zero_()
    if rank == 0:
        print(f"step {step}/{steps} | loss {loss:.6f} | samples {int(seen)}", flush=True)
    if step == 2 and options.batch_size > options.memory_for:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
if several:
    dist.barrier()
    dist.destroy_process_group()
sys.stdout.flush()
# An interpreter that takes its time to end can be aborted by Gloo's threads.
os._exit(0)
