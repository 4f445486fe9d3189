"""Proves that tuning's few trials find what every setting tried would."""

import shutil
from collections.abc import Iterator

from tui_train.actions.cards.claims import Claim, checked_claim, untested_claim
from tui_train.actions.cards.trainings import one_process_values, small_training_profile
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.actions.tune.search import Trial
from tui_train.actions.tune.space import settings_to_try
from tui_train.actions.tune.tune import (
    TuningState,
    checked_search_space,
    result_sentence,
    run_tuning,
    setting_text,
    trial_resources,
    try_setting,
)
from tui_train.base.text import percent, quantity
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.fields import FieldValue
from tui_train.profile.types import Profile
from tui_train.runs.run_folders import RunFolder

_MAX_TRIAL_SECONDS = 60.0
# What is measured twice on a busy machine differs as well.
_MIN_SPEED_SHARE = 0.9
_RECIPE: dict[str, FieldValue] = {
    "recipe.layers": 4, "recipe.hidden_size": 256, "recipe.sequence_length": 128, "recipe.micro_batch": 2,
    "recipe.global_batch": 4,
}  # fmt: skip


def tuning_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield how fast the setting that tuning recommends is beside the fastest of all."""
    claim = "tune finds a setting about as fast as the fastest of all"
    setup = make_setup(profile, run_context.facts)
    small = small_training_profile(profile, {**_RECIPE, **one_process_values(setup)})
    *_, state = run_tuning(
        small, run_context.facts, max_trial_seconds=_MAX_TRIAL_SECONDS, cancelled=lambda: run_context.is_cancelled
    )
    try:
        trials = (*state.trials, *_try_other_settings(small, state, run_context))
    finally:
        shutil.rmtree(state.folder, ignore_errors=True)
    found, fastest = state.recommended_trial, max(trials, key=lambda trial: trial.rate, default=None)
    if found is None or fastest is None:
        yield untested_claim(claim, result_sentence(state))
        return
    yield checked_claim(
        claim,
        f"at least {percent(_MIN_SPEED_SHARE)} of {setting_text(fastest.setting)}, the fastest of {len(trials)}",
        f"{percent(found.rate / fastest.rate)}: {setting_text(found.setting)}, {quantity(len(state.trials), 'trial')}",
        holds=found.rate >= _MIN_SPEED_SHARE * fastest.rate,
    )


def _try_other_settings(profile: Profile, state: TuningState, run_context: ShortRunContext) -> Iterator[Trial]:
    setup = make_setup(profile, run_context.facts)
    space, tried = checked_search_space(setup), {trial.setting for trial in state.trials}
    resources = trial_resources(setup, _MAX_TRIAL_SECONDS)
    others = [setting for setting in settings_to_try(space) if setting not in tried]
    for number, setting in enumerate(others, 1):
        if run_context.is_cancelled:
            return
        run = RunFolder(state.folder / f"other-{number}")
        yield try_setting(run, setting, space, setup, resources, lambda: run_context.is_cancelled)
