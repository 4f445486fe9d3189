"""Which log of a run is shown: an attempt's, the launcher's, or the lines of one rank."""

from tui_train.runs.follow import RunNews

from ..widgets.dialogs import ChoiceDialog
from .log_pane import LogPane
from .run_actions import RunActions


class RunLogs(RunActions):
    """A screen of one run with its logs."""

    _news: RunNews | None = None

    def _open_log(self, attempt: int) -> None:
        """Show the log of an attempt; 0 is that of launch.sh."""
        name = f"attempt {attempt}" if attempt else "launcher"
        self.query_one(LogPane).open(self.run.attempt_log(attempt) if attempt else self.run.launcher_log, name)

    def action_attempt(self) -> None:
        """Choose the attempt whose log is shown."""
        numbers = [attempt.number for attempt in self._news.status.attempts] if self._news else []
        answers = [(str(number), f"attempt {number}") for number in reversed(numbers)]

        def answered(answer: str | None) -> None:
            if answer:
                self._open_log(int(answer))

        self.app.push_screen(ChoiceDialog("Which log?", (*answers, ("0", "launcher log"))), answered)

    def action_rank(self) -> None:
        """Choose the rank whose lines are shown."""
        known = self._news.prefixes if self._news else ()
        if not known:
            self.notify("No line of this log begins with a rank, such as [rank1]: or [default1]:.", markup=False)
            return

        def answered(answer: str | None) -> None:
            if answer:
                self.query_one(LogPane).choose_rank(None if answer == "all" else int(answer))

        answers = (("all", "all lines"), *((str(rank), f"rank {rank}") for rank in known))
        self.app.push_screen(ChoiceDialog("Whose lines?", answers), answered)
