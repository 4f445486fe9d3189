"""Fine-tuning in the wizard: data that is read in the background, its screen, and what the forms say of it."""

import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from chat_data import CHAT_ROW, ROW_BY_FORMAT, assistant_message, user_message, write_rows
from pilot import (
    BARE_PYTHON,
    CPU_MACHINE,
    CUDA_PYTHON,
    go_to_fields,
    screen_text,
    until_true,
    wait_for_text,
    wait_for_workers,
)
from ssh import lead_ssh_back
from support import create_run, facts, gpu, profile, sample, write_attempt_events
from textual.pilot import Pilot
from tui_train.screens.data.data_lines import data_summary_lines, image_lines
from tui_train.screens.install.installation import Installation
from tui_train.screens.messages import GoToStep, OpenStep, ValueChosen

from tui_train.actions.last_profile import remember_profile_without_secrets
from tui_train.base.errors import Unavailable
from tui_train.facts.data import data_cache
from tui_train.facts.data.data_report import DataImages, DataQuestion, DataReport, DataSample, SampleImage, TokenCounts
from tui_train.facts.gpus import live_samples
from tui_train.facts.machine import container_images, probe
from tui_train.facts.types import Toolchain
from tui_train.places.place import Place
from tui_train.profile import store
from tui_train.profile.fields import FIELDS, profile_with_value
from tui_train.runs.run_folders import list_runs
from tui_train.setup.setup import Setup
from tui_train.trainers import TRAINERS
from tui_train.trainers.finetune import FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD
from tui_train.views import choices
from tui_train.wizard import make_wizard

SIZES = [(60, 24), (80, 24), (120, 40), (160, 50)]
LIBRARIES = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0"}
LEARNED, AVOIDED = "▌", "✗"


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch, warm_python: str) -> Callable[..., Toolchain]:
    """A machine whose best Python says that it has TRL; it reads the data by what it really has."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr(live_samples, "yield_changed_samples", lambda _cancelled: iter(()))
    monkeypatch.setattr(container_images, "read_engines", lambda: ())

    def be(found: Any = CPU_MACHINE, packages: dict[str, str] = LIBRARIES, python: str = warm_python) -> Toolchain:
        able = msgspec.structs.replace(CUDA_PYTHON, python=python, label="conda: train", packages=packages)
        monkeypatch.setattr(probe, "probe_machine", lambda *_args, **_named: found)
        monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (BARE_PYTHON, able))
        return able

    be()
    return be


def chats(folder: Path, count: int = 40, name: str = "chat.jsonl") -> Path:
    """A chat file of different rows."""
    rows = [
        {"messages": [user_message(f"the quick {n} " * (n % 9 + 1)), assistant_message(f"jumps {n}")]}
        for n in range(count)
    ]
    return write_rows(folder / name, rows)


def last_values(model: Path | str, *data: Path, **more: Any) -> None:
    """The wizard begins with this fine-tuning."""
    values = {"trainer.kind": "finetune", "trainer.model": str(model), "trainer.data": tuple(map(str, data))}
    remember_profile_without_secrets(profile(values, **more))


async def read(pilot: Pilot[Any]) -> None:
    """Wait until the data is read."""
    await pilot.pause(0.05)
    await until_true(pilot, lambda: not pilot.app.awaited_parts)
    await wait_for_workers(pilot)


@contextlib.asynccontextmanager
async def on_backend(*pressed: str, size=(80, 24), theme: str = "") -> AsyncIterator[Pilot[Any]]:
    """Open the wizard with the last values, go to Backend, wait until the data is read, and press keys."""
    app = make_wizard()
    app.theme = theme or app.theme
    async with app.run_test(size=size) as pilot:
        await begin(pilot)
        await press(pilot, "enter")
        await read(pilot)
        await press(pilot, *pressed)
        yield pilot


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys, and wait after each but for what is read."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()
        await pilot.pause()


async def begin(pilot: Pilot[Any]) -> None:
    """Go to Hardware with the values that were used last, and wait until the machine is known."""
    await settle_but_data(pilot)
    await wait_for_text(pilot, "Continue the draft")
    await press(pilot, "end", "enter")
    await settle_but_data(pilot)


async def settle_but_data(pilot: Pilot[Any]) -> None:
    """Wait until all is known but what the data holds."""
    await pilot.pause(0.02)
    await until_true(pilot, lambda: not pilot.app.awaited_parts - {"data"})


def gutter(pilot: Pilot[Any], mark: str) -> list[str]:
    """The lines of the screen that stand beside a mark."""
    return [
        line[3:].partition("│")[0].rstrip(" ▁▂▃▄▅▆▇█")
        for line in screen_text(pilot).splitlines()
        if line[1:2] == mark and line[2:3] == " "
    ]


def waiting_python(folder: Path, go: Path) -> str:
    """A Python that reads chats once a file is there."""
    waiting = folder / "waiting-python"
    wait = f'case "$*" in *chat.jsonl*) until [ -e {go} ]; do sleep 0.05; done;; esac'
    waiting.write_text(f'#!/bin/sh\n{wait}\nexec "{sys.executable}" "$@"\n')
    waiting.chmod(0o755)
    return str(waiting)


@pytest.mark.whole
async def test_the_data_is_read_in_the_background_and_said_below_its_field(tmp_path, model, tuner):
    path = write_rows(
        tmp_path / "chat.jsonl", [CHAT_ROW, {"messages": []}, {"messages": [user_message("q"), assistant_message("a")]}]
    )
    go = tmp_path / "go"
    tuner(python=waiting_python(tmp_path, go))
    last_values(model, path)
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        await begin(pilot)
        await press(pilot, "enter")
        await wait_for_text(pilot, "reading chat.jsonl …", during=True)
        assert "could not be read" not in screen_text(pilot)
        go.touch()
        await read(pilot)
        line = next(line for line in screen_text(pilot).splitlines() if "tokens median" in line)
        assert "messages" in line
        assert "1 left out" in line
        assert len(pilot.app.facts.data) == 1


async def test_preview_says_that_data_is_still_being_read_and_starts_nothing_until_then(tmp_path, model, tuner):
    go = tmp_path / "go"
    tuner(python=waiting_python(tmp_path, go))
    path = chats(tmp_path)
    last_values(model, path)
    path.write_text(path.read_text() + '{"messages": [{"role"\n')
    async with make_wizard().run_test(size=(120, 40)) as pilot:
        await begin(pilot)
        pilot.app.post_message(GoToStep("recipe"))
        await wait_for_text(pilot, "● 3 Recipe", "until the data has been read", during=True)
        pilot.app.post_message(GoToStep("preview"))
        await wait_for_text(pilot, "What will happen", "Findings", "the data is still being read", during=True)
        await settle_but_data(pilot)
        assert "nothing to fix" not in screen_text(pilot)
        assert "Enter Run" not in screen_text(pilot)
        await until_true(pilot, lambda: not pilot.app.are_files_being_compared)
        await press(pilot, "enter")
        assert [notice.message for notice in pilot.app._notifications] == [
            "The data is still being read: press the key again after that."
        ]
        assert not list_runs()
        go.touch()
        await read(pilot)
        await wait_for_text(pilot, "1 of 41 rows is left out", "Enter Run")
        assert "still being read" not in screen_text(pilot)
        go.unlink()
        await press(pilot, "f5", "r")
        await until_true(pilot, lambda: pilot.app.awaited_parts == {"data"})
        await press(pilot, "escape")
        await wait_for_text(pilot, "What will happen", "the data is still being read", during=True)
        go.touch()
        await read(pilot)
        await wait_for_text(pilot, "1 of 41 rows is left out", "Enter Run")


async def test_preview_does_not_wait_for_a_read_that_has_failed(tmp_path, model, tuner, monkeypatch):
    def fail(*_args: Any, **_named: Any) -> None:
        raise Unavailable("the disk does not answer", "Look at it")

    monkeypatch.setattr(data_cache, "read_data_report", fail)
    last_values(model, chats(tmp_path))
    async with make_wizard().run_test(size=(120, 40)) as pilot:
        await begin(pilot)
        pilot.app.post_message(GoToStep("preview"))
        await wait_for_text(pilot, "What will happen", "Enter Run", during=True)
        assert not pilot.app.awaited_parts
        assert "still being read" not in screen_text(pilot)


async def test_data_that_was_repaired_is_read_again_by_enter_and_when_a_step_is_shown_again(tmp_path, model, tuner):
    path = tmp_path / "chat.jsonl"
    path.write_text('{"messages": [{"role"\n')
    last_values(model, path)
    async with on_backend("enter", size=(120, 40)) as pilot:
        await wait_for_text(pilot, "Enter goes on once this is fixed.")
        chats(tmp_path)
        await press(pilot, "enter")
        await until_true(pilot, lambda: "data" in pilot.app.awaited_parts)
        await read(pilot)
        await wait_for_text(pilot, "40 rows")
        await press(pilot, "enter")
        await wait_for_text(pilot, "● 3 Recipe")
        chats(tmp_path, 41)
        await press(pilot, "escape")
        await wait_for_text(pilot, "● 2 Backend", "41 rows")
        chats(tmp_path, 42)
        await press(pilot, "f5")
        await wait_for_text(pilot, "Backend › Data", "42 rows")
        before = pilot.app.facts
        await press(pilot, "escape")
        await wait_for_text(pilot, "● 2 Backend", "42 rows")
        assert pilot.app.facts is before, "nothing is read where nothing has changed"


@pytest.mark.whole
async def test_a_newer_question_takes_the_place_of_an_older_one(tmp_path, model, tuner):
    """Its child is ended, and its answer is nobody's."""
    began = tmp_path / "began"
    slow = tmp_path / "slow-python"
    waits = 'case "$*" in *first*) exec sleep 300;; esac'
    slow.write_text(f'#!/bin/sh\necho $$ >> {began}\n{waits}\nexec "{sys.executable}" "$@"\n')
    slow.chmod(0o755)
    tuner(python=str(slow))
    first, second = chats(tmp_path, name="first.jsonl"), chats(tmp_path, name="second.jsonl")
    last_values("", first)
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(pilot)
        await until_true(pilot, began.exists)
        pid = int(began.read_text().split()[0])
        app.post_message(ValueChosen("trainer.data", (str(second),)))
        await read(pilot)
        assert not psutil.pid_exists(pid)
        assert [json.loads(key)["files"] for key in app.facts.data] == [[str(second)]]
        app.post_message(ValueChosen("recipe.sequence_length", 100))
        app.post_message(ValueChosen("recipe.sequence_length", 1001))
        await read(pilot)
        assert [json.loads(key)["length"] for key in app.facts.data] == [0, 1001], "half a number is not asked for"
        app.post_message(ValueChosen("recipe.sequence_length", None))
        await pilot.pause()
        assert not app.awaited_parts, "it is known"


@pytest.mark.whole
async def test_it_is_read_again_by_another_python_and_when_one_looks_again_at_a_changed_file(tmp_path, model, tuner):
    able = tuner()
    last_values(model, chats(tmp_path, 10))
    async with on_backend("f5") as pilot:
        assert "10 rows" in screen_text(pilot)
        chats(tmp_path, 12)
        await press(pilot, "r")
        await read(pilot)
        assert "12 rows" in screen_text(pilot)
        (before,) = pilot.app.facts.data.values()
        assert before.tokens
        for python in (BARE_PYTHON.python, able.python):
            pilot.app.post_message(ValueChosen("trainer.python", python))
            await read(pilot)
        (after,) = pilot.app.facts.data.values()
        assert after == before


@pytest.mark.parametrize(("size", "theme"), sample(product(SIZES, ["dark", "light", "plain"]), 5), ids=str)
async def test_the_screen(tmp_path, model, tuner, size, theme):
    rows = [
        CHAT_ROW,
        {"messages": []},
        *({"messages": [user_message("the quick " * n), assistant_message("fox")]} for n in range(1, 30)),
    ]
    path = write_rows(tmp_path / "chat.jsonl", rows)
    last_values(model, path, finetune__answers_only=True, recipe__sequence_length=40)
    async with on_backend("f5", size=size, theme=theme) as pilot:
        text = screen_text(pilot)
        for words in ("Backend › Data", "31 rows", "1 left out", "Findings"):
            assert words in text
        assert any(set(line) & set("▃▄▅▆▇█") for line in text.splitlines()[2:9])
        assert next(line for line in text.splitlines() if "└ 40" in line or "40 ┘" in line)
        assert "A fox." in gutter(pilot, LEARNED)
        assert not [line for line in gutter(pilot, LEARNED) if "What is it?" in line]
        assert max(len(line) for line in text.splitlines()) == size[0]
        await press(pilot, "right")
        assert "Sample 2" in screen_text(pilot)
        await press(pilot, "left", "left")
        assert "Sample 4" in screen_text(pilot)
        if size[0] >= 140:
            assert "line 2 " in text
        else:
            await press(pilot, "home", "b")
            assert "no messages" in screen_text(pilot)
        await press(pilot, "escape")
        assert "● 2 Backend" in screen_text(pilot)


@pytest.mark.whole
async def test_what_stands_in_the_data_is_shown_as_text(tmp_path, tuner):
    path = tmp_path / "chat.jsonl"
    path.write_text('{"text": "\\u001b[31m\\u202e[bold]no markup[/]\\u0007"}\n' * 3)
    last_values("", path)
    async with on_backend() as pilot:
        pilot.app.post_message(OpenStep("recipe"))
        await wait_for_workers(pilot)
        await press(pilot, "f5")
        text = screen_text(pilot)
        assert "3 Recipe › Data" in text, "the title names the step"
        assert "[bold]" in text
        assert not {"\x1b", "\u202e", "\x07"} & set(text)


@pytest.mark.whole
async def test_a_learning_rate_that_is_hardly_meant_is_warned_of_in_its_row(tmp_path, model, tuner):
    last_values(model, chats(tmp_path, 8))
    async with on_backend(size=(110, 40)) as pilot:
        pilot.app.post_message(OpenStep("recipe"))
        await wait_for_workers(pilot)
        form = pilot.app.screen.form

        def rate() -> str:
            return next(line for line in screen_text(pilot).splitlines() if line[1:].startswith("Learning rate"))

        form.go_to_row("recipe.learning_rate")
        for typed, offered in (("much", "0.0002"), ("2e-", "0.0002"), ("3e-4x", "0.0003")):
            form.entry.value = typed
            await wait_for_workers(pilot)
            assert form.state.unparsable_row_key == "recipe.learning_rate"
            assert form.state.unparsable_text_fix == f"use {offered}", typed
        form.entry.value = "0.005"
        await wait_for_workers(pilot)
        assert "! the learning rate" in rate()
        assert "F2 learning rate 0.0002" in rate()
        form.go_to_row("recipe.seed")
        await wait_for_workers(pilot)
        assert "!" in rate()
        form.go_to_row("recipe.learning_rate")
        await press(pilot, "f2")
        # Unset, so that it follows the method.
        assert pilot.app.profile.recipe.learning_rate is None
        assert (
            pilot.app.screen.setup.effective_profile.recipe.learning_rate
            == FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD["sft"][1]
        )


@pytest.mark.whole
async def test_f2_changes_what_does_not_suit_the_data_and_what_is_to_be_avoided_is_marked(tmp_path, model, tuner):
    last_values(model, write_rows(tmp_path / "pairs.jsonl", [ROW_BY_FORMAT["preference"]]))
    async with on_backend("f5") as pilot:
        assert "F2 method dpo" in screen_text(pilot)
        await press(pilot, "f2")
        await read(pilot)
        assert pilot.app.profile.finetune.method == "dpo"
        assert "method dpo" not in screen_text(pilot).splitlines()[-4]
        assert gutter(pilot, LEARNED) == [" blue</s>"]
        assert gutter(pilot, AVOIDED) == [" green</s>"]


@pytest.mark.whole
async def test_the_data_of_a_host_is_read_there(tmp_path, model, tuner, monkeypatch):
    lead_ssh_back(tmp_path / "home", tmp_path / "client", monkeypatch)
    able, whole = tuner(), Place.probe_facts_for
    monkeypatch.setattr(
        Place, "probe_facts_for", lambda place, *more: msgspec.structs.replace(whole(place, *more), toolchains=(able,))
    )
    monkeypatch.setattr(data_cache, "read_data_report", None)
    last_values(model, chats(tmp_path / "home"), hardware__host="box")
    async with on_backend("f5") as pilot:
        shown = screen_text(pilot)
        assert "40 rows" in shown
        assert "jumps 0" in shown
        (read_there,) = pilot.app.facts.data.values()
        pilot.app.refresh_parts("machine")
        await read(pilot)
        assert [*pilot.app.facts.data.values()] == [read_there], "another look at the host keeps it"
        (tmp_path / "client" / "ssh").write_text("#!/bin/sh\nexit 255\n")
        pilot.app._data.read_again()
        await read(pilot)
        assert "box did not answer" in screen_text(pilot)


@pytest.mark.whole
async def test_what_is_not_read_is_said_with_its_reason(tmp_path, tuner):
    tuner(packages={})
    last_values("", chats(tmp_path))
    async with on_backend() as pilot:
        assert "no Python here has TRL" in screen_text(pilot)
        await go_to_fields(pilot, "start", "trainer.python")
        assert "F2 Install TRL (3 GB)" in screen_text(pilot)
        await press(pilot, "space")
        assert "has no trl" in screen_text(pilot)
        await press(pilot, "escape", "f5")
        assert "not read yet: no Python here has TRL" in screen_text(pilot)
        assert "Reading your data" not in screen_text(pilot)
        assert "F2 installs what reads it" in screen_text(pilot)


async def test_what_is_written_to_each_prompt_is_set_beside_the_batch(tuner, model, tmp_path):
    last_values(
        model, chats(tmp_path), finetune__method="grpo", finetune__rewards=("a.b",), trainer__allow=("rewards",)
    )
    async with on_backend("enter") as pilot:
        await wait_for_text(pilot, "● 3 Recipe", "Generations          not set               TRL's 8; 2 prompts a step")
        await wait_for_text(pilot, "Answer length        not set               TRL's 512 tokens")
        await press(pilot, "down", "down", "4", "enter")
        assert pilot.app.profile.finetune.generations == 4


async def test_a_reward_that_was_corrected_is_tried_again_by_enter(tuner, model, tmp_path):
    code = tmp_path / "my_rewards.py"
    code.write_text("def score(completions, **kwargs):\n    return [0.0]\n")
    last_values(model, chats(tmp_path), finetune__method="grpo", finetune__rewards=(f"{code}:score",))
    async with on_backend("enter") as pilot:
        await wait_for_text(
            pilot, "Enter goes on once this is fixed. my_rewards.py:score", "returns 1 values for 3 answers"
        )
        code.write_text("def score(completions, **kwargs):\n    return [0.0] * len(completions)\n")
        await press(pilot, "enter")
        await read(pilot)
        await press(pilot, "enter")
        await wait_for_text(pilot, "● 3 Recipe")


async def test_where_a_name_is_typed_a_python_can_be_installed_and_named(tmp_path, tuner):
    tuner(packages={})
    last_values("", chats(tmp_path))
    async with on_backend() as pilot:
        await wait_for_text(pilot, "✗ no model is chosen", "F2 Install TRL (3 GB)")
        await press(pilot, "f4")
        await wait_for_text(pilot, "Path of the Python that trains")


async def test_elsewhere_the_step_is_named_on_which_f4_names_a_python(tmp_path, tuner):
    tuner(packages={})
    last_values("m", chats(tmp_path))
    async with on_backend() as pilot:
        assert "F4 names a Python that has it." in " ".join(screen_text(pilot).split())
        pilot.app.screen.post_message(GoToStep("preview"))
        await wait_for_text(pilot, "● 4 Preview")
        await wait_for_text(pilot, "F4 on Backend")


async def test_the_key_that_the_title_of_memory_names_is_in_the_footer(tmp_path, tuner):
    tuner(packages={})
    last_values("m", chats(tmp_path))
    async with on_backend() as pilot:
        pilot.app.screen.post_message(GoToStep("recipe"))
        await wait_for_text(pilot, "● 3 Recipe", "F3 fetches config.json", "F3 Fetch config.json")


async def test_what_is_being_installed_is_not_offered_again(tmp_path, tuner):
    tuner(packages={})
    last_values("", chats(tmp_path))
    async with on_backend() as pilot:
        await wait_for_text(pilot, "✗ Python: no Python here can train")
        running = Installation(title="install what is missing", began_at=0.0)
        pilot.app.installation = running
        await wait_for_text(pilot, "● Python: being installed")
        pilot.app.installation = msgspec.structs.replace(running, failure="the disk is full")
        await wait_for_text(pilot, "✗ Python: no Python here can train")


async def test_a_fine_tuning_asks_for_model_and_data_first(tuner):
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        await settle_but_data(pilot)
        await press(pilot, "enter")
        await settle_but_data(pilot)
        await press(pilot, "enter")
        assert pilot.app.profile.trainer.kind == "finetune"
        form = pilot.app.screen.form
        assert [row.key for row in form.state.rows][:5] == [
            "trainer.kind", "trainer.model", "trainer.data", "finetune.method", "finetune.tuning",
        ]  # fmt: skip
        assert "Fine-tune a model" in screen_text(pilot)
        await press(pilot, "enter")
        assert "● 2 Backend" in screen_text(pilot), "without a model it goes no further"
        assert form.cursor == "trainer.model"


@pytest.mark.parametrize(
    ("cards", "packages", "reason"),
    [((), LIBRARIES, "4 bits need a GPU"), ((gpu(0),), LIBRARIES, "no bitsandbytes"),
     ((gpu(0),), LIBRARIES | {"bitsandbytes": "0.49"}, "")],
)  # fmt: skip
def test_four_bits_are_offered_with_their_reason(cards, packages, reason):
    setup = Setup(profile({"trainer.kind": "finetune"}), facts(gpus=cards, packages=packages))
    (option,) = (each for each in choices.field_options("finetune.tuning", setup) if each.value == "qlora")
    assert option.why_disabled.partition(":")[0] == reason


@pytest.mark.whole
async def test_an_epoch_takes_as_long_as_by_the_run_that_preview_names(tmp_path, model, tuner):
    """By that whose values are edited, not by a newer one that had to share the machine."""
    last_values(model, chats(tmp_path))
    async with on_backend() as pilot:
        runs = [create_run(profile({"recipe.steps": 50})) for _ in range(2)]
        for run, seconds in zip(runs, (100, 45_000), strict=True):
            write_attempt_events(run, seconds)
            run.profile_file.write_text(store.profile_to_toml(pilot.app.profile))
        pilot.app.run_being_edited = runs[0]
        await press(pilot, "f5")
        await wait_for_workers(pilot)
        (line,) = (line for line in screen_text(pilot).splitlines() if "one epoch" in line)
        steps = int(re.search(r"(\d+) steps?", line)[1])
        assert f"at most {2 * steps} s" in line
        pilot.app.post_message(ValueChosen("recipe.micro_batch", 2))
        await wait_for_workers(pilot)
        await until_true(pilot, lambda: "at most" not in screen_text(pilot))


@pytest.mark.whole
async def test_the_recipe_and_preview_say_what_follows(tmp_path, model, tuner):
    path = chats(tmp_path, 39)
    # One row that is longer than what the model takes, and shorter than what is cut.
    with path.open("a") as file:
        file.write(
            json.dumps({"messages": [user_message("the quick brown fox " * 40), assistant_message("jumps")]}) + "\n"
        )
    last_values(model, path, recipe__sequence_length=256, data__evaluation=0.2)
    async with on_backend(size=(120, 40)) as pilot:
        assert "about 8 rows" in screen_text(pilot)
        await press(pilot, "enter")
        text = screen_text(pilot)
        assert "≈ 6 steps" in text, "32 rows are 2 steps of 16, three times"
        assert "usual for LoRA: 0.0002" in text
        assert "Layers" not in text
        assert "F2 128 tokens" in text
        await press(pilot, "f2")
        assert pilot.app.profile.recipe.sequence_length is None, "the limit is the default"
        assert "F2 128 tokens" not in screen_text(pilot)
        await read(pilot)
        await press(pilot, "enter")
        await wait_for_text(pilot, "What will happen")
        await wait_for_workers(pilot)
        lines = {
            line.split()[0]: " ".join(line.split()) for line in screen_text(pilot).splitlines()[3:9] if line.split()
        }
        assert {"tiny-qwen", "LoRA", "16"} <= {*lines["Model"].replace(",", "").split()}
        # Of the long row nothing is learned within the limit.
        for label, words in (
            ("Data", "chat.jsonl"), ("Data", "31 rows, messages"), ("Data", "20 % for"), ("Rate", "0.0002 cosine"),
            ("Rate", "1 step to warm up"), ("Steps", "3 epochs ≈ 6 steps"),
        ):  # fmt: skip
            assert words in lines[label]
        assert "trl.scripts.sft" in screen_text(pilot)


@pytest.mark.whole
async def test_model_and_data_are_explained_as_the_chosen_trainer_takes_them(tuner):
    del tuner
    last_values("")
    async with on_backend(size=(110, 40)) as pilot:
        app = pilot.app
        form = app.screen.form
        for kind in TRAINERS:
            app.edits.set_profile(profile_with_value(app.profile, "trainer.kind", kind))
            await wait_for_workers(pilot)
            for key, own in TRAINERS[kind].field_texts.items():
                if key not in {row.key for row in form.state.rows}:
                    continue
                form.go_to_row("trainer.kind")
                await wait_for_workers(pilot)
                label = FIELDS[key].label
                line = next(line for line in screen_text(pilot).splitlines() if line[1:].startswith(label))
                assert own.empty in line, "in the row"
                form.go_to_row(key)
                await wait_for_workers(pilot)
                assert form.entry.placeholder == own.empty, "where one types"
                assert form.state.cursor_row_has_problem or form.state.hint == own.help, "in the hint"
                assert own.help in {words for _, explained, words in app.screen.fields_for_help() if explained == key}
    finetune = TRAINERS["finetune"].field_texts
    assert not any("NeMo" in words.help or "sample" in words.empty for words in finetune.values())


def test_an_image_of_a_sample_is_said_and_drawn_in_half_blocks():
    image = SampleImage(
        name="/d/a\n.png", width=2, height=3, size=99, thumbnail=("ff000000ff00", "0000ffffffff", "000000111111")
    )
    sample = DataSample(file="/d.jsonl", line=1, pieces=(), images=(image,))
    said, *drawn = image_lines(sample, 80, drawn=True)
    assert "2 x 3, 0.1 KiB" in said.plain
    assert "/d/a\\n.png" in said.plain
    assert [line.plain for line in drawn] == ["  ▀▀", "  ▀▀"]
    assert [span.style for line in drawn for span in line.spans] == [
        "#ff0000 on #0000ff", "#00ff00 on #ffffff", "#000000", "#111111",
    ]  # fmt: skip
    assert image_lines(sample, 80, drawn=False) == [said]


def test_images_do_not_push_whether_all_rows_are_usable_out_of_80_columns():
    lengths = {"shortest": 59, "median": 60, "p95": 61, "longest": 61}
    tokens = TokenCounts(counted=24, total=1_440, learned=1_440, epoch=1_440, **lengths)
    report = DataReport(rows=24, usable=24, format="messages", tokens=tokens, images=DataImages(rows=24, count=25))
    lines = [line.plain for line in data_summary_lines(report, DataQuestion(files=("/d.jsonl",)), None, "", 78)]
    assert [line for line in lines if line.split()[:2] == ["images", "25"]]
    assert lines[1].rstrip().endswith("all are learned    ✓ all rows usable")
