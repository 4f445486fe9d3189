"""The screens of what a run made: its page, merging there, and the chat, all by keys."""

import contextlib
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import warm
from click.testing import CliRunner
from pilot import on_result, press_keys, screen_text, until_true, wait_for_text, wait_for_workers
from rich.cells import cell_len
from support import sample, wait_until
from textual.app import App, ComposeResult
from textual.widgets import Input
from training_results import (
    ADAPTER_CONFIG,
    LOG_LINES,
    copy_model_with_own_code,
    ended_run,
    safetensors_bytes,
    write_adapter,
    write_evaluation,
    write_model,
)
from tui_train.screens.app.app import _CHANGING_WORKER_GROUPS
from tui_train.screens.chat.chat_pane import ChatPane
from tui_train.screens.evaluate import time_left_text

from tui_train import screens
from tui_train.actions.chat import AnswerEnd, Chat, ModelsLoaded
from tui_train.actions.result_child import AnswerCancelled
from tui_train.cli.app import cli
from tui_train.runs.run_folders import RunFolder
from tui_train.wizard import make_wizard

SIZES = [(80, 24), (120, 40)]


@pytest.mark.whole
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_result_of_a_run_by_keys(machine, tmp_path, size):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "no/[bold]base"})
    async with on_result(run, "LoRA adapter of no/[bold]base", size) as pilot:
        shown = screen_text(pilot)
        assert "2.000 last, step 20   1.500 best, step 10" in shown
        assert "1.875 last, step 20   1.750 best, step 10" in shown
        assert "load it with peft, or merge it first" in shown
        assert all(len(line) <= size[0] for line in shown.splitlines())
        await press_keys("c")(pilot)
        assert pilot.app.clipboard == str(run.path / "output")
        await press_keys("v")(pilot)
        assert pilot.app.clipboard.startswith("vllm serve ")
        await press_keys("m")(pilot)
        await pilot.press("enter")
        await wait_for_text(pilot, "✗ not merged")
        assert not (run.path / "merged").exists()
        await press_keys("escape")(pilot)
        assert type(pilot.app.screen).__name__ == "RunScreen"


async def test_the_verdict_of_an_evaluation_is_on_the_result(machine, tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "no/base"})
    async with on_result(run, "LoRA adapter of no/base") as pilot:
        await wait_for_workers(pilot)
        assert "Evaluation" not in screen_text(pilot)
        await press_keys("e")(pilot)
        write_evaluation(run)
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "Evaluation    by loss: better than the base, on 100 % of 40 rows (95 %")
    shown = CliRunner().invoke(cli, ["result", str(run.path)], catch_exceptions=False).stdout
    assert "evaluation    by loss: better than the base, on 100 % of 40 rows" in shown
    write_evaluation(run, by="exact")
    shown = CliRunner().invoke(cli, ["result", str(run.path)], catch_exceptions=False).stdout
    assert "evaluation    by exact answers: better than the base" in shown


async def test_a_long_path_to_edit_is_marked_where_it_is_cut(machine, tmp_path):
    run = ended_run(tmp_path / ("long-" * 20) / "run", LOG_LINES)
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "no/base"})
    async with on_result(run, "LoRA adapter of no/base") as pilot:
        await press_keys("m")(pilot)
        await wait_for_text(pilot, "Merge into which new folder?")
        (field,) = pilot.app.screen.query(Input)
        assert (field.render_line(0).text[0], field.render_line(0).text.rstrip()[-7:]) == ("…", "/merged")
        await press_keys("home")(pilot)
        assert field.render_line(0).text.startswith(str(tmp_path)[:20]), "the beginning, uncut"


async def test_a_broken_result_is_neither_tried_nor_merged(machine, tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES, state="failed")
    write_adapter(run.path / "output", data=safetensors_bytes(cut=1))
    async with on_result(run, "Problem") as pilot:
        offers = ("Try it", "m Merge", "m merges", "p publishes", "Serve")
        assert not [offered for offered in offers if offered in screen_text(pilot)]


async def test_a_run_that_made_nothing_has_no_result(machine, tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "e edit and rerun", "no checkpoint-STEP with trainer_state.json in output")
        assert "Enter" not in screen_text(pilot)
        await press_keys("enter")(pilot)
        assert type(pilot.app.screen).__name__ == "RunScreen"
        assert pilot.app.screen.why_key_refused("enter") == "No adapter, model or other file of it was found."


def run_of_own_script(tmp_path: Path) -> RunFolder:
    """Return a run of a script that counts its steps from 0 and saves a file of its own."""
    script = tmp_path / "train.py"
    script.write_text("import argparse\np = argparse.ArgumentParser()\np.add_argument('--out')\n")
    lines = [f"step {step}/8 loss {2 - step / 8:.3f}" for step in range(8)]
    arguments = ("--out", str(tmp_path / "made"))
    own: dict[str, Any] = {"trainer.preset": "auto", "trainer.script": str(script), "trainer.model": ""}
    run = ended_run(tmp_path / "run", lines, **own, **{"trainer.arguments": arguments, "recipe.steps": None})
    (tmp_path / "made").mkdir(exist_ok=True)
    (tmp_path / "made/model.pt").write_bytes(b"x" * 3000)
    # While it trained, which was an hour ago.
    os.utime(tmp_path / "made/model.pt", (time.time() - 3540,) * 2)
    return run


async def test_a_run_of_an_own_script_says_what_would_be_seen_of_it(machine, tmp_path):
    run = run_of_own_script(tmp_path)
    (tmp_path / "made/model.pt").unlink()
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "nothing: no model by save_pretrained, no new weights")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)], ids=str)
async def test_what_an_own_script_saved_is_its_result(machine, tmp_path, size):
    run = run_of_own_script(tmp_path)
    async with make_wizard(str(run.path)).run_test(size=size) as pilot:
        await wait_for_text(pilot, "Enter result", "8 of 8", "100 %", "made/model.pt")
        await pilot.press("enter")
        await wait_for_text(pilot, "a file of your script", "made/model.pt", "last, step 7 (from 0)", "2.9 KiB")
        shown = screen_text(pilot)
        assert "tui-train metrics run" in shown
        # Beside each other where there is room, and nothing twice.
        assert (" Loss ─" in shown) == (size[0] > 80)
        assert shown.count("Files  2.9 KiB") == 1
        await press_keys("c")(pilot)
        assert pilot.app.clipboard == str(tmp_path / "made/model.pt")


async def test_a_result_of_a_broken_loss_says_where_its_fixes_are(machine, tmp_path):
    run = ended_run(tmp_path / "run", ["step 1 loss 2.0", "step 2 loss nan"])
    write_adapter(run.path / "output")
    async with on_result(run, "✗ the loss became NaN: Run (Esc) says what helps", (120, 40)) as pilot:
        await wait_for_text(pilot, "tui-train diagnose run")


def children() -> list[int]:
    """The chats that this process has started."""
    below = psutil.Process().children(recursive=True)
    return [each.pid for each in below if any(word.endswith("result/chat_child.py") for word in _words_of(each))]


def _words_of(process: psutil.Process) -> list[str]:
    """Return the command of a process; none of one that has ended."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


async def loaded(pilot: Any, *words: str) -> None:
    """Wait until what a child was to do is done, or is not, in these words, which may be broken into lines."""
    await until_true(pilot, lambda: all(each in " ".join(screen_text(pilot).split()) for each in words))


async def answered(pilot: Any, count: int) -> None:
    """Wait until so many answers are complete."""
    await until_true(pilot, lambda: screen_text(pilot).count("tokens/s") >= count)


@pytest.mark.parametrize("size", sample(SIZES, 2), ids=str)
async def test_a_chat_beside_the_base_by_keys(machine, full_run, size):
    async with on_result(full_run, "full model, trained from", size) as pilot:
        await pilot.press("b")
        await loaded(pilot, "✓ loaded on cpu in float32")
        beside = [line for line in screen_text(pilot).splitlines() if line.startswith(" Result") and "Base" in line]
        assert bool(beside) == (size[0] >= 100)
        (child,) = children()
        await pilot.press("q", "u", "a", "enter")
        await wait_for_text(pilot, "› qua")
        assert screen_text(pilot).count("› qua") == 2
        await answered(pilot, 2)
        assert all(cell_len(line) <= size[0] for line in screen_text(pilot).split("\n"))
        await pilot.press("h", "i", "enter", "f2", "f2")
        await answered(pilot, 3)
        await pilot.press("escape")
        await pilot.pause()
        assert type(pilot.app.screen).__name__ == "ResultScreen"
        wait_until(lambda: not Path(f"/proc/{child}").exists(), 20, "the child goes on")


@pytest.mark.whole
async def test_what_is_asked_while_a_model_is_loaded_is_sent_then(machine, full_run, monkeypatch):
    typed, load = threading.Event(), Chat.wait_until_loaded

    def slow(self: Chat, *given: Any) -> ModelsLoaded:
        typed.wait(60)
        return load(self, *given)

    monkeypatch.setattr(Chat, "wait_until_loaded", slow)
    async with on_result(full_run, "full model, trained from") as pilot:
        await pilot.press("enter", "q", "u", "a", "enter")
        await pilot.pause()
        screen = pilot.app.screen
        assert screen.query_one("#prompt").value == "qua"
        assert "is sent then" in screen_text(pilot)
        typed.set()
        await answered(pilot, 1)
        assert screen_text(pilot).count("› qua") == 1
        assert not screen.query_one("#prompt").value


@pytest.mark.whole
async def test_a_picture_is_shown_with_the_next_prompt(machine, full_run, tmp_path):
    (tmp_path / "a.png").write_bytes(b"a picture")
    async with on_result(full_run, "full model, trained from") as pilot:
        await pilot.press("enter")
        await loaded(pilot, "✓ loaded on cpu")
        await pilot.press(*"/image none.png", "enter")
        await loaded(pilot, "✗ none.png cannot be shown: no such file")
        await pilot.press(*f"/image {tmp_path}/a.png", "enter")
        await loaded(pilot, "✓ a.png, 0.0 KiB, is shown with the next prompt.")
        assert "› /image" not in screen_text(pilot)
        await pilot.press("q", "u", "a", "enter")
        await loaded(pilot, "cannot be shown to it: the model reads text only", "(no answer)")
        assert "› qua\n   with a.png" in re.sub(" +\n", "\n", screen_text(pilot))
        await pilot.press("q", "u", "a", "enter")
        await answered(pilot, 1)


@pytest.mark.whole
async def test_why_a_model_cannot_be_tried_stays_on_the_screen(machine, tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_model(run.path / "output")
    async with on_result(run, "full model") as pilot:
        await pilot.press("enter")
        await loaded(pilot, "no tokenizer")
        await press_keys("x", "enter")(pilot)
        assert "› x" not in screen_text(pilot)
        await press_keys("escape")(pilot)
        assert type(pilot.app.screen).__name__ == "ResultScreen"


@pytest.mark.whole
async def test_code_of_a_model_runs_after_a_key(machine, tmp_path, models):
    marker = tmp_path / "marker"
    run = ended_run(tmp_path / "run", LOG_LINES, python=warm.training())
    (run.path / "output").symlink_to(copy_model_with_own_code(tmp_path / "own", models[0], marker))
    async with on_result(run, "full model") as pilot:
        assert "F4" not in screen_text(pilot)
        await pilot.press("enter")
        await loaded(pilot, "F4 runs it")
        # A long path to it is broken into lines.
        assert "modeling_own.py" in "".join(screen_text(pilot).split())
        assert not marker.exists()
        await pilot.press("f4")
        await loaded(pilot, "✓ loaded on cpu")
        assert marker.exists()
        assert "F4" not in screen_text(pilot)


class Column(App[None]):
    """One side of a chat alone."""

    def compose(self) -> ComposeResult:
        """Put it over the whole screen."""
        talk = ChatPane("Result", id="talk")
        talk.styles.height = "1fr"
        yield talk


async def test_what_is_written_redraws_its_own_line(monkeypatch):
    app = Column()
    async with app.run_test(size=(40, 10)) as pilot:
        talk = app.query_one(ChatPane)
        talk.begin_turn("Why?")
        talk.append_to_answer("one two three")
        await wait_for_workers(pilot)
        drawn = []
        monkeypatch.setattr(talk, "refresh", lambda *regions, **_: drawn.extend(regions))
        talk.append_to_answer(" four [bold]five")
        assert [(region.y, region.height) for region in drawn] == [(3, 1)]
        assert drawn[0].x >= len("one two three")
        monkeypatch.undo()
        for number in range(40):
            talk.append_to_answer(f"\nline {number}")
        await wait_for_workers(pilot)
        assert "line 39" in screen_text(pilot)
        talk.scroll_pages(-1)
        talk.append_to_answer("\nlast line")
        await wait_for_workers(pilot)
        assert "last line" not in screen_text(pilot)
        talk.scroll_pages(9)
        await wait_for_workers(pilot)
        assert "last line" in screen_text(pilot)
        assert "[bold]" not in screen_text(pilot)


async def test_an_answer_that_begins_with_blank_lines_hides_nothing():
    app = Column()
    async with app.run_test(size=(60, 8)) as pilot:
        talk = app.query_one(ChatPane)
        talk.begin_turn("Why?", (), "waits for the result's answer …")
        await wait_for_text(pilot, "› Why?", "waits for the result's answer …")
        talk.show_waiting("answering …")
        for _ in range(20):
            talk.append_to_answer("\n")
        await wait_for_text(pilot, "› Why?", "answering …")
        talk.append_to_answer(" So.")
        talk.append_to_answer("\n\nIt is.")
        talk.show_waiting("answering …")
        await wait_for_text(pilot, "› Why?", "So.", "It is.")
        assert "answering" not in screen_text(pilot)


async def test_an_answer_that_shows_nothing_says_why():
    app = Column()
    async with app.run_test(size=(60, 12)) as pilot:
        talk = app.query_one(ChatPane)
        for tokens, reason in ((1, "end"), (9, "length"), (0, "stopped")):
            talk.begin_turn("Why?")
            end = AnswerEnd("result", tokens, 1.0, reason)
            talk.add_note(end.summary, end.blank_text)
        await wait_for_workers(pilot)
        shown = screen_text(pilot)
        assert "(no answer: the model ended its turn at once)" in shown
        assert "(only blanks or special tokens)" in shown
        assert "(stopped before its first word)" in shown


def test_the_time_left_of_an_evaluation_is_at_the_pace_of_its_own_scores():
    assert time_left_text((100.0, 10), (100.0, 10), 40) == ""
    assert time_left_text((100.0, 10), (160.0, 15), 40) == ", 5 min left"
    assert time_left_text((100.0, 0), (101.0, 20), 40) == ", under 1 min left"


async def test_how_a_run_is_scored_is_read_beside_the_screen(machine, tmp_path, monkeypatch):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "no/base"})
    read = threading.Event()

    def slow(_: RunFolder) -> str:
        assert threading.current_thread() is not threading.main_thread()
        read.wait(60)
        return "function:/mine/score.py:score"

    monkeypatch.setattr("tui_train.screens.evaluate.default_scoring", slow)
    async with on_result(run, "LoRA adapter of no/base") as pilot:
        await pilot.press("e")
        await until_true(pilot, lambda: "Evaluate  on rows that the run did not train on" in screen_text(pilot))
        read.set()
        await wait_for_text(pilot, "by score.py:score, on rows", "Ways to score")
        await pilot.press("s")
        await wait_for_text(pilot, "Reward: score.py:score, from which it learned")
        await pilot.press("down", "down", "down", "enter")
        await wait_for_text(pilot, "Which regular expression?")
        await pilot.press(*"####(", "enter")
        await wait_for_text(pilot, "by ####(, on rows", "is no regular expression", "Give another: s")
        await pilot.press("escape")
        await wait_for_text(pilot, "Run › Result")
        await pilot.press("e")
        await wait_for_text(pilot, "by ####(, on rows", "is no regular expression")


async def test_without_held_out_rows_the_key_for_a_file_is_named(machine, tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "no/base"})
    async with on_result(run, "LoRA adapter of no/base") as pilot:
        await pilot.press("e")
        await wait_for_text(pilot, "kept no rows for evaluations", "Press d and name")
        (below,) = (line for line in screen_text(pilot).splitlines() if "To keep some in the next run" in line)
        assert below.startswith(" " * 3), "the second line begins under the text of the first"
        shown = " ".join(screen_text(pilot).split())
        assert "Press d and name a file with other rows." in shown
        assert "To keep some in the next run, set Evaluation share on Backend = 0.1." in shown
        assert "--data" not in shown


@pytest.mark.whole
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_result_is_scored_beside_its_base_by_keys(machine, full_run, tmp_path, size):
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}] * 3
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    async with on_result(full_run, "e Is it better?", size) as pilot:
        await pilot.press("e")
        await loaded(pilot, "kept no rows for evaluations", "d: score the rows of another file")
        await pilot.press("d")
        await wait_for_text(pilot, "File with rows to score")
        await pilot.press(*str(tmp_path / "rows.jsonl"), "enter")
        await loaded(pilot, "Verdict no difference", "of 3 rows (95 %", "Loss per token")
        await pilot.press("s")
        await wait_for_text(pilot, "How to score?")
        await pilot.press("down", "enter")
        await loaded(pilot, "by exact answers", "Right answers", "Answers that differ")
        (tmp_path / "score.py").write_text("def score(prompt, answer, expected):\n    return 1.0\n")
        await pilot.press("s", "down", "down", "down", "enter")
        await wait_for_text(pilot, "Which function?")
        await pilot.press(*f"{tmp_path}/score.py:score", "enter")
        await loaded(pilot, "by score.py:score, on", "Mean score", "equal on 3 rows")
        await pilot.press("s", *["down"] * 4, "enter")
        await wait_for_text(pilot, "Which task of lm-eval?")
        await pilot.press(*"gsm8k", "enter")
        await loaded(pilot, "on gsm8k", "asks need lm-eval", "Install it")
        assert all(cell_len(line) <= size[0] for line in screen_text(pilot).splitlines())
        await pilot.press("escape")
        await wait_for_text(pilot, "Run › Result")


async def test_an_export_without_llama_cpp_names_the_command_that_gets_it(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output")
    async with on_result(run, "p publishes it") as pilot:
        await pilot.press("x")
        await wait_for_text(pilot, "For which server?", "Ollama: a GGUF file, and a Modelfile", "vLLM: a folder")
        await pilot.press("enter")
        await wait_for_text(pilot, "✗ not exported", "is not on PATH and not in", "Get it: git clone --depth 1")
        assert "--llama-cpp" not in screen_text(pilot)
        (tmp_path / "convert_hf_to_gguf.py").touch(mode=0o700)
        await pilot.press("x", "enter")
        await wait_for_text(pilot, "Which type of weights?", "q8_0     8.5 bits a weight: 1.1 GB for 1 B parameters")
        await pilot.press("down", "down", "down", "enter")
        await wait_for_text(pilot, "Write into which new folder?", "run/ollama")


async def test_an_export_is_cancelled_and_the_result_stays(machine, tmp_path, monkeypatch):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "no/base"})
    ended = threading.Event()

    def wait_for_end(_run: RunFolder, folder: str, _options: Any, say: Any, is_cancelled: Any) -> None:
        say("copying", folder)
        wait_until(is_cancelled, 60, "the export was not cancelled")
        ended.set()
        raise AnswerCancelled

    monkeypatch.setattr("tui_train.screens.result.screen.export_model", wait_for_end)
    async with on_result(run, "p publishes it") as pilot:
        await pilot.press("x", "down", "down", "enter", "enter")
        await loaded(pilot, "copying", "Esc Cancel the export")
        await pilot.press("q")
        await loaded(pilot, "Export is not done yet.", "Cancel the export and quit")
        await pilot.press("escape")
        await loaded(pilot, "copying", "Esc Cancel the export")
        assert not ended.is_set()
        await pilot.press("escape")
        await loaded(pilot, "Esc Back", "p publishes it")
        (notice,) = pilot.app._notifications
        assert notice.message == "Export cancelled, nothing of it is kept."
        assert "copying" not in screen_text(pilot)
        assert ended.wait(20)
        await pilot.press("escape")
        await loaded(pilot, "Enter result")


@pytest.mark.whole
async def test_a_model_is_exported_by_keys(machine, full_run, tmp_path):
    async with on_result(full_run, "p publishes it") as pilot:
        await pilot.press("x", "down", "down", "enter")
        await wait_for_text(pilot, "Write into which new folder?")
        await pilot.press("ctrl+u", *f"{tmp_path}/for-vllm", "enter")
        await wait_for_text(pilot, "Export ──", "✓ wrote", "vllm serve", "weights, tokenizer, chat template")
        assert (tmp_path / "for-vllm/config.json").is_file()
        await pilot.press("m")
        assert "Merge into" not in screen_text(pilot)


def test_a_worker_that_is_not_cut_off_while_it_changes_files_is_one_of_a_screen():
    sources = (path.read_text() for path in Path(screens.__file__).parent.rglob("*.py"))
    groups = {group for source in sources for group in re.findall(r'group="([\w-]+)"', source)}
    assert groups >= _CHANGING_WORKER_GROUPS
