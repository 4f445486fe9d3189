"""Child program that asks the Hub about a model and can be killed.

`hub_child.py model ENDPOINT MODEL REVISION` prints one HubModel as JSON. Nothing secret is sent: of a private model the
Hub says that there is none. `hub_child.py config ENDPOINT MODEL REVISION TOKEN` prints one HubConfig. TOKEN names the
variable whose value is sent to the Hub, and to no other host; an empty one sends nothing.
"""

import os
import sys
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, urlopen

import msgspec

from tui_train.base.parse import Unparsable, parse_json_object
from tui_train.base.text import visible
from tui_train.facts.models.hub import MAX_CONFIG_BYTES, HubAnswer, HubConfig, HubModel
from tui_train.programs.hub_cache import COMMIT_PATTERN
from tui_train.programs.hub_download import wanted_file_sizes

_MAX_ANSWER_BYTES = 2**25
_HUB_TIMEOUT_SECONDS = 6.0
_NOT_FOUND_CODES = (401, 403, 404)
_COMMIT_HEADER = "X-Repo-Commit"


def ask_hub_for_model(endpoint: str, model_id: str, revision: str) -> HubModel:
    """Return what the Hub at an address says of a revision of a model; an empty one is main."""
    revision_path = f"/revision/{quote(revision, safe='')}" if revision else ""

    def read(request: Request) -> HubModel:
        with urlopen(request, timeout=_HUB_TIMEOUT_SECONDS) as answer:  # noqa: S310  # the scheme was checked
            return parse_hub_model(parse_json_object(answer.read(_MAX_ANSWER_BYTES)))

    path = f"api/models/{quote(model_id)}{revision_path}?blobs=true"
    return _request_from_hub(endpoint, path, read, HubModel, "the answer is not that of a Hub")


def _request_from_hub(
    endpoint: str,
    path: str,
    read_answer: Callable[[Request], HubAnswer],
    answer_type: type[HubAnswer],
    invalid_problem: str,
) -> HubAnswer:
    """Return what `read_answer` makes of a request of a path, or why the Hub says nothing.

    `invalid_problem` is the problem where it raises ValueError.
    """
    if urlsplit(endpoint).scheme not in {"http", "https"}:
        return answer_type(
            refusal="unusable", problem=f"HF_ENDPOINT is {visible(endpoint)[:200]!r}, not an https address"
        )
    try:
        return read_answer(Request(f"{endpoint}/{path}", headers={"User-Agent": "tui-train"}))  # noqa: S310
    except HTTPError as error:
        return _answer_for_http_error(error, answer_type)
    except (URLError, OSError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        return answer_type(refusal="unreachable", problem=visible(str(why))[:200])
    except ValueError:
        return answer_type(refusal="unusable", problem=invalid_problem)


def _answer_for_http_error(error: HTTPError, answer_type: type[HubAnswer]) -> HubAnswer:
    if error.code not in _NOT_FOUND_CODES:
        return answer_type(refusal="unreachable", problem=f"the Hub answers with HTTP {error.code}")
    if error.headers.get("X-Error-Code") == "RevisionNotFound":
        return answer_type(refusal="revision", problem="the model has no such revision")
    return answer_type(refusal="missing", problem="the Hub has no such model, or it is private")


def parse_hub_model(answer: dict[str, Any]) -> HubModel:
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


def ask_hub_for_config(endpoint: str, model_id: str, revision: str, token: str) -> HubConfig:
    """Return the config.json that the Hub at an address has of a revision of a model; an empty one is main."""

    def fetch(request: Request) -> HubConfig:
        redirects = _HubRedirectHandler(token)
        _add_token_header(request, token)
        try:
            with build_opener(redirects).open(request, timeout=_HUB_TIMEOUT_SECONDS) as answer:
                return _config_if_valid(
                    answer.read(MAX_CONFIG_BYTES + 1), redirects.commit or answer.headers.get(_COMMIT_HEADER, "")
                )
        except HTTPError as error:
            named = error.headers.get("X-Error-Code")
            if named == "GatedRepo":
                return HubConfig(refusal="gated", problem="access must be asked for")
            if named == "EntryNotFound":
                return HubConfig(refusal="bare", problem="the model has none")
            raise

    path = f"{quote(model_id)}/resolve/{quote(revision or 'main', safe='')}/config.json"
    # The words of the error would show the token.
    invalid = "the address or the token has characters that cannot be sent"
    return _request_from_hub(endpoint, path, fetch, HubConfig, invalid)


def _config_if_valid(data: bytes, commit: str) -> HubConfig:
    """Return what was fetched, where it is a config.json of a commit."""
    if len(data) > MAX_CONFIG_BYTES:
        return HubConfig(refusal="unusable", problem=f"its config.json is larger than {MAX_CONFIG_BYTES >> 10} KiB")
    try:
        parse_json_object(data)
        text = data.decode()
    except (Unparsable, UnicodeDecodeError):
        return HubConfig(refusal="unusable", problem="its config.json is not JSON")
    if not COMMIT_PATTERN.fullmatch(commit):
        return HubConfig(refusal="unusable", problem="the answer is not that of a Hub: it names no commit")
    return HubConfig(text=text, commit=commit)


if __name__ == "__main__":
    wanted, endpoint, model, revision, *token_variable = sys.argv[1:]
    if wanted == "model":
        found: HubModel | HubConfig = ask_hub_for_model(endpoint, model, revision)
    else:
        found = ask_hub_for_config(endpoint, model, revision, os.environ.get(token_variable[0], "").strip())
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
