"""The colours: a dark, a light and a plain theme, which takes the terminal's own sixteen and does without any.

Each colour means one thing: $primary you (focus, keys), $live the machine at work, $success, $warning and $error what
they say, $weights, $optimizer and $activations parts of a GPU's memory. $muted, $rule and $field are for text alone: in
plain they are attributes. What colour says a mark or a texture says too.
"""

import os
from typing import Final

from textual.app import App
from textual.theme import Theme

DARK_THEME_NAME: Final = "dark"
LIGHT_THEME_NAME: Final = "light"
PLAIN_THEME_NAME: Final = "plain"

THEMES: Final = (
    Theme(
        DARK_THEME_NAME,
        primary="#b7a5ff",
        secondary="#54cdd6",
        success="#8bd17c",
        warning="#f0be5e",
        error="#ff7d75",
        foreground="#dfe3ec",
        background="#12141b",
        surface="#191c26",
        panel="#1d2130",
        variables={
            "live": "#54cdd6",
            "muted": "#9299ad",
            "text-disabled": "#9299ad",
            "rule": "#4a5370",
            "field": "on #232839",
            "line": "#4a5370",
            "ground": "#232839",
            "focus": "#2b2850",
            "here": "on #2b2850",
            "bad": "#2b1d26",
            "weights": "#7c9fe6",
            "optimizer": "#d79ac6",
            "activations": "#b9a888",
        },
    ),
    Theme(
        LIGHT_THEME_NAME,
        primary="#5b35c8",
        secondary="#006d7a",
        success="#2a7120",
        warning="#8a5a00",
        error="#b9262b",
        foreground="#20242e",
        background="#fafaf7",
        surface="#f1f1ed",
        panel="#e8e8e6",
        dark=False,
        variables={
            "live": "#006d7a",
            "muted": "#5d6474",
            "text-disabled": "#5d6474",
            "rule": "#a0a4af",
            "field": "on #ebebef",
            "line": "#a0a4af",
            "ground": "#ebebef",
            "focus": "#e4dcff",
            "here": "on #e4dcff",
            "bad": "#fbe9e8",
            "weights": "#2f5cae",
            "optimizer": "#9a3f83",
            "activations": "#7a6a48",
        },
    ),
    Theme(
        PLAIN_THEME_NAME,
        ansi=True,
        primary="ansi_magenta",
        secondary="ansi_cyan",
        success="ansi_green",
        warning="ansi_yellow",
        error="ansi_red",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        variables={
            "live": "ansi_cyan",
            "muted": "dim",
            "rule": "dim",
            "field": "underline",
            "line": "ansi_default",
            "ground": "ansi_default",
            "focus": "ansi_default",
            "here": "bold",
            "bad": "ansi_default",
            "weights": "ansi_blue",
            "optimizer": "ansi_default",
            "activations": "ansi_white",
            "input-selection-foreground": "ansi_black",
            "ansi-background": "ansi_black",
            "ansi-foreground": "ansi_white",
        },
    ),
)
THEME_NAMES: Final = tuple(theme.name for theme in THEMES)


def needs_plain_colours() -> bool:
    """Tell whether the terminal is to be written to without true colour: NO_COLOR is set, or it has few colours."""
    return "NO_COLOR" in os.environ or os.environ.get("TERM", "") in {"linux", "vt100", "vt220", "ansi"}


def register_themes(app: App[int], name: str) -> None:
    """Give an app the themes, and one of them to begin with."""
    for theme in THEMES:
        app.register_theme(theme)
    for name_of_textual in set(app.available_themes) - set(THEME_NAMES):
        app.unregister_theme(name_of_textual)
    name = PLAIN_THEME_NAME if needs_plain_colours() else name if name in THEME_NAMES else DARK_THEME_NAME
    app.ansi_color = True if name == PLAIN_THEME_NAME else None
    # As the theme is changed later Textual reads all styles once more: here there are none yet.
    app.set_reactive(App.theme, name)
    app.set_class(app.current_theme.dark, "-dark-mode")
    app.set_class(not app.current_theme.dark, "-light-mode")
    app.add_class(f"-theme-{name}")
    app.stylesheet.set_variables(app.get_css_variables())


def apply_theme(app: App[int], name: str) -> None:
    """Change an app's theme; the plain one takes the terminal's colours as they are."""
    app.ansi_color = True if name == PLAIN_THEME_NAME else None
    app.theme = name
