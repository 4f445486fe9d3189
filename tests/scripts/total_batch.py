"""A script of a user's own, started by torchrun: --batch_size is the total of all ranks, which it divides itself."""

import argparse
import os

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

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
with open(options.config) as file:
    steps = int(file.read().partition("steps:")[2])
print(f"rank {rank}/{world} | stage {options.stage} | batch {options.batch_size} | in {os.getcwd()}", flush=True)
mine = options.batch_size // world
weight = torch.zeros(1, requires_grad=True)
for step in range(1, steps + 1):
    seen = torch.zeros(1)
    for _ in range(options.accumulation_steps):
        samples = torch.ones(mine)
        (((weight - samples) ** 2).sum() / (options.batch_size * options.accumulation_steps)).backward()
        seen += mine
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
dist.destroy_process_group()
