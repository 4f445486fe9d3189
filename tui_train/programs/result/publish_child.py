"""Sends a result to the Hugging Face Hub: `python publish_child.py REQUEST`.

The request, in JSON: `repo` (ORG/NAME), `folder`, the `files` of it that are sent, those of them with `weights`, `base`
(the base model's id on the Hub, empty for none) and `base_folder` (where its card may be), and `private`. It sends
`found` with what is known before anything is sent: `versions`, the folder's own card (`head`, `text`), the `license`
of the base, and what the Hub says: `endpoint`, `user`, `exists`, `private`, `files` and `head_commit`, or the `problem`
and its `kind`. Then it reads a line with `contents`, the texts that are sent in place of or beside the files, and sends
`sent` for each file of weights, and `done` with `url` and `commit`, or `error`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

import result_load as load
from result_load import MessagePipe, RefusedError

_VERSIONED_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
_CARD_FILE = "README.md"
_MAX_CARD_BYTES = 128 << 10
_LICENSE_KEYS = ("license", "license_name", "license_link")
_REQUEST_SECONDS = 30.0
_KIND_BY_STATUS = {401: "token", 403: "forbidden"}


def publish(request: dict[str, Any], messages: MessagePipe) -> None:
    """Send what is found, and once the card has come, the files."""
    from huggingface_hub import HfApi

    api = HfApi()
    hub = _ask_hub(api, request["repo"])
    messages.send(
        "found",
        versions=_versions(),
        license={} if "problem" in hub else _base_license(api, request),
        **_read_card(Path(request["folder"])),
        **hub,
    )
    line = sys.stdin.readline()
    if not line:
        return
    contents: dict[str, str] = json.loads(line)["contents"]
    if "problem" in hub:
        raise RefusedError(hub["kind"], hub["problem"])
    _upload_as_one_commit(api, request, contents, hub, messages)


def _versions() -> dict[str, str]:
    versions = {}
    for name in _VERSIONED_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _read_card(folder: Path) -> dict[str, Any]:
    """Return the head and the text of a folder's card, none where it has none that can be read."""
    from huggingface_hub import ModelCard

    file = folder / _CARD_FILE
    try:
        if not 0 < file.stat().st_size <= _MAX_CARD_BYTES:
            return {"head": {}, "text": ""}
        card: Any = ModelCard(file.read_text(encoding="utf-8"), ignore_metadata_errors=True)
        # What YAML reads as a date is text again.
        return {"head": json.loads(json.dumps(card.data.to_dict(), default=str)), "text": card.text}
    except Exception:  # noqa: BLE001 - its YAML may be anything
        return {"head": {}, "text": ""}


def _base_license(api: Any, request: dict[str, Any]) -> dict[str, str]:
    """Return the licence of the base model as its card in the cache names it, else as the Hub does."""
    found = _read_card(Path(request["base_folder"]))["head"] if request["base_folder"] else {}
    if not found.get("license") and request["base"]:
        try:
            card = api.model_info(request["base"], timeout=_REQUEST_SECONDS).card_data
            found = card.to_dict() if card else {}
        except Exception:  # noqa: BLE001 - it may be private, or gone
            found = {}
    return {name: found[name] for name in _LICENSE_KEYS if isinstance(found.get(name), str)}


def _ask_hub(api: Any, repo: str) -> dict[str, Any]:
    """Return who is logged in and what is in a repository, or why that cannot be told."""
    try:
        return {"endpoint": api.endpoint, "user": _user_who_may_write(api, repo), **_describe_repository(api, repo)}
    except Exception as error:  # noqa: BLE001 - it is told
        refused = _hub_refusal(error)
        return {"endpoint": api.endpoint, "kind": refused.kind, "problem": _without_token(str(refused))}


def _user_who_may_write(api: Any, repo: str) -> str:
    """Return whose token it is; RefusedError where there is none, one that only reads, or the owner is another."""
    from huggingface_hub import get_token

    if not get_token():
        raise RefusedError("login", f"there is no token for {api.endpoint}")
    user = api.whoami()
    name, role = str(user.get("name") or ""), (user.get("auth") or {}).get("accessToken", {}).get("role")
    if role == "read":
        raise RefusedError("forbidden", "the token can only read")
    # A token of finer rights need not tell of all organizations.
    owner, owners = repo.partition("/")[0], {name, *(str(each.get("name")) for each in user.get("orgs") or ())}
    if role == "write" and owner.casefold() not in {each.casefold() for each in owners}:
        raise RefusedError("forbidden", f"{owner} is neither your account ({name}) nor an organization of yours")
    return name


def _describe_repository(api: Any, repo: str) -> dict[str, Any]:
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.model_info(repo, timeout=_REQUEST_SECONDS)
    except RepositoryNotFoundError:
        return {"exists": False}
    names = [file.rfilename for file in info.siblings or ()]
    return {"exists": True, "private": bool(info.private), "files": names, "head_commit": info.sha}


def _upload_as_one_commit(
    api: Any, request: dict[str, Any], contents: dict[str, str], hub: dict[str, Any], messages: MessagePipe
) -> None:
    """Send the files, those with weights one by one, and make one commit of all."""
    from huggingface_hub import CommitOperationAdd

    repo, folder = request["repo"], Path(request["folder"])
    if not hub["exists"]:
        api.create_repo(repo, private=request["private"])
    sources: dict[str, Any] = {name: str(folder / name) for name in request["files"]}
    sources.update({name: text.encode() for name, text in contents.items()})
    operations = {name: CommitOperationAdd(name, source) for name, source in sources.items()}
    for name in request["weights"]:
        api.preupload_lfs_files(repo, [operations[name]])
        messages.send("sent", file=name)
    commit = api.create_commit(
        repo,
        list(operations.values()),
        commit_message="Upload a trained model and its card",
        # What somebody else sent meanwhile was not in what was agreed to.
        parent_commit=hub.get("head_commit"),
    )
    there = {file.rfilename for file in api.model_info(repo, revision=commit.oid).siblings or ()}
    if missing := sorted({*operations} - there):
        raise RefusedError("upload", f"{', '.join(missing)} did not arrive; the repository's .gitignore may name them")
    messages.send("done", url=f"{api.endpoint}/{repo}", commit=commit.oid)


def _hub_refusal(error: BaseException) -> RefusedError:
    """Return why the Hub, or the way to it, did not do what was asked."""
    if isinstance(error, RefusedError):
        return error
    if type(error).__name__ == "OfflineModeIsEnabled":
        return RefusedError("offline", "HF_HUB_OFFLINE is set")
    for cause in _error_and_causes(error):
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int):
            return RefusedError(_KIND_BY_STATUS.get(status, "upload"), _answer_text(cause, status))
        if isinstance(cause, ConnectionError) or "Connect" in type(cause).__name__ or "Timeout" in type(cause).__name__:
            return RefusedError("network", load.first_nonblank_line(cause) or type(cause).__name__)
    if isinstance(error, ImportError):
        return RefusedError("lacks", load.first_nonblank_line(error))
    return RefusedError("upload", f"{type(error).__name__}: {load.first_nonblank_line(error)}")


def _error_and_causes(error: BaseException) -> list[BaseException]:
    """Return an error and what it came of, the first cause last."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    return chain


def _answer_text(error: BaseException, status: int) -> str:
    """Return what the Hub said: its own words, or the status alone."""
    words = getattr(error, "server_message", None)
    return f"HTTP {status}: {str(words).splitlines()[0]}" if words else f"HTTP {status}"


def _without_token(text: str) -> str:
    """Return a text without the token, which a server may have repeated."""
    try:
        from huggingface_hub import get_token

        token = get_token()
    except Exception:  # noqa: BLE001 - without the library, or a login that fails, there is none
        token = None
    return text.replace(token, "<masked>") if token else text


def main() -> None:
    """Publish, or say why not; the exit code is 0 where it was done or not wanted."""
    load.set_up_program(online=True)
    messages = load.MessagePipe()
    os.environ.pop("HF_DEBUG", None)  # it prints each request
    try:
        publish(load.read_request(), messages)
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, who asked is told
        refused = _hub_refusal(error)
        messages.send("error", kind=refused.kind, why=_without_token(str(refused)))
        sys.exit(1)


if __name__ == "__main__":
    main()
