"""tune(): finds the fastest setting of a profile that fits, by a few short real trainings."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.actions.tune.search import SearchSpace, Trial, TrialSetting, next_setting, recommended_trial
from tui_train.actions.tune.space import change_to_setting, search_space, trial_profile
from tui_train.actions.tune.trial import TrialResources, run_trial
from tui_train.base.app_paths import trials_folder
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import PRIVATE_FILE_MODE, write_atomically
from tui_train.checks import find_problems
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import set_up
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.runs import rundir
from tui_train.runs.rundir import RunDir
from tui_train.setup.setup import Setup

MAX_TRIAL_SECONDS = 180.0
TRIAL_TABLE_FILE = "trials.json"


class TuningState(Struct, frozen=True, kw_only=True):
    """The trials so far, the setting being tried (None at the end), and the change to the fastest.

    `tokens` are per sample, 0 where unknown. `folder` has the trials' logs and their table.
    """

    folder: Path
    trials: tuple[Trial, ...] = ()
    trying: TrialSetting | None = None
    change: Change | None = None
    tokens: int = 0

    @property
    def recommended_trial(self) -> Trial | None:
        """The best trial so far."""
        return recommended_trial(self.trials)


def run_tuning(
    profile: Profile,
    facts: Facts,
    *,
    precisions: tuple[str, ...] = (),
    max_trial_seconds: float = MAX_TRIAL_SECONDS,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[TuningState]:
    """Yield the state before and after each trial; BadInput or Unavailable where no trial is possible."""
    setup = set_up(profile, facts)
    among = checked_search_space(setup, precisions)
    tokens = setup.effective_profile.recipe.sequence_length or 0
    now = TuningState(folder=rundir.create_stamped_folder(profile.name, trials_folder()), tokens=tokens)
    resources = TrialResources(
        tuple(gpu.uuid for gpu in setup.gpus) if setup.device == "cuda" else (), max_trial_seconds
    )
    while not cancelled() and (setting := next_setting(among, now.trials)):
        now = msgspec.structs.replace(now, trying=setting)
        yield now
        run = RunDir(now.folder / f"trial-{len(now.trials) + 1}")
        short = trial_profile(setting, among, setup, str(run.path / "output"))
        trial = write_and_run_trial(run, setting, prepare_plan(set_up(short, facts)), resources, cancelled)
        if cancelled():
            break
        trials = (*now.trials, trial)
        first = next((trial_of for trial_of in trials if trial_of.setting == among.profile_setting), None)
        recommended = recommended_trial(trials)
        change = change_to_setting(recommended, among, first) if recommended else None
        now = msgspec.structs.replace(now, trials=trials, change=change)
        _write_trial_table(now, profile)
    yield msgspec.structs.replace(now, trying=None)


def checked_search_space(setup: Setup, precisions: tuple[str, ...] = ()) -> SearchSpace:
    """Return the settings to try with a profile; BadInput or Unavailable where there are none."""
    if wrong := next((finding for finding in find_problems(setup) if finding.forbids_plan), None):
        raise (Unavailable if wrong.machine else BadInput)(wrong.message, wrong.remedy)
    return search_space(setup, precisions)


def write_and_run_trial(
    run: RunDir, setting: TrialSetting, prepared: PreparedPlan, resources: TrialResources, cancelled: Callable[[], bool]
) -> Trial:
    """Write a setting's short training to a folder, run it, and return the result."""
    if prepared.plan is None:
        wrong = next(finding for finding in prepared.findings if finding.forbids_plan)
        return Trial(setting=setting, outcome="failed", why=wrong.message)
    rundir.write_run_files(run.path, prepared.files)
    return run_trial(run, setting, prepared.plan.global_batch, resources, cancelled)


def _write_trial_table(state: TuningState, profile: Profile) -> None:
    """Write the table of trials beside their logs."""
    table = {"profile": profile.name, "tokens_per_sample": state.tokens, "trials": state.trials}
    write_atomically(
        state.folder / TRIAL_TABLE_FILE, msgspec.json.format(msgspec.json.encode(table)), PRIVATE_FILE_MODE
    )
