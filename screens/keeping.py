"""The part of the wizard that keeps the profile: each change of it, what takes one back, and the last values."""

import threading
from functools import partial
from typing import TYPE_CHECKING

from textual import on, work
from textual.timer import Timer

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.profile.types import Profile

from .looking import Looking
from .messages import ApplyFix, Become, Chosen, StartOver, Undo, Undone

if TYPE_CHECKING:
    from tui_train.checks.finding import Install
    from tui_train.workflow.machines import Source

_UNDO = 100
_WEBHOOK = "notify.webhook"
_TYPED = 0.7  # seconds without a key


class Keeping(Looking):
    """An app that alone assigns the profile, and looks at what a changed one names."""

    def __init__(self, source: "Source | None" = None) -> None:
        """Begin with nothing changed."""
        super().__init__(source)
        self._before: list[Profile] = []
        self._key = ""
        self._kept: Profile | None = None
        self._opened: Profile | None = None  # what the edits began with; None: the default
        self._remembered: Profile | None = None
        self._left_out = ""
        self._remembering = threading.Lock()
        self._typing: Timer | None = None
        self._naming: Timer | None = None

    def install(self, wanted: "Install") -> None:
        """Make an environment."""
        raise NotImplementedError

    @on(Chosen)
    def _chosen(self, event: Chosen) -> None:
        from tui_train.profile import fields

        try:
            profile = fields.put(self.profile, event.key, event.value)
            if event.key == "trainer.python":
                self._choose_python(profile)
            self.become(profile, event.row)
        except TuiTrainError as error:
            self.complain(error)

    @on(ApplyFix)
    def _apply_fix(self, event: ApplyFix) -> None:
        from tui_train.profile.changes import Change, apply

        change = event.fix
        if not isinstance(change, Change):
            self.install(change)
            return
        try:
            profile = apply(change, self.profile)
            if any(key == "trainer.python" for key, _ in change.edits):
                self._choose_python(profile)
            self.become(profile)
        except TuiTrainError as error:
            self.complain(error)
        else:
            # Only what was done last can be taken back.
            self.clear_notifications()
            self.notify(visible(f"{change.title}: {change.why}. Ctrl+Z takes it back."), markup=False)

    def _choose_python(self, profile: Profile) -> None:
        """Remember the Python that the user chose, and look at it where it was not started before."""
        from tui_train.facts import trust

        python = profile.trainer.python
        if self.elsewhere or not python:
            return
        trust.choose(python)
        if self.facts and any(tool.unchosen and tool.python == python for tool in self.facts.toolchains):
            # The questions are answered for the profile that is assigned next.
            self.call_later(self.look, "toolchains")

    @on(Become)
    def _become(self, event: Become) -> None:
        self.become(event.profile, keep=event.keep)
        if event.saved:
            self._opened = event.profile

    @on(Undo)
    def _undo(self) -> None:
        self.action_undo()

    @on(StartOver)
    def _anew(self) -> None:
        from tui_train.workflow.session import last

        self.become(self._kept or last(), keep=False)

    def become(self, profile: Profile, key: str = "", *, keep: bool = True) -> None:
        """Make this the profile; the one before can be had back, that before all edits of one key in a row.

        Not kept: it is only opened, and takes the place of no draft until it is edited.
        """
        if not keep:
            self._opened = profile
        if profile == self.profile:
            return
        if not key or key != self._key:
            self._before = [*self._before[-_UNDO:], self.profile]
        self._key = key
        if key != _WEBHOOK:
            profile = self._with_webhook_kept(profile)
        if keep:
            self._kept = profile
        self._assign(profile)

    def _with_webhook_kept(self, profile: Profile) -> Profile:
        """Return the profile with the webhook's address in a file, once all of it was typed; said if that fails."""
        from tui_train.profile.store import with_webhook_stored

        try:
            return with_webhook_stored(profile)
        except TuiTrainError as error:
            self.complain(error)
            return profile

    @property
    def edited(self) -> bool:
        """Whether the profile is another one than was opened."""
        return self.profile != (self._opened or Profile())

    def action_undo(self) -> None:
        """Take the last change back."""
        from tui_train.profile.changes import diff

        self._key = ""
        now = self.profile
        if self._before:
            self._assign(self._before.pop())
            self._kept = self.profile
        else:
            self.bell()
        self.screen.post_message(Undone(diff(now, self.profile)))

    def _assign(self, profile: Profile) -> None:
        before = self.profile
        if _place(profile) != _place(before) and not self.named:
            self.profile = profile
            self.switch_machine()
            return
        parts = self._affected(profile, before)
        self.expect(*parts)
        self.profile = profile
        self.plan_for_node()
        if self.elsewhere:
            if parts and self._typing:
                self._typing.stop()
            if parts:
                self._typing = self.set_timer(_TYPED, partial(self.look_at, *parts))
            return
        if "images" in parts and self._typing:
            self._typing.stop()
        if "images" in parts and self._key == "container.image":
            # Half a name may be that of another image: one that is typed is looked at once it stands.
            self._typing = self.set_timer(_TYPED, partial(self.look_at, "images"))
            parts.remove("images")
        self.look_at(*parts)
        if _model(profile) != _model(before):
            if self._naming:
                self._naming.stop()
            # Half an id may be that of another model.
            self._naming = self.set_timer(_TYPED, self.ask_hub)

    def _affected(self, profile: Profile, before: Profile) -> list[str]:
        """Return the parts of the facts that a changed profile asks for."""
        from tui_train.trainers import paths_of

        known = {tool.python for tool in self.facts.toolchains} if self.facts else set()
        python = profile.trainer.python
        changed = {
            "paths": (paths_of(profile), *_model(profile)) != (paths_of(before), *_model(before)),
            "hub": _places(profile) != _places(before),
            "toolchains": python != before.trainer.python and python not in {"", *known},
            "images": _image(profile) != _image(before),
            "taken": profile.nodes != before.nodes,
        }
        if self.elsewhere:
            # One answer brings all that is known of it, and half a path is not worth asking a host for.
            return ["machine"] if changed["paths"] or changed["toolchains"] else []
        return [part for part, differs in changed.items() if differs]

    def _keep(self) -> None:
        """Remember the profile while nobody waits for it, so that a lost connection does not lose it."""
        self.become(self._with_webhook_kept(self.profile), _WEBHOOK)
        if self._kept != self._remembered:
            self._keep_now()

    @work(thread=True, group="keep")
    def _keep_now(self) -> None:
        if said := self._remember():
            self.notify(said, severity="warning", markup=False)

    def _remember(self) -> str:
        """Remember the profile; return which secrets in it are not kept, unless that was said before."""
        from tui_train.workflow.session import remember

        with self._remembering:
            kept = self._kept
            if kept is None or kept == self._remembered:
                return ""
            left = ", ".join(dict.fromkeys(visible(secret.words) for secret in remember(kept)))
            self._remembered = kept
            said = left != self._left_out
            self._left_out = left
            return f"Not kept for the next session, as it looks like a secret: {left}" if left and said else ""


def _place(profile: Profile) -> object:
    return profile.hardware.host, profile.hardware.scheduler


def _places(profile: Profile) -> object:
    """Return what decides where the models of Hugging Face are."""
    return profile.trainer.environment, profile.container.engine


def _model(profile: Profile) -> tuple[str, str]:
    return profile.trainer.model, profile.trainer.revision


def _image(profile: Profile) -> tuple[str, str]:
    return profile.container.engine, profile.container.image
