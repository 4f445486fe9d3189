"""Home: how a training begins there, what it lists and in which order, what is found by typing, and what keys do."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pilot import (
    CPU_MACHINE,
    THREE_CARD_MACHINE,
    THREE_CARDS,
    finished_run,
    live_run,
    open_wizard,
    press_keys,
    screen_text,
    until_true,
    wait_for_text,
    wait_for_workers,
)
from rich.cells import cell_len
from support import (
    create_run,
    facts,
    make_run_copies,
    profile,
    run_launch_script,
    sleeper_profile,
    wait_until,
)
from terminal import Terminal
from textual.events import Key, Paste
from textual.pilot import Pilot
from textual.widgets import Input
from tui_train.screens.home.filter_line import FilterLine
from tui_train.screens.home.home_rows import home_rows
from tui_train.screens.home.home_state import HomeState
from tui_train.screens.home.screen import HomeScreen
from tui_train.screens.home.start_options import START_OPTIONS
from tui_train.screens.messages import OpenRun
from tui_train.screens.widgets import cursor_list
from tui_train.screens.widgets.cursor_list import CursorList, ListRow, ListState
from tui_train.screens.widgets.dialogs import ChoiceDialog, TextDialog

from tui_train.actions.last_profile import remember_profile_without_secrets
from tui_train.base.text import size_text
from tui_train.cli.runs.runs import print_runs
from tui_train.diagnose import diagnose_run
from tui_train.facts.types import GpuProcess
from tui_train.places.place import Place
from tui_train.places.profile_facts import read_profile_files
from tui_train.profile import store
from tui_train.profile.fields import profile_with_value
from tui_train.profile.types import Profile
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runner.system.folder_usage import folder_usage
from tui_train.runs import folders, run_folders
from tui_train.runs.local_start import start_run
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run
from tui_train.views.run_digest import DigestCache, relative_date_text, remaining_time_text
from tui_train.wizard import make_wizard

TITLES = [each.title for each in START_OPTIONS]
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
def run_of(tmp_path: Path) -> Iterator[Callable[..., RunFolder]]:
    """Make runs of a script that tells its steps; those that are live are ended after the test."""
    script = tmp_path / "steps.py"
    script.write_text(STEPS)

    def make(name: str, *, steps: int = 3, code: int = 0, pause: float = 0, **more: Any) -> RunFolder:
        values = {"trainer.script": str(script), "trainer.arguments": (str(steps), str(code), str(pause)), **more}
        run = create_run(sleeper_profile(**values, name=name))
        if pause:
            start_run(run)
        else:
            run_launch_script(run)
        return run

    yield make
    for run in run_folders.list_runs():
        if read_status(run).is_live:
            stop_local_run(run, at_once=True)


@pytest.fixture(autouse=True)
def _here(machine: Callable[..., None]) -> None:
    machine(CPU_MACHINE)


def test_what_can_be_done_follows_from_the_row_and_the_marks(tmp_path):
    state, digest = HomeState(), DigestCache().read_digest(finished_run(tmp_path))
    state.update((digest,), (), None)
    (key,) = state.runs
    actions = ("edit", "resume", "run_now", "stop", "delete", "rename", "note", "duplicate", "mark", "compare")
    assert not [action for action in actions if state.can_do(action, "new")]
    assert [action for action in actions if state.can_do(action, key)] == ["edit", "delete", "rename", "note", "mark"]
    assert state.why_key_refused("d", "new") == "Move to a run or a profile first."
    assert "nothing of it is running" in state.why_key_refused("s", key)
    assert "has finished" in state.why_key_refused("r", key)
    state.marked = frozenset({key})
    assert "Mark two runs" in state.why_key_refused("c", key)
    assert state.marked_runs_or_run_at("new") == (digest,)
    assert [action for action in ("unmark", "note") if state.can_do(action, "new")] == ["unmark", "note"]
    state.update((), (), None)
    assert (state.marked, state.marked_runs_or_run_at(key)) == (frozenset(), ())


def run_rows(tmp_path: Path, *changed: dict[str, Any]) -> list[ListRow]:
    """Return the rows of runs, each the finished one with something changed."""
    digest, home = DigestCache().read_digest(finished_run(tmp_path)), HomeState()
    home.update(tuple(msgspec.structs.replace(digest, **values) for values in changed), (), None)
    return [row for row in home_rows(home) if row.key.startswith("run:")]


@pytest.mark.parametrize("width", [62, 78, 100, 118])
@pytest.mark.parametrize("state", ["waiting", "running", "failed"])
def test_the_value_of_an_array_is_seen_at_any_width(tmp_path, width, state):
    values = {
        "status": RunStatus(state, started=1000.0, waits_for="GPU 0: pid 812, ann, python train.py --with-many-words"),
        "note": "learning_rate=1.5e-4",
        "eval_loss": 1.23456,
        "losses": (3.0, 2.0, 1.5),
        "failure_heading": "ValueError: a sentence that is longer than what a narrow list has room for beside it",
    }
    (row,) = run_rows(tmp_path, values)
    lines = [line.plain for line in row.lines(width)]
    assert "=1.5e-4" in lines[0 if state == "waiting" else -1]
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "changed"), [(62, "=0.2"), (78, "lr=0.2, steps=600"), (118, "lr=0.2, steps=600")])
@pytest.mark.parametrize("state", ["waiting", "running", "finished"])
def test_a_run_says_what_was_changed_since_the_one_before(tmp_path, width, changed, state):
    settings = ("trainer.arguments=--lr=0.2\nrecipe.steps=600", "", "trainer.arguments=--lr=0.1\nrecipe.steps=60")
    runs = (
        {
            "run": RunFolder(tmp_path / f"2026010{9 - number}-120000-project-train"),
            "profile_name": "other" if number == 1 else "project-train",
            "searchable_settings": text or "recipe.seed=7",
            "status": RunStatus(state if number == 0 else "finished", started=1000.0),
        }
        for number, text in enumerate(settings)
    )
    texts = ["\n".join(line.plain for line in row.lines(width)) for row in run_rows(tmp_path, *runs)]
    assert [changed in text for text in texts] == [True, False, False]
    assert "lr=" not in "".join(texts[1:])
    assert all(cell_len(line) <= width for text in texts for line in text.split("\n"))


@pytest.mark.parametrize(
    ("before", "now", "changed", "name_width"),
    [
        ("recipe.learning_rate=0.01", "recipe.learning_rate=0.005", "rate=0.005", 17),
        ("recipe.steps=60", "", "steps=default", 14),
        ("recipe.steps=60", "recipe.steps=60", "", 0),
    ],
)
def test_the_name_of_a_run_gives_way_to_what_was_changed(tmp_path, before, now, changed, name_width):
    runs = (
        {
            "run": RunFolder(tmp_path / f"2026010{number}-120000-tiny-qwen-chats-sft-lora"),
            "profile_name": "mine",
            "searchable_settings": f"recipe.seed=7\n{text}",
            "eval_loss": 5.417,
        }
        for number, text in ((2, now), (1, before))
    )
    text = run_rows(tmp_path, *runs)[0].lines(78)[0].plain
    name = f"{'tiny-qwen-chats-sft-lora'[: name_width - 1]}… " if name_width else "tiny-qwen-chats-sft-lora  "
    assert text[2:].startswith(f"{name}finished  eval loss 5.417")
    assert changed in text
    assert "…" not in text[2 + name_width :]


@pytest.mark.parametrize(("width", "column"), [(62, 0), (72, 0), (78, 46), (118, 46)])
def test_what_was_changed_begins_in_one_column_of_all_rows_or_stands_in_none(tmp_path, width, column):
    outcomes = ({"eval_loss": 5.417}, {"failure_heading": "exit code 0"}, {"eval_loss": 5.4})
    runs = (
        {
            "run": RunFolder(tmp_path / f"2026010{9 - number}-120000-legal-summaries"),
            "profile_name": "mine",
            "searchable_settings": f"recipe.learning_rate={(0.0002, 0.0001, 5e-5)[number]}",
            "status": RunStatus("stopped", started=1000.0),
            **({"step": 60, "steps": 60, "eval_loss": None, "loss": None} | outcomes[number]),
        }
        for number in range(3)
    )
    lines = [row.lines(width)[0].plain for row in run_rows(tmp_path, *runs)]
    assert [line.find("rate=") for line in lines] == ([column, column, -1] if column else [-1] * 3)
    assert "legal-summaries" in lines[0], "the name has the blank columns"


@pytest.mark.parametrize(("step", "is_whole"), [(0, True), (60, False)])
def test_an_outcome_takes_the_empty_column_of_the_steps(tmp_path, step, is_whole):
    cause = "LoRA targets not in the model"
    values = {"status": RunStatus("stopped", started=1000.0), "failure_heading": cause, "step": step, "steps": 60}
    rows = run_rows(tmp_path, {}, {**values, "run": RunFolder(tmp_path / "20260101-120000-chat-falcon")})
    assert (cause in rows[1].lines(74)[0].plain) == is_whole


def test_training_runs_come_first_then_those_that_wait_in_their_order(tmp_path):
    states = [("waiting", 400.0), ("waiting", 300.0), ("queued", 350.0), ("running", 200.0), ("running", 100.0)]
    runs = (
        {"run": RunFolder(tmp_path / f"{state}-{started:.0f}"), "status": RunStatus(state, started=started)}
        for state, started in states
    )
    listed = [row.key.rsplit("/", 1)[-1] for row in run_rows(tmp_path, *runs)]
    assert listed == ["running-200", "running-100", "waiting-300", "queued-350", "waiting-400"]


def test_the_word_of_a_run_that_waits_has_the_colour_of_a_warning(tmp_path):
    (row,) = run_rows(tmp_path, {"status": RunStatus("waiting", started=1000.0, waits_for="its turn is next")})
    line = row.lines(78)[0]
    assert [line.plain[span.start : span.end] for span in line.spans if span.style == "$warning"] == ["waiting"]


def test_two_runs_of_one_name_and_minute_differ_by_their_seconds(tmp_path):
    noon = time.mktime((*time.localtime()[:3], 12, 0, 0, 0, 0, -1))
    begins = [("mine", noon + 1), ("mine", noon + 31), ("mine", noon - 3 * 86_400), ("other", noon + 2)]
    runs = (
        {
            "run": RunFolder(tmp_path / f"20260101-00000{number}-{name}"),
            "status": RunStatus("finished", started=started),
        }
        for number, (name, started) in enumerate(begins)
    )
    lines = [row.lines(78)[0].plain for row in run_rows(tmp_path, *runs)]
    assert [line.split()[-1] for line in lines] == ["12:00:01", "12:00:31", "12:00", "12:00"]
    assert "today 12:00" in lines[-1]


def titles(pilot: Pilot[Any]) -> list[str]:
    """The rows that are seen, each by what stands first in it."""
    # Beside the list stands what is known of a run.
    lines = [line[1:].split("│")[0] for line in screen_text(pilot).splitlines()]
    return [line.strip("▌ ●✓✗!○+").split("  ")[0].split(" ─")[0] for line in lines if line.strip()]


def named(pilot: Pilot[Any]) -> list[str]:
    """The same, without the number of a second run of one name and second."""
    return [title.removesuffix("-2") for title in titles(pilot)]


def cursor(pilot: Pilot[Any]) -> str:
    """The row in which the cursor is."""
    return pilot.app.screen_stack[0].query_one(CursorList).cursor


@pytest.mark.parametrize("by_dialog", [False, True])
async def test_an_empty_home_offers_four_ways_to_begin(by_dialog):
    async with open_wizard() as pilot:
        app = pilot.app
        assert [title for title in titles(pilot) if title in TITLES] == TITLES
        assert "New training" not in screen_text(pilot)
        opened_by_row = (("Hardware", "finetune"), ("Hardware", "script"), ("Preview", "builtin"))
        for number, (step, kind) in enumerate(opened_by_row):
            before = ("n",) if by_dialog else ("home",)
            await press_keys(*before, *["down"] * number, "enter")(pilot)
            assert type(app.screen).__name__ == f"{step}Screen"
            assert app.profile == profile_with_value(Profile(), "trainer.kind", kind)
            await press_keys(*["escape"] * (4 if step == "Preview" else 1))(pilot)
            assert isinstance(app.screen, HomeScreen)
        await press_keys(*(("n", "up") if by_dialog else ("end",)), "enter")(pilot)
        assert isinstance(app.screen, TextDialog)


async def test_below_runs_and_profiles_one_row_begins_a_training(run_of):
    run = run_of("mine")
    remember_profile_without_secrets(profile({"recipe.steps": 5}))
    async with open_wizard() as pilot:
        assert cursor(pilot) == f"run:{run.path}"
        assert titles(pilot)[2:6] == ["Runs", "mine", "Continue the draft", "New training"]
        assert not {*TITLES} & {*titles(pilot)}
        await press_keys("end", "enter")(pilot)
        assert isinstance(pilot.app.screen, ChoiceDialog)
        await press_keys("enter")(pilot)
        assert pilot.app.profile == profile({"trainer.kind": "finetune"})
        await press_keys("escape", "slash", *"mine")(pilot)
        assert titles(pilot)[2:5] == ["Runs", "mine", titles(pilot)[4]]
        assert "New training" not in screen_text(pilot)


async def test_the_cursor_goes_to_the_first_run_of_another_program_and_stays_in_it(run_of):
    async with open_wizard("down", "down") as pilot:
        assert cursor(pilot) == "quickstart"
        run = run_of("first")
        await wait_for_text(pilot, "first")
        assert cursor(pilot) == f"run:{run.path}"
        second = run_of("second")
        await wait_for_text(pilot, "second")
        folders.remove_run(second)
        await until_true(pilot, lambda: "second" not in titles(pilot))
        assert cursor(pilot) == f"run:{run.path}"
        folders.remove_run(run)
        await wait_for_text(pilot, "See it work")
        assert cursor(pilot) == "finetune"


async def test_the_cursor_goes_to_the_run_that_was_opened_last(tmp_path):
    older = finished_run(tmp_path)
    newer = RunFolder(older.path.with_name("20260102-120000-newer"))
    shutil.copytree(older.path, newer.path)
    async with open_wizard(run=older) as pilot:
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "2 runs")
        assert cursor(pilot) == f"run:{older.path}"
        pilot.app.post_message(OpenRun(newer))
        await wait_for_text(pilot, "● 5 Run")
        await press_keys("escape")(pilot)
        assert cursor(pilot) == f"run:{newer.path}"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "my chats.jsonl"
    path.write_text('{"prompt": "a", "completion": "b"}\n')
    return path


async def paste(pilot: Pilot[Any], text: str) -> None:
    """Paste a text as a terminal does."""
    pilot.app.post_message(Paste(text))
    await wait_for_workers(pilot)


async def test_the_choice_of_a_new_training_takes_a_paste_as_home_does(rows):
    async with open_wizard("n") as pilot:
        await wait_for_text(pilot, "Train with my own script")
        await paste(pilot, f"acme/base '{rows}'")
        await wait_for_text(pilot, "● 1 Hardware")
        assert pilot.app.profile.trainer.model == "acme/base"


async def test_what_is_pasted_opens_its_steps_and_one_key_leads_to_backend(rows):
    async with open_wizard(notifications=True) as pilot:
        await paste(pilot, f"acme/base '{rows}'")
        await wait_for_text(pilot, "● 1 Hardware")
        (notice,) = pilot.app._notifications
        assert notice.message == "acme/base: the model, my chats.jsonl: data for a fine-tune"
        await press_keys("enter")(pilot)
        assert "● 2 Backend" in screen_text(pilot)
        trainer = pilot.app.profile.trainer
        assert (trainer.kind, trainer.model, trainer.data) == ("finetune", "acme/base", (str(rows),))


async def test_what_is_typed_opens_the_same(rows):
    async with open_wizard("n", "up", "enter") as pilot:
        await press_keys(*str(rows.parent / "my"), "tab")(pilot)
        assert pilot.app.screen.query_one(Input).value == str(rows)
        await press_keys("enter", "enter")(pilot)
        assert "● 2 Backend" in screen_text(pilot)
        assert pilot.app.profile.trainer.data == (str(rows),)


async def test_what_cannot_be_opened_is_at_hand_with_the_reason(rows):
    async with open_wizard() as pilot:
        await paste(pilot, f"{rows}.gz\nacme/base\x1b")
        entry = pilot.app.screen.query_one(Input)
        assert entry.value == f"{rows}.gz acme/base\\x1b"
        assert "There is no file or folder" in screen_text(pilot)
        await press_keys("ctrl+u")(pilot)
        await paste(pilot, f"'{rows}'\nacme/base")
        assert entry.value == f"'{rows}' acme/base"
        await press_keys("enter")(pilot)
        await wait_for_text(pilot, "● 1 Hardware")
        assert pilot.app.profile.trainer.data == (str(rows),)
        await press_keys("escape")(pilot)
        await paste(pilot, " \n")
        assert isinstance(pilot.app.screen, HomeScreen)


async def test_a_pasted_path_that_is_missing_is_refused_at_once_with_what_is_near(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/chats.jsonl").touch()
    near = {
        "data/chat.jsonl": "; there is chats.jsonl.",
        "dta/chats.jsonl": "; there is /",
        "data/sub/x.jsonl": ": no sub in /",
        "data/other.txt": ". Check",
    }
    async with open_wizard(size=(120, 40)) as pilot:
        for pasted, clause in near.items():
            await paste(pilot, pasted)
            await wait_for_text(pilot, "There is no file or folder")
            refused = str(pilot.app.screen.query_one("#refused").render())
            assert refused.startswith(f"✗ There is no file or folder {pasted}{clause}")
            await press_keys("escape")(pilot)
        await paste(pilot, "python trian.py")
        await wait_for_text(pilot, "Open this command")
        assert "(no such file)" in " ".join(screen_text(pilot).replace("▌", " ").split())
        await press_keys("escape")(pilot)


async def test_a_pasted_command_is_taken_only_after_its_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = "export ACCELERATE_USE_GLOO=1\rtorchrun --nproc_per_node=2 \\\r  train.py --lr $LR --x 1"
    async with open_wizard(notifications=True) as pilot:
        await paste(pilot, lines)
        shown = screen_text(pilot)
        words = (
            "Open this command in the wizard?",
            "1 entry is",
            "--nproc_per_node=2",
            "hardware.processes=2",
            "Esc Cancel",
        )
        assert all(word in shown for word in words), shown
        await press_keys("escape")(pilot)
        assert isinstance(pilot.app.screen, HomeScreen)
        assert pilot.app.profile.trainer.kind != "script"
        await paste(pilot, lines)
        await press_keys("enter")(pilot)
        await wait_for_text(pilot, "● 1 Hardware")
        trainer = pilot.app.profile.trainer
        assert (trainer.kind, trainer.script, trainer.arguments) == ("script", str(tmp_path / "train.py"), ("--x", "1"))
        (notice,) = pilot.app._notifications
        assert "s there saves it" in notice.message


async def test_a_pasted_script_is_found_above_the_folder_in_which_the_wizard_began(machine, tmp_path, monkeypatch):
    below = tmp_path / "project" / "docs"
    below.mkdir(parents=True)
    (tmp_path / "project" / "train.py").write_text("print(1)\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(below)
    async with open_wizard() as pilot:
        await paste(pilot, "python train.py --steps 3")
        await wait_for_text(pilot, "Open this command")
        assert "no such file" not in screen_text(pilot)
        assert "not in the current folder" in " ".join(screen_text(pilot).replace("▌", " ").split())
        await press_keys("enter")(pilot)
        await wait_for_text(pilot, "● 1 Hardware")
        assert pilot.app.profile.trainer.script == str(tmp_path / "project" / "train.py")


async def test_a_home_without_runs_offers_no_filter_and_says_why(machine):
    async with open_wizard(notifications=True) as pilot:
        assert "filter" not in screen_text(pilot).lower()
        await press_keys("slash")(pilot)
        (notice,) = pilot.app._notifications
        assert "no run or profile yet" in notice.message


async def test_the_palette_leads_home_from_a_step(machine):
    async with open_wizard("enter") as pilot:
        await wait_for_text(pilot, "● 1 Hardware")
        (home,) = (each for each in pilot.app.get_system_commands(pilot.app.screen) if each.title == "Go to Home")
        home.callback()
        await pilot.pause()
        assert isinstance(pilot.app.screen, HomeScreen)
        assert "Go to Home" not in {each.title for each in pilot.app.get_system_commands(pilot.app.screen)}


async def test_a_terminal_that_is_made_wide_shows_the_pane(machine):
    async with open_wizard() as pilot:
        assert "a folder with weights" not in screen_text(pilot)
        await pilot.resize_terminal(120, 40)
        await wait_for_text(pilot, "a folder with weights")


async def test_a_typed_command_and_the_path_of_a_script_open_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sbatch").write_text("#SBATCH -p gpu\nsrun python train.py\n")
    async with open_wizard("n", "up", "enter") as pilot:
        await press_keys(*"torchrun a.py --x", "enter")(pilot)
        await wait_for_text(pilot, "trainer.launcher=torchrun")
        await press_keys("escape")(pilot)
        await paste(pilot, "run.sbatch")
        await wait_for_text(pilot, "slurm.partition=gpu")


@pytest.mark.parametrize(("width", "name"), [(80, "gpu-box-of-the-lab"), (60, "gpu-bo…")])
async def test_the_title_says_what_can_train_and_cuts_the_name_first(machine, width, name):
    busy = msgspec.structs.replace(THREE_CARDS[0], processes=(GpuProcess(7, "python", "ann", 9 << 30),))
    old = msgspec.structs.replace(THREE_CARDS[1], compute_capability="3.5")
    machine(
        msgspec.structs.replace(THREE_CARD_MACHINE, hostname="gpu-box-of-the-lab", gpus=(busy, old, THREE_CARDS[2]))
    )
    async with open_wizard(size=(width, 20)) as pilot:
        assert screen_text(pilot).splitlines()[0].rstrip().endswith(f" {name}   2 of 3 GPUs can train, 1 busy")


@pytest.mark.whole
async def test_live_runs_come_first_with_what_they_do(run_of):
    live = run_of("going", steps=10_000, pause=0.02)
    run_of("done")
    run_of("broken", code=1)
    store.save_profile(profile({"name": "mine", "trainer.model": "/m/tiny", "hardware.processes": 2}))
    async with open_wizard() as pilot:
        await wait_for_text(pilot, "ValueError: the data")
        order = ["Running", "going", "CPU", "Runs", "broken", "done", "Profiles", "mine", "New training"]
        assert titles(pilot)[2:11] == order
        assert cursor(pilot) == f"run:{live.path}"
        lines = [line for line in screen_text(pilot).splitlines() if line[1:].strip()]
        seen = dict(zip(titles(pilot), lines, strict=True))
        for row, words in (("going", "/200"), ("CPU", "loss"), ("done", "eval loss 1.250"), ("done", "3/200"),
                           ("mine", "finetune, tiny"), ("mine", "2 GPUs")):  # fmt: skip
            assert words in seen[row]
        await until_true(pilot, lambda: seen["going"] not in screen_text(pilot))
        assert cursor(pilot) == f"run:{live.path}"


def listed_rows(counts: dict[str, int]) -> list[ListRow]:
    """Return a title, so many rows and a blank line for each section."""
    blank = ListRow("", (), tuple)
    return [
        row
        for section, count in counts.items()
        for row in (
            blank._replace(data=(section,)),
            *(ListRow(f"{section}{number}", (number,), tuple, 2, section) for number in range(count)),
            blank,
        )
    ]


def test_live_runs_stay_in_sight_unless_they_take_half_the_list():
    state = ListState(listed_rows({"live": 2, "runs": 20}), "live")
    assert (state.pinned_line_count(20), state.pinned_line_count(11)) == (6, 0)
    state.cursor = "runs3"
    lines = state.lines_of_row("runs3")
    for top in (0, 8, 40):
        shown = state.top_line_to_show_cursor(top, 20)
        assert shown + 6 <= lines.start < lines.stop <= shown + 20
    state.cursor = "live1"
    assert state.top_line_to_show_cursor(30, 20) == 30
    state.cursor = "live0"
    assert state.top_line_to_show_cursor(30, 20) == 0
    assert ListState(listed_rows({"live": 2, "runs": 20})).pinned_line_count(20) == 0


async def test_the_title_of_the_runs_stays_between_those_and_a_running_one(tmp_path, monkeypatch):
    digest = DigestCache().read_digest(finished_run(tmp_path))
    runs = [
        msgspec.structs.replace(
            digest,
            run=RunFolder(tmp_path / f"20260101-1200{number:02}-train"),
            status=RunStatus("finished" if number else "running", started=1000.0),
        )
        for number in range(20, -1, -1)
    ]
    state = HomeState()
    state.update(tuple(runs), (), None)
    async with open_wizard() as pilot:
        await wait_for_workers(pilot)
        monkeypatch.setattr(HomeScreen, "refresh_list", lambda _screen: None)
        pilot.app.query_one(CursorList).show(home_rows(state))
        for keys in (("home",), ("down",) * 18, ("up",)):
            await press_keys(*keys)(pilot)
            lines = screen_text(pilot).splitlines()
            (at,) = (number for number, line in enumerate(lines) if line.strip().startswith("Runs ─"))
            assert lines[at + 1].split()[0] == "✓"


@pytest.mark.whole
async def test_nothing_is_hidden_and_tab_goes_from_panel_to_panel(run_of):
    make_run_copies(run_of("first"), 70)
    for number in range(40):
        store.save_profile(profile({"name": f"p{number:02}"}))
    async with open_wizard() as pilot:
        assert "71 runs, 40 saved profiles" in screen_text(pilot)
        await press_keys("tab")(pilot)
        assert cursor(pilot) == "profile:p00"
        await press_keys("tab")(pilot)
        assert cursor(pilot) == "new"
        await press_keys("tab", "shift+tab", "end")(pilot)
        assert cursor(pilot) == "new"
        await press_keys("up")(pilot)
        assert cursor(pilot) == "profile:p39"
        await press_keys("home", *["pagedown"] * 3)(pilot)
        line = screen_text(pilot).splitlines()
        assert any("▌" in row for row in line)
        await press_keys("home")(pilot)
        assert cursor(pilot) == f"run:{run_folders.list_runs()[0].path}"


async def test_typing_finds_runs_and_profiles_by_what_they_are(run_of, tmp_path):
    (tmp_path / "books.txt").write_text("text")
    data = {"trainer.data": (str(tmp_path / "books.txt"),), "trainer.arguments": ("3", "0", "0", "{data}")}
    run_of("alpha", **data)
    run_of("beta", code=1)
    noted = run_of("gamma")
    folders.write_note(noted, "[red]x[/] \x1b[31m the Paper")
    store.save_profile(profile({"name": "delta", "trainer.model": "/m/books-model"}))
    async with open_wizard() as pilot:
        await press_keys("slash", *"BOOKS")(pilot)
        assert titles(pilot)[2:6] == ["Runs", "alpha", "Profiles", "delta"]
        assert "1 of 3 runs, 1 of 1 saved profile" in screen_text(pilot)
        await press_keys("escape", "slash", *"failed")(pilot)
        assert titles(pilot)[2:4] == ["Runs", "beta"]
        await press_keys("enter")(pilot)
        assert isinstance(pilot.app.screen, HomeScreen)
        assert pilot.app.screen.focused is pilot.app.screen.query_one(CursorList)
        assert titles(pilot)[2:4] == ["Runs", "beta"]
        assert "\x1b" not in screen_text(pilot)
        await press_keys("escape", "slash", *"nowhere[")(pilot)
        assert "No run or profile has these words" in screen_text(pilot)
        await press_keys("escape")(pilot)
        assert "[red]x[/]" in screen_text(pilot)
        await press_keys("slash", *"paper gam", "enter", "enter")(pilot)
        await wait_for_text(pilot, "● 5 Run", "gamma")


async def test_what_is_typed_at_once_or_pasted_is_for_the_filter_alone(run_of, rows):
    run_of("qwen")
    run_of("other")
    async with open_wizard() as pilot:
        for key in ("slash", *"qwen"):
            pilot.app.post_message(Key(key, None if len(key) > 1 else key))
        await wait_for_text(pilot, "1 of 2 runs")
        assert titles(pilot)[2:4] == ["Runs", "qwen"]
        await paste(pilot, str(rows))
        assert "0 of 2 runs" in screen_text(pilot)
        assert isinstance(pilot.app.screen, HomeScreen)


async def test_a_typed_path_whose_slash_opens_the_filter_begins_with_it(run_of, rows):
    run_of("qwen")
    async with open_wizard() as pilot:
        for typed, last_key in (
            (rows.parent / "nothing", "enter"),
            ("/usr", "enter"),
            ("/x" * 300, "enter"),
            (rows, "down"),
        ):
            pilot.app.screen.action_open_filter()
            pilot.app.screen.query_one(Input).value = str(typed)[1:]
            await press_keys(last_key)(pilot)
            assert "0 of 1 run" in screen_text(pilot)
            await press_keys("escape")(pilot)
        await press_keys(*str(rows), "enter")(pilot)
        await wait_for_text(pilot, "● 1 Hardware")
        assert pilot.app.profile.trainer.data == (str(rows),)
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "qwen")


@pytest.mark.parametrize(
    ("size", "told", "drawn"),
    [((120, 40), True, True), ((160, 50), True, True), ((100, 40), False, True), ((80, 24), False, False)],
)
async def test_what_is_known_of_a_run_stands_beside_the_list(run_of, size, told, drawn):
    """What differs from the run before it, which is of the same profile, is told, why one failed, and its losses."""
    first = run_of("mine")
    run_of("other")
    newest = run_of("mine", steps=30, code=1)
    async with open_wizard(size=size) as pilot:
        await until_true(
            pilot, lambda: ("Changed" in side_text(pilot), newest.name in screen_text(pilot)) == (told, True)
        )
        await until_true(
            pilot, lambda: (has_braille(screen_text(pilot)), "Loss " in screen_text(pilot)) == (drawn, drawn)
        )
        if not told:
            return
        await until_true(pilot, lambda: "the data is bad" in " ".join(side_text(pilot).split()))
        shown = " ".join(side_text(pilot).split())
        assert "Script steps.py" in shown
        assert "Loss 0.133, step 30" in shown
        assert f"since {first.name}" in shown
        assert "3 0 0 → 30 1 0" in shown
        await press_keys("down", "down")(pilot)
        await until_true(pilot, lambda: "Changed" not in side_text(pilot) and "mine" in side_text(pilot))
        await press_keys("end")(pilot)
        await until_true(pilot, lambda: not side_text(pilot).strip() and not has_braille(screen_text(pilot)))


def side_text(pilot: Pilot[Any]) -> str:
    """What stands beside the list."""
    return "\n".join(line.partition("│")[2] for line in screen_text(pilot).splitlines())


def has_braille(text: str) -> bool:
    return any("\u2800" < letter <= "\u28ff" for letter in text)


@pytest.mark.whole
async def test_runs_by_their_profile(run_of):
    for name in ("one", "two", "one"):
        run_of(name)
    async with open_wizard() as pilot:
        assert named(pilot)[2:6] == ["Runs", "one", "two", "one"]
        assert {"By profile"} == {"By profile", "By age"} & offered(pilot)
        await press_keys("b")(pilot)
        assert named(pilot)[2:7] == ["one", "one", "one", "two", "two"]
        assert {"By age"} == {"By profile", "By age"} & offered(pilot)
        await press_keys("b")(pilot)
        assert named(pilot)[2:6] == ["Runs", "one", "two", "one"]


def offered(pilot: Pilot[Any]) -> set[str]:
    """The words of the actions that work now."""
    active = pilot.app.screen.active_bindings.values()
    return {each.binding.description for each in active if each.enabled}


async def test_a_run_with_a_checkpoint_resumes(tmp_path):
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
    run = create_run(sleeper_profile(**values, name="saves"))
    run_launch_script(run)
    assert DigestCache().read_digest(run).is_resumable
    async with open_wizard(size=(120, 40)) as pilot:
        assert "can resume" in screen_text(pilot)
        assert "Resume" in offered(pilot)
        await press_keys("r")(pilot)
        await wait_for_text(pilot, "● 5 Run")
        wait_until(lambda: read_status(run).state == "finished")
        assert not DigestCache().read_digest(run).is_resumable


@pytest.mark.whole
async def test_a_stopped_run_is_asked_about_first(run_of):
    run = run_of("going", steps=10_000, pause=0.05)
    async with open_wizard(notifications=True) as pilot:
        assert not {"Delete", "Rename"} & offered(pilot)
        await press_keys("d", "m")(pilot)
        refused = " ".join(notice.message for notice in pilot.app._notifications)
        assert [words in refused for words in ("cannot be deleted", "cannot be renamed")] == [True, True]
        for answer in (("enter",), ("down", "enter")):
            assert read_status(run).is_live
            # Its worker looks for the end of the run as long as it is asked.
            await pilot.press("s")
            await wait_for_text(pilot, "Stop the run", during=True)
            await pilot.press(*answer)
            await wait_for_workers(pilot)
        await wait_for_text(pilot, "stopped")


@pytest.mark.whole
async def test_deleting_says_what_it_frees_and_asks(run_of):
    first, second, third, gone = (run_of(name) for name in "abcd")
    (gone.path / "big").write_bytes(b"x" * (3 << 20))
    async with open_wizard("d") as pilot:
        await wait_for_text(pilot, f"It frees {size_text(folder_usage(str(gone.path)).size)}", gone.name)
        await press_keys("enter")(pilot)
        assert gone.path.exists()
        await press_keys("d")(pilot)
        await wait_for_text(pilot, "It frees")
        await press_keys("down", "enter")(pilot)
        await wait_for_text(pilot, "3 runs")
        assert [run.path.exists() for run in (first, second, third, gone)] == [True, True, True, False]
        assert cursor(pilot) == f"run:{third.path}"
        await press_keys("space", "space")(pilot)
        assert screen_text(pilot).count("◆") == 2
        await press_keys("d")(pilot)
        await wait_for_text(pilot, "the 2 marked runs (c, b)")
        await press_keys("down", "enter")(pilot)
        await wait_for_text(pilot, "1 run ")
        assert [run.path.exists() for run in (first, second, third)] == [True, False, False]
        assert "◆" not in screen_text(pilot)


@pytest.mark.whole
async def test_runs_are_noted_and_renamed_and_keep_their_marks(run_of):
    first, second, third = run_of("a"), run_of("b"), run_of("c")

    def notes() -> list[str]:
        return [run.note() for run in (first, second, third)]

    async with open_wizard() as pilot:
        await press_keys("i", *"try 2", "enter")(pilot)
        assert notes() == ["", "", "try 2"]
        await press_keys("i", "escape")(pilot)
        assert notes() == ["", "", "try 2"]
        await press_keys("i", "ctrl+u", "enter", "space", "space", "i")(pilot)
        assert notes() == ["", "", ""]
        assert "the 2 marked runs (c, b)" in screen_text(pilot)
        await press_keys(*"both", "enter")(pilot)
        assert notes() == ["", "both", "both"]
        await press_keys("up", "m")(pilot)
        assert second.name in screen_text(pilot)
        await press_keys("ctrl+u", *"new name", "enter")(pilot)
        await wait_for_text(pilot, "◆ new-name")
        assert [run.label for run in run_folders.list_runs()] == ["c", "new-name", "a"]
        assert cursor(pilot).endswith("new-name")
        assert screen_text(pilot).count("◆") == 2
        await press_keys("escape")(pilot)
        assert "◆" not in screen_text(pilot)


async def test_profiles_are_copied_renamed_and_deleted():
    store.save_profile(profile({"name": "mine", "recipe.steps": 5}))
    async with open_wizard(notifications=True) as pilot:
        assert cursor(pilot) == "profile:mine"
        await press_keys("y", "enter")(pilot)
        assert store.saved_profile_names() == ("mine", "mine-2")
        await press_keys("m", "ctrl+u", *"other", "enter")(pilot)
        assert store.saved_profile_names() == ("mine-2", "other")
        assert cursor(pilot) == "profile:other"
        await press_keys("d", "down", "enter")(pilot)
        assert store.saved_profile_names() == ("mine-2",)
        await press_keys("m", "ctrl+u", *"../x", "enter")(pilot)
        await wait_for_text(pilot, "cannot be a")
        assert store.saved_profile_names() == ("mine-2",)
        entry = pilot.app.screen.query_one(Input)
        assert entry.value == "../x", "what was typed is still there"
        await press_keys("ctrl+u", *"good", "enter")(pilot)
        assert store.saved_profile_names() == ("good",)


@pytest.mark.whole
async def test_a_profile_runs_at_once_or_says_what_forbids_it(monkeypatch):
    store.save_profile(sleeper_profile("--seconds=0.1", name="good"))
    store.save_profile(sleeper_profile(name="bad", **{"trainer.script": "/nowhere/at/all.py"}))
    look = lambda _here, chosen, _waits: facts(paths=read_profile_files(chosen).paths)  # noqa: E731
    monkeypatch.setattr(Place, "probe_facts_for", look)
    async with open_wizard() as pilot:
        await press_keys("g")(pilot)
        await wait_for_text(pilot, "cannot start here")
        assert "/nowhere/at/all.py" in screen_text(pilot)
        assert not run_folders.list_runs()
        await press_keys("escape", "down", "g")(pilot)
        await wait_for_text(pilot, "● 5 Run")
        assert [run.label for run in run_folders.list_runs()] == ["good"]


async def test_a_profile_runs_at_once_whatever_host_the_opened_one_has():
    store.save_profile(sleeper_profile(name="near"))
    async with open_wizard() as pilot:
        home = pilot.app.screen
        pilot.app.edits.set_profile(profile({"hardware.host": "nowhere-at-all"}), save_as_draft=False)
        home.row_list.go_to_row(next(iter(home.state.profiles)))
        assert home.check_action("run_now", ())


def test_what_is_saved_is_in_the_first_picture(terminals):
    """The page that begins a training never flashes up before the list."""
    store.save_profile(profile({"name": "mine"}))
    terminals.append(terminal := Terminal())
    terminal.child.expect_exact("1 saved profile")
    assert b"See it work" not in terminal.child.before
    # What came with the count is no longer there for the terminal's own screen.
    terminal.child.expect_exact("  mine ")


@pytest.mark.whole
async def test_many_runs_open_and_move_as_quickly_as_few(run_of, monkeypatch):
    make_run_copies(run_of("first"), 300)
    async with open_wizard() as pilot:
        drawn = pilot.app.screen.query_one(CursorList)
        assert drawn.state.height > 300
        calls = []
        draw = cursor_list.line_strip
        monkeypatch.setattr(cursor_list, "line_strip", lambda *line: calls.append(line) or draw(*line))
        await press_keys("down")(pilot)
        assert 0 < len(calls) < 6
        calls.clear()
        await press_keys("end")(pilot)
        assert 0 < len(calls) < 30


def test_dates_and_times_are_called_as_near_ones_are():
    now = time.mktime((2026, 3, 12, 10, 0, 0, 0, 0, -1))
    for days, text in (
        (-1 / 24, "today 09:00"), (-1, "yesterday"), (-3, "Mon 10:00"), (-30, "10 Feb"), (-400, "2025-02-05"),
        (3, "2026-03-15"),
    ):  # fmt: skip
        assert relative_date_text(now + days * 86400, now) == text
    assert relative_date_text(None, now) == ""
    assert [remaining_time_text(seconds) for seconds in (5, 840, 11_400, 1e6)] == [
        "<1 min",
        "14 min",
        "3 h 10",
        "11 days",
    ]


@pytest.mark.parametrize(("size", "left_out"), [((80, 24), True), ((200, 50), False)])
async def test_the_footer_says_how_many_keys_it_leaves_out_and_the_palette_has_them(run_of, size, left_out):
    run_of("mine")
    async with open_wizard(size=size) as pilot:
        assert (", +" in screen_text(pilot).splitlines()[-1]) is left_out
        commands = [command.title.partition(" (")[0] for command in pilot.app.get_system_commands(pilot.app.screen)]
        assert {"Note", "Rename", "Delete", "Help", "Look again at this machine and its Pythons", "Quit"} <= {*commands}
        assert commands.index("Note") < commands.index("Go to Recipe") < commands.index("Seed")


async def test_a_lost_run_has_one_cause_everywhere(run_of):
    run = run_of("mine")
    kept = [line for line in run.events_file.read_text().splitlines() if "ended" not in line]
    run.events_file.write_text("\n".join(kept) + "\n")
    assert read_status(run).state == "lost"
    found = diagnose_run(run)
    assert found is not None
    assert found.failure == "session_killed"
    async with make_wizard().run_test(size=(120, 40)) as pilot:
        await wait_for_text(pilot, "session killed")
        await until_true(pilot, lambda: found.cause in " ".join(side_text(pilot).split()))
        await press_keys("enter")(pilot)
        await wait_for_text(pilot, "✗ The session was killed")


@pytest.mark.whole
async def test_escape_goes_back_to_where_one_came_from(run_of):
    run_of("mine", **{"trainer.environment": {"A": "b"}})
    run_of("mine")
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        app = pilot.app
        await wait_for_text(pilot, "2 runs")
        await press_keys("enter", "e")(pilot)
        await wait_for_text(pilot, "● 3 Recipe")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "● 2 Backend")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "● 1 Hardware")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "● 5 Run")
        await press_keys("escape", "home", "space", "space", "c", "enter")(pilot)
        await wait_for_text(pilot, "● 5 Run")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "Home › Compare")
        await press_keys("left", "enter", "ctrl+p", *"goto recipe", "enter")(pilot)
        await wait_for_text(pilot, "● 3 Recipe")
        assert app.profile.trainer.environment == {"A": "b"}
        await press_keys("escape", "escape", "escape", "escape", "escape")(pilot)
        assert isinstance(pilot.app.screen, HomeScreen)


@pytest.mark.whole
async def test_what_is_edited_of_a_run_is_kept_as_the_draft_and_said(run_of):
    run_of("mine")
    async with make_wizard().run_test(size=(80, 24), notifications=True) as pilot:
        app = pilot.app
        await wait_for_text(pilot, "1 run")
        await press_keys("e")(pilot)
        await wait_for_text(pilot, "● 3 Recipe")
        await press_keys("escape", "escape", "escape")(pilot)
        assert isinstance(app.screen, HomeScreen)
        assert "Your changes are kept" not in screen_text(pilot), "nothing was changed"
        await press_keys("e", "escape")(pilot)
        await wait_for_text(pilot, "● 2 Backend")
        app.screen.form.go_to_row("trainer.arguments")
        await press_keys("end", "space", "4", "2", "escape", "escape")(pilot)
        await wait_for_text(pilot, "Your changes are kept")
        await wait_for_text(pilot, "Continue the draft")
        await press_keys("end", "up", "enter")(pilot)
        await wait_for_text(pilot, "● 2 Backend")
        assert app.profile.trainer.arguments[-1] == "42"


async def test_what_was_said_goes_with_the_screen(run_of):
    run_of("mine")
    async with open_wizard(notifications=True) as pilot:
        pilot.app.notify("something wrong", severity="error", timeout=60)
        await wait_for_text(pilot, "something wrong")
        await press_keys("enter")(pilot)
        await wait_for_text(pilot, "● 5 Run")
        assert "something wrong" not in screen_text(pilot)


def test_a_slash_before_the_filter_is_there_does_nothing():
    late = FilterLine("name or state")
    late.open_input()
    assert not late.children


async def test_a_dialog_on_a_low_terminal_shows_its_keys(machine):
    async with open_wizard(size=(40, 12)) as pilot:
        pilot.app.screen.ask_choice("Which?", [(str(number), f"answer {number}") for number in range(9)], print)
        await pilot.pause()
        assert "Esc Cancel" in screen_text(pilot)


def test_the_time_left_leaves_out_how_long_the_start_took(machine, tmp_path):
    run, cache = live_run(tmp_path), DigestCache()
    began = {"time": time.time() - 60, "event": "attempt_started", "attempt": 3, "position": 2}
    run.events_file.write_bytes(run.events_file.read_bytes() + b"\n" + msgspec.json.encode(began) + b"\n")
    left = []
    for step in (5, 6, 7):
        with run.attempt_log(3).open("a") as log:
            log.write(f"step {step}/100 | loss 1.5\n")
        left.append(cache.read_digest(run).seconds_left)
    assert left[:2] == [None, None], "a minute for 5 steps is how long the start took"
    assert left[2] is not None
    assert left[2] < 60


async def test_quitting_a_watched_run_by_a_stop_says_what_became_of_it(run_of, capfd):
    run = run_of("left", steps=500, pause=0.2)
    app = make_wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "running")
        await pilot.press("q", "down", "enter")
        await until_true(pilot, lambda: app.return_code is not None)
    said = " ".join(capfd.readouterr().err.split())
    assert said.startswith(f"{run.name}: stopped; no process of it is left It ")
    assert f"tui-train logs {run.name}" in said


def test_the_list_names_a_finished_run_whose_loss_is_nan(tmp_path, capsys):
    run = finished_run(tmp_path)
    with run.attempt_log(2).open("a") as log:
        log.write("step 60/60 | loss nan\n")
    print_runs("", as_json=False)
    assert "finished, loss is NaN" in capsys.readouterr().out


@pytest.mark.whole
async def test_a_run_that_is_edited_is_compared_with_itself_and_not_taken_back(run_of):
    older = run_of("mine", steps=3)
    run_of("mine", steps=4)
    async with make_wizard().run_test(size=(120, 40)) as pilot:
        await wait_for_text(pilot, "2 runs")
        await press_keys("down", "e")(pilot)
        await wait_for_text(pilot, "● 3 Recipe")
        await press_keys("ctrl+z")(pilot)
        assert pilot.app.profile.trainer.arguments[0] == "3", "nothing was changed that could be taken back"
        await press_keys("enter")(pilot)
        await wait_for_text(pilot, "● 4 Preview")
        await until_true(pilot, lambda: pilot.app.screen._preview_content.compared_run_name)
        assert pilot.app.screen._preview_content.compared_run_name == older.name


@pytest.mark.whole
async def test_a_key_that_comes_with_the_one_that_opens_a_dialog_is_not_refused_behind_it(run_of):
    run_of("mine")
    async with make_wizard().run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for_text(pilot, "1 run")
        for letter in "nr":
            pilot.app.post_message(Key(letter, letter))
        await wait_for_text(pilot, "New training", "Choose")
        await wait_for_workers(pilot)
        assert not [*pilot.app._notifications]
