"""The one door to the screens: they are imported when the wizard is opened, never before."""

import gc
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from tui_train.base.errors import Unavailable
from tui_train.base.signal_handlers import set_unignored_signals_to_default

if TYPE_CHECKING:
    from textual.app import App

    from tui_train.places.place import Place


def make_wizard(run: str = "", place: "Place | None" = None) -> "App[int]":
    """Return the wizard, opened on a run's folder when one is named, or for another machine."""
    app: App[int] = import_module("tui_train.screens.app.app").Wizard(run, place)
    return app


def open_wizard(run: str = "", place: "Place | None" = None) -> int:
    """Show the wizard until it is left, and return its exit code; Unavailable where no terminal can show it."""
    if not is_wizard_terminal():
        remedy = "Use `tui-train quickstart`, `plan` or `run`; `tui-train --help` lists all commands."
        raise Unavailable("the wizard needs a terminal", remedy)
    # The wizard turns it on again after its first picture: what is imported for that is no garbage.
    gc.disable()
    elsewhere = place if place and place.name else None
    if elsewhere:
        from tui_train.profile.types import Profile

        # What keeps that machine from being known is said here, not by a wizard that knows nothing.
        elsewhere.probe_facts_for(Profile())
    # It has handlers of its own once it runs. Until then nothing has begun, and a command's would raise in an import,
    # where that may be lost.
    set_unignored_signals_to_default((signal.SIGTERM, signal.SIGHUP))
    app = make_wizard(run, elsewhere)
    code = app.run()
    return (app.return_code or 0) if code is None else code


def is_wizard_terminal() -> bool:
    """Tell whether there is a terminal that can show the wizard; it draws on standard error."""
    ours = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return ours and os.environ.get("TERM", "dumb") != "dumb"
