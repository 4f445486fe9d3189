"""Installation: an environment that is being made, as the screens show it."""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tui_train.actions.environments.progress import InstallProgress


class Installation(Struct, frozen=True, kw_only=True):
    """An environment that is being made: what is installed and where, what is done now, the last lines, how it ended.

    `host` is where, empty for this machine; `python` is the finished one, `failure` why there is none.
    """

    title: str
    began_at: float
    host: str = ""
    folder: str = ""
    progress: "InstallProgress | None" = None
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    python: str = ""
    failure: str = ""

    @property
    def current_action_text(self) -> str:
        """Current action, in a sentence."""
        progress = self.progress
        if progress is None:
            return "Making the environment …"
        return f"{progress.text.removesuffix(' …')} …"

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return not self.python and not self.failure
