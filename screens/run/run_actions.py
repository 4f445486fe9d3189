"""Actions that end a run or begin it again: the questions that come before, and what is said after."""

from textual import work

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.runs.rundir import RunDir
from tui_train.views import show

from ..base import Base
from ..messages import ErrorToShow, LeaveWizard
from ..widgets.dialogs import ChoiceDialog


class RunActions(Base):
    """A screen of one run, which can be stopped, started again, and left to itself."""

    run: RunDir

    @property
    def still_trains(self) -> bool:
        """True while the training goes on."""
        raise NotImplementedError

    def follow_run(self) -> None:
        """Read the run's log again."""
        raise NotImplementedError

    def action_stop(self) -> None:
        """Ask, then end the run."""
        answers = (("", "No, let it run"), ("stop", "Stop it and all its processes"))

        def answered(answer: str | None) -> None:
            if answer:
                self._stop_run()

        self.app.push_screen(ChoiceDialog("Stop this training?", answers), answered)

    @work(thread=True, group="stop")
    def _stop_run(self, *, leave: bool = False) -> None:
        from tui_train.targets import target_of_run

        try:
            ended = target_of_run(self.run).stop(self.run)
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
        else:
            if leave:
                self.post_message(LeaveWizard())
            else:
                words = visible(show.after_stop_text(ended))
                self.app.call_from_thread(self.notify, f"{words[:1].upper()}{words[1:]}.", markup=False)

    @work(thread=True, group="again")
    def action_again(self) -> None:
        """Start the same script again."""
        from tui_train.targets import target_of_run

        try:
            words = target_of_run(self.run).resume(self.run)
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
        else:
            self.app.call_from_thread(self.follow_run)
            if words:
                self.app.call_from_thread(self.notify, words, markup=False)

    def ask_before_leaving(self) -> bool:
        """Ask what becomes of a live run; false when there is nothing to ask."""
        if not self.still_trains:
            return False
        answers = (("detach", "Leave it running (tui-train opens it again)"), ("stop", "Stop it"), ("", "Stay here"))

        def answered(answer: str | None) -> None:
            if answer == "detach":
                self.post_message(LeaveWizard())
            elif answer == "stop":
                self._stop_run(leave=True)

        self.app.push_screen(ChoiceDialog("The training still runs.", answers), answered)
        return True
