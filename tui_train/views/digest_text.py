"""Text of a run in a list: what came of it, when it was, and what a filter finds it by."""

import time

from tui_train.base.text import loss_text
from tui_train.views.run_digest import RunDigest


def matches_filter(filter_text: str, *row_texts: str) -> bool:
    """Tell whether each word of a filter is somewhere in what is known of a row; capitals do not matter."""
    there = "\n".join(row_texts).casefold()
    return all(word in there for word in filter_text.casefold().split())


def searchable_run_texts(digest: RunDigest) -> tuple[str, ...]:
    """Return what a filter looks through of a run."""
    found = digest.about
    live = "live" if digest.live else ""
    parts = (digest.run.name, digest.profile, found.method, found.model, found.data, digest.devices)
    return (*parts, digest.state, live, digest.note, digest.why, run_outcome_text(digest))


def run_outcome_text(digest: RunDigest) -> str:
    """Return what came of a run, or why it failed, in a few words."""
    status = digest.now
    if status is None:
        return digest.damage
    if status.leftover and not status.live:
        return f"{len(status.leftover)} processes of it still run"
    losses = (("eval loss", digest.evaluation), ("loss", digest.loss))
    result = next((f"{name} {loss_text(value)}" for name, value in losses if value is not None), "")
    how = {"new": "was never started", "failed": digest.cause, "lost": digest.cause, "stopped": result or "by you"}.get(
        status.state, result
    )
    return ", ".join(filter(None, (how, "can resume" if digest.resumable else "", digest.damage)))


def relative_date_text(start_seconds: float | None, now_seconds: float) -> str:
    """Return a date as near ones are called: `today 13:40`, `yesterday`, `Mon 09:20`, `12 Oct`, `2025-10-12`."""
    if not start_seconds:
        return ""
    day, today = time.localtime(start_seconds), time.localtime(now_seconds)
    days = _day_number(today) - _day_number(day)
    if days == 0:
        return time.strftime("today %H:%M", day)
    if days == 1:
        return "yesterday"
    if 0 < days < 7:
        return time.strftime("%a %H:%M", day)
    return time.strftime("%d %b" if 0 < days < 300 else "%Y-%m-%d", day).lstrip("0")


def remaining_time_text(seconds: float) -> str:
    """Return how long something still takes, in whole minutes: it is drawn again once a minute at most."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "<1 min"
    hours, rest = divmod(minutes, 60)
    return f"{minutes} min" if not hours else f"{hours} h {rest:02d}" if hours < 48 else f"{hours // 24} days"


def _day_number(day: time.struct_time) -> int:
    return int(time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 12, 0, 0, 0, 0, -1)) // 86400)
