"""State of Home: the runs and profiles that it lists, those that are marked, and which keys do something with them."""

from typing import TYPE_CHECKING

from tui_train.base.text import visible

if TYPE_CHECKING:
    from tui_train.views.profile_digests import ProfileDigest
    from tui_train.views.run_digest import RunDigest

MAX_NAMES_SHOWN = 3


class HomeState:
    """Runs and profiles by their row keys, the marks, the filter and the grouping."""

    def __init__(self) -> None:
        self.runs: dict[str, RunDigest] = {}
        self.settings_before: dict[str, str] = {}  # those of the run before of the same profile, where there is one
        self.profiles: dict[str, ProfileDigest] = {}
        self.draft: ProfileDigest | None = None  # what was edited last
        self.filter_text = ""
        self.marked: frozenset[str] = frozenset()
        self.grouped = False  # by profile, else by age

    def update(
        self, runs: "tuple[RunDigest, ...]", profiles: "tuple[ProfileDigest, ...]", draft: "ProfileDigest | None"
    ) -> None:
        """Set the runs and profiles; those that are gone are no longer marked."""
        self.runs = {f"run:{digest.run.path}": digest for digest in runs}
        self.settings_before = _earlier_settings_by_run_key(self.runs)
        self.profiles = {f"profile:{digest.name}": digest for digest in profiles}
        self.marked = frozenset(key for key in self.marked if key in self.runs)
        self.draft = draft

    def profile_name_at(self, row_key: str) -> str:
        """Return the name of the profile in which the cursor is; empty for none."""
        return self.profiles[row_key].name if row_key in self.profiles else ""

    def earlier_run_of_profile(self, row_key: str) -> "RunDigest | None":
        """Return the newest earlier run of the same profile, None where there is none."""
        keys = [*self.runs]
        earlier = keys[keys.index(row_key) + 1 :] if row_key in self.runs else []
        same = (key for key in earlier if _profile_name(self.runs[key]) == _profile_name(self.runs[row_key]))
        return next((self.runs[key] for key in same), None)

    def marked_runs_or_run_at(self, row_key: str) -> "tuple[RunDigest, ...]":
        """Return what Delete, Note, Stop and Compare take: the marked runs, or the one in which the cursor is."""
        marked = tuple(self.runs[key] for key in self.runs if key in self.marked) if self.marked else ()
        return marked or ((self.runs[row_key],) if row_key in self.runs else ())

    def can_do(self, action: str, row_key: str) -> bool:
        """Tell whether an action does something with the row, or with the marked runs."""
        run, profile, chosen = self.runs.get(row_key), row_key in self.profiles, self.marked_runs_or_run_at(row_key)
        going = any(each.is_stoppable for each in chosen)
        offered = {
            "clear_filter": bool(self.filter_text),
            "unmark": bool(self.marked and not self.filter_text),
            "open_filter": bool(self.runs or self.profiles),
            "group_by_profile": bool(self.runs) and not self.grouped,
            "list_by_age": bool(self.runs) and self.grouped,
            "edit": bool(run) or profile,
            "resume": bool(run and run.is_resumable),
            "run_now": profile,
            "stop": going,
            "delete": not going if chosen else profile,
            "rename": profile or bool(run and not run.is_stoppable),
            "note": bool(chosen),
            "duplicate": profile,
            "mark": bool(run),
            "compare": len(chosen) > 1,
        }
        return offered.get(action, True)

    def why_key_refused(self, key: str, row_key: str) -> str:
        """Return why a key does nothing on this row, or with these marks."""
        run, chosen = self.runs.get(row_key), self.marked_runs_or_run_at(row_key)
        going = next((each for each in chosen if each.is_stoppable), None)
        if key == "c":
            return "Mark two runs or more with Space: c compares them."
        if key in {"d", "delete"} and going:
            return f"{visible(going.run.label)} still runs and cannot be deleted: s stops it."
        if key == "m" and run and run.is_stoppable:
            return f"{visible(run.run.label)} still runs and cannot be renamed: s stops it."
        if key == "s" and chosen:
            return (
                f"{runs_text(chosen)}: nothing of it is running."
                if len(chosen) == 1
                else "None of the marked runs is running."
            )
        if key == "r" and run:
            return f"{visible(run.run.label)} {run.why_not_resumable}."
        nothing_to_filter = "There is no run or profile yet to filter." if key == "slash" else ""
        return "Move to a run or a profile first." if key in {*"cdmsreig"} else nothing_to_filter


def runs_text(runs: "tuple[RunDigest, ...]") -> str:
    """Return runs in words: one by its id, several by their number and the names of the first."""
    names = ", ".join(visible(each.run.label) for each in runs[:MAX_NAMES_SHOWN])
    more = f" and {len(runs) - MAX_NAMES_SHOWN} more" if len(runs) > MAX_NAMES_SHOWN else ""
    return f"the run {visible(runs[0].run.name)}" if len(runs) == 1 else f"the {len(runs)} marked runs ({names}{more})"


def _earlier_settings_by_run_key(runs: "dict[str, RunDigest]") -> dict[str, str]:
    """Return for each run the settings of the newest earlier one of its profile, of runs with the newest first."""
    last, found = dict[str, str](), dict[str, str]()
    for key, digest in reversed(runs.items()):
        if not digest.searchable_settings:
            continue
        if before := last.get(_profile_name(digest)):
            found[key] = before
        last[_profile_name(digest)] = digest.searchable_settings
    return found


def _profile_name(digest: "RunDigest") -> str:
    return digest.profile_name or digest.run.label
