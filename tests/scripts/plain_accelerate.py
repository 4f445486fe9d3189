"""A script of a user's own that uses accelerate and nothing else: one weight that learns to be 1."""

import os
import sys
from argparse import ArgumentParser

import torch
import torch.distributed as dist
from accelerate import Accelerator

parser = ArgumentParser()
parser.add_argument("--batch", type=int, required=True, help="of one process")
parser.add_argument("--accumulation", type=int, required=True)
parser.add_argument("--steps", type=int, required=True)
options = parser.parse_args()

accelerator = Accelerator(gradient_accumulation_steps=options.accumulation)
rank, world = accelerator.process_index, accelerator.num_processes
backend = dist.get_backend() if dist.is_initialized() else "none"
sys.stdout.write(f"rank {rank}/{world} | backend {backend} | precision {accelerator.mixed_precision}\n")
sys.stdout.flush()
samples = torch.utils.data.TensorDataset(torch.ones(options.batch * options.accumulation * options.steps * world, 1))
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model, optimizer, batches = accelerator.prepare(
    model, optimizer, torch.utils.data.DataLoader(samples, batch_size=options.batch)
)
seen = torch.zeros(())
step = 0
for (batch,) in batches:
    with accelerator.accumulate(model):
        loss = ((model(batch) - 1) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    seen += len(batch)
    if accelerator.sync_gradients:
        step += 1
        total = int(accelerator.reduce(seen))
        if rank == 0:
            sys.stdout.write(f"step {step}/{options.steps} | loss {loss.item():.6f} | samples {total}\n")
            sys.stdout.flush()
        seen.zero_()
if world > 1:
    dist.barrier()
    dist.destroy_process_group()
# An interpreter that takes its time to end can be aborted by Gloo's threads.
os._exit(0)
