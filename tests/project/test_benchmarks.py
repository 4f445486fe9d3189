"""Every benchmark measures what it says: with --quick, each prints its figures."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# A row of published measurements, by the columns that are read.
ROW = {
    "model": "TheBloke/Mistral-7B-v0.1-GPTQ", "gpus": "1", "gpu": "A100-80GB", "mode": "lora", "lora_r": "16",
    "dtype": "float16", "amp": "fp16", "micro_bs": "8", "seq": "4096", "grad_ckpt": "yes", "attn": "flash2",
    "optimizer": "adamw_torch(foreach)", "kernels": "accelerated-peft-autogptq-foak", "peak_alloc_gib": "22.31",
    "nvidia_smi_gib": "33.19", "outcome": "ok",
    "source": "foundation-model-stack/fms-acceleration@876e2ed scripts/benchmarks/refs/a100_80gb.csv:108",
}  # fmt: skip
COLUMNS = (*ROW, "parallel")
# Of each, its arguments and the figures that it prints, in their order.
FIGURES = {
    "bench.py --only first": ["first screen / bare Textual hello"],
    "bench.py --only keys": ["Enter to Hardware", "Esc to Home"],
    "bench.py --only home": ["Home with 1000 runs", "while they are read", "afterwards"],
    "bench.py --only supervisor": ["start, bare command", "memory of the supervisor"],
    "bench.py --only producer": ["run, no viewer", "run, 1 viewer", "run, 3 viewers"],
    "bench.py --only stream": ["keys under 100,000 lines/s", "memory"],
    "bench.py --only large": ["a log of 1.", "to its start"],
    "bench.py --only diagnose": ["diagnose reads a large log"],
    "screens.py --only memory": ["after   16", "after   64", "after  184"],
    "screens.py --only keys": ["the next step", "Esc, a step back", "a cursor key on Recipe"],
    "screens.py --only idle": ["unchanged screens"],
    "reading.py": ["Trainer 5", "no progress", "steps of 3 metrics"],
    "hosts.py": ["asking 16 hosts / asking 4", "median", "p99"],
    "watching.py": ["watching at 80x24", "watching at 120x40", "watching at 200x50"],
    "waiting.py": ["waiting for 1 card", "waiting for 2 cards", "waiting for 8 cards"],
    "tune.py quickstart hardware.device=cpu recipe.layers=2": ["The grid", "tui-train tune", "of the grid's fastest"],
    "memory.py measured.csv": ["Closed form", "Misses", "Trained: 1 rows"],
    "memory_drawn.py": ["compared: within 10 %"],
}


def test_each_benchmark_is_named():
    """What is not listed here would not be run."""
    named = {words.split()[0] for words in FIGURES}
    runs = {path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text()}
    assert named == runs
    kinds = re.search(r"kinds = \((.*)\)", (BENCHMARKS / "bench.py").read_text())[1]
    assert [*re.findall(r"bench.py --only (\w+)", " ".join(FIGURES))] == re.findall(r"\w+", kinds)


@pytest.mark.whole
@pytest.mark.timeout(900)
@pytest.mark.parametrize("words", FIGURES)
def test_prints_its_figures(words, tmp_path):
    name, *arguments = words.split()
    with (tmp_path / "measured.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerow(ROW)
    command = [sys.executable, str(BENCHMARKS / name), *arguments, "--quick"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "NOT TESTED" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr[-3000:]
    at = 0
    for figure in FIGURES[words]:
        at = done.stdout.find(figure, at)
        assert at >= 0, (figure, done.stdout)
