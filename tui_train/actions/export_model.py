"""A result for a server: a GGUF file by llama.cpp's own converter with a Modelfile, or a whole folder for vLLM."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from tui_train.actions.merge import MergeOptions, merge_adapter, require_language_model, require_new_folder
from tui_train.actions.publish import copy_model_files
from tui_train.actions.result_child import ResultChild, require_modules, result_child_error, training_python
from tui_train.actions.serving import serve_commands, shell_command
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import BadInput, NotFound
from tui_train.base.files import raising_cannot_write
from tui_train.base.parse import MissingFile, Unparsable, read_file_to_parse
from tui_train.base.text import quantity, visible
from tui_train.facts.models import hub
from tui_train.runner.system.new_folder import new_folder
from tui_train.runs.results.result import RunResult, read_result
from tui_train.runs.results.weights import Weights
from tui_train.runs.run_folders import RunFolder

Server = Literal["gguf", "ollama", "vllm"]
CONVERTER_TYPES = ("f16", "bf16", "f32", "q8_0")
QUANTIZED_TYPES = ("q6_k", "q5_k_m", "q4_k_m", "q3_k_m")
_CONVERTER_NAME, _QUANTIZER_NAME = "convert_hf_to_gguf.py", "llama-quantize"
_CONVERTER_MODULES = ("torch", "transformers", "sentencepiece")
_SERVER_NAME = "llama-server"
_BUILD_FOLDERS = ("build/bin", "")  # in a folder of llama.cpp
_CLONE_LLAMA_CPP_COMMAND = "git clone --depth 1 https://github.com/ggml-org/llama.cpp ~/llama.cpp"
_MAX_CONFIG_BYTES = 1 << 20
_MAX_SILENCE_SECONDS = 7200.0  # writing a large model to a slow disk


class ExportModelOptions(Struct, frozen=True, kw_only=True):
    """What it is for, the type of its weights, llama.cpp's folder (empty: where it is found), and another Python.

    The weights of a GGUF file are float16 where no type is named; for vLLM they keep theirs.
    """

    server: Server = "gguf"
    weights_type: str = ""
    llama_cpp: str = ""
    python: str = ""
    trusts_model_code: bool = False


class ExportedModel(Struct, frozen=True):
    """What was written (a GGUF file, or a folder for vLLM), its bytes, what it has, and the command that uses it."""

    path: str
    size: int
    content: str
    command: str
    note: str = ""


def export_model(
    run: RunFolder,
    folder: str,
    options: ExportModelOptions,
    on_step: Callable[[str, str], None] = lambda _what, _of: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ExportedModel:
    """Write a run's result for a server into `folder`, which must not exist; an adapter is merged first.

    TuiTrainError where it cannot be done; then nothing is left.
    """
    result = read_result(run)
    weights = require_language_model(result)
    # A merge of a fetched result would be made on its host, where the Python that trained is there alone.
    training_python(run, options.python)
    export = _Export(run, weights, require_new_folder(folder), options, on_step, cancelled)
    return export.for_vllm(result) if options.server == "vllm" else export.as_gguf(result)


class _Export(Struct, frozen=True):
    """One export: its run, weights, target folder and options, and what reports and cancels it."""

    run: RunFolder
    weights: Weights
    into: Path
    options: ExportModelOptions
    on_step: Callable[[str, str], None]
    cancelled: Callable[[], bool]

    def for_vllm(self, result: RunResult) -> ExportedModel:
        weights, into, options = self.weights, self.into, self.options
        if options.weights_type:
            raise BadInput("vLLM is given the weights in their own type", "Leave out --type.")
        with raising_cannot_write(into), new_folder(into) as beside:
            model = beside / "model"
            if weights.kind == "adapter":
                self._merge_into(model)
            else:
                self.on_step("copying", weights.path)
                copy_model_files(weights, model)
            request: dict[str, Any] = {"folder": str(model), "base": result.base, "revision": result.revision}
            request |= {"trusted": options.trusts_model_code}
            done = self._wait_for_child("vllm_folder_child.py", request)
            for path in model.iterdir():
                path.rename(beside / path.name)
            model.rmdir()
            size = sum(path.stat().st_size for path in beside.rglob("*") if path.is_file())
        ends = " and ".join(map(visible, map(str, done["ends"])))
        chat = "chat template" if done["chat"] else "no chat template: it continues texts, and answers no chats"
        content = f"weights, tokenizer, {chat}" + (f"; an answer ends with {ends}" if ends else "")
        direct = next((each.command for each in serve_commands(result) if each.server == "vllm"), "")
        note = f"Without merging: {direct}" if weights.kind == "adapter" and direct else ""
        return ExportedModel(str(into), size, content, shell_command("vllm", "serve", str(into)), note)

    def as_gguf(self, result: RunResult) -> ExportedModel:
        weights, into, options = self.weights, self.into, self.options
        weights_type = options.weights_type or CONVERTER_TYPES[0]
        if weights_type not in {*CONVERTER_TYPES, *QUANTIZED_TYPES}:
            known = ", ".join((*CONVERTER_TYPES, *QUANTIZED_TYPES))
            raise BadInput(f"the type {visible(weights_type)} is not known", f"Give one of {known}: --type TYPE")
        converter = find_converter(options.llama_cpp)
        quantizer = _find_quantizer(options) if weights_type in QUANTIZED_TYPES else ""
        # Before an adapter is merged for minutes.
        python = training_python(self.run, options.python).python
        require_modules(python, _CONVERTER_MODULES, "llama.cpp's converter needs {}")
        if weights.kind == "adapter" and _sees_images(result.base, result.revision):
            raise result_child_error("sees", "the file would lack the part that reads them")
        label = self.run.label.replace("=", "-")  # which names of Ollama cannot hold
        label += f"-step-{self.run.checkpoint}" if self.run.checkpoint else ""
        name = f"{label}-{weights_type}.gguf"
        with raising_cannot_write(into), new_folder(into) as beside:
            model = weights.path
            if weights.kind == "adapter":
                model = str(beside / "merged")
                self._merge_into(beside / "merged")
            request = {
                "folder": model,
                "converter": converter,
                "file": str(beside / name),
                "type": CONVERTER_TYPES[0] if quantizer else weights_type,
                "server": _find_built_program(_SERVER_NAME, options),
                "quantizer": quantizer,
                "quantized_type": weights_type,
                "ollama": options.server == "ollama",
                "trusted": options.trusts_model_code,
            }
            done = self._wait_for_child("gguf_child.py", request)
            shutil.rmtree(beside / "merged", ignore_errors=True)
            size = (beside / name).stat().st_size
            if options.server == "ollama":
                text = modelfile_text(name, str(done["template"]), list(done["stops"]))
                (beside / "Modelfile").write_text(text, "utf-8")
        command = (
            shell_command("ollama", "create", label, "-f", str(into / "Modelfile"))
            if options.server == "ollama"
            else shell_command("llama-server", "-m", str(into / name), "--jinja")
        )
        content = f"{quantity(int(done['tensors']), 'tensor')}, checked by reading it back, chat template included"
        return ExportedModel(str(into / name), size, content, command, visible(str(done["compared"])))

    def _merge_into(self, folder: Path) -> None:
        options = MergeOptions(python=self.options.python, trusts_model_code=self.options.trusts_model_code)
        merge_adapter(self.run, str(folder), options, self.on_step, self.cancelled)

    def _wait_for_child(self, program: str, request: dict[str, Any]) -> dict[str, Any]:
        child = ResultChild(training_python(self.run, self.options.python), program, request)
        try:
            while (message := child.read_message(_MAX_SILENCE_SECONDS, self.cancelled))["event"] != "done":
                self.on_step(visible(str(message.get("what"))), visible(str(message.get("of"))))
            return message
        finally:
            child.close()


def _sees_images(base: str, revision: str) -> bool:
    """Return whether the config.json of a base model, of a folder or in the cache of the Hub, has a vision part."""
    folder = base if base.startswith("/") else hub.snapshot_folder(os.environ, base, revision)
    try:
        config = json.loads(read_file_to_parse(Path(folder, "config.json"), _MAX_CONFIG_BYTES))
    except (MissingFile, Unparsable, ValueError):
        return False  # merging says what is wrong
    return isinstance(config, dict) and bool(config.get("vision_config"))


def modelfile_text(gguf_name: str, template: str, stops: list[str]) -> str:
    """Return a Modelfile; BadInput for a template that its quotes cannot hold."""
    if '"""' in template:
        raise BadInput(
            "the chat template has three quotes in a row, which a Modelfile cannot hold", "Export it --for gguf."
        )
    lines = [f"FROM ./{gguf_name}", f'TEMPLATE """{template}"""', *(f'PARAMETER stop "{stop}"' for stop in stops)]
    return "\n".join(lines) + "\n"


def find_converter(llama_cpp: str = "") -> str:
    """Return llama.cpp's converter, in the folder that is named, on PATH, or in ~/llama.cpp; NotFound if missing."""
    if llama_cpp:
        named = expand_home(llama_cpp).absolute() / _CONVERTER_NAME
        if not named.is_file():
            raise NotFound(f"there is no {visible(str(named))}", f"Get llama.cpp: {_CLONE_LLAMA_CPP_COMMAND}")
        return str(named)
    at_home = Path.home() / "llama.cpp" / _CONVERTER_NAME
    found = shutil.which(_CONVERTER_NAME) or (str(at_home) if at_home.is_file() else "")
    if not found:
        raise NotFound(
            f"llama.cpp's {_CONVERTER_NAME} is not on PATH and not in ~/llama.cpp",
            f"Get it: {_CLONE_LLAMA_CPP_COMMAND}; or name its folder: --llama-cpp FOLDER",
        )
    return found


def _find_quantizer(options: ExportModelOptions) -> str:
    if not (found := _find_built_program(_QUANTIZER_NAME, options)):
        why = f"{options.weights_type} needs llama.cpp's {_QUANTIZER_NAME}, which is not built here"
        remedy = f"Build it: cmake -B build && cmake --build build -t {_QUANTIZER_NAME}, in llama.cpp; or --type q8_0"
        raise NotFound(why, remedy)
    return found


def _find_built_program(name: str, options: ExportModelOptions) -> str:
    """Return a built program of llama.cpp, in its folder or on PATH; empty where there is none."""
    root = expand_home(options.llama_cpp).absolute() if options.llama_cpp else Path.home() / "llama.cpp"
    built = (root / folder / name for folder in _BUILD_FOLDERS)
    return next((str(path) for path in built if os.access(path, os.X_OK)), "") or shutil.which(name) or ""
