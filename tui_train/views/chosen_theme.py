"""The name of the colours that the user chose last, kept from one session to the next."""

from tui_train.base.app_paths import theme_file
from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE_FILE_MODE, write_atomically


def read_chosen_theme_name() -> str:
    """Return the name, empty where none was chosen or it cannot be read."""
    try:
        return theme_file().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def save_chosen_theme_name(name: str) -> None:
    """Keep it for the next session; errors are ignored, as nothing depends on it."""
    try:
        write_atomically(theme_file(), f"{name}\n", PRIVATE_FILE_MODE)
    except TuiTrainError:
        return
