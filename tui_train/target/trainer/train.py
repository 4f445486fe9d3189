"""Train a causal language model, one process a rank, started by python, torchrun or accelerate launch.

Exit codes: 0 done; 1 a failure, with its traceback; 2 something given cannot be used, and nothing was trained;
3 the loss or the gradient is not a number; 143 told to end by SIGTERM, after a checkpoint.
"""

import json
import math
import os
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import checkpoints
import model as models
import tracking
from arguments import PRECISIONS, BadInput, Options, parse
from batches import Batch, Samples, cut, read_tokens
from checkpoints import State
from tracking import Tracker

CLIP = 1.0
LOSSES = "losses.jsonl"
STOPPED = 143


def say(line: str) -> None:
    """Print a line in one write, since ranks share the log and two writes can come apart."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def learning_rate(step: int, options: Options) -> float:
    """Return the learning rate of the 0-based step: a linear rise, then a cosine to a tenth of the peak."""
    warmup = math.ceil(options.steps / 10) if options.warmup_steps is None else options.warmup_steps
    if step < warmup:
        return options.learning_rate * (step + 1) / warmup
    part = (step - warmup) / max(1, options.steps - warmup)
    return options.learning_rate * (0.55 + 0.45 * math.cos(math.pi * min(1.0, part)))


def set_threads() -> None:
    """Share the CPUs among this host's ranks; to be called before torch is imported, which reads it once."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // ranks)))
    # Threads that spin while they wait left a fifth to a half of the speed on two busy cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def start(options: Options) -> Any:
    """Return the accelerator, after every rank said where it runs; raise BadInput for an unexpected world or device."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import GradientAccumulationPlugin, InitProcessGroupKwargs

    has_cuda = torch.cuda.is_available()
    if options.expect_device == "cuda" and not has_cuda:
        build = f"torch {torch.__version__}"
        why = f"{build} is built without CUDA" if torch.version.cuda is None else f"{build} sees no GPU"
        remedy = "Check nvidia-smi, CUDA_VISIBLE_DEVICES and the driver, or choose the device cpu."
        raise BadInput(f"--expect-device=cuda, but {why}", remedy)
    if options.expect_device == "cpu" and has_cuda:
        raise BadInput(
            "--expect-device=cpu, but torch sees a GPU", "Set CUDA_VISIBLE_DEVICES to nothing, which hides it."
        )
    if options.precision == "fp16" and not has_cuda:
        raise BadInput("--precision=fp16 needs a GPU, and torch sees none", "Use fp32 or bf16 on a CPU.")
    accelerator: Any = Accelerator(
        cpu=not has_cuda,
        mixed_precision=PRECISIONS[options.precision],
        # As a plugin, because a plain number is overruled by a variable of the environment.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=options.accumulation),
        kwargs_handlers=[InitProcessGroupKwargs(backend=options.backend)] if options.backend else [],
    )
    rank, world = accelerator.process_index, accelerator.num_processes
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    backend = torch.distributed.get_backend() if distributed else "none"
    device = accelerator.device.type
    if accelerator.device.type == "cuda":
        device = f"cuda:{torch.cuda.current_device()}"
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        device += f" {gpu.name}" + (f" GPU-{gpu.uuid}" if hasattr(gpu, "uuid") else "")
    say(f"rank {rank}/{world} | host {socket.gethostname()} | device {device} | backend {backend}")
    if options.expect_world_size not in (None, world):
        message = f"rank {rank} is one of {world} processes, but --expect-world-size={options.expect_world_size}"
        remedy = "Start it with torchrun --nproc-per-node, or accelerate launch --multi_gpu, for that many processes."
        raise BadInput(message, remedy)
    accelerator.wait_for_everyone()
    return accelerator


class Stop:
    """Whether this rank was told to end; the first SIGTERM asks for a checkpoint, and so does no later one."""

    asked = False

    def listen(self) -> None:
        """From now on let SIGTERM end the training after the step that is under way."""
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


class NotANumber(Exception):
    """The loss or the gradient is nan or infinite; ends with exit code 3."""


@dataclass
class Training:
    """A training under way; `state` says how far it came, `seconds` how long its steps took here."""

    options: Options
    accelerator: Any
    tokenizer: Any | None
    model: Any
    optimizer: Any
    samples: Samples
    batch: Batch
    state: State
    stop: Stop
    tracker: Tracker
    seconds: float = 0.0

    def say_once(self, line: str) -> None:
        """Print a line from the first rank only."""
        if self.accelerator.is_main_process:
            say(line)

    def introduce(self) -> None:
        """Print the sizes of what is about to run."""
        options, batch, sizes = self.options, self.batch, self.state.model
        shape = f"{sizes['layers']} layers | hidden {sizes['hidden_size']} | {sizes['heads']} heads"
        amount = f"{sizes['parameters'] / 1e6:.1f} M parameters"
        self.say_once(f"model | {amount} | {shape} | sequence {options.sequence_length}")
        factors = f"micro {batch.micro} x accumulation {batch.accumulation} x world {batch.world}"
        self.say_once(f"batch | {factors} = global {batch.in_all}")
        self.say_once(f"data | {self.state.tokens} tokens | {len(self.samples.blocks)} blocks")

    def resume(self, folder: Path, saved: State) -> None:
        """Go on from a checkpoint; raise BadInput where it does not fit."""
        for difference in checkpoints.differences(saved, self.state, folder):
            self.say_once(f"warning | {difference}")
        checkpoints.load(self.accelerator, folder)
        self.state = replace(self.state, step=saved.step, first_loss=saved.first_loss, last_loss=saved.last_loss)
        self.say_once(f"start | resumed from {folder} at step {saved.step} of {self.options.steps}")

    def run(self) -> bool:
        """Train to the last step, with a line and a record for each, and checkpoints; False where a stop came first."""
        options = self.options
        first = self.state.step
        for step in range(first, options.steps):
            started = time.perf_counter()
            rate = learning_rate(step, options)
            loss, norm, stops = self.step(step, rate)
            taken = time.perf_counter() - started
            self.seconds += taken
            first_loss = loss if self.state.first_loss is None else self.state.first_loss
            self.state = replace(self.state, step=step + 1, first_loss=first_loss, last_loss=loss)
            self.report(loss, rate, norm, self.batch.in_all * options.sequence_length / taken)
            if stops or (options.checkpoint_every and self.state.step % options.checkpoint_every == 0):
                folder = checkpoints.save(self.accelerator, options.output, self.state, options.keep_checkpoints)
                self.say_once(f"checkpoint | step {self.state.step} | {folder}")
            if stops:
                self.say_once(f"stopped | step {self.state.step} of {options.steps} | it resumes from the checkpoint")
                return False
        folder = self.save_model()
        done = max(0, options.steps - first) * self.batch.in_all * options.sequence_length
        speed = done / self.seconds if done else 0.0
        losses = f"loss {self.state.first_loss:.4f} -> {self.state.last_loss:.4f}"
        self.say_once(f"done | step {self.state.step} | {losses} | tokens/s {speed:.0f} | model saved in {folder}")
        return True

    def step(self, step: int, rate: float) -> tuple[float, float, bool]:
        """Train one 0-based step; return the mean loss over all ranks, the gradient's norm, and whether to end now."""
        import torch

        accelerator = self.accelerator
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        total = torch.zeros((), device=accelerator.device, dtype=torch.float64)
        for blocks in self.samples.micro_batches(step, accelerator.process_index, self.batch):
            tokens = torch.from_numpy(blocks).to(accelerator.device)
            with accelerator.accumulate(self.model):
                loss = self.model(input_ids=tokens, labels=tokens, use_cache=False).loss
                self.rehearse_failure(step + 1, loss)
                accelerator.backward(loss)
                total += loss.detach()
        # A signal reaches one rank a step earlier than another: together with the loss they agree on the step.
        told = torch.stack([total / self.batch.accumulation, torch.full_like(total, float(self.stop.asked))])
        mean, stops = accelerator.reduce(told, "mean").tolist()
        norm = float(accelerator.clip_grad_norm_(self.model.parameters(), CLIP))
        # Before the weights change, so that no checkpoint holds the damage. In fp16 the scaler skips such gradients.
        for what, value in (("loss", mean), ("gradient norm", norm if accelerator.scaler is None else 0.0)):
            if not math.isfinite(value):
                raise NotANumber(f"{what} is {value} at step {step + 1}")
        self.optimizer.step()
        self.optimizer.zero_grad()
        return mean, norm, stops > 0

    def rehearse_failure(self, step: int, loss: Any) -> None:
        """Fail on the last rank in the 1-based step, where the command line asks for it."""
        options, accelerator = self.options, self.accelerator
        if accelerator.process_index != accelerator.num_processes - 1:
            return
        if step == options.simulate_oom_at_step and self.batch.micro > options.simulate_oom_above_micro_batch:
            if options.simulate_oom_in == "backward":
                loss.register_hook(self.run_out_of_memory)
            elif options.simulate_oom_in == "step":
                self.optimizer.optimizer.register_step_pre_hook(self.run_out_of_memory)
            else:
                self.run_out_of_memory()
        if step == options.simulate_failure_at_step:
            complain(f"simulated failure at step {step} with exit code {options.simulate_failure_code}")
            leave(options.simulate_failure_code)

    def run_out_of_memory(self, *_: object) -> NoReturn:
        """Raise what torch does."""
        import torch

        why = f"simulated at step {self.state.step + 1} with micro batch {self.batch.micro}"
        kind: type[Exception] = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
        raise kind(f"CUDA out of memory. Tried to allocate 2.00 GiB. ({why})")

    def report(self, loss: float, rate: float, norm: float, speed: float) -> None:
        """Print the line of a step and append its record."""
        if not self.accelerator.is_main_process:
            return
        numbers = f"loss {loss:.7f} | lr {rate:.3e} | grad_norm {norm:.4f} | tokens/s {speed:.0f}"
        say(f"step {self.state.step}/{self.options.steps} | {numbers}")
        record = {"step": self.state.step, "loss": loss, "lr": rate, "tokens_per_second": speed}
        record |= {"micro_batch": self.batch.micro, "accumulation": self.batch.accumulation}
        with (self.options.output / LOSSES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.tracker.log(self.state.step, {"loss": loss, "lr": rate, "grad_norm": norm, "tokens_per_second": speed})

    def save_model(self) -> Path:
        """Write the trained model, and its tokenizer if it has one, as a Hugging Face folder."""
        folder, partial = self.options.output / "model", self.options.output / ".model.partial"
        weights = self.accelerator.get_state_dict(self.model)
        if self.accelerator.is_main_process:
            shutil.rmtree(partial, ignore_errors=True)
            self.accelerator.unwrap_model(self.model).save_pretrained(partial, state_dict=weights)
            if self.tokenizer is not None:
                self.tokenizer.save_pretrained(partial)
            checkpoints.replace(partial, folder)
        self.accelerator.wait_for_everyone()
        return folder


def prepare(options: Options) -> Training:
    """Return a training at its first step, with its data read and its model on the device; print what it is."""
    tracking.check(options)
    saved = checkpoints.read_state(options.resume_from) if options.resume_from else None
    set_threads()
    models.prepare_transformers()
    config = models.load_config(options.model)
    tokenizer = models.load_tokenizer(options.model)
    if config is not None:
        models.check_config(options, config, tokenizer)
    tokens = read_tokens(options.data, options.text_field, tokenizer)
    samples = Samples(cut(tokens, options.sequence_length), options.seed)
    accelerator = start(options)
    checkpoints.agree(accelerator, saved.step if saved else 0)
    import torch

    torch.manual_seed(options.seed)
    model = models.build(options, config)
    batch = Batch(options.micro_batch, options.accumulation, accelerator.num_processes)
    state = State(
        step=0,
        seed=options.seed,
        global_batch=batch.in_all,
        sequence_length=options.sequence_length,
        world_size=batch.world,
        tokens=len(tokens),
        model=models.sizes(model),
    )
    optimizer = torch.optim.AdamW(model.parameters(), options.learning_rate, fused=torch.cuda.is_available())
    model, optimizer = accelerator.prepare(model, optimizer)
    # Equal weights need one seed, but dropout should differ between ranks.
    torch.manual_seed(options.seed + accelerator.process_index)
    stop = Stop()
    training = Training(options, accelerator, tokenizer, model, optimizer, samples, batch, state, stop, Tracker())
    training.introduce()
    if options.resume_from and saved:
        training.resume(options.resume_from, saved)
    else:
        training.say_once(f"start | step 0 of {options.steps}")
    if accelerator.is_main_process:
        numbers = {name: value for name, value in vars(options).items() if isinstance(value, (int, float, str))}
        training.tracker.begin(options, training.state.step, numbers)
    # Not before: until here there is nothing to save.
    stop.listen()
    return training


def main(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        training = prepare(parse(arguments))
    except BadInput as error:
        complain(str(error))
        return 2
    try:
        done = training.run()
        training.tracker.end(0 if done else STOPPED)
    except NotANumber as error:
        if training.accelerator.is_main_process:
            complain(str(error))
        training.tracker.end(3)
        # The launcher ends all ranks when the first one fails: not before the reason is written.
        training.accelerator.wait_for_everyone()
        return 3
    training.accelerator.wait_for_everyone()
    training.accelerator.state.destroy_process_group()
    return 0 if done else STOPPED


def complain(reason: str) -> None:
    """Print why this rank ends."""
    sys.stderr.write(f"error | {reason}\n")
    sys.stderr.flush()


def leave(code: int) -> NoReturn:
    """End at once: an interpreter that takes its time to end can be aborted by the threads of its communication."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    try:
        exit_code = main(sys.argv[1:])
    except KeyboardInterrupt:
        exit_code = 130
    except Exception:  # noqa: BLE001 - whatever it is, this rank must end with its traceback and not wait for others
        sys.excepthook(*sys.exc_info())
        exit_code = 1
    leave(exit_code)
