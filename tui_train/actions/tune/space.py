"""Settings that may be tried for speed with a profile, and the short training that tries one; pure."""

import math
from collections.abc import Iterable, Iterator

from tui_train.actions.tune.search import MIN_SPEED_SHARE_AS_FAST, SearchSpace, Trial, TrialSetting
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.text import visible
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.predict import Prediction, predict_memory
from tui_train.memory.verdict import FitBand
from tui_train.profile import batch, fields
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.types import TRACKER_NAMES, Profile
from tui_train.setup.recipe.options import user_batch_options, user_options_for_value
from tui_train.setup.setup import Setup

# Micro batches that are closer to each other differ little in speed.
_MIN_FACTOR_BETWEEN_MICRO_BATCHES = 1.5
_MAX_MICRO_BATCH_FACTOR_WITHOUT_PREDICTION = 8
# A trial is ended long before: its training is not to end, save, and hand on what it has, by itself.
_MAX_TRIAL_STEPS = 1000
_TRIAL_VARIABLES = {"WANDB_MODE": "disabled"}


def make_search_space(setup: Setup, precisions: tuple[str, ...] = ()) -> SearchSpace:
    """Return what may be tried: with these precisions besides the profile's own; BadInput where nothing can be."""
    _refuse_if_not_tunable(setup)
    recipe = setup.effective_profile.recipe
    micro, global_batch = recipe.micro_batch, recipe.global_batch
    if micro is None or global_batch is None:
        remedy = "Set recipe.micro_batch and recipe.global_batch."
        raise BadInput("the batch size is not known, so no other can be tried", remedy)
    share, rest = divmod(global_batch, setup.model_copies)
    if rest or share % micro:
        raise BadInput(
            "the global batch is no multiple of the micro batch times the processes",
            "Fix the batch sizes first: tui-train plan says how.",
        )
    saving = "activation_checkpointing"
    can_checkpoint = saving in setup.ladder_context.accepted_placeholders and not user_options_for_value(
        saving, setup.profile, setup.preset
    )
    own = TrialSetting(micro, bool(recipe.activation_checkpointing and can_checkpoint), recipe.precision or "")
    if precisions and "precision" not in setup.ladder_context.accepted_placeholders:
        raise BadInput("this preset passes no precision, so no other can be tried", "Leave --precision out.")
    tried_precisions = tuple(dict.fromkeys((own.precision, *precisions)))
    settings = [
        TrialSetting(size, saving, precision)
        for size in _spaced_micro_batches(share, micro)
        for saving in ((False, True) if can_checkpoint else (False,))
        for precision in tried_precisions
    ]
    predicted = {
        setting: predict_memory(make_setup(_profile_with_setting(setting, setup), setup.facts)) for setting in settings
    }
    hopeless = frozenset(setting for setting, prediction in predicted.items() if _surely_cannot_fit(prediction))
    fit_bands: dict[TrialSetting, FitBand] = {
        setting: prediction.band for setting, prediction in predicted.items() if prediction.band
    }
    # Steps are as large as the largest that may be tried: where nothing is predicted, none is far from the own one.
    near = (
        settings
        if fit_bands
        else [
            setting
            for setting in settings
            if own.micro_batch / _MAX_MICRO_BATCH_FACTOR_WITHOUT_PREDICTION
            <= setting.micro_batch
            <= own.micro_batch * _MAX_MICRO_BATCH_FACTOR_WITHOUT_PREDICTION
        ]
    )
    micros = {setting.micro_batch for setting in near if setting not in hopeless}
    return SearchSpace(
        profile_setting=own,
        global_batch=global_batch,
        micro_batches=tuple(sorted(micros)),
        precisions=tried_precisions,
        checkpointing=can_checkpoint,
        fit_bands=fit_bands,
        settings_that_cannot_fit=hopeless,
    )


def settings_to_try(space: SearchSpace) -> tuple[TrialSetting, ...]:
    """Return the settings that may be tried, the profile's own first."""
    savings = (False, True) if space.checkpointing else (False,)
    each = (TrialSetting(m, saving, p) for p in space.precisions for saving in savings for m in space.micro_batches)
    return tuple(
        dict.fromkeys(
            (space.profile_setting, *(setting for setting in each if setting not in space.settings_that_cannot_fit))
        )
    )


def trial_profile(setting: TrialSetting, space: SearchSpace, setup: Setup, output: str) -> Profile:
    """Return the short training that tries a setting and writes to `output`.

    All trials have one global batch, so that they can be compared: the least in which each micro batch comes twice, as
    gradients are kept between, or the profile's own. No checkpoint is due.
    """
    profile = setup.profile
    share = (setup.effective_profile.recipe.global_batch or 1) // setup.model_copies
    edits: dict[str, fields.FieldValue] = {
        "recipe.global_batch": min(share, 2 * math.lcm(*space.micro_batches)) * setup.model_copies,
        "recipe.lr_scaling": "none",
        "ladder.rungs": (),
        "trainer.output": output if setup.user_output_folder else "",
        "trainer.environment": {**profile.trainer.environment, **_TRIAL_VARIABLES},
        **{f"tracking.{name}": False for name in TRACKER_NAMES},
        "tracking.project": "",
        "notify.command": (),
        "notify.webhook": "",
    }
    for name in ("steps", "checkpoint_every"):
        if name in setup.ladder_context.accepted_placeholders and not user_options_for_value(
            name, profile, setup.preset
        ):
            edits[f"recipe.{name}"] = _MAX_TRIAL_STEPS
    return apply_change(
        Change("trial", "to see how fast it is", tuple(edits.items())), _profile_with_setting(setting, setup)
    )


def change_to_setting(chosen_trial: Trial, space: SearchSpace, own_trial: Trial | None) -> Change | None:
    """Return the change to a setting that was tried, None where the profile's own is as fast as far as one can tell."""
    own = space.profile_setting
    setting = chosen_trial.setting
    if setting == own or (own_trial and chosen_trial.rate * MIN_SPEED_SHARE_AS_FAST <= own_trial.rate):
        return None
    titles = {
        "recipe.micro_batch": f"micro batch {own.micro_batch} -> {setting.micro_batch}",
        "recipe.activation_checkpointing": f"{'with' if setting.checkpointing else 'without'} activation checkpointing",
        "recipe.precision": f"precision {setting.precision}",
    }
    differ = [edit for edit in _setting_edits(setting) if edit not in _setting_edits(own)]
    faster = (
        f"{chosen_trial.rate / own_trial.rate:.2f} times as fast"
        if own_trial and own_trial.rate
        else "it fits, and was the fastest"
    )
    title = ", ".join(titles[key] for key, _ in differ)
    if setting.micro_batch != own.micro_batch:
        differ.append(("recipe.global_batch", space.global_batch))
    return Change(title, f"{faster} in short trials; the global batch stays", tuple(differ))


def _setting_edits(setting: TrialSetting) -> tuple[tuple[str, fields.FieldValue], ...]:
    return (
        ("recipe.micro_batch", setting.micro_batch),
        ("recipe.activation_checkpointing", setting.checkpointing),
        ("recipe.precision", setting.precision or None),
    )


def _profile_with_setting(setting: TrialSetting, setup: Setup) -> Profile:
    """Return the profile with a setting; what the trainer does not take, and a value it has by itself, is not set."""
    edits = tuple(
        (key, value)
        for key, value in _setting_edits(setting)
        if setup.ladder_context.accepted_placeholders
        & {key.partition(".")[2], "total_batch" if key.endswith("micro_batch") else ""}
        and value != fields.get_value(setup.effective_profile, key)
    )
    return apply_change(Change("setting", "to be tried", edits), setup.profile)


def _surely_cannot_fit(prediction: Prediction) -> bool:
    """Tell whether a setting is not to be tried: a card refuses what is too much, a host may end other programs.

    Where something is not modelled there is always hope: an own script may well train less than is thought.
    """
    if not prediction.estimate or not prediction.place_verdicts or prediction.estimate.caveats:
        return False
    place = prediction.place_verdicts[0][0]
    if not place.is_gpu:
        return prediction.band == "will not fit"
    return prediction.estimate.peak_phase.total_bytes * (1 - prediction.estimate.relative_error) > place.free_bytes


def _spaced_micro_batches(batch_per_copy: int, own_micro_batch: int) -> Iterator[int]:
    """Yield micro batches that divide a share, the own one and, from it on, those well apart."""
    yield own_micro_batch
    yield from _well_spaced_numbers(
        (divisor for divisor in batch.divisors(batch_per_copy) if divisor > own_micro_batch), own_micro_batch
    )
    yield from _well_spaced_numbers(
        (divisor for divisor in reversed(batch.divisors(batch_per_copy)) if divisor < own_micro_batch), own_micro_batch
    )


def _well_spaced_numbers(numbers: Iterable[int], last: int) -> Iterator[int]:
    for number in numbers:
        if max(number, last) >= _MIN_FACTOR_BETWEEN_MICRO_BATCHES * min(number, last):
            yield number
            last = number


def _refuse_if_not_tunable(setup: Setup) -> None:
    profile = setup.profile
    passed = setup.ladder_context.accepted_placeholders
    if profile.nodes.machine_count > 1:
        alone = "--set nodes.hosts=" if profile.nodes.hosts else "--set nodes.count=1"
        raise BadInput("trials run on one machine, and this profile trains on several", f"Tune with {alone}.")
    if not passed & {"micro_batch", "total_batch"} or not passed & {
        "accumulation",
        "total_accumulation",
        "global_batch",
    }:
        remedy = "Choose a preset that passes both, or add them to your arguments: {micro_batch}, {accumulation}."
        raise BadInput("the batch of this script cannot be set from here, so there is nothing to tune", remedy)
    if batch_options := user_batch_options(profile, setup.preset):
        remedy = "Remove it from trainer.arguments, and set recipe.micro_batch and recipe.global_batch."
        raise BadInput(
            f"{visible(' '.join(batch_options[0].words))} in your arguments sets the batch: trials cannot change it",
            remedy,
        )
    if setup.nemo_flavour:
        return
    if "output" not in passed:
        remedy = "Add the option for its output folder to your arguments: --the-option={output}."
        raise BadInput("the script takes its output folder from elsewhere: trials would write to it", remedy)
    if output_options := user_options_for_value("output", profile, setup.preset):
        remedy = "Remove it from the arguments, and set trainer.output."
        raise Unavailable(
            f"{visible(' '.join(output_options[0].words))} in your arguments sets the output: trials would write there",
            remedy,
        )
    if setup.facts.host and setup.user_output_folder:
        why = f"the configuration file names the output folder {visible(setup.user_output_folder)}"
        raise Unavailable(f"{why}: trials on a host would write there", "Remove it there, and set trainer.output.")
