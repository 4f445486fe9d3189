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
    no_cuda.patch_out_cuda()

import fiddle
import nemo_run

REAL_NEMO_RUN = nemo_run.run


def print_line(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fields_by_path(value, path=""):
    """The fields of a recipe by their dotted path, as text."""
    if isinstance(value, fiddle.Buildable):
        yield path or ".", value.__fn_or_cls__.__name__
        for name, inner in value.__arguments__.items():
            yield from fields_by_path(inner, f"{path}.{name}" if path else name)
    else:
        yield path, str(value)


def patch_out_gpu():
    """Let what Megatron and NeMo do with a device be left out: its random numbers, and moving weights to it."""
    from megatron.core.tensor_parallel import random
    from nemo.lightning.io import pl

    pl._fix_tensors_device = lambda checkpoint: checkpoint
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()


def start_file(what, script, *rest):
    """Start one file, with nemo_run's `run` replaced."""

    def instead(recipe, **options):
        print_line("\nTOLD " + json.dumps({"options": options, "fields": dict(fields_by_path(recipe))}))
        recipe.trainer.accelerator = "cpu"
        if what != "build":
            REAL_NEMO_RUN(recipe, **({"dryrun": True} if what == "dryrun" else options))

    nemo_run.run = instead
    if what == "train":
        patch_out_gpu()
    sys.argv = [script, *rest]
    runpy.run_path(script, run_name="__main__")
    print_line("\nENDED")


def main():
    if sys.argv[1] != "jobs":
        start_file(*sys.argv[1:])
        return
    for job in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")):
        try:
            start_file(*job)
        except Exception as error:  # noqa: BLE001 - it is what the test asks for
            print_line("\nTOLD " + json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main()
