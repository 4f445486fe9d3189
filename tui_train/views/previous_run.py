"""The run of a profile before the next one: what has changed since, also in its files, and how fast it was."""

import re
from collections.abc import Iterable
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any

from msgspec import Struct

from tui_train.base.app_paths import runs_folder
from tui_train.base.files import read_regular_file
from tui_train.facts import yaml_documents
from tui_train.facts.types import YamlDocument
from tui_train.plan.run_files import PLAN_JSON_FILE_NAME, RenderedFile
from tui_train.profile.changes import ValueDifference, profile_differences
from tui_train.profile.types import Profile
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runner.system import safe_open
from tui_train.runs.run_folders import RunFolder, list_runs
from tui_train.runs.status import read_status
from tui_train.views.file_diff import FileDiff, diff_rows
from tui_train.views.overview import MeasuredPace
from tui_train.views.run_settings import effective_settings

# What makes no step slower or faster.
_KEY_PREFIXES_WITHOUT_SPEED_EFFECT = (
    "name", "ladder.", "recipe.steps", "recipe.learning_rate", "recipe.lr_", "recipe.checkpoint_every", "recipe.seed",
    "trainer.output", "recipe.epochs", "recipe.warmup", "recipe.schedule", "recipe.weight_decay",
)  # fmt: skip
_MIN_WORDS_OF_LONG_TEXT = 4
_MAX_FILE_BYTES = 1 << 20
_MAX_RUNS_READ = 200  # of the newest, whose profiles are read
# Of tqdm: step, steps and how long the steps have taken, in hours, minutes and seconds. Of the Trainer: at its end.
_BAR_TIME_PATTERN = re.compile(r"\b(\d{1,12})/(\d{1,12}) \[(?:(\d{1,4}):)?(\d\d):(\d\d)<")
_TRAINER_SECONDS_PATTERN = re.compile(r"[\"']train_runtime[\"']: [\"']?(\d{1,12}(?:\.\d{1,12})?)")
_MIN_TIMED_SECONDS = 5  # bars have full seconds
_MAX_LOG_END_BYTES = 256 << 10  # read of a log's beginning and of its end


class PreviousRun(Struct, frozen=True):
    """A run, its plan as data, and the profile that it was planned from, with the trainer's own configuration file.

    `pace` is None where its speed is not known.
    """

    run_name: str
    profile: Profile
    pace: MeasuredPace | None = None
    plan: dict[str, Any] = {}
    trainer_config: YamlDocument | None = None


def find_previous_run(profile: Profile, run_being_edited: RunFolder | None = None) -> PreviousRun | None:
    """Return the newest run of a profile's name that can be read; of a profile without one of its own, of its model.

    `run_being_edited`: the run whose values are being edited, which comes first.
    """
    for run in (*((run_being_edited,) if run_being_edited else ()), *list_runs()[:_MAX_RUNS_READ]):
        candidate = read_as_previous_run(run)
        if candidate and _profile_identity(candidate.profile) == _profile_identity(profile):
            return candidate
    return None


def find_earlier_run_of_profile(run: RunFolder) -> RunFolder | None:
    """Return the newest run before this one whose profile has the same name, or where it has none the same model."""
    known, own = list_runs(), read_as_previous_run(run)
    older = known[known.index(run) + 1 :] if run in known else ()
    for other in older[:_MAX_RUNS_READ]:
        candidate = read_as_previous_run(other)
        if own and candidate and _profile_identity(candidate.profile) == _profile_identity(own.profile):
            return other
    return None


def _profile_identity(profile: Profile) -> tuple[str, ...]:
    """Return what runs of one profile share."""
    if profile.name != Profile().name:
        return (profile.name,)
    trainer = profile.trainer
    return (profile.name, trainer.kind, trainer.script, trainer.model, profile.nemo.recipe)


def read_as_previous_run(run: RunFolder) -> PreviousRun | None:
    """Return a run with its profile, None where that cannot be read."""
    if (profile := run.read_profile()) is None:
        return None
    status = read_status(run)
    return PreviousRun(
        run.name,
        profile,
        _read_pace(status, run),
        run.plan(),
        yaml_documents.read_document(profile.trainer.config),
    )


def diffs_of_changed_files(run_name: str, files: Iterable[RenderedFile]) -> tuple[FileDiff, ...] | None:
    """Return those of a plan's files that an earlier run had otherwise, as the lines that differ; None: it is gone."""
    run, changed = RunFolder(runs_folder() / run_name), list[FileDiff]()
    if not run.plan():
        return None
    for file in files:
        before = _read_run_file_text(run, file.path)
        # What plan.json says of it, launch.sh says for people.
        if file.path != PLAN_JSON_FILE_NAME and not file.data and before != file.text:
            names = run.name if before is not None else "not there", "now"
            rows = diff_rows(names, (before or "").splitlines(), file.text.splitlines())
            changed.append(FileDiff(f"{file.path}.diff", rows))
    return tuple(changed)


def _read_run_file_text(run: RunFolder, path: str) -> str | None:
    """Return a file of a run, None where it is not there or no text."""
    try:
        return read_regular_file(str(run.path / path), _MAX_FILE_BYTES).decode()
    except (OSError, ValueError):
        return None


def _read_pace(status: RunStatus, run: RunFolder) -> MeasuredPace | None:
    """Return the pace of a run that finished in one attempt from step 0, without its start-up where its log tells."""
    from tui_train.runs.follow import read_progress

    # Where epochs end it, the plan has no steps, but the log says how many there were.
    steps = run.plan().get("steps") or read_progress(run, status.attempts).step
    in_one_attempt = status.state == "finished" and len(status.attempts) == 1 and not status.attempts[0].resumed
    seconds = status.attempts[0].seconds if in_one_attempt else None
    if not (seconds and isinstance(steps, int) and steps > 0):
        return None
    timed = _timed_seconds_per_step(run.attempt_log(1), steps)
    if timed is None:
        return MeasuredPace(seconds / steps, run.name, includes_startup=True)
    return MeasuredPace(timed, run.name, other_seconds=max(0.0, seconds - timed * steps))


def _timed_seconds_per_step(log: Path, steps: int) -> float | None:
    """Return the seconds of a step after the first one, as the bar of so many steps tells them, else the Trainer."""
    try:
        ends = [safe_open.read_bounded(log, _MAX_LOG_END_BYTES, from_end=from_end) for from_end in (False, True)]
    except OSError:
        return None
    text = b"\n".join(ends).decode(errors="replace")
    bars = ([int(number or 0) for number in bar] for bar in _BAR_TIME_PATTERN.findall(text))
    times = [
        (step, hours * 3600 + minutes * 60 + sec) for step, of, hours, minutes, sec in bars if step and of == steps
    ]
    (first, began), (last, ended) = (times[0], times[-1]) if times else ((0, 0), (0, 0))
    if last > first and ended - began >= _MIN_TIMED_SECONDS:
        return (ended - began) / (last - first)
    reported = _TRAINER_SECONDS_PATTERN.findall(text)
    return (float(reported[-1]) / steps or None) if reported else None


def expected_pace(earlier: PreviousRun | None, profile: Profile) -> MeasuredPace | None:
    """Return how fast a profile will train, where an earlier run differs in nothing that changes that."""
    if earlier is None or earlier.pace is None:
        return None
    same = all(
        difference.key.startswith(_KEY_PREFIXES_WITHOUT_SPEED_EFFECT)
        for difference in profile_differences(earlier.profile, profile)
    )
    return earlier.pace if same else None


def effective_changes_since(earlier: PreviousRun, profile: Profile) -> tuple[ValueDifference, ...]:
    """Return what differs in effect from an earlier run's profile, values in words that are safe to show."""
    same_file = profile.trainer.config == earlier.profile.trainer.config
    # The new profile's plan may not be made yet: of the earlier one's, only how many processes share a batch is taken.
    same = profile.hardware == earlier.profile.hardware and profile.nodes == earlier.profile.nodes
    planned = {"world_size": earlier.plan.get("world_size")} if same else {}
    before = effective_settings(earlier.profile, earlier.plan, earlier.trainer_config)
    after = effective_settings(profile, planned, earlier.trainer_config if same_file else None)
    return tuple(
        ValueDifference(difference.key, difference.label, old.text, new.text)
        for difference in profile_differences(earlier.profile, profile)
        if difference.key != "name" and (old := before[difference.key]).value != (new := after[difference.key]).value
    )


def differing_words(before: str, after: str) -> tuple[str, str]:
    """Return of two long texts the words from the first to the last that differ; short ones as they are."""
    old, new = before.split(" "), after.split(" ")
    if min(len(old), len(new)) < _MIN_WORDS_OF_LONG_TEXT:
        return before, after
    same = len([*takewhile(bool, map(eq, old, new))])
    end = len([*takewhile(bool, map(eq, reversed(old[same:]), reversed(new[same:])))])
    return _middle_words_text(old, same, end), _middle_words_text(new, same, end)


def _middle_words_text(words: list[str], skipped: int, dropped: int) -> str:
    middle = words[skipped : len(words) - dropped]
    return " ".join(("…" if skipped else "", *middle, "…" if dropped else "")).strip() if middle else "without"


def value_difference_lines(differences: tuple[ValueDifference, ...]) -> tuple[str, ...]:
    """Return differences as lines: label, old → new."""
    width = max((len(difference.label) for difference in differences), default=0)
    return tuple(
        f"{difference.label:<{width}}  {' → '.join(differing_words(difference.before, difference.after))}"
        for difference in differences
    )
