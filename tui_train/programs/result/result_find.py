"""What a run left, found where its result lies: the first folder of several with an adapter or a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from result_load import MessagePipe, RefusedError

_ADAPTER_FILE, _MODEL_FILE = "adapter_config.json", "config.json"
_WEIGHT_SUFFIXES = {".safetensors", ".bin"}


def request_with_found_weights(request: dict[str, Any], messages: MessagePipe) -> dict[str, Any]:
    """Return a request with `folder`, `adapter`, `base` and `revision`, found in its `candidates`, where it has those.

    They are the folders of final weights, in order, and the newest checkpoint's, which are taken where they are newer.
    """
    if "candidates" not in request:
        return request
    final, checkpoint = (_first_with_weights(folders) for folders in request["candidates"])
    if final is None or (checkpoint is not None and _weights_mtime(checkpoint) > _weights_mtime(final)):
        final = checkpoint
    if final is None:
        raise RefusedError("weights", f"looked for in {', '.join(request['candidates'][0][:1])}")
    adapter = (final / _ADAPTER_FILE).is_file()
    found = {**request, "folder": str(final), "adapter": adapter}
    if adapter and not request.get("keeps_base"):
        base = json.loads((final / _ADAPTER_FILE).read_text(encoding="utf-8")).get("base_model_name_or_path")
        if isinstance(base, str) and base and base != request["base"]:
            found.update(base=base, revision="")
    if adapter and not found["base"]:
        raise RefusedError("base", f"of the adapter in {final}")
    if request.get("talks") and _returns_scores_not_text(final, adapter=adapter):
        raise RefusedError("scores", str(final))
    messages.send("found", folder=str(final), adapter=adapter, base=found["base"])
    return found


def _returns_scores_not_text(folder: Path, *, adapter: bool) -> bool:
    """Return whether a model returns scores, not text."""
    config = json.loads((folder / (_ADAPTER_FILE if adapter else _MODEL_FILE)).read_text(encoding="utf-8"))
    if adapter:
        return config.get("task_type") in {"SEQ_CLS", "TOKEN_CLS"}
    return any("Classification" in str(name) for name in config.get("architectures") or ())


def _first_with_weights(folders: list[str]) -> Path | None:
    return next((path for path in (Path(name).expanduser() for name in folders) if _weights_mtime(path)), None)


def _weights_mtime(folder: Path) -> float:
    """Return when the weights of a folder were written, in seconds since 1970; 0 where it has none."""
    if not any((folder / name).is_file() for name in (_ADAPTER_FILE, _MODEL_FILE)):
        return 0.0
    files = (path for path in folder.iterdir() if path.suffix in _WEIGHT_SUFFIXES and path.is_file())
    return max((path.stat().st_mtime for path in files), default=0.0)
