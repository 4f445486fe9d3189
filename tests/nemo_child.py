"""Runs in a Python with NeMo, on the CPU: starts generated files unmodified, with nemo_run's `run` replaced.

usage: nemo_child.py WHAT SCRIPT [ARGUMENT...], or nemo_child.py jobs FILE with several of these as JSON.
WHAT is build (print the recipe's fields), dryrun (all its objects are made) or train.

What is replaced stands for the missing GPU, and for nothing else: CUDA's own calls (no_cuda.py), the accelerator, the
random numbers of a device and the move of a restored checkpoint to one. Whatever a user would have to set, install or
download is left to the file and to the environment: data, tokenizers, sizes, precision, checkpoints, validation.
"""

import contextlib
import json
import runpy
import sys
from pathlib import Path

import no_cuda  # before NeMo, which takes some of it when it is imported

if sys.argv[1] == "train":
    no_cuda.pretend()

import fiddle
import nemo_run

NEMO_RUN = nemo_run.run


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fields(value, path=""):
    """The fields of a recipe by their dotted path, as text."""
    if isinstance(value, fiddle.Buildable):
        yield path or ".", value.__fn_or_cls__.__name__
        for name, inner in value.__arguments__.items():
            yield from fields(inner, f"{path}.{name}" if path else name)
    else:
        yield path, str(value)


def without_a_gpu():
    """Let what Megatron and NeMo do with a device be left out: its random numbers, and moving weights to it."""
    from megatron.core.tensor_parallel import random
    from nemo.lightning.io import pl

    pl._fix_tensors_device = lambda checkpoint: checkpoint
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()


def start(what, script, *rest):
    """Start one file, with nemo_run's `run` replaced."""

    def instead(recipe, **options):
        say("\nTOLD " + json.dumps({"options": options, "fields": dict(fields(recipe))}))
        recipe.trainer.accelerator = "cpu"
        if what != "build":
            NEMO_RUN(recipe, **({"dryrun": True} if what == "dryrun" else options))

    nemo_run.run = instead
    if what == "train":
        without_a_gpu()
    sys.argv = [script, *rest]
    runpy.run_path(script, run_name="__main__")
    say("\nENDED")


def main():
    if sys.argv[1] != "jobs":
        start(*sys.argv[1:])
        return
    for job in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")):
        try:
            start(*job)
        except Exception as error:  # noqa: BLE001 - it is what the test asks for
            say("\nTOLD " + json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main()
