"""The files of a run folder that say from which code it starts."""

import re
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tui_train.base.errors import TuiTrainError, Unavailable
from tui_train.base.parse import type_prepared_for_msgspec
from tui_train.base.secrets import has_surely_secret_format
from tui_train.base.text import quantity, visible
from tui_train.base.time_limit import TimeLimitError, call_within
from tui_train.channel.session import ask_host
from tui_train.facts.scripts.project_files import project_file_set
from tui_train.places.sent_files import HostToSendTo, find_files_to_send
from tui_train.plan.run_files import RenderedFile
from tui_train.profile.hosts import host_address
from tui_train.profile.types import Profile
from tui_train.runner.questions.project_code import read_project_code_and_patch
from tui_train.runs.run_code import CODE_FILE_NAME, PATCH_FILE_NAME, ChangedFile, LeftOutFile, RunCode
from tui_train.trainers import trainer_has_own_field

_MAX_SECONDS = 5.0  # for all of it, also where a disk or a host hangs: a start waits no longer
# No line of a patch begins so but the first one of a file: others begin with a sign, or are base85.
_FILE_IN_PATCH_PATTERN = re.compile(rb"^(?=diff --git )", re.MULTILINE)


class _CodeOfHost(Struct, frozen=True):
    """The answer of a host, its patch in base64."""

    code: RunCode
    patch: bytes = b""


def code_record_files(host: str, profile: Profile) -> tuple[RenderedFile, ...]:
    """Return what a run folder keeps of the user's project, on a host (empty: this machine).

    Nothing where the profile names no script of the user's. What cannot be read within some seconds is said in it:
    never an error.
    """
    script = profile.trainer.script
    if not script.startswith("/") or not trainer_has_own_field(profile, "trainer.script"):
        return ()
    code, patch = _without_secrets(*_read_code_in_time(host, script))
    text = msgspec.json.format(msgspec.json.encode(code), indent=2).decode() + "\n"
    files = [RenderedFile(CODE_FILE_NAME, text)]
    if patch:
        files.append(RenderedFile(PATCH_FILE_NAME, patch.decode(errors="replace"), patch))
    return tuple(files)


def _read_code_in_time(host: str, script: str) -> tuple[RunCode, bytes]:
    """Return the code, or that reading it took too long."""

    def read() -> tuple[RunCode, bytes]:
        return _read_code_on_host(host, script) if host else _read_code_here(script)

    try:
        return call_within(_MAX_SECONDS, read)
    except TimeLimitError:
        return RunCode(script=script, problem=f"reading it took more than {_MAX_SECONDS:g} s", is_late=True), b""


def _read_code_here(script: str) -> tuple[RunCode, bytes]:
    code, patch = read_project_code_and_patch(script)
    return msgspec.convert(code, type_prepared_for_msgspec(RunCode)), patch


def _read_code_on_host(host: str, script: str) -> tuple[RunCode, bytes]:
    try:
        # Whoever waits for all of it gives up first, and calls it late.
        answer = ask_host(host_address(host), {"do": "code", "script": script}, _CodeOfHost, 2 * _MAX_SECONDS)
    except Unavailable as error:
        return RunCode(script=script, problem=error.message), b""
    if not answer.code.commit and (sent := _read_sent_code(host, script)):
        return sent
    return replace(answer.code, host=host), answer.patch


def _read_sent_code(host: str, script: str) -> tuple[RunCode, bytes] | None:
    """Return the code of this machine's project at that path where a host has its very files; None without a commit."""
    if not Path(script).is_file():
        return None
    code, patch = _read_code_here(script)
    if not code.commit:
        return None
    try:
        file_set = project_file_set(script, "", (), _MAX_SECONDS)
        missing = find_files_to_send(HostToSendTo(host, host_address(host)), file_set, _MAX_SECONDS).files
    except TuiTrainError as error:
        return RunCode(script=script, problem=error.message), b""
    if missing:
        others = f"{quantity(len(missing), 'file')} of it, such as {visible(missing[0][0].name)}"
        why = f"{host} has {others}, not as here: tui-train send"
        return RunCode(script=script, folder=code.folder, problem=why), b""
    return replace(code, sent_to=host), patch


def _without_secrets(code: RunCode, patch: bytes) -> tuple[RunCode, bytes]:
    """Leave out of a patch the files that have what only secrets look like."""
    # A file that became a link has two pieces: it is deleted, and made.
    split = groupby(_FILE_IN_PATCH_PATTERN.split(patch)[1:], lambda piece: piece.partition(b"\n")[0])
    pieces = [b"".join(same_file) for _, same_file in split]
    if len(pieces) != len(code.changed):
        why = "its patch and its changed files differ"
        return (replace(code, changed=(), problem=why), b"") if pieces else (code, b"")
    kept: list[bytes] = []
    changed: list[ChangedFile] = []
    secret: list[LeftOutFile] = []
    for piece, file in zip(pieces, code.changed, strict=True):
        if has_surely_secret_format(piece.decode(errors="replace")):
            secret.append(LeftOutFile(file.name, "it has what looks like a secret"))
        else:
            kept.append(piece)
            changed.append(file)
    return replace(code, changed=tuple(changed), left_out=(*code.left_out, *secret)), b"".join(kept)
