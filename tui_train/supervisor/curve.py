"""The loss curve: points that are added at its end, and shared by all who look at an earlier state of it.

Its memory is bounded: very many points are thinned, but for the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_PART = 512
_MOST_PARTS = 64
_NEWEST = 4 * _PART


class Point(NamedTuple):
    """The loss at a step; the learning rate there (None: unknown), and the tokens seen until then (0: unknown)."""

    step: int
    loss: float
    learning_rate: float | None = None
    tokens: int = 0


class Curve(NamedTuple):
    """Points in the order of their steps: `parts` of equal size, of which no more is changed, and the `rest`.

    To add points copies the rest at most, however long the curve is; so does comparing it with an earlier state.
    """

    parts: tuple[tuple[Point, ...], ...] = ()
    rest: tuple[Point, ...] = ()

    @property
    def size(self) -> int:
        """How many points it has."""
        return len(self.parts) * _PART + len(self.rest)

    @property
    def first(self) -> Point | None:
        """Its first point."""
        part = self.parts[0] if self.parts else self.rest
        return part[0] if part else None

    @property
    def last(self) -> Point | None:
        """Its newest point."""
        part = self.rest or (self.parts[-1] if self.parts else ())
        return part[-1] if part else None

    def points(self) -> tuple[Point, ...]:
        """Return all points; it takes as long as there are many."""
        return tuple(point for part in (*self.parts, self.rest) for point in part)

    def backwards(self) -> Iterator[Point]:
        """Yield the points, the newest first."""
        yield from reversed(self.rest)
        for part in reversed(self.parts):
            yield from reversed(part)

    def thinned(self, most: int) -> list[Point]:
        """Return the points, of more than `most` only every so many-th, the last one always among them."""
        size = self.size
        every = max(1, -(-size // max(1, most)))
        numbers = [*range(0, size, every)]
        if numbers and numbers[-1] != size - 1:
            numbers.append(size - 1)
        return [self._at(number) for number in numbers]

    def _at(self, number: int) -> Point:
        part, place = divmod(number, _PART)
        return self.parts[part][place] if part < len(self.parts) else self.rest[place]


class Growing:
    """A curve to which points are being added."""

    def __init__(self, curve: Curve) -> None:
        self._parts = curve.parts
        self._rest = list(curve.rest)

    def add(self, point: Point) -> None:
        """Add a point; a step that was there already replaces what came after it. Step 0 is one that nobody named."""
        last = self.last
        if not point.step and last:
            point = point._replace(step=last.step + 1)
        self.drop_from(point.step)
        self._rest.append(point)
        if len(self._rest) == _PART:
            self._parts = (*self._parts, tuple(self._rest))
            self._rest = []
            if len(self._parts) > _MOST_PARTS:
                self._thin()

    def drop_from(self, step: int) -> bool:
        """Drop all points from a step on, and return whether there were any; none for a step of 0."""
        dropped = False
        while (last := self.last) and last.step >= step > 0:
            self._drop(step)
            dropped = True
        return dropped

    def curve(self) -> Curve:
        """Return it as it is now."""
        return Curve(self._parts, tuple(self._rest))

    @property
    def last(self) -> Point | None:
        """Its newest point."""
        part = self._rest or (self._parts[-1] if self._parts else ())
        return part[-1] if part else None

    def _drop(self, step: int) -> None:
        """Drop the newest point, or at once a part that is of later steps as a whole."""
        if self._rest and self._rest[0].step >= step:
            self._rest = []
        elif self._rest:
            self._rest.pop()
        else:
            self._rest = list(self._parts[-1])
            self._parts = self._parts[:-1]

    def _thin(self) -> None:
        """Keep as many points at equal distances as half the parts have, and all of the newest.

        A viewer looks there for what is wrong.
        """
        points = [point for part in self._parts for point in part]
        old = len(points) - _NEWEST
        apart = (points[old].step - points[0].step) / (_PART * _MOST_PARTS // 2)
        kept = points[:1]
        for point in points[1:old]:
            if point.step - kept[-1].step >= apart:
                kept.append(point)
        kept += points[old:]
        whole = len(kept) // _PART * _PART
        self._parts = tuple(tuple(kept[at : at + _PART]) for at in range(0, whole, _PART))
        self._rest = kept[whole:]


def of(points: Iterable[Point]) -> Curve:
    """Return a curve of points."""
    growing = Growing(Curve())
    for point in points:
        growing.add(point)
    return growing.curve()
