"""Harnesses that try one thing many times: how often each was tried and failed is the table that ends a test run."""

import contextlib
import traceback

import pytest

TRIES_PROPERTY = "tried and failed"
_MAX_SHOWN_FAILURES = 5


class Tries:
    """The tries of one area: one that fails is kept, and the others go on."""

    def __init__(self, area):
        self.area = area
        self.tried = 0
        self.failures = []

    @contextlib.contextmanager
    def one(self, words=""):
        """Try once; `words` say how to try it again."""
        self.tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - each try may fail in its own way
            self.failures.append(f"{words}\n{traceback.format_exc()}")


@contextlib.contextmanager
def count_tries(record_property, area):
    """Give the tries of an area, and fail in the end where one failed."""
    made = Tries(area)
    try:
        yield made
    finally:
        record_property(TRIES_PROPERTY, [area, made.tried, len(made.failures)])
    assert not made.failures, f"{len(made.failures)} of {made.tried} failed:\n" + "\n".join(
        made.failures[:_MAX_SHOWN_FAILURES]
    )


def mark_single_tries(items):
    """Let each test with the marker `tries(area)` be one try."""
    for item in items:
        found = item.get_closest_marker("tries")
        if found:
            item.user_properties.append((TRIES_PROPERTY, [found.args[0], 1, 0]))


def tries_table(reports):
    """Return the rows of the table: area, tried, failed."""
    rows = {}
    for report in reports:
        told = [value for name, value in getattr(report, "user_properties", ()) if name == TRIES_PROPERTY]
        for area, tried, failed in told if report.when == "call" and report.outcome != "skipped" else ():
            row = rows.setdefault(area, [0, 0])
            row[0] += tried
            row[1] += failed or (report.outcome == "failed")
    width = max(map(len, rows), default=0)
    lines = [f"{area:<{width}}  {tried:>7}  {failed:>6}" for area, (tried, failed) in sorted(rows.items())]
    return [f"{'area':<{width}}  {'tried':>7}  {'failed':>6}", *lines] if lines else []
