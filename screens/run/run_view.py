"""State of the Run screen: the run's snapshot, the lines that show it, and which keys do something.

It is plain state: the screen gives it what arrives, and draws what it returns.
"""

import time
from collections.abc import Sequence

from textual.content import Content

from tui_train.base.text import duration_text, visible
from tui_train.facts.gpus.samples import CardSamples
from tui_train.facts.types import Facts
from tui_train.runner.run_folder.state import UNCONFIRMED_STATE
from tui_train.runs.follow import RunSnapshot
from tui_train.runs.health import MIN_BUSY_GPU_PERCENT, health_problems
from tui_train.runs.remote_run import read_host_report
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import may_training_still_write
from tui_train.views.run_outline import queue_position_text

from ..widgets.card_curves import CardHistory
from ..widgets.lines import DrawLines
from ..widgets.run_plot import PlotOptions
from ..widgets.text_layout import WARNING_MARK, styled
from .card_lines import CardLabel, card_lines
from .metric_grid import MetricGridOptions
from .run_end import RUN_NOT_ENDED
from .run_outcome import outcome_lines, outline_lines
from .run_state import run_state_lines

_UNREAD_NOTICE = "step and loss can no longer be read; the log below is still followed"
_DELETED_NOTICE = "its folder was deleted: the training ends by itself in seconds"
_GONE_NOTICE = "its folder is gone: it cannot be resumed, and Home lists it no longer"
_MAX_ATTEMPTS_LISTED = 100
WAITING_STATES = frozenset({"queued", "waiting", UNCONFIRMED_STATE})


class RunView:
    """The state of a run's view: snapshot, end, plot and metric options."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.snapshot: RunSnapshot | None = None  # None before the first
        self.end = RUN_NOT_ENDED
        self.previous_run: RunFolder | None = None  # the run of the same profile before it
        self.outline: tuple[tuple[str, str], ...] = ()  # what it will do, while it waits
        self.plot = PlotOptions()
        self.metrics = MetricGridOptions()
        self.is_log_unreadable = False  # the log cannot be read now
        self.is_folder_gone = False
        self.reading_text = ""  # how much of a large log was read
        self.link_problem = ""  # why its host, or Slurm, does not answer now
        self._history = CardHistory()
        self._cards_busy_at = time.monotonic()

    @property
    def is_still_training(self) -> bool:
        """True while the training goes on."""
        return self.snapshot is None or may_training_still_write(self.snapshot.status)

    @property
    def is_waiting(self) -> bool:
        """True while the training has not had its turn."""
        return self.snapshot is not None and self.snapshot.status.state in WAITING_STATES

    @property
    def newest_logged_attempt_number(self) -> int:
        """The newest attempt that has a log; 0: none."""
        numbers = range(1, _MAX_ATTEMPTS_LISTED)
        return max((number for number in numbers if self.run.attempt_log(number).is_file()), default=0)

    @property
    def last_plan_position(self) -> int:
        """The position in the plan of the last attempt."""
        attempts = self.snapshot.status.attempts if self.snapshot else ()
        return attempts[-1].position if attempts else 1

    # Its cards

    def samples_of_run(self, samples: CardSamples) -> CardSamples:
        """Return the samples of the cards that the run uses."""
        return tuple(sample for sample in samples if self.snapshot and sample.uuid in self.snapshot.gpus)

    def add_samples(self, samples: CardSamples) -> None:
        """Add the newest samples of the run's cards."""
        mine, now = self.samples_of_run(samples), time.monotonic()
        if any((sample.utilization or 0) >= MIN_BUSY_GPU_PERCENT for sample in mine):
            self._cards_busy_at = now
        self._history.add(mine, now)

    def _card_label_by_uuid(self, facts: Facts | None) -> dict[str, CardLabel]:
        """Return what the run's cards are called, by UUID: as the machine numbers them, else as the plan names them."""
        planned = dict(zip(self.snapshot.gpus, self.snapshot.gpu_names, strict=False)) if self.snapshot else {}
        cards = {uuid: CardLabel("", name) for uuid, name in planned.items()}
        here = facts.machine.gpus if facts else ()
        return cards | {gpu.uuid: CardLabel(str(gpu.index), gpu.name) for gpu in here if gpu.uuid}

    # The lines that say so

    def state_lines(self, card_samples: CardSamples) -> DrawLines:
        """Return what draws the run's state, and what is wrong with it."""
        snapshot, name = self.snapshot, self.run.name
        if snapshot is None:
            notice = [styled(WARNING_MARK, f" {_UNREAD_NOTICE}")] if self.is_log_unreadable else []
            return lambda _width: [styled(visible(name)), *notice]
        samples = self.samples_of_run(card_samples) if snapshot.status.is_live else ()
        idle = (time.monotonic() - self._cards_busy_at) / 60 if samples else None
        wrong = (
            *((self._link_problem_text(),) if self.link_problem else ()),
            *((self._folder_problem_text(),) if snapshot.was_folder_deleted or self.is_folder_gone else ()),
            *((_UNREAD_NOTICE,) if self.is_log_unreadable else ()),
            *((self.reading_text,) if self.reading_text else ()),
            *health_problems(
                snapshot.progress,
                snapshot.quiet_minutes,
                idle,
                snapshot.why_not_resumed,
                snapshot.slow_rank_sentence,
                snapshot.why_no_step_read,
                is_diagnosed=self.end.diagnosis is not None,
            ),
        )
        return lambda width: run_state_lines(name, snapshot, wrong, width)

    def _folder_problem_text(self) -> str:
        return _DELETED_NOTICE if self.snapshot and self.snapshot.was_folder_deleted else _GONE_NOTICE

    def _link_problem_text(self) -> str:
        report = read_host_report(self.run.path)
        if report is None or (self.snapshot and self.snapshot.status.state == UNCONFIRMED_STATE):
            return self.link_problem
        ago = duration_text(max(0.0, time.time() - report.at))
        return f"last heard {ago} ago, goes on there. {self.link_problem}"

    def outline_lines(self, max_lines: int) -> DrawLines:
        """Return what draws, in so many lines at most, what a run will do that waits."""
        place = queue_position_text(self.snapshot.starts_ahead if self.snapshot else None)
        texts = (*((("Queue", place),) if place else ()), *self.outline)
        return lambda width: outline_lines(texts, width)[:max_lines]

    def outcome_lines(self, max_lines: int) -> DrawLines:
        """Return what draws, in so many lines at most, what an ended run leaves."""
        snapshot, end = self.snapshot, self.end
        if snapshot is None:
            return lambda _width: ()
        return lambda width: outcome_lines(snapshot, end.output, end.run_result, self.next_keys_and_labels(), width)[
            :max_lines
        ]

    def card_lines(self, card_samples: CardSamples, facts: Facts | None, max_cards: int, max_lines: int) -> DrawLines:
        """Return what draws the run's cards."""
        mine, names = self.samples_of_run(card_samples), self._card_label_by_uuid(facts)

        def draw(width: int) -> Sequence[Content]:
            return card_lines(mine, self._history, names, max_cards, width)[:max_lines]

        return draw

    # Its keys

    def can_do(self, action: str) -> bool:
        """Return whether an action does something now: only a live run is stopped, only an ended one edited."""
        needed = {"fix": self.end.profile_and_change, "compare_with_previous": self.previous_run}
        if action in needed:
            return needed[action] is not None
        if action == "stop":
            return self.is_still_training or bool(self.snapshot and self.snapshot.status.leftover)
        if action == "edit":
            return not self.is_still_training
        if action == "open_script":
            return bool(self.end.diagnosis and self.end.diagnosis.source)
        if action == "show_result":
            return not self.is_still_training and (self.end.can_fetch or self.end.has_result)
        return action != "resume" or not (self.is_still_training or self.end.why_not_resumable)

    def next_keys_and_labels(self) -> list[tuple[str, str]]:
        """Return what can be done next, each a key and a word."""
        keys = (
            ("fix", "F2", "fix it"),
            ("show_result", "Enter", "fetch the result" if self.end.can_fetch else "result"),
            ("resume", "r", "resume"),
            ("open_script", "E", "open script"),
            ("edit", "e", "edit and rerun"),
            ("compare_with_previous", "c", "compare"),
        )
        return [(key, word) for action, key, word in keys if self.can_do(action)]

    def why_key_refused(self, key: str) -> str:
        """Return why the run cannot be stopped, resumed or edited now."""
        name = visible(self.run.label)
        if not self.is_still_training and self.end is RUN_NOT_ENDED and key in {"r", "enter"}:
            return "Its files are still being read: try again in a moment."
        words = {
            "c": f"There is no earlier run of {name}. To compare others, mark them on Home by Space, then c.",
            "s": f"{name} has ended.",
            "r": f"{name} {self.end.why_not_resumable}.",
            "e": f"{name} still runs: s stops it.",
            "enter": "It still trains: the result comes at its end."
            if self.is_still_training
            else "No adapter, model or other file of it was found.",
        }
        return words.get(key, "") if self.snapshot else ""
