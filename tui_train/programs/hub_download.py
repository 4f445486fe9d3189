"""Downloads a model into the cache of Hugging Face: hub_download.py MODEL DONE [REVISION].

What was downloaded is noted in the file DONE; as long as all of it is there, the Hub is not asked again.
Runs in the Python that trains, from the run folder; uses its huggingface_hub, 0.20 or later, which keeps whole files
of a download that was interrupted. `hf download MODEL` does the same, but reports files instead of bytes in a log,
fetches every format of the weights that there is, and names its options differently from version to version.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

# Other programs' formats of the same weights, and pictures.
UNWANTED_FILE_GLOBS = (
    "*.gguf", "*.ggml", "*.onnx", "*.onnx_data", "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.mlmodel", "*.pth",
    "onnx/*", "openvino/*", "coreml/*", "original/*", "consolidated*", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.mp4",
)  # fmt: skip
_PYTORCH_WEIGHTS_GLOBS = ("pytorch_model*.bin", "pytorch_model*.bin.index.json")
_MAX_DOWNLOAD_TRIES = 3
_RETRY_PAUSES_SECONDS = (1.0, 8.0)
_REPORT_INTERVAL_SECONDS = 2.0
# Another try would not help.
_FINAL_ERROR_NAMES = (
    "GatedRepoError", "RepositoryNotFoundError", "RevisionNotFoundError", "HFValidationError", "OfflineModeIsEnabled",
)  # fmt: skip
_DISK_ERRNOS = (28, 122, 27, 13, 30)  # ENOSPC, EDQUOT, EFBIG, EACCES, EROFS
_FAULT_EXIT_CODE = 1


def unwanted_globs(names: list[str]) -> list[str]:
    """Return the patterns of what is not downloaded of a model with these files."""
    safe = any(fnmatch.fnmatch(name, "*.safetensors") and "/" not in name for name in names)
    return [*UNWANTED_FILE_GLOBS, *(_PYTORCH_WEIGHTS_GLOBS if safe else ())]


def wanted_file_sizes(sizes: dict[str, int]) -> dict[str, int]:
    """Return the files that are downloaded, of all files with their sizes in bytes."""
    patterns = unwanted_globs(list(sizes))
    return {name: size for name, size in sizes.items() if not any(fnmatch.fnmatch(name, each) for each in patterns)}


def bytes_text(count: float) -> str:
    """Return bytes as text: 512 MiB, 3.4 GiB."""
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def download_progress_text(done_bytes: int, total_bytes: int, bytes_per_second: float) -> str:
    """Return how far a download is as text: bytes, share, bytes a second, and the time that is left."""
    text = f"{bytes_text(done_bytes)} of {bytes_text(total_bytes)} ({done_bytes / max(total_bytes, 1):.0%})"
    if bytes_per_second <= 0:
        return text
    left = (total_bytes - done_bytes) / bytes_per_second
    time_left = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
    return f"{text}, {bytes_text(bytes_per_second)}/s, {time_left} left"


class DownloadReporter:
    """Reports every two seconds how many bytes of a model the cache has, where these have become more."""

    def __init__(self, blobs: Path, whole: int, before: int) -> None:
        """Expect `whole` bytes to be downloaded; `before` is how many bytes are there already."""
        self.blobs, self.whole, self.before = blobs, whole, before
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self) -> None:
        """Begin."""
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        """End."""
        self.ended.set()
        self.thread.join()

    def run(self) -> None:
        """Print a line at a time until it is over."""
        began, last = time.monotonic(), 0
        while not self.ended.wait(_REPORT_INTERVAL_SECONDS):
            there = min(max(0, stored_bytes(self.blobs) - self.before), self.whole)
            if there > last:
                print_download_line(download_progress_text(there, self.whole, there / (time.monotonic() - began)))
                last = there


def stored_bytes(blobs: Path) -> int:
    """Return the bytes of the files in a model's folder of the cache, unfinished ones included."""
    total = 0
    try:
        for file in blobs.iterdir():
            try:
                # A file may be made as large as it will be before it is filled.
                total += min(file.stat().st_size, file.stat().st_blocks * 512)
            except OSError:
                continue
    except OSError:
        pass
    return total


def print_download_line(text: str) -> None:
    """Print a line at once."""
    print(f"download: {text}", flush=True)


def sizes_of_files_missing_in_cache(hub: Any, model: str, revision: str, files: dict[str, int]) -> dict[str, int]:
    """Return those of a revision's files that the cache has not."""
    cached = hub.try_to_load_from_cache
    return {name: size for name, size in files.items() if not isinstance(cached(model, name, revision=revision), str)}


def free_bytes(folder: Path) -> int:
    """Return the bytes that are free where a folder is or will be."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free


def are_noted_files_there(done_file: Path) -> bool:
    """Return whether all files that were noted as downloaded are there."""
    try:
        files = json.loads(done_file.read_text(encoding="utf-8"))
        return bool(files) and all(Path(file).is_file() for file in files)
    except (OSError, ValueError, TypeError):
        return False


def was_complete_before_run(model: str, revision: str, begun_file: Path) -> bool:
    """Return whether the cache had the whole model at a revision before this run began to download it."""
    # Of a download that was interrupted, only the Hub knows which of the small files are missing.
    if begun_file.exists():
        return False
    # It lies beside this program, which is also imported as a part of the package.
    hub_cache: Any = importlib.import_module("hub_cache")
    folder = hub_cache.hub_cache_folder(dict(os.environ))
    try:
        found = hub_cache.describe_cached_model(folder, "models--{}".format(model.replace("/", "--")))
    except (OSError, ValueError, RecursionError):
        return False
    if found and revision:
        found = next((each for each in (found, *found["revisions"]) if revision in each.get("names", ())), None)
    return bool(found and not found["missing"])


def download_missing_files(model: str, revision: str, done_file: Path) -> None:
    """Download what the cache has not of a model at a revision (empty: main); whatever the library raises."""
    import huggingface_hub as hub
    from huggingface_hub import constants

    info = hub.HfApi().model_info(model, revision=revision or None, files_metadata=True, timeout=30)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    rest = sizes_of_files_missing_in_cache(hub, model, info.sha or revision or "main", wanted_file_sizes(sizes))
    need, cache = sum(rest.values()), Path(constants.HF_HUB_CACHE)
    if need > free_bytes(cache):
        free = bytes_text(free_bytes(cache))
        raise OSError(28, f"No space left on device: {model} needs {bytes_text(need)}, and {free} are free", str(cache))
    named = f"{model}@{revision}" if revision else model
    print_download_line(f"{named}, {len(rest)} of {len(sizes)} files, {bytes_text(need)}, to {cache}")
    blobs = cache / "models--{}".format(model.replace("/", "--")) / "blobs"
    with DownloadReporter(blobs, need, stored_bytes(blobs)):
        folder = hub.snapshot_download(model, revision=revision or None, ignore_patterns=unwanted_globs(list(sizes)))
        if revision:
            # TRL reads the configuration of main as well.
            hub.hf_hub_download(model, "config.json")
    files = [str(Path(folder, name)) for name in wanted_file_sizes(sizes)]
    done_file.write_text(json.dumps(files), encoding="utf-8")
    print_download_line(f"complete: {folder}")


def is_final_error(error: BaseException) -> bool:
    """Return whether another try would end the same way."""
    if isinstance(error, OSError) and error.errno in _DISK_ERRNOS:
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names.intersection(_FINAL_ERROR_NAMES)) or isinstance(error, (ImportError, TypeError, AttributeError))


def python_error_text(error: Exception, model: str) -> str:
    """Return an error as Python shows it; of a model that is not there the library speaks of a user's password."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    if type(error).__name__ == "RepositoryNotFoundError":
        return f"{kind}: there is no model {model}, or it is private and no token has access to it"
    return f"{kind}: {error}".strip()


def main(model: str, done_file: Path, revision: str = "") -> int:
    """Download a model, in several tries; return the exit code."""
    begun = done_file.with_suffix(".begun")
    if are_noted_files_there(done_file) or was_complete_before_run(model, revision, begun):
        return 0
    begun.touch()
    # Its bars would hide the lines of this program in the log.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for attempt in range(1, _MAX_DOWNLOAD_TRIES + 1):
        try:
            download_missing_files(model, revision, done_file)
        except Exception as error:  # noqa: BLE001  # whatever it is, the last line of the log is to say it
            reason = python_error_text(error, model)
            if is_final_error(error) or attempt == _MAX_DOWNLOAD_TRIES:
                print(reason, file=sys.stderr, flush=True)
                if not is_final_error(error):
                    print_download_line(
                        f"{os.environ.get('HF_ENDPOINT') or 'https://huggingface.co'} cannot be reached"
                    )
                print_download_line(f"{model} is not complete; finished files are kept for the next try")
                return _FAULT_EXIT_CODE
            print_download_line(
                f"interrupted, try {attempt + 1} of {_MAX_DOWNLOAD_TRIES} in "
                f"{_RETRY_PAUSES_SECONDS[attempt - 1]:.0f} s: {reason.splitlines()[0]}"
            )
            time.sleep(_RETRY_PAUSES_SECONDS[attempt - 1])
        else:
            return 0
    return _FAULT_EXIT_CODE


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: hub_download.py MODEL DONE [REVISION]")
    code = main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread of the library that still waits for an answer must not hold up the training.
    os._exit(code)
