"""The one door to the screens: they are imported when the wizard is opened, never before."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.app import App


def wizard(run: str = "") -> "App[int]":
    """Return the wizard, opened on a run's folder when one is named."""
    app: App[int] = import_module("tui_train.screens.app").Wizard(run)
    return app
