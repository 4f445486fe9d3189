"""A script of a user's own that shards its model itself, by torch's fully_shard, on the CPU."""

import os
import sys
from argparse import ArgumentParser

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = ArgumentParser()
parser.add_argument("--batch", type=int, required=True, help="of one process")
parser.add_argument("--accumulation", type=int, required=True)
parser.add_argument("--steps", type=int, required=True)
options = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
weights = sum(parameter.numel() for parameter in model.parameters())
mesh = init_device_mesh("cpu", (world,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
held = sum(parameter.to_local().numel() for parameter in model.parameters())
sys.stdout.write(f"rank {rank}/{world} | backend {dist.get_backend()} | holds {held} of {weights}\n")
sys.stdout.flush()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(1, options.steps + 1):
    seen = torch.zeros(())
    for _ in range(options.accumulation):
        batch = torch.ones(options.batch, 4)
        loss = ((model(batch) - 1) ** 2).mean() / options.accumulation
        loss.backward()
        seen += len(batch)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(seen)
    if rank == 0:
        sys.stdout.write(f"step {step}/{options.steps} | loss {loss.item():.6f} | samples {int(seen)}\n")
        sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
# An interpreter that takes its time to end can be aborted by Gloo's threads.
os._exit(0)
