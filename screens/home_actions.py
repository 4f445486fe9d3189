"""What Home does with a run or a profile: open, edit, resume, stop, delete, rename, note, duplicate, run at once."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual import on, work

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import counted, size, visible

from .base import Base
from .messages import Become, CompareRuns, Complaint, OpenRun, OpenStep, StartOver
from .widgets.row_list import RowList

if TYPE_CHECKING:
    from tui_train.profile.types import Profile
    from tui_train.render.prepare import Prepared
    from tui_train.runs.rundir import RunDir
    from tui_train.workflow.cards import Card
    from tui_train.workflow.digest import Digest

_MOST_NAMED = 3
_NO_DELETE = ("", "No, keep it")


class HomeActions(Base):
    """A screen with a list of runs and profiles, by key, on which these work."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__()
        self.runs: dict[str, Digest] = {}
        self.profiles: dict[str, Card] = {}
        self.marked: frozenset[str] = frozenset()
        self.wanted = ""  # the row to which the cursor goes as soon as it is listed

    def look(self) -> None:
        """Read again."""
        raise NotImplementedError

    @property
    def list(self) -> RowList:
        """The list."""
        raise NotImplementedError

    @property
    def run_here(self) -> "Digest | None":
        """The run in which the cursor is."""
        return self.runs.get(self.list.cursor) if self.is_mounted else None

    @property
    def profile_here(self) -> str:
        """The name of the profile in which the cursor is; empty for none."""
        card = self.profiles.get(self.list.cursor) if self.is_mounted else None
        return card.name if card else ""

    @property
    def chosen_runs(self) -> "tuple[Digest, ...]":
        """The runs that Delete, Note, Stop and Compare take: the marked ones, or the one in which the cursor is."""
        if not self.is_mounted:
            return ()
        here = self.run_here
        marked = tuple(self.runs[key] for key in self.runs if key in self.marked)
        return marked or ((here,) if here else ())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what the row can do."""
        del parameters
        run, profile, chosen = self.run_here, bool(self.profile_here), self.chosen_runs
        going = any(each.going for each in chosen)
        offered = {
            "edit": bool(run) or profile,
            "resume": bool(run and run.resumable),
            "run_now": profile and not self.elsewhere,
            "stop": going,
            "delete": not going if chosen else profile,
            "rename": profile or bool(run and not run.going),
            "note": bool(chosen),
            "duplicate": profile,
            "mark": bool(run),
            "compare": len(chosen) > 1,
        }
        return offered.get(action, True)

    def refused(self, key: str) -> str:
        """Return why a key does nothing on this row, or with these marks."""
        run, chosen = self.run_here, self.chosen_runs
        going = next((each for each in chosen if each.going), None)
        if key == "c":
            return "Mark two runs or more with Space: c compares them."
        if key in {"d", "delete"} and going:
            return f"{visible(going.run.label)} still runs and cannot be deleted: s stops it."
        if key == "m" and run and run.going:
            return f"{visible(run.run.label)} still runs and cannot be renamed: s stops it."
        if key == "s" and chosen:
            return f"{_named(chosen)}: nothing of it runs." if len(chosen) == 1 else "None of the marked runs is live."
        if key == "r" and run:
            return f"{visible(run.run.label)} {run.stays}."
        return "Move to a run or a profile first." if key in {*"cdmsreig"} else ""

    # Opening

    @on(RowList.Opened)
    def _opened(self, event: RowList.Opened) -> None:
        kind, _, name = event.key.partition(":")
        if event.key == "new":
            self.action_new()
        elif event.key == "draft":
            self.post_message(StartOver())
            self.post_message(OpenStep("hardware"))
        elif event.key == "quickstart":
            from tui_train.profile.types import Profile

            self._begin(Profile(), "preview", keep=False)
        elif kind == "profile":
            self._load(name, "hardware")
        elif event.key in self.runs:
            self.post_message(OpenRun(self.runs[event.key].run))

    def action_new(self) -> None:
        """Begin with defaults; the draft stays until something of them is changed."""
        from tui_train.profile.types import Profile

        self._begin(Profile(), keep=False)

    def action_edit(self) -> None:
        """Open the profile of the run, or the profile, at its recipe."""
        run = self.run_here
        self._load(str(run.run.profile) if run else self.profile_here, "recipe")

    def _load(self, reference: str, step: str) -> None:
        from tui_train.profile import store

        try:
            # What is only looked at takes no draft away.
            self._begin(store.load(reference), step, keep=False)
        except TuiTrainError as error:
            self.post_message(Complaint(error))

    def _begin(self, profile: "Profile", step: str = "hardware", *, keep: bool = True) -> None:
        self.post_message(Become(profile, keep=keep))
        self.post_message(OpenStep(step))

    # Starting and stopping

    @work(thread=True, group="start")
    def action_resume(self) -> None:
        """Start the run again, from its newest checkpoint."""
        from tui_train.runs.start import another_start, start

        digest = self.run_here
        if digest is None:
            return
        try:
            start(digest.run, resume=True)
        except TuiTrainError as error:
            self.post_message(Complaint(error))
            return
        self.post_message(OpenRun(digest.run, visible(another_start(digest.run))))

    @work(thread=True, group="start", exclusive=True)
    def action_run_now(self) -> None:
        """Start the profile at once, or say what forbids it."""
        from tui_train.profile import store
        from tui_train.targets.here import submit
        from tui_train.workflow.starting import ready, refusals

        name = self.profile_here
        try:
            self.app.call_from_thread(self.notify, f"Checking {visible(name)} …", markup=False)
            prepared = ready(store.load(name))
            if prepared.plan is None or refusals(prepared):
                self.app.call_from_thread(self._refuse, name, prepared)
                return
            run = submit(prepared, prepared.plan)
        except TuiTrainError as error:
            self.post_message(Complaint(error))
        else:
            self.post_message(OpenRun(run))

    def _refuse(self, name: str, prepared: "Prepared") -> None:
        from tui_train.workflow.starting import refusals

        from .widgets.dialogs import Ask

        wrong = refusals(prepared)
        said = "\n".join(visible(f"✗ {finding.message}. {finding.remedy}") for finding in wrong[:_MOST_NAMED])
        answers = (("preview", "Open it in Preview, where F2 fixes what it can"), ("", "Leave it"))

        def answered(answer: str | None) -> None:
            if answer:
                self._begin(prepared.profile, answer)

        self.app.push_screen(Ask(f"{visible(name)} cannot start here.\n\n{said}", answers), answered)

    def action_stop(self) -> None:
        """Ask, then end the run, or the marked ones that are live."""
        from .widgets.dialogs import Ask

        going = tuple(each for each in self.chosen_runs if each.going)
        it = "it and all its processes" if len(going) == 1 else "them and all their processes"
        answers = (("", "No, leave it" if len(going) == 1 else "No, leave them"), ("stop", f"Stop {it}"))

        def answered(answer: str | None) -> None:
            if answer:
                self._stop(tuple(each.run for each in going))

        self.app.push_screen(Ask(f"Stop {_named(going)}?", answers), answered)

    @work(thread=True, group="stop")
    def _stop(self, runs: "tuple[RunDir, ...]") -> None:
        from tui_train.runs.stop import stop

        for run in runs:
            try:
                stop(run)
            except TuiTrainError as error:
                self.post_message(Complaint(error))
        self.app.call_from_thread(self.look)

    # Tidying

    def action_mark(self) -> None:
        """Mark the run, or take the mark away, and go on to the next."""
        key = self.list.cursor
        if key in self.runs:
            self.marked ^= {key}
            self.list.action_move(1)
            if self.list.cursor not in self.runs:
                self.list.go(key)
            self.show_marks()

    def action_compare(self) -> None:
        """Show the marked runs side by side, the oldest first."""
        self.post_message(CompareRuns(tuple(digest.run for digest in reversed(self.chosen_runs))))

    def show_marks(self) -> None:
        """Draw what is marked."""
        raise NotImplementedError

    def action_delete(self) -> None:
        """Ask, then remove the marked runs, or the run or profile in which the cursor is."""
        if runs := self.chosen_runs:
            self._weigh(tuple(digest.run for digest in runs), _named(runs))
        elif name := self.profile_here:
            self._ask_delete(f"Delete the profile {visible(name)}? Its runs stay.", partial(_remove_profile, name))

    @work(thread=True, group="delete", exclusive=True)
    def _weigh(self, runs: "tuple[RunDir, ...]", named: str) -> None:
        """Find what the runs take on disk, then ask."""
        from tui_train.runs import folders

        try:
            for run in runs:
                folders.refuse_at_work(run)
            total = sum(folders.extent(run).size for run in runs)
        except TuiTrainError as error:
            self.post_message(Complaint(error))
            return
        question = f"Delete {named}?\n\nIt frees {size(total)}: logs, checkpoints, all of the folder."
        self.app.call_from_thread(self._ask_delete, question, partial(_remove_runs, runs))

    def _ask_delete(self, question: str, remove: Callable[[], str]) -> None:
        from .widgets.dialogs import Ask

        def answered(answer: str | None) -> None:
            if answer:
                self.marked = frozenset()
                self._change(remove)

        self.app.push_screen(Ask(question, (_NO_DELETE, ("delete", "Delete"))), answered)

    @work(thread=True, group="change")
    def _change(self, change: Callable[[], str]) -> None:
        """Change something on disk, and say what was done."""
        try:
            said = change()
        except TuiTrainError as error:
            self.post_message(Complaint(error))
        else:
            self.app.call_from_thread(self.notify, visible(said), markup=False)
        self.app.call_from_thread(self.look)

    def _ask_text(self, question: str, value: str, change: Callable[[str], str]) -> None:
        """Ask for a text until `change`, which says what it did, takes it or Esc ends it."""
        from .widgets.dialogs import AskText

        def answered(said: str | None) -> None:
            if said is not None:
                self.notify(visible(said), markup=False)
                self.look()

        self.app.push_screen(AskText(question, value, change), answered)

    def action_rename(self) -> None:
        """Ask for another name of the run or the profile."""
        digest, name = self.run_here, self.profile_here
        if digest:
            question = f"Another name for the run {visible(digest.run.name)}; the time at its beginning stays:"
            self._ask_text(question, digest.run.label, partial(self._rename_run, digest.run))
        elif name:
            question = f"Another name for the profile {visible(name)}:"
            self._ask_text(question, name, partial(self._rename_profile, name))

    def _rename_run(self, run: "RunDir", name: str) -> str:
        """Rename a run, which stays marked and under the cursor."""
        from tui_train.runs import folders

        renamed = folders.rename(run, name)
        self.wanted = f"run:{renamed.path}"
        if f"run:{run.path}" in self.marked:
            self.marked |= {self.wanted}
        return f"Renamed to {renamed.name}."

    def _rename_profile(self, name: str, new: str) -> str:
        from tui_train.profile import store

        store.rename(name, new)
        self.wanted = f"profile:{new}"
        return f"Renamed to {new}."

    def action_note(self) -> None:
        """Ask for a line about the run, or the marked ones."""
        if chosen := self.chosen_runs:
            question = f"A line about {_named(chosen)}, which lists show; empty removes it:"
            self._ask_text(question, chosen[0].note, partial(_put_notes, tuple(each.run for each in chosen)))

    def action_duplicate(self) -> None:
        """Ask for the name of a copy of the profile."""
        if name := self.profile_here:
            self._ask_text(f"Name of the copy of {visible(name)}:", f"{name}-2", partial(_duplicate, name))


def _named(runs: "tuple[Digest, ...]") -> str:
    """Return runs in words: one by its id, several by their number and the names of the first."""
    names = ", ".join(visible(each.run.label) for each in runs[:_MOST_NAMED])
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return f"the run {visible(runs[0].run.name)}" if len(runs) == 1 else f"the {len(runs)} marked runs ({names}{more})"


def _remove_runs(runs: "tuple[RunDir, ...]") -> str:
    from tui_train.runs import folders

    freed = sum(folders.remove(run) for run in runs)
    return f"Deleted {counted(len(runs), 'run')}, freed {size(freed)}."


def _put_notes(runs: "tuple[RunDir, ...]", text: str) -> str:
    from tui_train.runs import folders

    for run in runs:
        folders.put_note(run, text)
    return "Noted." if text.strip() else "The note was removed."


def _remove_profile(name: str) -> str:
    from tui_train.profile import store

    store.remove(name)
    return f"Deleted the profile {name}."


def _duplicate(name: str, new: str) -> str:
    from tui_train.profile import store

    store.duplicate(name, new)
    return f"Saved {new}."
