"""A fault in any part of the wizard is shown in one line and written to a file, and every key still works."""

import ast
import asyncio
import contextlib
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pexpect
import pytest
import random_events
from pilot import (
    THREE_CARD_MACHINE,
    finished_run,
    open_wizard,
    press_keys,
    screen_text,
    until_true,
    wait_for_text,
    wait_for_workers,
)
from support import RUN_WHOLE_MATRICES, sample
from terminal import Terminal
from textual.css.query import NoMatches
from textual.message import Message
from textual.pilot import Pilot
from textual.worker import Worker
from tui_train.screens.chat.screen import ChatScreen
from tui_train.screens.compare import CompareScreen
from tui_train.screens.data.screen import DataPreviewScreen
from tui_train.screens.discovery.discovery import LOCAL_FACTS_PARTS
from tui_train.screens.discovery.machine_queries import QUERY_BY_FACTS_PART
from tui_train.screens.evaluate import EvaluateScreen
from tui_train.screens.hardware.screen import HardwareScreen
from tui_train.screens.home.screen import HomeScreen
from tui_train.screens.messages import OpenRun, OpenStep
from tui_train.screens.publish import PublishScreen
from tui_train.screens.result.screen import ResultScreen
from tui_train.screens.run import screen as run_module
from tui_train.screens.run.answers_screen import AnswersScreen
from tui_train.screens.run.run_state import run_state_lines
from tui_train.screens.run.run_view import RunView
from tui_train.screens.widgets.dialogs import ChoiceDialog, TextDialog
from tui_train.screens.widgets.key_bar import KeyBar
from tui_train.screens.widgets.multi_select import MultiSelect

from tui_train.base.app_paths import faults_log
from tui_train.base.errors import BadInput
from tui_train.base.fault_log import record_fault
from tui_train.base.text import display_path
from tui_train.checks.finding import EnvironmentInstall
from tui_train.profile.fields import profile_with_value
from tui_train.profile.types import Profile
from tui_train.runs.results.result import read_result
from tui_train.wizard import make_wizard

ROOT = Path(__file__).parents[2] / "screens"
TREES = [(path, ast.parse(path.read_text())) for path in sorted(ROOT.rglob("*.py"))]
INJECTED = "an injected fault"


def methods(decorator: str) -> list[tuple[str, str]]:
    """Return the class and the name of each method that has a decorator, wherever it is in the screens."""
    found = []
    for _path, tree in TREES:
        for node in ast.walk(tree):
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                names = [ast.unparse(word).partition("(")[0] for word in getattr(part, "decorator_list", ())]
                if decorator in names:
                    found.append((node.name, part.name))
    return found


WORKERS = methods("work")
HANDLERS = methods("on")
# One of each screen and part of one, of the same kind as the others.
SAMPLED = WORKERS if RUN_WHOLE_MATRICES else sample({owner: (owner, name) for owner, name in WORKERS}.values(), 3)
HANDLED = HANDLERS if RUN_WHOLE_MATRICES else sample({owner: (owner, name) for owner, name in HANDLERS}.values(), 3)
ASKED = [*LOCAL_FACTS_PARTS, "help", "recipes"]


def begin_query(app: Any, name: str) -> None:
    app.mark_parts_awaited(name)
    app.run_query(name, failing)


def begin_draft(app: Any) -> None:
    app.edits.set_profile(profile_with_value(Profile(), "recipe.layers", 7))
    app.edits.save_draft_in_background()


def begin_installation(app: Any) -> None:
    app.install_environment(EnvironmentInstall("hf", "made on purpose"))
    app.pop_screen()


OF_THE_APP = {"draft": begin_draft, "install": begin_installation}
OF_THE_APP["live"] = lambda app: app.screen.post_message(OpenStep("hardware"))
OF_THE_APP["files"] = lambda app: app.read_changed_files()
OF_THE_APP |= {name: partial(begin_query, name=name) for name in sample(ASKED, 4)}


def test_every_part_of_the_facts_is_asked_for_in_its_order():
    assert tuple(QUERY_BY_FACTS_PART) == LOCAL_FACTS_PARTS


def test_all_workers_are_found():
    """Every way to start a worker is one of those that are tested here."""
    text = "".join(ast.unparse(tree) for _path, tree in TREES)
    assert text.count("run_worker(") == 5, "the draft, an installation, the cards, changed files, and run_query()"
    assert len(WORKERS) == text.count("@work(") >= 15
    assert "exit_on_error" not in text, "it would hide the error"


@contextlib.asynccontextmanager
async def faulty() -> AsyncIterator[tuple[Any, Pilot[Any]]]:
    """Open a wizard in which something fails on purpose, which is checked by its own words."""
    app = make_wizard()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await press_keys()(pilot)
        try:
            yield app, pilot
        finally:
            error, app._exception = app._exception, None
        assert error is None or INJECTED in repr(getattr(error, "error", error)), error


async def at(app: Any, pilot: Pilot[Any], owner: str, tmp_path: Path) -> Any:
    """Go to where a class of the screens is in use, and return it."""
    module = {"BackendScreen": "backend", "StepWithNemoFiles": "backend", "PreviewScreen": "preview",
              "RecipeScreen": "recipe", "StepScreen": "recipe", "HardwareScreen": "hardware", "Form": "recipe",
              "TuningScreen": "recipe", "FileViewer": "preview", "PlanScreen": "preview",
              "ScreenWithFindings": "recipe", "CommunicationScreen": "backend"}.get(owner)  # fmt: skip
    if module:
        app.screen.post_message(OpenStep(module))
    elif owner in {"RunScreen", "LogPane", "MetricsScreen"}:
        app.screen.post_message(OpenRun(finished_run(tmp_path)))
    elif owner == "DataPreviewScreen":
        app.push_screen(DataPreviewScreen())
    elif owner in {"ResultScreen", "ChatScreen", "EvaluateScreen", "PublishScreen"}:
        run = finished_run(tmp_path)
        (run.path / "output/model").mkdir(parents=True)
        (run.path / "output/model/config.json").write_text("{}")
        made = read_result(run)
        opened = {
            "ResultScreen": lambda: ResultScreen(run, made),
            "ChatScreen": lambda: ChatScreen(run, compare=False),
            "EvaluateScreen": lambda: EvaluateScreen(run, {}),
            "PublishScreen": lambda: PublishScreen(run),
        }
        app.push_screen(opened[owner]())
    elif owner == "AnswersScreen":
        app.push_screen(AnswersScreen(RunView(finished_run(tmp_path))))
    elif owner == "CompareScreen":
        app.push_screen(CompareScreen((finished_run(tmp_path),)))
    elif owner in {"ChoiceDialog", "TextDialog"}:
        question = ChoiceDialog("Which?", (("a", "b"),)) if owner == "ChoiceDialog" else TextDialog("Which?")
        app.push_screen(question)
    opened_by = {"TuningScreen": ["f4"], "CommunicationScreen": ["t"], "MetricsScreen": ["m"]}
    await press_keys(*opened_by.get(owner, []))(pilot)
    nodes = [app, *app.screen_stack, *app.screen.walk_children()]
    return next(node for node in nodes if owner in {kind.__name__ for kind in type(node).__mro__})


async def shown(pilot: Pilot[Any]) -> str:
    """Return the notices, when one is about the fault; and what it names is written, and what is on the screen."""
    app = pilot.app
    await wait_for_workers(pilot, faults=True)
    (notice,) = [notice for notice in app._notifications if "Internal error" in notice.message]
    assert notice.severity == "error"
    assert "\n" not in notice.message
    assert notice.message.startswith("Internal error: Runt")
    named = notice.message.rpartition("; report: ")[2]
    assert named == display_path(str(faults_log()))
    written = faults_log().read_text()
    assert "Traceback" in written
    assert "RuntimeError: an injected fault" in written
    text = screen_text(pilot)
    assert "Internal error" in text
    assert "Traceback" not in text
    return str(notice.message)


async def usable(pilot: Pilot[Any]) -> None:
    """Keys work: the palette opens and closes, Escape leads Home, and from there on."""
    app = pilot.app

    async def press(*pressed: str) -> None:
        for key in pressed:
            random_events.send_event(app, ("key", key, True))
            await random_events.run_ready_callbacks(app)

    await press("ctrl+p")
    assert type(app.screen).__name__ == "Palette"
    for _ in range(9):
        if len(app.screen_stack) > 1:
            await press("escape")
            await asyncio.sleep(0.01)
    assert len(app.screen_stack) == 1
    await press("down", "enter")
    assert app.is_running
    assert not app._exit
    await press("f1")
    assert len(app.screen_stack) > 1


def failing(*_: Any, **_named: Any) -> Any:
    raise RuntimeError(INJECTED)


@contextlib.contextmanager
def failing_worker(name: str) -> Iterator[None]:
    """Let the workers of a name fail with their first step."""
    original = Worker.run

    async def run(self: Worker[Any]) -> Any:
        return failing() if self.name == name else await original(self)

    with mock.patch.object(Worker, "run", run):
        yield


def call(method: Callable[..., Any]) -> None:
    """Call a worker's method: what it is given does not matter to one that fails."""
    needed = [part for part in signature(method).parameters.values() if part.default is Parameter.empty]
    method(*[None] * len(needed))


@pytest.mark.parametrize(("owner", "name"), SAMPLED, ids=str)
async def test_a_fault_in_a_worker(seed, tmp_path, owner, name):
    async with faulty() as (app, pilot):
        node = await at(app, pilot, owner, tmp_path)
        with failing_worker(name):
            call(getattr(node, name))
            await shown(pilot)
        await usable(pilot)


@pytest.mark.parametrize(("name", "begin"), OF_THE_APP.items(), ids=OF_THE_APP)
async def test_a_fault_in_a_worker_of_the_app(seed, name, begin):
    async with faulty() as (app, pilot):
        with failing_worker(name):
            begin(app)
            await shown(pilot)
        assert name not in app.awaited_parts, "nothing waits for it any longer"
        await usable(pilot)


async def test_a_fault_in_a_worker_that_was_replaced_is_written_to_the_file(machine):
    begun, replaced = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        replaced.wait(30)
        raise ValueError(INJECTED)

    async with open_wizard() as pilot:
        begin = partial(pilot.app.screen.run_worker, thread=True, exclusive=True, group="replaced")
        begin(fail)
        await until_true(pilot, begun.is_set)
        begin(lambda: None)
        replaced.set()
        await until_true(pilot, faults_log().exists)
    assert INJECTED in faults_log().read_text()


def handlers_of(owner: str, name: str) -> Iterator[tuple[type, type[Message], list[Any], int]]:
    """Yield where Textual keeps a method of a class: its class, the message, the list and the place in it."""
    kinds = [kind for kind in all_kinds(object) if kind.__name__ == owner and kind.__module__.startswith("tui_train")]
    for kind in kinds:
        for message, listed in vars(kind).get("_decorated_handlers", {}).items():
            for place, (method, _) in enumerate(listed):
                if method.__name__ == name:
                    yield kind, message, listed, place


def all_kinds(kind: type) -> Iterator[type]:
    """Yield the subclasses of a class, and theirs."""
    for below in type.__subclasses__(kind):
        yield below
        yield from all_kinds(below)


@pytest.mark.whole
@pytest.mark.parametrize(("owner", "name"), HANDLED, ids=str)
async def test_a_fault_in_a_message_handler(seed, tmp_path, owner, name):
    async with faulty() as (app, pilot):
        node = await at(app, pilot, owner, tmp_path)
        _, kind, listed, place = next(handlers_of(owner, name))
        before = listed[place]
        listed[place] = (failing, before[1])
        try:
            message = kind.__new__(kind)
            Message.__init__(message)
            node.post_message(message)
            await shown(pilot)
        finally:
            listed[place] = before
        await usable(pilot)


PARTS = [
    *((HardwareScreen, name) for name in ("compose", "on_mount", "update", "check_action")),
    *((MultiSelect, name) for name in ("render_line", "get_content_height")),
    (KeyBar, "on_mount"),
]


@pytest.mark.parametrize(("kind", "name"), sample(PARTS, 4))
async def test_a_fault_in_a_part_of_a_screen(machine, kind, name):
    """What cannot be shown at all is left again; of what can, the rest is there."""
    machine(THREE_CARD_MACHINE)
    async with faulty() as (app, pilot):
        with mock.patch.object(kind, name, failing):
            await press_keys("enter")(pilot)
            await shown(pilot)
            assert name != "compose" or isinstance(app.screen, HomeScreen)
            assert kind is not MultiSelect or "Device" in screen_text(pilot)
        await usable(pilot)


async def test_a_fault_in_what_a_worker_has_its_screen_call(machine):
    async with faulty() as (app, pilot):
        app.screen.call_later(failing)
        await shown(pilot)
        await usable(pilot)


async def test_a_fault_in_an_action_and_in_a_timer(machine):
    async with faulty() as (app, pilot):
        with mock.patch.object(HomeScreen, "action_choose_start_option", failing):
            await press_keys("n")(pilot)
            await shown(pilot)
        timed = []
        timer = app.set_interval(0.01, lambda: timed.append(1) or failing())
        await until_true(pilot, lambda: len(timed) > 5)
        timer.stop()
        assert [*app._notifications][1:] == [], "it is said once"
        assert faults_log().read_text().count("Traceback") == 1
        await usable(pilot)


@pytest.mark.parametrize(
    "part",
    [
        "tui_train.actions.last_profile.remember_profile_without_secrets",
        "tui_train.screens.run.screen.RunScreen.ask_before_leaving",
    ],
)
async def test_the_wizard_can_be_left_whatever_fails(machine, tmp_path, capsys, part):
    async with faulty() as (app, pilot):
        app.open_run(finished_run(tmp_path))
        app.edits.set_profile(profile_with_value(Profile(), "recipe.layers", 7))
        await press_keys()(pilot)
        with mock.patch(part, failing):
            await pilot.press("q")
            await pilot.pause()
    assert app.return_code == 0
    lost = "could not be saved: an injected fault" in capsys.readouterr().err
    assert lost == ("remember" in part)


async def test_a_key_for_a_screen_that_has_lost_its_parts_is_no_fault(machine):
    async with open_wizard() as pilot:
        app: Any = pilot.app
        await app.push_screen(TextDialog("A file:", list_folder_names=lambda _folder: ()))
        await app.screen.query("*").remove()
        await pilot.press("tab")
        await wait_for_workers(pilot)
        assert app._exception is None
        with pytest.raises(NoMatches):
            app.screen.query_one("#refused")


async def test_an_error_with_a_remedy_is_no_fault(machine):
    def refuse(*_: object) -> None:
        raise BadInput("there is no such thing", "Name another one")

    async with open_wizard(notifications=True) as pilot:
        with mock.patch.object(HomeScreen, "action_choose_start_option", refuse):
            await press_keys("n")(pilot)
        assert [notice.message for notice in pilot.app._notifications] == ["There is no such thing. Name another one"]
        assert not faults_log().exists()


async def test_a_plan_can_be_started_again_after_a_fault(machine, tmp_path):
    async with faulty() as (app, pilot):
        preview = await at(app, pilot, "PreviewScreen", tmp_path)
        for _ in range(2):
            with failing_worker("_start_run"):
                await press_keys("enter")(pilot)
                assert not preview._starting
        await shown(pilot)


async def test_a_run_whose_numbers_end_the_reader_is_not_shown_as_if_it_were_followed(machine, tmp_path, monkeypatch):
    """As from a loss of 400 digits: what was read before stays, and says that nothing follows."""
    original = run_module.follow_snapshots

    def follow_snapshots(*arguments: Any) -> Iterator[Any]:
        yield next(iter(original(*arguments)))
        failing()

    monkeypatch.setattr(run_module, "follow_snapshots", follow_snapshots)
    monkeypatch.setattr(run_module, "_FOLLOW_RETRY_SECONDS", 0.3)
    async with faulty() as (app, pilot):
        app.open_run(finished_run(tmp_path))
        await shown(pilot)
        assert "can no longer be read" in screen_text(pilot)
        assert "step 57/60" in screen_text(pilot), "the newest attempt's log"
        monkeypatch.setattr(run_module, "follow_snapshots", original)
        await wait_for_text(pilot, "60 of 60")
        assert "can no longer be read" not in screen_text(pilot), "it is read again"


@pytest.mark.parametrize(("step", "steps"), [(10**400, 9), (9, 10**400)], ids=["beyond", "few"])
def test_a_bar_is_drawn_for_any_numbers(step, steps, tmp_path):
    run = finished_run(tmp_path)
    told = next(iter(run_module.follow_snapshots(run, lambda: False)))
    told = msgspec.structs.replace(told, progress=told.progress._replace(step=step, steps=steps))
    assert ("─" in run_state_lines(run.name, told, (), 2000)[1].plain) == (step < steps)


@pytest.mark.parametrize("broken", ["a link", "a pipe", "no folder"])
def test_a_file_of_faults_that_cannot_be_written(tmp_path, broken):
    path = faults_log()
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    if broken == "no folder":
        path.parent.touch()
    else:
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(tmp_path / "elsewhere") if broken == "a link" else os.mkfifo(path)
    assert record_fault(RuntimeError()).startswith("not written (")
    assert not (tmp_path / "elsewhere").exists()


def test_the_file_of_faults_has_no_secrets_and_does_not_grow_for_ever():
    faults_log().parent.mkdir(parents=True, exist_ok=True)
    faults_log().write_text("x" * 2**21)
    record_fault(RuntimeError("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789"))
    written = faults_log().read_text()
    assert len(written) < 2000
    assert "RuntimeError" in written
    assert "abcdefghij" not in written


INJECT = f"""
import sys
from tui_train.screens.app.app import Wizard
from tui_train.screens.home.screen import HomeScreen
from tui_train.__main__ import main
def failing(*_):
    raise RuntimeError({INJECTED!r})
"""


@pytest.mark.parametrize(
    ("change", "pressed", "code"),
    [("HomeScreen.action_choose_start_option = failing", "nq", 0), ("Wizard.CSS_PATH = '/nowhere.tcss'", "", 70)],
    ids=["while it runs", "before it can"],
)
def test_the_terminal_is_restored_without_a_traceback(change, pressed, code):
    terminal = Terminal(command=[sys.executable, "-c", f"{INJECT}\n{change}\nsys.argv = ['tui-train']\nmain()"])
    terminal.child.logfile_read = written = io.BytesIO()
    if pressed:
        terminal.wait_for_any("See it work")
        terminal.press(pressed[0], "Internal error: Runt")
        terminal.child.send(pressed[1])
    terminal.child.expect(pexpect.EOF, timeout=60)
    terminal.child.close()
    seen = written.getvalue()
    assert terminal.child.exitstatus == code
    assert b"Traceback" not in seen
    assert seen.rfind(b"\x1b[?1049l") >= seen.rfind(b"\x1b[?1049h")
    assert "Traceback" in faults_log().read_text()
    if code:
        assert b"tui-train: Internal error: Styl" in seen
