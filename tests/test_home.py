"""Home: what it lists and in which order, what is found by typing, and what its keys do with runs and profiles."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import bash, facts, profile, ready, sleeping, until
from test_wizard import CPU, keys, machine, settle, shows, until_shown
from textual.events import Key
from textual.pilot import Pilot
from tui_train.screens.home import Home
from tui_train.screens.widgets.row_list import RowList

from tui_train.base.text import size
from tui_train.profile import store
from tui_train.profile.types import Profile
from tui_train.runs import folders, rundir
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import start
from tui_train.runs.status import status
from tui_train.runs.stop import stop
from tui_train.wizard import wizard
from tui_train.workflow.digest import Digests
from tui_train.workflow.digest_words import matches, remaining, when

__all__ = ["machine"]  # a fixture of these tests as well

STEPS = """
import sys, time
from pathlib import Path
for step in range(1, int(sys.argv[1]) + 1):
    print(f"step {step}/200 | loss {4 / step:.4f}", flush=True)
    time.sleep(float(sys.argv[3]))
print("eval_loss: 1.25" if sys.argv[2] == "0" else "ValueError: the data is bad", flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def run_of(tmp_path: Path) -> Iterator[Callable[..., RunDir]]:
    """Make runs of a script that tells its steps; those that are live are ended after the test."""
    script = tmp_path / "steps.py"
    script.write_text(STEPS)

    def make(name: str, *, steps: int = 3, code: int = 0, pause: float = 0, **more: Any) -> RunDir:
        values = {"trainer.script": str(script), "trainer.arguments": (str(steps), str(code), str(pause)), **more}
        run = rundir.create(name, ready(sleeping(**values, name=name), facts()).files)
        if pause:
            start(run)
        else:
            bash(run)
        return run

    yield make
    for run in rundir.all_runs():
        if status(run).live:
            stop(run, at_once=True)


@pytest.fixture(autouse=True)
def _here(machine: Callable[..., None]) -> None:
    machine(CPU)


def titles(pilot: Pilot[Any]) -> list[str]:
    """The rows that are seen, each by what stands first in it."""
    lines = [line[1:] for line in shows(pilot).splitlines()]
    return [line.strip("▌ ●✓✗!○+").split("  ")[0].split(" ─")[0] for line in lines if line.strip()]


def named(pilot: Pilot[Any]) -> list[str]:
    """The same, without the number of a second run of one name and second."""
    return [title.removesuffix("-2") for title in titles(pilot)]


def cursor(pilot: Pilot[Any]) -> str:
    """The row in which the cursor is."""
    return pilot.app.screen_stack[0].query_one(RowList).cursor


async def test_an_empty_home_begins_a_training() -> None:
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert titles(pilot)[2:5] == ["Start", "New training", "Quickstart"]
        assert cursor(pilot) == "new"
        await pilot.press("enter")
        await until_shown(pilot, "● 1 Hardware")


async def test_live_runs_come_first_with_what_they_do(run_of: Callable[..., RunDir]) -> None:
    live = run_of("going", steps=10_000, pause=0.02)
    run_of("done")
    run_of("broken", code=1)
    store.save(profile({"name": "mine", "trainer.model": "/m/tiny", "hardware.processes": 2}))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await until_shown(pilot, "ValueError: the data")
        seen = shows(pilot).splitlines()
        order = ["Running", "going", "CPU", "Runs", "broken", "done", "Profiles", "mine", "New training", "Quickstart"]
        assert titles(pilot)[2:12] == order
        assert cursor(pilot) == f"run:{live.path}"
        assert "/200" in seen[3]
        assert "loss" in seen[4]
        assert "eval loss 1.250" in seen[8]
        assert "3/200" in seen[8]
        assert "finetune, tiny" in seen[11]
        assert "2 GPUs" in seen[11]
        before = seen[3]
        await until_changed(pilot, before)
        assert cursor(pilot) == f"run:{live.path}"


async def until_changed(pilot: Pilot[Any], line: str) -> None:
    deadline = time.monotonic() + 20
    while line in shows(pilot):
        assert time.monotonic() < deadline
        await pilot.pause(0.05)


async def test_nothing_is_hidden_and_tab_goes_from_panel_to_panel(run_of: Callable[..., RunDir]) -> None:
    copies(run_of("first"), 70)
    for number in range(40):
        store.save(profile({"name": f"p{number:02}"}))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "71 runs, 40 profiles" in shows(pilot)
        await keys("tab")(pilot)
        assert cursor(pilot) == "profile:p00"
        await keys("tab")(pilot)
        assert cursor(pilot) == "new"
        await keys("tab", "shift+tab", "end")(pilot)
        assert cursor(pilot) == "quickstart"
        await keys("home", *["pagedown"] * 3)(pilot)
        line = shows(pilot).splitlines()
        assert any("▌" in row for row in line)
        await keys("home")(pilot)
        assert cursor(pilot) == f"run:{rundir.all_runs()[0].path}"
        assert titles(pilot)[2] == "Runs"


def copies(run: RunDir, count: int) -> None:
    """Copies of a run, which are older the more there are."""
    for number in range(count):
        copy = run.path.with_name(f"2025{number // 28 + 1:02}{number % 28 + 1:02}-120000-copy-{number}")
        shutil.copytree(run.path, copy)
        (copy / ".number").write_text("0\n")


async def test_typing_finds_runs_and_profiles_by_what_they_are(run_of: Callable[..., RunDir], tmp_path: Path) -> None:
    (tmp_path / "books.txt").write_text("text")
    data = {"trainer.data": (str(tmp_path / "books.txt"),), "trainer.arguments": ("3", "0", "0", "{data}")}
    run_of("alpha", **data)
    run_of("beta", code=1)
    noted = run_of("gamma")
    folders.put_note(noted, "the Paper")
    store.save(profile({"name": "delta", "trainer.model": "/m/books-model"}))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await keys("slash", *"BOOKS")(pilot)
        assert titles(pilot)[2:6] == ["Runs", "alpha", "Profiles", "delta"]
        assert "1 of 3 runs, 1 of 1 profile" in shows(pilot)
        await keys("escape", "slash", *"failed")(pilot)
        assert titles(pilot)[2:4] == ["Runs", "beta"]
        await keys("enter")(pilot)
        assert isinstance(pilot.app.screen, Home)
        assert pilot.app.screen.focused is pilot.app.screen.query_one(RowList)
        assert titles(pilot)[2:4] == ["Runs", "beta"]
        await keys("escape", "slash", *"paper gam", "enter", "enter")(pilot)
        await until_shown(pilot, "● 5 Run")
        assert "gamma" in shows(pilot)


async def test_what_is_typed_at_once_is_for_the_filter_alone(run_of: Callable[..., RunDir]) -> None:
    run_of("qwen")
    run_of("other")
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for key in ("slash", *"qwen"):
            pilot.app.post_message(Key(key, None if len(key) > 1 else key))
        await until_shown(pilot, "1 of 2 runs")
        assert titles(pilot)[2:4] == ["Runs", "qwen"]


async def test_a_filter_that_finds_nothing_says_so_and_markup_is_text(run_of: Callable[..., RunDir]) -> None:
    folders.put_note(run_of("alpha"), "[red]x[/] \x1b[31m")
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "[red]x[/]" in shows(pilot)
        assert "\x1b" not in shows(pilot)
        await keys("slash", *"nowhere[")(pilot)
        assert "Nothing matches" in shows(pilot)
        await keys("escape")(pilot)
        assert "alpha" in shows(pilot)


async def test_the_losses_of_a_run_are_drawn_where_there_is_room(run_of: Callable[..., RunDir]) -> None:
    run_of("curve", steps=30)
    for size_of, drawn in (((120, 40), True), ((80, 24), False)):
        async with wizard().run_test(size=size_of) as pilot:
            await settle(pilot)
            await pilot.pause(0.2)
            await settle(pilot)
            braille = any("\u2800" < letter <= "\u28ff" for letter in shows(pilot))
            assert braille is drawn
            assert ("Loss " in shows(pilot)) is drawn
            await keys("end")(pilot)
            await pilot.pause(0.2)
            assert not any("\u2800" < letter <= "\u28ff" for letter in shows(pilot))


async def test_runs_by_their_profile(run_of: Callable[..., RunDir]) -> None:
    for name in ("one", "two", "one"):
        run_of(name)
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert named(pilot)[2:6] == ["Runs", "one", "two", "one"]
        await keys("p")(pilot)
        assert named(pilot)[2:7] == ["one", "one", "one", "two", "two"]


async def test_editing_a_run_brings_its_values(run_of: Callable[..., RunDir]) -> None:
    run_of("mine", **{"ladder.rungs": (), "trainer.environment": {"A": "b"}})
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await keys("e")(pilot)
        await until_shown(pilot, "● 3 Recipe")
        app: Any = pilot.app
        assert (app.profile.name, app.profile.trainer.environment) == ("mine", {"A": "b"})


async def test_resume_is_offered_where_it_can_go_on(run_of: Callable[..., RunDir]) -> None:
    run_of("mine", code=1)
    async with wizard().run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "Resume" not in offered(pilot)
        assert {"Delete", "Rename", "Note", "Edit", "Mark"} <= offered(pilot)
        assert not {"Stop run", "Run now", "Duplicate"} & offered(pilot)


def offered(pilot: Pilot[Any]) -> set[str]:
    """The words of the actions that work now."""
    active = pilot.app.screen.active_bindings.values()
    return {each.binding.description for each in active if each.enabled}


async def test_a_run_with_a_checkpoint_resumes(tmp_path: Path) -> None:
    script = tmp_path / "saves.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "out = Path(next(word for word in sys.argv if 'output' in word).partition('=')[2])\n"
        "resumed = any('checkpoint-5' in word for word in sys.argv)\n"
        "(out / 'checkpoint-5').mkdir(parents=True, exist_ok=True)\n"
        "(out / 'checkpoint-5' / 'trainer_state.json').write_text('{}')\n"
        "sys.exit(0 if resumed else 1)\n"
    )
    values = {"trainer.preset": "hf-trainer", "trainer.script": str(script), "trainer.arguments": ()}
    run = rundir.create("saves", ready(sleeping(**values, name="saves"), facts()).files)
    bash(run)
    assert Digests().run(run).resumable
    async with wizard().run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "can resume" in shows(pilot)
        assert "Resume" in offered(pilot)
        await keys("r")(pilot)
        await until_shown(pilot, "● 5 Run")
        until(lambda: status(run).state == "finished")
        assert not Digests().run(run).resumable


async def test_a_stopped_run_is_asked_about_first(run_of: Callable[..., RunDir]) -> None:
    run = run_of("going", steps=10_000, pause=0.05)
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert not {"Delete", "Rename"} & offered(pilot)
        await keys("s", "enter")(pilot)
        assert status(run).live
        await keys("s", "down", "enter")(pilot)
        until(lambda: not status(run).live)
        await until_shown(pilot, "stopped")


async def test_deleting_says_what_it_frees_and_asks(run_of: Callable[..., RunDir]) -> None:
    kept, gone = run_of("kept"), run_of("gone")
    (gone.path / "big").write_bytes(b"x" * (3 << 20))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await keys("d")(pilot)
        await until_shown(pilot, f"It frees {size(folders.extent(gone).size)}")
        assert gone.name in shows(pilot)
        await keys("enter")(pilot)
        assert gone.path.exists()
        await keys("d")(pilot)
        await until_shown(pilot, "It frees")
        await keys("down", "enter")(pilot)
        await until_shown(pilot, "1 run,")
        assert not gone.path.exists()
        assert kept.path.exists()
        assert cursor(pilot) == f"run:{kept.path}"


async def test_marked_runs_are_deleted_together(run_of: Callable[..., RunDir]) -> None:
    first, second, third = run_of("a"), run_of("b"), run_of("c")
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await keys("space", "space")(pilot)
        assert shows(pilot).count("[x]") == 2
        await keys("d")(pilot)
        await until_shown(pilot, "Delete 2 runs")
        await keys("down", "enter")(pilot)
        await until_shown(pilot, "1 run,")
        assert [run.path.exists() for run in (first, second, third)] == [True, False, False]
        assert "[x]" not in shows(pilot)


async def test_rename_and_note(run_of: Callable[..., RunDir]) -> None:
    run = run_of("old")
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await keys("i", *"try 2", "enter")(pilot)
        assert folders.note(run) == "try 2"
        await keys("i", "escape")(pilot)
        assert folders.note(run) == "try 2"
        await keys("i", "ctrl+u", "enter")(pilot)
        assert folders.note(run) == ""
        await keys("m", "ctrl+u", *"new name", "enter")(pilot)
        assert [found.label for found in rundir.all_runs()] == ["new-name"]
        assert "new-name" in titles(pilot)
        assert cursor(pilot).endswith("new-name")


async def test_profiles_are_copied_renamed_and_deleted() -> None:
    store.save(profile({"name": "mine", "recipe.steps": 5}))
    async with wizard().run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        assert cursor(pilot) == "profile:mine"
        await keys("y", "enter")(pilot)
        assert store.names() == ("mine", "mine-2")
        await keys("m", "ctrl+u", *"other", "enter")(pilot)
        assert store.names() == ("mine-2", "other")
        assert cursor(pilot) == "profile:other"
        await keys("d", "down", "enter")(pilot)
        assert store.names() == ("mine-2",)
        await keys("m", "ctrl+u", *"../x", "enter")(pilot)
        await until_shown(pilot, "cannot be a")
        assert store.names() == ("mine-2",)


async def test_a_profile_runs_at_once_or_says_what_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(sleeping("--seconds=0.1", name="good"))
    store.save(sleeping(name="bad", **{"trainer.script": "/nowhere/at/all.py"}))
    monkeypatch.setattr("tui_train.workflow.starting.look", real_look)
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await keys("g")(pilot)
        await until_shown(pilot, "cannot start here")
        assert "/nowhere/at/all.py" in shows(pilot)
        assert not rundir.all_runs()
        await keys("escape", "down", "g")(pilot)
        await until_shown(pilot, "● 5 Run")
        assert [run.label for run in rundir.all_runs()] == ["good"]


def real_look(chosen: Profile) -> Any:
    from tui_train.targets.here import named

    return facts(paths=named(chosen).paths)


async def test_a_run_of_another_program_appears_and_a_removed_one_goes(run_of: Callable[..., RunDir]) -> None:
    first = run_of("first")
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        second = run_of("second")
        await until_shown(pilot, "second")
        assert cursor(pilot) == f"run:{first.path}"
        folders.remove(second)
        while "second" in titles(pilot):
            await pilot.pause(0.1)
        assert cursor(pilot) == f"run:{first.path}"


async def test_a_damaged_run_hides_no_other(run_of: Callable[..., RunDir]) -> None:
    good, bad = run_of("good"), run_of("bad")
    bad.events_file.write_text("nonsense\n")
    (bad.path / "profile.toml").write_bytes(b"\xff\xfe")
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert titles(pilot)[2:5] == ["Runs", "bad", "good"]
        assert "damaged" in shows(pilot)
        assert good.path.exists()


async def test_many_runs_open_and_move_as_quickly_as_few(run_of: Callable[..., RunDir]) -> None:
    copies(run_of("first"), 300)
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        drawn = pilot.app.screen.query_one(RowList)
        assert drawn.height_of_rows > 300
        calls = []
        draw = drawn._content
        drawn._content = lambda line: calls.append(line) or draw(line)  # type: ignore[method-assign, func-returns-value]
        await keys("down")(pilot)
        assert 0 < len(calls) < 6
        calls.clear()
        await keys("end")(pilot)
        assert 0 < len(calls) < 30


def test_dates_and_times_are_called_as_near_ones_are() -> None:
    now = time.mktime((2026, 3, 12, 10, 0, 0, 0, 0, -1))
    day = 86400
    assert when(now - 3600, now) == "today 09:00"
    assert when(now - day, now) == "yesterday"
    assert when(now - 3 * day, now) == "Mon 10:00"
    assert when(now - 30 * day, now) == "10 Feb"
    assert when(now - 400 * day, now).startswith("2025-02")
    assert when(now + 3 * day, now) == "2026-03-15"
    assert when(None, now) == ""
    assert [remaining(seconds) for seconds in (5, 840, 11_400, 1e6)] == ["<1 min", "14 min", "3 h 10", "11 days"]


def test_all_words_of_a_filter_must_be_there() -> None:
    assert matches("QWEN fail", "qwen-chat", "failed")
    assert not matches("qwen done", "qwen-chat", "failed")
    assert matches("", "x")
