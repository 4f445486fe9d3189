"""The changes of the profile: each one, what takes it back, and the draft that outlives the session."""

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.timer import Timer

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.profile.types import Profile

from .. import STEPS
from ..discovery.discovery import DiscoveryApp
from ..messages import TYPING_PAUSE_SECONDS, ChangeUndone, SetProfile, ValueChosen

if TYPE_CHECKING:
    from tui_train.profile.changes import Change

_MAX_UNDO_STEPS = 100
_WEBHOOK_KEY = "notify.webhook"


class ProfileEdits:
    """The changes of the app's profile, which is assigned here alone; what a changed one names is looked at."""

    def __init__(self, app: DiscoveryApp) -> None:
        """Begin with the app's profile, unchanged."""
        self._app = app
        self._undo_stack: list[Profile] = []
        self.edited_key = ""  # the one that was changed last; empty where the whole profile was
        self._draft: Profile | None = None
        self._step = self._draft_step = ""  # the step that is shown, and the one on which the draft was left
        self._opened_profile: Profile | None = None  # what the edits began with; None: the default
        self._written: tuple[Profile, str] | None = None
        self._secrets_left_out = ""
        self._write_lock = threading.Lock()
        self._typing_timer: Timer | None = None
        self._model_timer: Timer | None = None

    def set_chosen_value(self, event: ValueChosen) -> None:
        """Set the value of a key; TuiTrainError if it is not allowed."""
        from tui_train.profile import fields

        profile = fields.profile_with_value(self._app.profile, event.key, event.value)
        if event.key == "trainer.python":
            self._remember_chosen_python(profile)
        self.set_profile(profile, event.row or event.key)

    def apply_fix(self, change: "Change") -> None:
        """Apply the fix of a finding, and notify how to undo it."""
        from tui_train.profile.changes import apply_change

        profile = apply_change(change, self._app.profile)
        if any(key == "trainer.python" for key, _ in change.edits):
            self._remember_chosen_python(profile)
        self.set_profile(profile)
        # Only what was done last can be taken back.
        self._app.clear_notifications()
        self._app.notify(visible(f"{change.title}: {change.why}. Ctrl+Z takes it back."), markup=False)

    def _remember_chosen_python(self, profile: Profile) -> None:
        """Remember the Python that the user chose, and look at it where it was not started before."""
        from tui_train.facts.machine import trusted_pythons

        python = profile.trainer.python
        if self._app.other_machine_name or not python:
            return
        trusted_pythons.remember_chosen_python(python)
        if self._app.facts and any(tool.unchosen and tool.python == python for tool in self._app.facts.toolchains):
            # The questions are answered for the profile that is assigned next.
            self._app.call_later(self._app.refresh_parts, "toolchains")

    def set_posted_profile(self, event: SetProfile) -> None:
        """Replace the profile: by one that was opened or saved, a draft, or that of a run."""
        self.set_profile(event.profile, save_as_draft=event.save_as_draft)
        if event.run or not event.save_as_draft:
            self._app.run_being_edited = event.run
        if event.is_saved:
            self._opened_profile = event.profile

    def continue_draft(self) -> str:
        """Replace the profile by the draft of this session or the last one, and return the step to open."""
        from tui_train.actions.last_profile import load_last_session_profile, load_last_session_step

        if self._draft is None:
            self._draft, self._draft_step = load_last_session_profile(), load_last_session_step()
            self._written = self._draft, self._draft_step
        self.set_profile(self._draft, save_as_draft=False)
        return self._draft_step if self._draft_step in {step.module for step in STEPS[:-1]} else STEPS[0].module

    def note_step(self, module: str, *, goes_back: bool = False) -> None:
        """Note which step is shown: the draft is continued there, unless one `goes_back` through it."""
        self._step = module
        if self._draft == self._app.profile and not goes_back:
            self._draft_step = module

    def set_profile(self, profile: Profile, key: str = "", *, save_as_draft: bool = True) -> None:
        """Make this the profile; the one before can be had back, that before all edits of one key in a row.

        Without `save_as_draft` it is only opened, and takes the place of no draft until it is edited.
        """
        if not save_as_draft:
            self._opened_profile = profile
        if profile == self._app.profile:
            return
        if not save_as_draft:
            # What was edited before is another training: it is had back by its own name, or as the draft.
            self._undo_stack = []
        elif not key or key != self.edited_key:
            self._undo_stack = [*self._undo_stack[-_MAX_UNDO_STEPS:], self._app.profile]
        self.edited_key = key
        if key != _WEBHOOK_KEY:
            profile = self._profile_with_stored_webhook(profile)
        if save_as_draft:
            self._draft, self._draft_step = profile, self._step
        self._assign_profile_and_query(profile)

    def _profile_with_stored_webhook(self, profile: Profile) -> Profile:
        """Return the profile with the webhook's address in a file, once all of it was typed; said if that fails."""
        from tui_train.profile.store import store_webhook_of_profile

        try:
            return store_webhook_of_profile(profile)
        except TuiTrainError as error:
            self._app.show_error(error)
            return profile

    @property
    def is_edited(self) -> bool:
        """True where the profile is another one than was opened."""
        return self._app.profile != (self._opened_profile or Profile())

    def undo(self) -> None:
        """Undo the last change."""
        from tui_train.profile.changes import profile_differences

        self.edited_key = ""
        now = self._app.profile
        if self._undo_stack:
            self._assign_profile_and_query(self._undo_stack.pop())
            self._draft = self._app.profile
        else:
            self._app.bell()
        self._app.screen.post_message(ChangeUndone(profile_differences(now, self._app.profile)))

    def _assign_profile_and_query(self, profile: Profile) -> None:
        before = self._app.profile
        if _machine_deciding_values(profile) != _machine_deciding_values(before) and not self._app.is_machine_fixed:
            self._app.profile = profile
            self._app.forget_machine_and_query()
            return
        parts = self._facts_parts_affected(profile, before)
        self._app.mark_parts_awaited(*parts)
        self._app.profile = profile
        self._app.use_node_slurm_would_allocate()
        if self._app.other_machine_name:
            if parts and self._typing_timer:
                self._typing_timer.stop()
            if parts:
                self._typing_timer = self._app.set_timer(TYPING_PAUSE_SECONDS, partial(self._app.query_parts, *parts))
            return
        if "images" in parts and self._typing_timer:
            self._typing_timer.stop()
        if "images" in parts and self.edited_key == "container.image":
            # Half a name may be that of another image: one that is typed is looked at once it stands.
            self._typing_timer = self._app.set_timer(TYPING_PAUSE_SECONDS, partial(self._app.query_parts, "images"))
            parts.remove("images")
        self._app.query_parts(*parts)
        if _model_deciding_values(profile) != _model_deciding_values(before):
            if self._model_timer:
                self._model_timer.stop()
            # Half an id may be that of another model.
            self._model_timer = self._app.set_timer(TYPING_PAUSE_SECONDS, self._app.query_hub_if_model_unknown)

    def _facts_parts_affected(self, profile: Profile, previous: Profile) -> list[str]:
        """Return the parts of the facts that a changed profile asks for."""
        from tui_train.trainers import profile_paths_to_check

        known = {tool.python for tool in self._app.facts.toolchains} if self._app.facts else set()
        python = profile.trainer.python
        changed = {
            "paths": (profile_paths_to_check(profile), *_model_deciding_values(profile))
            != (profile_paths_to_check(previous), *_model_deciding_values(previous)),
            "hub": _hub_deciding_values(profile) != _hub_deciding_values(previous),
            "toolchains": python != previous.trainer.python and python not in {"", *known},
            "images": _image_deciding_values(profile) != _image_deciding_values(previous),
            "resources_in_use": profile.nodes != previous.nodes,
        }
        if self._app.other_machine_name:
            # One answer brings all that is known of it, and half a path is not worth asking a host for.
            asks_again = any(changed[part] for part in ("paths", "hub", "toolchains", "images"))
            return ["machine"] if asks_again else []
        return [part for part, differs in changed.items() if differs]

    def save_draft_in_background(self) -> None:
        """Remember the profile while nobody waits for it, so that a lost connection does not lose it."""
        self.set_profile(self._profile_with_stored_webhook(self._app.profile), _WEBHOOK_KEY)
        if self._draft and (self._draft, self._draft_step) != self._written:
            self._run_draft_worker(self._write_draft_and_warn)

    def forget_started_draft(self) -> None:
        """Forget the draft if a run of it was started, whose folder has the profile."""
        started = self._app.profile
        self._draft = None if self._draft == started else self._draft
        self._run_draft_worker(partial(self._remove_stored_draft, started))

    def _run_draft_worker(self, work: Callable[[], None]) -> None:
        self._app.run_worker(work, name="draft", group="draft", thread=True)

    def _remove_stored_draft(self, started: Profile) -> None:
        from tui_train.actions.last_profile import forget_last_profile

        with self._write_lock:
            if forget_last_profile(started):
                self._written = None

    def _write_draft_and_warn(self) -> None:
        if said := self.write_draft_and_name_lost_secrets():
            self._app.notify(said, severity="warning", markup=False)

    def write_draft_and_name_lost_secrets(self) -> str:
        """Remember the profile; return which secrets in it are not kept, unless that was said before."""
        from tui_train.actions.last_profile import remember_profile_without_secrets

        with self._write_lock:
            kept, step = self._draft, self._draft_step
            if kept is None or (kept, step) == self._written:
                return ""
            left = ", ".join(
                dict.fromkeys(visible(secret.description) for secret in remember_profile_without_secrets(kept, step))
            )
            self._written = kept, step
            said = left != self._secrets_left_out
            self._secrets_left_out = left
            return f"Not kept for the next session, as it looks like a secret: {left}" if left and said else ""


def _machine_deciding_values(profile: Profile) -> object:
    return profile.hardware.host, profile.hardware.scheduler


def _hub_deciding_values(profile: Profile) -> object:
    """Return the values on which the place of Hugging Face models depends."""
    from tui_train.facts.models.hub import cache_location_variables

    return cache_location_variables(profile), profile.container.engine


def _model_deciding_values(profile: Profile) -> tuple[str, str]:
    return profile.trainer.model, profile.trainer.revision


def _image_deciding_values(profile: Profile) -> tuple[str, str]:
    return profile.container.engine, profile.container.image
