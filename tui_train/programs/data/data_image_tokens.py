"""Counts the tokens of images by the model's own processor."""

from __future__ import annotations

from typing import Any

import data_images as images
import data_template as template


class TextOnlyError(Exception):
    """A model that reads no images."""


class ImageTokenExpander:
    """A model's processor, by which a placeholder in the tokens of a row becomes as many tokens as its image has."""

    def __init__(self, model: str, revision: str, max_pixels: int) -> None:
        """Load the processor; TextOnlyError for a model without one, any other error where it cannot be loaded."""
        from transformers import AutoProcessor

        self._processor: Any = AutoProcessor.from_pretrained(model, **template.from_pretrained_options(revision))
        if getattr(self._processor, "image_processor", None) is None:
            raise TextOnlyError("the model reads text only")
        if not hasattr(self._processor, "_get_num_multimodal_tokens"):
            raise RuntimeError(f"{type(self._processor).__name__} does not tell how many tokens an image has")
        self._max_pixels = max_pixels
        self.token_id = int(self._processor.image_token_id)

    def expanded(self, sequence: template.EncodedSequence, row: dict[str, Any]) -> template.EncodedSequence:
        """Return a sequence with all the tokens of its images; ValueError where it has not a place for each."""
        looks = [images.inspect_image_source(source) for source in row.get("images") or ()]
        sizes = [images.fitted_size(look.width, look.height, self._max_pixels) for look in looks]
        counts = self._token_counts([(height, width) for width, height in sizes]) if sizes else []
        if sequence.ids.count(self.token_id) != len(counts):
            found = sequence.ids.count(self.token_id)
            raise ValueError(f"the chat template writes {found} places for {len(counts)} images")
        ids: list[int] = []
        learned: list[bool] = []
        waiting = iter(counts)
        for token, learns in zip(sequence.ids, sequence.learned, strict=True):
            times = next(waiting) if token == self.token_id else 1
            ids += [token] * times
            learned += [learns] * times
        return template.EncodedSequence(ids, learned)

    def _token_counts(self, sizes: list[tuple[int, int]]) -> list[int]:
        made = self._processor._get_num_multimodal_tokens(image_sizes=sizes)  # noqa: SLF001 - as vLLM asks it
        return list(made["num_image_tokens"] if isinstance(made, dict) else made.num_image_tokens)

    def is_repeated_image_token(self, ids: list[int], at: int) -> bool:
        """Return whether a token is one more of the same image, which need not be shown."""
        return at > 0 and ids[at] == ids[at - 1] == self.token_id
