"""Tuning: a few short real trainings, one after the other, and the change to the fastest setting."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.worker import get_current_worker

from tui_train.actions.tune.search import MAX_TRIALS
from tui_train.actions.tune.tune import (
    MAX_TRIAL_SECONDS,
    TRIAL_TABLE_HEADER,
    TuningState,
    result_sentence,
    run_tuning,
    trial_rows,
)
from tui_train.base.text import quantity, text_table, typeset_ascii, visible
from tui_train.facts.gpus.gpu_sets import are_gpus_in_use
from tui_train.setup.setup import Setup

from .base import WizardScreen
from .messages import ApplyFix
from .widgets.hint import Hint
from .widgets.key_bar import KeyBar
from .widgets.lines import Lines
from .widgets.step_bar import StepBar
from .widgets.text_layout import MUTED, heading, labelled_lines, share_bar, styled

_LABEL_WIDTH = 9
_SPEED_BAR_WIDTH = 60
_MIN_SPEED_BAR_WIDTH = 12
_CELLS_BEFORE_SPEED_BAR = 2


class TuningScreen(WizardScreen):
    """The trials of the profile's settings, in a table that grows."""

    HELP = f"""Tune

Each trial is a real training of a few steps, with your data and your script, in a folder of its own: what it learns
is thrown away. At most {MAX_TRIALS} trials find the fastest micro batch, with and without activation
checkpointing. The global batch stays, so the training learns the same.
p tries bf16 as well, which changes what is learned a little.
Where others use its GPUs, w waits in the queue until these are free, and holds them for all trials. Esc leaves it.
Enter takes the change to the fastest; Ctrl+Z takes it back. Esc ends the trial under way and goes back."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "start_or_use_change", "Next", key_display="Enter"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("w", "start_when_free", "When free"),
        Binding("p", "toggle_bf16", "Also bf16"),
    ]

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self._profile = setup.profile
        self._facts = setup.facts
        self._setup = setup
        self._with_bf16 = False
        self._trials_running = False
        self._state: TuningState | None = None

    def compose(self) -> ComposeResult:
        """Compose the plan, the trials, their outcome and the keys."""
        yield StepBar(title="Recipe › Tune")
        with VerticalScroll(id="body", can_focus=False):
            yield Lines(id="plan")
            yield Lines(id="trials")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the plan of the trials."""
        self._show_trials()

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Name what Enter does now."""
        change = self._state is not None and self._state.change is not None
        return {"enter": "Use it" if change else "Start" if self._state is None else "Back"}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter does nothing while trials are made; another precision is chosen before."""
        if action == "toggle_bf16":
            setup = self._setup
            other = (
                "precision" in setup.ladder_context.accepted_placeholders
                and setup.effective_profile.recipe.precision != "bf16"
            )
            return other and not self._trials_running and self._state is None
        if action == "start_when_free":
            return self._can_wait_for_gpus and not self._trials_running and self._state is None
        return action != "start_or_use_change" or not self._trials_running

    @property
    def _can_wait_for_gpus(self) -> bool:
        setup = self._setup
        return (
            setup.device == "cuda"
            and not setup.facts.host
            and are_gpus_in_use(setup.facts, (gpu.uuid for gpu in setup.gpus))
        )

    def action_toggle_bf16(self) -> None:
        """Try bf16 as well, or not."""
        self._with_bf16 = not self._with_bf16
        self._show_trials()

    def action_start_or_use_change(self) -> None:
        """Start the trials; when they are over, take what they found and go back."""
        if self._state is None:
            self._start_trials(when_free=False)
            return
        if self._state.change:
            self.app.screen_stack[-2].post_message(ApplyFix(self._state.change))
        self.app.pop_screen()

    def action_start_when_free(self) -> None:
        """Start the trials once others have left their GPUs."""
        self._start_trials(when_free=True)

    def _start_trials(self, *, when_free: bool) -> None:
        self._trials_running = True
        self._show_trials()
        self._run_trials(when_free)

    @work(thread=True, exclusive=True, group="tune")
    def _run_trials(self, when_free: bool) -> None:
        worker = get_current_worker()
        states = run_tuning(
            self._profile,
            self._facts,
            place=self.wizard.place_for(self._profile),
            precisions=("bf16",) if self._with_bf16 else (),
            when_free=when_free,
            cancelled=lambda: worker.is_cancelled,
        )
        for now in states:
            self.call_unless_cancelled(self._show_tuning_state, now)

    def _show_tuning_state(self, state: TuningState) -> None:
        self._state = state
        self._trials_running = bool(state.setting_in_progress or state.waits_for)
        self._show_trials()

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Show what the trials came to that were made, and let Enter take it or try again."""
        if worker_group == "tune":
            self._trials_running = False
            if self._state:
                self._state = msgspec.structs.replace(self._state, setting_in_progress=None)
            self._show_trials()

    def _show_trials(self) -> None:
        self.query_one("#plan", Lines).show(self._plan_lines)
        now = self._state
        self.query_one("#trials", Lines).show(lambda width: _trial_lines(now, width) if now else ())
        self.query_one(Hint).show_text(styled((self._hint_text(), "b" if now and now.change else "")))
        self.refresh_bindings()

    def _plan_lines(self, width: int) -> list[Content]:
        """Return what the trials are: on what, for how long, what is tried and what stays."""
        setup = self._setup
        where = quantity(len(setup.gpus), "GPU") if setup.device == "cuda" else "the CPU"
        where += f" of {visible(setup.facts.host)}" if setup.facts.host else ""
        rows = (
            ("Trains", f"up to {MAX_TRIALS} short trainings on {where}, one after the other"),
            ("Time", f"at most {MAX_TRIAL_SECONDS:.0f} s each"),
            ("Tried", "the micro batch, with and without activation checkpointing"),
            ("", "bf16 is tried as well: it changes what is learned a little." if self._with_bf16 else ""),
            ("Stays", f"the global batch {setup.effective_profile.recipe.global_batch}"),
        )
        lines = [heading("Tune", "finds the fastest micro batch that fits", width)]
        for label, words in rows:
            lines += labelled_lines(label, words, width, _LABEL_WIDTH) if words else []
        return lines

    def _hint_text(self) -> str:
        if self._trials_running and self._state is None:
            return "Starting … Esc goes back."
        if self._trials_running and self._state and self._state.waits_for:
            return f"Waits: {self._state.waits_for}. Esc leaves the queue and goes back."
        if self._trials_running:
            return "A trial is under way. Esc ends it and goes back."
        if self._state is None:
            return f"Enter starts the trials{', w once its GPUs are free' if self._can_wait_for_gpus else ''}."
        more = "Enter uses it." if self._state.change else "Enter goes back."
        return f"{typeset_ascii(result_sentence(self._state))}  {more}"


def _trial_lines(state: TuningState, width: int) -> list[Content]:
    """Return the trials as a table, the best in bold, with their speeds as bars where there is room."""
    head, *rows = text_table([TRIAL_TABLE_HEADER, *trial_rows(state)]).splitlines()
    best, table_width = state.recommended_trial, max(map(len, (head, *rows))) + _CELLS_BEFORE_SPEED_BAR
    bar_width = min(_SPEED_BAR_WIDTH, width - table_width)
    lines = [heading("Trials", f"{len(state.trials)} of up to {MAX_TRIALS}", width), styled((head, MUTED))]
    for number, row in enumerate(rows):
        trial = state.trials[number] if number < len(state.trials) else None
        line = styled((row, "b" if trial and trial is best else ""))
        if trial and trial.rate and best and best.rate and bar_width >= _MIN_SPEED_BAR_WIDTH:
            style = "$success" if trial is best else MUTED
            line = styled(line, " " * (table_width - len(row)), share_bar(trial.rate / best.rate, bar_width, style))
        lines.append(line)
    return lines
