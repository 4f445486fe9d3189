"""The files that a training needs on another machine: those of the script's project, and what a profile names."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tui_train.base.errors import BadInput
from tui_train.base.text import size_text, visible
from tui_train.runner.questions.project_code import may_hold_secrets
from tui_train.runner.system.git import Git, GitError

MAX_FILES = 200_000
_MAX_GIT_SECONDS = 30.0
_TEMPORARY_FOLDER = "/tmp"  # noqa: S108 - never written
# Bytes above which a file that is not in git is taken for a result.
_MAX_UNTRACKED_BYTES = 100 << 20
_NOT_SENT_FOLDER_PATTERN = re.compile(
    r"\.git|\.hg|\.svn|\.?venv|__pycache__|\.(mypy|ruff|pytest)_cache|\.ipynb_checkpoints|\.tox|\.nox|node_modules"
    r"|\.tui-train-sending|.+\.egg-info"
)
# Files that only an environment, or the folder of a run, has.
_MARKS_OF_OTHER_FOLDERS = {"pyvenv.cfg": "an environment", "conda-meta": "an environment", "launch.sh": "a run"}


class SentFile(Struct, frozen=True):
    """A file by its name below a folder, or a `link` by its target."""

    name: str
    size: int
    mtime: int
    """Nanoseconds since 1970."""
    mode: int
    link: str = ""


class FileSet(Struct, frozen=True):
    """Files of a folder, and those that are left out, each with why."""

    folder: str
    files: tuple[SentFile, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    is_git: bool = False
    git_problem: str = ""
    """Why git was not asked which files it ignores; empty where there is no repository."""

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


def project_file_set(
    script: str, working_directory: str, own_paths: Iterable[str], git_seconds: float = _MAX_GIT_SECONDS
) -> FileSet:
    """Return what git has of the project that a script is in, and what it does not ignore; else its working folder.

    `own_paths` are left out of a folder without git: what the training writes, and what is sent by itself.
    """
    script_folder = script.rpartition("/")[0] or "/"
    try:
        folder, tracked, untracked = _git_folder_and_file_names(script_folder, git_seconds)
    except GitError as error:
        problem = str(error) if _is_in_repository(script_folder) else ""
        has_script = working_directory and script.startswith(f"{working_directory.rstrip('/')}/")
        folder = working_directory if has_script else script_folder
        left_out: list[tuple[str, str]] = []
        if _holds_several_projects(folder):
            names = [os.path.relpath(script, folder)]
            left_out.append(("all but the script", f"{folder} is no folder of one project"))
        else:
            names = [*_names_below(folder, frozenset(own_paths), left_out)]
        return replace(_file_set(folder, [os.path.relpath(script, folder)], names, left_out), git_problem=problem)
    return _file_set(folder, tracked, untracked, [], is_git=True)


def data_or_model_file_set(path: str) -> FileSet:
    """Return a file, or all files of a folder, that a profile names; links are followed."""
    names: Iterator[str]
    if _holds_several_projects(path):
        raise BadInput(f"{visible(path)} is no folder of data or of a model", "Name a folder below it, or a file.")
    if Path(path).is_dir():
        folder, names = path, _raising_if_too_many(_names_below_following_links(path))
    else:
        folder, _, name = path.rpartition("/")
        folder, names = folder or "/", iter([name])
    return _file_set_following_links(folder, names)


def _file_set_following_links(folder: str, names: Iterable[str]) -> FileSet:
    """Return regular files of a folder, and which cannot be read; links are followed."""
    files: list[SentFile] = []
    left_out: list[tuple[str, str]] = []
    for name in names:
        try:
            status = Path(folder, name).stat()
        except OSError as error:
            left_out.append((name, error.strerror or "it cannot be read"))
            continue
        if stat.S_ISREG(status.st_mode):
            files.append(SentFile(name, status.st_size, status.st_mtime_ns, status.st_mode & 0o777))
    return FileSet(folder, tuple(files), tuple(left_out))


def file_sets_of_single_files(paths: Iterable[str]) -> Iterator[FileSet]:
    """Yield single files, such as images that rows name, by the widest folders that may be sent."""
    by_folder: dict[str, list[str]] = {}
    for path in _raising_if_too_many(paths):
        by_folder.setdefault(path.rpartition("/")[0] or "/", []).append(path)
    for folder, inside in _joined_folders(by_folder).items():
        yield _file_set_following_links(folder, (os.path.relpath(path, folder) for path in inside))


def _joined_folders(by_folder: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return folders with their files, those joined that lie below one folder of a project or data."""
    by_top: dict[str, list[str]] = {}
    for folder, paths in by_folder.items():
        tops = [str(top) for top in (Path(folder), *Path(folder).parents) if not _holds_several_projects(str(top))]
        by_top.setdefault(tops[-1] if tops else folder, []).extend(paths)
    return {os.path.commonpath([path.rpartition("/")[0] for path in paths]): paths for paths in by_top.values()}


def _names_below_following_links(path: str) -> Iterator[str]:
    """Yield the files below a folder, also by links; not by one that leads to a folder above itself."""
    for top, folders, names in os.walk(path, followlinks=True):
        real = f"{os.path.realpath(top)}/"
        folders[:] = [name for name in folders if not real.startswith(f"{os.path.realpath(f'{top}/{name}')}/")]
        yield from (os.path.relpath(f"{top}/{name}", path) for name in names)


def _is_in_repository(folder: str) -> bool:
    return any(
        os.path.lexists(f"{top}/.git")
        for top in (folder, *Path(folder).parents)
        if not _holds_several_projects(str(top))
    )


def _git_folder_and_file_names(script_folder: str, seconds: float) -> tuple[str, list[str], list[str]]:
    """Return the top folder of a work tree, the files that git has, and others that it does not ignore."""
    try:
        git = Git(script_folder, seconds)
        git.folder = os.fsdecode(git.output("rev-parse", "--show-toplevel").rstrip(b"\n"))
        if _holds_several_projects(git.folder):
            raise GitError(f"{git.folder} is no folder of one project")
        tracked = git.output("ls-files", "-z", "--cached", "--recurse-submodules")
        untracked = git.output("ls-files", "-z", "--others", "--exclude-standard")
    except OSError as error:
        raise GitError(str(error)) from None
    return git.folder, _split_names(tracked), _split_names(untracked)


def _split_names(data: bytes) -> list[str]:
    """Return names that NUL bytes end, each once."""
    return [*dict.fromkeys(os.fsdecode(name) for name in data.split(b"\0") if name)]


def _holds_several_projects(folder: str) -> bool:
    """Return whether a folder holds more than one project: a home folder, all above it, /tmp."""
    real, home = os.path.realpath(folder), os.path.realpath(os.environ.get("HOME") or "/")
    return real == _TEMPORARY_FOLDER or f"{home}/".startswith(f"{real.rstrip('/')}/")


def _names_below(folder: str, own_paths: frozenset[str], left_out: list[tuple[str, str]]) -> Iterator[str]:
    for top, folders, names in os.walk(folder):
        for name in [*folders]:
            path = f"{top}/{name}"
            why = next((why for mark, why in _MARKS_OF_OTHER_FOLDERS.items() if os.path.lexists(f"{path}/{mark}")), "")
            if why:
                left_out.append((os.path.relpath(path, folder), why))
            if why or path in own_paths or _NOT_SENT_FOLDER_PATTERN.fullmatch(name):
                folders.remove(name)
            elif Path(path).is_symlink():
                names.append(name)
        yield from (os.path.relpath(f"{top}/{name}", folder) for name in names if f"{top}/{name}" not in own_paths)


def _file_set(
    folder: str, tracked: list[str], untracked: list[str], left_out: list[tuple[str, str]], *, is_git: bool = False
) -> FileSet:
    """Return the files by their names; of those that are not tracked, neither secrets nor what is very large."""
    files: list[SentFile] = []
    surely = frozenset(tracked)
    for name in _raising_if_too_many(dict.fromkeys((*tracked, *untracked))):
        if name not in surely and may_hold_secrets(name):
            left_out.append((name, "it may hold secrets"))
            continue
        file: SentFile | None
        try:
            file, why = _sent_file_or_why_not(folder, name)
        except FileNotFoundError:
            continue
        except OSError as error:
            file, why = None, error.strerror or "it cannot be read"
        if file and name not in surely and file.size > _MAX_UNTRACKED_BYTES:
            why, file = size_text(file.size), None
        if file:
            files.append(file)
        else:
            left_out.append((name, why))
    return FileSet(folder, tuple(files), tuple(left_out), is_git)


def _sent_file_or_why_not(folder: str, name: str) -> tuple[SentFile | None, str]:
    """Return a file or link of a project, or why it is not sent."""
    path = f"{folder}/{name}"
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        target = str(Path(path).readlink())
        leads = os.path.normpath(f"{folder}/{name}/../{target}")
        if target.startswith("/") or not leads.startswith(f"{os.path.normpath(folder)}/"):
            return None, "a link that leads out of the project"
        return SentFile(name, 0, 0, 0, target), ""
    if not stat.S_ISREG(status.st_mode):
        return None, "a repository of its own" if stat.S_ISDIR(status.st_mode) else "no regular file"
    return SentFile(name, status.st_size, status.st_mtime_ns, status.st_mode & 0o777), ""


def _raising_if_too_many(names: Iterable[str]) -> Iterator[str]:
    """Yield names, BadInput where there are too many to be sent one by one."""
    for count, name in enumerate(names):
        if count >= MAX_FILES:
            raise BadInput(
                f"there are more than {MAX_FILES} files, such as {visible(name)}", "Pack them, or ignore them in git."
            )
        yield name
