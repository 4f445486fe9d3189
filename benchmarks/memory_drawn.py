"""Compare the closed form with the trace where nothing was measured.

Usage: python benchmarks/memory_drawn.py [--quick] [--cases 80] [--seed 1]. Models and ways to train them are drawn at
random, the same ones for the same `--seed`. The trace runs the model's own code on fake tensors (in this Python,
which needs torch and transformers), some seconds each.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from tui_train.facts.models.dimensions import ModelDimensions, known_models
from tui_train.memory import trace as traces
from tui_train.memory.estimate import estimate_memory
from tui_train.memory.types import ALL_LORA_TARGETS, QUERY_VALUE_LORA_TARGETS, MemorySettings

GIB = 2**30
# Larger ones say the same, and take minutes.
MAX_PARAMETERS = 4e9


def draw_cases(chance: random.Random) -> Iterator[tuple[ModelDimensions, MemorySettings]]:
    """Yield a model, each type as likely as any other, and a way to train it."""
    small = sorted(
        (m for m in known_models().values() if m.parameters < MAX_PARAMETERS and not m.experts), key=lambda m: m.type
    )
    kinds = [list(models) for _, models in groupby(small, key=lambda model: model.type)]
    while True:
        model = chance.choice(chance.choice(kinds))
        lora = chance.random() < 0.4
        packed = chance.choice(["", "", "nf4", "nf4-dq"]) if lora else ""
        weights = "bf16" if packed else chance.choice(["fp32", "fp32", "bf16"])
        sharding = chance.choice(["", "", "", "ddp", "fsdp"])
        # Nobody trains weights of other 16 bits than are computed in.
        halves = ["bf16"] if weights == "bf16" and not lora else ["bf16", "bf16", "fp16"]
        how = MemorySettings(
            micro_batch=chance.choice([1, 2, 4, 8]),
            sequence_length=chance.choice([256, 512, 1024, 2048]),
            weight_dtype=weights,  # type: ignore[arg-type]
            autocast=chance.choice(["", *halves]),  # type: ignore[arg-type]
            trained="lora" if lora else "full",
            quantization=packed,  # type: ignore[arg-type]
            lora_rank=chance.choice([8, 64]),
            lora_targets=chance.choice([ALL_LORA_TARGETS, QUERY_VALUE_LORA_TARGETS]),
            lora_dropout=0.05 if lora else 0.0,
            optimizer=chance.choice(["adamw_fused", "adamw_foreach", "adamw_8bit", "adafactor", "sgd"]),  # type: ignore[arg-type]
            attention=chance.choice(["sdpa", "flash", "eager"]),  # type: ignore[arg-type]
            checkpoints_activations=chance.random() < 0.5,
            loss=chance.choice(["upcast", "upcast", "copied", "fused", "tiled", "checkpointed"]),  # type: ignore[arg-type]
            sharding=sharding,  # type: ignore[arg-type]
            shard_count=2 if sharding else 1,
            accumulates_gradients=chance.random() < 0.3,
        )
        if not traces.why_not_traceable(model, how):
            yield model, how


def relative_error_beside_trace(case: tuple[ModelDimensions, MemorySettings]) -> float | None:
    """Return how far the closed form is off by what the trace counts, None where it cannot; print what is far off."""
    model, how = case
    counted = traces.run_memory_trace(sys.executable, traces.memory_child_request(model, how))
    told = f"{model.name}: {how}"
    if counted.problem:
        print(f"not traced: {told}\n  {counted.problem}")
        return None
    told_peak = estimate_memory(model, how).peak_phase
    counted_phase, counted_bytes = counted.peak_phase_and_bytes
    found = told_peak.total_bytes / counted_bytes - 1
    if abs(found) > 0.1:
        print(f"{found:+.0%} ({told_peak.name}, {counted_phase}: {counted_bytes / GIB:.1f} GiB): {told}", flush=True)
    return found


def main() -> None:
    """Compare, and print how often the two agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four cases")
    parser.add_argument("--cases", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    cases = 4 if arguments.quick else arguments.cases
    models = draw_cases(random.Random(arguments.seed))
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(relative_error_beside_trace, [next(models) for _ in range(cases)])
        errors = sorted(abs(each) for each in found if each is not None)
    if not errors:
        return
    within = {bound: sum(each <= bound for each in errors) / len(errors) for bound in (0.1, 0.15)}
    median = statistics.median(errors)
    print(f"{len(errors)} compared: within 10 % {within[0.1]:.0%}, within 15 % {within[0.15]:.0%}, median {median:.1%}")


if __name__ == "__main__":
    main()
