"""A script of a user's own that trains on several ranks: --batch_size is the total of all ranks, the order is seeded.

It saves weights and optimizer in OUT/checkpoint-STEP, trainer_state.json last, and goes on from such a folder.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, required=True)
parser.add_argument("--accumulation_steps", type=int, default=1)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--save_every", type=int, required=True)
parser.add_argument("--resume", type=Path)
options = parser.parse_args()

several = "RANK" in os.environ
if several:
    dist.init_process_group("gloo")
rank, world = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
torch.manual_seed(0)
torch.set_num_threads(1)
rows = torch.randint(0, 32, (40, 16))
module = torch.nn.Sequential(
    torch.nn.Embedding(32, 16), torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 32)
)
module.to("cpu")
model = torch.nn.parallel.DistributedDataParallel(module) if several else module
optimizer = torch.optim.AdamW(model.parameters(), options.lr)
first = 0
if options.resume:
    module.load_state_dict(torch.load(options.resume / "model.pt"))
    optimizer.load_state_dict(torch.load(options.resume / "optimizer.pt"))
    first = json.loads((options.resume / "trainer_state.json").read_text())["step"]
    print(f"resumed from {options.resume} at step {first}", flush=True)

options.out.mkdir(parents=True, exist_ok=True)
mine = options.batch_size // world
share = mine * options.accumulation_steps


def sample(number):
    """The row at this place of the endless sequence of shuffled epochs."""
    epoch, place = divmod(number, len(rows))
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))[place]]


for step in range(first, options.steps):
    start = (step * world + rank) * share
    total = torch.zeros(())
    for begin in range(start, start + share, mine):
        batch = torch.stack([sample(number) for number in range(begin, begin + mine)])
        logits = model(batch)[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        (loss / options.accumulation_steps).backward()
        total += loss.detach() / options.accumulation_steps
    optimizer.step()
    optimizer.zero_grad()
    if several:
        dist.all_reduce(total)
    done = step + 1
    if rank == 0:
        loss = float(total / world)
        print(f"step {done}/{options.steps} | loss {loss:.6f}", flush=True)
        with open(options.out / "losses.jsonl", "a") as file:
            file.write(json.dumps({"step": done, "loss": loss}) + "\n")
        if done % options.save_every == 0:
            folder = options.out / f"checkpoint-{done}"
            folder.mkdir(exist_ok=True)
            torch.save(module.state_dict(), folder / "model.pt")
            torch.save(optimizer.state_dict(), folder / "optimizer.pt")
            (folder / "trainer_state.json").write_text(json.dumps({"step": done}))
if several:
    dist.barrier()
    dist.destroy_process_group()
sys.stdout.flush()
# An interpreter that takes its time to end can be aborted by Gloo's threads.
os._exit(0)
