"""Child program that fetches a model's config.json: `hub_config_child.py ENDPOINT MODEL REVISION TOKEN`.

It can be killed, and prints one HubConfig as JSON. TOKEN names the variable whose value is sent to the Hub, and to no
other host; an empty one sends nothing.
"""

import os
import sys
from http.client import HTTPMessage
from typing import IO
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from tui_train.base.parse import Unparsable, json_table
from tui_train.facts.models.hub import MAX_CONFIG_BYTES, HubConfig
from tui_train.facts.models.hub_child import HUB_TIMEOUT_SECONDS, request_from_hub
from tui_train.programs.hub_cache import COMMIT_PATTERN

_COMMIT_HEADER = "X-Repo-Commit"


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


def read_hub_config(endpoint: str, model_id: str, revision: str, token: str) -> HubConfig:
    """Return the config.json that the Hub at an address has of a revision of a model; an empty one is main."""

    def fetch(request: Request) -> HubConfig:
        redirects = _HubRedirectHandler(token)
        _add_token_header(request, token)
        try:
            with build_opener(redirects).open(request, timeout=HUB_TIMEOUT_SECONDS) as answer:
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
    return request_from_hub(endpoint, path, fetch, HubConfig, invalid)


def _config_if_valid(data: bytes, commit: str) -> HubConfig:
    """Return what was fetched, where it is a config.json of a commit."""
    if len(data) > MAX_CONFIG_BYTES:
        return HubConfig(refusal="unusable", problem=f"its config.json is larger than {MAX_CONFIG_BYTES >> 10} KiB")
    try:
        json_table(data)
        text = data.decode()
    except (Unparsable, UnicodeDecodeError):
        return HubConfig(refusal="unusable", problem="its config.json is not JSON")
    if not COMMIT_PATTERN.fullmatch(commit):
        return HubConfig(refusal="unusable", problem="the answer is not that of a Hub: it names no commit")
    return HubConfig(text=text, commit=commit)


if __name__ == "__main__":
    endpoint, name, revision, variable = sys.argv[1:]
    token = os.environ.get(variable, "").strip() if variable else ""
    sys.stdout.buffer.write(msgspec.json.encode(read_hub_config(endpoint, name, revision, token)) + b"\n")
