"""Facts, plans, findings and runs as plain text for a terminal; untrusted text made visible."""

import shlex
import signal
import textwrap
import time
from collections.abc import Sequence

from tui_train.base.errors import Unavailable
from tui_train.base.own_command import with_runnable_commands
from tui_train.base.text import (
    broken_loss_text,
    capitalised,
    duration_text,
    number_ranges_text,
    quantity,
    size_text,
    text_table,
    typeset_ascii,
    visible,
)
from tui_train.checks import Finding
from tui_train.facts.gpus.gpu_sets import card_queue_text, rank_card_sets
from tui_train.facts.gpus.samples import CardSample
from tui_train.facts.gpus.verdicts import all_gpus_blocked_by_torch_sentence, gpu_verdicts, recommended_torch_build
from tui_train.facts.other_machines.host_commands import text_for_host
from tui_train.facts.types import Facts, Gpu, Machine, Toolchain
from tui_train.plan.types import Plan
from tui_train.profile import fields
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.secret_values import find_secret_positions
from tui_train.profile.types import Profile
from tui_train.runner.logs.memory_patterns import TEXT_BY_MEMORY_PHASE
from tui_train.runner.logs.progress import Progress
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.remote_run import read_host_report, read_remote_location
from tui_train.runs.status import ListedRun, training_seconds, waiting_or_end_reason
from tui_train.trainers.finetune import supported_tuning_labels

_CARD_TABLE_HEADER = ("GPU", "name", "memory free", "cc", "bus", "display", "UUID", "verdict", "why")
_COLUMNS_COMPARED_FOR_EQUAL_CARDS = (1, 2, 3, 7)  # the columns that equal cards share
_DEFAULT_WIDTH = 80
_MAX_FRESH_REPORT_SECONDS = 60.0  # seconds for which what a host said needs no time beside it


def facts_text(
    machine_facts: Facts, judged_for: Toolchain | None, chosen_uuids: tuple[str, ...], max_width: int | None = None
) -> str:
    """Return the machine, its cards with their verdicts, and its Pythons, in so many columns; None for all of it."""
    machine = machine_facts.machine
    lines = [visible(machine.hostname)]
    # For another host nvidia-smi reports only the cards.
    if machine.memory_total is not None:
        lines = [
            f"{lines[0]}: {visible(machine.cpu_name) or 'processor'}, {quantity(machine.cpu_count, 'core')}",
            f"memory {size_text(machine.memory_available)} free of {size_text(machine.memory_total)}",
            *filter(None, [shared_memory_text(machine)]),
        ]
    if machine.driver_version:
        cuda = f", CUDA {visible(machine.driver_cuda)}" if machine.driver_cuda else ""
        lines.append(f"NVIDIA driver {visible(machine.driver_version)}{cuda}")
    if machine.gpus:
        lines += ["", *_card_and_set_lines(machine_facts, judged_for, chosen_uuids, max_width)]
    else:
        hidden = any(gap.hides for gap in machine.gaps)
        lines += ["", "No GPU can be used yet:" if hidden else "No GPU: training runs on the CPU."]
    lines += [f"! {visible(gap.what)}: {visible(gap.why)}\n  {visible(gap.remedy)}" for gap in machine.gaps]
    if not machine_facts.toolchains:
        return "\n".join(lines)
    pythons: list[tuple[str, ...]] = [("Python", "version", "torch", "accelerate", "transformers", "fine-tuning", "")]
    for tool in machine_facts.toolchains:
        versions = (tool.version or "?", tool.torch or "-", tool.accelerate or "-", tool.transformers or "-")
        tunes = ", ".join(supported_tuning_labels(tool)) or "-"
        pythons.append((visible(tool.python), *map(visible, versions), tunes, visible(tool.problem or tool.label)))
    return "\n".join([*lines, "", pythons_text(pythons, max_width)])


def pythons_text(rows: Sequence[tuple[str, ...]], max_width: int | None) -> str:
    """Return Pythons as a table with its heads, or, where that is too wide, each as a few lines.

    The first cell of a row is its path, the last one a remark.
    """
    table = text_table(rows)
    if max_width is None or max(map(len, table.split("\n"))) <= max_width:
        return table
    heads, *pythons = rows
    lines = [heads[0]]
    for path, *cells, remark in pythons:
        known = [
            f"no {head}" if cell == "-" else f"{head} {cell}" for head, cell in zip(heads[1:], cells, strict=False)
        ]
        about = textwrap.wrap(", ".join(known), max(1, max_width - 2))
        lines += [f"{path}  {remark}".rstrip(), *(f"  {line}" for line in about)]
    return "\n".join(lines)


def shared_memory_text(machine: Machine) -> str:
    """Return how much shared memory is free, or why it cannot be used; empty if unknown."""
    folder = "/dev/shm"  # noqa: S108 - only reported
    if machine.shm_problem:
        return f"{folder} {visible(machine.shm_problem)}"
    return "" if machine.shm_free is None else f"{folder} {size_text(machine.shm_free)} free"


def _card_and_set_lines(
    facts: Facts, judged_for: Toolchain | None, chosen_uuids: tuple[str, ...], max_width: int | None
) -> list[str]:
    """Return the table of the cards, their sets where there is more than one, and what blocks all cards."""
    machine = facts.machine
    verdicts = gpu_verdicts(machine.gpus, judged_for, machine.driver_cuda)
    rows: list[tuple[str, ...]] = [_CARD_TABLE_HEADER]
    for gpu, verdict in zip(machine.gpus, verdicts, strict=True):
        mark = "*" if gpu.uuid and gpu.uuid in chosen_uuids else " "
        display = {True: "yes", False: "no", None: "?"}[gpu.display_active]
        memory = (
            f"{size_text(gpu.memory_free)} of {size_text(gpu.memory_total)}{' (shared)' if gpu.shares_memory else ''}"
        )
        in_queue = facts.card_in_queue(gpu.uuid)
        kind = f"{verdict.kind}, busy" if verdict.busy or in_queue.holder else verdict.kind
        busy = verdict.busy and f"busy: {verdict.busy}"
        why = "; ".join(filter(None, (*verdict.reasons, busy, card_queue_text(in_queue))))
        rows.append((
            f"{mark}{gpu.index}", visible(gpu.name)[:40], memory, visible(gpu.compute_capability or "?"),
            visible(gpu.pci_bus or "?"), display, visible(gpu.uuid or "?"), kind, visible(why),
        ))  # fmt: skip
    full_table = text_table(rows)
    fits = max_width is None or max(map(len, full_table.split("\n"))) <= max_width
    lines = [full_table] if fits else _grouped_card_lines(rows, machine, max_width)
    lines += ["* = chosen for training"] if chosen_uuids else []
    offered = rank_card_sets(machine.gpus, verdicts)
    if len(offered) > 1:
        indices = {gpu.uuid: gpu.index for gpu in machine.gpus}
        rows = [("set", "GPUs", "gain")]
        rows += [
            (gpu_set.title, number_ranges_text(sorted(indices[uuid] for uuid in gpu_set.uuids)), gpu_set.gain)
            for gpu_set in offered
        ]
        lines += ["", text_table(rows, max_width)]
    sentence = all_gpus_blocked_by_torch_sentence(machine.gpus, verdicts, judged_for, machine.driver_cuda)
    if not sentence:
        return lines
    return [*lines, f"! {visible(sentence)}", f"  {text_for_host(_torch_remedy(machine), facts.host)}"]


def _torch_remedy(machine: Machine) -> str:
    """Return how to get a torch for the cards of a machine, or why there is none."""
    try:
        return with_runnable_commands(
            f"Make an environment that can: tui-train env create hf ({recommended_torch_build(machine).text})."
        )
    except Unavailable as error:
        return f"{capitalised(error.message)}. {error.remedy}"


def _grouped_card_lines(rows: Sequence[tuple[str, ...]], machine: Machine, max_width: int | None) -> list[str]:
    """Return the cards' table without what names each one: equal cards are one row, reasons are below."""
    same: dict[tuple[str, ...], list[int]] = {}
    for gpu, row in zip(machine.gpus, rows[1:], strict=True):
        same.setdefault(
            (row[0][0], *(row[column] for column in _COLUMNS_COMPARED_FOR_EQUAL_CARDS), row[-1]), []
        ).append(gpu.index)
    kept = [("GPU", *(_CARD_TABLE_HEADER[column] for column in _COLUMNS_COMPARED_FOR_EQUAL_CARDS))]
    kept += [(f"{mark}{number_ranges_text(numbers)}", *cells) for (mark, *cells, _), numbers in same.items()]
    reasons: dict[str, list[int]] = {}
    for (*_, why), numbers in same.items():
        reasons.setdefault(why, []).extend(numbers)
    words = [f"GPU {number_ranges_text(sorted(numbers))}: {why}" for why, numbers in reasons.items() if why]
    folded = [textwrap.fill(line, max_width or _DEFAULT_WIDTH, subsequent_indent="  ") for line in words]
    return [text_table(kept, max_width), *folded, "--json has the bus and the UUID of each card."]


def pci_address(gpu: Gpu) -> str:
    """Return a card's PCI address without a domain of zeros."""
    return visible((gpu.pci_bus or "?").removeprefix("00000000:").removeprefix("0000:"))


def card_load_text(sample: CardSample) -> str:
    """Return a card's load, temperature and power, as far as the driver reports them."""
    values = ((sample.utilization, "%"), (sample.temperature, "°C"), (sample.power, "W"))
    return " ".join(f"{value} {unit}" for value, unit in values if value is not None)


def finding_text(finding: Finding) -> str:
    """Return a finding as lines: what is wrong and why, where, what to do, the options that do it."""
    fix = f"\n  Fix: {made}" if finding.change and (made := command_line_options_of_change(finding.change)) else ""
    details = "".join(f"\n  {visible(detail)}" for detail in finding.details)
    return with_runnable_commands(f"{finding.level}: {finding.message}{details}\n  {finding.remedy}{fix}")


def command_line_options_of_change(change: Change) -> str:
    """Return the options of `plan` and `run` that make a change, empty where a value may be a secret."""
    # What a command prints is logged and sent to others.
    if any(find_secret_positions(apply_change(change, Profile()))):
        return ""
    edits = (f"{key}={fields.format_value(value)}" for key, value in change.edits)
    return " ".join(f"--set {visible(_quoted_for_shell(edit))}" for edit in edits)


def _quoted_for_shell(word: str) -> str:
    """Return a word as a shell reads it back, in double quotes where single ones would have to be taken apart."""
    stays_as_it_is = word.isprintable() and not set(word) & set('"$`\\!')
    return f'"{word}"' if "'" in word and stays_as_it_is else shlex.quote(word)


def plan_text(planned: Plan) -> str:
    """Return a plan's summary: what starts, the arithmetic, the ladder."""
    lines = [f"{visible(planned.name)}: {visible(planned.title)}", typeset_ascii(planned.attempts[0].batch)]
    lines.append(", ".join([*planned.numbers, f"Python {visible(planned.python)}"]))
    lines += [
        f"after out of memory, attempt {number}, {typeset_ascii(attempt.title)}: {typeset_ascii(attempt.batch)}"
        for number, attempt in enumerate(planned.attempts[1:], start=2)
    ]
    if len(planned.attempts) > 1:
        lines += _fallback_lines(planned)
    return "\n".join([*lines, *planned.notes])


def _fallback_lines(planned: Plan) -> list[str]:
    """Return which attempts follow in each phase, and in one line the phases in which none does."""
    paths = {TEXT_BY_MEMORY_PHASE[phase]: planned.fallback_attempt_numbers(phase) for phase in planned.phases}
    lines = [
        f"out of memory {where}: attempt {way[0]}, then {', '.join(map(str, way[1:]))}"
        for where, way in paths.items()
        if way[1:]
    ]
    helpless = ", ".join(where for where, way in paths.items() if not way[1:])
    return [*lines, f"out of memory {helpless}: the run fails, no fallback helps there"] if helpless else lines


def listed_run_row(listed: ListedRun, progress: Progress | None = None) -> tuple[str, ...]:
    """Return a run as a row: id, state, when, how long; its progress says whether a finished one has lost its loss."""
    status, name = listed.status, visible(listed.run.name)
    if status is None:
        return (name, "damaged", "-", "-")
    started = _start_time_text(status.started) if status.started else "-"
    lasted = "-" if (seconds := training_seconds(status)) is None else duration_text(seconds)
    damaged = ", damaged" if listed.damage else ""
    why = waiting_or_end_reason(listed.run, status)
    queue_note = f" ({why})" if why else ""
    place = read_remote_location(listed.run.path) if status.is_live else None
    report = read_host_report(listed.run.path) if place and not place.shared else None
    if report and time.time() - report.at > _MAX_FRESH_REPORT_SECONDS:
        # A list asks no host: it shows what was heard when somebody looked.
        queue_note += f", as of {time.strftime('%H:%M', time.localtime(report.at))}"
    state = ", ".join(filter(None, (run_state_text(status), progress and broken_end_loss_text(status, progress))))
    return (name, f"{state}{queue_note}{damaged}", started, lasted)


def attempt_count_text(listed: ListedRun) -> str:
    """Return how many attempts a run had, `-` where that is not known."""
    return str(len(listed.status.attempts)) if listed.status else "-"


def _start_time_text(started: float) -> str:
    """Return day and time: of today the time alone, of another year also that."""
    then, now = time.localtime(started), time.localtime()
    day = "" if then[:3] == now[:3] else "%m-%d " if then.tm_year == now.tm_year else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M", then)


def run_state_text(status: RunStatus) -> str:
    """Return a run's state in words."""
    words = f"failed, {_exit_code_text(status.exit_code)}" if status.state == "failed" else status.state
    if status.host:
        return f"{words} on {visible(status.host)}"
    return words + (f", {quantity(len(status.leftover), 'process', 'processes')} left" if status.leftover else "")


def broken_end_loss_text(status: RunStatus, progress: Progress) -> str:
    """Return that the loss of a finished run is NaN or infinite at its end; empty for nothing."""
    return broken_loss_text(progress.last.loss) if progress.last and status.state == "finished" else ""


def _exit_code_text(code: int | None) -> str:
    """Return an exit code, or the signal for which a shell returns it."""
    try:
        return signal.Signals((code or 0) - 128).name
    except ValueError:
        return f"exit code {code}"


def stop_result_text(status: RunStatus) -> str:
    """Return the result of a stop: the run's state, and whether processes of it are left."""
    if status.leftover:
        return run_state_text(status)
    if status.state == "new" or (status.state == "stopped" and not status.attempts and status.ended is None):
        return "it had not started"
    memory = (
        "; the NVIDIA driver does not answer, so its GPU memory may still be in use" if status.driver_silent else ""
    )
    if status.has_surely_ended:
        return f"{run_state_text(status)}; no process of it is left{memory}"
    unseen = "a process that cleared its environment and left its group would not be seen"
    return f"{run_state_text(status)}; no process of it was found ({unseen}, as its supervisor was killed){memory}"
