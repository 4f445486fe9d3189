"""Try: a chat with what a run made, beside its base model; the models are loaded once, answers are streamed."""

import queue
from typing import ClassVar

from msgspec.structs import replace
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.events import Resize
from textual.widgets import Input
from textual.worker import get_current_worker

from tui_train.actions.chat import (
    MAX_ANSWER_TOKENS,
    PICTURE_COMMAND,
    AnswerEnd,
    AnswerPiece,
    Chat,
    ChatModelSide,
    ModelsLoaded,
)
from tui_train.actions.result_child import AnswerCancelled, ModelCodeNotTrusted
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import capitalised, display_path, visible
from tui_train.runs.run_folders import RunFolder

from ..base import WizardScreen
from ..widgets.hint import Hint
from ..widgets.key_bar import KeyBar
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import DONE_MARK, FAILED_MARK, MUTED, styled
from .chat_pane import ChatPane

_PROMPT_QUEUED_NOTICE = " What you typed is sent then, unless you change it."
_MIN_TWO_COLUMNS_WIDTH = 100  # cells in which two columns can be read
_CHAT_SIDES: tuple[ChatModelSide, ...] = ("result", "base")
_TITLE_BY_SIDE = {"result": "Result", "base": "Base"}
_ANSWERING_TEXT, _NO_ANSWER_TEXT = "answering …", "(no answer)"


class _PromptInput(Input):
    """Input for the prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Ask", key_display="Enter")]


class ChatScreen(WizardScreen):
    """A chat with one or two models."""

    HELP = """Try

Enter asks: the result answers first, then its base model; each remembers its own chat. Both answer without sampling,
through the model's own chat template; a model without one continues your text.

  /image FILE   send a picture of this machine with your next prompt, to a model that takes images
  F2            end the answer that is being written
  F3            begin a new chat, which remembers nothing of this one
  F4            load a model that needs Python code of its own, in this chat only
  PgUp PgDn     scroll
  Esc           go back; the models are unloaded

The Python that trained loads them; nothing is downloaded."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("f2", "stop_answer", "End answer"),
        Binding("pageup", "scroll_pages(-1)", "Scroll", key_display="PgUp PgDn"),
        Binding("pagedown", "scroll_pages(1)", show=False),
        Binding("f3", "forget_chat", "New chat"),
        Binding("f4", "load_with_own_code", "Run its code"),
    ]

    def __init__(self, run: RunFolder, *, compare: bool) -> None:
        super().__init__()
        self.run = run
        self._compare = compare
        self._prompts: queue.Queue[str | None] = queue.Queue()
        self._chat: Chat | None = None
        self._busy = True
        self._is_over = False
        self._needs_own_code = self._trusted = False  # it needs its own code, and whether that may run
        self._placeholder = "Ask something"
        self._queued_prompt = ""  # the prompt that is sent as soon as nothing is loaded or written
        self._ready_text = Content()
        self._loading_text = Content("Starting the Python that trained …")

    def compose(self) -> ComposeResult:
        """Put the sides over the prompt."""
        yield StepBar(title="Result › Try it")
        with Container(id="talk"):
            for side in _CHAT_SIDES[: 2 if self._compare else 1]:
                yield ChatPane(_TITLE_BY_SIDE[side], id=side)
        yield Hint()
        yield KeyBar()
        yield _PromptInput(id="prompt", placeholder="loading …", compact=True)

    def on_mount(self) -> None:
        """Load the models."""
        self.query_one(StepBar).show_at_right(styled((visible(self.run.name), MUTED)))
        prompt = self.query_one(_PromptInput)
        prompt.cursor_blink = False
        prompt.focus()
        self._show_hint(self._loading_text)
        self._run_chat()

    def on_resize(self, event: Resize) -> None:
        """Put the sides beside each other where there is room."""
        self.query_one("#talk").set_class(event.size.width >= _MIN_TWO_COLUMNS_WIDTH, "-beside")

    def _show_hint(self, words: Content) -> None:
        self.query_one(Hint).show_text(words)

    @work(thread=True, exclusive=True, group="talk")
    def _run_chat(self) -> None:
        """Load, then answer what is asked, until the screen is left."""
        worker = get_current_worker()
        chat: Chat | None = None

        def show_loading(model_name: str) -> None:
            self.call_later(self._show_loading, model_name)

        try:
            chat = self._chat = Chat(self.run, compare=self._compare, trusted=self._trusted)
            loaded = chat.wait_until_loaded(show_loading, lambda: worker.is_cancelled)
            self.call_later(self._show_models_loaded, loaded)
            while not worker.is_cancelled:
                try:
                    prompt = self._prompts.get(timeout=0.1)
                except queue.Empty:
                    continue
                self._answer_prompt_or_forget(chat, prompt)
        except AnswerCancelled:
            pass
        except TuiTrainError as error:
            self.call_later(self._show_failure, error, can_continue=False)
        finally:
            if chat:
                chat.close()

    def _answer_prompt_or_forget(self, chat: Chat, prompt: str | None) -> None:
        """Answer a prompt on both sides; None forgets the messages so far."""
        worker = get_current_worker()
        if prompt is None:
            chat.forget_messages()
            return
        try:
            if prompt.startswith(PICTURE_COMMAND):
                picture = chat.attach_picture(prompt.removeprefix(PICTURE_COMMAND))
                self.call_later(self._show_picture_attached, picture)
                return
        except TuiTrainError as error:
            self.call_later(self._show_failure, error, can_continue=True)
            return
        for side in chat.sides:
            try:
                for piece in chat.ask(prompt, side, MAX_ANSWER_TOKENS, lambda: worker.is_cancelled):
                    self.call_later(self._show_answer, piece)
            except TuiTrainError as error:
                if not chat.is_alive:
                    raise
                self.call_later(self._show_failure, error, can_continue=True)
                return

    def _show_picture_attached(self, picture: str) -> None:
        self._show_hint(styled(DONE_MARK, f" {picture}."))
        self._accept_prompts()

    def _show_answer(self, piece: AnswerPiece | AnswerEnd) -> None:
        pane = self.query_one(f"#{piece.side}", ChatPane)
        if isinstance(piece, AnswerPiece):
            pane.append_to_answer(piece.text)
            return
        pane.add_note(piece.summary, piece.blank_text)
        if self._chat and piece.side == self._chat.sides[-1]:
            self._accept_prompts()
        else:
            self.query_one("#base", ChatPane).show_waiting(_ANSWERING_TEXT)

    def _show_loading(self, model_name: str) -> None:
        self._loading_text = styled("Loading ", (display_path(model_name), "b"), " …")
        self._show_hint(styled(self._loading_text, _PROMPT_QUEUED_NOTICE if self._queued_prompt else ""))

    def _show_models_loaded(self, ready: ModelsLoaded) -> None:
        if self._compare and not ready.compares:
            self.query_one("#base").remove()
        found = self._chat.result if self._chat else None
        if found:
            named = replace(found, base=display_path(found.base))
            self.query_one("#result", ChatPane).set_subtitle(visible(named.weights_kind_and_base_text))
        if ready.compares and found:
            self.query_one("#base", ChatPane).set_subtitle(display_path(found.base))
        how = "" if ready.template else "; no chat template: the prompt is continued as plain text"
        if ready.sees:
            self._placeholder = f"Ask something, or {PICTURE_COMMAND}FILE"
        self._ready_text = styled(DONE_MARK, f" loaded on {ready.device} in {ready.dtype}{how}.")
        self._show_hint(self._ready_text)
        self._accept_prompts()

    def _accept_prompts(self) -> None:
        self._busy = False
        prompt, waiting = self.query_one(_PromptInput), self._queued_prompt
        prompt.placeholder, self._queued_prompt = self._placeholder, ""
        if waiting and waiting == prompt.value:
            self._send_prompt(waiting)
        self.refresh_bindings()

    def _show_failure(self, error: TuiTrainError, *, can_continue: bool) -> None:
        """Show why there is no answer, in the pane, where it stays until the next prompt."""
        self._is_over = self._busy = not can_continue
        self._replace_waiting_by_no_answer()
        self._queued_prompt = ""
        self._needs_own_code = isinstance(error, ModelCodeNotTrusted)
        remedy = "If you trust that code, F4 runs it, for this chat only." if self._needs_own_code else error.remedy
        self._show_hint(styled(FAILED_MARK, f" {visible(f'{capitalised(error.message)}. {remedy}')}"))
        if self._is_over:
            self.query_one(_PromptInput).placeholder = "Esc goes back"
        self.refresh_bindings()

    @on(Input.Submitted)
    def _send_or_queue_prompt(self, event: Input.Submitted) -> None:
        if self._is_over or not event.value.strip():
            return
        if self._busy:
            self._queued_prompt = event.value
            self._show_hint(
                styled(self._ready_text if self._ready_text.plain else self._loading_text, _PROMPT_QUEUED_NOTICE)
            )
        else:
            self._send_prompt(event.value)

    def _replace_waiting_by_no_answer(self) -> None:
        for talk in self.query(ChatPane):
            talk.show_waiting(_NO_ANSWER_TEXT)

    def _send_prompt(self, prompt: str) -> None:
        self._busy = True
        self.query_one(_PromptInput).clear()
        self._show_hint(self._ready_text)
        for side in self._chat.sides if self._chat and not prompt.startswith(PICTURE_COMMAND) else ():
            names = self._chat.picture_names if self._chat else ()
            waiting = _ANSWERING_TEXT if side == _CHAT_SIDES[0] else "waits for the result's answer …"
            self.query_one(f"#{side}", ChatPane).begin_turn(visible(prompt), names, waiting)
        self._prompts.put(prompt)
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only an answer that is being written can be ended, only between answers a chat begun again.

        A model's own code can be run where it needs that.
        """
        if action == "load_with_own_code":
            return self._needs_own_code
        loaded = bool(self._ready_text.plain) and not self._is_over
        if action == "stop_answer":
            return loaded and self._busy
        return action != "forget_chat" or (loaded and not self._busy)

    def action_stop_answer(self) -> None:
        """End the answer that is being written; the other side still answers."""
        if self._chat:
            self._chat.stop_answer()

    def action_forget_chat(self) -> None:
        """Start a new chat with the same models."""
        self._prompts.put(None)
        for talk in self.query(ChatPane):
            talk.add_note("— a new chat —")

    def action_load_with_own_code(self) -> None:
        """Load it again, with the code that came with it."""
        self._needs_own_code, self._is_over, self._trusted, self._busy = False, False, True, True
        self.query_one(_PromptInput).placeholder = "loading …"
        self._show_hint(self._loading_text)
        self.refresh_bindings()
        self._run_chat()

    def action_scroll_pages(self, pages: int) -> None:
        """Scroll both sides."""
        for talk in self.query(ChatPane):
            talk.scroll_pages(pages)

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Show that the chat has ended."""
        if worker_group == "talk":
            self._is_over = self._busy = True
            self._replace_waiting_by_no_answer()
            self._show_hint(styled(FAILED_MARK, " The chat has ended; Esc goes back."))
