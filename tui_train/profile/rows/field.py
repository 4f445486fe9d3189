"""Field: one choice of a profile, as its key, form row, limits and help."""

from typing import Any, Literal, get_args

from msgspec import Struct

from tui_train.profile.types import Profile

FieldKind = Literal[
    "choice", "integer", "integers", "number", "numbers", "switch", "text", "path", "paths", "model", "words", "names",
    "table", "dotted", "webhook", "rewards",
]  # fmt: skip
_KIND_BY_TYPE: dict[Any, FieldKind] = {
    bool: "switch", int: "integer", float: "number", str: "text", tuple[int, ...]: "integers",
    tuple[float, ...]: "numbers", tuple[str, ...]: "words", dict[str, str]: "table",
}  # fmt: skip


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


def make_field(  # noqa: PLR0913 - each has a default but three
    key: str,
    label: str,
    help_text: str,
    *,
    kind: FieldKind | None = None,
    limits: tuple[float, float] | None = None,
    empty: str = "",
) -> Field:
    """Return the field of a key; what its type in the profile says is not repeated, `kind` says more than that."""
    section, _, name = key.rpartition(".")
    value_type = (Profile.__annotations__[section] if section else Profile).__annotations__[name]
    optional = type(None) in get_args(value_type)
    if optional:
        value_type, _ = get_args(value_type)
    minimum, maximum = limits or (None, None)
    return Field(
        key=key,
        label=label,
        kind=kind or _KIND_BY_TYPE.get(value_type, "choice"),
        help=help_text,
        options=() if value_type in _KIND_BY_TYPE else get_args(value_type),
        minimum=minimum,
        maximum=maximum,
        empty=empty,
        optional=optional,
    )
