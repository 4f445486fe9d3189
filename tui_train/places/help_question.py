"""Question for a script's own --help, and when it is asked unrequested."""

from pathlib import Path

from msgspec import Struct

from tui_train.base.errors import BadInput, Unavailable
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.types import AUTO_PRESET, Profile
from tui_train.trainers import trainer_has_own_field
from tui_train.trainers.script import script_or_module_to_start


class ScriptHelpQuestion(Struct, frozen=True, kw_only=True):
    """The command that prints a script's --help; `key` is its key in Facts.help."""

    key: str
    python: str
    words: tuple[str, ...]
    folder: str


def script_help_question(profile: Profile, facts: Facts) -> ScriptHelpQuestion:
    """Return the command that prints the --help of the profile's script; Unavailable without a script or a Python."""
    setup = make_setup(profile, facts)
    key = script_or_module_to_start(profile, setup.preset) if trainer_has_own_field(profile, "trainer.script") else ""
    if not key:
        raise Unavailable("no script is set", "Name the Python file that trains (trainer.script).")
    if setup.toolchain is None:
        raise Unavailable("no Python was found that could run the script", "Choose a Python (trainer.python).")
    words = ("-m", key) if key == setup.preset.module else (key,)
    folder = profile.trainer.working_directory or key.rpartition("/")[0] or str(Path.cwd())
    return ScriptHelpQuestion(key=key, python=setup.toolchain.python, words=words, folder=folder)


def script_help_question_for_auto_preset(profile: Profile, facts: Facts) -> ScriptHelpQuestion | None:
    """Return the question by which the preset `auto` learns what the source of a script leaves open; None for none."""
    source = facts.sources.get(profile.trainer.script)
    if (
        profile.trainer.preset != AUTO_PRESET
        or source is None
        or not source.help_may_say_more
        or profile.container.engine != "none"
    ):
        return None
    try:
        question = script_help_question(profile, facts)
    except (BadInput, Unavailable):
        return None
    return question if question.key == profile.trainer.script and question.key not in facts.help else None
