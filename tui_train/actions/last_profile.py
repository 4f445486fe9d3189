"""The last profile, kept from one session to the next."""

from tui_train.base.app_paths import last_profile_file
from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE_FILE_MODE, write_atomically
from tui_train.profile import store
from tui_train.profile.secret_values import SecretPosition, profile_without_secrets
from tui_train.profile.types import Profile


def remember_profile_without_secrets(profile: Profile) -> tuple[SecretPosition, ...]:
    """Write the profile for the next session, and return what is left out, as it is a secret.

    Errors are ignored, as nothing depends on it.
    """
    rest, left = profile_without_secrets(profile)
    try:
        write_atomically(
            last_profile_file(), store.profile_to_toml(store.store_webhook_of_profile(rest)), PRIVATE_FILE_MODE
        )
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
