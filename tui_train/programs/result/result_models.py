"""The models that a request names, loaded: a result, and its base where that is compared with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import result_load as load
from result_load import MessagePipe, RefusedError


class LoadedModels:
    """A result and its base; an adapter's base is the same weights without it."""

    def __init__(self, request: dict[str, Any], messages: MessagePipe) -> None:
        """Load what `folder`, `adapter`, `base`, `revision`, `compare`, `device` and `trusted` of a request name."""
        self._adapter = bool(request["adapter"])
        self._processor_by_side: dict[str, Any] = {}
        folder, base, revision = request["folder"], request["base"], request["revision"]
        self._trusted = bool(request["trusted"])
        base_folder = load.find_model_folder(base, revision) if base and (self._adapter or request["compare"]) else ""
        self._folders_by_side = {"result": (folder, base_folder), "base": (base_folder,)}
        self.tokenizers = {"result": load.load_tokenizer(folder, base_folder, trusted=self._trusted)}
        messages.send("loading", what=base if self._adapter else folder)
        loaded = self._load_model(base_folder if self._adapter else folder, request["device"])
        self.compares = bool(request["compare"] and base_folder)
        if self._adapter:
            self.result = load.add_adapter(loaded, folder, len(self.tokenizers["result"]))
            self._base, self.tokenizers["base"] = self.result, self.tokenizers["result"]
        else:
            self.result = self._base = loaded
            if self.compares:
                messages.send("loading", what=base)
                self._base = self._load_model(base_folder, request["device"])
                self.tokenizers["base"] = self._load_base_tokenizer(base_folder)

    @contextlib.contextmanager
    def using(self, side: str) -> Iterator[tuple[Any, Any]]:
        """Give the model and the tokenizer of a side, `result` or `base`."""
        import torch

        bare = self.result.disable_adapter() if side == "base" and self._adapter else contextlib.nullcontext()
        with torch.inference_mode(), bare:
            yield (self._base if side == "base" else self.result), self.tokenizers[side]

    @property
    def sees_images(self) -> bool:
        """Whether the result has a vision tower."""
        return hasattr(self.result.config, "vision_config")

    def processor(self, side: str) -> Any:
        """Return the processor of images of a side; RefusedError for a model that sees none."""
        if not self.sees_images:
            raise RefusedError("picture", "the model reads text only")
        if side not in self._processor_by_side:
            folders = self._folders_by_side[side]
            self._processor_by_side[side] = load.load_processor(*folders, trusted=self._trusted)
        return self._processor_by_side[side]

    def _load_model(self, folder: str, device: str) -> Any:
        return load.load_model(folder, device, trusted=self._trusted)

    def _load_base_tokenizer(self, folder: str) -> Any:
        """Return the base's own tokenizer; without a chat template it takes the result's."""
        tokenizer = load.load_tokenizer(folder, trusted=self._trusted)
        if not tokenizer.chat_template:
            tokenizer.chat_template = self.tokenizers["result"].chat_template
        return tokenizer


def max_tokens_of_model(model: Any) -> int:
    """Return how many tokens a model takes, 0 where its configuration does not say."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 0


def generation_options(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Return how a model answers: greedily, up to its own end or that of a turn of its chat template."""
    own = model.generation_config.eos_token_id
    known = own if isinstance(own, list) else [own]
    numbers = (*known, tokenizer.eos_token_id, load.turn_end_token_id(tokenizer))
    ends = [number for number in dict.fromkeys(numbers) if number is not None]
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None or not ends else ends[0]
    options: dict[str, Any] = {"do_sample": False, "num_beams": 1, "pad_token_id": padding}
    return options | ({"eos_token_id": ends} if ends else {})
