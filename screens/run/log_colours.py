"""The colours of a log's lines, and what is pointed out in them: styles that neither hide nor blink."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from rich.ansi import AnsiDecoder
from rich.segment import Segment
from rich.style import Style

from tui_train.runner.lines import StyledPart

_HIT_STYLE = Style(reverse=True)


def highlighted_segments(
    parts_of_line: Iterable[StyledPart], spans: Iterable[tuple[int, int]], *, with_colours: bool
) -> list[Segment]:
    """Return the runs, and the spans of characters among them pointed out."""
    segments = [
        Segment(run.text, _style_of_escape_parameters(run.colour, with_colours=with_colours) if run.colour else None)
        for run in parts_of_line
    ]
    edges = (0, *(edge for span in spans for edge in span), sum(len(run.text) for run in segments))
    parts = split_segments(segments, (last - first for first, last in pairwise(edges)))
    return [
        Segment(text, (style or Style()) + _HIT_STYLE if index % 2 else style)
        for index, part in enumerate(parts)
        for text, style, _ in part
    ]


def split_segments(segments: Iterable[Segment], lengths: Iterable[int]) -> Iterator[list[Segment]]:
    """Yield segments in parts of so many characters: Textual's own division takes a long line too long."""
    rest = [*segments][::-1]
    for length in lengths:
        part, left = [], length
        while left > 0 and rest:
            text, style, _ = rest.pop()
            part.append(Segment(text[:left], style))
            if len(text) > left:
                rest.append(Segment(text[left:], style))
            left -= len(text)
        yield part


@lru_cache(1000)
def _style_of_escape_parameters(parameters: str, *, with_colours: bool) -> Style:
    """Return the style of an escape sequence's parameters: colours and weights, nothing that hides or blinks."""
    decoder = AnsiDecoder()
    decoder.decode_line(f"\x1b[{parameters}m")
    style = decoder.style
    return Style(
        color=style.color if with_colours else None,
        bgcolor=style.bgcolor if with_colours else None,
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
    )
