"""What is kept from one session to the next: the last profile."""

from tui_train.base import secrets
from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE, write_beside
from tui_train.base.places import last_profile
from tui_train.profile import fields, store
from tui_train.profile.types import Profile


def remember(profile: Profile) -> None:
    """Keep the profile without secrets for the next session, if it can be written; nothing else depends on it."""
    hidden = store.secret_entries(profile)
    values = {name: value for name, value in profile.trainer.environment.items() if name not in hidden}
    kept = fields.put(profile, "trainer.environment", values)
    if any(sure for _, _, sure in secrets.in_words(profile.trainer.arguments)):
        kept = fields.put(kept, "trainer.arguments", ())
    try:
        write_beside(last_profile(), store.dumps(kept), PRIVATE)
    except TuiTrainError:
        return


def last() -> Profile:
    """Return the profile of the last session, the default where there is none that can be read."""
    try:
        return store.load(str(last_profile()))
    except TuiTrainError:
        return Profile()
