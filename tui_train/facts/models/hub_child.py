"""Child program that asks the Hub about a model and can be killed: `hub_child.py ENDPOINT MODEL REVISION`.

It prints one HubModel as JSON. Nothing secret is sent: of a private model the Hub says that there is none.
"""

import sys
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from tui_train.base.parse import json_table
from tui_train.base.text import visible
from tui_train.facts.models.hub import HubConfig, HubModel
from tui_train.programs.hub_download import wanted_file_sizes

_MAX_ANSWER_BYTES = 2**25
HUB_TIMEOUT_SECONDS = 6.0
_NOT_FOUND_CODES = (401, 403, 404)
_HubAnswer = TypeVar("_HubAnswer", HubModel, HubConfig)


def ask_hub_for_model(endpoint: str, model_id: str, revision: str) -> HubModel:
    """Return what the Hub at an address says of a revision of a model; an empty one is main."""
    revision_path = f"/revision/{quote(revision, safe='')}" if revision else ""

    def read(request: Request) -> HubModel:
        with urlopen(request, timeout=HUB_TIMEOUT_SECONDS) as answer:  # noqa: S310  # the scheme was checked
            return parse_hub_model(json_table(answer.read(_MAX_ANSWER_BYTES)))

    path = f"api/models/{quote(model_id)}{revision_path}?blobs=true"
    return request_from_hub(endpoint, path, read, HubModel, "the answer is not that of a Hub")


def request_from_hub(
    endpoint: str,
    path: str,
    read_answer: Callable[[Request], _HubAnswer],
    answer_type: type[_HubAnswer],
    invalid_problem: str,
) -> _HubAnswer:
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


def _answer_for_http_error(error: HTTPError, answer_type: type[_HubAnswer]) -> _HubAnswer:
    """Return why the Hub says nothing of a model."""
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


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(ask_hub_for_model(*sys.argv[1:])) + b"\n")
