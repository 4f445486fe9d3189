"""Model card of a result, as the Hugging Face Hub reads it: a head in YAML, and the facts of the run in Markdown.

A card that TRL wrote, or somebody by hand, is kept and completed; PEFT's form, which nobody filled in, is replaced.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct

from tui_train.base.parse import text_or_empty
from tui_train.base.secrets import mask_secrets
from tui_train.base.text import visible
from tui_train.programs import hub_cache

_OWN_TAG = "tui-train"
_UNFILLED_FORM_TEXT = "[More Information Needed]"
_CITATIONS_HEADING = "\n## Citations\n"
_MARKDOWN_SIGNS_PATTERN = re.compile(r"([\\`*\[\]<>|])")
_TRL_TITLE_PATTERN = re.compile(r"\A\s*# Model Card for .*")
_TRL_MODEL_PATTERN = re.compile(r'(pipeline\("[\w-]+", model=)"[^"\n]*"')
_TRL_UNKNOWN_BASE_TEXT = "[None](https://huggingface.co/None)"


class ModelCardFacts(Struct, frozen=True, kw_only=True):
    """What a card says of a result that goes into `repo`.

    `base` is the base model's id on the Hub (empty: none is known there), `license` what its card says of the licence;
    `facts` and `settings` are labels with words. `local_paths` are replaced by names where a written card has them.
    """

    repo: str
    base: str = ""
    revision: str = ""
    license: dict[str, str] = {}
    is_adapter: bool = False
    pipeline: str = ""
    datasets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    local_paths: tuple[str, ...] = ()


def model_card_text(facts: ModelCardFacts, written_head: dict[str, Any], written_text: str) -> str:
    """Return the card of a result, without secrets and local paths.

    Beside the weights lies one whose head has these values, and this text; both are empty where there is none.
    """
    is_kept = bool(written_text.strip()) and _UNFILLED_FORM_TEXT not in written_text
    before, heading, after = (
        _completed_text(facts, written_text) if is_kept else _generated_card_text(facts)
    ).partition(_CITATIONS_HEADING)
    body = "\n\n".join((before.strip(), "\n".join(_run_section_lines(facts)))) + "\n"
    head = "\n".join(_head_lines(facts, written_head))
    return mask_secrets(f"---\n{head}\n---\n\n{body}{heading}{after}")[0]


def _head_lines(facts: ModelCardFacts, written: dict[str, Any]) -> Iterator[str]:
    """Yield the head's lines; JSON's texts are YAML's too."""
    pipeline = facts.pipeline or text_or_empty(written.get("pipeline_tag"))
    values = {
        "base_model": facts.base,
        "library_name": "peft" if facts.is_adapter else "transformers",
        **{name: _absolute_license_link(facts, text) for name, text in facts.license.items()},
        "pipeline_tag": pipeline,
    }
    yield from (f"{name}: {_yaml_text(text)}" for name, text in values.items() if text)
    datasets = [name for name in (*facts.datasets, *_texts_in_value(written.get("datasets"))) if is_hub_id(name)]
    # The Hub itself names the base in a tag; PEFT does so by a path where the base is a folder.
    tags = [tag for tag in _texts_in_value(written.get("tags")) if "/" not in tag and ":" not in tag]
    for name, texts in (("datasets", datasets), ("tags", [*tags, *facts.tags, _OWN_TAG])):
        if texts:
            yield f"{name}:"
            yield from (f"- {_yaml_text(text)}" for text in dict.fromkeys(texts))


def is_hub_id(text: str) -> bool:
    """Return whether a text can be ORG/NAME on the Hub."""
    return text.count("/") == 1 and hub_cache.is_valid_model_id(text)


def _absolute_license_link(facts: ModelCardFacts, text: str) -> str:
    """Return a value of a licence; a link to a file of the base model's repository leads there."""
    is_link = text == facts.license.get("license_link")
    return f"https://huggingface.co/{facts.base}/blob/main/{text}" if is_link and "://" not in text else text


def _yaml_text(text: str) -> str:
    return json.dumps(visible(text), ensure_ascii=False)


def _texts_in_value(value: Any) -> list[str]:
    return (
        [each for each in value if isinstance(each, str)]
        if isinstance(value, list)
        else [*filter(None, [text_or_empty(value)])]
    )


def _completed_text(facts: ModelCardFacts, text: str) -> str:
    """Return a card's text with what its writer did not know: the repository, and the base where that was a folder."""
    text = _TRL_TITLE_PATTERN.sub(lambda _: f"# Model Card for {_repo_name(facts)}", text, count=1)
    text = _TRL_MODEL_PATTERN.sub(lambda match: f'{match[1]}"{facts.repo}"', text)
    text = text.replace(_TRL_UNKNOWN_BASE_TEXT, _base_model_link(facts) or "a base model that is not on the Hub")
    for path in sorted(filter(None, facts.local_paths), key=len, reverse=True):
        text = text.replace(path, PurePosixPath(path).name)
    return text


def _generated_card_text(facts: ModelCardFacts) -> str:
    kind = "adapter" if facts.is_adapter else "model"
    of = f", fine-tuned from {base}" if (base := _base_model_link(facts)) else ""
    text = f"# {_repo_name(facts)}\n\nThis is {'an' if facts.is_adapter else 'a'} {kind}{of}.\n"
    if facts.pipeline == "text-generation":
        load = f'pipeline("text-generation", model="{facts.repo}", device_map="auto")'
        text += f"\n```python\nfrom transformers import pipeline\n\ngenerator = {load}\n```\n"
    return text


def _repo_name(facts: ModelCardFacts) -> str:
    return facts.repo.rpartition("/")[2]


def _base_model_link(facts: ModelCardFacts) -> str:
    return f"[{facts.base}](https://huggingface.co/{facts.base})" if facts.base else ""


def _run_section_lines(facts: ModelCardFacts) -> Iterator[str]:
    yield "## The training run"
    yield ""
    rows = list(facts.facts)
    if facts.license.get("license"):
        rows.insert(0, ("Licence of the base model", facts.license.get("license_name") or facts.license["license"]))
    base = f"{_base_model_link(facts)}{f', revision {_escaped(facts.revision)}' if facts.revision else ''}"
    first = [f"| Base model | {base} |"] if facts.base else []
    yield from ("| | |", "|---|---|", *first, *_table_rows(rows))
    if facts.settings:
        yield from ("", "| Setting | Value |", "|---|---|", *_table_rows(facts.settings))


def _table_rows(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    return (f"| {_escaped(label)} | {_escaped(words)} |" for label, words in rows)


def _escaped(text: str) -> str:
    """Return words of a table's cell, in which nothing is Markdown."""
    return _MARKDOWN_SIGNS_PATTERN.sub(r"\\\1", " ".join(visible(text).split()))
