"""Compare what is predicted of GPU memory with what others measured: `python benchmarks/memory.py FILE.csv [--quick]`.

FILE has the columns model, gpus, gpu, mode, lora_r, dtype, amp, micro_bs, seq, grad_ckpt, attn, optimizer, kernels,
parallel, peak_alloc_gib, nvidia_smi_gib, outcome and source. `--trace` asks the trace as well (in this Python, which
needs torch and transformers), `--rows` prints every row. The tables are those of docs/memory.md.
"""

import argparse
import functools
import json
import statistics
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from memory_rows import GIB, Case, asked, card, read

from tui_train.memory import predict as profiles
from tui_train.memory import trace as traces
from tui_train.memory.estimate import estimate_memory
from tui_train.memory.verdict import judge_memory, reserved_bytes, used_bytes_on_card
from tui_train.setup.setup import Setup


def predict(case: Case) -> Case:
    """Return the case with the closed form's answer, and with what `tui-train estimate` says of a profile for it."""
    if case.model is None or case.how is None or case.left_out:
        return case
    found = estimate_memory(case.model, case.how)
    several = case.how.shards > 1
    held = reserved_bytes(found, several_processes=several)
    told = judge_memory(
        found.peak.total, held, card(case.row), several_processes=several, has_caveats=bool(found.caveats)
    )
    card_shows = used_bytes_on_card(held, several_processes=several) / GIB
    by_count = {"allocated": found.peak.total / GIB, "reserved": held / GIB, "card": card_shows}
    profile, facts = asked(case.row, case.how)
    by_profile = profiles.predict(Setup(profile, facts))
    if by_profile.estimate is None:
        raise AssertionError(by_profile.why_no_estimate)
    return msgspec.structs.replace(
        case,
        predicted=found.peak.total / GIB if case.counts == "allocated" else None,
        counted=by_count[case.counts],
        shown=card_shows,
        verdict=told.band,
        by_profile=by_profile.estimate.peak.total / GIB,
        profile_verdict=by_profile.band or "",
    )


def traceable(case: Case) -> bool:
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


def trace(case: Case) -> Case:
    """Return the case with the trace's answer."""
    if not traceable(case) or case.model is None or case.how is None:
        return case
    told = traced(json.dumps(traces.trace_request(case.model, case.how)))
    if told.problem:
        print(case.row["model"], told.problem, file=sys.stderr)
        return case
    return msgspec.structs.replace(case, traced=told.peak[1] / GIB)


@functools.cache
def traced(asked: str) -> traces.CountedMemory:
    """Return what the child counts; rows that ask the same are traced once."""
    return traces.run_trace(sys.executable, json.loads(asked))


def summary(name: str, errors: Iterable[float], within: float) -> str:
    """Return one line: how many, how many within the bound, the median and the worst."""
    sizes = sorted(abs(error) for error in errors)
    if not sizes:
        return f"| {name} | 0 | | | |"
    hits = sum(size <= within for size in sizes)
    return f"| {name} | {len(sizes)} | {hits / len(sizes):.0%} | {statistics.median(sizes):.1%} | {sizes[-1]:.0%} |"


def report(cases: list[Case], *, rows: bool) -> None:
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
            print(summary(source, (error for case, error in errors if case.source == source), within))
        print(summary("all", (error for _, error in errors), within))
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
    arguments = parser.parse_args()
    cases = [predict(case) for case in [*read(arguments.file)][: 4 if arguments.quick else None]]
    if arguments.trace:
        with ThreadPoolExecutor(3) as pool:
            cases = list(pool.map(trace, cases))
    report(cases, rows=arguments.rows)


if __name__ == "__main__":
    main()
