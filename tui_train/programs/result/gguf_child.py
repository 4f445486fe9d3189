"""Converts a model folder with llama.cpp's own converter, and reads the file back: `python gguf_child.py REQUEST`.

The request, in JSON: `folder` (a model with its tokenizer), `converter` (convert_hf_to_gguf.py), `type` (of the
weights that it writes), `file` (the GGUF file to write), `quantizer` (llama-quantize, empty for none),
`quantized_type`, `server` (llama-server, empty for none), `trusted`, and `ollama` (whether a Modelfile is wanted). It
sends `step` for what it does, then `done` with `tensors`, the `stops`, Ollama's `template` and how an answer
`compared`, or `error`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import result_load as load
from gguf_answer import compare_answer
from ollama_template import turn_frames
from result_load import MessagePipe, RefusedError

_MAX_LINES_KEPT = 40


def export(request: dict[str, Any], messages: MessagePipe) -> None:
    """Write the file and send what is in it."""
    if load.sees_images(request["folder"]):
        raise RefusedError("sees", "the file would lack the part that reads them")
    tokenizer = load.load_tokenizer(request["folder"], trusted=request["trusted"])
    if not tokenizer.chat_template and request["ollama"]:
        raise RefusedError("frames", "the model has none")
    template = turn_frames(tokenizer).go_template() if request["ollama"] else ""
    messages.send("step", what="converting", of=request["folder"])
    unquantized = request["file"] + ".unquantized" if request["quantizer"] else request["file"]
    _convert(request, unquantized)
    _set_adds_begin_token(request, unquantized, adds=load.puts_bos_before_texts(tokenizer))
    if request["quantizer"]:
        messages.send("step", what="quantizing", of=request["file"])
        _quantize(request, unquantized)
    messages.send("step", what="checking", of=request["file"])
    written, tensor_count = _read_template_and_tensor_count(request)
    own = tokenizer.chat_template or ""
    # Of several, which are there by their names, the default one is what is learned.
    if written != (own.get("default", "") if isinstance(own, dict) else own):
        raise RefusedError("failed", "the chat template in the file is not that of the tokenizer")
    compared = ""
    if request["server"]:
        messages.send("step", what="comparing an answer of", of=request["file"])
        compared = compare_answer(
            request["server"], request["file"], request["folder"], tokenizer, trusted=request["trusted"]
        )
    ends = dict.fromkeys(filter(None, (tokenizer.eos_token, load.turn_end_token(tokenizer))))
    messages.send("done", tensors=tensor_count, stops=[*ends], template=template, compared=compared)


def _quantize(request: dict[str, Any], source: str) -> None:
    words = [request["quantizer"], source, request["file"], request["quantized_type"].upper()]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise RefusedError(
            "quantizer", (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        )
    Path(source).unlink()


def _convert(request: dict[str, Any], file: str) -> None:
    words = [sys.executable, request["converter"], request["folder"], "--outfile", file]
    words += ["--outtype", request["type"]]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise _converter_error([line for line in done.stderr.splitlines() if line.strip()][-_MAX_LINES_KEPT:])


def _converter_error(lines: list[str]) -> RefusedError:
    last = lines[-1] if lines else "it said nothing"
    if "ModuleNotFoundError" in last:
        return RefusedError("lacks", last.rpartition(": ")[2])
    if any("BPE pre-tokenizer was not recognized" in line for line in lines):
        return RefusedError("converter", "it does not know this model's tokenizer")
    if any("is not supported" in line for line in lines):
        return RefusedError("converter", next(line for line in lines if "is not supported" in line))
    return RefusedError("converter", last)


def _set_adds_begin_token(request: dict[str, Any], file: str, *, adds: bool) -> None:
    """Have a file say whether a text gets the token that begins one: as it did in the training, once or never.

    A template that writes it itself is no second one: llama.cpp takes it away where the file adds it. A file that does
    not say is written again, for llama.cpp's own choice depends on the tokenizer.
    """
    gguf = _import_gguf(request)
    key = gguf.Keys.Tokenizer.ADD_BOS
    field = (reader := gguf.GGUFReader(file, "r+")).get_field(key)
    if field is not None:
        field.parts[field.data[0]][0] = adds
        return
    from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

    architecture = reader.get_field(gguf.Keys.General.ARCHITECTURE).contents()
    writer = gguf.GGUFWriter(file + ".new", arch=architecture, endianess=reader.endianess)
    copy_with_new_metadata(reader, writer, {key: MetadataDetails(gguf.GGUFValueType.BOOL, adds)}, [])
    Path(file + ".new").replace(file)


def _import_gguf(request: dict[str, Any]) -> Any:
    """Return llama.cpp's own library, which lies beside its converter."""
    beside = str(Path(request["converter"]).parent / "gguf-py")
    if beside not in sys.path and Path(beside).is_dir():
        sys.path.insert(0, beside)
    import gguf

    return gguf


def _read_template_and_tensor_count(request: dict[str, Any]) -> tuple[str, int]:
    """Return the chat template of the written file, empty for none, and how many tensors it holds."""
    reader = _import_gguf(request).GGUFReader(request["file"])
    field = reader.get_field("tokenizer.chat_template")
    return "" if field is None else str(field.contents()), len(reader.tensors)


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    load.answer_request(export)
