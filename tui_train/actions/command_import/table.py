"""The table of an import: what becomes of each word, and the profile that it makes."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tui_train.actions.command_import.shell import Word
from tui_train.base.errors import BadInput
from tui_train.base.secrets import find_possible_secret_arguments
from tui_train.profile import fields, typed_lists
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, PLACEHOLDER_PATTERN
from tui_train.profile.types import Profile

_APPENDED_KEYS = frozenset({"communication.without", "trainer.secrets", "container.mounts", "slurm.options"})
_KEYS_KNOWN_TO_SLURM = frozenset({"nodes.count", "nodes.address", "nodes.port", "hardware.processes"})
SECRETS_NOT_KEPT_REASON = "looks like a secret, which no profile keeps: trainer.secrets passes a variable"
Outcome = Literal["taken", "argument", "replaced", "not understood"]


class ImportedWords(Struct, frozen=True):
    """Words that belong together, what became of them, and as what (KEY=VALUE), or why."""

    words: str
    outcome: Outcome
    text: str


class Import(Struct, frozen=True):
    """A profile, and what became of each word that it was made of."""

    profile: Profile
    rows: tuple[ImportedWords, ...]


class ImportTable:
    """Makes a profile of words, one after the other; paths are taken from `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profile = fields.profile_with_value(Profile(), "trainer.kind", "script")
        self.rows: list[ImportedWords] = []
        # Folders of the machine by where a container has them, the deepest first.
        self.folder_by_mount: dict[str, str] = {}

    def take(self, words: str, key: str, text: str | Word, why: str = "") -> None:
        """Set a key to a text; where it does not take that, the words are not understood."""
        word = Word(text) if isinstance(text, str) else text
        if word.problem and key in _KEYS_KNOWN_TO_SLURM and self.profile.hardware.scheduler == "slurm":
            self.note_replaced(words, "the job says it to the plan")
            return
        if word.problem:
            self.leave_out(words, word.problem)
            return
        try:
            self.take_value(words, key, self.value_of_text(key, word.text), why)
        except BadInput as error:
            self.leave_out(words, f"{error.message}: {error.remedy}")

    def take_value(self, words: str, key: str, value: fields.FieldValue, why: str = "") -> None:
        """Set a key to a value; BadInput outside its limits."""
        self.take_values(words, {key: value}, why)

    def take_values(self, words: str, value_by_key: Mapping[str, fields.FieldValue], why: str = "") -> None:
        """Set keys to values; BadInput outside their limits. What may be several is added to those before."""
        for key, value in value_by_key.items():
            before, whole = fields.get_value(self.profile, key), value
            if isinstance(value, dict) and isinstance(before, dict):
                whole = {**before, **value}
            elif key in _APPENDED_KEYS and isinstance(value, tuple) and isinstance(before, tuple):
                whole = tuple(dict.fromkeys((*before, *value)))
            self.profile = fields.profile_with_value(self.profile, key, whole)
        edits = " ".join(f"{key}={fields.format_value(value)}" for key, value in value_by_key.items())
        self._add(words, "taken", f"{edits} ({why})" if why else edits)

    def keep_as_arguments(self, options: Iterable[tuple[str, ...]]) -> None:
        """Keep options, each with its value, and other words as arguments of the training."""
        kept: list[str] = []
        for words in options:
            shown = typed_lists.join_values(words)
            name = next(
                (name for name in PLACEHOLDER_PATTERN.findall(" ".join(words)) if name in KEY_BY_PLACEHOLDER), ""
            )
            if name:
                self.leave_out(shown, f"{{{name}}} would be filled in: here it stands for the recipe's")
            elif any(found.certain for found in find_possible_secret_arguments(words)):
                self.leave_out(shown, SECRETS_NOT_KEPT_REASON)
            else:
                kept += words
                self._add(shown, "argument", "passed on as it is")
        all_arguments = (*self.profile.trainer.arguments, *kept)
        self.profile = fields.profile_with_value(self.profile, "trainer.arguments", all_arguments)

    def note_replaced(self, words: str, why: str) -> None:
        """Say what does instead what the words did."""
        self._add(words, "replaced", why)

    def leave_out(self, words: str, why: str) -> None:
        """Say why the words are not understood; nothing of them is in the profile."""
        self._add(words, "not understood", why)

    def keep_in_file(self, words: str) -> None:
        """Say that the plan goes on reading this where it stands."""
        self._add(words, "taken", "kept: the plan reads that file")

    def _add(self, words: str, outcome: Outcome, text: str) -> None:
        self.rows.append(ImportedWords(words, outcome, text))

    def value_of_text(self, key: str, text: str) -> fields.FieldValue:
        """Return a text as the value of a key, relative paths from the folder; BadInput where it is none."""
        row = fields.get_field(key)
        if row.kind in {"path", "model"}:
            path = self.path_on_machine(text) if row.kind == "path" else text
            return fields.value_with_absolute_paths(row, path, self.folder)
        return (text,) if row.kind in {"words", "names"} else fields.parse_value(row, text)

    def path_on_machine(self, path: str) -> str:
        """Return the path on the machine of one in a container; others as they are."""
        whole = str(self.folder / path)
        for mount, folder in self.folder_by_mount.items():
            if whole == mount or whole.startswith(f"{mount.rstrip('/')}/"):
                return folder + whole[len(mount.rstrip("/")) :]
        return path
