"""Reads the models in the cache of Hugging Face, without opening more than their small files.

Runs here and, its text passed on the command line, on other machines: Python 3.8 or later, standard library only. The
cache is a folder that anybody may have written to: nothing in it is trusted, and what cannot be read is left out.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import time
from pathlib import Path
from typing import BinaryIO

# As huggingface_hub.utils.validate_repo_id: at most one slash, no "--", "..", no ".git" at the end.
MODEL_ID_PATTERN = re.compile(r"(?:\b[\w\-.]{1,96}\b/)?\b[\w\-.]{1,96}\b", re.ASCII)
COMMIT_PATTERN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
# Of a branch, a tag or a commit, as git names them; "refs/pr/1" is one too.
REVISION_PATTERN = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_./+-]{0,199}", re.ASCII)
SHARD_NAME_PATTERN = re.compile(r"[^/\0]{1,200}")
HEADER_DTYPE_PATTERN = re.compile(rb'"dtype"\s*:\s*"(\w{1,16})"')
SHORT_NAME_BY_DTYPE = {
    "float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64",
    "F32": "fp32", "BF16": "bf16", "F16": "fp16", "F64": "fp64", "F8_E4M3": "fp8", "F8_E5M2": "fp8", "I8": "int8",
}  # fmt: skip
TOKENIZER_FILE_NAMES = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model",
    "tekken.json",
)  # fmt: skip
# Each a file of all weights, and the index of several.
WEIGHTS_AND_INDEX_FILE_NAMES = (
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
CAUSAL_ARCHITECTURE_SUFFIXES = ("ForCausalLM", "LMHeadModel")
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TRUE_WORDS = ("1", "ON", "YES", "TRUE")
MAX_MODEL_FOLDERS = 20_000
MAX_FILES_IN_FOLDER = 5_000
MAX_REVISIONS = 20
MAX_CONFIG_BYTES = 1 << 20
MAX_INDEX_BYTES = 1 << 24
MAX_HEADER_BYTES = 1 << 16
MAX_READ_SECONDS = 5.0


def is_valid_model_id(text: str) -> bool:
    """Return whether a text can be the id of a model: NAME or ORG/NAME, by the rules of huggingface_hub."""
    odd = "--" in text or ".." in text or text.endswith(".git")
    return bool(MODEL_ID_PATTERN.fullmatch(text)) and not odd


def is_valid_revision(text: str) -> bool:
    """Return whether a text can name a revision: a branch, a tag or a commit."""
    odd = any(part in text for part in ("..", "//", "/."))
    return bool(REVISION_PATTERN.fullmatch(text)) and not odd and not text.endswith(("/", ".", ".lock"))


def expanded_path(path: str) -> Path:
    """Return a path without variables and ~."""
    named = Path(os.path.expandvars(path))
    try:
        return named.expanduser().absolute()
    except RuntimeError:
        return named.absolute()


def hugging_face_home(environment: dict[str, str]) -> Path:
    """Return the folder of Hugging Face for these environment variables."""
    return expanded_path(
        environment.get("HF_HOME") or "{}/huggingface".format(environment.get("XDG_CACHE_HOME") or "~/.cache")
    )


def hub_cache_folder(environment: dict[str, str]) -> Path:
    """Return the folder of the cache for these environment variables, as huggingface_hub finds it."""
    named = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    return expanded_path(named) if named else hugging_face_home(environment) / "hub"


def accelerate_config_path(environment: dict[str, str]) -> str:
    """Return the file that `accelerate launch` reads by itself for these environment variables, empty for none."""
    path = hugging_face_home(environment) / "accelerate" / "default_config.yaml"
    return str(path) if path.is_file() else ""


def open_without_waiting(path: Path) -> BinaryIO:
    """Open a file for reading; a pipe in its place is not waited for."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def has_token(environment: dict[str, str]) -> bool:
    """Return whether huggingface_hub would find a token, which is not read."""
    if environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN"):
        return True
    kept = environment.get("HF_TOKEN_PATH") or str(hugging_face_home(environment) / "token")
    try:
        return Path(kept).expanduser().stat().st_size > 0
    except (OSError, ValueError, RuntimeError):
        return False


def read_small_file(path: Path, max_bytes: int) -> bytes:
    """Return what a regular file holds, at most so many bytes; OSError for pipes, devices and what is larger."""
    with open_without_waiting(path) as file:
        told = os.fstat(file.fileno())
        if not stat.S_ISREG(told.st_mode) or told.st_size > max_bytes:
            raise OSError("not a small file")
        return file.read(max_bytes)


def read_json_object(path: Path, max_bytes: int) -> dict[str, object]:
    """Return the JSON object in a file, an empty one where there is none."""
    try:
        found = json.loads(read_small_file(path, max_bytes).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def names_in_folder(folder: Path, max_names: int) -> list[str]:
    """Return the names in a folder, not more than so many."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, max_names)]


def file_sizes_in_folder(folder: Path) -> dict[str, int]:
    """Return the files of a folder with their sizes; links that lead nowhere or to no file are left out."""
    found: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) >= MAX_FILES_IN_FOLDER:
                break
            try:
                told = entry.stat()
            except (OSError, ValueError):
                continue
            if stat.S_ISREG(told.st_mode):
                found[entry.name] = told.st_size
    return found


def snapshot_folder(model: Path, revision: str = "") -> Path | None:
    """Return the folder of a model's files at a revision, None where there is none.

    Without a revision it is that of "main", and where that names none the newest folder.
    """
    folder = model / "snapshots"
    commit = cached_commit_of_revision(model, revision or "main")
    if commit and (folder / commit).is_dir():
        return folder / commit
    if revision:
        return None
    newest = next(iter(cached_commits_newest_first(folder)), "")
    return folder / newest if newest else None


def cached_commits_newest_first(snapshots: Path) -> list[str]:
    """Return the commits of which a model's folder of snapshots has files, none where it cannot be read."""
    try:
        names = [name for name in names_in_folder(snapshots, MAX_FILES_IN_FOLDER) if COMMIT_PATTERN.fullmatch(name)]
        return sorted(names, key=lambda name: ((snapshots / name).stat().st_mtime, name), reverse=True)
    except (OSError, ValueError):
        return []


def cached_commit_of_revision(model: Path, revision: str) -> str:
    """Return the commit that a revision of a cached model is, by the cache alone; empty where it is not known."""
    if not is_valid_revision(revision):
        return ""
    try:
        commit = read_small_file(model / "refs" / revision, 200).decode("ascii", "replace").strip()
    except OSError:
        commit = revision
    return commit if COMMIT_PATTERN.fullmatch(commit) else ""


def revision_names_by_commit(model: Path) -> dict[str, list[str]]:
    """Return the newest commits in the cache, each with the branches and tags that name it; not main."""
    commits = cached_commits_newest_first(model / "snapshots")[:MAX_REVISIONS]
    named: dict[str, list[str]] = {commit: [] for commit in commits}
    refs = (Path(place, file) for place, _, files in os.walk(model / "refs") for file in sorted(files))
    for path in itertools.islice(refs, MAX_FILES_IN_FOLDER):
        name = str(path.relative_to(model / "refs"))
        commit = cached_commit_of_revision(model, name)
        if name != "main" and commit in named:
            named[commit].append(name)
    return named


def missing_weight_files(folder: Path, files: dict[str, int]) -> list[str]:
    """Return what of a model's weights is not there: nothing, some files, or the word "weights"."""
    fewest = ["weights"]
    for whole, index in WEIGHTS_AND_INDEX_FILE_NAMES:
        if files.get(whole):
            return []
        placed = read_json_object(folder / index, MAX_INDEX_BYTES).get("weight_map") if index in files else None
        if isinstance(placed, dict) and placed:
            named = sorted({str(name) for name in placed.values()})
            missing = [name for name in named if not files.get(name)]
            if not missing:
                return []
            if all(SHARD_NAME_PATTERN.fullmatch(name) for name in missing) and fewest == ["weights"]:
                fewest = missing
    return fewest


def weights_dtype(config: dict[str, object], folder: Path, files: dict[str, int]) -> str:
    """Return the type of a model's weights as a short name, empty where nothing tells."""
    quantized = config.get("quantization_config")
    if isinstance(quantized, dict):
        return str(quantized.get("quant_method") or "quantized")[:20]
    inner = config.get("text_config")
    for told in (config, inner if isinstance(inner, dict) else {}):
        named = told.get("dtype") or told.get("torch_dtype")
        if isinstance(named, str):
            return SHORT_NAME_BY_DTYPE.get(named.replace("torch.", ""), named[:20])
    first = min((name for name in files if name.endswith(".safetensors")), default="")
    if not first:
        return ""
    try:
        with open_without_waiting(folder / first) as file:
            # The header says the type of each tensor; its beginning has enough of them.
            types = HEADER_DTYPE_PATTERN.findall(file.read(MAX_HEADER_BYTES))
    except OSError:
        return ""
    most = max(sorted(set(types)), key=types.count, default=b"").decode("ascii")
    return SHORT_NAME_BY_DTYPE.get(most, most.lower())


def describe_cached_model(folder: Path, name: str) -> dict[str, object] | None:
    """Return what the cache has of a model, None where it has no model of a valid name."""
    path = folder / name
    identity = name[len("models--") :].replace("--", "/")
    if not is_valid_model_id(identity):
        return None
    files_at = snapshot_folder(path)
    named = files_at is not None and files_at.name == cached_commit_of_revision(path, "main")
    found = describe_model_folder(path, identity, files_at, [] if named or not files_at else ["refs/main"])
    revisions: list[dict[str, object]] = []
    if files_at:
        # TRL reads the configuration of main as well, whatever the revision.
        lacks = [] if named and (files_at / "config.json").is_file() else ["config.json of main"]
        for commit, others in revision_names_by_commit(path).items():
            if commit == files_at.name:
                found["names"] = [commit, *others]
            else:
                revisions.append(
                    {
                        **describe_model_folder(path, identity, files_at.parent / commit, lacks),
                        "names": [commit, *others],
                    }
                )
    return {**found, "revisions": revisions}


def describe_model_folder(
    path: Path, identity: str, files_folder: Path | None, already_missing: list[str]
) -> dict[str, object]:
    """Return what a folder of a model's files holds; `already_missing` is missing besides what is found to be."""
    files = file_sizes_in_folder(files_folder) if files_folder else {}
    config = (
        read_json_object(files_folder / "config.json", MAX_CONFIG_BYTES)
        if files_folder and "config.json" in files
        else {}
    )
    missing = [] if config else ["config.json"]
    missing += missing_weight_files(files_folder, files) if files_folder else ["weights"]
    missing += [] if any(files.get(other) for other in TOKENIZER_FILE_NAMES) else ["tokenizer"]
    missing += already_missing
    partial = 0
    if missing:
        try:
            blobs = file_sizes_in_folder(path / "blobs")
        except OSError:
            blobs = {}
        partial = sum(size for other, size in blobs.items() if other.endswith(".incomplete"))
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    return {
        "id": identity,
        "folder": str(files_folder or ""),
        "size": sum(files.values()),
        "dtype": weights_dtype(config, files_folder, files) if files_folder else "",
        "kind": str(config.get("model_type") or "")[:60],
        "architecture": str(first)[:100],
        "causal": str(first).endswith(CAUSAL_ARCHITECTURE_SUFFIXES),
        "missing": [str(part)[:200] for part in missing],
        "partial": partial,
    }


def describe_hub_cache(environment: dict[str, str], seconds: float = MAX_READ_SECONDS) -> dict[str, object]:
    """Return the cache that these environment variables name, and the models in it within some seconds."""
    folder = hub_cache_folder(environment)
    offline = next((environment[name] for name in OFFLINE_VARIABLES if environment.get(name)), "")
    models: list[dict[str, object]] = []
    found: dict[str, object] = {
        "folder": str(folder),
        "offline": offline.upper() in TRUE_WORDS,
        "token": has_token(environment),
        "endpoint": environment.get("HF_ENDPOINT", "").rstrip("/"),
        "models": models,
        "problem": "",
    }
    ends = time.monotonic() + seconds
    try:
        found_names = sorted(name for name in names_in_folder(folder, MAX_MODEL_FOLDERS) if name.startswith("models--"))
    except FileNotFoundError:
        return found
    except (OSError, ValueError) as error:
        found["problem"] = getattr(error, "strerror", None) or str(error)
        return found
    for name in found_names:
        if time.monotonic() > ends:
            found["problem"] = f"only {len(models)} of {len(found_names)} models were read in {seconds:.0f} s"
            break
        try:
            one = describe_cached_model(folder, name)
        except (OSError, ValueError, RecursionError):
            continue
        if one is not None:
            models.append(one)
    return found
