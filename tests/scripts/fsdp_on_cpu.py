"""Runs a program with accelerate's FSDP on the CPU, where accelerate itself falls back to DDP and says nothing."""

import os
import runpy
import sys

from accelerate import state
from accelerate.utils import DistributedType

real = state.AcceleratorState.__init__


def sharded(self, *arguments, fsdp_plugin=None, **more):
    """Do for the CPU what accelerate does for GPUs when its variables ask for FSDP."""
    fresh = not self._shared_state
    real(self, *arguments, fsdp_plugin=fsdp_plugin, **more)
    if fresh and os.environ["ACCELERATE_USE_FSDP"] == "true":
        self.distributed_type = DistributedType.FSDP
        self.fsdp_plugin = fsdp_plugin
        state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP


state.AcceleratorState.__init__ = sharded
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
