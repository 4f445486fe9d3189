"""The command line: every argument with its default, limits and help; BadInput, the error for users."""

import argparse
import math
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

PRECISIONS = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
NEW_MODEL = {"layers": 4, "hidden_size": 128, "heads": 4}


class BadInput(Exception):
    """Invalid input: what is wrong and what to do; the exit code is 2."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} | {remedy}")


@dataclass(frozen=True)
class Options:
    """The options; sizes are in tokens and samples, `model` None is a new model over bytes."""

    data: list[Path]
    text_field: str
    output: Path
    model: Path | None
    layers: int | None
    hidden_size: int | None
    heads: int | None
    sequence_length: int
    micro_batch: int
    accumulation: int
    learning_rate: float
    warmup_steps: int | None
    steps: int
    precision: str
    activation_checkpointing: bool
    checkpoint_every: int
    keep_checkpoints: int
    seed: int
    resume_from: Path | None
    expect_world_size: int | None
    expect_device: str | None
    backend: str | None
    tensorboard: bool
    wandb: bool
    simulate_oom_at_step: int | None
    simulate_oom_above_micro_batch: int
    simulate_oom_in: str
    simulate_failure_at_step: int | None
    simulate_failure_code: int


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports errors like the rest of this program."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"error | {message} | `train.py --help` lists every argument\n")
        sys.exit(2)


def parse(arguments: list[str]) -> Options:
    """Return the checked options; BadInput, or exit code 2 for an unknown or malformed argument."""
    parser = _Parser(prog="train.py", description="Train a causal language model on text.", allow_abbrev=False)
    _add_work(parser)
    _add_batches(parser.add_argument_group("batches and optimizer"))
    _add_state(parser.add_argument_group("checkpoints and launch"))
    _add_rehearsal(parser.add_argument_group("test failures", "Off by default. They cause failures on purpose."))
    options = Options(**vars(parser.parse_args(arguments)))
    _check_numbers(options)
    _check_paths(options)
    return _with_model_sizes(options)


def _add_work(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    files = "UTF-8 text, or .jsonl with one object per line; can be given several times"
    add("--data", type=Path, action="append", required=True, metavar="FILE", help=files)
    add("--text-field", default="text", metavar="NAME", help="the field with the text in a .jsonl line")
    add(
        "--output",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder for checkpoints, losses and the final model",
    )
    folder = (
        "a local Hugging Face folder with config.json, and optionally weights and tokenizer (default: a new byte model)"
    )
    add("--model", type=Path, metavar="FOLDER", help=folder)
    for name, value in NEW_MODEL.items():
        add(_flag(name), type=int, metavar="N", help=f"of a new model (default: {value})")
    add("--activation-checkpointing", action="store_true", help="recompute activations in the backward pass")
    add(
        "--precision",
        choices=PRECISIONS,
        default="fp32",
        help="type of the computation; weights stay fp32 (default: fp32)",
    )


def _add_batches(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--sequence-length", type=int, default=128, metavar="N", help="tokens per sample (default: %(default)s)")
    add(
        "--micro-batch",
        type=int,
        default=8,
        metavar="N",
        help="samples per rank and forward pass (default: %(default)s)",
    )
    add("--accumulation", type=int, default=2, metavar="N", help="micro batches per step (default: %(default)s)")
    add("--learning-rate", type=float, default=1e-3, metavar="F", help="peak learning rate (default: %(default)s)")
    add("--warmup-steps", type=int, metavar="N", help="steps of learning rate warm-up (default: a tenth of the steps)")
    add("--steps", type=int, default=60, metavar="N", help="total optimizer steps (default: %(default)s)")
    add("--seed", type=int, default=0, metavar="N", help="seed of new weights and of the sample order (default: 0)")


def _add_state(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--checkpoint-every", type=int, default=20, metavar="N", help="steps; 0 for none (default: %(default)s)")
    add("--keep-checkpoints", type=int, default=2, metavar="N", help="of the newest (default: %(default)s)")
    add("--resume-from", type=Path, metavar="FOLDER", help="complete checkpoint to resume from")
    world = "fail with any other number of processes: some launchers silently start too few"
    add("--expect-world-size", type=int, metavar="N", help=world)
    device = "fail on any other device: without a usable GPU torch silently uses the CPU"
    add(
        "--backend",
        choices=("nccl", "gloo"),
        help="communication backend of several processes (default: chosen by torch)",
    )
    add("--tensorboard", action="store_true", help="write event files to OUTPUT/tensorboard")
    add("--wandb", action="store_true", help="report to Weights & Biases; WANDB_PROJECT names the project")
    add("--expect-device", choices=("cuda", "cpu"), help=device)


def _add_rehearsal(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    memory = "run out of GPU memory in step N on the last rank, to test the fallbacks on any machine"
    add("--simulate-oom-at-step", type=int, metavar="N", help=memory)
    above = "only if the micro batch is larger than this (default: 0, always)"
    add("--simulate-oom-above-micro-batch", type=int, default=0, metavar="M", help=above)
    where = "in the forward pass, the backward pass or the optimizer step (default: forward)"
    add("--simulate-oom-in", choices=("forward", "backward", "step"), default="forward", help=where)
    add("--simulate-failure-at-step", type=int, metavar="N", help="exit the last rank in step N")
    add("--simulate-failure-code", type=int, default=1, metavar="C", help="with this exit code (default: 1)")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_numbers(options: Options) -> None:
    """Raise BadInput for the first number outside its limits."""
    least = dict.fromkeys(("warmup_steps", "checkpoint_every", "seed", "simulate_oom_above_micro_batch"), 0)
    least |= dict.fromkeys(("micro_batch", "accumulation", "steps", "keep_checkpoints", *NEW_MODEL), 1)
    least |= dict.fromkeys(("expect_world_size", "simulate_oom_at_step", "simulate_failure_at_step"), 1)
    least |= {"sequence_length": 2, "simulate_failure_code": 1}
    most = {"seed": 2**63 - 1, "simulate_failure_code": 255, "warmup_steps": options.steps}
    for name, limit in least.items():
        value = getattr(options, name)
        if value is not None and value < limit:
            raise BadInput(f"{_flag(name)}={value} is too small", f"Give {limit} or more.")
        if value is not None and value > most.get(name, value):
            raise BadInput(f"{_flag(name)}={value} is too large", f"Give {most[name]} or less.")
    if not (math.isfinite(options.learning_rate) and options.learning_rate > 0):
        raise BadInput(
            f"--learning-rate={options.learning_rate} is not a valid learning rate",
            "Give a number above 0, such as 0.0003.",
        )


def _check_paths(options: Options) -> None:
    """Raise BadInput for a missing file or folder, and create the output folder."""
    for path in options.data:
        if path.is_dir():
            raise BadInput(f"--data={path} is a folder", "Give its files, each with its own --data.")
        if not path.is_file():
            raise BadInput(f"--data={path} does not exist", "Check the path on the machine that trains.")
    if options.model is not None and not (options.model / "config.json").is_file():
        remedy = "Give a downloaded Hugging Face model folder; models are not downloaded."
        raise BadInput(f"--model={options.model} has no config.json", remedy)
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(options.output, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        remedy = "Choose a folder in which you may create files."
        raise BadInput(f"--output={options.output} cannot be used: {reason}", remedy)


def _with_model_sizes(options: Options) -> Options:
    """Return the options with the sizes of a new model filled in; BadInput if they are inconsistent."""
    given = {name: getattr(options, name) for name in NEW_MODEL if getattr(options, name) is not None}
    if options.model is not None:
        if given:
            names = ", ".join(map(_flag, given))
            raise BadInput(
                f"{names} cannot be combined with --model", "Leave it out: the sizes are in the model's config.json."
            )
        return options
    sizes = NEW_MODEL | given
    hidden, heads = sizes["hidden_size"], sizes["heads"]
    if hidden % (2 * heads):
        message = f"--hidden-size={hidden} cannot be divided into --heads={heads} of an even size"
        near = max(1, round(hidden / heads / 2)) * 2 * heads
        raise BadInput(message, f"Choose a hidden size that is a multiple of {2 * heads}, as {near}.")
    return replace(options, **sizes)
