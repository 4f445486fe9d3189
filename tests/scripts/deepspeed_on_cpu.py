"""Runs a program with accelerate's DeepSpeed on the CPU, where accelerate itself starts it for CUDA devices only."""

import os
import runpy
import sys

import torch
from accelerate import state
from accelerate.utils import DistributedType


def on_the_cpu(self):
    self.device = torch.device("cpu")


state.PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)
state.PartialState.set_device = on_the_cpu
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
