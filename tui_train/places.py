"""Where things are kept: profiles in the user's configuration folder, runs in the state folder (XDG)."""

from pathlib import Path

import platformdirs

_NAME = "tui-train"


def profiles_folder() -> Path:
    """Return the folder of the saved profiles, which may not exist yet."""
    return platformdirs.user_config_path(_NAME) / "profiles"


def runs_folder() -> Path:
    """Return the folder of the run folders, which may not exist yet."""
    return platformdirs.user_state_path(_NAME) / "runs"


def last_profile() -> Path:
    """Return the file that keeps the profile of the last session."""
    return platformdirs.user_state_path(_NAME) / "last.toml"
