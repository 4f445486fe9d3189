"""A chat with what a run made, and with its base model beside it: loaded once, streamed."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tui_train.actions.host_result import host_of_result, result_folder_candidates
from tui_train.actions.merge import require_language_model
from tui_train.actions.result_child import ResultChild, training_python, weights_folder_request
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import BadInput, TuiTrainError, Unavailable
from tui_train.base.files import read_error_reason, read_regular_file
from tui_train.base.text import quantity, size_text, visible
from tui_train.runs.results.result import RunResult, read_result
from tui_train.runs.results.weights import Weights, WeightsKind
from tui_train.runs.run_folders import RunFolder

ChatModelSide = Literal["result", "base"]
MAX_ANSWER_TOKENS = 256
PICTURE_COMMAND = "/image "
_MAX_PICTURE_BYTES = 16 << 20
# Seconds without a word: loading reads many GB, the first token of a long prompt takes a CPU minutes.
_MAX_LOADING_SILENCE_SECONDS, _MAX_ANSWERING_SILENCE_SECONDS = 900.0, 300.0
_TEXT_BY_ANSWER_END_REASON = {"length": "stopped at the token limit", "stopped": "stopped"}
BLANK_ANSWER_TEXT = "(only blanks or special tokens)"  # shown for an answer without a visible character


class ModelsLoaded(Struct, frozen=True):
    """The models are loaded: on which device, in which type; whether there is a chat template, and a base beside it.

    And whether it `sees` pictures.
    """

    device: str
    dtype: str
    template: bool
    compares: bool
    sees: bool = False


class AnswerPiece(Struct, frozen=True):
    """A piece of an answer, safe to show but for its line breaks."""

    side: ChatModelSide
    text: str


class AnswerEnd(Struct, frozen=True):
    """An answer is complete: how many tokens in how many seconds; `end_reason` is end, length or stopped.

    `forgotten_turns` are the first turns of the chat that no longer fit into what the model takes.
    """

    side: ChatModelSide
    tokens: int
    seconds: float
    end_reason: str
    forgotten_turns: int = 0

    @property
    def blank_text(self) -> str:
        """Words shown in place of an answer without a visible character: why there is none."""
        if self.tokens <= 1 and self.end_reason == "end":
            return "(no answer: the model ended its turn at once)"
        return BLANK_ANSWER_TEXT if self.tokens else "(stopped before its first word)"

    @property
    def summary(self) -> str:
        """Summary of an answer: `30 tokens, 14.8 tokens/s, stopped at the token limit`."""
        parts = [quantity(self.tokens, "token")]
        parts += [f"{self.tokens / self.seconds:.1f} tokens/s"] if self.seconds else []
        parts += [summary] if (summary := _TEXT_BY_ANSWER_END_REASON.get(self.end_reason, "")) else []
        parts += (
            [f"the first {quantity(self.forgotten_turns, 'turn')} left out: the chat is too long for the model"]
            if self.forgotten_turns
            else []
        )
        return ", ".join(parts)


class _Picture(NamedTuple):
    """A picture: the name of its file, and a data URL of it."""

    name: str
    url: str


class Chat:
    """The models of one run, loaded in a child; each side remembers what it was asked and what it answered."""

    def __init__(
        self, run: RunFolder, *, compare: bool, python: str = "", trusted: bool = False, named_host: str = ""
    ) -> None:
        """Begin to load, where it is `trusted` with its own code; TuiTrainError where there is nothing to load.

        It is loaded where the result lies; that may be the `named_host`.
        """
        self.result: RunResult = read_result(run)
        host = host_of_result(run, named_host, python)
        request: dict[str, Any]
        request = (
            {"candidates": result_folder_candidates(run), "talks": True} if host else _weights_request(self.result)
        )
        self.compares = compare and bool(host or self.result.base)
        trained = training_python(run, python, host)
        request |= {"base": self.result.base, "revision": self.result.revision, "compare": self.compares}
        request |= {"device": trained.device, "trusted": trusted}
        self._child = ResultChild(trained, "chat_child.py", request, has_stdin=True)
        self._messages: dict[ChatModelSide, list[dict[str, Any]]] = {"result": [], "base": []}
        self._pictures: tuple[_Picture, ...] = ()
        self._number = 0

    @property
    def sides(self) -> tuple[ChatModelSide, ...]:
        """The sides that answer."""
        return ("result", "base") if self.compares else ("result",)

    def wait_until_loaded(
        self, on_loading_model: Callable[[str], None], cancelled: Callable[[], bool] = lambda: False
    ) -> ModelsLoaded:
        """Wait until it is loaded; `on_loading_model` is told which model is being loaded."""
        while (message := self._child.read_message(_MAX_LOADING_SILENCE_SECONDS, cancelled))["event"] != "ready":
            if message["event"] == "found":
                self._keep_found_weights(message)
            else:
                on_loading_model(visible(str(message.get("what", ""))))
        try:
            template = bool(message["template"])
            where = f"{visible(self._child.host)}: " if self._child.host else ""
            device, dtype = f"{where}{visible(str(message['device']))}", visible(str(message["dtype"]))
        except KeyError as error:
            raise Unavailable(
                ("the program that runs the model sent an invalid answer"), "If that happens again, report it."
            ) from error
        self.compares = self.compares and bool(message.get("compares"))
        return ModelsLoaded(device, dtype, template, self.compares, sees=bool(message.get("sees")))

    def _keep_found_weights(self, message: dict[str, object]) -> None:
        """Keep what was found on the host."""
        kind: WeightsKind = "adapter" if message.get("adapter") else "model"
        base = str(message.get("base") or "")
        self.result = replace(self.result, weights=Weights(path=str(message.get("folder")), kind=kind), base=base)

    def attach_picture(self, path: str) -> str:
        """Attach a picture, by its path on this machine, to the next prompt for all sides; return what it is, in words.

        TuiTrainError where it cannot be read.
        """
        file = expand_home(path.strip())
        data = _read_picture(file)
        url = f"data:image/*;base64,{base64.b64encode(data).decode()}"
        self._pictures = (*self._pictures, _Picture(visible(file.name), url))
        return f"{visible(file.name)}, {size_text(len(data))}, is shown with the next prompt"

    @property
    def picture_names(self) -> tuple[str, ...]:
        """The names of the pictures that are shown with the next prompt."""
        return tuple(picture.name for picture in self._pictures)

    def ask(
        self,
        prompt: str,
        side: ChatModelSide,
        max_tokens: int = MAX_ANSWER_TOKENS,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[AnswerPiece | AnswerEnd]:
        """Yield the pieces of a side's answer as they are written, and its end."""
        self._number += 1
        images = [picture.url for picture in self._pictures]
        asked = {"role": "user", "content": prompt} | ({"images": images} if images else {})
        history = [*self._messages[side], asked]
        self._child.send_message({"id": self._number, "side": side, "messages": history, "tokens": max_tokens})
        answer = ""
        while True:
            try:
                message = self._child.read_message(_MAX_ANSWERING_SILENCE_SECONDS, cancelled)
            except TuiTrainError:
                self._pictures = ()
                raise
            if message.get("id") != self._number:
                continue
            if message["event"] == "end":
                self._messages[side] = [*history, {"role": "assistant", "content": answer}]
                if side == self.sides[-1]:
                    self._pictures = ()
                yield _parse_answer_end(side, message)
                return
            piece = str(message.get("text", ""))
            answer += piece
            yield AnswerPiece(side, visible_text_with_line_breaks(piece))

    @property
    def is_alive(self) -> bool:
        """True while it can be asked again."""
        return self._child.is_alive

    def forget_messages(self) -> None:
        """Forget the messages and pictures so far."""
        self._pictures = ()
        self._messages = {"result": [], "base": []}

    def stop_answer(self) -> None:
        """End the answer that is being written."""
        self._child.send_message({"stop": True})

    def close(self) -> None:
        """End the child."""
        self._child.close()


def _read_picture(file: Path) -> bytes:
    try:
        return read_regular_file(file, _MAX_PICTURE_BYTES)
    except (OSError, ValueError) as error:
        why = read_error_reason(error) if isinstance(error, OSError) else str(error)
        raise BadInput(f"{visible(str(file))} cannot be shown: {visible(why)}", "Name another picture.") from None


def _weights_request(run_result: RunResult) -> dict[str, Any]:
    """Return which weights on this machine are loaded; TuiTrainError where they cannot be talked with."""
    weights = require_language_model(run_result)
    if weights.kind == "adapter" and not run_result.base:
        raise BadInput(f"the adapter in {visible(weights.path)} does not name its base model", "Name another run.")
    return weights_folder_request(weights)


def _parse_answer_end(side: ChatModelSide, message: dict[str, object]) -> AnswerEnd:
    tokens, forgotten = (value if isinstance(value := message.get(key), int) else 0 for key in ("tokens", "forgotten"))
    seconds = message.get("seconds")
    why = visible(str(message.get("why", "")))
    return AnswerEnd(side, tokens, seconds if isinstance(seconds, float) else 0.0, why, forgotten)


def visible_text_with_line_breaks(text: str) -> str:
    """Return what a model wrote without what a terminal would obey; line breaks stay."""
    return "\n".join(visible(line) for line in text.replace("\r\n", "\n").replace("\t", "    ").split("\n"))
