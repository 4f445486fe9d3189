"""Checks of cards, processes and precision."""

from collections.abc import Iterator

from msgspec.structs import replace

from tui_train.base.text import quantity
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.facts.gpus.capability import do_all_support_bf16
from tui_train.facts.gpus.gpu_sets import card_holder_text, recommended_uuids
from tui_train.facts.gpus.verdicts import find_gpus_by_identifier, why_gpu_unsupported_and_remedy
from tui_train.facts.machine.torch_builds import any_torch_supports
from tui_train.facts.types import Gpu
from tui_train.launchers import LAUNCHERS, capable_launchers_text
from tui_train.profile.changes import Change
from tui_train.setup.machine.container import ISOLATING_ENGINES
from tui_train.setup.setup import Setup

_MAX_MACHINE_GPUS_FOR_NCCL = 32


def unsuitable_or_busy_gpus(setup: Setup) -> Iterator[Finding]:
    """Cards that are chosen and cannot train, should not, or are busy."""
    profile = setup.profile
    gpus = setup.facts.machine.gpus
    cards = dict(zip((gpu.uuid for gpu in gpus), setup.gpu_verdicts, strict=True))
    names = {gpu.uuid: f"GPU {gpu.index} {gpu.name}" for gpu in gpus}
    if profile.hardware.device == "cpu":
        return
    for name in profile.hardware.gpus:
        matches = find_gpus_by_identifier(gpus, name)
        if len(matches) != 1:
            message = f"the GPU {name} {'could be one of several' if matches else 'is not in this machine'}"
            remedy = f"Choose again (hardware.gpus){_gpu_list_after_colon(matches or gpus)}."
            yield error("hardware.gpus", message, remedy, machine=True)
            continue
        uuid, verdict = matches[0].uuid, setup.gpu_verdicts[gpus.index(matches[0])]
        reasons = "; ".join(verdict.reasons)
        if verdict.kind == "blocked":
            message, remedy = f"{names[uuid]} cannot train: {reasons}", "Leave it out (hardware.gpus)."
            if profile.container.engine == "none" and _is_supported_only_by_other_torch(matches[0], setup):
                remedy = "Leave it out (hardware.gpus), or install a PyTorch that can use it: tui-train env create hf."
            yield error("hardware.gpus", message, remedy, machine=True)
        elif verdict.kind == "skip" and len(profile.hardware.gpus) > 1:
            message = f"{names[uuid]} is better left out: {reasons}"
            yield warning("hardware.gpus", message, "Leave it out (hardware.gpus).")
    own = _gpus_of_own_runs(setup)
    for gpu in setup.gpus:
        holder = "" if gpu.uuid in own else card_holder_text(setup.facts.card_in_queue(gpu.uuid))
        if user := cards[gpu.uuid].busy or holder:
            found = warning("hardware.gpus", f"{names[gpu.uuid]} is busy: {user}", "")
            yield finding_with_ways_past_busy_gpus(found, setup)


def finding_with_ways_past_busy_gpus(finding: Finding, setup: Setup, third_way: str = "") -> Finding:
    """Return a finding about GPUs in use with the ways out: to wait for them, a `third_way`, to take free ones."""
    change = _use_unused_gpus_change(setup)
    can_wait = setup.profile.nodes.machine_count == 1 and not setup.facts.scheduler
    by_command, by_key = (" (tui-train run --when-free)", " (w on Preview)") if can_wait else ("", "")
    return replace(
        finding,
        remedy=f"Wait until they are free{by_command}, {third_way}or choose other GPUs (hardware.gpus).",
        keys=f"Wait until they are free{by_key}, {third_way}or choose other GPUs{' (F2)' if change else ''}.",
        change=change,
    )


def _use_unused_gpus_change(setup: Setup) -> Change | None:
    """Return the change to GPUs that nobody uses, at most as many as were chosen; None without any."""
    pairs = zip(setup.facts.machine.gpus, setup.gpu_verdicts, strict=True)
    used = _gpus_of_own_runs(setup).union(card.uuid for card in setup.facts.cards_in_queue if card.holder)
    free = [(gpu, verdict) for gpu, verdict in pairs if gpu.uuid not in used and not verdict.busy]
    others = recommended_uuids([gpu for gpu, _ in free], [verdict for _, verdict in free])
    others = others[: len(setup.profile.hardware.gpus) or None]
    change = Change("train on free GPUs", "others use the chosen ones", (("hardware.gpus", others),))
    return change if others else None


def _gpus_of_own_runs(setup: Setup) -> set[str]:
    return {uuid for run in setup.facts.resources_in_use for uuid in run.gpus}


def _is_supported_only_by_other_torch(gpu: Gpu, setup: Setup) -> bool:
    tool = setup.toolchain
    no_code = tool is not None and bool(why_gpu_unsupported_and_remedy(gpu, tool, setup.facts.machine.driver_cuda)[0])
    return no_code and not gpu.problem and any_torch_supports(gpu)


def _gpu_list_after_colon(gpus: tuple[Gpu, ...]) -> str:
    return ": " * bool(gpus) + "; ".join(f"GPU {gpu.index} {gpu.pci_bus} {gpu.uuid} {gpu.name}" for gpu in gpus)


def gpus_blocking_nccl(setup: Setup) -> Iterator[Finding]:
    """Cards that keep NCCL from starting, though they are not chosen."""
    if setup.communication_backend != "nccl" or setup.profile.container.engine in ISOLATING_ENGINES:
        return  # these show a container the chosen cards alone
    # NCCL opens every card that NVML lists, whatever CUDA_VISIBLE_DEVICES says: `ncclNvmlEnsureInitialized`.
    boards = {gpu.index: gpu for gpu in setup.facts.machine.gpus}
    usable = (engine for engine in setup.facts.engines or () if not engine.problem)
    engines = [engine.name for engine in usable if engine.name in ISOLATING_ENGINES]
    in_container = f"train with {' or '.join(engines)} (container.engine), or " if engines else ""
    alternative = f"{in_container}choose communication.backend=gloo."
    for gpu in boards.values():
        if gpu.problem:
            message = f"NCCL opens every GPU of this machine, and GPU {gpu.index} cannot be opened: {gpu.problem}"
            remedy = f"Repair or remove that GPU, or {alternative}"
            yield warning("hardware.gpus", message, remedy)
    if len(boards) > _MAX_MACHINE_GPUS_FOR_NCCL:
        message = (
            f"NCCL fails on a machine of more than {_MAX_MACHINE_GPUS_FOR_NCCL} GPUs, and this one has {len(boards)}"
        )
        yield warning("hardware.gpus", message, f"Train on one GPU, or {alternative}")


def logout_effects_on_training(setup: Setup) -> Iterator[Finding]:
    """A machine that ends processes, or empties /dev/shm, at a logout, or may."""
    policy, where = setup.facts.machine.logout, "that machine" if setup.facts.other_machine else "this machine"
    if policy and policy.kills:
        message = f"{where} ends all your processes when you log out (KillUserProcesses=yes in logind.conf)"
        remedy = (
            "Stay logged in. Or export the plan (tui-train export), and there: `loginctl enable-linger`, "
            "`systemd-run --user bash launch.sh`."
        )
        yield warning("hardware.device", message, remedy)
    if policy and policy.removes_shared_memory and setup.communication_backend == "nccl":
        message = f"{where} empties your part of /dev/shm when you log out (RemoveIPC=yes in logind.conf)"
        remedy = "The GPUs communicate through /dev/shm (NCCL). `loginctl enable-linger` keeps its contents."
        yield note("hardware.device", message, remedy)
    if policy and policy.unknown:
        message = f"unknown whether {where} ends your processes when you log out: {policy.unknown}"
        remedy = "See KillUserProcesses and RemoveIPC in `man logind.conf`, or stay logged in."
        yield note("hardware.device", message, remedy)


def process_count_unfit_for_launcher_or_gpus(setup: Setup) -> Iterator[Finding]:
    """More or fewer processes than devices, or a launcher that cannot start them."""
    profile = setup.profile
    process_count, cards = setup.first_machine_process_count, len(setup.gpus)
    devices = cards if setup.device == "cuda" else process_count
    world_size = profile.nodes.machine_count * max(process_count, devices)
    launcher, machines = LAUNCHERS[setup.launcher], profile.nodes.machine_count
    starts_only_one = not launcher.starts_several_processes and world_size > 1
    if starts_only_one or (not launcher.starts_on_several_machines and machines > 1):
        change = Change("launcher auto", "chosen by processes and machines", (("trainer.launcher", "auto"),))
        suitable = capable_launchers_text(
            lambda other: other.starts_on_several_machines or (machines == 1 and other.starts_several_processes)
        )
        what = f"one process, and {world_size}" if starts_only_one else f"processes on one machine, and {machines}"
        yield error(
            "trainer.launcher",
            f"{launcher.label} starts {what} are wanted",
            f"Choose {suitable} (trainer.launcher), or fewer of them.",
            change=change,
        )
    elif setup.device == "cuda" and cards and process_count != cards:
        change = Change("one process per GPU", "each process gets a GPU of its own", (("hardware.processes", 0),))
        processes = quantity(process_count, "process", "processes")
        message = f"{processes} on {quantity(cards, 'GPU')}: each process takes exactly one"
        remedy = "Set hardware.processes to 0: one process per GPU."
        yield error("hardware.processes", message, remedy, change=change)


def unsupported_precision(setup: Setup) -> Iterator[Finding]:
    """A precision that the devices do not have, whoever set it; a library's own default may adapt to them."""
    precision_value, cuda = setup.effective_values["precision"], setup.device == "cuda"
    if "precision" not in setup.ladder_context.accepted_placeholders:
        return
    source = f" ({precision_value.source})" if precision_value.source else ""
    if precision_value.value == "fp16" and not cuda:
        message = f"fp16{source} cannot be trained on the CPU"
        remedy = "Choose fp32 or bf16 (recipe.precision)."
        other = "fp32"
    elif precision_value.value == "bf16" and cuda and not do_all_support_bf16(setup.gpus):
        message = f"not every chosen GPU can compute in bf16{source}: that takes Ampere (RTX 30, A100) or newer"
        remedy, other = "Choose fp16 or fp32 (recipe.precision).", "fp16"
    else:
        return
    why = "works everywhere" if other == "fp32" else "works on older GPUs"
    change = Change(f"precision {other}", why, (("recipe.precision", other),))
    yield (warning if precision_value.source.endswith("default") else error)(
        "recipe.precision", message, remedy, change=change
    )
