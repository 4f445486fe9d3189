"""Reading for Home: runs and profiles, the newest first, and live runs on other hosts; on a thread of its own."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tui_train.base.app_paths import last_profile_file, profiles_folder, runs_folder
from tui_train.base.errors import TuiTrainError

if TYPE_CHECKING:
    from tui_train.runs.run_folders import RunFolder
    from tui_train.views.profile_digests import ProfileDigest
    from tui_train.views.run_digest import RunDigest

_FIRST_RUN_COUNT = 20  # runs that are read before any is shown
_REPORT_AFTER_RUN_COUNTS = frozenset(
    {_FIRST_RUN_COUNT, 60, 200, 500}
)  # after how many of them all that is known is shown
_PAUSE_BETWEEN_RUNS_SECONDS = 0.001  # in which keys are handled while many runs are read


def has_run_profile_or_draft() -> bool:
    """Tell, by names alone, whether there are runs, profiles or a draft."""
    for folder in (runs_folder(), profiles_folder()):
        with suppress(OSError), os.scandir(folder) as entries:
            if any(entry.name[0] != "." for entry in entries):
                return True
    return last_profile_file().exists()


class HomeReader:
    """Reports what it finds, in parts while much of it is new; it is made on the thread that first reads."""

    def __init__(
        self, report: "Callable[[tuple[RunDigest, ...], tuple[ProfileDigest, ...], ProfileDigest | None], object]"
    ) -> None:
        from tui_train.views.profile_digests import ProfileDigestCache
        from tui_train.views.run_digest import DigestCache

        self.digests: DigestCache = DigestCache()
        self._profile_cache: ProfileDigestCache = ProfileDigestCache()
        self._report = report
        self._reported: tuple[tuple[RunDigest, ...], tuple[ProfileDigest, ...], ProfileDigest | None] | None = None
        self._run_order: tuple[int, tuple[RunFolder, ...]] | None = None

    def read(self, visible_keys: tuple[str, ...], is_cancelled: Callable[[], bool]) -> None:
        """Read runs and profiles; the newest are shown before the others are read."""
        digests, profile_cache, first = self.digests, self._profile_cache, self._run_order is None
        profiles, runs = (
            profile_cache.saved_digests(read_files=not first),
            self._newest_first_runs(by_names_alone=first),
        )
        for number, run in enumerate(runs):
            if is_cancelled():
                return
            digests.read_digest(run)
            if first and number in _REPORT_AFTER_RUN_COUNTS:
                self._report_if_changed(profiles, tuple(map(digests.cached_or_bare_digest, runs)))
            if first and number > _FIRST_RUN_COUNT:
                time.sleep(_PAUSE_BETWEEN_RUNS_SECONDS)
        if first:
            profiles, runs = profile_cache.saved_digests(), self._newest_first_runs(by_names_alone=False)
        self._report_if_changed(profiles, tuple(map(digests.read_digest, runs)))
        for run in runs:
            # The log of a failure is read when somebody sees that run.
            digest = digests.cached_or_bare_digest(run)
            if f"run:{run.path}" in visible_keys and digests.needs_explanation(digest) and not is_cancelled():
                digests.explain_failure(digest)
                self._report_if_changed(profiles, tuple(map(digests.cached_or_bare_digest, runs)))

    def _newest_first_runs(self, *, by_names_alone: bool) -> "tuple[RunFolder, ...]":
        """Return the runs, newest first; many `by_names_alone`, where a clock that was set back shows."""
        from tui_train.runs.run_folders import list_runs, runs_folder_mtime_ns, runs_newest_first_by_name

        now = runs_folder_mtime_ns()
        if by_names_alone and len(by_name := runs_newest_first_by_name()) > _FIRST_RUN_COUNT:
            return by_name
        if self._run_order is None or self._run_order[0] != now:
            self._run_order = now, list_runs()
        return self._run_order[1]

    def _report_if_changed(self, profiles: "tuple[ProfileDigest, ...]", runs: "tuple[RunDigest, ...]") -> None:
        contents = runs, profiles, self._profile_cache.draft_digest()
        if contents != self._reported:
            self._reported = contents
            self._report(*contents)


def update_remote_runs(runs: "tuple[RunFolder, ...]", is_cancelled: Callable[[], bool]) -> None:
    """Bring the live runs on other hosts, and those in a queue, up to date; what does not answer stays as heard."""
    from tui_train.places.jobs import refresh_jobs
    from tui_train.places.run_mirror import update_local_copy
    from tui_train.runs.remote_run import read_remote_location, read_unconfirmed_start
    from tui_train.runs.slurm_job import read_queued_job

    with suppress(TuiTrainError):
        refresh_jobs(runs)
    for run in runs:
        if is_cancelled():
            return
        if read_remote_location(run.path) and not read_queued_job(run.path) and not read_unconfirmed_start(run.path):
            with suppress(TuiTrainError):
                update_local_copy(run)
