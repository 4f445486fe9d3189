"""The loss curve: points that are added at its end, and shared by all who look at an earlier state of it.

Its memory is bounded: very many points are thinned, but for the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_POINTS_PER_CHUNK = 512
_MAX_CHUNKS = 64
_NEWEST_POINTS_NEVER_THINNED = 4 * _POINTS_PER_CHUNK


class LossPoint(NamedTuple):
    """The loss at a step; the learning rate there (None: unknown), and the tokens seen until then (0: unknown)."""

    step: int
    loss: float
    learning_rate: float | None = None
    tokens: int = 0


class LossCurve(NamedTuple):
    """Points in the order of their steps: `chunks` of equal size, of which no more is changed, and the `tail`.

    To add points copies the rest at most, however long the curve is; so does comparing it with an earlier state.
    """

    chunks: tuple[tuple[LossPoint, ...], ...] = ()
    tail: tuple[LossPoint, ...] = ()

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.chunks) * _POINTS_PER_CHUNK + len(self.tail)

    @property
    def first(self) -> LossPoint | None:
        """Its first point."""
        part = self.chunks[0] if self.chunks else self.tail
        return part[0] if part else None

    @property
    def last(self) -> LossPoint | None:
        """Its newest point."""
        part = self.tail or (self.chunks[-1] if self.chunks else ())
        return part[-1] if part else None

    def points(self) -> tuple[LossPoint, ...]:
        """Return all points; it takes as long as there are many."""
        return tuple(point for part in (*self.chunks, self.tail) for point in part)

    def points_newest_first(self) -> Iterator[LossPoint]:
        """Yield the points, the newest first."""
        yield from reversed(self.tail)
        for part in reversed(self.chunks):
            yield from reversed(part)

    def thinned_points(self, max_points: int) -> list[LossPoint]:
        """Return the points, of more than `max_points` only every so many-th, the last one always among them."""
        size = self.size
        every = max(1, -(-size // max(1, max_points)))
        numbers = [*range(0, size, every)]
        if numbers and numbers[-1] != size - 1:
            numbers.append(size - 1)
        return [self._point_at(number) for number in numbers]

    def _point_at(self, number: int) -> LossPoint:
        part, place = divmod(number, _POINTS_PER_CHUNK)
        return self.chunks[part][place] if part < len(self.chunks) else self.tail[place]


class LossCurveBuilder:
    """A curve to which points are being added."""

    def __init__(self, curve: LossCurve) -> None:
        self._chunks = curve.chunks
        self._tail = list(curve.tail)

    def add(self, point: LossPoint) -> None:
        """Add a point; a step that was there already replaces what came after it. Step 0 is one that nobody named."""
        last = self.last
        if last and not point.step:
            point = point._replace(step=last.step + 1)
        elif last and last.step >= point.step:
            self.drop_points_from(point.step)
        self._tail.append(point)
        if len(self._tail) == _POINTS_PER_CHUNK:
            self._chunks = (*self._chunks, tuple(self._tail))
            self._tail = []
            if len(self._chunks) > _MAX_CHUNKS:
                self._thin_older_points()

    def drop_points_from(self, step: int) -> None:
        """Drop all points from a step on; none for a step of 0."""
        while (last := self.last) and last.step >= step > 0:
            self._drop_newest_points(step)

    def curve(self) -> LossCurve:
        """Return the curve built so far."""
        return LossCurve(self._chunks, tuple(self._tail))

    @property
    def last(self) -> LossPoint | None:
        """Its newest point."""
        part = self._tail or (self._chunks[-1] if self._chunks else ())
        return part[-1] if part else None

    def _drop_newest_points(self, step: int) -> None:
        """Drop the newest point, or at once a part that is of later steps as a whole."""
        if self._tail and self._tail[0].step >= step:
            self._tail = []
        elif self._tail:
            self._tail.pop()
        else:
            self._tail = list(self._chunks[-1])
            self._chunks = self._chunks[:-1]

    def _thin_older_points(self) -> None:
        """Keep as many points at equal distances as half the parts have, and all of the newest.

        A viewer looks there for what is wrong.
        """
        points = [point for part in self._chunks for point in part]
        old = len(points) - _NEWEST_POINTS_NEVER_THINNED
        apart = (points[old].step - points[0].step) / (_POINTS_PER_CHUNK * _MAX_CHUNKS // 2)
        kept = points[:1]
        for point in points[1:old]:
            if point.step - kept[-1].step >= apart:
                kept.append(point)
        kept += points[old:]
        chunked = len(kept) // _POINTS_PER_CHUNK * _POINTS_PER_CHUNK
        self._chunks = tuple(tuple(kept[at : at + _POINTS_PER_CHUNK]) for at in range(0, chunked, _POINTS_PER_CHUNK))
        self._tail = kept[chunked:]


def build_loss_curve(points: Iterable[LossPoint]) -> LossCurve:
    """Return a curve of points."""
    growing = LossCurveBuilder(LossCurve())
    for point in points:
        growing.add(point)
    return growing.curve()
