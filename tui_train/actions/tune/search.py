"""Search for the fastest setting: the next one to try, from predictions and trials so far; pure."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from tui_train.memory.verdict import FitBand

MAX_TRIALS = 8
# A smaller difference is noise: of settings as fast, the one with the smallest micro batch leaves most memory free.
MIN_SPEED_SHARE_AS_FAST = 0.985
# Recomputing costs about a quarter: this far behind, a larger micro batch will not make up for it.
_MIN_SPEED_SHARE_TO_TRY_CHECKPOINTING = 0.85

TrialOutcome = Literal["measured", "out of memory", "failed"]


class TrialSetting(Struct, frozen=True):
    """Values that a trial sets; only the precision changes the result of a training."""

    micro_batch: int
    checkpointing: bool
    precision: str


class Trial(Struct, frozen=True, kw_only=True):
    """The result of a setting: samples per second of all processes, and the peak memory in bytes.

    The peak is of one card, other programs included; on the CPU it is the training's own memory.
    `why` is what went wrong, `log` the file with the output.
    """

    setting: TrialSetting
    outcome: TrialOutcome
    rate: float = 0.0
    steps: int = 0
    memory: int | None = None
    why: str = ""
    log: str = ""


class SearchSpace(Struct, frozen=True, kw_only=True):
    """The settings to try: micro batches in order, precisions with the profile's own first, checkpointing.

    A setting without a band has no prediction; those that cannot fit are in `settings_that_cannot_fit`.
    """

    profile_setting: TrialSetting
    global_batch: int
    micro_batches: tuple[int, ...]
    precisions: tuple[str, ...]
    checkpointing: bool
    fit_bands: Mapping[TrialSetting, FitBand]
    settings_that_cannot_fit: frozenset[TrialSetting] = frozenset()


def next_setting(space: SearchSpace, trials: tuple[Trial, ...]) -> TrialSetting | None:
    """Return the setting to try next, None when the fastest is found or the number of trials is used up.

    First the profile's own setting and the largest micro batch that is predicted to fit, in each precision; then the
    neighbours of the fastest so far; and activation checkpointing only where memory, not speed, ends the way up.
    """
    tried = {trial.setting: trial for trial in trials}
    if len(trials) >= MAX_TRIALS or any(trial.outcome == "failed" for trial in trials[:1]):
        return None
    if space.profile_setting not in tried and space.profile_setting not in space.settings_that_cannot_fit:
        return space.profile_setting
    lanes = [
        _MicroBatchSeries(space, tried, checkpointing=False, precision=precision) for precision in space.precisions
    ]
    for lane in lanes[1:]:
        if (first := lane.start_setting()) and first not in tried:
            return first
    recommended = recommended_trial(trials)
    plain = next((lane for lane in lanes if recommended and lane.precision == recommended.setting.precision), lanes[0])
    if (next_plain := plain.next_setting()) or not space.checkpointing or not plain.is_memory_bound():
        return next_plain
    saving = _MicroBatchSeries(
        space, tried, checkpointing=True, precision=plain.precision, min_index=plain.memory_limit_index()
    )
    first_saving = tried.get(saving.start_setting() or space.profile_setting)
    plainer = recommended if recommended and not recommended.setting.checkpointing else None
    if (
        first_saving
        and plainer
        and first_saving.outcome == "measured"
        and first_saving.rate < _MIN_SPEED_SHARE_TO_TRY_CHECKPOINTING * plainer.rate
    ):
        return None
    return saving.next_setting()


def recommended_trial(trials: tuple[Trial, ...]) -> Trial | None:
    """Return the fastest trial; of those as fast, the one with most room; None where none was measured."""
    measured = [trial for trial in trials if trial.outcome == "measured"]
    most = max((trial.rate for trial in measured), default=0.0)
    near = [trial for trial in measured if trial.rate >= MIN_SPEED_SHARE_AS_FAST * most]
    return min(near, key=lambda trial: (trial.setting.micro_batch, -trial.rate), default=None)


class _MicroBatchSeries:
    """The settings that differ only in the micro batch; `min_index` is the index of the first one worth trying."""

    def __init__(
        self,
        space: SearchSpace,
        trial_by_setting: Mapping[TrialSetting, Trial],
        *,
        checkpointing: bool,
        precision: str,
        min_index: int = 0,
    ) -> None:
        self.precision = precision
        self._min_index = min_index
        self._bands = space.fit_bands
        self._own = space.profile_setting.micro_batch
        self._settings = [TrialSetting(micro, checkpointing, precision) for micro in space.micro_batches]
        self._trials = [trial_by_setting.get(setting) for setting in self._settings]
        self._possible_count = next(
            (index for index, one in enumerate(self._settings) if one in space.settings_that_cannot_fit),
            len(self._settings),
        )

    def next_setting(self) -> TrialSetting | None:
        """Return what begins, then neighbours of the fastest; after memory ran out, something between."""
        begin, top, fastest = self._start_index(), self.memory_limit_index(), self._fastest_index()
        indexes: list[int] = [] if begin is None else [begin]
        if top < self._possible_count and (fastest is None or fastest < top - 1):
            low = -1 if fastest is None else fastest
            # What is predicted is seldom off by much: the next below, and only then the middle.
            near = self._bands and sum(trial is not None and trial.outcome != "measured" for trial in self._trials) == 1
            indexes.append(top - 1 if near else (low + top) // 2)
        if fastest is not None:
            indexes += [fastest + 1, fastest - 1]
        open_ = (index for index in indexes if 0 <= index < max(top, (begin or 0) + 1) and self._trials[index] is None)
        return next((self._settings[index] for index in open_), None)

    def start_setting(self) -> TrialSetting | None:
        """Return the largest that is predicted to fit; without a prediction, one about as large as the own one."""
        index = self._start_index()
        return None if index is None else self._settings[index]

    def _start_index(self) -> int | None:
        indexes = range(self._possible_count)
        fitting = [index for index in indexes if self._bands.get(self._settings[index]) in {"fits", "tight"}]
        own = [index for index in indexes if self._settings[index].micro_batch <= self._own and not self._min_index]
        start = max([*(fitting or own)[-1:], self._min_index], default=None)
        return start if start is not None and start < self._possible_count else None

    def memory_limit_index(self) -> int:
        """Return the index from which on memory does not suffice, as is predicted or was seen."""
        lost = (index for index, trial in enumerate(self._trials) if trial and trial.outcome != "measured")
        return min(next(lost, self._possible_count), self._possible_count)

    def is_memory_bound(self) -> bool:
        """Tell whether a larger micro batch than the fastest would be tried if there were the memory for it."""
        fastest, top = self._fastest_index(), self.memory_limit_index()
        trial = self._trials[top] if top < len(self._trials) else None
        lacking = top < len(self._settings) and (trial is None or trial.outcome == "out of memory")
        return lacking and (fastest is None or fastest == top - 1)

    def _fastest_index(self) -> int | None:
        rates = {index: trial.rate for index, trial in enumerate(self._trials) if trial and trial.outcome == "measured"}
        return max(rates, key=lambda index: rates[index], default=None)
