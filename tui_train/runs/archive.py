"""A run as one archive for a colleague or a bug report, without secrets."""

import fnmatch
import io
import json
import os
import platform
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train import __version__
from tui_train.base import secrets
from tui_train.base.errors import AlreadyExists
from tui_train.base.files import PRIVATE_FILE_MODE, write_atomically, write_if_absent
from tui_train.base.parse import type_prepared_for_msgspec
from tui_train.base.text import visible
from tui_train.facts.machine.communication_tests import load_communication_examinations
from tui_train.facts.other_machines.machine_files import make_name_masker
from tui_train.runner.detached_start import LAUNCH_LOG_NAME
from tui_train.runner.queue.reasons import HAS_CARD_TEXT, runs_and_users_in_reason, users_in_reason
from tui_train.runner.run_folder.fill_config import filled_config_path
from tui_train.runner.system.safe_open import open_folder, open_regular_file
from tui_train.runs.run_code import CODE_FILE_NAME, PATCH_FILE_NAME
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

# Bytes of the start and the end of a log; the middle is left out.
KEPT_HEAD_BYTES = 1 << 16
KEPT_TAIL_BYTES = 1 << 20
# Bytes dropped at a cut without a line end, so that no part of a secret is left.
_BYTES_DROPPED_AT_CUT = 1 << 12
_LINE_END_PATTERN = re.compile(rb"[\r\n]")


class ArchiveEntry(Struct, frozen=True):
    """A file of the archive: its name, its text, and the number of masked secrets by kind."""

    name: str
    text: str
    masked: dict[str, int] = {}


class _PlannedFile(Struct, frozen=True):
    path: str


class _PlannedFiles(Struct, frozen=True):
    """The files named in a plan."""

    configs: tuple[_PlannedFile, ...] = ()
    programs: tuple[_PlannedFile, ...] = ()
    nemo: _PlannedFile | None = None


def masked_archive_entries(run: RunFolder, machine_text: str) -> tuple[ArchiveEntry, ...]:
    """Return the files of a run's archive, without secrets and names of users and hosts.

    `machine_text` is the text of a machine file, empty for none.
    """
    texts = (("about.json", _about_json_text(run)), *_communication_test_results(), *_run_file_texts(run))
    reasons = _lines_that_name_others(run, texts)
    others = dict.fromkeys(user for reason in reasons for user in users_in_reason(reason))
    known_secrets, without_names = _known_secrets(run), make_name_masker(platform.node(), others)
    without_runs = _other_runs_masker(reasons)
    entries = [ArchiveEntry("machine.json", machine_text)] if machine_text else []
    for name, text in texts:
        without_secrets, masked = secrets.mask_secrets(text, known_secrets)
        entries.append(ArchiveEntry(name, without_names(without_runs(without_secrets)), dict(masked)))
    return tuple(entries)


def _lines_that_name_others(run: RunFolder, texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines of a run in which its supervisor names runs and users of others."""
    logs = (text for name, text in texts if name.rpartition("/")[2] == LAUNCH_LOG_NAME)
    return [event.why for event in run.events()] + [
        line for text in logs for line in text.splitlines() if line.endswith(HAS_CARD_TEXT)
    ]


def _other_runs_masker(reasons: Iterable[str]) -> Callable[[str], str]:
    """Return a function that masks the names of others' runs where they stand beside their users."""
    named = dict.fromkeys(each for reason in reasons for each in runs_and_users_in_reason(reason))
    masks = {}
    for number, (run, user) in enumerate(named, 1):
        # A name such as `train` may mean anything elsewhere.
        for form in (f"{run} ({user})", json.dumps(f"{run} ({user})")[1:-1]):
            masks[form] = f"run{number} ({user})"
    if not masks:
        return lambda text: text
    pattern = re.compile("|".join(map(re.escape, sorted(masks, key=len, reverse=True))))
    return lambda text: pattern.sub(lambda match: masks[match.group()], text)


def write_archive(path: Path, folder_name: str, entries: tuple[ArchiveEntry, ...], *, replace: bool = False) -> None:
    """Write an archive (tar.gz) with its files in a folder, atomically."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for entry in entries:
            data = entry.text.encode("utf-8", "replace")
            # Not the owner of the file, whose name is private.
            info = tarfile.TarInfo(f"{folder_name}/{entry.name}")
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    if replace:
        write_atomically(path, packed.getvalue(), PRIVATE_FILE_MODE)
    elif not write_if_absent(path, packed.getvalue(), PRIVATE_FILE_MODE):
        raise already_exists_error(path)


def already_exists_error(path: Path) -> AlreadyExists:
    """Return the error that an archive would overwrite a file."""
    return AlreadyExists(f"{visible(str(path))} already exists", "Choose another name, or replace it (--force).")


def archive_stem(run: RunFolder) -> str:
    """Return the name of a run's archive, without its suffix."""
    return make_name_masker(platform.node())(f"tui-train-{run.name}")


def _about_json_text(run: RunFolder) -> str:
    status = read_status(run)
    about = {
        "tui-train": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "run": run.name,
        "status": status.as_plain_data(),
    }
    return msgspec.json.format(msgspec.json.encode(about), indent=2).decode() + "\n"


def _communication_test_results() -> Iterator[tuple[str, str]]:
    """Yield what came of tests of the communication since this machine was booted, where there are any."""
    if kept := load_communication_examinations():
        yield "communication.json", msgspec.json.format(msgspec.json.encode(kept), indent=2).decode() + "\n"


def _run_file_texts(run: RunFolder) -> Iterator[tuple[str, str]]:
    """Yield the files of the run folder, including those of other machines, by name.

    They are opened relative to the folder's descriptor without following links, so that none leads outside.
    """
    rendered = _rendered_file_names(run)
    with suppress(OSError), open_folder(run.path, readable=True) as folder:
        yield from _folder_file_texts(folder, "", rendered)
        for name in _matching_file_names(folder, "node-*"):
            with suppress(OSError), open_folder(name, folder, readable=True) as inner:
                yield from _folder_file_texts(inner, f"{name}/", rendered)


def _folder_file_texts(folder: int, name_prefix: str, rendered: set[str]) -> Iterator[tuple[str, str]]:
    logs = sorted(_matching_file_names(folder, "attempt-*.log"), key=lambda name: (len(name), name))
    plain = (
        "profile.toml", "plan.json", "launch.sh", "events.jsonl", "launch.log", CODE_FILE_NAME, PATCH_FILE_NAME,
    )  # fmt: skip
    for name in (*plain, *sorted({*_matching_file_names(folder, "*.yaml"), *rendered}), *logs):
        if (text := _head_and_tail_text(name, folder)) is not None:
            yield f"{name_prefix}{name}", text


def _matching_file_names(folder: int, pattern: str) -> list[str]:
    return sorted(fnmatch.filter(os.listdir(folder), pattern))


def _rendered_file_names(run: RunFolder) -> set[str]:
    """Return the names of the files beside launch.sh, without runner.pyz, which is the same for all runs."""
    try:
        files = msgspec.convert(run.plan(), type_prepared_for_msgspec(_PlannedFiles))
    except msgspec.ValidationError:
        return set()
    configs = [config.path for config in files.configs]
    programs = [program.path for program in files.programs]
    names = (*configs, *map(filled_config_path, configs), *programs, *([files.nemo.path] if files.nemo else ()))
    return {name for name in names if name and not {"", ".", ".."} & {*name.split("/")}}


def _head_and_tail_text(name: str, folder: int) -> str | None:
    """Return a file's text (head and tail if it is long, in full lines); None if it is not a regular file."""
    first, slash, rest = name.partition("/")
    if slash:
        with suppress(OSError), open_folder(first, folder) as inner:
            return _head_and_tail_text(rest, inner)
        return None
    try:
        with open_regular_file(name, folder) as file:
            length = os.fstat(file.fileno()).st_size
            if length <= KEPT_HEAD_BYTES + KEPT_TAIL_BYTES:
                return file.read(KEPT_HEAD_BYTES + KEPT_TAIL_BYTES).decode("utf-8", "replace")
            head = _without_truncated_line(file.read(KEPT_HEAD_BYTES), is_head=True)
            file.seek(length - KEPT_TAIL_BYTES)
            tail = _without_truncated_line(file.read(KEPT_TAIL_BYTES), is_head=False)
    except OSError:
        return None
    left_out = length - len(head) - len(tail)
    middle = f"\n[… {left_out} bytes left out …]\n".encode()
    return (head + middle + tail).decode("utf-8", "replace")


def _without_truncated_line(piece: bytes, *, is_head: bool) -> bytes:
    """Return a piece without its truncated line, at the end of the head or at the start of the tail."""
    ends = [match.end() for match in _LINE_END_PATTERN.finditer(piece)]
    if is_head:
        return piece[: ends[-1]] if ends else piece[:-_BYTES_DROPPED_AT_CUT]
    return piece[ends[0] if ends else _BYTES_DROPPED_AT_CUT :]


def _known_secrets(run: RunFolder) -> frozenset[str]:
    """Return known secret values: of variables with secret names, in the environment and profile, and of arguments."""
    values = {value for name, value in os.environ.items() if secrets.is_secret_name(name)}
    if (profile := run.read_profile()) is None:
        return frozenset(values)
    trainer = profile.trainer
    values |= {os.environ.get(name, "") for name in trainer.secrets}
    values |= {value for name, value in trainer.environment.items() if secrets.is_secret_name(name)}
    values |= {secret.value for secret in secrets.find_possible_secret_arguments(trainer.arguments)}
    return frozenset(values)


def count_masked_by_kind(entries: tuple[ArchiveEntry, ...]) -> Counter[str]:
    """Return the number of masked secrets in all files, by kind."""
    return sum((Counter(entry.masked) for entry in entries), Counter())
