"""Parts that all screens share: the keys that are the same everywhere, and a help text."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Key
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker, WorkerState, get_current_worker

from tui_train.base.text import visible

from .discovery.discovery import DiscoveryApp
from .help_lines import help_lines

if TYPE_CHECKING:
    from tui_train.runs.run_folders import RunFolder

    from .widgets.dialogs import ChoiceDialog
    from .widgets.jump import JumpTarget

_END_CHECK_INTERVAL_SECONDS = 0.5
# Of the screens that have several panels between which the cursor can go.
JUMP_BINDING = Binding("ctrl+o", "jump", "Jump to a panel", show=False)  # named by the help and the menu


class WizardScreen(Screen[None]):
    """A screen with the wizard's keys."""

    HELP: ClassVar[str | None] = None
    WANTS_CARD_SAMPLES: ClassVar[bool] = False
    # Textual draws all of a screen again when the focus moves; what has it draws itself.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    SHARED_VALUES: ClassVar[tuple[str, ...]] = ()  # reactive values of the app's, which it assigns here as well
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("f1", "app.help", "Help"),
        Binding("question_mark", "app.help", show=False),
        Binding("q", "app.leave", "Quit"),
    ]

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Words of the footer for keys instead of their bindings' words; empty: the key does not show."""
        return {}

    @property
    def keys_named_in_texts(self) -> tuple[str, ...]:
        """Keys that a text of this screen names: the footer shows them before others."""
        return ()

    @property
    def wizard(self) -> DiscoveryApp:
        """The app, which knows the machine that all is for."""
        assert isinstance(self.app, DiscoveryApp)  # noqa: S101 - for the type
        return self.app

    @property
    def is_current(self) -> bool:
        """True while it is drawn: Textual draws also the screen below the top one, though that covers it whole."""
        top = self.app.screen
        return super().is_current and (top is self or top.styles.background.a < 1)

    def call_after_refresh(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
        """Call it unless screen or wizard were left by then: what a screen is made of goes before it does."""

        def call() -> Any:
            return callback(*args, **kwargs) if self.display and self.is_attached else None

        return super().call_after_refresh(call)

    def on_screen_resume(self) -> None:
        """Tell the app which live values this screen needs."""
        self.wizard.sample_cards_while_wanted(wanted=self.WANTS_CARD_SAMPLES)

    @on(Worker.StateChanged)
    def _recover_if_worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state == WorkerState.ERROR:
            self.recover_from_failed_worker(event.worker.group)

    def why_key_refused(self, key: str) -> str:
        """Return why a key that this screen has does nothing now; empty where there is nothing to say."""
        return ""

    def on_key(self, event: Key) -> None:
        """Notify why a key does nothing; keys with an active binding do not come here."""
        if words := self.why_key_refused(event.key):
            active = self.active_bindings.get(event.key)
            if active is None or not active.enabled:
                # Once the app has acted on the keys before: one of them may have opened a dialog, whose this one is.
                self.app.call_later(self._notify_if_current, words)

    def _notify_if_current(self, words: str) -> None:
        if self.app.screen is self:
            self.notify(words, markup=False)

    def ask_choice(
        self, question: str, answers: Iterable[tuple[str, str | Content]], act: Callable[[str], object]
    ) -> "ChoiceDialog":
        """Ask for one of some answers, each an id and its words, and act on its id; on an empty one nothing is done."""
        from .widgets.dialogs import ChoiceDialog

        def answered(answer: str | None) -> None:
            if answer:
                act(answer)

        dialog = ChoiceDialog(question, answers)
        self.app.push_screen(dialog, answered)
        return dialog

    def ask_text(self, question: str, value: str, act: Callable[[str], object], **options: Any) -> None:
        """Ask for a line of text, which may be empty, and act on it; on Esc nothing is done.

        The `options` are those of TextDialog.
        """
        from .widgets.dialogs import TextDialog

        def answered(answer: str | None) -> None:
            if answer is not None:
                act(answer)

        self.app.push_screen(TextDialog(question, value, **options), answered)

    def ask_and_stop(self, run: "RunFolder", question: str, stop: Callable[[], object]) -> None:
        """Ask whether a run is to be stopped, and stop it; the dialog shows what that would leave once it is known.

        It closes by itself when the run ends.
        """
        answers = (("", "No, let it run"), ("stop", "Stop it and all its processes"))
        dialog = self.ask_choice(f"{question}\n\nReading its checkpoints …", answers, lambda _answer: stop())
        self._update_and_close_stop_question(run, question, dialog)

    @work(thread=True, exclusive=True, group="ask-stop")
    def _update_and_close_stop_question(self, run: "RunFolder", question: str, dialog: "ChoiceDialog") -> None:
        """Show what a stop would leave, and close the question when the run ends."""
        from tui_train.runs.status import may_training_still_write, read_status
        from tui_train.views.run_ends import stop_consequence_text

        worker = get_current_worker()
        dialog.call_later(dialog.show_question, f"{question}\n\n{stop_consequence_text(run)}")
        # Of one that has ended it is asked because of the processes that it left.
        went_on = may_training_still_write(read_status(run))
        while went_on and not (dialog.is_closed or worker.is_cancelled):
            time.sleep(_END_CHECK_INTERVAL_SECONDS)
            status = read_status(run)
            if not may_training_still_write(status):
                words = f"{visible(run.name)} has ended by itself: {status.state}."
                self.call_later(self._close_stop_question, dialog, words)
                return

    def _close_stop_question(self, dialog: "ChoiceDialog", words: str) -> None:
        if dialog.is_current:
            dialog.dismiss("")
            self.notify(words, markup=False)

    def jump_targets(self) -> "Iterable[JumpTarget]":
        """Return the panels and groups to which the cursor can go by a letter."""
        return ()

    def action_jump(self) -> None:
        """Put a letter on each panel and group, and go to the one that is typed."""
        from .widgets.jump import JumpScreen

        def jump(stop: "JumpTarget | None") -> None:
            if stop:
                stop.go()

        self.app.push_screen(JumpScreen(tuple(self.jump_targets()), self), jump)

    def call_unless_cancelled(self, act: Callable[..., object], *arguments: object, **named: object) -> None:
        """Call a method of this screen's for a worker, unless that is replaced or the screen is left by then."""
        worker = get_current_worker()

        def call() -> object:
            # Asked here, where it is cancelled: what a replaced worker found is never shown.
            return None if worker.is_cancelled else act(*arguments, **named)

        self.call_later(call)

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Stop waiting for a worker of this screen that failed; the app shows why."""

    def help_lines(self, width: int) -> Sequence[Content]:
        """Return what F1 shows."""
        return help_lines(self.HELP or "", self.fields_for_help(), width)

    def fields_for_help(self) -> Iterable[tuple[str, str, str]]:
        """Return the fields of this screen: each its label, its key and what it is for."""
        return ()
