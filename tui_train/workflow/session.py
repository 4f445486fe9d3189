"""The last profile, kept from one session to the next."""

from tui_train.base import secrets
from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE, write_beside
from tui_train.base.places import last_profile
from tui_train.profile import fields, store
from tui_train.profile.types import Profile


def remember(profile: Profile) -> None:
    """Write the profile without secrets for the next session; errors are ignored, as nothing depends on it."""
    hidden = store.secret_entries(profile)
    values = {name: value for name, value in profile.trainer.environment.items() if name not in hidden}
    without_secrets = fields.put(profile, "trainer.environment", values)
    if any(sure for _, _, sure in secrets.in_words(profile.trainer.arguments)):
        without_secrets = fields.put(without_secrets, "trainer.arguments", ())
    try:
        write_beside(last_profile(), store.dumps(without_secrets), PRIVATE)
    except TuiTrainError:
        return


def last() -> Profile:
    """Return the profile of the last session, or the default where it cannot be read."""
    try:
        return store.load(str(last_profile()))
    except TuiTrainError:
        return Profile()
