"""The last profile, kept from one session to the next."""

from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE, write_beside
from tui_train.base.places import last_profile
from tui_train.profile import store
from tui_train.profile.secret_values import SecretValue, without_secrets
from tui_train.profile.types import Profile


def remember(profile: Profile) -> tuple[SecretValue, ...]:
    """Write the profile for the next session, and return what is left out, as it is a secret.

    Errors are ignored, as nothing depends on it.
    """
    rest, left = without_secrets(profile)
    try:
        write_beside(last_profile(), store.dumps(store.with_webhook_stored(rest)), PRIVATE)
    except TuiTrainError:
        return ()
    return left


def last() -> Profile:
    """Return the profile of the last session, or the default where it cannot be read."""
    try:
        return store.load(str(last_profile()))
    except TuiTrainError:
        return Profile()
