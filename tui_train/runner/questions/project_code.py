"""The code of a project as it is now: its commit, and what differs from that as a patch of a limited size."""

from __future__ import annotations

import base64
import os
import re
import stat
import tempfile
from typing import Any, Iterator, NamedTuple

from ..system.git import Git, GitError, GitTimeoutError
from .answer_lines import send_json_line

# A start waits for it; what git has told by then is kept.
_MAX_SECONDS = 4.0
# Bytes of a changed file, before and after together, and of all.
_MAX_FILE_BYTES, _MAX_PATCH_BYTES = 256 << 10, 1 << 20
_MAX_KEPT_FILES = 500
_MAX_NAMED_FILES = 100  # of those that are left out
# As git tells text from binary.
_BYTES_LOOKED_AT = 8000
_SUBMODULE_MODE = "160000"
_SECRET_FILE_PATTERN = re.compile(
    r"(?!.*\.(example|sample|template|dist)$)"
    r"(.*\.env|\.env[.-].+|\.envrc|.+\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk)|id_(rsa|dsa|ecdsa|ed25519)[^/]*"
    r"|\.netrc|\.pypirc|\.npmrc|\.pgpass|\.htpasswd|\.git-credentials|kubeconfig|.*service[-_]account.*\.json"
    r"|[^/]*(credentials?|secrets?)(\.(json|toml|ya?ml|ini|txt|cfg|csv|env))?"
    r"|\.?(hf|huggingface|wandb|api|access|auth|github|openai)?[-_]?(tokens?|keys?)(\.(json|txt|toml|ya?ml))?)",
    re.IGNORECASE,
)
_SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker"})


class _ChangedPath(NamedTuple):
    """A path that differs from the commit; `object_id` is what the commit has there, empty for nothing."""

    path: bytes
    object_id: str
    is_submodule: bool


def send_project_code(question: dict[str, Any]) -> None:
    """Send the code of the project that a `script` is in."""
    code, patch = read_project_code_and_patch(question["script"])
    send_json_line(code=code, patch=base64.b64encode(patch).decode())


def read_project_code_and_patch(script: str) -> tuple[dict[str, Any], bytes]:
    """Return the project of a script as plain data, and the patch that makes of its commit what it is now.

    Files that are too large, binary and not in git, or that may hold secrets are `left_out`, each with why. A
    `problem` is why there is no commit, or no patch; it `is_late` where there was too little time.
    """
    # Python imports from beside the file that a link leads to.
    script = os.path.realpath(script)
    code: dict[str, Any] = {
        "script": shown_name(os.fsencode(script)),
        "folder": "",
        "commit": "",
        "branch": "",
        "shallow": False,
    }
    code.update(problem="", is_late=False, changed=[], left_out=[], left_out_more=0)
    patch = b""
    try:
        git = Git(os.path.dirname(script) or "/", _MAX_SECONDS)
        top, shallow, objects = git.output(
            "rev-parse", "--show-toplevel", "--is-shallow-repository", "--git-path", "objects"
        ).splitlines()
        objects = os.path.join(os.fsencode(git.folder), objects)
        git.folder = os.fsdecode(top)
        code.update(folder=shown_name(top), shallow=shallow == b"true")
        patch = _read_changes(git, objects, script, code)
    except GitError as error:
        code.update(problem=str(error), is_late=isinstance(error, GitTimeoutError))
    except (OSError, ValueError) as error:
        code["problem"] = f"{getattr(error, 'strerror', None) or 'git answers in a form that is not known'}"
    return code, patch


def may_hold_secrets(name: str) -> bool:
    """Tell by its name whether a file of a project is one that keeps secrets."""
    *folders, last = name.split("/")
    return bool(_SECRET_FILE_PATTERN.fullmatch(last)) or not _SECRET_FOLDERS.isdisjoint(folders)


def shown_name(name: bytes) -> str:
    """Return a file's name as JSON can have it."""
    return name.decode(errors="backslashreplace")


def _read_changes(git: Git, objects: bytes, script: str, code: dict[str, Any]) -> bytes:
    """Note commit, changed files and what is left out in `code`, and return the patch."""
    status = git.output("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all")
    headers, changes = _parse_status(status)
    commit = headers.get("branch.oid", "")
    branch = headers.get("branch.head", "")
    code["branch"] = "" if branch == "(detached)" else branch
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        raise GitError("the git repository has no commit yet")
    code["commit"] = commit
    kept, left_out = _choose_changes(git, changes)
    name = os.path.relpath(script, os.path.realpath(git.folder))
    if not git.output("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", f":(literal){name}"):
        left_out.insert(0, (os.fsencode(name), "ignored by git, or not in its work tree"))
    code["left_out"] = [{"name": shown_name(path), "why": why} for path, why in left_out[:_MAX_NAMED_FILES]]
    code["left_out_more"] = max(0, len(left_out) - _MAX_NAMED_FILES)
    if not kept:
        return b""
    code["changed"], patch = _changed_files_and_patch(git, objects, [change.path for change in kept])
    return patch


def _parse_status(data: bytes) -> tuple[dict[str, str], list[_ChangedPath]]:
    """Return the headers of git's status, and each changed path once."""
    headers: dict[str, str] = {}
    changes: dict[bytes, _ChangedPath] = {}
    for entry in filter(None, data.split(b"\0")):
        kind, _, rest = entry.partition(b" ")
        if kind == b"#":
            name, _, value = rest.partition(b" ")
            headers[name.decode()] = value.decode(errors="replace")
        elif kind == b"?":
            changes.setdefault(rest, _ChangedPath(rest, "", is_submodule=False))
        elif kind in {b"1", b"u"}:
            # XY sub mH mI mW hH hI path; of a conflict: XY sub m1 m2 m3 mW h1 h2 h3 path
            fields = rest.split(b" ", 7 if kind == b"1" else 9)
            object_id = fields[5 if kind == b"1" else 7].decode()
            is_submodule = fields[1][:1] == b"S" or _SUBMODULE_MODE.encode() in fields[2:5]
            changes[fields[-1]] = _ChangedPath(fields[-1], object_id.strip("0") and object_id, is_submodule)
        else:
            raise ValueError(kind)
    return headers, list(changes.values())


def _choose_changes(git: Git, changes: list[_ChangedPath]) -> tuple[list[_ChangedPath], list[tuple[bytes, str]]]:
    """Return the changes that are kept, the small ones first, and the others, each with why."""
    size_by_object = _object_sizes(git, [change.object_id for change in changes if change.object_id])
    chosen: list[tuple[int, _ChangedPath]] = []
    left_out: list[tuple[bytes, str]] = []
    for change in changes:
        size, why = _size_and_why_not_kept(git.folder, change)
        size += size_by_object.get(change.object_id, 0)
        if not why and size > _MAX_FILE_BYTES:
            why = f"{size / 1e6:.1f} MB"
        if why:
            left_out.append((change.path, why))
        else:
            chosen.append((size, change))
    chosen.sort(key=lambda each: (each[0], each[1].path))
    kept: list[_ChangedPath] = []
    total = 0
    for size, change in chosen:
        total += size
        if total > _MAX_PATCH_BYTES or len(kept) >= _MAX_KEPT_FILES:
            left_out.append((change.path, "too many changes"))
        else:
            kept.append(change)
    return kept, left_out


def _size_and_why_not_kept(folder: str, change: _ChangedPath) -> tuple[int, str]:
    """Return the size of a changed file, 0 where it was deleted, and why it is not kept (empty: it is)."""
    name = os.fsdecode(change.path)
    why = (
        "a submodule with changes" if change.is_submodule
        else "a repository of its own" if name.endswith("/")
        else "it may hold secrets" if may_hold_secrets(name)
        else ""
    )  # fmt: skip
    if why:
        return 0, why
    path = os.path.join(folder, name)
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return 0, "" if stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode) else "no regular file"
        with open(path, "rb") as file:
            is_binary = b"\0" in file.read(_BYTES_LOOKED_AT)
    except (FileNotFoundError, NotADirectoryError):
        return 0, ""
    except OSError as error:
        return 0, error.strerror or "it cannot be read"
    return status.st_size, "binary, and not in git" if is_binary and not change.object_id else ""


def _object_sizes(git: Git, object_ids: list[str]) -> dict[str, int]:
    lines = git.output("cat-file", "--batch-check", stdin="\n".join([*object_ids, ""]).encode()).decode().splitlines()
    return {fields[0]: int(fields[2]) for fields in map(str.split, lines) if len(fields) == 3 and fields[2].isdigit()}


def _changed_files_and_patch(git: Git, objects: bytes, paths: list[bytes]) -> tuple[list[dict[str, str]], bytes]:
    """Return the changed files, and the patch; the repository's own index and objects stay as they are."""
    with tempfile.TemporaryDirectory() as folder:
        own_objects = os.path.join(folder, "objects")
        os.makedirs(os.path.join(own_objects, "info"))
        with open(os.path.join(own_objects, "info", "alternates"), "wb") as file:
            file.write(os.path.realpath(objects) + b"\n")
        variables = {"GIT_INDEX_FILE": os.path.join(folder, "index"), "GIT_OBJECT_DIRECTORY": own_objects}
        git.output("read-tree", "HEAD", variables=variables)
        git.output(
            "update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=b"\0".join([*paths, b""]),
            variables=variables,
        )  # fmt: skip
        compare = ("diff-index", "--cached", "--no-renames", "--no-ext-diff", "--no-textconv", "--full-index")
        raw = git.output(*compare, "--raw", "--no-abbrev", "-z", "HEAD", variables=variables)
        prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
        patch = git.output(*compare, "-p", "--binary", *prefixes, "HEAD", variables=variables)
    return list(_parse_raw(raw)), patch


def _parse_raw(data: bytes) -> Iterator[dict[str, str]]:
    """Yield each changed file with what it is now: the id of its content, empty where it was deleted."""
    fields = data.split(b"\0")
    for about, path in zip(fields[::2], fields[1::2]):
        new_id = about.split()[3].decode()
        yield {"name": shown_name(path), "id": new_id if new_id.strip("0") else ""}
