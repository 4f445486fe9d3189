"""How Home is kept tidy: mark, compare, delete, rename, note, duplicate."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual import work

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import counted, size, visible

from ..messages import CompareRuns, ErrorToShow
from .home_list import HomeList, runs_text

if TYPE_CHECKING:
    from tui_train.runs.rundir import RunDir

_NO_DELETE = ("", "No, keep it")


class HomeTidy(HomeList):
    """A list whose runs and profiles can be compared, deleted, renamed, noted and duplicated."""

    def action_mark(self) -> None:
        """Mark the run, or take the mark away, and go on to the next."""
        key = self.row_list.cursor
        if key in self.runs:
            self.marked ^= {key}
            self.row_list.action_move(1)
            if self.row_list.cursor not in self.runs:
                self.row_list.go_to_row(key)
            self.show_marks()

    def action_compare(self) -> None:
        """Show the marked runs side by side, the oldest first."""
        self.post_message(CompareRuns(tuple(digest.run for digest in reversed(self.chosen_runs))))

    def action_delete(self) -> None:
        """Ask, then remove the marked runs, or the run or profile in which the cursor is."""
        if runs := self.chosen_runs:
            self._measure_and_ask(tuple(digest.run for digest in runs), runs_text(runs))
        elif name := self.profile_at_cursor:
            self._ask_delete(f"Delete the profile {visible(name)}? Its runs stay.", partial(_remove_profile, name))

    @work(thread=True, group="delete", exclusive=True)
    def _measure_and_ask(self, runs: "tuple[RunDir, ...]", named: str) -> None:
        """Find what the runs take on disk, then ask."""
        from tui_train.runs import folders

        try:
            for run in runs:
                folders.refuse_if_active(run)
            total = sum(folders.folder_extent(run).size for run in runs)
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
            return
        question = f"Delete {named}?\n\nIt frees {size(total)}: logs, checkpoints, all of the folder."
        self.app.call_from_thread(self._ask_delete, question, partial(_remove_runs, runs))

    def _ask_delete(self, question: str, remove: Callable[[], str]) -> None:
        from ..widgets.dialogs import ChoiceDialog

        def answered(answer: str | None) -> None:
            if answer:
                self.marked = frozenset()
                self._run_change(remove)

        self.app.push_screen(ChoiceDialog(question, (_NO_DELETE, ("delete", "Delete"))), answered)

    @work(thread=True, group="change")
    def _run_change(self, change: Callable[[], str]) -> None:
        """Change something on disk, and say what was done."""
        try:
            report = change()
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
        else:
            self.app.call_from_thread(self.notify, visible(report), markup=False)
        self.app.call_from_thread(self.refresh_list)

    def _ask_text(self, question: str, value: str, change: Callable[[str], str]) -> None:
        """Ask for a text until `change`, which says what it did, takes it or Esc ends it."""
        from ..widgets.dialogs import TextDialog

        def answered(said: str | None) -> None:
            if said is not None:
                self.notify(visible(said), markup=False)
                self.refresh_list()

        self.app.push_screen(TextDialog(question, value, change), answered)

    def action_rename(self) -> None:
        """Ask for another name of the run or the profile."""
        digest, name = self.run_at_cursor, self.profile_at_cursor
        if digest:
            question = f"Another name for the run {visible(digest.run.name)}; the time at its beginning stays:"
            self._ask_text(question, digest.run.label, partial(self._rename_run, digest.run))
        elif name:
            question = f"Another name for the profile {visible(name)}:"
            self._ask_text(question, name, partial(self._rename_profile, name))

    def _rename_run(self, run: "RunDir", name: str) -> str:
        """Rename a run, which stays marked and under the cursor."""
        from tui_train.runs import folders

        renamed = folders.rename_run(run, name)
        self.next_cursor = f"run:{renamed.path}"
        if f"run:{run.path}" in self.marked:
            self.marked |= {self.next_cursor}
        return f"Renamed to {renamed.name}."

    def _rename_profile(self, name: str, new: str) -> str:
        from tui_train.profile import store

        store.rename_profile(name, new)
        self.next_cursor = f"profile:{new}"
        return f"Renamed to {new}."

    def action_note(self) -> None:
        """Ask for a line about the run, or the marked ones."""
        if chosen := self.chosen_runs:
            question = f"A line about {runs_text(chosen)}, which lists show; empty removes it:"
            self._ask_text(question, chosen[0].note, partial(_write_notes, tuple(each.run for each in chosen)))

    def action_duplicate(self) -> None:
        """Ask for the name of a copy of the profile."""
        if name := self.profile_at_cursor:
            self._ask_text(f"Name of the copy of {visible(name)}:", f"{name}-2", partial(_duplicate_profile, name))


def _remove_runs(runs: "tuple[RunDir, ...]") -> str:
    from tui_train.runs import folders

    freed = sum(folders.remove_run(run) for run in runs)
    return f"Deleted {counted(len(runs), 'run')}, freed {size(freed)}."


def _write_notes(runs: "tuple[RunDir, ...]", text: str) -> str:
    from tui_train.runs import folders

    for run in runs:
        folders.write_note(run, text)
    return "Noted." if text.strip() else "The note was removed."


def _remove_profile(name: str) -> str:
    from tui_train.profile import store

    store.remove_profile(name)
    return f"Deleted the profile {name}."


def _duplicate_profile(name: str, new: str) -> str:
    from tui_train.profile import store

    store.duplicate_profile(name, new)
    return f"Saved {new}."
