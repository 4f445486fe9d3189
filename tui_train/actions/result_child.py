"""Child process in the Python that trained, here or on a host, which exchanges lines of JSON with this one."""

import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tui_train.actions.sent_program import SentProgram
from tui_train.actions.serving import shell_command
from tui_train.base.errors import BadInput, NoAnswer, TuiTrainError, Unavailable
from tui_train.base.files import inode_and_size
from tui_train.base.text import display_path, visible
from tui_train.channel.session import machine_name
from tui_train.facts.machine.child_memory_limit import memory_limit_for_loading
from tui_train.facts.machine.child_process import CHILDREN_CANCELLED_EVENT
from tui_train.facts.models import hub
from tui_train.runs.results.weights import Weights
from tui_train.runs.run_folders import RunFolder

_MISSING_MODULES_CODE = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))
"""


class TrainingPython(Struct, frozen=True):
    """The Python that trained, the variables that it was given, and whether it may use the run's cards.

    It is on a `host` where that says something.
    """

    python: str
    environment: dict[str, str] = {}
    device: str = "cpu"
    host: str = ""


class ModelCodeNotTrusted(Unavailable):
    """A model or its tokenizer loads only by running Python code that came with it, which was not allowed."""


class AnswerCancelled(Exception):
    """Nobody waits for the answer any more."""


def training_python(
    run: RunFolder, python: str = "", host: str = "", needs: str = "torch, transformers and peft"
) -> TrainingPython:
    """Return what a run was trained with, or another Python in its place, here or on a host.

    Unavailable where it cannot be started; of a host, that is told by the start.
    """
    plan, damage = run.plan_and_damage()
    if damage:
        raise BadInput(f"{visible(run.name)} has no valid plan: {damage}", "Name another run.")
    if plan.get("container") and not python:
        why = f"{visible(run.name)} was trained in a container, whose Python is not on {machine_name(host)}"
        raise Unavailable(why, f"Name a Python with {needs}: --python /path/to/python3")
    named = python or plan.get("python")
    if not isinstance(named, str) or not (host or inode_and_size(Path(named))[0]):
        why = f"the Python that trained is not there: {visible(str(named))}"
        raise Unavailable(why, f"Name another Python with {needs}: --python /path/to/python3")
    device = "cuda" if plan.get("device") == "cuda" else "cpu"
    return TrainingPython(named, _training_variables_from_profile(plan), device, host)


def _training_variables_from_profile(plan: dict[str, Any]) -> dict[str, str]:
    """Return the variables that the user or the choice of cards gave the training."""
    try:
        settings = plan["attempts"][0]["command"]["env"]
        chosen = [setting for setting in settings if setting["origin"] == "profile"]
        return {item["name"]: item["value"] for item in chosen if isinstance(item["value"], str)}
    except (LookupError, TypeError):
        return {}


def require_modules(python: str, modules: tuple[str, ...], needs: str, install: str = "") -> None:
    """Raise Unavailable, with the command that installs them, where a Python lacks modules.

    `needs` says for what (`{}`: the missing ones), and `install` is their package where it is named otherwise.
    """
    done = subprocess.run([python, "-c", _MISSING_MODULES_CODE, *modules, "pip"], capture_output=True, check=False)
    with contextlib.suppress(msgspec.DecodeError):
        missing = msgspec.json.decode(done.stdout or b"[]", type=list[str])
        if lacked := [name for name in missing if name != "pip"]:
            uses_uv = "pip" in missing
            words = ("uv", "pip", "install", "--python", python) if uses_uv else (python, "-m", "pip", "install")
            why = f"{needs.format(' and '.join(lacked))}, which {display_path(python)} lacks"
            command = shell_command(*words, *([install] if install else lacked))
            raise Unavailable(why, f"Install it there: {visible(command)}")


class ResultChild(SentProgram):
    """A running program of programs/result/, here or on a host; each message is a JSON object with an `event`."""

    def __init__(
        self, python: TrainingPython, program: str, request: dict[str, Any], *, has_stdin: bool = False, into: str = ""
    ) -> None:
        """Start it; what is wrong with it is told by its first answer."""
        # How large the models of a host are is not known here.
        limit = (
            0 if python.host else memory_limit_for_loading(_model_folders(request), uses_cuda=python.device == "cuda")
        )
        super().__init__(
            python.host, python.python, f"result/{program}", request, python.environment,
            has_stdin=has_stdin, into=into, memory_limit=limit,
        )  # fmt: skip

    def read_message(self, seconds: float, cancelled: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Return the next message; TuiTrainError if it fails, ends or is silent for so long, or AnswerCancelled."""
        while (message := self._read_or_raise_cancelled(seconds, cancelled)) is not None:
            if message.get("event") == "error":
                raise result_child_error(str(message.get("kind")), str(message.get("why")), self.host)
            if isinstance(message.get("event"), str):
                return message
        raise Unavailable(
            "the program that runs the model ended without an answer", "If that happens again, report it."
        )

    def wait_for_end(self, seconds: float) -> None:
        """Wait until it has ended with 0, and what it made is in its place."""
        while self._read_or_raise_cancelled(seconds, lambda: False) is not None:
            pass

    def _read_or_raise_cancelled(self, seconds: float, cancelled: Callable[[], bool]) -> dict[str, Any] | None:
        try:
            return self.read_line(seconds, cancelled)
        except NoAnswer:
            if cancelled() or CHILDREN_CANCELLED_EVENT.is_set():
                raise AnswerCancelled from None
            raise


def weights_folder_request(weights: Weights) -> dict[str, Any]:
    """Return how a child is told of a model or an adapter that is on this machine."""
    return {"folder": weights.path, "adapter": weights.kind == "adapter"}


def _model_folders(request: dict[str, Any]) -> list[str]:
    """Return the folders of the models that a request names."""
    base, revision = str(request.get("base") or ""), str(request.get("revision") or "")
    in_cache = base and not Path(base).is_absolute()
    return [str(request.get("folder") or ""), hub.snapshot_folder(os.environ, base, revision) if in_cache else base]


_MESSAGE_AND_REMEDY_BY_ERROR_KIND = {
    "memory": ("out of memory", "Stop what else uses that memory, or use a machine with more."),
    "missing": (
        "files of the model are missing",
        ("Copy the missing files there, or download the model: hf download ID"),
    ),
    "lacks": (
        "this Python lacks what that takes",
        "Install what is missing there, or name another Python: --python PATH",
    ),
    "quantized": ("an adapter merges into unquantized weights only", "Name the unquantized model: --base FOLDER"),
    "weights": ("the run has no adapter and no model", "See its log: tui-train logs RUN"),
    "base": ("the base model is not named", "Name its base model: --base FOLDER"),
    "scores": ("it is a reward model: it gives scores, not text", "Only language models can be tried."),
    "full": ("it is a full model: there is nothing to merge", "Use the model as it is."),
    "space": ("no disk space", "Free some space, or choose a folder on another disk."),
    "template": ("the chat template cannot be used", "Try a model with another chat template."),
    "prompt": ("the prompt cannot be answered", "Give another prompt."),
    "picture": ("the picture cannot be shown to it", "Name another picture, or ask without one."),
    "data": ("the rows cannot be used", "Name other rows: --data FILE"),
    "frames": (
        "its chat template cannot be one of Ollama",
        "Export it --for gguf: llama-server uses the template as it is (--jinja).",
    ),
    "sees": ("a model that reads images cannot be one GGUF file", "Export it for vLLM, as a folder: --for vllm"),
    "converter": ("llama.cpp's converter failed", "Bring llama.cpp up to date: git pull in its folder."),
    "quantizer": ("llama-quantize failed", "Export another type: --type q8_0"),
    "harness": ("tasks need lm-eval", "Install it in the Python that trained: pip install lm-eval"),
    "task": ("the tasks cannot be used", "Name others: --task NAME or FILE.yaml; lm-eval ls tasks lists them."),
    "task_data": (
        "the data of a task cannot be loaded",
        "Check the network, the proxy (https_proxy) and HF_ENDPOINT; or name the file of a task whose data are here.",
    ),
    "task_offline": (
        "the data of a task are not here, and the Hub is not asked",
        "Unset HF_HUB_OFFLINE once to download them, or name the file of a task whose data are here: --task FILE.yaml",
    ),
    "function": ("your function failed", "Correct it, then repeat the command."),
    "login": ("you are not logged in to the Hub", "Log in: hf auth login; or set HF_TOKEN."),
    "token": (
        "the Hub does not accept the token",
        "Make one that may write at https://huggingface.co/settings/tokens; then: hf auth login, or set HF_TOKEN.",
    ),
    "forbidden": (
        "the token may not write there",
        "Name a repository of yours; or give the token that right at https://huggingface.co/settings/tokens.",
    ),
    "offline": ("the Hub is not asked", "Unset HF_HUB_OFFLINE, then repeat the command."),
    "network": (
        "the Hub cannot be reached",
        "Check the network, the proxy (https_proxy) and HF_ENDPOINT, then repeat the command.",
    ),
    "upload": ("the Hub did not take it", "Repeat the command: what has arrived is not sent again."),
}


def result_child_error(error_kind: str, why: str, host: str = "") -> TuiTrainError:
    """Return what a child could not do as an error with a remedy, which is for its host (empty: this machine)."""
    if error_kind == "code" and host:
        return ModelCodeNotTrusted(visible(why), f"Read that file on {host}; to run it this time: --trust-remote-code")
    if error_kind == "code":
        return ModelCodeNotTrusted(visible(why), "Read that file; to run it this time: --trust-remote-code")
    what, remedy = _MESSAGE_AND_REMEDY_BY_ERROR_KIND.get(
        error_kind, ("it failed", "See whether the model loads in that Python.")
    )
    return Unavailable(f"{what}: {visible(why)}", f"On {visible(host)}: {remedy}" if host else remedy)
