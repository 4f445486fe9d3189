"""The lines that say how a run stands: its state, its numbers, its attempts, and what is wrong with it."""

from collections.abc import Iterator

from rich.text import Text

from tui_train.base.text import counted, duration, visible
from tui_train.runs.follow import RunNews
from tui_train.runs.ranks import summary
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import continues
from tui_train.supervisor.state import Status
from tui_train.workflow import show

_BAR = 10


def run_state(run: RunDir, told: RunNews, wrong: tuple[str, ...]) -> Text:
    """Return the lines; `wrong` are sentences, one line each."""
    now = told.status
    words = Text(no_wrap=True, overflow="ellipsis")
    words.append(f" {visible(run.name)}  ").append(show.state(now), "bold")
    if now.seconds is not None:
        words.append(f"  {duration(now.seconds)}")
    words.append("\n ").append(Text("  ").join(_numbers(told))).append("\n ")
    _attempts(words, told)
    first, *others = told.mismatch or ("",)
    mismatch = (first + (f" (and {len(others)} more)" if others else ""),) if first else ()
    for sentence in (*mismatch, *_unkept(now), *wrong):
        words.append(f"\n ! {sentence}", "bold red")
    return words


def _numbers(told: RunNews) -> Iterator[Text]:
    progress = told.progress
    if progress.steps:
        # A log may name numbers whose quotient no float holds.
        done = _BAR if progress.step >= progress.steps else round(_BAR * (progress.step / progress.steps))
        yield Text(f"step {progress.step}/{progress.steps} ").append("█" * done + "░" * (_BAR - done))
    elif progress.step:
        yield Text(f"step {progress.step}")
    if told.seconds_left is not None and told.status.live:
        yield Text(f"ETA {duration(told.seconds_left)}")
    if progress.first and progress.last:
        yield Text(f"loss {_loss(progress.first.loss)} → ").append(_loss(progress.last.loss), "bold")
    if progress.tokens_per_second:
        yield Text(f"{progress.tokens_per_second:,.0f} tokens/s")
    if progress.learning_rate is not None:
        yield Text(f"lr {progress.learning_rate:.3g}")
    if progress.gradient_norm is not None:
        yield Text(f"norm {progress.gradient_norm:.3g}")


def _unkept(now: Status) -> tuple[str, ...]:
    """Return what to do about processes that nobody keeps."""
    if not now.leftover:
        return ()
    many = counted(len(now.leftover), "process runs", "processes run")
    why = "Its supervisor was killed" if now.state == "lost" else "The training has ended"
    return (f"{why}: {many} on without it. X ends them.",)


def _attempts(words: Text, told: RunNews) -> None:
    now = told.status
    newest = now.attempts[-1] if now.attempts else None
    for attempt in told.status.attempts:
        goes_on = attempt == newest and continues(now) and attempt.ended is None
        mark = "▸" if goes_on else "✓" if attempt.exit_code == 0 else "✗"
        why = " (out of memory)" if attempt.out_of_memory else ""
        words.append(f"{mark} attempt {attempt.number}{why}  ", "bold" if goes_on else "dim")
    if told.title:
        words.append(visible(told.title), "dim")
    if told.ranks:
        words.append(f"  {summary(told.ranks)}", "dim")


def _loss(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.3g}"
