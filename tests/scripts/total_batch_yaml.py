"""A script of a user's own, started by torchrun: its YAML's training.batch_size is the total of all ranks."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True, help="a YAML file")
parser.add_argument("--stage", required=True, help="pretrain or sft")
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--memory_for", type=int, default=1000)
options = parser.parse_args()
with open(options.config) as file:
    whole = yaml.safe_load(file)
config = whole["training"]
if config["use_ddp"]:
    dist.init_process_group("gloo")
rank, world = (dist.get_rank(), dist.get_world_size()) if config["use_ddp"] else (0, 1)
steps, accumulation = config["steps"], config["accumulation_steps"]
assert config["batch_size"] % world == 0
print(f"rank {rank}/{world} | batch {config['batch_size']} | decay {config['weight_decay']!r}", flush=True)
for step in range(1, steps + 1):
    samples = torch.tensor([config["batch_size"] // world * accumulation])
    if world > 1:
        dist.all_reduce(samples)
    if rank == 0:
        loss = (1 - 2 * options.lr) ** (2 * (step - 1))
        print(f"[{step}/{steps}] loss: {loss:.6f} lr: {options.lr:g} samples: {int(samples)}", flush=True)
    if step == 2 and config["batch_size"] > options.memory_for:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
if world > 1:
    dist.barrier()
    dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
