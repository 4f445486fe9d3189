"""Actions of Home on a run or a profile: open, edit, resume, stop, run at once; and which keys a row has."""

from typing import TYPE_CHECKING

from textual import on, work

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible

from ..app.discovery import DiscoveryApp
from ..messages import ErrorToShow, OpenRun, OpenStep, SetProfile, StartOver
from .home_list import MAX_NAMED, runs_text
from .home_tidy import HomeTidy
from .row_list import RowList

if TYPE_CHECKING:
    from tui_train.plan.render.prepare import Prepared
    from tui_train.profile.types import Profile
    from tui_train.runs.rundir import RunDir


class HomeActions(HomeTidy):
    """A screen with a list of runs and profiles, by key, on which these work."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what the row can do."""
        del parameters
        run, profile, chosen = self.run_at_cursor, bool(self.profile_at_cursor), self.chosen_runs
        going = any(each.stoppable for each in chosen)
        offered = {
            "edit": bool(run) or profile,
            "resume": bool(run and run.resumable),
            "run_now": profile and not (isinstance(self.app, DiscoveryApp) and self.app.has_named_machine),
            "stop": going,
            "delete": not going if chosen else profile,
            "rename": profile or bool(run and not run.stoppable),
            "note": bool(chosen),
            "duplicate": profile,
            "mark": bool(run),
            "compare": len(chosen) > 1,
        }
        return offered.get(action, True)

    def why_key_refused(self, key: str) -> str:
        """Return why a key does nothing on this row, or with these marks."""
        run, chosen = self.run_at_cursor, self.chosen_runs
        going = next((each for each in chosen if each.stoppable), None)
        if key == "c":
            return "Mark two runs or more with Space: c compares them."
        if key in {"d", "delete"} and going:
            return f"{visible(going.run.label)} still runs and cannot be deleted: s stops it."
        if key == "m" and run and run.stoppable:
            return f"{visible(run.run.label)} still runs and cannot be renamed: s stops it."
        if key == "s" and chosen:
            return (
                f"{runs_text(chosen)}: nothing of it runs." if len(chosen) == 1 else "None of the marked runs is live."
            )
        if key == "r" and run:
            return f"{visible(run.run.label)} {run.why_not_resumable}."
        return "Move to a run or a profile first." if key in {*"cdmsreig"} else ""

    # Opening

    @on(RowList.Opened)
    def _open_row(self, event: RowList.Opened) -> None:
        kind, _, name = event.key.partition(":")
        if event.key == "new":
            self.action_new()
        elif event.key == "draft":
            self.post_message(StartOver())
            self.post_message(OpenStep("hardware"))
        elif event.key == "quickstart":
            from tui_train.profile.types import Profile

            self._open_profile(Profile(), "preview", keep=False)
        elif kind == "profile":
            self._open_saved(name, "hardware")
        elif event.key in self.runs:
            self.post_message(OpenRun(self.runs[event.key].run))

    def action_new(self) -> None:
        """Begin with defaults; the draft stays until something of them is changed."""
        from tui_train.profile.types import Profile

        self._open_profile(Profile(), keep=False)

    def action_edit(self) -> None:
        """Open the profile of the run, or the profile, at its recipe."""
        run = self.run_at_cursor
        self._open_saved(str(run.run.profile) if run else self.profile_at_cursor, "recipe")

    def _open_saved(self, reference: str, step: str) -> None:
        from tui_train.profile import store

        try:
            # What is only looked at takes no draft away.
            self._open_profile(store.load(reference), step, keep=False)
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))

    def _open_profile(self, profile: "Profile", step: str = "hardware", *, keep: bool = True) -> None:
        self.post_message(SetProfile(profile, keep=keep))
        self.post_message(OpenStep(step))

    # Starting and stopping

    @work(thread=True, group="start")
    def action_resume(self) -> None:
        """Start the run again, from its newest checkpoint."""
        from tui_train.targets import target_of_run

        digest = self.run_at_cursor
        if digest is None:
            return
        try:
            words = target_of_run(digest.run).resume(digest.run)
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
            return
        self.post_message(OpenRun(digest.run, visible(words)))

    @work(thread=True, group="start", exclusive=True)
    def action_run_now(self) -> None:
        """Start the profile at once, or say what forbids it."""
        from tui_train.actions.start_check import forbidding_findings, prepare_start
        from tui_train.profile import store

        name = self.profile_at_cursor
        try:
            self.app.call_from_thread(self.notify, f"Checking {visible(name)} …", markup=False)
            prepared, target = prepare_start(store.load(name))
            if prepared.plan is None or forbidding_findings(prepared):
                self.app.call_from_thread(self._offer_preview, name, prepared)
                return
            run = target.submit(prepared, prepared.plan)
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
        else:
            self.post_message(OpenRun(run))

    def _offer_preview(self, name: str, prepared: "Prepared") -> None:
        from tui_train.actions.start_check import forbidding_findings

        from ..widgets.dialogs import ChoiceDialog

        wrong = forbidding_findings(prepared)
        errors_text = "\n".join(visible(f"✗ {finding.message}. {finding.remedy}") for finding in wrong[:MAX_NAMED])
        answers = (("preview", "Open it in Preview, where F2 fixes what it can"), ("", "Leave it"))

        def answered(answer: str | None) -> None:
            if answer:
                self._open_profile(prepared.profile, answer)

        self.app.push_screen(ChoiceDialog(f"{visible(name)} cannot start here.\n\n{errors_text}", answers), answered)

    def action_stop(self) -> None:
        """Ask, then end the run, or the marked ones that are live."""
        from ..widgets.dialogs import ChoiceDialog

        going = tuple(each for each in self.chosen_runs if each.stoppable)
        it = "it and all its processes" if len(going) == 1 else "them and all their processes"
        answers = (("", "No, leave it" if len(going) == 1 else "No, leave them"), ("stop", f"Stop {it}"))

        def answered(answer: str | None) -> None:
            if answer:
                self._stop_runs(tuple(each.run for each in going))

        self.app.push_screen(ChoiceDialog(f"Stop {runs_text(going)}?", answers), answered)

    @work(thread=True, group="stop")
    def _stop_runs(self, runs: "tuple[RunDir, ...]") -> None:
        from tui_train.targets import target_of_run

        for run in runs:
            try:
                target_of_run(run).stop(run)
            except TuiTrainError as error:
                self.post_message(ErrorToShow(error))
        self.app.call_from_thread(self.refresh_list)
