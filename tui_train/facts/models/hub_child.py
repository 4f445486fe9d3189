"""Child program that asks the Hub about a model and can be killed.

`hub_child.py model ENDPOINT MODEL REVISION` prints one HubModel as JSON. Nothing secret is sent: of a private model the
Hub says there is none. `hub_child.py config ENDPOINT MODEL REVISION TOKEN` prints one HubModelConfig. TOKEN names the
variable whose value is sent to the Hub, and to no other host; an empty one sends nothing.
"""

import os
import sys
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from tui_train.base.parse import Unparsable, parse_json_object
from tui_train.base.text import visible
from tui_train.facts.models.hub import MAX_CONFIG_BYTES, HubModel, HubModelConfig
from tui_train.programs.hub_cache import COMMIT_PATTERN
from tui_train.programs.hub_download import wanted_file_sizes

_MAX_ANSWER_BYTES = 2**25
_HUB_TIMEOUT_SECONDS = 6.0
_NOT_FOUND_CODES = (401, 403, 404)
_COMMIT_HEADER = "X-Repo-Commit"
# By X-Error-Code: the refusal and the problem of an answer.
_REFUSAL_BY_ERROR_NAME = {"RevisionNotFound": ("revision", "the model has no such revision")}
_CONFIG_REFUSAL_BY_ERROR_NAME = {
    **_REFUSAL_BY_ERROR_NAME,
    "GatedRepo": ("gated", "access must be asked for"),
    "EntryNotFound": ("bare", "the model has none"),
}


class _HubRedirectHandler(HTTPRedirectHandler):
    """Follows the Hub to where the file lies, keeps the commit that it names, and gives the token to the Hub alone."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.commit = ""

    def redirect_request(  # noqa: PLR0913, PLR0917 - as it is called
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        self.commit = self.commit or headers.get(_COMMIT_HEADER, "")
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme not in {"http", "https"}:
            return None
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following and (before.scheme, before.netloc) == (after.scheme, after.netloc):
            _add_token_header(following, self.token)
        return following


def _add_token_header(request: Request, token: str) -> None:
    """Add a token to a request, which a redirection does not carry on; an empty one adds nothing."""
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")


class _Fetched(NamedTuple):
    """What the Hub has at a path, and the commit that it names; else the `refusal` and its `problem`, of an answer."""

    data: bytes = b""
    commit: str = ""
    refusal: Any = ""
    problem: str = ""


def _fetch(
    endpoint: str, path: str, max_bytes: int, refusals: Mapping[str, tuple[str, str]], token: str = ""
) -> _Fetched:
    """Return at most so many bytes of what the Hub at an address has at a path; `refusals` by its names for errors."""
    if urlsplit(endpoint).scheme not in {"http", "https"}:
        invalid = f"HF_ENDPOINT is {visible(endpoint)[:200]!r}, not an https address"
        return _Fetched(refusal="unusable", problem=invalid)
    redirects = _HubRedirectHandler(token)
    try:
        request = Request(f"{endpoint}/{path}", headers={"User-Agent": "tui-train"})  # noqa: S310
        _add_token_header(request, token)
        with build_opener(redirects).open(request, timeout=_HUB_TIMEOUT_SECONDS) as answer:
            return _Fetched(answer.read(max_bytes), redirects.commit or answer.headers.get(_COMMIT_HEADER, ""))
    except HTTPError as error:
        other = ("unreachable", f"the Hub answers with HTTP {error.code}")
        if error.code in _NOT_FOUND_CODES:
            other = ("missing", "the Hub has no such model, or it is private")
        refusal, problem = refusals.get(error.headers.get("X-Error-Code", ""), other)
    except (URLError, OSError, HTTPException) as error:
        refusal, problem = "unreachable", visible(str(getattr(error, "reason", None) or error))[:200]
    except ValueError:
        # The words of the error would show the token.
        refusal, problem = "unusable", "the address or the token has characters that cannot be sent"
    return _Fetched(refusal=refusal, problem=problem)


def ask_hub_for_model(endpoint: str, model_id: str, revision: str) -> HubModel:
    """Return what the Hub at an address says of a revision of a model; an empty one is main."""
    revision_path = f"/revision/{quote(revision, safe='')}" if revision else ""
    path = f"api/models/{quote(model_id)}{revision_path}?blobs=true"
    fetched = _fetch(endpoint, path, _MAX_ANSWER_BYTES, _REFUSAL_BY_ERROR_NAME)
    if fetched.refusal:
        return HubModel(refusal=fetched.refusal, problem=fetched.problem)
    try:
        return _parse_hub_model(parse_json_object(fetched.data))
    except ValueError:
        return HubModel(refusal="unusable", problem="the answer is not that of a Hub")


def _parse_hub_model(answer: dict[str, Any]) -> HubModel:
    """Return the size and access of a model from the Hub's answer; ValueError if it is not one."""
    siblings = answer.get("siblings")
    if not isinstance(siblings, list):
        raise ValueError("no list of files")  # noqa: TRY004  # an answer of another kind
    sizes: dict[str, int] = {}
    for file in siblings:
        name, size = (file.get("rfilename"), file.get("size")) if isinstance(file, dict) else (None, None)
        if isinstance(name, str):
            sizes[name] = size if isinstance(size, int) and 0 <= size < 2**60 else 0
    return HubModel(size=sum(wanted_file_sizes(sizes).values()), gated=bool(answer.get("gated")))


def ask_hub_for_model_config(endpoint: str, model_id: str, revision: str, token: str) -> HubModelConfig:
    """Return the config.json that the Hub at an address has of a revision of a model; an empty one is main."""
    path = f"{quote(model_id)}/resolve/{quote(revision or 'main', safe='')}/config.json"
    fetched = _fetch(endpoint, path, MAX_CONFIG_BYTES + 1, _CONFIG_REFUSAL_BY_ERROR_NAME, token)
    if fetched.refusal:
        return HubModelConfig(refusal=fetched.refusal, problem=fetched.problem)
    if len(fetched.data) > MAX_CONFIG_BYTES:
        return HubModelConfig(
            refusal="unusable", problem=f"its config.json is larger than {MAX_CONFIG_BYTES >> 10} KiB"
        )
    try:
        parse_json_object(fetched.data)
        text = fetched.data.decode()
    except (Unparsable, UnicodeDecodeError):
        return HubModelConfig(refusal="unusable", problem="its config.json is not JSON")
    if not COMMIT_PATTERN.fullmatch(fetched.commit):
        return HubModelConfig(refusal="unusable", problem="the answer is not that of a Hub: it names no commit")
    return HubModelConfig(text=text, commit=fetched.commit)


if __name__ == "__main__":
    wanted, endpoint, model, revision, *token_variable = sys.argv[1:]
    if wanted == "model":
        found: HubModel | HubModelConfig = ask_hub_for_model(endpoint, model, revision)
    else:
        found = ask_hub_for_model_config(endpoint, model, revision, os.environ.get(token_variable[0], "").strip())
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
