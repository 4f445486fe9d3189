"""Defaults of `cluster.*` that a site writes once, for all profiles of its users."""

from pathlib import Path

from tui_train.base.app_paths import cluster_defaults_files
from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile import fields
from tui_train.profile.store import load_profile_file
from tui_train.profile.types import Profile

_SECTION_PREFIX = "cluster."


def with_cluster_defaults(profile: Profile) -> Profile:
    """Return a profile with the defaults of `cluster.*` where it chooses nothing; BadInput for a wrong file.

    The user's file comes before that of the machine.
    """
    for file in cluster_defaults_files():
        for key, value in _read_defaults(file).items():
            if not fields.is_chosen(profile, key):
                profile = fields.profile_with_value(profile, key, value)
    return profile


def _read_defaults(file: Path) -> dict[str, fields.FieldValue]:
    if not file.is_file():
        return {}
    defaults = load_profile_file(str(file))
    keys = fields.chosen_keys(defaults)
    if others := [key for key in keys if not key.startswith(_SECTION_PREFIX)]:
        message = f"{visible(str(file))}: {others[0]} is not a default of clusters"
        raise BadInput(message, "Keep only the section [cluster] in that file.")
    return {key: fields.get_value(defaults, key) for key in keys}
