"""Facts, plans, findings and runs as plain text for a terminal; untrusted text made visible."""

import time

from tui_train.checks import Finding
from tui_train.facts.gpus import judge
from tui_train.facts.types import Facts, Toolchain
from tui_train.plan.types import Plan
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import Status
from tui_train.text import counted, duration, size, table, visible


def facts(found: Facts, judged_for: Toolchain | None, chosen: tuple[str, ...]) -> str:
    """Return the machine, its cards with their verdicts, and its Pythons."""
    machine = found.machine
    lines = [
        f"{visible(machine.hostname)}: {visible(machine.cpu_name) or 'processor'}, {machine.cpu_count} cores",
        f"memory {size(machine.memory_available)} free of {size(machine.memory_total)}",
        f"/dev/shm {size(machine.shm_free)} free",  # noqa: S108 - only reported
    ]
    if machine.driver_version:
        lines.append(f"NVIDIA driver {visible(machine.driver_version)}, CUDA {machine.driver_cuda}")
    if machine.gpus:
        rows: list[tuple[str, ...]] = [("GPU", "name", "memory free", "cc", "bus", "display", "verdict", "why")]
        verdicts = judge(machine.gpus, judged_for, machine.driver_cuda)
        for gpu, verdict in zip(machine.gpus, verdicts, strict=True):
            mark = "*" if gpu.uuid and gpu.uuid in chosen else " "
            display = {True: "yes", False: "no", None: "?"}[gpu.display_active]
            memory = f"{size(gpu.memory_free)} of {size(gpu.memory_total)}"
            rows.append((
                f"{mark}{gpu.index}", visible(gpu.name)[:40], memory, gpu.compute_capability or "?",
                visible(gpu.pci_bus or "?"), display, verdict.kind, visible("; ".join(verdict.reasons)),
            ))  # fmt: skip
        lines += ["", table(rows), "* = chosen for training"]
    else:
        lines += ["", "No GPU: training runs on the CPU."]
    lines += [f"! {visible(gap.what)}: {visible(gap.why)}\n  {visible(gap.remedy)}" for gap in machine.gaps]
    pythons: list[tuple[str, ...]] = [("Python", "version", "torch", "accelerate", "transformers", "")]
    for tool in found.toolchains:
        versions = (tool.version or "?", tool.torch or "-", tool.accelerate or "-", tool.transformers or "-")
        pythons.append((visible(tool.python), *map(visible, versions), visible(tool.problem or tool.label)))
    return "\n".join([*lines, "", table(pythons)])


def finding(found: Finding) -> str:
    """Return a finding in two lines: what is wrong and why, what to do."""
    mark = {"error": "error", "warning": "warning", "note": "note"}[found.level]
    return f"{mark}: {found.message}\n  {found.remedy}"


def plan(made: Plan) -> str:
    """Return a plan's summary: what starts, the arithmetic, the ladder."""
    lines = [f"{visible(made.name)}: {visible(made.title)}", made.attempts[0].batch]
    lines.append(", ".join([*made.numbers, f"Python {visible(made.python)}"]))
    lines += [f"after out of memory, {attempt.title}: {attempt.batch}" for attempt in made.attempts[1:]]
    return "\n".join([*lines, *made.notes])


def run_row(run: RunDir, now: Status) -> tuple[str, ...]:
    """Return a run as a row: id, state, when, how long, attempts."""
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(now.started)) if now.started else "-"
    took = duration((now.ended or time.time()) - now.started) if now.started and (now.ended or now.live) else "-"
    return (visible(run.name), state(now), started, took, str(len(now.attempts)))


def state(now: Status) -> str:
    """Return a run's state in words."""
    if now.state == "failed":
        return f"failed ({now.exit_code})"
    return f"lost, {counted(len(now.leftover), 'process', 'processes')} left" if now.leftover else now.state
