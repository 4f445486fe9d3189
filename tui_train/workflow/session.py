"""The last profile, kept from one session to the next."""

from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE, write_beside
from tui_train.base.places import last_profile
from tui_train.profile import secret_values, store
from tui_train.profile.types import Profile


def remember(profile: Profile) -> None:
    """Write the profile without secrets for the next session; errors are ignored, as nothing depends on it."""
    try:
        kept = store.with_webhook_kept(secret_values.without(profile))
        write_beside(last_profile(), store.dumps(kept), PRIVATE)
    except TuiTrainError:
        return


def last() -> Profile:
    """Return the profile of the last session, or the default where it cannot be read."""
    try:
        return store.load(str(last_profile()))
    except TuiTrainError:
        return Profile()
