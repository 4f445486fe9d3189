"""Finds the fastest setting of a profile that fits, by a few short real trainings; and says what came of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.actions.tune.host_trial import run_trial_on_host
from tui_train.actions.tune.queue_turn import QueueTurn
from tui_train.actions.tune.search import SearchSpace, Trial, TrialSetting, next_setting, recommended_trial
from tui_train.actions.tune.space import change_to_setting, make_search_space, trial_profile
from tui_train.actions.tune.trial import TrialResources, run_trial
from tui_train.base.app_paths import trials_folder
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import PRIVATE_FILE_MODE, write_atomically
from tui_train.base.text import grouped_digits, size_text, visible
from tui_train.checks import find_problems
from tui_train.facts.gpus.gpu_sets import facts_as_if_gpus_idle
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.runs import run_folders
from tui_train.runs.run_folders import RunFolder
from tui_train.setup.setup import Setup

MAX_TRIAL_SECONDS = 180.0
TRIAL_TABLE_FILE = "trials.json"
_THIS_MACHINE = Place()
TRIAL_TABLE_HEADER = ("trial", "micro batch", "checkpointing", "precision", "speed", "memory", "")


class TuningState(Struct, frozen=True, kw_only=True):
    """The trials so far, the setting being tried (None at the end), and the change to the fastest.

    `tokens_per_sample` are per sample, 0 where unknown. `folder` has the trials' logs and their table. `waits_for` is
    what is in the way before the first trial, where they wait for their turn.
    """

    folder: Path
    trials: tuple[Trial, ...] = ()
    setting_in_progress: TrialSetting | None = None
    change: Change | None = None
    tokens_per_sample: int = 0
    waits_for: str = ""

    @property
    def recommended_trial(self) -> Trial | None:
        """The best trial so far."""
        return recommended_trial(self.trials)


def run_tuning(  # noqa: PLR0913 - each has a default but two
    profile: Profile,
    facts: Facts,
    *,
    place: Place = _THIS_MACHINE,
    precisions: tuple[str, ...] = (),
    max_trial_seconds: float = MAX_TRIAL_SECONDS,
    when_free: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[TuningState]:
    """Yield the state before and after each trial; BadInput or Unavailable where no trial is possible.

    The trials run at the `place` of the facts, which is no cluster. With `when_free` they wait for their
    turn in the queue, and hold the GPUs or CPU cores until all are done: only on this machine.
    """
    if place.name and when_free:
        why = f"trials do not wait for the GPUs of {visible(place.name)}: its queue holds them for runs alone"
        raise BadInput(why, "Start them without --when-free once `tui-train hosts` shows its GPUs free.")
    setup = make_setup(profile, facts_as_if_gpus_idle(facts) if when_free else facts)
    among = checked_search_space(setup, precisions)
    tokens = setup.effective_profile.recipe.sequence_length or 0
    now = TuningState(
        folder=run_folders.create_timestamped_folder(profile.name, trials_folder()), tokens_per_sample=tokens
    )
    resources = trial_resources(setup, max_trial_seconds)
    with ExitStack() as held:
        if when_free and (first_setting := next_setting(among, ())):
            turn = held.enter_context(closing(_join_queue(now.folder / "queue", first_setting, among, setup)))
            for why in turn.wait(cancelled):
                yield msgspec.structs.replace(now, waits_for=why)
        while not cancelled() and (setting := next_setting(among, now.trials)):
            now = msgspec.structs.replace(now, setting_in_progress=setting)
            yield now
            run = RunFolder(now.folder / f"trial-{len(now.trials) + 1}")
            trial = try_setting(run, setting, among, setup, resources, cancelled, place)
            if cancelled():
                break
            trials = (*now.trials, trial)
            first = next((trial_of for trial_of in trials if trial_of.setting == among.profile_setting), None)
            recommended = recommended_trial(trials)
            change = change_to_setting(recommended, among, first) if recommended else None
            now = msgspec.structs.replace(now, trials=trials, change=change)
            _write_trial_table(now, profile)
    yield msgspec.structs.replace(now, setting_in_progress=None)


def _join_queue(folder: Path, setting: TrialSetting, space: SearchSpace, setup: Setup) -> QueueTurn:
    """Join the queue with the plan of a setting's trial, in a folder for it alone."""
    prepared = _prepare_trial(setting, space, setup, folder)
    if wrong := next((finding for finding in prepared.findings if finding.forbids_plan), None):
        raise BadInput(wrong.message, wrong.remedy)
    run_folders.write_run_files(folder, prepared.files)
    return QueueTurn(folder)


def checked_search_space(setup: Setup, precisions: tuple[str, ...] = ()) -> SearchSpace:
    """Return the settings to try with a profile; BadInput or Unavailable where there are none."""
    if wrong := next((finding for finding in find_problems(setup) if finding.forbids_plan), None):
        raise (Unavailable if wrong.machine else BadInput)(wrong.message, wrong.remedy)
    return make_search_space(setup, precisions)


def trial_resources(setup: Setup, max_trial_seconds: float = MAX_TRIAL_SECONDS) -> TrialResources:
    """Return the cards and the time that a trial of a profile has."""
    return TrialResources(tuple(gpu.uuid for gpu in setup.gpus) if setup.device == "cuda" else (), max_trial_seconds)


def try_setting(  # noqa: PLR0913, PLR0917 - what a trial is made of
    run: RunFolder,
    setting: TrialSetting,
    space: SearchSpace,
    setup: Setup,
    resources: TrialResources,
    cancelled: Callable[[], bool],
    place: Place = _THIS_MACHINE,
) -> Trial:
    """Run a setting's short training at a place, with its log in a new folder, and return the result."""
    prepared = _prepare_trial(setting, space, setup, run.path)
    if prepared.plan is None:
        wrong = next(finding for finding in prepared.findings if finding.forbids_plan)
        return Trial(setting=setting, outcome="failed", why=wrong.message)
    if place.host:
        return run_trial_on_host(run.path, setting, prepared, prepared.plan, place, resources, cancelled)
    run_folders.write_run_files(run.path, prepared.files)
    return run_trial(run, setting, prepared.plan.global_batch, resources, cancelled)


def _prepare_trial(setting: TrialSetting, space: SearchSpace, setup: Setup, folder: Path) -> PreparedPlan:
    return prepare_plan(make_setup(trial_profile(setting, space, setup, str(folder / "output")), setup.facts))


def _write_trial_table(state: TuningState, profile: Profile) -> None:
    """Write the table of trials beside their logs."""
    table = {"profile": profile.name, "tokens_per_sample": state.tokens_per_sample, "trials": state.trials}
    write_atomically(
        state.folder / TRIAL_TABLE_FILE, msgspec.json.format(msgspec.json.encode(table)), PRIVATE_FILE_MODE
    )


def setting_text(setting: TrialSetting) -> str:
    """Return a setting in a few words."""
    saving = ", activation checkpointing" if setting.checkpointing else ""
    return f"micro batch {setting.micro_batch}{saving}, {setting.precision}"


def trial_rows(state: TuningState) -> list[tuple[str, ...]]:
    """Return the trials as rows below TRIAL_TABLE_HEADER; the running one is last."""
    table = [_trial_row(number, trial, state) for number, trial in enumerate(state.trials, 1)]
    if state.setting_in_progress:
        table.append((str(len(table) + 1), *setting_cells(state.setting_in_progress), "…", "", ""))
    return table


def result_sentence(state: TuningState) -> str:
    """Return the result of the trials in one sentence."""
    if state.change:
        return f"{visible(state.change.title)}: {visible(state.change.why)}"
    if state.recommended_trial:
        return "Nothing that was tried is faster than the profile's own setting."
    if state.waits_for:
        return "Stopped while it waited for its turn."
    if state.setting_in_progress:
        return "Stopped before a trial was timed."
    if not state.trials:
        return "By the estimate none of the settings fits into the memory."
    last = state.trials[-1]
    why = visible(last.why or last.outcome).rstrip(".")
    return f"No trial could be timed: {why}. Its log: {visible(last.log) or 'none'}"


def setting_cells(setting: TrialSetting) -> tuple[str, str, str]:
    """Return a setting as three cells of a row."""
    return str(setting.micro_batch), "yes" if setting.checkpointing else "no", setting.precision


def _trial_row(number: int, trial: Trial, state: TuningState) -> tuple[str, ...]:
    rate = trial.rate * (state.tokens_per_sample or 1)
    speed = f"{grouped_digits(rate)} tokens/s" if state.tokens_per_sample else f"{rate:.2f} samples/s"
    note = "best" if trial == state.recommended_trial else visible(trial.why)
    memory = size_text(trial.memory) if trial.memory is not None else ""
    return (
        str(number),
        *setting_cells(trial.setting),
        speed if trial.outcome == "measured" else trial.outcome,
        memory,
        note,
    )
