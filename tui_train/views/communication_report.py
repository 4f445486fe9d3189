"""Results of communication tests, as text."""

from tui_train.base.text import quantity, visible
from tui_train.facts.machine.communication_tests import CommunicationTestResult, Examination, RankStage, TriedFix
from tui_train.setup.setup import Setup
from tui_train.views.plain_text import command_line_options_of_change

_LABEL_WIDTH = 16
_EXCHANGED_BYTES = 100 * 2**20
# GB a second and direction, of a lane of each generation.
_PCIE_LANE_GB_PER_SECOND_BY_GENERATION = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}
# Below this share of what the link carries something is wrong with it.
_MIN_SHARE_OF_LINK = 0.1


def communication_test_title(setup: Setup) -> str:
    """Return what is tested, in a line."""
    count = setup.world_size
    on = f"{quantity(count, 'process', 'processes')} on the CPU" if setup.device == "cpu" else quantity(count, "GPU")
    return ", ".join(
        filter(None, (setup.launcher, on, {"nccl": "NCCL", "gloo": "Gloo"}.get(setup.communication_backend, "")))
    )


def stage_text(done: RankStage) -> str:
    """Return what a process has done, in a line."""
    label = f"{done.stage:<{_LABEL_WIDTH}}"
    if done.problem:
        return f"{label}process {done.rank}: {visible(done.problem)}"
    rate = done.bytes_per_second
    seconds = _EXCHANGED_BYTES / rate if rate else done.seconds
    detail = f"100 MiB at {transfer_rate_text(rate)}" if rate else visible(done.device)
    return f"{label}{seconds_text(seconds):>8}  {detail}".rstrip()


def seconds_text(seconds: float) -> str:
    """Return a short time."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def transfer_rate_text(bytes_per_second: float) -> str:
    """Return a rate in GB a second."""
    return f"{bytes_per_second / 1e9:.2g} GB/s"


def examination_text(setup: Setup, examination: Examination, *, with_fix: bool = True) -> str:
    """Return the result of a test: that it works and how fast, or why not and what was tried.

    `with_fix`: and the options that make the change.
    """
    result = examination.result
    if result.works:
        return _success_text(setup, result)
    failed = (
        "The processes do not reach each other" if result.processes > 1 and result.is_conclusive else "The test failed"
    )
    lines = [f"{failed}: {visible(result.cause)}."]
    lines += [f"  {tried_change_text(cure)}" for cure in examination.cures]
    change = examination.proven_fix
    if examination.works_at_times:
        lines.append("Tried once more, it worked as it is: it fails now and then.")
    elif change and with_fix:
        lines.append(f"Fix: {command_line_options_of_change(change)}")
    elif not change and result.remedy:
        lines.append(visible(result.remedy))
    if result.kept_at:
        lines.append(f"Its run folder stays there: {visible(result.kept_at)}")
    return "\n".join(lines)


def _success_text(setup: Setup, result: CommunicationTestResult) -> str:
    """Return that the processes communicate, and how fast beside what their link carries."""
    rate = result.bytes_per_second
    if result.processes < 2 or not rate:
        return "Works: one process, which exchanges nothing."
    took = f"Works: 100 MiB of gradients are added up in {seconds_text(_EXCHANGED_BYTES / rate)}"
    link, carried = _slowest_pcie_link(setup)
    if not carried:
        return f"{took}."
    busy = rate * 2 * (result.processes - 1) / result.processes
    words = f"{took}, {transfer_rate_text(busy)} through each GPU; {link} carries up to {carried:.2g} GB/s."
    if busy < _MIN_SHARE_OF_LINK * carried * 1e9:
        words += " That is far less: see whether other programs use the GPUs, and `nvidia-smi topo -m`."
    return words


def _slowest_pcie_link(setup: Setup) -> tuple[str, float]:
    """Return the slowest link of the cards, and its GB a second; 0 where other ways are taken, or it is not known."""
    gpus = setup.gpus
    other_ways = {"p2p", "shm"} & {*setup.profile.communication.without} or any(gpu.nvlinks for gpu in gpus)
    if setup.communication_backend != "nccl" or setup.profile.nodes.machine_count > 1 or other_ways:
        return "", 0.0
    links = [
        (gpu.pcie.generation_max or 0, gpu.pcie.width or gpu.pcie.width_max or 0) if gpu.pcie else (0, 0)
        for gpu in gpus
    ]
    generation, width = min(
        links, key=lambda link: _PCIE_LANE_GB_PER_SECOND_BY_GENERATION.get(link[0], 0.0) * link[1], default=(0, 0)
    )
    return f"PCIe {generation} x{width}", _PCIE_LANE_GB_PER_SECOND_BY_GENERATION.get(generation, 0.0) * width


def tried_change_text(cure: TriedFix) -> str:
    """Return what came of a change, in a line."""
    title = f"{visible(cure.change.title)}: "
    if cure.result is None:
        return f"{title}not tried, for want of time (--seconds)"
    if cure.result.works:
        rate = cure.result.bytes_per_second
        return f"{title}works{f', {transfer_rate_text(rate)}' if rate else ''}"
    return f"{title}{visible(cure.result.cause)}"
