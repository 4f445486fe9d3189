"""Change: a named, explained edit of a profile, as data; a remedy, a fallback rung and a fix are all Changes."""

from collections.abc import Collection

from msgspec import Struct

from tui_train.profile import fields
from tui_train.profile.secret_values import displayed_value
from tui_train.profile.types import Profile


class Change(Struct, frozen=True):
    """A named edit of a profile: keys and values (`edits`), and why it helps or what it costs."""

    title: str
    why: str
    edits: tuple[tuple[str, fields.FieldValue], ...]


class ValueDifference(Struct, frozen=True):
    """One value that two profiles do not share, each side as it would be typed, without secrets."""

    key: str
    label: str
    before: str
    after: str


def apply_change(change: Change, profile: Profile) -> Profile:
    """Return the profile with the change made; BadInput when a value is outside its limits."""
    for key, value in change.edits:
        profile = fields.profile_with_value(profile, key, value)
    return profile


def remove_variables_change(profile: Profile, names: Collection[str], why: str) -> Change:
    """Return the change that takes variables out of the training's environment."""
    rest = {name: value for name, value in profile.trainer.environment.items() if name not in names}
    return Change(f"without {', '.join(names)}", why, (("trainer.environment", rest),))


def profile_differences(before: Profile, after: Profile) -> tuple[ValueDifference, ...]:
    """Return what differs, in the order of the fields."""
    return tuple(
        ValueDifference(row.key, row.label, displayed_value(before, row.key), displayed_value(after, row.key))
        for row in fields.FIELDS.values()
        if fields.get_value(before, row.key) != fields.get_value(after, row.key)
    )
