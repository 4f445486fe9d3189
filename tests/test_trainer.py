"""The built-in trainer, as real processes: what it prints, writes and refuses; its numbers however a batch is cut."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import sample

pytestmark = pytest.mark.training

TARGET = Path(__file__).parents[1] / "tui_train" / "target"
SAMPLE = TARGET / "sample.txt"
TINY = ["--layers=2", "--hidden-size=32", "--heads=2", "--sequence-length=32", "--learning-rate=0.01", "--steps=8"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
# Without these words accelerate starts one process, or two that do not know of each other.
ACCELERATE = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"]
ACCELERATE += ["--dynamo_backend=no", "--main_process_port=0"]
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "ACCELERATE_USE_CPU": "true",
    "GLOO_SOCKET_IFNAME": "lo",
}
# A proxy that does not answer: whatever asks the network fails.
ENVIRONMENT |= {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}


@pytest.fixture(scope="module")
def script(tmp_path_factory, warm_python):
    """The trainer as a run has it: a copy in a folder of the user's choice; a Python that has the libraries beside."""
    folder = tmp_path_factory.mktemp("a run") / "trainer"
    (folder.parent / "python").symlink_to(warm_python)
    shutil.copytree(TARGET / "trainer", folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "train.py"


def start(script, output, *arguments, launcher=(), data=SAMPLE, python=None, **variables):
    argv = [
        python or script.parents[1] / "python",
        *launcher,
        str(script),
        f"--data={data}",
        f"--output={output}",
        *arguments,
    ]
    pipe = subprocess.PIPE
    environment = os.environ | ENVIRONMENT | variables
    environment = {name: value for name, value in environment.items() if value is not None}
    return subprocess.Popen(argv, cwd="/", env=environment, stdout=pipe, stderr=pipe, text=True)


def end(process, code=0):
    """Wait for a process; return what it printed, and what it wrote to stderr."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, out + err
    return out, err


def train(script, output, *arguments, code=0, **where):
    return end(start(script, output, *TINY, *arguments, **where), code)


def losses(output):
    """The loss of each step, the newest where a step was done again."""
    records = [json.loads(line) for line in (output / "losses.jsonl").read_text().splitlines()]
    return {record["step"]: record["loss"] for record in records}


def norms(out):
    """The norm of the gradient in each step."""
    return [float(norm) for norm in re.findall(r"grad_norm (\S+)", out)]


def same(found, expected):
    return found == pytest.approx(expected, rel=0, abs=1e-5)


@pytest.fixture(scope="module")
def whole(script, tmp_path_factory):
    """An undisturbed training that all others are compared to: its folder and what it printed."""
    output = tmp_path_factory.mktemp("whole") / "out"
    out, _ = train(script, output, "--micro-batch=8", "--accumulation=1", "--checkpoint-every=2")
    return output, out


def checkpoints(output):
    return sorted(path.name for path in output.glob("*checkpoint*"))


def test_what_a_training_prints_and_leaves(whole):
    output, out = whole
    lines = out.splitlines()
    assert re.fullmatch(r"rank 0/1 \| host \S+ \| device cpu \| backend none", lines[0])
    assert lines[1] == "model | 0.0 M parameters | 2 layers | hidden 32 | 2 heads | sequence 32"
    assert lines[2] == "batch | micro 8 x accumulation 1 x world 1 = global 8"
    size = SAMPLE.stat().st_size
    assert lines[3] == f"data | {size} tokens | {size // 32} blocks"
    assert lines[4] == "start | step 0 of 8"
    steps = [
        re.fullmatch(r"step (\d+)/8 \| loss (\d\.\d{7}) \| lr (\S+) \| grad_norm \d+\.\d{4} \| tokens/s \d+", x)
        for x in lines
    ]
    steps = [step for step in steps if step]
    assert [int(step[1]) for step in steps] == [*range(1, 9)]
    assert {int(step[1]): float(step[2]) for step in steps} == pytest.approx(losses(output), abs=1e-7)
    # One step of warm-up, then a cosine that would reach a tenth after the last step.
    rates = [float(step[3]) for step in steps]
    assert rates[:2] == [0.01, 0.01]
    assert rates == sorted(rates, reverse=True)
    assert rates[4] == pytest.approx(0.01 * (0.55 + 0.45 * 0.2225209), rel=1e-3)
    for step in (2, 4, 6, 8):
        assert f"checkpoint | step {step} | {output}/checkpoint-{step}" in lines
    assert re.fullmatch(
        rf"done \| step 8 \| loss 5\.\d+ -> 3\.\d+ \| tokens/s \d+ \| model saved in {output}/model", lines[-1]
    )
    assert checkpoints(output) == ["checkpoint-6", "checkpoint-8"]
    assert sorted(x.name for x in (output / "model").iterdir() if x.suffix != ".json") == ["model.safetensors"]
    record = json.loads((output / "losses.jsonl").read_text().splitlines()[0])
    assert list(record) == ["step", "loss", "lr", "tokens_per_second", "micro_batch", "accumulation"]


# In a run folder, a stop of both is in test_training.py.
@pytest.mark.parametrize(
    "launcher", sample([(), TORCHRUN], 2), ids=lambda launcher: "torchrun" if launcher else "python"
)
def test_told_to_end_it_saves_first(script, tmp_path, launcher):
    """All ranks in the same step, though a signal reaches each at another moment."""
    output = tmp_path / "out"
    words = (*TINY, "--micro-batch=4", "--accumulation=1", "--checkpoint-every=100000", "--steps=100000")
    process = start(script, output, *words, launcher=launcher, python=sys.executable if launcher else None)
    for line in process.stdout:
        if line.startswith("step 3/"):
            break
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143 if not launcher else process.returncode
    step = int(re.search(r"^stopped \| step (\d+) of 100000", out, re.MULTILINE)[1])
    assert checkpoints(output) == [f"checkpoint-{step}"]
    assert json.loads((output / f"checkpoint-{step}" / "trainer_state.json").read_text())["step"] == step
    assert not (output / "model").exists()
    more = (*words[:-1], f"--steps={step + 1}", f"--resume-from={output}/checkpoint-{step}")
    out, _ = end(start(script, output, *more, launcher=launcher))
    assert f"resumed from {output}/checkpoint-{step} at step {step}" in out


TEXTBOOK = """
import json, math, sys
import numpy as np, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=264, hidden_size=32, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=2, tie_word_embeddings=True)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters())
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
        group["lr"] = 0.01 if step < 1 else 0.01 * (0.1 + 0.9 * (1 + math.cos(math.pi * (step - 1) / 7)) / 2)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps(losses))
"""


def test_the_losses_are_those_of_the_textbook_loop(whole, warm_python):
    out = subprocess.check_output([warm_python, "-c", TEXTBOOK, str(SAMPLE)], text=True, env=os.environ | ENVIRONMENT)
    assert same([*losses(whole[0]).values()], json.loads(out))


def test_losses_do_not_depend_on_the_micro_batch(script, whole, tmp_path):
    """Nor on activation checkpointing: the rungs of the fallback ladder train the same model."""
    half = start(
        script, tmp_path / "half", *TINY, "--micro-batch=8", "--accumulation=1", "--steps=1", "--precision=bf16"
    )
    rungs = {"4x2": ("4", "2"), "2x4": ("2", "4", "--activation-checkpointing")}
    runs = [
        start(script, tmp_path / name, *TINY, f"--micro-batch={micro}", f"--accumulation={accumulation}", *more)
        for name, (micro, accumulation, *more) in rungs.items()
    ]
    for name, run in zip(rungs, runs, strict=True):
        out, _ = end(run)
        assert same(losses(tmp_path / name), losses(whole[0])), name
        # The optimizer hides a wrong scale of the gradient from the losses.
        assert norms(out) == pytest.approx(norms(whole[1]), rel=1e-2), name
    end(half)
    assert 1e-5 < abs(losses(tmp_path / "half")[1] - losses(whole[0])[1]) < 0.01


def test_activation_checkpointing_is_switched_on(script, tmp_path):
    """By a function that is not about to go."""
    code = (
        "import sys, warnings, model; from arguments import parse\n"
        "warnings.simplefilter('error', FutureWarning)\n"
        "for flags in [], ['--activation-checkpointing']:\n"
        "    parts = model.build(parse(sys.argv[1:] + flags), None).modules()\n"
        "    print(any(getattr(part, 'gradient_checkpointing', False) for part in parts))"
    )
    argv = [script.parents[1] / "python", "-c", code, f"--data={SAMPLE}", f"--output={tmp_path}"]
    assert subprocess.check_output([*argv, *TINY], cwd=script.parent, text=True).split() == ["False", "True"]


def test_out_of_memory_then_a_smaller_micro_batch_resumes_as_if_nothing_had_been(script, whole, tmp_path):
    arguments = ["--checkpoint-every=3", "--simulate-oom-at-step=5", "--simulate-oom-above-micro-batch=4"]
    out, err = train(script, tmp_path, "--micro-batch=8", "--accumulation=1", *arguments, code=1)
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. (simulated"
    )
    assert "step 4/8" in out
    assert "step 5/8" not in out
    newest = tmp_path / "checkpoint-3"
    # Three micro batches were done; the next step has two, and must not start in the middle of a pair.
    out, _ = train(script, tmp_path, "--micro-batch=4", "--accumulation=2", f"--resume-from={newest}", *arguments)
    assert f"start | resumed from {newest} at step 3 of 8" in out.splitlines()
    assert "warning" not in out
    assert same(losses(tmp_path), losses(whole[0]))
    first, last = losses(whole[0])[1], losses(whole[0])[8]
    assert f"done | step 8 | loss {first:.4f} -> {last:.4f} |" in out


def test_two_processes_train_the_same_and_one_can_go_on(script, whole, tmp_path):
    two = [*TORCHRUN, "--log-dir", str(tmp_path / "logs")]
    arguments = ["--micro-batch=2", "--accumulation=2", "--expect-world-size=2", "--checkpoint-every=5"]
    out, _ = train(script, tmp_path, *arguments, launcher=two)
    ranks = sorted(line for line in out.splitlines() if line.startswith("rank"))
    assert [re.sub(r"host \S+", "host", line) for line in ranks] == [
        f"rank {rank}/2 | host | device cpu | backend gloo" for rank in (0, 1)
    ]
    assert "batch | micro 2 x accumulation 2 x world 2 = global 8" in out.splitlines()
    assert out.count("step 8/8") == 1
    assert same(losses(tmp_path), losses(whole[0]))
    train(script, tmp_path, "--micro-batch=8", "--accumulation=1", f"--resume-from={tmp_path / 'checkpoint-5'}")
    assert len((tmp_path / "losses.jsonl").read_text().splitlines()) == 8 + 3
    assert same(losses(tmp_path), losses(whole[0]))


def test_two_processes_of_accelerate_whatever_the_environment_says(script, whole, tmp_path):
    arguments = ["--micro-batch=2", "--accumulation=2", "--expect-world-size=2"]
    launcher = [*ACCELERATE, "--mixed_precision=bf16"]
    variables = {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "7"}
    out, _ = train(script, tmp_path, *arguments, launcher=launcher, **variables)
    assert same(losses(tmp_path), losses(whole[0]))
    assert norms(out) == pytest.approx(norms(whole[1]), rel=1e-2)


def test_out_of_memory_in_one_of_two_processes_ends_both(script, tmp_path):
    out, err = train(script, tmp_path, "--simulate-oom-at-step=2", launcher=TORCHRUN, code=1)
    assert "step 1/8" in out
    assert "step 2/8" not in out
    assert "[rank1]: torch.OutOfMemoryError: CUDA out of memory." in err
    assert "[rank0]: torch.OutOfMemoryError" not in err


def test_an_ordinary_failure_has_its_own_code(script, tmp_path):
    _, err = train(script, tmp_path, "--simulate-failure-at-step=2", "--simulate-failure-code=17", code=17)
    assert "simulated failure at step 2" in err
    assert "Traceback" not in err


def test_a_loss_that_is_no_number_ends_with_3(script, tmp_path):
    out, err = train(script, tmp_path, "--learning-rate=1e30", "--checkpoint-every=1", code=3)
    assert re.search(r"^error \| (loss|gradient norm) is (nan|inf) at step 2$", err, re.MULTILINE)
    assert "step 2/8" not in out
    assert checkpoints(tmp_path) == ["checkpoint-1"]


def test_a_checkpoint_is_complete_whenever_it_can_be_seen(script, whole, tmp_path):
    """Killed in the middle of writing one, a training leaves only complete ones, and goes on from the newest."""
    arguments = ["--micro-batch=8", "--accumulation=1", "--checkpoint-every=1"]
    process = start(script, tmp_path, *TINY, *arguments, python=sys.executable)
    caught = None
    while caught is None:
        assert process.poll() is None, "it was never seen to write the later checkpoints"
        time.sleep(0.001)
        for name in checkpoints(tmp_path):
            folder = tmp_path / name
            # It may be removed between two looks, when newer ones are there; it may not be without its state.
            if name.startswith("checkpoint-") and not (folder / "trainer_state.json").exists():
                assert not folder.exists(), name
        caught = stopped_while_writing(process, tmp_path, least=4)
    process.kill()
    end(process, -signal.SIGKILL)
    older = [f"checkpoint-{caught - back}" for back in (2, 1)]
    partial = f".checkpoint-{caught}.partial"
    assert checkpoints(tmp_path) == [partial, *older]
    _, err = train(script, tmp_path, f"--resume-from={tmp_path / partial}", code=2)
    assert f"complete ones beside it: {', '.join(older)}." in err
    train(script, tmp_path, *arguments, "--keep-checkpoints=3", f"--resume-from={tmp_path / older[-1]}")
    assert same(losses(tmp_path), losses(whole[0]))
    assert checkpoints(tmp_path) == ["checkpoint-6", "checkpoint-7", "checkpoint-8"]


def stopped_while_writing(process, output, least):
    """Stop the process where it writes a checkpoint of step `least` or later, and return the step; else None."""
    found = [int(re.sub(r"\D", "", name)) for name in checkpoints(output) if name.endswith(".partial")]
    if not found or found[0] < least:
        return None
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    if (output / f".checkpoint-{found[0]}.partial").exists():
        return found[0]
    process.send_signal(signal.SIGCONT)
    return None


def test_a_checkpoint_past_the_last_step_ends_at_once(script, whole, tmp_path):
    newest = whole[0] / "checkpoint-6"
    out, _ = train(script, tmp_path, "--micro-batch=4", f"--resume-from={newest}", "--steps=5")
    first, last = losses(whole[0])[1], losses(whole[0])[6]
    assert out.splitlines()[-1].startswith(
        f"done | step 6 | loss {first:.4f} -> {last:.4f} | tokens/s 0 | model saved in"
    )
    assert not (tmp_path / "losses.jsonl").exists()
    saved, model = newest / "model.safetensors", tmp_path / "model" / "model.safetensors"
    assert model.stat().st_size == pytest.approx(saved.stat().st_size, rel=0.02)


def test_other_sizes_at_a_resume(script, whole, tmp_path):
    resume = f"--resume-from={whole[0] / 'checkpoint-6'}"
    runs = [
        start(script, tmp_path, *TINY, "--micro-batch=3", resume),
        start(script, tmp_path / "other", *TINY, "--layers=3", resume),
    ]
    out, _ = end(runs[0])
    assert "warning | the checkpoint was written with global batch 8, this training has 6" in out
    assert losses(tmp_path).keys() == {7, 8}
    _, err = end(runs[1], 2)
    assert re.search(r"^error \| .* is of another model: layers 2 \(now 3\)", err, re.MULTILINE)
    assert "Traceback" not in err


def test_json_lines(script, tmp_path):
    data = tmp_path / "two.jsonl"
    texts = ["Häuser am Hafen. " * 40, "a lone surrogate \ud800 is no text " * 40]
    data.write_text("\n\n".join(json.dumps({"id": 1, "body": text}) for text in texts), encoding="utf-8")
    out, _ = train(script, tmp_path, "--text-field=body", "--steps=1", data=data)
    tokens = sum(len(text.encode(errors="replace")) for text in texts) + 1
    assert f"data | {tokens} tokens | {tokens // 32} blocks" in out.splitlines()


def test_a_local_model_goes_on_from_its_weights(script, whole, tmp_path):
    arguments = [f"--model={whole[0] / 'model'}", "--sequence-length=32", "--steps=1", "--micro-batch=8"]
    out, _ = end(start(script, tmp_path, *arguments))
    assert "| 2 layers | hidden 32 | 2 heads |" in out
    assert losses(tmp_path)[1] == pytest.approx(losses(whole[0])[8], abs=0.2)


def test_a_local_model_with_its_tokenizer_and_without_weights(script, whole, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path / "words"
    folder.mkdir()
    words = dict.fromkeys(["[UNK]", "</s>", *SAMPLE.read_text().split()])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = json.loads((whole[0] / "model" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": len(words)}))
    arguments = [f"--model={folder}", "--sequence-length=32", "--steps=1", f"--data={SAMPLE}"]
    out, _ = end(start(script, tmp_path / "out", *arguments))
    count = 2 * len(SAMPLE.read_text().split()) + 1
    assert f"data | {count} tokens | {count // 32} blocks" in out.splitlines()
    assert (tmp_path / "out" / "model" / "tokenizer.json").is_file()
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))
    _, err = end(start(script, tmp_path / "out", *arguments), 2)
    assert f"knows 300 tokens, but its tokenizer makes {len(words)} |" in err


def test_a_local_model_that_cannot_be_used(script, whole, tmp_path):
    good = whole[0] / "model"
    config = json.loads((good / "config.json").read_text())
    cases = {
        "small": (config | {"vocab_size": 100}, b"", "bytes need 264 | Put the model's tokenizer files"),
        "short": (
            config | {"max_position_embeddings": 16},
            b"",
            "more than the model's 16 positions | Give 16 or less",
        ),
        "unknown": ({"model_type": "no-such-model"}, b"", "cannot be loaded: "),
        "torn": (config, (good / "model.safetensors").read_bytes()[:5000], "cannot be loaded: "),
    }
    for name, (content, weights, _) in cases.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(content))
        if weights:
            (tmp_path / name / "model.safetensors").write_bytes(weights)
    # One process for all of them, since its imports are what takes long.
    code = "import sys, train; print([train.main([*sys.argv[2:], '--model=' + name]) for name in sys.argv[1].split()])"
    argv = [
        script.parents[1] / "python",
        "-c",
        code,
        " ".join(str(tmp_path / name) for name in cases),
        f"--data={SAMPLE}",
    ]
    argv += [f"--output={tmp_path}", "--sequence-length=32"]
    done = subprocess.run(
        argv, cwd=script.parent, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[2, 2, 2, 2]"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error | ")]
    for error, (_, _, expected) in zip(errors, cases.values(), strict=True):
        assert expected in error
    assert "Traceback" not in done.stderr


def refusal(script, output, *arguments, data=SAMPLE):
    _, err = end(start(script, output, *arguments, data=data), 2)
    assert "Traceback" not in err
    [line] = [line for line in err.splitlines() if line.startswith("error | ")]
    return line.split(" | ")[1:]


@pytest.mark.parametrize(
    ("arguments", "message", "remedy"),
    [
        (["--micro-batch=0"], "--micro-batch=0 is too small", "Give 1 or more."),
        (["--micro-batch=x"], "argument --micro-batch: invalid int value: 'x'", "--help"),
        (["--micro-bat=4"], "unrecognized arguments: --micro-bat=4", "--help"),
        (["--precision=int8"], "invalid choice: 'int8'", "--help"),
        (["--sequence-length=1"], "--sequence-length=1 is too small", "Give 2 or more."),
        (["--learning-rate=nan"], "--learning-rate=nan is not a valid learning rate", "above 0"),
        (["--learning-rate=0"], "--learning-rate=0.0 is not a valid learning rate", "above 0"),
        (["--warmup-steps=9", "--steps=8"], "--warmup-steps=9 is too large", "Give 8 or less."),
        (["--seed=-1"], "--seed=-1 is too small", "Give 0 or more."),
        (["--seed=9223372036854775808"], "is too large", "or less."),
        (["--keep-checkpoints=0"], "--keep-checkpoints=0 is too small", "Give 1 or more."),
        (
            ["--hidden-size=100", "--heads=3"],
            "--hidden-size=100 cannot be divided into --heads=3",
            "multiple of 6, as 102",
        ),
        (["--hidden-size=12", "--heads=4"], "cannot be divided into --heads=4 of an even size", "multiple of 8, as 16"),
        (["--data=/no/such.txt"], "--data=/no/such.txt does not exist", "Check the path"),
        (["--data=/tmp"], "--data=/tmp is a folder", "Give its files"),
        (["--output=/dev/null/x"], "--output=/dev/null/x cannot be used: Not a directory", "Choose a folder"),
        (["--model=/tmp/none"], "--model=/tmp/none has no config.json", "models are not downloaded"),
        (["--resume-from=/no/checkpoint-3"], "--resume-from=/no/checkpoint-3 does not exist", "all of them share"),
        (["--expect-device=cuda"], "--expect-device=cuda, but torch", "nvidia-smi"),
        (["--expect-world-size=2"], "one of 1 processes, but --expect-world-size=2", "torchrun --nproc-per-node"),
        (["--precision=fp16"], "--precision=fp16 needs a GPU", "bf16"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_arguments(script, tmp_path, arguments, message, remedy):
    found, advice = refusal(script, tmp_path, *arguments)
    assert message in found
    assert remedy in advice


def test_sizes_belong_to_a_model_folder(script, whole, tmp_path):
    found, _ = refusal(script, tmp_path, f"--model={whole[0] / 'model'}", "--layers=2", "--heads=2")
    assert found == "--layers, --heads cannot be combined with --model"


@pytest.mark.parametrize(
    ("name", "content", "message", "remedy"),
    [
        ("empty.txt", b"", "there is no text in", "Give files"),
        ("blank.jsonl", b"\n\n", "there is no text in", "Give files"),
        (
            "short.txt",
            b"x" * 127,
            "127 tokens, less than one block of --sequence-length=128",
            "shorten the sequence length",
        ),
        ("latin.txt", "Häuser".encode("latin1"), "is not UTF-8 text", "iconv"),
        ("torn.jsonl", b'{"text": "a"}\n{"text": \n', "torn.jsonl, line 2 is not JSON", "one JSON object per line"),
        ("list.jsonl", b"[1]\n", "list.jsonl, line 1 is not a JSON object", '{"text": "..."}'),
        (
            "field.jsonl",
            b'{"body": "a", "n": 1}\n',
            'line 1 has no text in the field "text"',
            "fields with text there: body.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[-6:] else "",
)
def test_bad_data(script, tmp_path, name, content, message, remedy):  # noqa: PLR0913, PLR0917 - one a column
    (tmp_path / name).write_bytes(content)
    found, advice = refusal(script, tmp_path / "out", data=tmp_path / name)
    assert message in found
    assert remedy in advice


def test_a_checkpoint_that_is_not_renamed_yet(script, whole, tmp_path):
    shutil.copytree(whole[0] / "checkpoint-6", tmp_path / ".checkpoint-6.partial")
    message, _ = refusal(script, tmp_path, f"--resume-from={tmp_path / '.checkpoint-6.partial'}")
    assert "is no complete checkpoint" in message


def test_a_checkpoint_that_cannot_be_read(script, tmp_path):
    for name, content in (("checkpoint-1", None), ("checkpoint-2", "{"), ("checkpoint-3", '{"step": 3}')):
        folder = tmp_path / name
        folder.mkdir()
        if content:
            (folder / "trainer_state.json").write_text(content)
        message, remedy = refusal(script, tmp_path, f"--resume-from={folder}")
        assert ("cannot be read" in message) if content else ("is no complete checkpoint" in message)
        assert "Resume from another" in remedy if content else "trainer_state.json" in remedy


@pytest.fixture
def batches(script, monkeypatch):
    monkeypatch.syspath_prepend(script.parent)
    before = set(sys.modules)
    import batches

    yield batches
    for name in {"batches", "arguments"} - before:
        del sys.modules[name]


def test_each_step_has_the_same_samples_however_it_is_cut(batches):
    import numpy as np

    samples = batches.Samples(np.arange(37)[:, None] * np.ones(4, np.uint16), seed=5)
    order = samples.indices(0, 37 * 3)
    for epoch in range(3):
        assert sorted(order[epoch * 37 : epoch * 37 + 37]) == [*range(37)]
    assert list(order[:37]) != list(order[37:74]) != list(range(37))
    for micro, accumulation, world in ((8, 1, 1), (4, 2, 1), (2, 4, 1), (4, 1, 2), (1, 2, 4), (50, 1, 2)):
        batch = batches.Batch(micro, accumulation, world)
        for step in (0, 1, 4, 7) if batch.in_all == 8 else (0,):
            parts = [[*samples.micro_batches(step, rank, batch)] for rank in range(world)]
            assert all(part.shape == (micro, 4) for rank in parts for part in rank)
            assert all(len(rank) == accumulation for rank in parts)
            seen = np.concatenate([part[:, 0] for rank in parts for part in rank])
            assert list(seen) == list(samples.indices(0, 100)[step * batch.in_all :][: batch.in_all])


def test_nothing_of_the_trainer_needs_this_package(script):
    for path in script.parent.glob("*.py"):
        assert "tui_train" not in path.read_text(encoding="utf-8")


def test_another_seed_is_another_training(batches):
    import numpy as np

    orders = [tuple(batches.Samples(np.zeros((20, 2)), seed=seed).indices(0, 20)) for seed in (0, 1)]
    assert orders[0] != orders[1]


def test_ranks_share_the_cpus_unless_told_otherwise(script):
    code = "import os, train; train.set_threads(); print(os.environ['OMP_NUM_THREADS'])"

    def threads(**variables):
        unset = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
        argv = [sys.executable, "-c", code]
        return int(subprocess.check_output(argv, cwd=script.parent, env=unset | variables, text=True))

    assert threads() == len(os.sched_getaffinity(0))
    assert threads(LOCAL_WORLD_SIZE="1000") == 1
    assert threads(OMP_NUM_THREADS="77") == 77


def test_a_small_model_learns_the_sample_text(script, tmp_path):
    end(start(script, tmp_path, "--learning-rate=3e-3", "--steps=16", "--checkpoint-every=0", OMP_NUM_THREADS=None))
    found = losses(tmp_path)
    assert found[1] > 5.5
    assert found[16] < 3.2
    assert not checkpoints(tmp_path)
