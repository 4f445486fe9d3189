"""Runs out of memory in each phase of a training, inside real torch code; prints each traceback, as JSON."""

import json
import sys
import traceback
from unittest import mock

import torch
import torch.distributed as dist


def full(*_, **_more):
    """Fail as the allocator does."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())


def during_forward():
    with mock.patch("torch.nn.functional.linear", full):
        model(torch.ones(1, 2))


def evaluate():
    """As Trainers do it: a forward pass, under a name that tells what it is for."""
    with torch.no_grad():
        during_forward()


def during_evaluation():
    evaluate()


def during_trial():
    """As a search does it, which evaluates settings by training with them."""

    def evaluate_settings():
        def training_step():
            during_forward()

        training_step()

    evaluate_settings()


def during_backward():
    loss = model(torch.ones(1, 2)).sum()
    loss.register_hook(full)
    loss.backward()


def during_step():
    model(torch.ones(1, 2)).sum().backward()
    with mock.patch("torch.optim.adamw.adam", full), mock.patch("torch.optim.adam.adam", full):
        optimizer.step()


def during_closure():
    """As Lightning does it: forward and backward pass inside the step."""
    optimizer.step(during_forward)


def during_clipping():
    with mock.patch("torch._foreach_norm", full):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)


def during_load():
    with mock.patch("torch.Tensor.to", full):
        model.to("cpu")


def during_resume():
    with mock.patch("torch.Tensor.clone", full), mock.patch("torch.Tensor.to", full):
        optimizer.load_state_dict(optimizer.state_dict())


def during_barrier():
    with mock.patch("torch.distributed.distributed_c10d._get_default_group", full, create=True):
        dist.barrier()


def during_nowhere():
    full()


found = {}
for phase in (
    during_forward, during_evaluation, during_trial, during_backward, during_step, during_closure, during_clipping,
    during_load, during_resume, during_barrier, during_nowhere,
):  # fmt: skip
    try:
        phase()
    except torch.OutOfMemoryError:
        found[phase.__name__.removeprefix("during_")] = traceback.format_exc()
json.dump(found, sys.stdout)
