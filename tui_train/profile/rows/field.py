"""Field: one choice of a profile, as its key, form row, limits and help."""

from typing import Literal

from msgspec import Struct

FieldKind = Literal[
    "choice", "integer", "integers", "number", "numbers", "switch", "text", "path", "paths", "model", "words", "names",
    "table", "dotted", "webhook", "rewards",
]  # fmt: skip


class Field(Struct, frozen=True, kw_only=True):
    """One choice: `key` is its place in the profile, `empty` says what an empty value means.

    Limits are inclusive, of several numbers for each. An `optional` one may be left to the trainer: it is
    None then.
    """

    key: str
    label: str
    kind: FieldKind
    help: str
    options: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    empty: str = ""
    optional: bool = False
