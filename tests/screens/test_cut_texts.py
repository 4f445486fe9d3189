"""Each screen at 80x24: what is too long for its place ends with `…`, and keys that texts name stand in the footer."""

import re
import time
from typing import Any

import pytest
from pilot import finished_run, open_wizard, screen_text, wait_for_workers
from textual.content import Content
from textual.widgets import Input
from tui_train.screens.install.installation import Installation
from tui_train.screens.install.screen import InstallScreen
from tui_train.screens.widgets.hint import Hint
from tui_train.screens.widgets.key_bar import KeyBar
from tui_train.screens.widgets.lines import Lines

from tui_train.actions.environments.progress import InstallProgress

# "f shows its 7 files", but no word of a sentence.
NAMED_KEY = re.compile(
    r"(?<![\w`'\"/])([b-z/]|F\d)(?= (?:asks|cancels|chooses|copies|exports|lists|searches|shows|starts|counts)\b)"
)
WALKS = {
    "fine-tune": ("enter", "f1", "escape", "enter", "down", "down", "enter", "o", "escape"),
    "quickstart": (
        "down",
        "down",
        "enter",
        "f",
        "escape",
        "a",
        "escape",
        "s",
        "escape",
        "e",
        "escape",
        "escape",
        "escape",
    ),
    "runs": ("n", "escape", "d", "escape", "e", "f1", "escape", "enter"),
}


@pytest.fixture
def cut_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were drawn without their end, and without `…`."""
    cut: list[str] = []
    render = Content.render_strips

    def render_strips(self: Content, width: int, height: int | None, style: Any, options: Any) -> Any:
        if options.rules.get("text_wrap") == "nowrap" and options.rules.get("text_overflow") != "ellipsis":
            cut.extend(line.plain for line in self.split() if line.rstrip().cell_length > width)
        strips = render(self, width, None, style, options)
        if height is not None and any(strip.text.strip() for strip in strips[height:]):
            cut.append(self.plain)
        return strips if height is None else strips[:height]

    monkeypatch.setattr(Content, "render_strips", render_strips)
    return cut


async def check_screen(pilot: Any, cut_texts: list[str]) -> None:
    screen = pilot.app.screen
    await pilot.pause()
    cut_texts.clear()
    for widget in screen.walk_children():
        widget.refresh()
    await pilot.pause()
    assert not cut_texts
    for entry in screen.query(Input):
        assert entry.value or not entry.region or len(entry.placeholder) <= entry.content_size.width
    for bar in screen.query(KeyBar):
        footer = str(bar.render())
        for key in NAMED_KEY.findall(screen_text(pilot)):
            assert re.search(rf"(^|  ){key} ", footer), f"{key}: {footer}"


@pytest.mark.parametrize("walk", WALKS)
async def test_no_text_is_cut_without_a_sign_and_no_named_key_is_hidden(cut_texts, machine, walk, tmp_path):
    if walk == "runs":
        finished_run(tmp_path, state="failed", code=1, why="the plan has no further fallback")
    async with open_wizard() as pilot:
        for key in WALKS[walk]:
            await pilot.press(key)
            await wait_for_workers(pilot)
            await check_screen(pilot, cut_texts)


async def test_texts_that_are_too_long_end_with_an_ellipsis(cut_texts, machine):
    async with open_wizard("enter") as pilot:
        hint, words = pilot.app.screen.query_one(Hint), "many words "
        hint.show_text(Content(words * 100))
        pilot.app.screen.query_one("#gaps", Lines).show_lines_of_any_width(Content(words * 10), Content("the last"))
        await check_screen(pilot, cut_texts)
        assert hint.size.height <= 8
        assert str(hint.render()).endswith("…")
        assert "the last" in screen_text(pilot)


async def test_the_time_of_a_download_is_seen_at_80_columns(machine):
    running = Installation(
        title="install what is missing",
        began_at=time.monotonic() - 734,
        progress=InstallProgress("Downloading torch …", 800 << 20, 2400 << 20),
    )
    async with open_wizard() as pilot:
        pilot.app.installation = running
        await pilot.app.push_screen(InstallScreen(lambda: None))
        pilot.app.screen.installation = running
        pilot.app.screen.update()
        await pilot.pause()
        assert "800 MiB downloaded, 12 min 10 s" in screen_text(pilot)
