"""Made: the text of a manifest, and what the user has to know of it."""

from msgspec import Struct


class RenderedManifest(Struct, frozen=True):
    """A manifest's text, and what is said at its head and on the screen: a sentence each."""

    text: str
    notes: tuple[str, ...]
