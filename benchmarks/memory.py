"""Compare what is foretold of GPU memory with what others measured: `python benchmarks/memory.py FILE.csv`.

FILE has the columns model, gpus, gpu, mode, lora_r, dtype, amp, micro_bs, seq, grad_ckpt, attn, optimizer, kernels,
parallel, peak_alloc_gib, outcome and source. `--trace` asks the trace as well (in this Python, which needs torch and
transformers), `--rows` prints every row. The tables are those of docs/memory.md.
"""

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.memory.dimensions import Dimensions, by_name
from tui_train.memory.estimate import estimate
from tui_train.memory.trace import program, question, uncovered
from tui_train.memory.types import ATTENTION, EVERY, How
from tui_train.memory.verdict import verdict

GIB = 2**30
NUMBERS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


class Case(Struct, frozen=True, kw_only=True):
    """A row: what was measured, and what is foretold; `left_out` says why nothing is."""

    row: dict[str, str]
    source: str
    model: Dimensions | None = None
    how: How | None = None
    measured: float | None = None
    left_out: str = ""
    foretold: float | None = None
    traced: float | None = None
    verdict: str = ""

    @property
    def error(self) -> float | None:
        """The closed form's, as a part of what was measured."""
        return self.foretold / self.measured - 1 if self.foretold and self.measured else None

    @property
    def trace_error(self) -> float | None:
        """The trace's, as a part of what was measured."""
        return self.traced / self.measured - 1 if self.traced and self.measured else None


def read(path: Path) -> Iterator[Case]:
    """Yield the rows with what they say of model and training."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            source = re.split(r"[@ ]", row["source"])[0]
            reserved = row["nvidia_smi_gib"] if "reserved" in row["outcome"] else ""
            measured = float(row["peak_alloc_gib"] or reserved or 0) or None
            if measured and source == "Lightning-AI/litgpt":
                # It prints bytes / 1e9.
                measured *= 1e9 / GIB
            model = by_name(row["model"])
            case = Case(row=row, source=source, model=model, measured=measured)
            how = HOWS.get(source, _unknown)(row)
            if model and source == "Lightning-AI/litgpt":
                # Its attention is one projection, as in these.
                model = msgspec.structs.replace(model, type="gpt_neox" if model.norm == "layer" else "phi3")
            case = msgspec.structs.replace(case, model=model)
            if model is None:
                case = msgspec.structs.replace(case, left_out="the model is not in models.toml")
            elif isinstance(how, str):
                case = msgspec.structs.replace(case, left_out=how)
            else:
                case = msgspec.structs.replace(case, how=how)
            yield case


def _unknown(_row: dict[str, str]) -> str:
    return "the program is not known"


def _common(row: dict[str, str]) -> dict[str, object]:
    gpus = int(row["gpus"] or 1)
    sharded = "fsdp" if row["parallel"] == "fsdp" else "ddp" if gpus > 1 else ""
    return {
        "micro_batch": int(row["micro_bs"]),
        "sequence_length": int(re.sub(r"\D", "", row["seq"])),
        "weights": NUMBERS.get(row["dtype"], "fp32"),
        "checkpointing": row["grad_ckpt"] in {"yes", "full", "selective"},
        "whole_layers": row["grad_ckpt"] != "selective",
        "caveats": ("torch.compile",) * ("compile" in row["kernels"] or row["kernels"] == "cumulative"),
        "sharding": sharded,
        "shards": gpus,
        "rank": int(float(row["lora_r"] or 16)),
    }


def fms(row: dict[str, str]) -> How | str:
    """fms-acceleration: Hugging Face's Trainer, FSDP through accelerate for several GPUs, PEFT on attention."""
    kernels, lora = row["kernels"], row["mode"] == "lora"
    told = _common(row)
    # transformers 4.46 to 4.48, with which the first of its tables was made, copied the shifted logits.
    copied = "/a100_80gb.csv" in row["source"]
    fast = "foak" in kernels
    losses = (("upcast", "copied"), ("fast", "fast-copied"))
    told |= {
        "method": "lora" if lora else "full",
        "attention": "flash",
        "autocast": row["amp"] or "",
        "kernels": "norms" if fast else "",
        "loss": "fused" if "liger" in kernels else losses[fast][copied],
        "packed": "gptq" if "autogptq" in kernels else "nf4" if "bnb" in kernels else "",
        "targets": ATTENTION,
    }
    if "santacoder" in row["model"]:
        # Its class did not compute the loss in fp32 then.
        told["loss"] = "copied" if row["amp"] else "chunked" if fast else "plain"
    if told["sharding"] == "fsdp" and row["amp"] and not lora:
        # accelerate keeps what FSDP trains in fp32 then.
        told["weights"] = "fp32"
    told["holds_layers"] = told["sharding"] == "fsdp" and lora
    return How(**told)


def litgpt(row: dict[str, str]) -> How | str:
    """LitGPT: its own model, LoRA in bf16 on queries and values, logits in chunks of which all are held."""
    told = _common(row)
    several = told["shards"] != 1
    told |= {
        "method": "lora",
        "adapters": told["weights"],
        "targets": EVERY if row["mode"] == "adapter_v2" else ("q_proj", "v_proj") if "LoRA" in row["mode"] else (),
        "scales": row["mode"] == "adapter_v2",
        # With several GPUs: FSDP's first version, a whole state dict, and each block recomputed.
        "loads_whole": several,
        "checkpointing": several,
        "dropout": 0.05,
        "attention": "sdpa",
        "loss": "chunked",
        "keeps_inputs": True,
        "packed": {"bnb.nf4": "nf4", "bnb.nf4-dq": "nf4-dq"}.get(row["kernels"], ""),
    }
    return How(**told)


def peft(row: dict[str, str]) -> How | str:
    """PEFT's comparison of methods: fp32 adapters on queries and values, the most that was reserved."""
    told = _common(row)
    method, _, more = row["mode"].partition("--")
    if method == "full-finetuning":
        return How(**told | {"method": "full"})
    found = re.search(r"rank(\d+)", more)
    targets = ("gate_proj", "up_proj", "down_proj") if "target-mlp" in more else ("q_proj", "v_proj")
    # Without LoRA's matrices, gradients pass through all layers as with it.
    return How(**told | {"method": "lora", "rank": int(found[1]) if found else 8, "targets": targets})


def torchtune(row: dict[str, str]) -> How | str:
    """torchtune: its recipes' fused AdamW and recomputed layers, logits in chunks; each of its rows adds to the last."""
    mode = row["mode"].lower()
    steps = ("packed", "compile", "chunk", "checkpoint", "fuse", "offload", "8-bit", "lora")
    cumulative = row["kernels"] == "cumulative"
    done = max((place for place, step in enumerate(steps) if step in mode), default=-1) if cumulative else len(steps)
    lora = "lora" in mode
    told = _common(row) | {
        "method": "lora" if lora else "full",
        "optimizer": "adamw_8bit" if done >= steps.index("8-bit") and cumulative and not lora else "adamw_fused",
        "loss": "chunked" if done >= steps.index("chunk") else "upcast",
        "checkpointing": done >= steps.index("checkpoint"),
        "adapters": "bf16",
        "rank": 64,
        "packed": "nf4-dq" if "qlora" in mode else "",
        "targets": ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj") if lora else (),
    }
    if cumulative and done < 0:
        return "samples of other lengths, of which nothing is told"
    return How(**told)


def torchtitan(row: dict[str, str]) -> How | str:
    """torchtitan: FSDP2 with fp32 weights computed in bf16, fused AdamW; what was reserved."""
    if re.search(r"[TPC]P[2-9]", row["kernels"]):
        return "tensor, pipeline and context parallel are not modelled"
    return How(**_common(row) | {"weights": "fp32", "autocast": "bf16", "optimizer": "adamw_fused"})


HOWS = {
    "foundation-model-stack/fms-acceleration": fms,
    "Lightning-AI/litgpt": litgpt,
    "huggingface/peft": peft,
    "meta-pytorch/torchtune": torchtune,
    "pytorch/torchtitan": torchtitan,
}


def card(row: dict[str, str]) -> int:
    """Return the bytes of the card that a row names."""
    found = re.search(r"(\d+)GB", row["gpu"])
    known = {"L40S": 48, "A6000": 48, "A100": 80}
    size = int(found[1]) if found else next((gb for name, gb in known.items() if name in row["gpu"]), 80)
    # What the driver leaves of it.
    return int(size * GIB * 0.989)


def foretell(case: Case) -> Case:
    """Return the case with the closed form's answer."""
    if case.model is None or case.how is None or case.left_out:
        return case
    found = estimate(case.model, case.how)
    told = verdict(found, card(case.row), case.how)
    return msgspec.structs.replace(case, foretold=found.peak.total / GIB, verdict=told.band)


def traceable(case: Case) -> bool:
    """Tell whether the code that was measured is transformers', or fused kernels in it."""
    return not (case.how is None or case.left_out or case.model is None or case.measured is None or uncovered(case.how))


def trace(case: Case) -> Case:
    """Return the case with the trace's answer."""
    if not traceable(case) or case.model is None or case.how is None:
        return case
    asked = json.dumps(question(case.model, case.how))
    done = subprocess.run(
        [sys.executable, "-B", program("trace"), asked], capture_output=True, text=True, timeout=300, check=False
    )
    told = json.loads(done.stdout.strip().splitlines()[-1])
    if "problem" in told:
        print(case.row["model"], told["problem"], file=sys.stderr)
        return case
    return msgspec.structs.replace(case, traced=max(told["phases"].values()) / GIB)


def summary(name: str, errors: Iterable[float], within: float) -> str:
    """Return one line: how many, how many within the bound, the median and the worst."""
    sizes = sorted(abs(error) for error in errors)
    if not sizes:
        return f"| {name} | 0 | | | |"
    hits = sum(size <= within for size in sizes)
    return f"| {name} | {len(sizes)} | {hits / len(sizes):.0%} | {statistics.median(sizes):.1%} | {sizes[-1]:.0%} |"


def report(cases: list[Case], *, rows: bool) -> None:
    """Print the tables."""
    for title, field, within in (("Closed form", "error", 0.15), ("Trace", "trace_error", 0.10)):
        covered = [case for case in cases if not case.left_out and getattr(case, field) is not None]
        if not covered:
            continue
        print(f"\n{title}\n\n| Source | rows | within {within:.0%} | median error | worst |\n|---|---|---|---|---|")
        for source in sorted({case.source for case in covered}):
            print(summary(source, (getattr(case, field) for case in covered if case.source == source), within))
        print(summary("all", (getattr(case, field) for case in covered), within))
        print("\nMisses\n\n| Model | Training | foretold/measured GiB | error |\n|---|---|---|---|")
        for case in sorted(covered, key=lambda case: -abs(getattr(case, field))):
            if abs(getattr(case, field)) > within or rows:
                value = case.foretold if field == "error" else case.traced
                how = f"{case.row['gpus']} GPU, {case.row['mode']}, {case.row['kernels']}, batch {case.row['micro_bs']}"
                print(f"| {case.row['model']} | {how} | {value:.1f}/{case.measured:.1f} | {getattr(case, field):+.0%} |")
    out = [case for case in cases if case.row["outcome"] == "oom" and case.verdict]
    print(
        f"\nOut of memory: {len(out)} rows, called",
        ", ".join(f"{band} {sum(case.verdict == band for case in out)}" for band in ("fits", "tight", "will not fit")),
    )
    for case in out:
        if case.verdict == "fits":
            print(
                "  fits?!",
                case.row["model"],
                case.row["gpus"],
                case.row["kernels"],
                case.row["micro_bs"],
                case.foretold,
            )
    well = [case for case in cases if case.row["outcome"].startswith("ok") and case.verdict and not case.left_out]
    print(
        f"Trained: {len(well)} rows, called",
        ", ".join(f"{band} {sum(case.verdict == band for case in well)}" for band in ("fits", "tight", "will not fit")),
    )
    reasons = [case.left_out for case in cases if case.left_out and case.measured]
    for reason in sorted(set(reasons)):
        print(f"Left out: {reasons.count(reason)} rows, {reason}")


def main() -> None:
    """Read, foretell, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--rows", action="store_true")
    arguments = parser.parse_args()
    cases = [foretell(case) for case in read(arguments.file)]
    if arguments.trace:
        with ThreadPoolExecutor(3) as pool:
            cases = list(pool.map(trace, cases))
    report(cases, rows=arguments.rows)


if __name__ == "__main__":
    main()
