"""Joins pictures of the program to one SVG that shows them one after the other, with a line below each."""

import re
from html import escape
from typing import NamedTuple

_CAPTION_HEIGHT = 44
_FONT_FACE_PATTERN = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)
_VIEW_BOX_PATTERN = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Frame(NamedTuple):
    """A picture as an SVG document, what is said below it, and for how many seconds it is shown."""

    picture: str
    caption: str
    seconds: float


def moving_picture(frames: list[Frame]) -> str:
    """Return the frames as one SVG document, which begins again at its end; all have the size of the first."""
    size = _VIEW_BOX_PATTERN.search(frames[0].picture)
    if size is None:
        raise ValueError("the first picture says no size")
    width, height = float(size[1]), float(size[2])
    fonts = "".join(dict.fromkeys(_FONT_FACE_PATTERN.findall(frames[0].picture)))
    whole, began = sum(frame.seconds for frame in frames), 0.0
    rules, shown = [], []
    for number, frame in enumerate(frames):
        first, last = 100 * began / whole, 100 * (began + frame.seconds) / whole
        began += frame.seconds
        # What shows no animation shows the first.
        otherwise = "hidden" if number else "visible"
        rules.append(
            f".frame-{number} {{ visibility: {otherwise}; animation: show-{number} {whole:g}s step-end infinite; }}\n"
            f"@keyframes show-{number} {{ 0% {{ visibility: {otherwise}; }} {first:.3f}% {{ visibility: visible; }}"
            f" {last:.3f}%, 100% {{ visibility: hidden; }} }}"
        )
        picture = _FONT_FACE_PATTERN.sub("", frame.picture).replace(
            "<svg ", f'<svg width="{width:g}" height="{height:g}" ', 1
        )
        shown.append(
            f'<g class="frame-{number}">\n{picture}\n<text class="caption" x="{width / 2:g}" '
            f'y="{height + _CAPTION_HEIGHT * 0.6:g}">{escape(frame.caption)}</text>\n</g>'
        )
    return (
        f'<svg viewBox="0 0 {width:g} {height + _CAPTION_HEIGHT:g}" xmlns="http://www.w3.org/2000/svg">\n<style>\n{fonts}'
        ".caption { font: 20px sans-serif; fill: #8a90a2; text-anchor: middle; }\n"
        + "\n".join(rules)
        + "\n</style>\n"
        + "\n".join(shown)
        + "\n</svg>\n"
    )
