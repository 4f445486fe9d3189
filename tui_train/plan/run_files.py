"""Files of a run by name, and one of them as text; viewers of a run folder need no more of a plan."""

from msgspec import Struct

LAUNCH_SCRIPT_FILE_NAME = "launch.sh"
PROFILE_FILE_NAME = "profile.toml"
PLAN_JSON_FILE_NAME = "plan.json"
RUNNER_ZIP_FILE_NAME = "runner.pyz"


class RenderedFile(Struct, frozen=True):
    """A file by its path in the run folder, and its text.

    data: its bytes, where they are no text; the text then says what they hold.
    """

    path: str
    text: str
    data: bytes = b""

    @property
    def content(self) -> bytes:
        """Its bytes."""
        return self.data or self.text.encode()


class LogReadingRules(Struct, frozen=True):
    """Rules to read a trainer's log lines: regular expressions with named groups; `steps` is 0 if not known.

    `nameable`: where none fits, the profile's trainer.progress can be one.
    """

    expressions: tuple[str, ...] = ()
    steps: int = 0
    nameable: bool = False
