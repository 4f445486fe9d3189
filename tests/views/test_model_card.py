"""Model cards: read by the library that the Hub has, what TRL wrote completed, and nothing in them that is private."""

import pytest
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st

from tui_train.views.model_card import ModelCardFacts, is_hub_id, model_card_text

TRL_TEXT = """
# Model Card for output

This model is a fine-tuned version of [None](https://huggingface.co/None).
It has been trained using [TRL](https://github.com/huggingface/trl).

## Quick start

```python
from transformers import pipeline
generator = pipeline("text-generation", model="None", device_map="auto")
```

## Training procedure

Its data were /home/ann/secret-project/train.jsonl.

## Citations

Cite TRL as:
"""
TRL_HEAD = {
    "base_model": "/home/ann/models/base",
    "library_name": "peft",
    "model_name": "output",
    "licence": "license",
    "pipeline_tag": "text-generation",
    "datasets": ["org/rows", "/home/ann/rows"],
    "tags": ["base_model:adapter:/home/ann/models/base", "lora", "sft", "trl"],
}
FACTS = ModelCardFacts(
    repo="acme/tiny",
    base="org/base",
    license={"license": "other", "license_name": "base-1", "license_link": "LICENSE"},
    is_adapter=True,
    tags=("sft",),
    facts=(("Data", "a|b`*.jsonl"),),
    settings=(("Seed", "42"),),
    local_paths=("/home/ann/secret-project/train.jsonl", "/home/ann/secret-project"),
)


def test_what_trl_wrote_is_kept_and_completed():
    card = ModelCard(model_card_text(FACTS, TRL_HEAD, TRL_TEXT))
    assert card.data.to_dict() == {
        "base_model": "org/base",
        "library_name": "peft",
        "license": "other",
        "license_name": "base-1",
        "license_link": "https://huggingface.co/org/base/blob/main/LICENSE",
        "pipeline_tag": "text-generation",
        "datasets": ["org/rows"],
        "tags": ["lora", "sft", "trl", "tui-train"],
    }
    assert card.text.startswith("\n# Model Card for tiny\n\nThis model is a fine-tuned version of [org/base]")
    assert 'pipeline("text-generation", model="acme/tiny", device_map="auto")' in card.text
    assert "Its data were train.jsonl." in card.text
    assert "/home/ann" not in str(card)
    assert "| Data | a\\|b\\`\\*.jsonl |" in card.text
    assert card.text.index("| Seed | 42 |") < card.text.index("## Citations")
    assert card.text.endswith("Cite TRL as:\n")


@pytest.mark.parametrize("text", ["", " \n", "# Model Card for Model ID\n\n[More Information Needed]\n"])
def test_a_card_that_nobody_filled_in_is_written_anew(text):
    card = ModelCard(model_card_text(FACTS, {"tags": "lora"}, text))
    assert card.text.startswith("\n# tiny\n\nThis is an adapter, fine-tuned from [org/base]")
    assert "More Information" not in card.text
    assert card.data.tags == ["lora", "sft", "tui-train"]


def test_a_card_written_by_hand_stays():
    card = model_card_text(ModelCardFacts(repo="acme/tiny"), {}, "# My model\n\nIt speaks Latin.\n")
    assert card.startswith(
        '---\nlibrary_name: "transformers"\ntags:\n- "tui-train"\n---\n\n# My model\n\nIt speaks Latin.'
    )


def test_a_secret_in_a_card_is_masked_and_a_hash_is_not():
    digest, token = "sha256:" + "0a1b2c3d" * 8, "hf_" + "Ab1" * 11 + "Z"
    facts = ModelCardFacts(repo="acme/tiny", facts=(("Data", f"x.jsonl, {digest}"),))
    card = model_card_text(facts, {}, f"See https://ann:{token}@example.org")
    assert token not in card
    assert digest in card


@given(
    st.text(), st.dictionaries(st.sampled_from(["tags", "datasets", "pipeline_tag"]), st.text() | st.lists(st.text()))
)
def test_the_head_is_yaml_whatever_was_written(text, head):
    facts = ModelCardFacts(repo="acme/tiny", license={"license": text}, tags=(text,), facts=((text, text),))
    card = ModelCard(model_card_text(facts, head, text))
    assert card.data.library_name == "transformers"
    assert "tui-train" in card.data.tags
    assert "## The training run" in card.text


@pytest.mark.parametrize(
    ("text", "valid"),
    [("org/name", True), ("name", False), ("a/b/c", False), ("/abs", False), ("../x", False), ("org/", False)],
)
def test_an_id_of_the_hub(text, valid):
    assert is_hub_id(text) == valid
