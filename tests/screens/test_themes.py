"""The contrast of what is written, in each theme."""

import pytest
from textual.color import Color
from textual.theme import Theme
from tui_train.screens.themes import THEMES
from tui_train.screens.widgets.text_layout import MUTED, heading

COLOURED = [theme for theme in THEMES if not theme.ansi]
PLAIN = next(theme for theme in THEMES if theme.ansi)
GROUNDS = ("background", "surface", "panel", "ground", "focus", "bad")
TEXTS = ("foreground", "primary", "secondary", "success", "warning", "error", "live", "muted")
MIN_TEXT_RATIO, MIN_RULE_RATIO = 4.5, 2.0


def colour(theme: Theme, name: str) -> Color:
    return Color.parse(theme.variables.get(name) or getattr(theme, name))


def luminance(shown: Color) -> float:
    parts = (part / 255 for part in shown.rgb)
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_text_and_rules_stand_out_from_every_ground(theme):
    pairs = {
        (text, ground): contrast(colour(theme, text), colour(theme, ground)) for text in TEXTS for ground in GROUNDS
    }
    assert {pair: ratio for pair, ratio in pairs.items() if ratio < MIN_TEXT_RATIO} == {}
    rules = {ground: contrast(colour(theme, "rule"), colour(theme, ground)) for ground in GROUNDS[:3]}
    assert {ground: ratio for ground, ratio in rules.items() if ratio < MIN_RULE_RATIO} == {}


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_the_words_of_an_empty_field_can_be_read_while_it_has_the_focus(theme):
    # As Textual tints it.
    ground = colour(theme, "ground").blend(colour(theme, "foreground"), 0.05)
    placeholder = theme.to_color_system().generate()["text-disabled"]
    assert contrast(Color.parse(placeholder), ground) >= MIN_TEXT_RATIO


def test_in_plain_selected_text_is_not_as_light_as_its_ground():
    colours = PLAIN.to_color_system().generate()
    assert (colours["input-selection-background"], colours["input-selection-foreground"]) == ("ansi_cyan", "ansi_black")


def test_what_has_a_colour_in_a_heading_is_not_dim_besides():
    drawn = heading("Loss", [("A", "b $warning"), " slow  ", ("B", "b $live"), " fast"], 60)
    muted = [drawn.plain[span.start : span.end].strip() for span in drawn.spans if span.style == MUTED]
    assert sorted(muted) == ["fast", "slow"]
