"""Compare what is predicted of GPU memory with what others measured: `python benchmarks/memory.py FILE.csv [--quick]`.

FILE has the columns model, gpus, gpu, mode, lora_r, dtype, amp, micro_bs, seq, grad_ckpt, attn, optimizer, kernels,
parallel, peak_alloc_gib, nvidia_smi_gib, outcome and source. `--trace` asks the trace as well (in this Python, which
needs torch and transformers), `--rows` prints every row. `--held` fits what is fitted without one model's rows at a
time, and judges those. The tables are those of docs/memory.md.
"""

import argparse
import functools
import itertools
import json
import operator
import statistics
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from memory_rows import GIB, Case, asking_profile_and_facts, card_bytes, read_cases

from tui_train.memory import predict as profiles
from tui_train.memory import trace as traces
from tui_train.memory.estimate import estimate_memory
from tui_train.memory.verdict import ReservedBeyondTensorsShares, judge_memory, reserved_bytes, used_bytes_on_card
from tui_train.setup.setup import Setup


def with_predictions(case: Case) -> Case:
    """Return the case with the closed form's answer, and with what `tui-train estimate` says of a profile for it."""
    if case.model is None or case.how is None or case.left_out:
        return case
    estimate = estimate_memory(case.model, case.how)
    profile, facts = asking_profile_and_facts(case.row, case.how)
    by_profile = profiles.predict_memory(Setup(profile, facts))
    if by_profile.estimate is None:
        raise AssertionError(by_profile.why_no_estimate)
    case = msgspec.structs.replace(
        case,
        predicted=estimate.peak_phase.total_bytes / GIB if case.counts == "allocated" else None,
        by_profile=by_profile.estimate.peak_phase.total_bytes / GIB,
        profile_verdict=by_profile.band or "",
        estimate=estimate,
    )
    return with_gap_shares(case, ReservedBeyondTensorsShares())


def with_held_out_shares(cases: list[Case]) -> list[Case]:
    """Return the cases, each with what is reserved by shares that were fitted to the rows of all other models."""
    found = []
    for held in sorted({case.model.name for case in cases if case.model}):
        shares = fit_shares([case for case in cases if case.model and case.model.name != held])
        mine = [case for case in cases if case.model and case.model.name == held]
        found += [with_gap_shares(case, shares) for case in mine]
        print(f"without {held} ({len(mine)} rows): {shares}", file=sys.stderr)
    return found


def fit_shares(cases: list[Case]) -> ReservedBeyondTensorsShares:
    """Return the shares with the fewest rows that are off by more than 15 %, and of those the smallest mean error."""
    rows = []
    for case in cases:
        bare = with_gap_shares(case, ReservedBeyondTensorsShares(0, 0, 0))
        if case.estimate and case.how and (error := card_error(bare)) is not None:
            logits = max(dict(phase.parts).get("logits", 0) for phase in case.estimate.phases) / GIB
            told = bare.counted if case.counts != "allocated" else bare.shown
            peak, measured = case.estimate.peak_phase.total_bytes / GIB, (told or 0) / (1 + error)
            rows.append((error, peak / measured, peak / measured * (case.how.shard_count > 1), logits / measured))

    def badness(point: tuple[int, ...]) -> tuple[int, float]:
        shares = tuple(each / 100 for each in point)
        errors = [abs(error + sum(map(operator.mul, shares, parts))) for error, *parts in rows]
        return sum(error > 0.15 for error in errors), sum(errors)

    grid = itertools.product(range(16), range(0, 21, 2), range(0, 101, 10))
    return ReservedBeyondTensorsShares(*(each / 100 for each in min(grid, key=badness)))


def card_error(case: Case) -> float | None:
    """Return how much what is reserved is off, or what the card shows of it."""
    return case.error("counted") if case.counts != "allocated" else case.error("shown")


def with_gap_shares(case: Case, shares: ReservedBeyondTensorsShares) -> Case:
    """Return the case with what is reserved and the verdict by other shares."""
    if case.estimate is None or case.how is None:
        return case
    several = case.how.shard_count > 1
    held = reserved_bytes(case.estimate, several_processes=several, shares=shares)
    shown = used_bytes_on_card(held, several_processes=several) / GIB
    told = judge_memory(case.estimate.peak_phase.total_bytes, held, card_bytes(case.row), several_processes=several,
                        has_caveats=bool(case.estimate.caveats))  # fmt: skip
    counted = {"allocated": case.predicted, "reserved": held / GIB, "card": shown}[case.counts]
    return msgspec.structs.replace(case, counted=counted, shown=shown, verdict=told.band)


def print_tables_by_kind(cases: list[Case]) -> None:
    """Print the errors of each kind of training, and its verdicts."""
    lines = {"Allocated": lambda case: case.error("predicted"), "Reserved, or on the card": card_error}
    for title, error in lines.items():
        print(f"\n{title}\n\n| Kind | rows | within 15% | median error | worst |\n|---|---|---|---|---|")
        for kind in (*sorted({case.kind for case in cases if case.how}), ""):
            errors = [found for case in cases if kind in {case.kind, ""} and (found := error(case)) is not None]
            print(error_table_row(kind or "all", errors, 0.15))
    for outcome in ("ok", "oom"):
        found = [case.verdict for case in cases if case.row["outcome"].startswith(outcome) and case.verdict]
        counts = ", ".join(f"{band} {found.count(band)}" for band in ("fits", "tight", "will not fit"))
        print(f"\n{outcome}: {len(found)} rows, called {counts}")


def is_traceable(case: Case) -> bool:
    """Tell whether the code that was measured is transformers', or fused kernels in it."""
    if (
        case.how is None
        or case.model is None
        or case.measured is None
        or traces.why_not_traceable(case.model, case.how)
    ):
        return False
    own = case.source in {"Lightning-AI/litgpt", "meta-pytorch/torchtune", "pytorch/torchtitan"}
    return not own and not (case.source == "huggingface/peft" and not case.row["mode"].startswith(("lora--", "full")))


def with_trace(case: Case) -> Case:
    """Return the case with the trace's answer."""
    if not is_traceable(case) or case.model is None or case.how is None:
        return case
    told = count_by_trace(json.dumps(traces.memory_child_request(case.model, case.how)))
    if told.problem:
        print(case.row["model"], told.problem, file=sys.stderr)
        return case
    return msgspec.structs.replace(case, traced=told.peak_phase_and_bytes[1] / GIB)


@functools.cache
def count_by_trace(asked: str) -> traces.CountedMemory:
    """Return what the child counts; rows that ask the same are traced once."""
    return traces.run_memory_trace(sys.executable, json.loads(asked))


def error_table_row(name: str, errors: Iterable[float], within: float) -> str:
    """Return one line: how many, how many within the bound, the median and the worst."""
    sizes = sorted(abs(error) for error in errors)
    if not sizes:
        return f"| {name} | 0 | | | |"
    hits = sum(size <= within for size in sizes)
    return f"| {name} | {len(sizes)} | {hits / len(sizes):.0%} | {statistics.median(sizes):.1%} | {sizes[-1]:.0%} |"


def print_tables(cases: list[Case], *, rows: bool) -> None:
    """Print the tables."""
    tables = (
        ("What each row counts", "counted", 0.15),
        ("Allocated", "predicted", 0.15),
        ("On the card, by nvidia-smi", "shown", 0.15),
        ("Closed form, by a profile", "by_profile", 0.15),
        ("Trace", "traced", 0.10),
    )
    for title, field, within in tables:
        errors = [(case, error) for case in cases if (error := case.error(field)) is not None]
        if not errors:
            continue
        print(f"\n{title}\n\n| Source | rows | within {within:.0%} | median error | worst |\n|---|---|---|---|---|")
        for source in sorted({case.source for case, _ in errors}):
            print(error_table_row(source, (error for case, error in errors if case.source == source), within))
        print(error_table_row("all", (error for _, error in errors), within))
        print("\nMisses\n\n| Model | Training | predicted/measured GiB | error |\n|---|---|---|---|")
        for case, error in sorted(errors, key=lambda item: -abs(item[1])):
            if abs(error) > within or rows:
                how = f"{case.row['gpus']} GPU, {case.row['mode']}, {case.row['kernels']}, batch {case.row['micro_bs']}"
                measured = case.on_card if field == "shown" else case.measured
                values = f"{getattr(case, field):.1f}/{measured:.1f} {case.counts * (field == 'counted')}"
                print(f"| {case.row['model']} | {how} | {values} | {error:+.0%} |")
    for title, outcome in (("Out of memory", "oom"), ("Trained", "ok")):
        found = [case for case in cases if case.row["outcome"].startswith(outcome) and case.verdict]
        for by, field in (("", "verdict"), (", by a profile", "profile_verdict")):
            bands = [getattr(case, field) for case in found]
            counts = ", ".join(f"{band} {bands.count(band)}" for band in ("fits", "tight", "will not fit"))
            print(f"\n{title}: {len(found)} rows, called{by} {counts}")
    reasons = [case.left_out for case in cases if case.left_out]
    for reason in sorted(set(reasons)):
        print(f"Left out: {reasons.count(reason)} rows, {reason}")


def main() -> None:
    """Read, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--quick", action="store_true", help="the first four rows")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--held", action="store_true")
    arguments = parser.parse_args()
    cases = [with_predictions(case) for case in [*read_cases(arguments.file)][: 4 if arguments.quick else None]]
    if arguments.trace:
        with ThreadPoolExecutor(3) as pool:
            cases = list(pool.map(with_trace, cases))
    if arguments.held:
        print_tables_by_kind(with_held_out_shares(cases))
    else:
        print_tables(cases, rows=arguments.rows)


if __name__ == "__main__":
    main()
