"""Facts, plans, findings and runs as plain text for a terminal; untrusted text made visible."""

import time

from tui_train.checks import Finding
from tui_train.facts.gpus import all_blocked, judge, sets
from tui_train.facts.types import Facts, Machine, Toolchain
from tui_train.plan.types import Plan
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import Status
from tui_train.text import counted, duration, size, table, visible


def facts(found: Facts, judged_for: Toolchain | None, chosen: tuple[str, ...]) -> str:
    """Return the machine, its cards with their verdicts, and its Pythons."""
    machine = found.machine
    lines = [visible(machine.hostname)]
    # Of another host nvidia-smi tells the cards only.
    if machine.memory_total is not None:
        lines = [
            f"{lines[0]}: {visible(machine.cpu_name) or 'processor'}, {counted(machine.cpu_count, 'core')}",
            f"memory {size(machine.memory_available)} free of {size(machine.memory_total)}",
            f"/dev/shm {size(machine.shm_free)} free",  # noqa: S108 - only reported
        ]
    if machine.driver_version:
        cuda = f", CUDA {visible(machine.driver_cuda)}" if machine.driver_cuda else ""
        lines.append(f"NVIDIA driver {visible(machine.driver_version)}{cuda}")
    if machine.gpus:
        lines += ["", *_cards(machine, judged_for, chosen)]
    else:
        lines += ["", "No GPU: training runs on the CPU."]
    lines += [f"! {visible(gap.what)}: {visible(gap.why)}\n  {visible(gap.remedy)}" for gap in machine.gaps]
    if not found.toolchains:
        return "\n".join(lines)
    pythons: list[tuple[str, ...]] = [("Python", "version", "torch", "accelerate", "transformers", "")]
    for tool in found.toolchains:
        versions = (tool.version or "?", tool.torch or "-", tool.accelerate or "-", tool.transformers or "-")
        pythons.append((visible(tool.python), *map(visible, versions), visible(tool.problem or tool.label)))
    return "\n".join([*lines, "", table(pythons)])


def _cards(machine: Machine, judged_for: Toolchain | None, chosen: tuple[str, ...]) -> list[str]:
    """Return the table of the cards, the sets that they make where there is more than one, and what blocks them all."""
    verdicts = judge(machine.gpus, judged_for, machine.driver_cuda)
    rows: list[tuple[str, ...]] = [("GPU", "name", "memory free", "cc", "bus", "display", "verdict", "why")]
    for gpu, verdict in zip(machine.gpus, verdicts, strict=True):
        mark = "*" if gpu.uuid and gpu.uuid in chosen else " "
        display = {True: "yes", False: "no", None: "?"}[gpu.display_active]
        memory = f"{size(gpu.memory_free)} of {size(gpu.memory_total)}"
        kind = f"{verdict.kind}, busy" if verdict.busy else verdict.kind
        why = "; ".join(filter(None, (*verdict.reasons, verdict.busy and f"busy: {verdict.busy}")))
        rows.append((
            f"{mark}{gpu.index}", visible(gpu.name)[:40], memory, visible(gpu.compute_capability or "?"),
            visible(gpu.pci_bus or "?"), display, kind, visible(why),
        ))  # fmt: skip
    lines = [table(rows), *(["* = chosen for training"] if chosen else [])]
    offered = sets(machine.gpus, verdicts)
    if len(offered) > 1:
        indices = {gpu.uuid: str(gpu.index) for gpu in machine.gpus}
        rows = [("set", "GPUs", "what it gains")]
        rows += [(one.title, " ".join(indices[uuid] for uuid in one.uuids), one.gain) for one in offered]
        lines += ["", table(rows)]
    sentence = all_blocked(machine.gpus, verdicts, judged_for)
    return [*lines, f"! {visible(sentence)}"] if sentence else lines


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
