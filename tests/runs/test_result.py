"""What a run made: found in its folder, merged into a model, and talked with."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest
import warm
from support import create_run, profile, run_cli
from training_results import (
    ADAPTER_CONFIG,
    LOG_LINES,
    copy_model_with_own_code,
    ended_run,
    make_chat_model,
    safetensors_bytes,
    write_adapter,
    write_model,
)
from tui_train.screens.result.result_lines import result_lines

from tui_train.actions.chat import AnswerEnd, AnswerPiece, Chat, visible_text_with_line_breaks
from tui_train.actions.merge import MergeOptions, merge_adapter
from tui_train.actions.result_child import ResultChild, TrainingPython
from tui_train.actions.serving import serve_commands
from tui_train.base.errors import BadInput, NotFound, Unavailable
from tui_train.cli.results.result import print_result
from tui_train.cli.runs.run_and_resume import _outcome_text
from tui_train.programs import hub_cache
from tui_train.runner.system.new_folder import _apply_umask
from tui_train.runs.remote_run import RunLocation, write_run_location
from tui_train.runs.results.result import read_result
from tui_train.runs.results.weights import read_weights
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

TRL = os.environ.get("TUI_TRAIN_TEST_TRL", "")
with_trl = pytest.mark.skipif(
    not TRL, reason="NOT TESTED with TRL itself: adapters, for which TUI_TRAIN_TEST_TRL names a Python"
)
PROGRAMS = Path(hub_cache.__file__).parent / "result"
OFFLINE = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def command(*words, **more):
    return run_cli(*words, env={**os.environ, **OFFLINE}, **more)


# ---- what a folder holds -----------------------------------------------------------------------------------------


def test_an_adapter_and_a_model_are_told_apart(tmp_path):
    adapter = read_weights(write_adapter(tmp_path / "a"))
    assert (adapter.kind, adapter.base, adapter.rank, adapter.problem) == ("adapter", "org/base", 32, "")
    model = read_weights(write_model(tmp_path / "m"))
    assert (model.kind, model.size, model.problem) == ("model", len(safetensors_bytes()), "")
    assert read_weights(tmp_path) is None
    (tmp_path / "config.json").write_text("{}")
    assert read_weights(tmp_path) is None


INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"model.safetensors": safetensors_bytes(cut=1)}, "it has only 75 of 76 bytes"),
        ({"model.safetensors": b"x" * 20}, "not a safetensors file"),
        (
            {"model.safetensors.index.json": INDEX, "model-1.safetensors": safetensors_bytes()},
            "model-2.safetensors is missing",
        ),
        ({"model.safetensors.index.json": b"[]"}, "index.json"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "../x"}}'}, "../x is missing"),
    ],
)
def test_a_model_that_is_not_whole(tmp_path, files, problem):
    found = read_weights(write_model(tmp_path, **files))
    assert problem in found.problem


def test_a_broken_adapter(tmp_path):
    assert read_weights(write_adapter(tmp_path, data=safetensors_bytes(cut=3))).problem
    (tmp_path / "adapter_model.safetensors").unlink()
    assert "missing" in read_weights(tmp_path).problem
    (tmp_path / "adapter_config.json").write_text('{"r": ')
    assert "adapter_config.json" in read_weights(tmp_path).problem


# ---- the result of a run -----------------------------------------------------------------------------------------


def test_the_rewards_of_a_training_on_rewards_stand_before_its_losses(tmp_path):
    run = ended_run(tmp_path / "run", [f"{{'loss': '0.0', 'reward': '0.{n}', 'epoch': '0.{n}'}}" for n in range(1, 9)])
    write_adapter(run.path / "output")
    found = read_result(run)
    assert (found.reward_first, found.reward) == (0.1, 0.8)
    assert "0.8 last, 0.1 first" in command("result", f"{run.path}/").stdout
    shown = "\n".join(line.plain for line in result_lines(found, 80))
    assert "Reward        0.8 last, 0.1 first" in shown
    assert "Loss" not in shown


def test_the_final_weights_and_the_losses(tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output")
    write_adapter(run.path / "output/checkpoint-20")
    os.utime(run.path / "output/checkpoint-20/adapter_model.safetensors", (time.time() - 60,) * 2)
    found = read_result(run)
    assert (found.source, found.weights.path, found.base) == ("final", str(run.path / "output"), "org/base")
    assert [found.loss.loss, found.loss_best.loss, found.loss_best.step] == [2.0, 1.5, 10]
    assert [found.eval_loss.loss, found.eval_loss_best.loss, found.eval_loss_best.step] == [1.875, 1.75, 10]
    assert round(found.seconds) == 90
    assert [bool(served.command) for served in serve_commands(found)] == [True, False]
    shown = command("result", f"{run.path}/").stdout
    assert "LoRA adapter of org/base" in shown
    assert "--max-lora-rank 32" in shown
    told = json.loads(command("result", f"{run.path}/", "--json").stdout)
    assert told["result"]["weights"]["kind"] == "adapter"


def test_of_a_fine_tuning_the_step_of_its_best_weights_is_named(tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output")
    saved = write_adapter(run.path / "output/checkpoint-20")
    (saved / "trainer_state.json").write_text('{"global_step": 20, "best_model_checkpoint": "output/checkpoint-10"}')
    os.utime(saved / "adapter_model.safetensors", (time.time() - 60,) * 2)
    assert read_result(run).weights_origin_text == "final weights", "a script may take its last ones"
    run.profile_file.write_text('[trainer]\nkind = "finetune"\n')
    assert read_result(run).weights_origin_text == "weights of step 10, the best by eval loss"


def test_the_newest_checkpoint_where_nothing_is_final(tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES, state="stopped")
    for step in (10, 20):
        write_model(run.path / f"output/checkpoint-{step}")
        (run.path / f"output/checkpoint-{step}/trainer_state.json").write_text("{}")
    found = read_result(run)
    assert (found.source, found.step, Path(found.weights.path).name) == ("checkpoint", 20, "checkpoint-20")
    assert all(served.command.endswith("checkpoint-20") for served in serve_commands(found))


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_what_a_stopped_run_saved_is_not_final(tmp_path, state):
    run = ended_run(tmp_path / "run", LOG_LINES[:2], state=state)
    write_adapter(run.path / "output")
    found = read_result(run)
    assert (found.source, found.step) == ("stopped", 10)
    assert "stopped at step 10" in command("result", f"{run.path}/").stdout
    saved = write_adapter(run.path / "output/checkpoint-12")
    # A long training has logged each of its steps; its step is not that of the folder's name.
    logged = ('{"loss": 1, "step": 2, "epoch": 3}, ' * (600_000 if state == "failed" else 1)) + "{}"
    (saved / "trainer_state.json").write_text(f'{{"global_step": 13, "log_history": [{logged}]}}')
    os.utime(saved / "adapter_model.safetensors", (time.time() - 60,) * 2)
    assert (read_result(run).source, read_result(run).step) == ("stopped", 13)
    run.attempt_log(1).write_text("")
    shutil.rmtree(saved)
    assert (read_result(run).step, read_result(run).weights_origin_text) == (0, "as stopped")


def test_what_another_run_left_in_the_output_folder_is_not_its_result(tmp_path):
    run = ended_run(tmp_path / "run", **{"trainer.output": str(tmp_path / "out")})
    write_model(tmp_path / "out")
    assert read_result(run).weights
    os.utime(tmp_path / "out/model.safetensors", (time.time() - 7200,) * 2)
    assert read_result(run).weights is None
    assert "no adapter and no model" in command("result", f"{run.path}/").stdout


def test_of_several_runs_of_a_name_it_says_that_the_newest_is_shown(capsys):
    for _ in range(2):
        run = create_run(profile({"name": "mine"}))
    print_result("mine", as_json=False)
    shown = capsys.readouterr()
    assert (shown.out.split()[1], shown.err[:40]) == (f"{run.name},", "Of 2 runs of mine this is the newest: `t")
    print_result(run.name, as_json=False)
    assert capsys.readouterr().err == ""


def test_what_was_fetched_of_a_script_is_its_result(tmp_path):
    run = ended_run(tmp_path / "run")
    write_run_location(run.path, RunLocation(host="box", folder="/there/run"))
    (run.path / "output").mkdir(exist_ok=True)
    assert "on box: tui-train fetch run copies it here" in command("result", f"{run.path}/").stdout
    (run.path / "output" / "scores.json").write_text("{}")
    assert f"in {run.path}/output, by the script; no adapter or model" in command("result", f"{run.path}/").stdout


def test_what_a_script_wrote_where_its_own_arguments_say_is_found(tmp_path):
    (tmp_path / "t.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--dest', default='made')\n"
        "p.add_argument('--data', default='.')\np.add_argument('--cache', default='old')\np.parse_args()\n"
    )
    own = {"trainer.kind": "script", "trainer.script": str(tmp_path / "t.py"), "trainer.preset": "custom"}
    own |= {"trainer.model": "", "recipe.steps": None, "ladder.rungs": ()}
    run = ended_run(tmp_path / "run", **own)
    (attempt,) = read_status(run).attempts
    written = {
        "made/model.pt": attempt.started + 3,
        "best.ckpt": attempt.started + 2,
        "made/epoch-1/net.pth": attempt.started + 1,
        "made/epoch-1/optimizer.bin": attempt.started + 1,
        "made/epoch-1/random_states_0.pkl": attempt.started + 1,
        "lightning_logs/version_0/checkpoints/epoch=0.ckpt": attempt.started,
        # By the runs right before and after it.
        "old/model.pt": attempt.started - 0.1,
        "before.ckpt": attempt.started - 25,
        "later.ckpt": attempt.ended + 25,
    }
    for name, at in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (at, at))
    assert read_result(run).written == (str(tmp_path / "made"),)
    shown = command("result", f"{run.path}/").stdout
    names = ", ".join(f"{tmp_path}/{name}" for name in ("made/model.pt", "best.ckpt", "made/epoch-1/net.pth"))
    assert f"{names} and 1 more, written while it trained; no adapter or model\n" in shown
    (saved,) = tmp_path.glob("lightning_logs/*/*/*")
    assert str(saved) in read_result(run).saved
    for weights in (saved, *(tmp_path / name for name in ("best.ckpt", "made/model.pt", "made/epoch-1/net.pth"))):
        weights.rename(weights.with_suffix(".txt"))
    assert f"in {tmp_path}/made, by the script; no adapter or model" in command("result", f"{run.path}/").stdout
    write_model(tmp_path / "made")
    assert read_result(run).weights.path == read_result(run).output == str(tmp_path / "made")
    named = ended_run(tmp_path / "run2", **own, **{"trainer.arguments": ("--dest", str(tmp_path / "none"))})
    assert read_result(named).written == ()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["epoch 1 | valid loss 2.5", "epoch 2 | valid loss 2.0"], "eval loss     2.000 last, epoch 2\n"),
        (["step 10 loss 2.5", "step 20 loss 2.0"], "loss          2.000 last, step 20\n"),
        (["nothing of that kind"], "loss          none was found in its log\n"),
    ],
)
def test_where_a_loss_was_told_is_called_as_its_log_calls_it(tmp_path, lines, told):
    assert told in command("result", f"{ended_run(tmp_path / 'run', lines).path}/").stdout


def test_a_model_without_a_tokenizer_is_not_offered_to_talk_with(tmp_path):
    run = ended_run(tmp_path / "run", **{"trainer.model": ""})
    write_model(run.path / "output")
    (run.path / "output/tokenizer.json").unlink(missing_ok=True)
    assert "needs tokenizer files beside it" in command("result", f"{run.path}/").stdout
    (run.path / "output/tokenizer.json").write_text("{}")
    assert "tui-train try " in command("result", f"{run.path}/").stdout


def test_a_quantized_base_is_told(tmp_path):
    run = ended_run(tmp_path / "run", **{"trainer.arguments": ("--load_in_4bit=True",)})
    assert read_result(run).quantized
    text = run.profile_file.read_text().replace("--load_in_4bit", "--load_in_2bit")
    run.profile_file.write_text(text)
    assert not read_result(run).quantized
    run.profile_file.write_text(text.replace('kind = "script"', 'kind = "finetune"') + '[finetune]\ntuning = "qlora"\n')
    assert read_result(run).quantized


def test_a_checkpoint_of_automodel(tmp_path):
    run = ended_run(tmp_path / "run")
    plan = json.loads(run.plan_file.read_text())
    for attempt in plan["attempts"]:
        attempt["checkpoints"] = None
    run.plan_file.write_text(json.dumps(plan))
    write_adapter(run.path / "output/epoch_0_step_9/model")
    write_adapter(run.path / "output/epoch_0_step_19/model")
    found = read_result(run)
    assert (found.step, found.weights.path) == (19, str(run.path / "output/epoch_0_step_19/model"))
    write_model(run.path / "output/epoch_1_step_29/model/consolidated")
    assert read_result(run).weights.kind == "model"


def test_hostile_text_in_an_adapter_is_not_obeyed(tmp_path):
    run = ended_run(tmp_path / "run")
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "x\x1b[31m\n[bold]"})
    shown = command("result", f"{run.path}/").stdout
    assert "\x1b" not in shown
    assert "\\x1b[31m\\n[bold]" in shown


# ---- with transformers alone -------------------------------------------------------------------------------------


GREEDY = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompt, adapter = sys.argv[1:]
tokens = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
if adapter:
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, adapter)
if tokens.chat_template:
    turn = [{"role": "user", "content": prompt}]
    made = tokens.apply_chat_template(turn, add_generation_prompt=True, return_tensors="pt", return_dict=True)
else:
    made = tokens(prompt, return_tensors="pt")
made = {name: made[name] for name in ("input_ids", "attention_mask")}
out = model.generate(**made, do_sample=False, max_new_tokens=24)
sys.stdout.buffer.write(tokens.decode(out[0, made["input_ids"].shape[1]:], skip_special_tokens=True).encode())
"""


def greedy(folder, prompt, adapter="", python=""):
    """What transformers itself answers, as it is shown."""
    done = subprocess.run(
        [python or warm.training(), "-c", GREEDY, str(folder), prompt, str(adapter)], capture_output=True, check=False,
        env={**os.environ, **OFFLINE},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-800:]
    return visible_text_with_line_breaks(done.stdout.decode())


@pytest.mark.whole
def test_a_full_model_answers_as_transformers_does(full_run, models):
    words = ("try", f"{full_run.path}/", "--max-tokens", "24")
    told = command(*words, "--prompt", "What is 4?")
    answer = greedy(models[1], "What is 4?")
    assert told.stdout == f"{answer}\n"
    assert answer
    piped = command(*words, "--base", input="What is 4?").stdout
    assert piped == f"── result\n{answer}\n── base\n{greedy(models[0], 'What is 4?')}\n"
    assert command(*words, "--prompt", " ", code=65).stdout == ""


@pytest.mark.whole
def test_without_a_template_the_text_goes_on(tmp_path):
    run = ended_run(tmp_path / "run", python=warm.training())
    make_chat_model(run.path / "output", "--plain")
    told = command("try", f"{run.path}/", "--max-tokens", "24", "--prompt", "Once upon")
    assert told.stdout == f"{greedy(run.path / 'output', 'Once upon')}\n"
    assert "no chat template" in told.stderr


def test_an_answer_is_streamed_stopped_and_remembered(full_run):
    chat = Chat(full_run, compare=False)
    try:
        ready = chat.wait_until_loaded(lambda _what: None)
        assert (ready.device, ready.dtype, ready.template, ready.compares) == ("cpu", "float32", True, False)
        pieces = [*chat.ask("Tell me.", "result", 120)]
        assert len(pieces) > 20
        assert isinstance(pieces[-1], AnswerEnd)
        assert pieces[-1].end_reason in {"end", "length"}
        second = chat.ask("And now?", "result", 200)
        assert isinstance(next(second), AnswerPiece)
        chat.stop_answer()
        *_, end = second
        assert end.tokens < 200
        assert end.forgotten_turns == 1, "both turns are more than the model takes"
        with pytest.raises(Unavailable, match="256"):
            next(chat.ask("x" * 300, "result"))
        assert isinstance(next(chat.ask("ok?", "result", 1)), AnswerPiece | AnswerEnd), "another prompt is answered"
    finally:
        chat.close()


@pytest.mark.whole
def test_a_chat_in_a_terminal(full_run):
    words = ["-m", "tui_train", "try", f"{full_run.path}/", "--max-tokens", "200"]
    with (full_run.path / "said").open("wb") as said:
        chat = pexpect.spawn(sys.executable, words, env={**os.environ, **OFFLINE}, timeout=120, logfile=said)
        chat.expect_exact("› ".encode())
        chat.sendline("hi")
        chat.expect(rb"tokens, [\d.]+ tokens/s")
        chat.expect_exact("› ".encode())
        chat.sendline("more")
        chat.expect(rb"more\r\n.")
        chat.sendintr()
        chat.expect(rb", stopped|tokens/s")
        chat.expect_exact("› ".encode())
        chat.sendeof()
        chat.expect(pexpect.EOF)
        chat.close()
    assert chat.exitstatus == 0


@pytest.mark.whole
def test_a_child_that_says_nothing_ends_or_breaks(tmp_path, full_run):
    silent = tmp_path / "python"
    ends = (("exec sleep 60", "no answer"), ("echo oops >&2; exit 3", "oops"), ("kill -9 $$", "memory"))
    for body, words in (*ends, ("yes oops | cat >&2", "64 MiB of errors")):
        silent.write_text(f"#!/bin/sh\n{body}\n")
        silent.chmod(0o755)
        child = ResultChild(TrainingPython(str(silent)), "chat_child.py", {})
        try:
            with pytest.raises(Unavailable, match=words):
                child.read_message(1.0)
        finally:
            child.close()
        assert not child.is_alive
    words = ("try", f"{full_run.path}/", "--prompt", "x", "--python", "/no/python")
    assert "--python" in command(*words, code=69).stderr


def test_code_of_a_model_runs_only_where_it_is_allowed_for_this_time(tmp_path, models):
    marker = tmp_path / "marker"
    own = copy_model_with_own_code(tmp_path / "own", models[0], marker)
    run = ended_run(tmp_path / "run", python=warm.training())
    (run.path / "output").symlink_to(own)
    words = ("try", f"{run.path}/", "--prompt", "x", "--max-tokens", "1")
    refused = command(*words, code=69).stderr
    assert "modeling_own.py" in refused
    assert "--trust-remote-code" in refused
    adapted = ended_run(tmp_path / "adapted", python=warm.training(), **{"trainer.model": str(own)})
    write_adapter(adapted.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": str(own)})
    refused = command("merge", f"{adapted.path}/", str(tmp_path / "merged"), code=69).stderr
    assert "modeling_own.py" in refused
    assert not marker.exists()
    command(*words, "--trust-remote-code")
    assert marker.exists()
    marker.unlink()
    command(*words, code=69)
    assert not marker.exists()


def test_a_child_that_does_not_talk_has_no_stdin(tmp_path):
    asks = tmp_path / "python"
    asks.write_text("#!/bin/sh\nread answer || echo closed >&2; exit 3\n")
    asks.chmod(0o755)
    child = ResultChild(TrainingPython(str(asks)), "merge_child.py", {})
    try:
        with pytest.raises(Unavailable, match="closed"):
            child.read_message(5.0)
    finally:
        child.close()


def test_what_cannot_be_tried_or_merged_is_said_before_anything_is_loaded(tmp_path, full_run):
    with pytest.raises(BadInput, match="nothing to merge"):
        merge_adapter(full_run, str(tmp_path / "new"), MergeOptions())
    empty = ended_run(tmp_path / "empty")
    acts = [lambda: merge_adapter(empty, str(tmp_path / "new"), MergeOptions()), lambda: Chat(empty, compare=False)]
    for act in acts:
        with pytest.raises(NotFound):
            act()
    write_adapter(empty.path / "output", data=safetensors_bytes(cut=2))
    for act in acts:
        with pytest.raises(BadInput, match="bytes"):
            act()
    write_adapter(empty.path / "output")
    (tmp_path / "new").mkdir()
    command("merge", f"{empty.path}/", str(tmp_path / "new"), code=73)
    command("merge", f"{empty.path}/", str(tmp_path / "no/new"), code=66)
    write_adapter(empty.path / "output", ADAPTER_CONFIG | {"task_type": "SEQ_CLS"})
    with pytest.raises(BadInput, match="scores"):
        Chat(empty, compare=False)


def test_a_base_that_is_not_here(tmp_path):
    run = ended_run(tmp_path / "run")
    write_adapter(run.path / "output")
    told = command("try", f"{run.path}/", "--prompt", "x", code=69)
    assert "org/base" in told.stderr
    command("merge", f"{run.path}/", str(tmp_path / "new"), code=69)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_folders_in_a_merged_model_can_be_entered_by_others(tmp_path):
    inner = tmp_path / "made/additional_chat_templates"
    inner.mkdir(parents=True, mode=0o700)
    (inner / "tool_use.jinja").touch(mode=0o600)
    before = os.umask(0o022)
    try:
        _apply_umask(tmp_path / "made")
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (inner.parent, inner, inner / "tool_use.jinja")]
    assert modes == [0o755, 0o755, 0o644]


LABELS = """
import sys, torch
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import merge_child
adapter = Path(sys.argv[2])
torch.save({"a.lora_A.weight": torch.zeros(2, 4), "score.weight": torch.zeros(3, 4)}, adapter / "adapter_model.bin")
print(merge_child._count_classification_labels(adapter))
"""


@pytest.mark.whole
def test_the_labels_of_an_adapter_without_safetensors(tmp_path):
    pytest.importorskip("torch")
    write_adapter(tmp_path, ADAPTER_CONFIG | {"task_type": "SEQ_CLS"})
    (tmp_path / "adapter_model.safetensors").unlink()
    done = subprocess.run(
        [sys.executable, "-c", LABELS, str(PROGRAMS), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr


def test_no_room_for_a_merged_model(tmp_path):
    base = write_model(tmp_path / "base")
    with (base / "model.safetensors").open("ab") as file:
        file.truncate(15 << 40)
    run = ended_run(tmp_path / "run")
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": str(base)})
    began = {*tmp_path.iterdir()}
    with pytest.raises(Unavailable, match="GiB are free"):
        merge_adapter(run, str(tmp_path / "new"), MergeOptions())
    write_model(base, {"quantization_config": {"quant_method": "bitsandbytes"}})
    with pytest.raises(Unavailable, match="bitsandbytes"):
        merge_adapter(run, str(tmp_path / "new"), MergeOptions())
    assert {*tmp_path.iterdir()} == began


# ---- with TRL itself ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lora_run(tmp_path_factory, models):
    """A finished run of the TRL preset with LoRA."""
    folder = tmp_path_factory.mktemp("lora")
    rows = [[("user", f"What is {n}?"), ("assistant", f"It is {n}.")] for n in range(40)]
    told = [{"messages": [{"role": role, "content": text} for role, text in row]} for row in rows]
    (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    chosen = {
        "hardware.device": "cpu", "trainer.kind": "script", "trainer.preset": "trl", "trainer.python": TRL,
        "trainer.model": models[0], "trainer.data": folder / "chat.jsonl", "recipe.lora": "true", "recipe.steps": 8,
        "recipe.micro_batch": 4, "recipe.global_batch": 4, "recipe.learning_rate": 1e-2, "recipe.precision": "fp32",
        "recipe.checkpoint_every": 4, "recipe.sequence_length": 64, "recipe.activation_checkpointing": "false",
    }  # fmt: skip
    sets = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    homes = {f"XDG_{name}_HOME": str(folder) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    words = [sys.executable, "-m", "tui_train", "run", "quickstart", *sets]
    done = subprocess.run(
        words, env={**os.environ, **OFFLINE, **homes}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert "tui-train try 2" in done.stdout, "what it made is named at the end"
    (script,) = folder.glob("tui-train/runs/[0-9]*/launch.sh")
    return RunFolder(script.parent)


@with_trl
def test_an_adapter_of_trl_is_merged_and_checked(lora_run, tmp_path, models):
    found = read_result(lora_run)
    assert (found.weights.kind, found.source, found.base) == ("adapter", "final", str(models[0]))
    told = command("merge", f"{lora_run.path}/", str(tmp_path / "merged"))
    assert "checked" in told.stdout
    merged = read_weights(tmp_path / "merged")
    assert (merged.kind, merged.problem) == ("model", "")
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]
    adapter = found.weights.path
    assert greedy(tmp_path / "merged", "What is 3?", python=TRL) == greedy(models[0], "What is 3?", adapter, TRL)


@with_trl
def test_an_adapter_answers_beside_its_base(lora_run, models):
    words = ("try", f"{lora_run.path}/", "--max-tokens", "24", "--prompt", "What is 3?", "--base")
    adapter, base = (greedy(models[0], "What is 3?", path, TRL) for path in (read_result(lora_run).weights.path, ""))
    assert adapter != base
    assert command(*words).stdout == f"── result\n{adapter}\n── base\n{base}\n"


@with_trl
def test_a_merge_that_is_interrupted_or_wrong_leaves_nothing(lora_run, tmp_path, monkeypatch):
    words = [sys.executable, "-m", "tui_train", "merge", f"{lora_run.path}/", str(tmp_path / "merged")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, **OFFLINE})
    assert process.stderr
    assert any(line.startswith("loading") for line in process.stderr)
    assert [*tmp_path.iterdir()]
    process.send_signal(2)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert [*tmp_path.iterdir()] == []
    monkeypatch.setattr("tui_train.actions.result_child.ResultChild.read_message", lambda *_: {
        "event": "done", "dtype": "float32", "difference": 0.5, "tolerance": 1e-4, "change": 0.7,
    })  # fmt: skip
    with pytest.raises(Unavailable, match="50"):
        merge_adapter(lora_run, str(tmp_path / "merged"), MergeOptions())
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("state", "says"), [("finished", True), ("stopped", False)])
def test_a_run_that_was_watched_ends_with_what_it_made(tmp_path, state, says):
    run = ended_run(tmp_path / "run", LOG_LINES, state=state)
    write_adapter(run.path / "output")
    said = _outcome_text(run, read_status(run))
    assert (f"tui-train try {run.name}" in said) is says
    assert (f"tui-train merge {run.name}" in said) is says
    assert (str(run.path / "output") in said) is says


def test_a_run_that_made_nothing_loadable_does_not_offer_to_try_it(tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    assert "try" not in _outcome_text(run, read_status(run))
    write_adapter(run.path / "output", data=safetensors_bytes(cut=1))
    assert "cannot be loaded" in _outcome_text(run, read_status(run))
    assert "try" not in _outcome_text(run, read_status(run))
