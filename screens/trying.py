"""Try: a chat with what a run made, beside its base model; the models are loaded once, answers are streamed."""

import queue
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.events import Resize
from textual.message import Message
from textual.widgets import Input
from textual.worker import get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import display_path, visible
from tui_train.runs.rundir import RunDir
from tui_train.workflow.chat import MOST_TOKENS, Chat, End, Ready, Side, Text
from tui_train.workflow.dialogue import Cancelled, OwnCode

from .base import Base
from .widgets.bar import StepBar
from .widgets.hint import Hint
from .widgets.ink import DONE, FAILED, MUTED, ink
from .widgets.keys import Keys
from .widgets.talk import Talk

_WAITS = " What you typed is sent then, unless you change it."
_BESIDE = 100  # cells in which two columns can be read
_SIDES: tuple[Side, ...] = ("result", "base")
_TITLES = {"result": "Result", "base": "Base"}


class Said(Message):
    """The chat goes on: it loads, is ready, or writes."""

    def __init__(self, what: str | Ready | Text | End) -> None:
        """Carry a model that is being loaded, or what else there is."""
        super().__init__()
        self.what = what


class Failed(Message):
    """A prompt was not answered, or, where nothing is `left`, none can be."""

    def __init__(self, error: TuiTrainError, *, left: bool) -> None:
        """Carry why."""
        super().__init__()
        self.error = error
        self.left = left


class _Prompt(Input):
    """Where the prompt is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Ask", key_display="Enter")]


class Trying(Base):
    """A chat with one or two models."""

    HELP = """Try

Enter asks: the result answers first, then its base model, each with what it was asked and answered before. Answers are
greedy, without sampling, and go through the model's own chat template; without one the text is continued.
F2 ends the answer that is being written, PgUp and PgDn scroll, F3 begins again without what was said.
A model that came with Python code of its own is loaded only after F4, which holds for this chat.
Esc goes back and ends the models. They are loaded in the Python that trained; nothing is downloaded."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("f2", "stop", "End answer"),
        Binding("pageup", "turn(-1)", "Scroll", key_display="PgUp PgDn"),
        Binding("pagedown", "turn(1)", show=False),
        Binding("f3", "forget", "New chat"),
        Binding("f4", "trust", "Run its code"),
    ]

    def __init__(self, run: RunDir, *, compare: bool) -> None:
        """Talk with what a run made."""
        super().__init__()
        self.run = run
        self._compare = compare
        self._prompts: queue.Queue[str | None] = queue.Queue()
        self._chat: Chat | None = None
        self._busy = True
        self._over = False
        self._own_code = self._trusted = False  # it needs its own code, and whether that may run
        self._waiting = ""  # the prompt that is sent as soon as nothing is loaded or written
        self._ready = Content()
        self._loading = Content("Starting the Python that trained …")

    def compose(self) -> ComposeResult:
        """Put the sides over the prompt."""
        yield StepBar(title="Result › Try it")
        with Container(id="talk"):
            for side in _SIDES[: 2 if self._compare else 1]:
                yield Talk(_TITLES[side], "", id=side)
        yield Hint()
        yield Keys()
        yield _Prompt(id="prompt", placeholder="loading …", compact=True)

    def on_mount(self) -> None:
        """Load the models."""
        self.query_one(StepBar).say(ink((visible(self.run.name), MUTED)))
        prompt = self.query_one(_Prompt)
        prompt.cursor_blink = False
        prompt.focus()
        self._say(self._loading)
        self._talk()

    def on_resize(self, event: Resize) -> None:
        """Put the sides beside each other where there is room."""
        self.query_one("#talk").set_class(event.size.width >= _BESIDE, "-beside")

    def _say(self, words: Content) -> None:
        self.query_one(Hint).say(words)

    @work(thread=True, exclusive=True, group="talk")
    def _talk(self) -> None:
        """Load, then answer what is asked, until the screen is left."""
        worker = get_current_worker()
        chat: Chat | None = None
        try:
            chat = self._chat = Chat(self.run, compare=self._compare, trusted=self._trusted)
            self.post_message(Said(chat.load(lambda what: self._post(Said(what)), lambda: worker.is_cancelled)))
            while not worker.is_cancelled:
                try:
                    prompt = self._prompts.get(timeout=0.1)
                except queue.Empty:
                    continue
                self._answer(chat, prompt)
        except Cancelled:
            pass
        except TuiTrainError as error:
            self._post(Failed(error, left=False))
        finally:
            if chat:
                chat.close()

    def _post(self, message: Message) -> None:
        self.post_message(message)

    def _answer(self, chat: Chat, prompt: str | None) -> None:
        """Answer a prompt on both sides; None begins another chat."""
        worker = get_current_worker()
        if prompt is None:
            chat.forget()
            return
        for side in chat.sides:
            try:
                for piece in chat.ask(prompt, side, MOST_TOKENS, lambda: worker.is_cancelled):
                    self._post(Said(piece))
            except TuiTrainError as error:
                if not chat.alive:
                    raise
                self._post(Failed(error, left=True))
                return

    @on(Said)
    def _said(self, event: Said) -> None:
        what = event.what
        if isinstance(what, Text):
            self.query_one(f"#{what.side}", Talk).write(what.text)
        elif isinstance(what, End):
            self.query_one(f"#{what.side}", Talk).note(what.words)
            if self._chat and what.side == self._chat.sides[-1]:
                self._be_ready()
        elif isinstance(what, Ready):
            self._loaded(what)
        else:
            self._loading = ink("Loading ", (display_path(what), "b"), " …")
            self._say(ink(self._loading, _WAITS if self._waiting else ""))

    def _loaded(self, ready: Ready) -> None:
        if self._compare and not ready.compares:
            self.query_one("#base").remove()
        found = self._chat.result if self._chat else None
        self.query_one("#result", Talk).entitle(visible(found.about) if found else "")
        if ready.compares and found:
            self.query_one("#base", Talk).entitle(visible(found.base))
        how = "" if ready.template else "; no chat template: the prompt is continued as plain text"
        self._ready = ink(DONE, f" loaded on {ready.device} in {ready.dtype}{how}.")
        self._say(self._ready)
        self._be_ready()

    def _be_ready(self) -> None:
        self._busy = False
        prompt, waiting = self.query_one(_Prompt), self._waiting
        prompt.placeholder, self._waiting = "Ask something", ""
        if waiting and waiting == prompt.value:
            self._ask(waiting)
        self.refresh_bindings()

    @on(Failed)
    def _failed(self, event: Failed) -> None:
        """Say why there is no answer; what stays until the next one is no notice that goes away."""
        self._over = not event.left
        self._busy, self._waiting = not event.left, ""
        self._own_code = isinstance(event.error, OwnCode)
        remedy = "If you trust that file, F4 runs it, for this chat only." if self._own_code else event.error.remedy
        words = f"{event.error.message}. {remedy}"
        self._say(ink(FAILED, f" {visible(words[:1].upper() + words[1:])}"))
        if self._over:
            self.query_one(_Prompt).placeholder = "Esc goes back"
        self.refresh_bindings()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if self._over or not event.value.strip():
            return
        if self._busy:
            self._waiting = event.value
            self._say(ink(self._ready if self._ready.plain else self._loading, _WAITS))
        else:
            self._ask(event.value)

    def _ask(self, prompt: str) -> None:
        self._busy = True
        self.query_one(_Prompt).clear()
        self._say(self._ready)
        for side in self._chat.sides if self._chat else ():
            self.query_one(f"#{side}", Talk).asked(visible(prompt))
        self._prompts.put(prompt)
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only an answer that is being written can be ended, only between answers a chat begun again.

        A model's own code can be run where it needs that.
        """
        del parameters
        if action == "trust":
            return self._own_code
        loaded = bool(self._ready.plain) and not self._over
        if action == "stop":
            return loaded and self._busy
        return action != "forget" or (loaded and not self._busy)

    def action_stop(self) -> None:
        """End the answer that is being written; the other side still answers."""
        if self._chat:
            self._chat.stop()

    def action_forget(self) -> None:
        """Begin again, without what was said."""
        self._prompts.put(None)
        for talk in self.query(Talk):
            talk.note("— a new chat —")

    def action_trust(self) -> None:
        """Load it again, with the code that came with it."""
        self._own_code, self._over, self._trusted, self._busy = False, False, True, True
        self.query_one(_Prompt).placeholder = "loading …"
        self._say(self._loading)
        self.refresh_bindings()
        self._talk()

    def action_turn(self, pages: int) -> None:
        """Scroll both sides."""
        for talk in self.query(Talk):
            talk.turn(pages)

    def recover(self, group: str) -> None:
        """Say that nothing answers any more."""
        if group == "talk":
            self._over = self._busy = True
            self._say(ink(FAILED, " The chat has ended; Esc goes back."))
