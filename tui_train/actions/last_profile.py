"""The last profile, kept from one session to the next, and the step of the wizard on which it was left."""

from tui_train.base.app_paths import last_profile_file
from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE_FILE_MODE, read_regular_file, write_atomically
from tui_train.profile import store
from tui_train.profile.secret_values import SecretPosition, profile_without_secrets
from tui_train.profile.types import Profile

_STEP_COMMENT = "# left on "  # the first line of the file
_MAX_BYTES = 1 << 20


def remember_profile_without_secrets(profile: Profile, step: str = "") -> tuple[SecretPosition, ...]:
    """Write the profile and its step for the next session, and return what is left out, as it is a secret.

    Errors are ignored, as nothing depends on it.
    """
    rest, left = profile_without_secrets(profile)
    try:
        text = f"{_STEP_COMMENT}{step}\n" if step else ""
        text += store.profile_to_toml(store.store_webhook_of_profile(rest))
        write_atomically(last_profile_file(), text, PRIVATE_FILE_MODE)
    except TuiTrainError:
        return ()
    return left


def forget_last_profile(profile: Profile) -> bool:
    """Remove the last profile where it is this one, but for its secrets; return whether it was."""
    rest, _ = profile_without_secrets(profile)
    try:
        if load_last_session_profile() != store.store_webhook_of_profile(rest):
            return False
        last_profile_file().unlink(missing_ok=True)
    except (TuiTrainError, OSError):
        return False
    return True


def load_last_session_profile() -> Profile:
    """Return the profile of the last session, or the default where it cannot be read."""
    try:
        return store.load_profile_file(str(last_profile_file()))
    except TuiTrainError:
        return Profile()


def load_last_session_step() -> str:
    """Return the step on which the last profile was left, as the file has it; empty where it is not known."""
    try:
        line, _, _ = read_regular_file(last_profile_file(), _MAX_BYTES).decode(errors="replace").partition("\n")
    except OSError:
        return ""
    return line.removeprefix(_STEP_COMMENT) if line.startswith(_STEP_COMMENT) else ""
