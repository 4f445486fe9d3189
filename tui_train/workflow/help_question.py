"""How a script is asked for its own --help."""

from pathlib import Path

from msgspec import Struct

from tui_train.base.errors import Unavailable
from tui_train.facts.types import Facts
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import resolve
from tui_train.trainers import takes_field
from tui_train.trainers.script import started


class HelpQuestion(Struct, frozen=True, kw_only=True):
    """How a script is asked for its --help; `key` is its place in Facts.help."""

    key: str
    python: str
    words: tuple[str, ...]
    folder: str


def help_question(profile: Profile, facts: Facts) -> HelpQuestion:
    """Return how the profile's script is asked for its --help; Unavailable where there is none, or no Python for it."""
    resolved = resolve(profile, facts)
    key = started(profile, resolved.preset) if takes_field(profile, "trainer.script") else ""
    if not key:
        raise Unavailable("there is no script to ask", "Name the file that trains.")
    if resolved.toolchain is None:
        raise Unavailable("no Python was found that could run the script", "Choose one (trainer.python).")
    words = ("-m", key) if key == resolved.preset.module else (key,)
    folder = profile.trainer.working_directory or key.rpartition("/")[0] or str(Path.cwd())
    return HelpQuestion(key=key, python=resolved.toolchain.python, words=words, folder=folder)
