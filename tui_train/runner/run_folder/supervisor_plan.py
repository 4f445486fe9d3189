"""plan.json as the supervisor needs it: the attempts, what follows after each, and what the machine must have."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from ..system import safe_open, untrusted_json
from ..system.refused import UNAVAILABLE_EXIT_CODE, Refused
from ..system.safe_text import visible

if TYPE_CHECKING:
    from ..logs.progress import LogReadingOptions

PLAN_FILE_NAME = "plan.json"
_THREAD_COUNT_VARIABLE = "OMP_NUM_THREADS"


class CheckpointLayout(NamedTuple):
    """Rule for checkpoints: their folder, their names, and the files that only a complete one holds.

    They are PREFIX + step + SUFFIX, or, where `file` is given, always that one.
    """

    folder: str = ""
    prefix: str = ""
    complete: tuple[str, ...] = ()
    suffix: str = ""
    file: str = ""


class PlannedAttempt(NamedTuple):
    """One try: `next_by_phase` is the number of the attempt after it, by the phase in which GPU memory ran out.

    `fills` are files of the plan that hold the run's own paths, each with what stands there without a checkpoint.
    """

    title: str = ""
    next_by_phase: Mapping[str, int] = {}
    checkpoints: CheckpointLayout | None = None
    fills: tuple[tuple[str, object], ...] = ()


class SupervisorPlan(NamedTuple):
    """All that the supervisor takes from a plan; see tui_train.plan.types.Plan for what each field means.

    `chooses_network_interface`: the plan's own environment names the network interface of NCCL or Gloo.
    """

    gpus: tuple[str, ...] = ()
    gpu_names: tuple[str, ...] = ()
    nodes: int = 1
    world_size: int = 1
    uneven: tuple[int, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()
    address: str = ""
    port: int = 0
    find_interface: bool = False
    chooses_network_interface: bool = False
    output: str = ""
    grace: int = 20
    connection_wait: int = 60
    attempts: tuple[PlannedAttempt, ...] = ()
    resumes_itself: bool = False
    secrets: tuple[str, ...] = ()
    engine: str = ""
    image: str = ""
    folders: tuple[str, ...] = ()
    backend: str = ""
    expressions: tuple[str, ...] = ()
    steps: int = 0
    notify_command: tuple[str, ...] = ()
    notify_webhook: str = ""
    slurm: bool = False
    python: str = ""
    hosts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    gpu_pool: tuple[str, ...] = ()
    gpu_memory: int = 0
    threads: int = 1

    @property
    def is_started_by_hand(self) -> bool:
        """True where each of several machines is started by hand, with a supervisor of its own."""
        return self.nodes > 1 and not self.slurm and not self.hosts

    def checkpoint_layout(self, position: int) -> CheckpointLayout | None:
        """Return the rule of the attempt at a position, from 1; None where there is no such attempt, or no rule."""
        return self.attempts[position - 1].checkpoints if 0 < position <= len(self.attempts) else None

    def process_count(self, rank: int) -> int:
        """Return how many training processes a machine starts."""
        return self.uneven[rank] if self.uneven else self.world_size // self.nodes

    @property
    def can_resume(self) -> bool:
        """True where a second start can be given a checkpoint."""
        return any(attempt.checkpoints for attempt in self.attempts)


def read_plan(run_dir: str) -> SupervisorPlan:
    """Return the plan of a run folder; Refused where it is not there, or is none of ours."""
    path = os.path.join(run_dir, PLAN_FILE_NAME)
    try:
        return parse_plan(untrusted_json.parse_json(safe_open.read_bounded(path)), run_dir)
    except OSError as error:
        why = f"{error.strerror}: export the plan again, or run the command alone: bash launch.sh --plain"
        raise Refused(UNAVAILABLE_EXIT_CODE, f"cannot read {visible(path)}: {why}") from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise Refused(UNAVAILABLE_EXIT_CODE, f"{visible(path)} is no plan of tui-train: export it again") from None


def log_reading_options(plan: SupervisorPlan) -> LogReadingOptions:
    """Return how the plan says that its log is read."""
    from ..logs.progress import LogReadingOptions

    return LogReadingOptions.from_texts(plan.expressions, plan.steps)


def parse_plan(data: Any, run_dir: str) -> SupervisorPlan:
    """Return a plan's data as values, `run_dir` put in; ValueError, TypeError or KeyError where it is none."""
    container = data.get("container") or {}
    log = data.get("log") or {}
    notify = data.get("notify") or {}
    plain = {name: data[name] for name in _COPIED_SCALAR_FIELDS if name in data}
    for name, value in plain.items():
        if type(value) is not type(SupervisorPlan._field_defaults[name]):
            raise TypeError(name)
        if isinstance(value, str):
            _require_text(value)
    lists: dict[str, Any] = {name: _require_texts(data.get(name, ())) for name in _COPIED_TEXTS_FIELDS}
    attempts = tuple(_parse_attempt(item, run_dir) for item in data["attempts"])
    # What lies beside launch.sh and the plan itself.
    files = [*data.get("configs", ()), *data.get("programs", ()), *filter(None, (data.get("nemo"),))]
    planned = SupervisorPlan(
        **plain,
        **lists,
        uneven=tuple(int(count) for count in data.get("uneven", ())),
        others=tuple(_require_texts(cards) for cards in data.get("others", ())),
        attempts=attempts,
        engine=_require_text(container.get("engine", "")),
        image=_require_text(container.get("image", "")),
        folders=tuple(_resolve_plan_word(word, run_dir) for word in container.get("folders", ())),
        expressions=_require_texts(log.get("expressions", ())),
        steps=int(log.get("steps", 0)),
        notify_command=_require_texts(notify.get("command", ())),
        notify_webhook=_require_text(notify.get("webhook", "")),
        slurm=bool(data.get("slurm")),
        chooses_network_interface=any(
            item["name"].endswith("_SOCKET_IFNAME")
            for attempt in data["attempts"]
            for item in (attempt.get("command") or {}).get("env", ())
        ),
        files=tuple(_require_text(file["path"]) for file in files),
        threads=_planned_thread_count(data["attempts"]),
    )
    if planned.hosts and len(planned.hosts) != planned.nodes:
        raise ValueError("another number of hosts")
    if planned.uneven and (len(planned.uneven), sum(planned.uneven)) != (planned.nodes, planned.world_size):
        raise ValueError("another number of processes")
    if planned.others and len(planned.others) != planned.nodes - 1:
        raise ValueError("GPUs of another number of hosts")
    if planned.grace < 0 or not attempts or planned.nodes < 1 or planned.world_size < planned.nodes:
        raise ValueError("no attempts, or no processes")
    if planned.gpu_memory < 0:
        raise ValueError("less than no memory")
    if any(not 0 <= number <= len(attempts) for attempt in attempts for number in attempt.next_by_phase.values()):
        raise ValueError("an attempt that is not there")
    return planned


_COPIED_SCALAR_FIELDS = (
    "nodes", "world_size", "address", "port", "find_interface", "output", "grace", "connection_wait", "resumes_itself",
    "backend", "python", "gpu_memory",
)  # fmt: skip
_COPIED_TEXTS_FIELDS = ("gpus", "gpu_names", "secrets", "hosts", "gpu_pool")


def _parse_attempt(data: Any, run_dir: str) -> PlannedAttempt:
    rule = data.get("checkpoints")
    return PlannedAttempt(
        title=_require_text(data["title"]),
        next_by_phase={_require_text(phase): int(number) for phase, number in (data.get("then") or {}).items()},
        checkpoints=_parse_checkpoint_layout(rule, run_dir) if rule else None,
        fills=tuple((_require_text(path), otherwise) for path, otherwise in data.get("fills") or ()),
    )


def _planned_thread_count(attempts: Any) -> int:
    """Return how many CPU cores each process uses in the first of the attempts, 1 where that is not set."""
    variables = [item for attempt in attempts[:1] for item in (attempt.get("command") or {}).get("env", ())]
    values = [str(item["value"]) for item in variables if item["name"] == _THREAD_COUNT_VARIABLE]
    return int(values[-1]) if values and re.fullmatch("[1-9][0-9]{0,3}", values[-1]) else 1


def _parse_checkpoint_layout(data: Any, run_dir: str) -> CheckpointLayout:
    return CheckpointLayout(
        folder=_resolve_plan_word(data["folder"], run_dir),
        prefix=_require_text(data["prefix"]),
        complete=_require_texts(data["complete"]),
        suffix=_require_text(data.get("suffix", "")),
        file=_require_text(data.get("file", "")),
    )


def _resolve_plan_word(word: Any, run_dir: str) -> str:
    """Return a word of the plan; the run folder is the only variable that it may have here."""
    if isinstance(word, str):
        return word
    text = ""
    for piece in word["pieces"]:
        if not isinstance(piece, str) and piece["variable"] != "RUN_DIR":
            raise ValueError(piece["variable"])
        text += piece if isinstance(piece, str) else run_dir
    return text


def _require_text(value: Any) -> str:
    if not safe_open.is_valid_text(value):
        raise TypeError("not a text")
    return str(value)


def _require_texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)):
        raise TypeError("not a list")
    return tuple(_require_text(value) for value in values)
