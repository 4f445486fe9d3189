"""`tui-train tune`: times a profile's settings, shows the trials, and prints the change."""

import shlex
import sys
from typing import Any

import click
import msgspec

from tui_train.actions.machine_facts import MachineSource, facts_for_profile, require_this_machine
from tui_train.actions.tune import summary as words
from tui_train.actions.tune.search import MAX_TRIALS
from tui_train.actions.tune.space import list_settings
from tui_train.actions.tune.tune import TRIAL_TABLE_FILE, TuningState, checked_search_space, tune
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.cli import columns
from tui_train.cli.plans.plans import apply_edits, load_profile, print_json
from tui_train.memory.data_defaults import set_up
from tui_train.profile import fields
from tui_train.targets.here import probe_facts


def tune_profile(
    reference: str, edits: tuple[str, ...], precisions: tuple[str, ...], seconds: int, *, as_json: bool
) -> None:
    """Try a profile's settings and print the trials; exits with 1 where none could be timed, 130 after Ctrl-C."""
    profile = require_this_machine(apply_edits(load_profile(reference), edits), "a trial")
    facts = probe_facts(profile)
    now: TuningState | None = None
    code = 0
    try:
        for now in tune(profile, facts, precisions=precisions, max_trial_seconds=float(seconds)):
            if not now.trials and now.trying and not as_json:
                click.echo(f"Up to {MAX_TRIALS} short trainings of at most {seconds} s each; Ctrl-C ends them.")
            if now.trying and not as_json:
                click.echo(f"trial {len(now.trials) + 1}: {words.setting_text(now.trying)} …")
    except KeyboardInterrupt:
        code = 130
    except TuiTrainError as error:
        if now is None or not now.trials:
            raise
        click.echo(f"{error.message}. {error.remedy}", err=True)
        code = error.exit_code
    if now is None:
        sys.exit(code)
    if as_json:
        print_json(_tuning_data(now))
    else:
        click.echo("\n".join(_tuning_lines(reference, edits, now)))
    sys.exit(code or (0 if now.recommended_trial else 1))


def dry_run(
    reference: str, edits: tuple[str, ...], precisions: tuple[str, ...], source: MachineSource, *, as_json: bool
) -> None:
    """Print the settings to try, with the memory expected of each."""
    profile = apply_edits(load_profile(reference), edits)
    among = checked_search_space(set_up(profile, facts_for_profile(profile, source, columns.waiting)), precisions)
    expected = {setting: among.bands.get(setting, "not known") for setting in list_settings(among)}
    if as_json:
        print_json(
            [
                {"setting": setting, "memory": band, "first": setting == among.profile_setting}
                for setting, band in expected.items()
            ]
        )
        return
    rows = [("micro batch", "checkpointing", "precision", "memory", "")]
    rows += [
        (*words.setting_cells(setting), band, "first" if setting == among.profile_setting else "")
        for setting, band in expected.items()
    ]
    click.echo(columns.table(rows))
    click.echo(f"At most {MAX_TRIALS} of them are tried: the profile's own first, then by the results so far.")


def _tuning_lines(reference: str, edits: tuple[str, ...], now: TuningState) -> list[str]:
    lines = ["", words.result_sentence(now)]
    if now.trials:
        lines = [
            "",
            columns.table([words.TRIAL_TABLE_HEADER, *words.trial_rows(msgspec.structs.replace(now, trying=None))]),
            *lines,
        ]
        lines.append(f"Table and logs: {visible(str(now.folder / TRIAL_TABLE_FILE))}")
    if now.change:
        combined = [*edits, *(f"{key}={fields.format_value(value)}" for key, value in now.change.edits)]
        sets = " ".join(f"--set {shlex.quote(edit)}" for edit in combined)
        lines.append(f"Use it: tui-train run {visible(shlex.quote(reference))} {visible(sets)}")
    return lines


def _tuning_data(now: TuningState) -> dict[str, Any]:
    return {
        "folder": str(now.folder),
        "tokens_per_sample": now.tokens,
        "trials": now.trials,
        "best": now.recommended_trial.setting if now.recommended_trial else None,
        "change": dict(now.change.edits) if now.change else None,
    }
