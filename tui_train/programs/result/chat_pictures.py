"""Messages with pictures, as the model's own processor makes them."""

from __future__ import annotations

from typing import Any

import data_images as images
import data_template as template
from result_load import RefusedError, first_nonblank_line


def encode_messages_with_pictures(
    processor: Any, tokenizer: Any, messages: list[dict[str, Any]], model: Any
) -> dict[str, Any]:
    """Return messages, each with its `images` (paths, or base64 as data URLs) before its text, as the model gets them.

    RefusedError for a picture that cannot be looked at or that the processor refuses, and for a model without a chat
    template, which has its place.
    """
    own = processor.chat_template or tokenizer.chat_template
    if not own:
        raise RefusedError("prompt", "the model has no chat template, which tells where a picture stands")
    sources = [source for message in messages for source in message.get("images", ())]
    for source in sources:
        if problem := images.inspect_image_source(source).problem:
            raise RefusedError("picture", f"it {problem}")
    turns = [
        {
            "role": message["role"],
            "content": [
                *({"type": "image"} for _ in message.get("images", ())),
                {"type": "text", "text": message["content"]},
            ],
        }
        for message in messages
    ]
    more = {"chat_template": own, "add_generation_prompt": True}
    template.check_messages_render(tokenizer, turns, more)
    text = tokenizer.apply_chat_template(turns, tokenize=False, **more)
    pixels = [images.upright_image(source) for source in sources]
    try:
        made = processor(text=[text], images=pixels, add_special_tokens=False, return_tensors="pt")
    except ValueError as error:  # such as of a shape that it takes of none
        raise RefusedError("picture", first_nonblank_line(error)) from None
    return {
        name: value.to(model.device, model.dtype if value.is_floating_point() else None) for name, value in made.items()
    }
