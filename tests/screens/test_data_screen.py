"""Fine-tuning in the wizard: data that is read in the background, its screen, and what the forms say of it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from support import SCRIPTS, sample
from test_data import CHAT, MARKED, ROWS, says, user, written
from test_wizard import BARE, CPU, CUDA, SEED, settle, shows, to, until_shown
from textual.pilot import Pilot
from tui_train.screens.messages import OpenStep

from tui_train.actions.last_profile import remember_profile
from tui_train.facts.gpus import live_samples
from tui_train.facts.machine import container_images, probe
from tui_train.facts.types import Toolchain
from tui_train.profile.fields import FIELDS, put
from tui_train.profile.types import Profile
from tui_train.trainers import TRAINERS
from tui_train.trainers.finetune import LEARNING_RATES
from tui_train.wizard import wizard

SIZES = [(60, 24), (80, 24), (120, 40), (160, 50)]
LIBRARIES = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0"}
LEARNED, CUT, AVOIDED = "▌", "┊", "✗"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> str:
    """A tokenizer with a chat template that marks answers."""
    folder = tmp_path_factory.mktemp("model") / "tiny-qwen"
    folder.mkdir()
    template = folder / "template"
    template.write_text(MARKED)
    command = [warm_python, str(SCRIPTS / "tokenizer.py"), str(folder), "--with-model", f"--template={template}"]
    subprocess.run(command, check=True, capture_output=True)
    return str(folder)


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch, warm_python: str) -> Callable[..., Toolchain]:
    """A machine whose best Python says that it has TRL; it reads the data by what it really has."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr(live_samples, "live_samples", lambda _cancelled: iter(()))
    monkeypatch.setattr(container_images, "read_engines", lambda: ())

    def be(found: Any = CPU, packages: dict[str, str] = LIBRARIES, python: str = warm_python) -> Toolchain:
        able = msgspec.structs.replace(CUDA, python=python, label="conda: train", packages=packages)
        monkeypatch.setattr(probe, "probe_machine", lambda *_args, **_named: found)
        monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (BARE, able))
        return able

    be()
    return be


def chats(folder: Path, count: int = 40, name: str = "chat.jsonl") -> Path:
    """A chat file of different rows."""
    rows = [{"messages": [user(f"the quick {n} " * (n % 9 + 1)), says(f"jumps {n}")]} for n in range(count)]
    return written(folder / name, rows)


def last_values(model: str, *data: Path, **more: Any) -> None:
    """The wizard begins with this fine-tuning."""
    values = {"trainer.kind": "finetune", "trainer.model": model, "trainer.data": tuple(map(str, data))}
    values |= {key.replace("__", "."): value for key, value in more.items()}
    made = Profile()
    for key, value in values.items():
        made = put(made, key, value)
    remember_profile(made)


async def read(pilot: Pilot[Any]) -> None:
    """Wait until the data is read."""
    for _ in range(600):
        await pilot.pause(0.05)
        app: Any = pilot.app
        if not app.looking:
            await settle(pilot)
            return
    pytest.fail(f"it was not read:\n{shows(pilot)}")


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys, and wait after each but for what is read."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()
        await pilot.pause()


async def on_backend(pilot: Pilot[Any]) -> None:
    """Go to Backend and wait until the data is read."""
    await begin(pilot)
    await press(pilot, "enter")
    await read(pilot)


async def begin(pilot: Pilot[Any]) -> None:
    """Go to Hardware with the values that were used last, and wait until the machine is known."""
    await settle_but_data(pilot)
    await until_shown(pilot, "Continue the draft")
    await press(pilot, "down", "enter")
    await settle_but_data(pilot)


async def settle_but_data(pilot: Pilot[Any]) -> None:
    """Wait until all is known but what the data holds."""
    for _ in range(200):
        await pilot.pause(0.02)
        app: Any = pilot.app
        if not app.looking - {"data"}:
            return


def gutter(pilot: Pilot[Any], mark: str) -> list[str]:
    """The lines of the screen that stand beside a mark."""
    return [
        line[3:].partition("│")[0].rstrip()
        for line in shows(pilot).splitlines()
        if line[1:2] == mark and line[2:3] == " "
    ]


async def test_the_data_is_read_in_the_background_and_said_below_its_field(
    tmp_path: Path, model: str, tuner: Any
) -> None:
    path = written(tmp_path / "chat.jsonl", [CHAT, {"messages": []}, {"messages": [user("q"), says("a")]}])
    waiting, go = tmp_path / "waiting-python", tmp_path / "go"
    wait = f'case "$*" in *chat.jsonl*) until [ -e {go} ]; do sleep 0.05; done;; esac'
    waiting.write_text(f'#!/bin/sh\n{wait}\nexec "{sys.executable}" "$@"\n')
    waiting.chmod(0o755)
    tuner(python=str(waiting))
    last_values(model, path)
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(pilot)
        await press(pilot, "enter")
        await until_shown(pilot, "reading chat.jsonl …", during=True)
        assert "could not be read" not in shows(pilot)
        go.touch()
        await read(pilot)
        line = next(line for line in shows(pilot).splitlines() if "tokens median" in line)
        assert "messages" in line
        assert "1 left out" in line
        assert len(app.facts.data) == 1


@pytest.mark.whole
async def test_a_newer_question_takes_the_place_of_an_older_one(tmp_path: Path, model: str, tuner: Any) -> None:
    """Its child is ended, and its answer is nobody's."""
    began = tmp_path / "began"
    slow = tmp_path / "slow-python"
    waits = 'case "$*" in *first*) exec sleep 300;; esac'
    slow.write_text(f'#!/bin/sh\necho $$ >> {began}\n{waits}\nexec "{sys.executable}" "$@"\n')
    slow.chmod(0o755)
    tuner(python=str(slow))
    first, second = chats(tmp_path, name="first.jsonl"), chats(tmp_path, name="second.jsonl")
    last_values("", first)
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(pilot)
        for _ in range(400):
            await pilot.pause(0.05)
            if began.exists():
                break
        pid = int(began.read_text().split()[0])
        app.post_message(chosen("trainer.data", (str(second),)))
        await read(pilot)
        assert not psutil.pid_exists(pid)
        assert [json.loads(key)["files"] for key in app.facts.data] == [[str(second)]]
        app.post_message(chosen("recipe.sequence_length", 100))
        app.post_message(chosen("recipe.sequence_length", 1001))
        await read(pilot)
        assert [json.loads(key)["length"] for key in app.facts.data] == [0, 1001], "half a number is not asked for"
        app.post_message(chosen("recipe.sequence_length", None))
        await pilot.pause()
        assert not app.looking, "it is known"


def chosen(key: str, value: Any) -> Any:
    """The message of a field whose value has changed."""
    from tui_train.screens.messages import ValueChosen

    return ValueChosen(key, value)


@pytest.mark.whole
async def test_a_changed_file_is_read_again_when_one_looks_again(tmp_path: Path, model: str, tuner: Any) -> None:
    path = chats(tmp_path, 10)
    last_values("", path)
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        await press(pilot, "f5")
        assert "10 rows" in shows(pilot)
        chats(tmp_path, 12)
        await press(pilot, "r")
        await read(pilot)
        assert "12 rows" in shows(pilot)


@pytest.mark.whole
async def test_another_python_reads_again(tmp_path: Path, model: str, tuner: Any) -> None:
    path = chats(tmp_path, 10)
    able = tuner()
    last_values(model, path)
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        (before,) = app.facts.data.values()
        assert before.tokens
        app.post_message(chosen("trainer.python", BARE.python))
        await read(pilot)
        app.post_message(chosen("trainer.python", able.python))
        await read(pilot)
        (after,) = app.facts.data.values()
        assert after == before


@pytest.mark.parametrize(("size", "theme"), sample(product(SIZES, ["dark", "light", "plain"]), 5), ids=str)
async def test_the_screen(tmp_path: Path, model: str, tuner: Any, size: tuple[int, int], theme: str) -> None:
    rows = [CHAT, {"messages": []}, *({"messages": [user("the quick " * n), says("fox")]} for n in range(1, 30))]
    path = written(tmp_path / "chat.jsonl", rows)
    last_values(model, path, finetune__answers_only=True, recipe__sequence_length=40)
    app: Any = wizard()
    app.theme = theme
    async with app.run_test(size=size) as pilot:
        await on_backend(pilot)
        await press(pilot, "f5")
        text = shows(pilot)
        assert "Backend › Data" in text
        assert "31 rows" in text
        assert "1 left out" in text
        assert "Findings" in text
        assert any(set(line) & set("▃▄▅▆▇█") for line in text.splitlines()[2:9])
        assert next(line for line in text.splitlines() if "└ 40" in line or "40 ┘" in line)
        assert "A fox." in gutter(pilot, LEARNED)
        assert not [line for line in gutter(pilot, LEARNED) if "What is it?" in line]
        assert max(len(line) for line in text.splitlines()) == size[0]
        await press(pilot, "right")
        assert "Sample 2" in shows(pilot)
        await press(pilot, "left", "left")
        assert "Sample 4" in shows(pilot)
        if size[0] >= 140:
            assert "line 2 " in text
        else:
            await press(pilot, "home", "b")
            assert "no messages" in shows(pilot)
        await press(pilot, "escape")
        assert "● 2 Backend" in shows(pilot)


async def test_what_the_model_is_to_avoid_is_marked(tmp_path: Path, model: str, tuner: Any) -> None:
    last_values(model, written(tmp_path / "pairs.jsonl", [ROWS["preference"]]), finetune__method="dpo")
    async with wizard().run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        await press(pilot, "f5")
        assert gutter(pilot, LEARNED) == [" blue</s>"]
        assert gutter(pilot, AVOIDED) == [" green</s>"]


async def test_f2_changes_what_does_not_suit_the_data(tmp_path: Path, model: str, tuner: Any) -> None:
    last_values(model, written(tmp_path / "pairs.jsonl", [ROWS["preference"]]))
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        await press(pilot, "f5")
        assert "F2 method dpo" in shows(pilot)
        await press(pilot, "f2")
        await read(pilot)
        assert app.profile.finetune.method == "dpo"
        assert "method dpo" not in shows(pilot).splitlines()[-4]
        assert gutter(pilot, AVOIDED)


@pytest.mark.whole
async def test_the_length_can_be_that_of_the_longest_row(tmp_path: Path, model: str, tuner: Any) -> None:
    last_values(model, chats(tmp_path), recipe__sequence_length=40)
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        await press(pilot, "f5", "f2")
        await read(pilot)
        # The default follows the data.
        assert app.profile.recipe.sequence_length is None
        cut = {json.loads(key)["length"]: look.tokens.cut for key, look in app.facts.data.items()}
        assert cut.pop(40) > 0
        assert cut
        assert not any(cut.values()), cut


DAMAGED = {
    "empty": b"",
    "broken JSON": b'{"messages": [\n{"messages": [\n',
    "binary": bytes(range(256)) * 64,
    "a huge line": b'{"text": "' + b"x" * (17 << 20) + b'"}\n',
    "other columns": b'{"a": 1}\n',
    "hostile": ('{"text": "\\u001b[31m\\u202e[bold]no markup[/]\\u0007"}\n' * 3).encode(),
}


@pytest.mark.tries("damaged data on the screen")
@pytest.mark.parametrize("name", sample([*DAMAGED, "pipe", "folder", "device", "latin"], 6))
async def test_damaged_data_is_a_finding(tmp_path: Path, tuner: Any, name: str) -> None:
    path = tmp_path / "chat.jsonl"
    if name == "pipe":
        os.mkfifo(path)
    elif name == "folder":
        path.mkdir()
        (path / "README.md").write_text("no data")
    elif name == "device":
        path.symlink_to("/dev/zero")
    elif name == "latin":
        path.write_bytes(b'{"text": "caf\xe9"}\n')
    else:
        path.write_bytes(DAMAGED[name])
    last_values("", path)
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        await press(pilot, "f5")
        text = shows(pilot)
        assert "Findings" in text
        assert ("✗" in text.split("Findings")[1]) == (name != "hostile")
        assert not {"\x1b", "\u202e", "\x07"} & set(text)
        assert ("[bold]" in text) == (name == "hostile")
        await press(pilot, "escape")
        assert "● 2 Backend" in shows(pilot)


async def test_what_is_not_read_is_said_with_its_reason(tmp_path: Path, tuner: Any) -> None:
    tuner(packages={})
    last_values("", chats(tmp_path))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        assert "no Python here can fine-tune" in shows(pilot)
        await to(pilot, "trainer.python")
        assert "tui-train env create hf" in shows(pilot)
        await press(pilot, "space")
        assert "has no trl" in shows(pilot)


async def test_a_fine_tuning_asks_for_model_and_data_first(tuner: Any) -> None:
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle_but_data(pilot)
        await press(pilot, "enter")
        await settle_but_data(pilot)
        await press(pilot, "enter", "left")
        assert app.profile.trainer.kind == "finetune"
        form = app.screen.form
        assert [row.key for row in form.state.rows][:5] == [
            "trainer.kind", "trainer.model", "trainer.data", "finetune.method", "finetune.tuning",
        ]  # fmt: skip
        assert "▌● Fine-tune" in shows(pilot)
        await press(pilot, "enter")
        assert "● 2 Backend" in shows(pilot), "without a model it goes no further"
        assert form.cursor == "trainer.model"


@pytest.mark.parametrize(
    ("found", "packages", "reason"),
    [
        (CPU, LIBRARIES, "4 bits need a GPU"),
        (SEED, LIBRARIES, "no bitsandbytes"),
        (SEED, LIBRARIES | {"bitsandbytes": "0.49"}, ""),
    ],
)
async def test_four_bits_are_offered_with_their_reason(
    tmp_path: Path, tuner: Any, found: Any, packages: dict[str, str], reason: str
) -> None:
    tuner(found, packages)
    last_values("", chats(tmp_path))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        await to(pilot, "finetune.tuning")
        await press(pilot, "space")
        line = next(line for line in shows(pilot).splitlines() if "QLoRA" in line)
        assert (reason in line) if reason else ("✗" not in line)


async def test_the_recipe_says_what_follows(tmp_path: Path, model: str, tuner: Any) -> None:
    path = chats(tmp_path, 39)
    # One row that is longer than what the model takes, and shorter than what is cut.
    with path.open("a") as file:
        file.write(json.dumps({"messages": [user("the quick brown fox " * 40), says("jumps")]}) + "\n")
    last_values(model, path, recipe__sequence_length=256, data__evaluation=0.2)
    app: Any = wizard()
    async with app.run_test(size=(120, 40)) as pilot:
        await on_backend(pilot)
        assert "about 8 rows" in shows(pilot)
        await press(pilot, "enter")
        text = shows(pilot)
        assert "≈ 6 steps" in text, "32 rows are 2 steps of 16, three times"
        assert "usual for LoRA: 0.0002" in text
        assert "Layers" not in text
        assert "limit of 128" in text
        await press(pilot, "f2")
        assert app.profile.recipe.sequence_length is None, "the limit is the default"
        assert "limit of 128" not in shows(pilot)


async def test_the_lines_of_preview(tmp_path: Path, model: str, tuner: Any) -> None:
    last_values(model, chats(tmp_path, 40), recipe__sequence_length=128, data__evaluation=0.2)
    async with wizard().run_test(size=(120, 40)) as pilot:
        await on_backend(pilot)
        await press(pilot, "enter", "enter")
        await until_shown(pilot, "What will happen")
        await settle(pilot)
        lines = {line.split()[0]: line for line in shows(pilot).splitlines()[3:9] if line.split()}
        assert {"tiny-qwen", "LoRA", "16"} <= {*lines["Model"].replace(",", "").split()}
        assert "chat.jsonl" in lines["Data"]
        assert "32 rows, messages" in lines["Data"]
        assert "20 % kept" in lines["Data"]
        assert "0.0002 cosine" in lines["Rate"]
        assert "1 step to warm up" in lines["Rate"]
        assert "3 epochs ≈ 6 steps" in lines["Steps"]
        assert "trl.scripts.sft" in shows(pilot)


async def test_data_without_a_row_is_an_error_and_the_title_names_the_step(tmp_path: Path, tuner: Any) -> None:
    del tuner
    for name, content in (("empty.jsonl", ""), ("list.json", "[]")):
        (tmp_path / name).write_text(content)
        last_values("", tmp_path / name)
        app: Any = wizard()
        async with app.run_test(size=(80, 24)) as pilot:
            await on_backend(pilot)
            await press(pilot, "f5")
            shown = shows(pilot)
            assert "2 Backend › Data" in shown
            assert "usable" not in shown
            assert "✗ nothing to learn from" in shown
            assert [finding.level for finding in app.screen._findings if finding.key == "trainer.data"] == ["error"]
            await press(pilot, "escape")
            app.post_message(OpenStep("recipe"))
            await settle(pilot)
            await press(pilot, "f5")
            assert "3 Recipe › Data" in shows(pilot)


async def test_a_learning_rate_that_is_hardly_meant_is_warned_of_in_its_row(
    tmp_path: Path, model: str, tuner: Any
) -> None:
    last_values(model, chats(tmp_path, 8))
    app: Any = wizard()
    async with app.run_test(size=(120, 40)) as pilot:
        await on_backend(pilot)
        app.post_message(OpenStep("recipe"))
        await settle(pilot)
        form = app.screen.form
        form.go_to_row("recipe.learning_rate")
        for typed, offered in (("much", "0.0002"), ("2e-", "0.0002"), ("3e-4x", "0.0003")):
            form.entry.value = typed
            await settle(pilot)
            assert form.state.unread_key == "recipe.learning_rate"
            assert form.state.unread_fix == f"use {offered}", typed
        form.entry.value = "0.005"
        await settle(pilot)
        line = next(line for line in shows(pilot).splitlines() if line[1:].startswith("Learning rate"))
        assert "! the learning rate" in line
        assert "F2 learning rate 0.0002" in line
        form.go_to_row("recipe.seed")
        await settle(pilot)
        assert "!" in next(line for line in shows(pilot).splitlines() if line[1:].startswith("Learning rate"))
        form.go_to_row("recipe.learning_rate")
        await press(pilot, "f2")
        # Unset, so that it follows the method.
        assert app.profile.recipe.learning_rate is None
        assert app.screen.setup.effective.recipe.learning_rate == LEARNING_RATES["sft"][1]


async def test_how_one_chooses_what_trains_is_said(tuner: Any) -> None:
    del tuner
    last_values("")
    app: Any = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await on_backend(pilot)
        title = next(line for line in shows(pilot).splitlines() if "What trains" in line)
        assert "← → choose" in title
        await press(pilot, "right")
        assert app.profile.trainer.kind == "builtin"
        await press(pilot, "down")
        assert app.screen.form.cursor != "trainer.kind"
        assert app.profile.trainer.kind == "builtin"


@pytest.mark.whole
async def test_model_and_data_are_explained_as_the_chosen_trainer_takes_them(tuner: Any) -> None:
    del tuner
    last_values("")
    app: Any = wizard()
    async with app.run_test(size=(120, 40)) as pilot:
        await on_backend(pilot)
        form = app.screen.form
        for kind in TRAINERS:
            app.set_profile(put(app.profile, "trainer.kind", kind))
            await settle(pilot)
            for key, own in TRAINERS[kind].field_texts.items():
                if key not in {row.key for row in form.state.rows}:
                    continue
                form.go_to_row("trainer.kind")
                await settle(pilot)
                label = FIELDS[key].label
                line = next(line for line in shows(pilot).splitlines() if line[1:].startswith(label))
                assert own.empty in line, "in the row"
                form.go_to_row(key)
                await settle(pilot)
                assert form.entry.placeholder == own.empty, "where one types"
                assert form.state.has_problem or form.state.hint == own.help, "in the hint"
                assert own.help in {words for _, explained, words in app.screen.explained_fields() if explained == key}
    finetune = TRAINERS["finetune"].field_texts
    assert not any("NeMo" in words.help or "sample" in words.empty for words in finetune.values())
