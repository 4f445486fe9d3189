"""The devices of the ranks of a training, from their log lines, and differences from the plan."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tui_train.base.parse import Unparsable, parse_json_as
from tui_train.base.text import quantity, visible

MAX_RANKS = 1024
_RANK_LINE_START = "rank "
_RANK_LINE_PATTERN = re.compile(
    r"rank (?P<rank>\d{1,6})/(?P<world>\d{1,6}) \| host (?P<host>[^|\n]{0,255}?)"
    r" \| device (?P<device>[^\s|]{1,40})(?: (?P<card>[^|\n]{0,200}?))??"
    # The line of another rank may follow directly, or any text after a space.
    r" \| backend (?P<backend>[\w:,.-]{1,80}?)(?=rank \d+/\d+ \||[^\w:,.-]|$)"
)
_UUID_PATTERN = re.compile(
    r"(?:(?P<kind>GPU|MIG)-)?(?P<digits>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})", re.IGNORECASE
)
_SHOWN_UUID_LENGTH = 6
_MAX_DIFFERENCES_SHOWN = 8


class RankDevice(Struct, frozen=True, kw_only=True):
    """One process of a training and its device; `name` and `uuid` are empty if torch does not report them."""

    rank: int
    world_size: int
    host: str
    device: str
    name: str = ""
    uuid: str = ""
    backend: str = ""


class PlannedRanks(Struct, frozen=True, kw_only=True):
    """The processes of a plan and the devices of its first machine; world size 0, empty device and backend: unknown.

    `uneven` and `others` are as in the plan.
    """

    world_size: int = 0
    nodes: int = 1
    uneven: tuple[int, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()
    device: str = ""
    gpus: tuple[str, ...] = ()
    gpu_names: tuple[str, ...] = ()
    backend: str = ""


def parse_planned_ranks(data: bytes) -> PlannedRanks:
    """Return the processes and devices in a plan.json; unknown for a foreign one."""
    try:
        return parse_json_as(data, PlannedRanks)
    except Unparsable:
        return PlannedRanks()


def parse_rank_devices(lines: Iterable[str]) -> tuple[RankDevice, ...]:
    """Return the ranks in lines of a log, in order, without duplicates and at most MAX_RANKS."""
    ranks: dict[RankDevice, None] = {}
    for line in lines:
        if _RANK_LINE_START not in line:
            continue
        for match in _RANK_LINE_PATTERN.finditer(line):
            if len(ranks) >= MAX_RANKS:
                break
            ranks[_parse_rank(match)] = None
    return tuple(sorted(ranks, key=lambda rank: rank.rank))


def process_group_ranks(ranks: Iterable[RankDevice]) -> tuple[RankDevice, ...]:
    """Return the ranks of the process group if there is one; before that, each process reports rank 0 of 1."""
    every_rank = tuple(ranks)
    grouped = any(rank.world_size > 1 for rank in every_rank)
    return tuple(rank for rank in every_rank if rank.world_size > 1 or not grouped)


def differences_from_plan(ranks: Sequence[RankDevice], plan: PlannedRanks) -> tuple[str, ...]:
    """Return the differences between ranks and plan, as sentences."""
    comparable = not any(uuid.startswith("MIG-") for uuid in plan.gpus)
    return (
        *_world_size_differences(ranks, plan),
        *_device_type_differences(ranks, plan),
        *(_card_differences(ranks, plan) if plan.gpus and comparable else ()),
        *_backend_differences(ranks, plan.backend),
    )


def ranks_summary(ranks: Sequence[RankDevice]) -> str:
    """Return the ranks as short text: `2 processes on NVIDIA RTX 3090 ×2, nccl`; empty if none is known."""
    if not ranks:
        return ""
    devices = Counter(rank.name or ("CPU" if rank.device == "cpu" else rank.device.partition(":")[0]) for rank in ranks)
    devices_text = ", ".join(
        name + (f" ×{times}" if times > 1 and name != "CPU" else "") for name, times in devices.items()
    )
    backends = {rank.backend: None for rank in ranks if rank.backend != "none"}
    world = ranks[0].world_size
    count_text = (
        f"{world} processes, the first {MAX_RANKS}"
        if len(ranks) == MAX_RANKS < world
        else quantity(len(ranks), "process", "processes")
    )
    return ", ".join((f"{count_text} on {devices_text}", *backends))


def _parse_rank(match: re.Match[str]) -> RankDevice:
    name, _, last = (match["card"] or "").rpartition(" ")
    uuid = _uuid_as_nvidia_smi(last)
    return RankDevice(
        rank=int(match["rank"]),
        world_size=int(match["world"]),
        host=visible(match["host"]),
        device=visible(match["device"]),
        name=visible(name if uuid else match["card"] or "").strip(),
        uuid=uuid,
        backend=match["backend"],
    )


def _uuid_as_nvidia_smi(uuid: str) -> str:
    """Return a UUID as nvidia-smi writes it, empty if it is not one; some releases of torch omit `GPU-`."""
    match = _UUID_PATTERN.fullmatch(uuid)
    return f"{(match['kind'] or 'GPU').upper()}-{match['digits'].lower()}" if match else ""


def _world_size_differences(ranks: Sequence[RankDevice], plan: PlannedRanks) -> Iterable[str]:
    world_sizes = [rank.world_size for rank in ranks if rank.world_size != plan.world_size]
    if not world_sizes or not plan.world_size:
        return
    was = "was" if plan.world_size == 1 else "were"
    sentence = f"the training sees {quantity(world_sizes[0], 'process', 'processes')}, {plan.world_size} {was} planned"
    yield f"{sentence}: the processes are not connected" if world_sizes[0] < plan.world_size else sentence


def _device_type_differences(ranks: Sequence[RankDevice], plan: PlannedRanks) -> Iterable[str]:
    on_cpu = [rank for rank in ranks if rank.device == "cpu"]
    if plan.device == "cuda" and on_cpu:
        was = "was" if len(plan.gpus) == 1 else "were"
        trains = "train" if len(_rank_numbers(on_cpu)) > 1 else "trains"
        yield f"{_rank_numbers_text(on_cpu)} {trains} on the CPU, {quantity(len(plan.gpus), 'GPU')} {was} planned"
    if plan.device == "cpu":
        for rank in ranks:
            if rank.device not in {"cpu", "?"}:
                card = _card_text(rank.name or rank.device, rank.uuid)
                yield f"{_rank_numbers_text([rank])} uses {card}, the CPU was planned"


def _card_differences(ranks: Sequence[RankDevice], plan: PlannedRanks) -> Iterable[str]:
    chosen = {_uuid_as_nvidia_smi(uuid) or uuid for uuid in plan.gpus}
    elsewhere = {_uuid_as_nvidia_smi(uuid) or uuid for cards in plan.others for uuid in cards}
    names = [*plan.gpu_names, *[""] * len(plan.gpus)]
    planned = ", ".join(_card_text(visible(name), visible(uuid)) for name, uuid in zip(names, plan.gpus, strict=False))
    planned_names = {_comparable_card_name(visible(name)) for name in plan.gpu_names}
    sharing: dict[tuple[str, str], list[RankDevice]] = {}
    differing: list[RankDevice] = []
    first = next((rank.host for rank in ranks if rank.rank == 0), None)
    for rank in ranks:
        # Of the other machines the plan may only know that they have cards like the first.
        differs = rank.uuid not in elsewhere and (
            rank.uuid not in chosen
            if rank.uuid and (plan.nodes < 2 or rank.host == first)
            else bool(rank.name and planned_names) and _comparable_card_name(rank.name) not in planned_names
        )
        if differs:
            differing.append(rank)
        if rank.uuid:
            sharing.setdefault((rank.host, rank.uuid), []).append(rank)
    for rank in differing[:_MAX_DIFFERENCES_SHOWN]:
        yield f"{_rank_numbers_text([rank])} uses {_card_text(rank.name or rank.device, rank.uuid)}, planned: {planned}"
    if len(differing) > _MAX_DIFFERENCES_SHOWN:
        yield f"{quantity(len(differing) - _MAX_DIFFERENCES_SHOWN, 'more rank')} use GPUs that were not planned"
    # With more processes than cards, sharing is planned.
    shared = [of_card for of_card in sharing.values() if len(_rank_numbers(of_card)) > 1]
    for of_card in (
        shared[:_MAX_DIFFERENCES_SHOWN] if plan.uneven or plan.world_size <= len(plan.gpus) * plan.nodes else ()
    ):
        yield f"{_rank_numbers_text(of_card)} share one GPU, {_card_text(of_card[0].name, of_card[0].uuid)}"


def _backend_differences(ranks: Sequence[RankDevice], planned_backend: str) -> Iterable[str]:
    differing = [rank for rank in ranks if rank.backend != "none" and _backend_for_device(rank) != planned_backend]
    if planned_backend and differing:
        talks = "talk" if len(_rank_numbers(differing)) > 1 else "talks"
        yield f"{_rank_numbers_text(differing)} {talks} through {differing[0].backend}, {planned_backend} was planned"


def _backend_for_device(rank: RankDevice) -> str:
    """Return the backend of a rank for its device; `cuda:nccl,cpu:gloo` has one per device type."""
    entries = dict(re.findall(r"(\w+):(\w+)", rank.backend))
    return str(entries.get(rank.device.partition(":")[0], rank.backend))


def _rank_numbers(ranks: Sequence[RankDevice]) -> list[int]:
    return sorted({rank.rank for rank in ranks})


def _rank_numbers_text(ranks: Sequence[RankDevice]) -> str:
    numbers = _rank_numbers(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    few = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"ranks {few}"


def _card_text(name: str, uuid: str) -> str:
    return " ".join(filter(None, (name, f"…{uuid[-_SHOWN_UUID_LENGTH:]}" if uuid else "")))


def _comparable_card_name(name: str) -> str:
    return name.removeprefix("NVIDIA ").strip().lower()
