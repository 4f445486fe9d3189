"""Compare `tui-train tune` with a full grid of the same settings.

Usage: python benchmarks/tune.py PROFILE [KEY=VALUE …] [--quick]. Prints both as tables, and how fast the setting that
tuning finds is in the grid's own measurement.
"""

import argparse
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from tui_train.actions.tune.search import TrialSetting, recommended_trial
from tui_train.actions.tune.space import make_search_space
from tui_train.actions.tune.tune import (
    TRIAL_TABLE_HEADER,
    TuningState,
    run_tuning,
    trial_resources,
    trial_rows,
    try_setting,
)
from tui_train.base.text import text_table
from tui_train.cli.plans.plans import apply_edits, load_profile
from tui_train.facts.types import Facts
from tui_train.places.profile_facts import probe_profile_facts
from tui_train.profile.types import Profile
from tui_train.runs.run_folders import RunFolder
from tui_train.setup.setup import Setup


def measure_grid(
    profile: Profile, facts: Facts, folder: Path, only: Collection[TrialSetting]
) -> tuple[TuningState, str]:
    """Return the trials of every setting that is not predicted to be too large for sure, or of these `only`."""
    setup = Setup(profile, facts)
    among = make_search_space(setup)
    told = setup.effective_profile.recipe.sequence_length or 0
    now = TuningState(folder=folder, tokens_per_sample=told)
    for saving in (False, True) if among.checkpointing else (False,):
        for micro in among.micro_batches:
            one = TrialSetting(micro, saving, among.profile_setting.precision)
            if one in among.settings_that_cannot_fit or (only and one not in only):
                continue
            run = RunFolder(folder / f"grid-{len(now.trials) + 1}")
            trial = try_setting(run, one, among, setup, trial_resources(setup), lambda: False)
            now = TuningState(folder=folder, trials=(*now.trials, trial), tokens_per_sample=told)
            print(trial_rows(now)[-1], file=sys.stderr)
    where = ", ".join(gpu.name for gpu in setup.gpus) if setup.device == "cuda" else facts.machine.cpu_name
    return now, where


def main() -> None:
    """Print the tables and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile")
    parser.add_argument("edits", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--quick", action="store_true", help="a grid of what tuning tried")
    given = parser.parse_args()
    profile = apply_edits(load_profile(given.profile), tuple(given.edits))
    facts = probe_profile_facts(profile)
    *_, found = run_tuning(profile, facts)
    only = [trial.setting for trial in found.trials] if given.quick else []
    with tempfile.TemporaryDirectory() as folder:
        whole, where = measure_grid(profile, facts, Path(folder), only)
    rates = {trial.setting: trial.rate for trial in whole.trials}
    print(f"On {where}\n\nThe grid\n\n{text_table([TRIAL_TABLE_HEADER, *trial_rows(whole)])}\n")
    print(f"tui-train tune\n\n{text_table([TRIAL_TABLE_HEADER, *trial_rows(found)])}\n")
    if found.recommended_trial and recommended_trial(whole.trials):
        ratio = rates[found.recommended_trial.setting] / max(rates.values())
        print(f"found {ratio:.1%} of the grid's fastest, in {len(found.trials)} of {len(whole.trials)} trials")


if __name__ == "__main__":
    main()
