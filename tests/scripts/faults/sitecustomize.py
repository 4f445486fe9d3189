"""Has a training run out of memory inside torch's own functions, and notes what each of its steps trained on.

FAULTS is a JSON list of faults, which hit the last rank alone: {"in": where, "step": of which global step,
"above": only with larger micro batches, "until": not with this among the words and variables, "code": end with it}.
NOTES is a folder: a file for each process, with a line {"step", "samples"} for each micro batch, {"done"} for each
step, and {"fault"} for what hit it.
"""

import json
import os
import sys
import time
import traceback

FAULTS = json.loads(os.environ.get("FAULTS", "[]"))
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.06 GiB is "
    "free. Including non-PyTorch memory, this process has 22.62 GiB memory in use. Of the allocated memory 21.90 GiB "
    "is allocated by PyTorch, and 412.21 MiB is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


class Memory:
    """How far the training is, and when its memory is full."""

    def __init__(self, torch):
        self.torch, self.done, self.micro = torch, 0, 0
        # A launcher's processes have one parent, which no other attempt has.
        attempt = os.getppid() if "RANK" in os.environ else os.getpid()
        self.notes = f"{os.environ['NOTES']}/{attempt}-{RANK}-{time.time_ns()}.jsonl"

    def note(self, **what):
        with open(self.notes, "a") as file:
            file.write(json.dumps(what) + "\n")

    def fault(self, where):
        """The fault of this place and moment, None where there is none."""
        told = f"{sys.argv} {os.environ.get('PYTORCH_CUDA_ALLOC_CONF')}"
        for fault in FAULTS if RANK == WORLD - 1 else ():
            here = fault["in"] == where and fault.get("step") in {None, self.done + 1}
            enough = self.micro <= fault.get("above", -1) or ("until" in fault and fault["until"] in told)
            if here and not enough:
                return fault
        return None

    def allocate(self, where):
        """Raise what torch does where memory is full, or end the process where the fault has a code."""
        fault = self.fault(where)
        if fault:
            self.note(fault=where)
        if fault and "code" in fault:
            sys.stderr.write("Traceback (most recent call last):\n" + "".join(traceback.format_stack()))
            sys.stderr.write("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4 and 5x8)\n")
            sys.stderr.flush()
            os._exit(fault["code"])
        if fault:
            raise self.torch.OutOfMemoryError(FULL)

    def embedding(self, rows, *_):
        # Positions are looked up as well: they are no samples.
        if rows.dim() == 2 and not self.torch.equal(rows[0], self.torch.arange(rows.shape[1])):
            self.micro = len(rows)
            self.note(step=self.done + 1, samples=rows.tolist())

    def linear(self, hidden, *_):
        self.allocate("forward")
        if hidden.requires_grad and self.fault("backward"):
            hidden.register_hook(lambda _: self.allocate("backward"))

    def to(self, *_):
        # Of Module.to, and of Optimizer.load_state_dict.
        places = {"convert": "load", "_process_value_according_to_param_policy": "resume"}
        caller = sys._getframe(2).f_code.co_name
        if caller in places:
            self.allocate(places[caller])

    def zeros_like(self, *_):
        if sys._getframe(2).f_code.co_name == "_init_group":  # of an optimizer's first step
            self.allocate("state")

    def update(self, *_):
        self.allocate("step")

    def stepped(self, *_):
        self.done += 1
        self.note(done=self.done)

    def resumes(self, _optimizer, saved):
        # Accelerate hands an empty one over as well.
        self.done = max((int(state["step"]) for state in saved["state"].values()), default=self.done)


def before(owner, name, act):
    """Have `act` called before a function, with what that is given by place."""
    real = getattr(owner, name)

    def call(*words, **named):
        act(*words)
        return real(*words, **named)

    setattr(owner, name, call)


def limit(torch):
    """Put the memory's limit into torch's functions."""
    from torch.optim import Optimizer, adam, optimizer

    memory = Memory(torch)
    before(torch.nn.functional, "embedding", memory.embedding)
    before(torch.nn.functional, "linear", memory.linear)
    before(torch.Tensor, "to", memory.to)
    before(torch, "zeros_like", memory.zeros_like)
    for name in ("_single_tensor_adam", "_fused_adam"):
        before(adam, name, memory.update)
    before(Optimizer, "load_state_dict", memory.resumes)
    optimizer.register_optimizer_step_post_hook(memory.stepped)


class Finder:
    """Runs `limit` once torch is imported."""

    def find_spec(self, name, path=None, target=None):
        """Find torch as the others do, and act after it; some only ask whether it is there."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec("torch")
        sys.meta_path.insert(0, self)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            limit(module)

        spec.loader.exec_module = exec_module
        return spec


if "torch" in sys.modules:
    limit(sys.modules["torch"])
else:
    sys.meta_path.insert(0, Finder())
# The plan may be for cards that are not here.
sys.argv = [word.replace("xcuda", "xcpu") if word.startswith("--expect=") else word for word in sys.argv]
