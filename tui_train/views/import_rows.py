"""What became of the words of an import, as rows that are safe to show."""

from collections.abc import Iterable

from tui_train.actions.command_import.table import ImportedWords
from tui_train.base.secrets import mask_secrets
from tui_train.base.text import visible


def displayed_import_rows(rows: Iterable[ImportedWords]) -> list[tuple[str, str, str]]:
    """Return words, outcome and reason of each row, without secrets."""
    return [(_text_without_secrets(row.words), row.outcome, _text_without_secrets(row.text)) for row in rows]


def _text_without_secrets(text: str) -> str:
    # Of a secret that is passed by name only the name stands there.
    return visible(text if text.startswith("trainer.secrets=") else mask_secrets(text)[0])
