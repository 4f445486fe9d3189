"""A training of a few processes that needs torch alone: a line through points, of which each process has its own."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
points = torch.rand(64, 1)
weight = torch.zeros(1, requires_grad=True)
for _ in range(20):
    loss = ((points * weight - 3 * points) ** 2).mean()
    loss.backward()
    dist.all_reduce(weight.grad)
    with torch.no_grad():
        weight -= weight.grad / world
    weight.grad = None
    if rank == 0:
        print({"loss": round(loss.item(), 6)}, flush=True)
print(f"rank {rank} of {os.uname().nodename}: {weight.item():.6f}", flush=True)
dist.destroy_process_group()
