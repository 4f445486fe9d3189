"""`tui-train tune`: times a profile's settings, shows the trials, and prints the change."""

import shlex
import sys

import click
import msgspec

from tui_train.actions.machine_facts import place_for_profile
from tui_train.actions.training_hosts import probe_facts_for_start
from tui_train.actions.tune.search import MAX_TRIALS, Trial, TrialSetting
from tui_train.actions.tune.space import settings_to_try
from tui_train.actions.tune.tune import (
    TRIAL_TABLE_FILE,
    TRIAL_TABLE_HEADER,
    TuningState,
    checked_search_space,
    result_sentence,
    run_tuning,
    setting_cells,
    setting_text,
    trial_rows,
)
from tui_train.base.errors import BadInput, TuiTrainError
from tui_train.base.text import visible
from tui_train.cli import printing
from tui_train.cli.plans.plans import apply_edits, load_profile
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.profile import fields
from tui_train.profile.types import Profile


class SettingToTry(msgspec.Struct, frozen=True, kw_only=True):
    """A setting to try, whether it is expected to fit, and whether it is the profile's own, tried first."""

    setting: TrialSetting
    memory: str
    first: bool


SettingsToTry = tuple[SettingToTry, ...]


class TuningAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The trials, the fastest setting and the edits that choose it, null where none was timed."""

    folder: str
    tokens_per_sample: int | None
    trials: tuple[Trial, ...]
    best: TrialSetting | None
    change: dict[str, fields.FieldValue] | None


def tune_profile(  # noqa: PLR0913 - one for each option
    reference: str,
    *,
    edits: tuple[str, ...],
    precisions: tuple[str, ...],
    seconds: int,
    named_place: Place,
    when_free: bool,
    as_json: bool,
) -> None:
    """Try a profile's settings and print the trials; exits with 1 where none could be timed, 130 after Ctrl-C."""
    profile = apply_edits(load_profile(reference), edits)
    place = _place_for_trials(profile, named_place)
    facts = probe_facts_for_start(profile, place, printing.report_waiting)
    state: TuningState | None = None
    code = 0
    try:
        for state in run_tuning(
            profile,
            facts,
            place=place,
            precisions=precisions,
            max_trial_seconds=float(seconds),
            when_free=when_free,
        ):
            if state.waits_for:
                click.echo(f"waits: {state.waits_for}", err=as_json)
            if not state.trials and state.setting_in_progress and not as_json:
                click.echo(_announcement(place.host, seconds))
            if state.setting_in_progress and not as_json:
                click.echo(f"trial {len(state.trials) + 1}: {setting_text(state.setting_in_progress)} …")
    except KeyboardInterrupt:
        code = 130
    except TuiTrainError as error:
        if state is None or not state.trials:
            raise
        click.echo(f"{error.message}. {error.remedy}", err=True)
        code = error.exit_code
    if state is None:
        sys.exit(code)
    if as_json:
        printing.print_json(_tuning_answer(state))
    else:
        click.echo("\n".join(_tuning_result_lines(reference, edits, named_place.host, state)))
    sys.exit(code or (0 if state.recommended_trial else 1))


def _place_for_trials(profile: Profile, named_place: Place) -> Place:
    """Return where the trials run; UsageError or BadInput where none can."""
    if named_place.machine_file or named_place.slurm:
        raise click.UsageError("trials run on this machine or on a host: with --machine or --slurm add --dry-run.")
    place = place_for_profile(profile, named_place)
    if place.slurm:
        remedy = "Choose this machine or a host: --set hardware.scheduler=none. Or see what would be tried: --dry-run"
        raise BadInput("tune cannot run as a Slurm job, and the profile is for Slurm", remedy)
    return place


def _announcement(host: str, seconds: int) -> str:
    where = f" on {visible(host)}" if host else ""
    return f"Up to {MAX_TRIALS} short trainings{where} of at most {seconds} s each; Ctrl-C ends them."


def print_settings_to_try(
    reference: str, *, edits: tuple[str, ...], precisions: tuple[str, ...], named_place: Place, as_json: bool
) -> None:
    """Print the settings to try, with the memory expected of each."""
    profile = apply_edits(load_profile(reference), edits)
    facts = place_for_profile(profile, named_place).probe_facts_for(profile, printing.report_waiting)
    among = checked_search_space(make_setup(profile, facts), precisions)
    found = [
        SettingToTry(setting=each, memory=among.fit_bands.get(each, "not known"), first=each == among.profile_setting)
        for each in settings_to_try(among)
    ]
    if as_json:
        printing.print_json(found)
        return
    rows = [("micro batch", "checkpointing", "precision", "memory", "")]
    rows += [(*setting_cells(each.setting), each.memory, "first" if each.first else "") for each in found]
    click.echo(printing.aligned_table_text(rows))
    click.echo(f"At most {MAX_TRIALS} of them are tried: the profile's own first, then by the results so far.")


def _tuning_result_lines(reference: str, edits: tuple[str, ...], host: str, state: TuningState) -> list[str]:
    lines = ["", result_sentence(state)]
    if state.trials:
        lines = [
            "",
            printing.aligned_table_text(
                [TRIAL_TABLE_HEADER, *trial_rows(msgspec.structs.replace(state, setting_in_progress=None))]
            ),
            *lines,
        ]
        lines.append(f"Table and logs: {visible(str(state.folder / TRIAL_TABLE_FILE))}")
    if state.change:
        combined = [*edits, *(f"{key}={fields.format_value(value)}" for key, value in state.change.edits)]
        sets = " ".join(f"--set {shlex.quote(edit)}" for edit in combined)
        where = f" --on {visible(shlex.quote(host))}" if host else ""
        lines.append(f"Use it: tui-train run {visible(shlex.quote(reference))}{where} {visible(sets)}")
    return lines


def _tuning_answer(state: TuningState) -> TuningAnswer:
    return TuningAnswer(
        folder=str(state.folder),
        tokens_per_sample=state.tokens_per_sample,
        trials=state.trials,
        best=state.recommended_trial.setting if state.recommended_trial else None,
        change=dict(state.change.edits) if state.change else None,
    )
