"""The modules of runner.pyz, compiled: a zip keeps none, and to compile them takes longer than all else at a start.

They lie in one file of the user's cache for each version of this program and of Python, and are read as a whole: what
happens to the file later, or to the zip, does not concern a process that has begun. Without a file, or with one that is
torn or another's, they come from the zip. On a machine that is asked over ssh this text comes first: where the file is
there already, no zip is sent.
"""

from __future__ import annotations

import contextlib
import io
import marshal
import os
import stat
import sys
import time
import zlib
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
from typing import Any, BinaryIO, Mapping, Sequence

_MAX_CACHE_FILE_BYTES = 8 << 20
_CHECKSUM_LENGTH = 4
# What a machine that is asked says before it answers; whatever comes earlier is a login script's.
RUNNER_MISSING_LINE, RUNNER_READY_LINE = b'{"runner": "missing"}\n', b'{"runner": "ready"}\n'
# Where a file is written, those of other versions go that are older than that.
_MAX_CACHE_FILE_AGE_SECONDS = 60 * 86400.0


class _CompiledModuleFinder:
    """Finds the modules of this package in memory."""

    def __init__(self, code_by_name: Mapping[str, bytes], path: str) -> None:
        self._code_by_name, self._path = code_by_name, path
        self._packages = {name.rpartition(".")[0] for name in code_by_name}

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        """Return where a module comes from, None for others than this package's."""
        if name not in self._code_by_name:
            return None
        origin = os.path.join(self._path, *name.split("."))
        spec = ModuleSpec(name, self, origin=f"{origin}.py", is_package=name in self._packages)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """Leave the module to Python."""

    def exec_module(self, module: Any) -> None:
        """Run a module's code."""
        exec(marshal.loads(self._code_by_name[module.__name__]), module.__dict__)  # noqa: S102, S302 - the user's own


def import_from_compiled_cache(zip_path: str, *, may_write: bool) -> None:
    """Import the modules of a zip from the cache from now on, which is written where there is none and it may be."""
    folder = _cache_folder()
    with contextlib.suppress(OSError), open(zip_path, "rb") as file:
        content = file.read()
        path = folder and os.path.join(folder, _cache_file_name(f"{zlib.crc32(content):08x}"))
        modules = _read_cache_file(path) if path else {}
        if path and not modules and may_write:
            modules = _compile_modules(content, zip_path)
            _write_cache_file(path, modules)
        if modules:
            sys.meta_path.insert(0, _CompiledModuleFinder(modules, zip_path))


def answer_question(question_stream: BinaryIO, answer_stream: BinaryIO) -> int:
    """Answer the question of another machine, and return the exit code.

    Its first line has the checksum and the size of the zip, which is asked for where the cache has no file of it, and
    the question.
    """
    import json

    first = json.loads(question_stream.readline())
    folder = _cache_folder()
    path = folder and os.path.join(folder, _cache_file_name(first["checksum"]))
    modules = _read_cache_file(path) if path else {}
    if not modules:
        answer_stream.write(RUNNER_MISSING_LINE)
        answer_stream.flush()
        modules = _compile_modules(question_stream.read(first["size"]), "runner.pyz")
        if path:
            _write_cache_file(path, modules)
    answer_stream.write(RUNNER_READY_LINE)
    answer_stream.flush()
    sys.meta_path.insert(0, _CompiledModuleFinder(modules, "runner.pyz"))
    from runner.questions.answer import answer  # type: ignore[import-not-found,unused-ignore]

    code: int = answer(first["question"])
    return code


def _cache_folder() -> str:
    """Return the folder of these files, empty where the user has no folder for caches."""
    home = os.environ.get("HOME", "")
    cache = os.environ.get("XDG_CACHE_HOME") or (home and os.path.join(home, ".cache"))
    return os.path.join(cache, "tui-train", "runner") if os.path.isabs(cache) else ""


def _cache_file_name(checksum: str) -> str:
    return f"{checksum}-{MAGIC_NUMBER.hex()}"


def _read_cache_file(path: str) -> Mapping[str, bytes]:
    """Return the compiled modules of a file, none where it is torn, or others could have written it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return {}
    with open(file, "rb") as opened:
        status = os.fstat(file)
        own = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        if not own or not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_CACHE_FILE_BYTES:
            return {}
        content = opened.read()
    checksum, packed = content[:_CHECKSUM_LENGTH], content[_CHECKSUM_LENGTH:]
    if checksum != _modules_checksum(packed):
        return {}
    modules: Mapping[str, bytes] = marshal.loads(packed)  # noqa: S302 - the user's own file
    return modules


def _modules_checksum(packed: bytes) -> bytes:
    return zlib.crc32(packed).to_bytes(_CHECKSUM_LENGTH, "big")


def _compile_modules(zip_content: bytes, zip_path: str) -> Mapping[str, bytes]:
    import zipfile

    modules = {}
    with zipfile.ZipFile(io.BytesIO(zip_content)) as packed:
        for file_name in packed.namelist():
            if file_name.startswith("runner/"):
                code = compile(packed.read(file_name), os.path.join(zip_path, file_name), "exec", dont_inherit=True)
                name = file_name[: -len(".py")].replace("/", ".")
                modules[name[: -len(".__init__")] if name.endswith(".__init__") else name] = marshal.dumps(code)
    return modules


def _write_cache_file(path: str, modules: Mapping[str, bytes]) -> None:
    """Write compiled modules beside and rename them; nothing is kept on a disk that is full or cannot be written."""
    folder, packed = os.path.dirname(path), marshal.dumps(dict(modules))
    beside = f"{path}.{os.getpid()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(_modules_checksum(packed) + packed)
        os.rename(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        return
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            other = os.path.join(folder, name)
            if time.time() - os.stat(other).st_mtime > _MAX_CACHE_FILE_AGE_SECONDS:
                os.unlink(other)
