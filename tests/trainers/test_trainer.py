"""The built-in trainer, as real processes: what it prints, writes and refuses; its numbers however a batch is cut."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.training

TARGET = Path(__file__).parents[2] / "tui_train" / "programs"
SAMPLE = TARGET / "sample.txt"
TINY = ["--layers=2", "--hidden_size=32", "--heads=2", "--sequence_length=32", "--use_cpu=True", "--seed=0"]
TINY += ["--max_steps=8", "--learning_rate=0.01", "--lr_scheduler_type=cosine", "--save_total_limit=9"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
# Without these words accelerate starts one process, or two that do not know of each other.
ACCELERATE = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"]
ACCELERATE += ["--dynamo_backend=no", "--main_process_port=0"]
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "ACCELERATE_USE_CPU": "true",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
}
# A proxy that does not answer: whatever asks the network fails.
ENVIRONMENT |= {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}


def batch(micro, accumulation=1):
    return [f"--per_device_train_batch_size={micro}", f"--gradient_accumulation_steps={accumulation}"]


@pytest.fixture(scope="module")
def script(tmp_path_factory, warm_python):
    """The trainer as a run has it: a copy in a folder of the user's choice; a Python that has the libraries beside."""
    folder = tmp_path_factory.mktemp("a run")
    (folder / "python").symlink_to(warm_python)
    return Path(shutil.copy(TARGET / "pretrain.py", folder))


def start(script, output, *arguments, launcher=(), data=SAMPLE, python=None, **variables):
    words = [*launcher, str(script), f"--data={data}", f"--output_dir={output}", *arguments]
    pipe = subprocess.PIPE
    environment = os.environ | ENVIRONMENT | variables
    python = python or script.parent / "python"
    return subprocess.Popen([python, *words], cwd="/", env=environment, stdout=pipe, stderr=pipe, text=True)


def end(process, code=0):
    """Wait for a process; return what it printed, and what it wrote to stderr."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, out + err
    return out, err


def train(script, output, *arguments, code=0, **where):
    return end(start(script, output, *TINY, *arguments, **where), code)


def history(output, name="loss"):
    """A number of each step, exactly, as the newest checkpoint has it."""
    newest = max(output.glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime_ns)
    return {entry["step"]: entry[name] for entry in json.loads(newest.read_text())["log_history"] if name in entry}


def same(found, expected):
    return found == pytest.approx(expected, rel=0, abs=1e-5)


@pytest.fixture(scope="module")
def whole(script, tmp_path_factory):
    """An undisturbed training that all others are compared to: its folder and what it printed."""
    output = tmp_path_factory.mktemp("whole") / "out"
    out, _ = train(script, output, *batch(8), "--save_steps=2")
    return output, out


def checkpoints(output):
    return sorted(path.name for path in output.glob("*checkpoint*"))


def test_what_a_training_prints_and_leaves(whole):
    output, out = whole
    lines = out.splitlines()
    assert lines[0] == "batch | micro 8 x accumulation 1 x world 1 = global 8"
    assert lines[-1] == f"done | model saved in {output}"
    steps = [line for line in lines if line.lstrip().startswith("{'loss'")]
    assert len(steps) == 8
    for name in ("grad_norm", "learning_rate", "tokens_per_second"):
        assert all(f"'{name}'" in line for line in steps)
    assert checkpoints(output) == [f"checkpoint-{step}" for step in (2, 4, 6, 8)]
    kept = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    for folder in (output, output / "checkpoint-4"):
        assert kept < {path.name for path in folder.iterdir()}


def test_only_the_newest_checkpoints_are_kept_unless_told_otherwise(script, tmp_path):
    few = [word for word in TINY if "limit" not in word]
    end(start(script, tmp_path, *few, *batch(2), "--save_steps=1", "--max_steps=4"))
    assert checkpoints(tmp_path) == ["checkpoint-3", "checkpoint-4"]


@pytest.mark.whole
@pytest.mark.parametrize("launcher", [(), TORCHRUN], ids=["python", "torchrun"])
def test_told_to_end_it_saves_first(script, tmp_path, launcher):
    """All ranks in the same step, though a signal reaches each at another moment."""
    output = tmp_path / "out"
    words = (*TINY, *batch(4), "--save_steps=100000", "--max_steps=100000", "--lr_scheduler_type=constant")
    process = start(script, output, *words, launcher=launcher, python=sys.executable if launcher else None)
    for line in process.stdout:
        if "{'loss'" in line:
            break
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143 if not launcher else process.returncode
    step = int(re.search(r"^stopped \| step (\d+) of 100000", out, re.MULTILINE)[1])
    assert checkpoints(output) == [f"checkpoint-{step}"]
    assert json.loads((output / f"checkpoint-{step}" / "trainer_state.json").read_text())["global_step"] == step
    assert not (output / "model.safetensors").exists()
    more = (*words, f"--max_steps={step + 1}", f"--resume_from_checkpoint={output}/checkpoint-{step}")
    out, _ = end(start(script, output, *more, launcher=launcher))
    assert out.count("{'loss'") == 1
    assert sorted(history(output)) == [*range(1, step + 2)]


TEXTBOOK = """
import json, math, sys
import numpy as np, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=264, hidden_size=32, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=2, tie_word_embeddings=True)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0)
text = np.frombuffer(open(sys.argv[1], "rb").read(), np.uint8)
blocks = text[: len(text) // 32 * 32].reshape(-1, 32).astype(int)
order = np.random.default_rng([0, 0]).permutation(len(blocks))
losses = []
for step in range(8):
    batch = torch.from_numpy(blocks[order[step * 8 : step * 8 + 8]])
    scores = model(batch).logits[:, :-1].flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(scores, batch[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * (1 + math.cos(math.pi * step / 8)) / 2
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps(losses))
"""


def test_the_losses_are_those_of_the_textbook_loop(whole, warm_python):
    out = subprocess.check_output([warm_python, "-c", TEXTBOOK, str(SAMPLE)], text=True, env=os.environ | ENVIRONMENT)
    assert same([*history(whole[0]).values()], json.loads(out))


@pytest.mark.whole
def test_losses_do_not_depend_on_the_micro_batch(script, whole, tmp_path):
    """Nor on activation checkpointing: the rungs of the fallback ladder train the same model."""
    half = start(script, tmp_path / "half", *TINY, *batch(8), "--max_steps=1", "--bf16=True")
    again = ["--gradient_checkpointing=True", '--gradient_checkpointing_kwargs={"use_reentrant": false}']
    rungs = {"4x2": batch(4, 2), "2x4": [*batch(2, 4), *again]}
    runs = [start(script, tmp_path / name, *TINY, *words) for name, words in rungs.items()]
    for name, run in zip(rungs, runs, strict=True):
        end(run)
        assert same(history(tmp_path / name), history(whole[0])), name
        # The optimizer hides a wrong scale of the gradient from the losses.
        norms = [history(folder, "grad_norm") for folder in (tmp_path / name, whole[0])]
        assert norms[0] == pytest.approx(norms[1], rel=1e-2), name
    end(half)
    assert 1e-5 < abs(history(tmp_path / "half")[1] - history(whole[0])[1]) < 0.01


@pytest.mark.whole
def test_two_processes_train_the_same_and_one_can_go_on(script, whole, tmp_path):
    words = (*batch(2, 2), "--expect=2xcpu", "--save_steps=5", "--ddp_backend=gloo")
    out, _ = train(script, tmp_path, *words, launcher=[*TORCHRUN, "--log-dir", str(tmp_path / "logs")])
    assert out.splitlines().count("batch | micro 2 x accumulation 2 x world 2 = global 8") == 1
    assert same(history(tmp_path), history(whole[0]))
    # From the middle, by as many micro batches as the first has samples.
    train(script, tmp_path / "one", *batch(1, 8), f"--resume_from_checkpoint={tmp_path / 'checkpoint-5'}")
    assert same(history(tmp_path / "one"), history(whole[0]))


def test_two_processes_of_accelerate_whatever_the_environment_says(script, whole, tmp_path):
    words, variables = (*batch(2, 2), "--expect=2xcpu"), {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "7"}
    # Without a file it reads what `accelerate config` wrote for this user, a precision among it.
    config = tmp_path / "accelerate.yaml"
    config.write_text("distributed_type: MULTI_GPU\n")
    train(script, tmp_path, *words, launcher=[*ACCELERATE, f"--config_file={config}"], **variables)
    assert same(history(tmp_path), history(whole[0]))
    assert history(tmp_path, "grad_norm") == pytest.approx(history(whole[0], "grad_norm"), rel=1e-2)


def test_data_of_less_than_a_batch_comes_again_in_another_order(script, tmp_path):
    """As often as the steps need it, with each micro batch as with the other."""
    data = tmp_path / "short.txt"
    data.write_bytes(SAMPLE.read_bytes()[: 32 * 5])
    runs = [
        start(script, tmp_path / str(micro), *TINY, *batch(micro, 8 // micro), "--max_steps=3", data=data)
        for micro in (8, 2)
    ]
    for run in runs:
        end(run)
    assert len(history(tmp_path / "8")) == 3
    assert same(history(tmp_path / "8"), history(tmp_path / "2"))


def test_a_loss_that_is_no_number_ends_with_3(script, tmp_path):
    out, _ = train(script, tmp_path, "--learning_rate=1e30", "--save_steps=1", code=3)
    assert re.search(r"^error \| (loss|grad norm) is (nan|inf) at step 2$", out, re.MULTILINE)
    assert checkpoints(tmp_path) == ["checkpoint-1"]


@pytest.mark.whole
def test_a_checkpoint_without_its_state_is_not_complete(script, whole, tmp_path):
    """Killed in the middle of writing one, a training leaves complete ones before it, and goes on from the newest."""
    process = start(script, tmp_path, *TINY, *batch(8), "--save_steps=1", python=sys.executable)
    caught = None
    while caught is None:
        assert process.poll() is None, "it was never seen to write the later checkpoints"
        time.sleep(0.001)
        caught = stopped_while_writing(process, tmp_path, least=4)
    process.kill()
    end(process, -signal.SIGKILL)
    train(script, tmp_path, *batch(8), f"--resume_from_checkpoint={tmp_path}/checkpoint-{caught - 1}")
    assert same(history(tmp_path), history(whole[0]))


def stopped_while_writing(process, output, least):
    """Stop the process where it writes the checkpoint of step `least` or a later one; return the step, else None."""
    partial = [path for path in output.glob("checkpoint-*") if not (path / "trainer_state.json").exists()]
    steps = [step for path in partial if (step := int(path.name.rpartition("-")[2])) >= least]
    if not steps:
        return None
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    if not (output / f"checkpoint-{steps[0]}" / "trainer_state.json").exists():
        return steps[0]
    process.send_signal(signal.SIGCONT)
    return None


def test_a_checkpoint_past_the_last_step_ends_at_once(script, whole, tmp_path):
    words = [*batch(4), f"--resume_from_checkpoint={whole[0] / 'checkpoint-6'}", "--max_steps=5"]
    out, _ = train(script, tmp_path, *words)
    assert "{'loss'" not in out
    assert out.splitlines()[-1] == f"done | model saved in {tmp_path}"
    saved = (whole[0] / "checkpoint-6" / "model.safetensors").read_bytes()
    assert (tmp_path / "model.safetensors").read_bytes() == saved


def test_a_checkpoint_of_another_model_is_not_taken(script, whole, tmp_path):
    resume = f"--resume_from_checkpoint={whole[0] / 'checkpoint-6'}"
    train(script, tmp_path, "--layers=3", resume, code=1)


@pytest.mark.whole
def test_ranks_at_different_steps_do_not_train_on(script, whole, tmp_path):
    """As where each machine resumes from a disk of its own."""
    shutil.copytree(whole[0] / "checkpoint-4", tmp_path / "checkpoint-4")
    shutil.copytree(whole[0] / "checkpoint-2", tmp_path / "checkpoint-2")
    code = f"import os, runpy, sys\nsys.argv += ['--resume_from_checkpoint={tmp_path}/checkpoint-' + "
    code += "'24'[int(os.environ['RANK'])]]\nrunpy.run_path(sys.argv[1], run_name='__main__')"
    (tmp_path / "apart.py").write_text(code.replace("sys.argv[1]", repr(str(script))))
    words = (*batch(4), "--ddp_backend=gloo", "--save_steps=1")
    out, _ = train(tmp_path / "apart.py", tmp_path / "out", *words, launcher=TORCHRUN, python=sys.executable, code=1)
    assert re.search(r"^error \| the ranks are at steps \[3, 5\] \|", out, re.MULTILINE)
    assert not checkpoints(tmp_path / "out")


def test_an_evaluation_at_the_end_and_every_few_steps(script, tmp_path):
    held_out = tmp_path / "held out.txt"
    held_out.write_bytes(SAMPLE.read_bytes()[-32 * 9 :])
    words = (*batch(8), f"--validation_data={held_out}", "--per_device_eval_batch_size=4")
    ways = {"epoch": ["--eval_strategy=epoch"], "steps": ["--eval_strategy=steps", "--eval_steps=3"]}
    runs = [start(script, tmp_path / name, *TINY, *words, *way) for name, way in ways.items()]
    (last, _), (some, _) = map(end, runs)
    # In its third, its sixth and its last step.
    assert (last.count("'eval_loss'"), some.count("'eval_loss'")) == (1, 3)


def test_json_lines(script, tmp_path):
    data = tmp_path / "two.jsonl"
    texts = ["Häuser am Hafen. " * 40, "a lone surrogate \ud800 is no text " * 40]
    data.write_text("\n\n".join(json.dumps({"id": 1, "body": text}) for text in texts), encoding="utf-8")
    code = "import pretrain, sys; from types import SimpleNamespace as N\n"
    code += "class Bytes:\n eos_token_id = 256\n __len__ = lambda _: 257\n"
    code += "print(*pretrain.read_token_blocks(sys.argv[1:], N(sequence_length=8, text_field='body'), Bytes()).ravel())"
    words = [script.parent / "python", "-c", code, data]
    done = subprocess.run(words, cwd=script.parent, capture_output=True, text=True, check=True)
    found = [*map(int, done.stdout.split())]
    expected = [token for text in texts for token in (*text.encode(errors="replace"), 256)]
    assert found == expected[: len(expected) // 8 * 8]
    train(script, tmp_path / "out", "--text_field=body", "--max_steps=1", data=data)


def test_a_local_model_goes_on_from_its_weights(script, whole, tmp_path):
    words = [f"--model={whole[0]}", "--sequence_length=32", "--max_steps=1", "--use_cpu=True", *batch(8)]
    end(start(script, tmp_path, *words))
    assert history(tmp_path)[1] == pytest.approx(history(whole[0])[8], abs=0.2)


def model_of_words(folder, config):
    """Write a tokenizer of the sample's words and a model's config without weights."""
    tokenizers = pytest.importorskip("tokenizers")
    folder.mkdir()
    words = dict.fromkeys(["[UNK]", "</s>", *SAMPLE.read_text().split()])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": len(words)}))
    return len(words)


def test_a_local_model_with_its_tokenizer_and_without_weights(script, whole, tmp_path):
    folder, output = tmp_path / "words", tmp_path / "out"
    config = json.loads((whole[0] / "config.json").read_text())
    count = model_of_words(folder, config)
    words = [f"--model={folder}", "--sequence_length=32", "--max_steps=1", "--use_cpu=True", "--save_steps=1"]
    end(start(script, output, *words))
    # New weights know nothing yet of so many words.
    assert history(output)[1] == pytest.approx(math.log(count), rel=0.1)
    assert json.loads((output / "tokenizer.json").read_text())["model"]["type"] == "WordLevel"
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))
    out, err = end(start(script, output, *words), 2)
    assert f"the tokenizer has {count} tokens, the model 300 |" in out + err


def test_a_local_model_that_cannot_be_used(script, whole, tmp_path):
    small = json.loads((whole[0] / "config.json").read_text()) | {"vocab_size": 100}
    for name, content in {"small": small, "unknown": {"model_type": "no-such-model"}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(content))
        assert refusal(script, tmp_path / "out", f"--model={tmp_path / name}", "--sequence_length=32")


def refusal(script, output, *arguments, data=SAMPLE):
    _, err = end(start(script, output, *arguments, data=data), 2)
    assert "Traceback" not in err
    return err[err.index("error |") :]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max_step=4"], "--max_step=4"),
        (["--data=/no/such.txt"], "'/no/such.txt'"),
        (["--model=/no/model"], "/no/model"),
        (["--expect=1xcuda"], "expected 1xcuda, got 1xcpu |"),
        (["--expect=2xcpu"], "expected 2xcpu, got 1xcpu |"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_arguments(script, tmp_path, arguments, message):
    assert message in refusal(script, tmp_path, *arguments)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "0 tokens are less than one sequence"),
        ("blank.jsonl", b"\n\n", "0 tokens are less than one sequence"),
        ("short.txt", b"x" * 127, "127 tokens are less than one sequence of 128 |"),
        ("latin.txt", "Häuser".encode("latin1"), "latin.txt, text 0: 'utf-8' codec can't"),
        ("torn.jsonl", b'{"text": "a"}\n{"text": \n', "torn.jsonl, text 2: Expecting value"),
        ("list.jsonl", b"[1]\n", "list.jsonl, text 1: list indices must"),
        ("field.jsonl", b'{"body": "a", "n": 1}\n', "field.jsonl, text 1: 'text' |"),
        ("number.jsonl", b'{"text": 1}\n', "number.jsonl, text 1: 'int' object"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[-6:] else "",
)
def test_bad_data(script, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in refusal(script, tmp_path / "out", "--use_cpu=True", data=tmp_path / name)


def test_each_epoch_has_every_sample_in_an_order_of_its_own(script):
    code = "import json, numpy as np, pretrain\n"
    code += "blocks = np.arange(37)[:, None] * np.ones(4, np.int32)\n"
    code += (
        "orders = [[int(item['input_ids'][0]) for item in map(pretrain.ShuffledSamples(blocks, seed, 111).__getitem__, "
    )
    code += "range(111))] for seed in (5, 6)]\nprint(json.dumps(orders))"
    words = [script.parent / "python", "-c", code]
    orders = json.loads(subprocess.check_output(words, cwd=script.parent, text=True))
    epochs = [order[start : start + 37] for order in orders for start in (0, 37, 74)]
    assert all(sorted(epoch) == [*range(37)] for epoch in epochs)
    assert len({*map(tuple, epochs)}) == 6
