"""Folders and files of this program (XDG): profiles, presets, runs, environments, caches."""

from pathlib import Path
from urllib.parse import quote

import platformdirs

from tui_train.base.errors import BadInput
from tui_train.base.text import visible

_APP_NAME = "tui-train"


def expand_home(path: str) -> Path:
    """Return a path with a leading `~` expanded; BadInput if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = visible(path.partition("/")[0])
        raise BadInput(f"{user}: no such user", "Give an absolute path.") from None


def profiles_folder() -> Path:
    """Return the folder of the saved profiles, which may not exist yet."""
    return platformdirs.user_config_path(_APP_NAME) / "profiles"


def webhooks_folder() -> Path:
    """Return the folder of the addresses of webhooks, one a file of mode 0600, which may not exist yet."""
    return platformdirs.user_config_path(_APP_NAME) / "webhooks"


def hosts_file() -> Path:
    """Return the file of the hosts that were saved by name, which may not exist yet."""
    return platformdirs.user_config_path(_APP_NAME) / "hosts.toml"


def cluster_defaults_files() -> tuple[Path, ...]:
    """Return the files of defaults for `cluster.*`, the user's before that of the machine; they may not exist."""
    folders = (platformdirs.user_config_path(_APP_NAME), platformdirs.site_config_path(_APP_NAME))
    return tuple(folder / "cluster.toml" for folder in folders)


def presets_folder() -> Path:
    """Return the folder of the user's presets, which may not exist."""
    return platformdirs.user_config_path(_APP_NAME) / "presets"


def runs_folder() -> Path:
    """Return the folder of the run folders, which may not exist yet."""
    return platformdirs.user_state_path(_APP_NAME) / "runs"


def trials_folder() -> Path:
    """Return the folder of the trials of `tune`, which may not exist yet."""
    return platformdirs.user_state_path(_APP_NAME) / "trials"


def card_proof_folder(host: str = "") -> Path:
    """Return the folder of the report of `doctor --cards` on this machine or a host, which may not exist yet."""
    folder = platformdirs.user_state_path(_APP_NAME) / "cards"
    return folder / "hosts" / quote(host, safe="@") if host else folder


def last_profile_file() -> Path:
    """Return the file that keeps the profile of the last session."""
    return platformdirs.user_state_path(_APP_NAME) / "last.toml"


def chosen_pythons_file() -> Path:
    """Return the file of the Pythons that the user chose in folders that may be clones, which may not exist yet."""
    return platformdirs.user_state_path(_APP_NAME) / "pythons.json"


def communication_tests_folder() -> Path:
    """Return the folder of what came of tests of the communication, which may not exist yet."""
    return platformdirs.user_state_path(_APP_NAME) / "communication"


def theme_file() -> Path:
    """Return the file that keeps the name of the chosen colours, which may not exist."""
    return platformdirs.user_state_path(_APP_NAME) / "theme"


def image_facts_folder() -> Path:
    """Return the folder of cached facts of images, which may not exist yet."""
    return platformdirs.user_cache_path(_APP_NAME) / "images"


def data_summaries_folder() -> Path:
    """Return the folder of what was read in training data, which may not exist yet."""
    return platformdirs.user_cache_path(_APP_NAME) / "data"


def script_help_folder() -> Path:
    """Return the folder of what scripts said to --help, which may not exist yet."""
    return platformdirs.user_cache_path(_APP_NAME) / "help"


def faults_log() -> Path:
    """Return the log of internal errors, which may not exist."""
    return platformdirs.user_state_path(_APP_NAME) / "faults.log"


def connections_folder() -> Path:
    """Return the folder of the sockets of shared connections over ssh, which may not exist yet."""
    return platformdirs.user_cache_path(_APP_NAME) / "ssh"
