"""CPU time that a line of a log takes to read, and the memory of what is kept of very many steps.

Usage: python benchmarks/reading.py [--quick] [--against CHECKOUT] [--steps 10000000]. With another checkout both read
the same lines in turn in one process, and the ratio of their best times is printed: that holds while others use the
machine.
"""

import argparse
import importlib
import importlib.util
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tui_train.runner.logs import progress

_LINES, _QUICK_LINES, _LINES_AT_ONCE = 3000, 100, 2000
_ROUNDS = 5
_RANDOM = random.Random(1)
_TRL_NAMES = (
    "loss grad_norm learning_rate num_tokens completions/mean_length completions/min_length completions/max_length"
    " completions/clipped_ratio rewards/length/mean rewards/length/std reward reward_std frac_reward_zero_std entropy"
    " clip_ratio/low_mean clip_ratio/high_mean kl step_time epoch"
)


def _number(scale: float = 1.0) -> str:
    return f"{_RANDOM.random() * scale:.4g}"


def _bar(step: int, postfix: str = "") -> str:
    return f"{100 * step // _LINES:3}%|####      | {step}/{_LINES} [00:10<00:12, 18.29it/s{postfix}]"


def _trainer(step: int) -> str:
    return (
        f"{{'loss': '{_number(3)}', 'grad_norm': '{_number()}', 'learning_rate': '{_number(1e-3)}',"
        f" 'num_tokens': '{step * 2802}', 'mean_token_accuracy': '{_number()}', 'epoch': '{step / 1000:.4f}'}}"
    )


_LINE_BY_FORM: dict[str, Callable[[int], str]] = {
    "Trainer 5": _trainer,
    "TRL's GRPO": lambda _: "{" + ", ".join(f"'{name}': {_number()}" for name in _TRL_NAMES.split()) + "}",
    "script": lambda step: f"step {step}/9999 | loss {_number(3)} | lr {_number(1e-3)} | grad_norm {_number()}",
    "nanoGPT": lambda step: f"iter {step}: loss {_number(3)}, time {_number(99)}ms, mfu {_number(40)}%",
    "one loss": lambda step: f"step {step} loss {_number(3)}",
    "NeMo": lambda step: (
        f"Training epoch 0, iteration {step}/9999 | lr: {_number(1e-6)} | global_batch_size: 2 | global_step: {step} |"
        f" reduced_train_loss: {_number(9)} | train_step_timing in s: {_number()} | consumed_samples: {4 * step}"
    ),
    "JSON": lambda step: f'{{"step": {step}, "loss": {_number(3)}, "lr": {_number(1e-3)}, "acc": {_number()}}}',
    "bar with loss": lambda step: _bar(step, f", loss={_number(3)}, acc={_number()}"),
    "bar": _bar,
    "no progress": lambda step: f"2026-11-20 22:46:52,{step % 1000:03} INFO fetched {step} files in {_number()} s",
}


def _progress_module_of(checkout: Path) -> Any:
    folder = checkout / "tui_train" / "runner"
    spec = importlib.util.spec_from_file_location(
        "other_runner", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec
    sys.modules["other_runner"] = importlib.util.module_from_spec(spec)
    return importlib.import_module("other_runner.logs.progress")


def _microseconds_per_line(module: Any, lines: list[str]) -> float:
    found, begin = module.Progress(), time.process_time()
    for at in range(0, len(lines), _LINES_AT_ONCE):
        found = module.advance_progress(found, lines[at : at + _LINES_AT_ONCE])
    return (time.process_time() - begin) / len(lines) * 1e6


def _measure_time(other: Any, count: int) -> None:
    for form, line in _LINE_BY_FORM.items():
        lines = [line(step) for step in range(1, count + 1)]
        times: dict[Any, list[float]] = {module: [] for module in (progress, other) if module}
        for number in range(_ROUNDS):
            for module in [*times][:: 1 if number % 2 else -1]:
                times[module].append(_microseconds_per_line(module, lines))
        best = min(times[progress])
        beside = f"   {best / min(times[other]):.2f} × the other checkout" if other else ""
        print(f"{form:14} {best:6.1f} µs a line{beside}")


def _measure_memory(steps: int) -> None:
    def lines() -> Iterator[str]:
        values = [_number() for _ in range(997)]
        for step in range(1, steps + 1):
            yield f"step {step} | loss {values[step % 997]} | acc: {values[step % 991]} | kl: {values[step % 983]}"

    process = psutil.Process()
    before = process.memory_info().rss
    found = progress.advance_progress(progress.Progress(), lines())
    grown = process.memory_info().rss - before
    print(f"{steps:,} steps of {len(found.metrics.series)} metrics: {grown / 2**20:.1f} MiB more than before")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--quick", action="store_true", help="few lines: only to see that it works")
    parser.add_argument("--steps", type=int, default=100_000, help="read so many for the memory")
    options = parser.parse_args()
    other = _progress_module_of(options.against) if options.against else None
    _measure_time(other, _QUICK_LINES if options.quick else _LINES)
    _measure_memory(_QUICK_LINES if options.quick else options.steps)


if __name__ == "__main__":
    main()
