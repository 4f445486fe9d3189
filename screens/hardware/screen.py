"""Hardware: which cards there are, which are chosen, and why."""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Literal

from msgspec.structs import replace
from textual import on, work
from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.worker import get_current_worker

from tui_train.base.errors import Unavailable
from tui_train.base.text import quantity, size_text, visible
from tui_train.channel import ssh
from tui_train.facts.gpus.gpu_sets import card_queue_text, rank_card_sets
from tui_train.facts.gpus.samples import CardSample
from tui_train.facts.gpus.verdicts import all_gpus_blocked_by_torch_sentence, verdicts_with_prospects
from tui_train.facts.other_machines.cluster import Cluster
from tui_train.facts.other_machines.slurm import find_partitions
from tui_train.facts.types import CardSet, FactGap, Facts, Gpu, GpuVerdict, Machine
from tui_train.profile import fields, hosts
from tui_train.runner.machines.ssh import LOGIN_COMMAND
from tui_train.runner.queue.listing import CardInQueue
from tui_train.setup.setup import Setup
from tui_train.views import choices
from tui_train.views.clusters import CLUSTER_TABLE_HEADER, accounts_text, cluster_rows
from tui_train.views.host_cards import free_cards_summary
from tui_train.views.plain_text import card_load_text, pci_address, shared_memory_text

from ..messages import SetProfile, ValueChosen
from ..steps.step import StepScreen
from ..steps.step_rows import Section
from ..widgets.card_curves import CardHistory
from ..widgets.dialogs import ChoiceDialog, TextDialog
from ..widgets.findings_pane import FindingsPane
from ..widgets.jump import JumpTarget
from ..widgets.lines import DrawLines, Lines
from ..widgets.multi_select import MultiSelect, SelectRow
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import (
    FAILED_MARK,
    KEY_STYLE,
    LIVE_MARK,
    MUTED,
    OPEN_MARK,
    WARNING_MARK,
    columns,
    fit,
    heading,
    share_bar,
    styled,
)
from .card_panel import MARK_BY_VERDICT, card_panel_lines, process_memory_text

_MEMORY_BAR_WIDTH = 8
_MAX_PARTITIONS_SHOWN = 5
_NO_GPU_TEXT = "No NVIDIA GPU"
_PARTITION_COLUMN_WIDTHS = (16, 12, 17, 0)
# Among the answers to where it trains; no host's name begins so.
_SLURM_KEYS_WITH_KNOWN_VALUES = ("slurm.partition", "slurm.account", "slurm.time", "slurm.options")
_THIS_MACHINE_ANSWER, _OTHER_HOST_ANSWER, _SLURM_HERE_ANSWER, _SLURM_ON_HOST_ANSWER = (
    "-here",
    "-other",
    "-slurm",
    "-slurm-there",
)


class HardwareScreen(StepScreen):
    """The first step."""

    HELP = """Hardware

What this machine has, and what the training will use. Each GPU has a verdict:

use      trains well
skip     left out: it would slow or limit the others; Space picks it anyway
blocked  cannot work with the chosen PyTorch; the reason stands beside it

Keys
  s      another set of GPUs, where different ones can be combined in several
         ways; the fastest is chosen by itself
  h      train on another machine: a host over ssh, on which tui-train need
         not be installed, or a job of a Slurm cluster, where sbatch is on
         this machine or on the host
  F3     in a field of Slurm: the values that the cluster has for it
  r      look again

Without an NVIDIA GPU everything still works, on the CPU. With GPUs, the CPU trains only if you choose it."""
    TITLE_OF_STEP = "Hardware"
    WANTS_CARD_SAMPLES = True
    SECTIONS = (
        Section(title="Devices", keys=("hardware.device", "hardware.processes")),
        Section(
            title="Slurm",
            keys=("slurm.partition", "slurm.account", "slurm.time", "slurm.cpus", "slurm.options"),
        ),
    )
    KEYS_OUTSIDE_FORM = ("hardware.gpus", "hardware.host", "hardware.scheduler")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "pick_next_card_set", "Next set"),
        Binding("l", "log_in", "Log in"),
        Binding("h", "choose_machine", "Machines"),
        Binding("f3", "choose_value", "Values"),
        Binding("r", "app.refresh_facts", "Look again"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._card_sets: tuple[CardSet, ...] = ()
        self._verdicts: tuple[GpuVerdict, ...] = ()
        self._history = CardHistory()
        self._why_all_blocked = ""  # why none can be used, where that is one reason for all

    def step_widgets(self) -> Sequence[Widget]:
        """Host, cards, device and processes."""
        return [
            Lines(id="host"),
            MultiSelect(
                id="gpus",
                why_one_required="At least one GPU must stay picked. To train without GPUs, set Device to CPU.",
            ),
            Lines(id="sets"),
            Lines(id="gaps"),
            self.form,
        ]

    def update_outside_form(self, setup: Setup) -> None:
        """Show the host and its cards."""
        if self.facts is None:
            return
        machine = self.facts.machine
        looking = "machine" in self.awaited_parts
        # Where it trains may be another place now.
        self.query_one(StepBar).refresh()
        cluster, wanted = self.facts.cluster, self.profile.slurm.partition
        self._why_all_blocked = all_gpus_blocked_by_torch_sentence(
            machine.gpus, setup.gpu_verdicts, setup.toolchain, machine.driver_cuda
        )
        is_told_beside = any(finding.key == "hardware.device" for finding in self._all_findings)
        cause = "" if is_told_beside and self.query_one(FindingsPane).has_room else self._why_all_blocked
        # One cause of all cards stands above them.
        above_cards = styled(FAILED_MARK, (f" {visible(cause)}", "b")) if cause else Content()
        if setup.is_slurm_job and (cluster or looking):
            self.query_one("#host", Lines).show(
                lambda width: [*_cluster_lines(cluster, machine, wanted, width), *_wrapped_lines(above_cards, width)]
            )
        else:
            name = self.wizard.other_machine_name
            picked = f"{len(setup.gpus)} of {len(machine.gpus)} picked" if setup.gpus else ""
            self.query_one("#host", Lines).show(
                lambda width: [
                    *_host_lines(machine, name, picked, width, is_probing=looking),
                    *_wrapped_lines(above_cards, width),
                ]
            )
        gpus = self.query_one("#gpus", MultiSelect)
        gpus.display = bool(machine.gpus)
        gpus.disabled = self.profile.hardware.device == "cpu"
        self._verdicts = (
            verdicts_with_prospects(machine.gpus, setup.gpu_verdicts) if self._why_all_blocked else setup.gpu_verdicts
        )
        self._draw_cards(self.facts, [gpu.uuid for gpu in setup.gpus])
        self._card_sets = (
            rank_card_sets(machine.gpus, setup.gpu_verdicts) if self.profile.hardware.device != "cpu" else ()
        )
        offered = self.query_one("#sets", Lines)
        offered.display = len(self._card_sets) > 1
        cards = _card_set_lines(self._card_sets, gpus.picked, {gpu.uuid: gpu.index for gpu in machine.gpus})
        offered.show(
            lambda width: [heading("Sets of GPUs", "s chooses the next", width), *(fit(line, width) for line in cards)]
        )
        if self.focused is None or not self.focused.display or self.focused.disabled:
            self.set_focus(None)
            self.focus_next()
        gaps = [line for gap in machine.gaps for line in _missing_fact_lines(gap)]
        if not machine.gpus and not looking:
            hidden = any(gap.hides for gap in machine.gaps)
            # A gap may say just that, with the reason.
            is_said = any(gap.what == _NO_GPU_TEXT for gap in machine.gaps)
            without_reason = "" if is_said else "No GPU was found: training runs on the CPU."
            words = "No GPU can be used yet:" if hidden else without_reason
            if setup.is_slurm_job and cluster and not cluster.problem:
                words = f"No GPU in {visible(machine.hostname)}: training runs on its CPU."
            gaps.insert(0, styled((words, "b")))
            if not hidden and not self.wizard.is_machine_fixed:
                gaps.append(styled("  ", ("h", KEY_STYLE), (" chooses another machine.", MUTED)))
        shown = self.query_one("#gaps", Lines)
        shown.display = bool(gaps)
        shown.show(lambda width: [part for line in gaps for part in _wrap_indented(line, max(8, width))])

    @property
    def keys_named_in_texts(self) -> tuple[str, ...]:
        """Keys of the title above the sets of GPUs and of the notes of Slurm's fields; without GPUs, of hosts."""
        machine = self.facts and self.facts.machine
        is_without_gpus = machine and not machine.gpus and not any(gap.hides for gap in machine.gaps)
        return ("s", "f3", *(("h",) if is_without_gpus else ()))

    def why_key_refused(self, key: str) -> str:
        """Return why F3 has no values for a field of Slurm."""
        row = self.form.state.row if self._is_composed and self.form.has_focus_within else None
        if key != "f3" or row is None or not row.key.startswith("slurm."):
            return super().why_key_refused(key)
        if self.facts and self.facts.cluster and self.facts.cluster.problem:
            return f"The cluster does not answer, so nothing is known for {row.field.label}: type it."
        return f"The cluster names nothing for {row.field.label}: type it."

    def jump_targets(self) -> Iterable[JumpTarget]:
        """Return the GPUs as well."""
        host, gpus = self.query_one("#host", Lines), self.query_one("#gpus", MultiSelect)
        if gpus.display and gpus.focusable and host.panels:
            number, title = host.panels[-1]
            yield JumpTarget(title, host, number, gpus.focus)
        yield from super().jump_targets()

    def notes_by_key(self, setup: Setup) -> Mapping[str, str]:
        """Return how many processes 0 stands for, and what Slurm's fields may be."""
        automatic = "looking …" if self.is_machine_unknown else _automatic_processes_text(setup)
        notes = {} if self.profile.hardware.processes else {"hardware.processes": automatic}
        if self.is_machine_unknown and self.profile.hardware.device == "auto":
            notes["hardware.device"] = "looking …"
        for key in _SLURM_KEYS_WITH_KNOWN_VALUES if self.facts and setup.is_slurm_job else ():
            count = len(choices.field_options(key, setup)) if self.facts else 0
            notes[key] = f"F3 lists {count}" if count else ""
        return notes

    def cursor_row_details(self) -> DrawLines | None:
        """Return what draws all that is known of the card in whose row the cursor is, or was last."""
        machine = self.facts.machine if self.facts else None
        if self.facts is None or machine is None or len(self._verdicts) != len(machine.gpus):
            return None
        marked = self.query_one("#gpus", MultiSelect).cursor
        for gpu, verdict in zip(machine.gpus, self._verdicts, strict=True):
            if gpu.uuid == marked:
                is_picked = gpu.uuid in self.query_one("#gpus", MultiSelect).picked
                samples, in_queue = self._history.samples_of_card(gpu.uuid), self.facts.card_in_queue(gpu.uuid)
                return partial(card_panel_lines, gpu, verdict, samples, in_queue, is_picked)
        return None

    def on_resize(self) -> None:
        """Update the hint, which shows what the panel has no room for, once the screen's size is known."""
        self.call_after_refresh(self._update_if_shown)

    def watch_card_samples(self) -> None:
        """Show what the cards do now."""
        self._history.add(self.card_samples, time.monotonic())
        self.show_cursor_row_details()
        if self.facts and len(self._verdicts) == len(self.facts.machine.gpus):
            self._draw_cards(self.facts, self.query_one("#gpus", MultiSelect).picked)

    def _draw_cards(self, facts: Facts, picked_uuids: Sequence[str]) -> None:
        now = {sample.uuid: sample for sample in self.card_samples}
        cards = zip(facts.machine.gpus, self._verdicts, strict=True)
        picks = (
            _card_row(
                gpu, verdict, now.get(gpu.uuid), facts.card_in_queue(gpu.uuid), of_cluster=bool(facts.cluster),
                reason_below=bool(self._why_all_blocked),
            )
            for gpu, verdict in cards
        )  # fmt: skip
        shown = self.query_one("#gpus", MultiSelect)
        is_told_beside, room = self.query_one(FindingsPane).has_room and self.has_class("-tall"), shown.size.width - 6
        # What the hint would say besides stands in the panel, or whole in the row.
        picks = (
            row._replace(hint=_pick_hint_text(row))
            if is_told_beside or all(line.cell_length <= room for line in row.below)
            else row
            for row in picks
        )
        shown.show_select_rows(picks, picked_uuids)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Another set can be taken only where there is one, another host unless one was named for all."""
        if action == "choose_value":
            return bool(self._known_values_of_row())
        if action == "choose_machine":
            return not self.wizard.is_machine_fixed
        if action == "log_in":
            return self._needs_login()
        return len(self._card_sets) > 1 if action == "pick_next_card_set" else super().check_action(action, parameters)

    def _needs_login(self) -> bool:
        """Return whether the host was not reached because ssh asks for what only its user knows."""
        return self.facts is not None and any(LOGIN_COMMAND in gap.why for gap in self.facts.machine.gaps)

    def action_log_in(self) -> None:
        """Hand the terminal to ssh, which asks there, and look again."""
        try:
            with self.app.suspend():
                ssh.log_in(hosts.host_address(self.wizard.other_machine_name))
        except SuspendNotSupported:
            remedy = f"In another terminal: {LOGIN_COMMAND} {self.wizard.other_machine_name}"
            raise Unavailable("this terminal cannot be handed to ssh", remedy) from None
        self.wizard.action_refresh_facts()

    def action_choose_machine(self) -> None:
        """Ask where it trains: on this machine, on a host that was saved, or on one that is added now."""
        known = hosts.address_by_saved_host()
        chosen, by_slurm = self.profile.hardware.host, self.profile.hardware.scheduler == "slurm"
        rows = {
            _THIS_MACHINE_ANSWER: "this machine",
            **{name: _host_label(name, address) for name, address in known.items()},
        }
        if chosen and chosen not in rows:
            rows[chosen] = visible(chosen)
        rows[_OTHER_HOST_ANSWER] = "another host …"
        if (by_slurm and not chosen) or shutil.which("sbatch"):
            rows[_SLURM_HERE_ANSWER] = "Slurm: a job on this cluster (sbatch is here)"
        if chosen and (by_slurm or (self.facts and self.facts.has_sbatch)):
            rows[_SLURM_ON_HOST_ANSWER] = f"{visible(chosen)} (Slurm)"
        dialog = self.ask_choice("Where does it train?", rows.items(), self._switch_to_chosen_machine)
        hosts_asked = {name: rows[name] for name in rows if not name.startswith("-")}
        if hosts_asked:
            self._show_free_cards(dialog, hosts_asked)

    @work(thread=True, group="hosts", exclusive=True)
    def _show_free_cards(self, dialog: ChoiceDialog, label_by_host: Mapping[str, str]) -> None:
        """Say beside each host how many of its GPUs are free, as it answers, while the question is open."""
        from tui_train.actions.host_cards import read_cards_of_hosts

        def is_closed() -> bool:
            return worker.is_cancelled or dialog.is_closed

        worker = get_current_worker()
        for answer in read_cards_of_hosts(label_by_host, is_closed):
            said = free_cards_summary(answer.facts) if answer.facts else "no answer"
            if is_closed():
                return
            self.app.call_from_thread(dialog.change_answer_text, answer.host, f"{label_by_host[answer.host]}  {said}")

    def _switch_to_chosen_machine(self, name: str) -> None:
        if name == _OTHER_HOST_ANSWER:
            self.app.push_screen(
                TextDialog("A host as ssh takes it (HOST or USER@HOST):", change=_require_host_address),
                self._switch_to_typed_host,
            )
        else:
            host = (
                self.profile.hardware.host
                if name == _SLURM_ON_HOST_ANSWER
                else ""
                if name in {_THIS_MACHINE_ANSWER, _SLURM_HERE_ANSWER}
                else name
            )
            self._switch_to_host(host, "slurm" if name in {_SLURM_HERE_ANSWER, _SLURM_ON_HOST_ANSWER} else "none")

    def _switch_to_typed_host(self, host: str | None) -> None:
        self.wizard.typed_host = host or ""
        self._switch_to_host(host)

    def _switch_to_host(self, host: str | None, scheduler: Literal["none", "slurm"] = "none") -> None:
        if host is not None:
            hardware = replace(self.profile.hardware, host=host, scheduler=scheduler)
            self.post_message(SetProfile(replace(self.profile, hardware=hardware)))

    def _known_values_of_row(self) -> tuple[choices.FieldOption, ...]:
        """Return the values that the typed field in which the cursor is can have, as far as they are known."""
        row = self.form.state.row if self._is_composed and self.form.has_focus_within else None
        return tuple(option for option in row.options if not option.why_disabled) if row and row.is_typed else ()

    def action_choose_value(self) -> None:
        """Show what the field can be to choose from; anything else can be typed."""
        row = self.form.state.row
        if row:
            answers = ((option.value, f"{option.label}  {option.note}") for option in self._known_values_of_row())

            def choose(value: str) -> None:
                self.post_message(ValueChosen(row.key, fields.parse_value(row.field, value)))

            self.ask_choice(f"{row.field.label}:", answers, choose)

    def action_pick_next_card_set(self) -> None:
        """Pick the next set of cards; the first is the default."""
        now = set(self.query_one("#gpus", MultiSelect).picked)
        at = next((at for at, one in enumerate(self._card_sets) if set(one.uuids) == now), -1)
        after = (at + 1) % len(self._card_sets)
        self.post_message(ValueChosen("hardware.gpus", self._card_sets[after].uuids if after else ()))

    @on(MultiSelect.Picked)
    def _post_picked_cards(self, event: MultiSelect.Picked) -> None:
        event.stop()
        self.post_message(ValueChosen("hardware.gpus", event.values))


def _automatic_processes_text(setup: Setup) -> str:
    count = setup.first_machine_process_count
    if setup.device == "cuda" and count == len(setup.gpus) > 1:
        return f"0: one per GPU, {count} here"
    return f"0: automatic, {quantity(count, 'process', 'processes')} here"


def _require_host_address(address: str) -> str:
    """Return the name of a host as it was typed; BadInput where it is none."""
    if (address := address.strip()) not in hosts.address_by_saved_host():
        ssh.require_host_name(address)
    return address


def _host_label(name: str, address: str) -> str:
    return visible(name if name == address else f"{name}  {address}")


def _host_lines(machine: Machine, host: str, picked_text: str, width: int, *, is_probing: bool) -> list[Content]:
    if is_probing and not machine.hostname:
        return [
            heading(visible(host or "This machine"), "", width),
            styled((f"Looking at {visible(host) or 'this machine'} …", MUTED)),
            Content(),
        ]
    if not machine.hostname:
        return [heading(host or "This machine", "", width), Content()]
    driver = f"NVIDIA driver {machine.driver_version}" if machine.driver_version else "no NVIDIA driver"
    cuda = f", CUDA {machine.driver_cuda}" if machine.driver_cuda else ""
    memory = f"memory {size_text(machine.memory_available)} free of {size_text(machine.memory_total)}"
    processor = f"{machine.cpu_name or 'processor'}, {machine.cpu_count} cores"
    lines = [
        heading(visible(machine.hostname), "", width),
        fit(styled(visible(processor), ("   ", ""), visible(f"{driver}{cuda}")), width),
        fit(styled((memory + (f"   {shared_memory_text(machine)}" if machine.gpus else ""), MUTED)), width),
    ]
    return [*lines, Content(), heading("GPUs", picked_text, width)] if machine.gpus else [*lines, Content()]


def _cluster_lines(cluster: Cluster | None, machine: Machine, partition: str, width: int) -> list[Content]:
    """Return the partitions, the chosen ones first, and the heading of the GPUs of a node."""
    if cluster is None:
        return [heading("Slurm", "", width), styled(("Asking sinfo …", MUTED)), Content()]
    if cluster.problem:
        return [heading("Slurm", "the cluster does not answer", width)]
    chosen = {part.name for part in find_partitions(cluster, partition)}
    # One row for each kind of node.
    kept = [part for part in cluster.partitions for _ in part.nodes or (None,)]
    listed = sorted(zip(kept, cluster_rows(cluster), strict=True), key=lambda pair: pair[0].name not in chosen)
    lines = [
        heading("Slurm", accounts_text(cluster), width),
        _cluster_row(CLUSTER_TABLE_HEADER, width, styled("  "), MUTED),
    ]
    for part, row in listed[:_MAX_PARTITIONS_SHOWN]:
        mine = part.name in chosen
        lines.append(
            _cluster_row(
                row, width, styled((LIVE_MARK[0], "$primary") if mine else OPEN_MARK, " "), "b" if mine else ""
            )
        )
    if len(listed) > _MAX_PARTITIONS_SHOWN:
        lines.append(styled((f"  and {len(listed) - _MAX_PARTITIONS_SHOWN} more: F3 on Partition lists all", MUTED)))
    head = [Content(), heading(f"GPUs of {visible(machine.hostname)}", "", width)] if machine.gpus else [Content()]
    return [*lines, *head]


def _cluster_row(cells: tuple[str, ...], width: int, mark: Content, style: str) -> Content:
    shown = zip(cells, _PARTITION_COLUMN_WIDTHS, strict=False)
    return styled(mark, columns(width - 2, *(((cell, style), size) for cell, size in shown)))


def _card_set_lines(
    card_sets: Sequence[CardSet], picked_uuids: Sequence[str], index_by_uuid: dict[str, int]
) -> list[Content]:
    lines = []
    for card_set in card_sets:
        taken = set(card_set.uuids) == set(picked_uuids)
        cards = " ".join(str(index_by_uuid[uuid]) for uuid in card_set.uuids)
        words = (f" {card_set.title}: GPU {cards}  ", "b" if taken else "")
        lines.append(styled((LIVE_MARK[0], "$primary") if taken else OPEN_MARK, words, (card_set.gain, MUTED)))
    return lines


def _missing_fact_lines(gap: FactGap) -> list[Content]:
    """Return the lines of a gap; that a machine has no GPU is no warning."""
    mark = OPEN_MARK if gap.what == _NO_GPU_TEXT and not gap.hides else WARNING_MARK
    return [
        styled(mark, (f" {visible(gap.what)}", "b")),
        styled(f"  {visible(gap.why)}"),
        styled((f"  {visible(gap.remedy)}", MUTED)),
    ]


def _wrapped_lines(words: Content, width: int) -> list[Content]:
    return words.wrap(max(8, width)) if words.plain else []


def _wrap_indented(line: Content, width: int) -> list[Content]:
    """Return a line folded below where its words begin."""
    begins = len(line.plain) - len(line.plain.lstrip(" "))
    return [styled(" " * begins, part) for part in line[begins:].wrap(width - begins)]


def _card_row(  # noqa: PLR0913 - what is known of a card
    gpu: Gpu,
    verdict: GpuVerdict,
    sample: CardSample | None,
    in_queue: CardInQueue,
    *,
    of_cluster: bool,
    reason_below: bool,
) -> SelectRow:
    """Return the row of a card; `reason_below`: the first reason, why it is blocked, is shown once for all cards."""
    free = gpu.memory_free if sample is None or sample.memory_free is None else sample.memory_free
    used = 1 - free / gpu.memory_total if gpu.memory_total and free is not None else 0.0
    memory = f"{size_text(free)} free of {size_text(gpu.memory_total)}"
    if of_cluster:
        memory = size_text(gpu.memory_total) if gpu.memory_total else "memory not known"
    name = visible(gpu.name).removeprefix("NVIDIA ") or "?"
    words = f" {verdict.kind}{', busy' if verdict.busy or in_queue.holder else ''}"
    cells = (
        ((f"{gpu.index}", "b"), 3),
        (name, 19),
        (share_bar(used, _MEMORY_BAR_WIDTH), _MEMORY_BAR_WIDTH + 1),
        (memory, 26),
        (styled(MARK_BY_VERDICT[verdict.kind], (words, "b" if verdict.kind == "use" else "")), 0),
    )
    reasons = verdict.reasons[1:] if reason_below and not gpu.problem else verdict.reasons
    details = [card_load_text(sample) if sample else "", *reasons, card_queue_text(in_queue)]
    details += [verdict.busy] if verdict.busy else map(process_memory_text, gpu.processes[:3])
    details += ["shares the host's memory" if gpu.shares_memory else ""]
    details += ["drives a display" if gpu.display_active else ""]
    details += [f"cc {gpu.compute_capability}" if gpu.compute_capability else ""]
    details += [f"bus {pci_address(gpu)}" if gpu.pci_bus else ""]
    shown = ", ".join(visible(detail) for detail in details if detail)
    below = (styled((shown, "" if verdict.kind == "blocked" and reasons else MUTED)),) if shown else ()
    reason = "; ".join(verdict.reasons) if verdict.kind == "blocked" else ""
    row = SelectRow(gpu.uuid, cells, visible(reason), "", below, is_wrong=True)
    can = _pick_hint_text(row)
    return row._replace(hint=f"{shown}. {can}" if shown else can)


def _pick_hint_text(row: SelectRow) -> str:
    return "It cannot be picked." if row.why_disabled else "Space picks it or leaves it out."


SCREEN = HardwareScreen
