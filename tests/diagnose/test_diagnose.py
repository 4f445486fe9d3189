"""What a log is said to have failed of: real processes that fail, and logs of what needs a GPU or a scheduler."""

import gzip
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import support
import warm
from click.testing import CliRunner
from diagnosed import said

from tui_train.base.errors import BadInput
from tui_train.cli.app import cli
from tui_train.cli.results.diagnose import print_diagnosis
from tui_train.diagnose import Evidence, diagnose, diagnose_log, diagnose_run
from tui_train.diagnose.log_reader import relevant_log_lines
from tui_train.diagnose.named_changes import make_named_change
from tui_train.diagnose.signatures import load_signatures
from tui_train.facts.scripts.script_source import read_script_source
from tui_train.facts.types import ScriptSource
from tui_train.profile.changes import apply_change
from tui_train.profile.fields import profile_with_value
from tui_train.profile.presets import get_preset, shipped_presets
from tui_train.profile.store import profile_to_toml
from tui_train.profile.types import Profile
from tui_train.runner.logs.lines import rank_in_line
from tui_train.runs.run_folders import RunFolder

# As the built-in trainer would train, every value named.
WHOLE = support.profile(support.FULL_RECIPE)
LOGS = sorted((Path(__file__).parents[1] / "logs").glob("*.log"))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_each_log_gives_its_failure(log):
    wanted = log.stem.partition("--")[0]
    code = 0 if wanted == "healthy" or log.stem.endswith("done") else 1
    found = diagnose_log(str(log), code)
    assert (found.failure if found else "healthy") == wanted
    if found:
        assert found.remedy
        assert "{" not in found.cause + found.remedy


def limit_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))


def limit_size():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


TORCH = "import torch; "
TOKENIZER = (
    "from tokenizers import Tokenizer, models; from transformers import PreTrainedTokenizerFast as P\n"
    "t = P(tokenizer_object=Tokenizer(models.WordLevel({'a': 0}, 'a')))\n"
)
REAL = {
    "missing_module": "import no_such_thing_here",
    "missing_file": "open('/no/such/data.txt')",
    "import_mismatch": "from json import no_such_name",
    "bad_data": "import json; json.loads('{\"a\": ')",
    "user_exception": "raise ZeroDivisionError('no steps')",
    "needs_terminal": "import os, sys; sys.stdin = open(os.devnull); input('Overwrite? ')",
    "user_args": "import argparse; argparse.ArgumentParser().parse_args(['--wrong'])",
    "port_in_use": "import socket; a=socket.create_server(('127.0.0.1',0)); socket.create_server(a.getsockname())",
    "segfault": "import faulthandler, ctypes; faulthandler.enable(); ctypes.string_at(0)",
    "abort": "import faulthandler, os; faulthandler.enable(); os.abort()",
    "keyboard_interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(9)",
    "checkpoint_mismatch": TORCH + "L=torch.nn.Linear; L(2,3).load_state_dict(L(2,4).state_dict())",
    "collate_shape": TORCH + "torch.stack([torch.ones(2), torch.ones(3)])",
    "index_out_of_range": TORCH + "torch.nn.Embedding(4, 2)(torch.tensor([9]))",
    "host_alloc_failed": TORCH + "torch.empty(2**58, dtype=torch.int8)",
    "checkpoint_weights_only": TORCH
    + "import io, fractions; b=io.BytesIO(); torch.save(fractions.Fraction(1,2), b); b.seek(0); torch.load(b)",
    "checkpoint_corrupt": TORCH
    + "import io; b=io.BytesIO(); torch.save(torch.ones(9), b); torch.load(io.BytesIO(b.getvalue()[:-60]))",
    "no_trainable_grad": TORCH + "torch.ones(2).sum().backward()",
    "empty_dataset": TORCH + "torch.utils.data.DataLoader([], shuffle=True)",
    "cuda_toolkit_missing": "from torch.utils import cpp_extension as c; c.CUDA_HOME=None; c._join_cuda_home('bin')",
    "file_lock_timeout": "import filelock, tempfile; x=tempfile.mktemp(); held=filelock.FileLock(x); held.acquire()\n"
    "filelock.FileLock(x, timeout=0.1, is_singleton=False).acquire()",
    "tokenizer_pad_token": TOKENIZER + "t.pad([{'input_ids': [0]}, {'input_ids': [0, 0]}])",
    "chat_template_missing": TOKENIZER + "t.apply_chat_template([{'role': 'user', 'content': 'a'}])",
    "ddp_unused_parameters": TORCH
    + "import torch.distributed as d; from torch.nn.parallel import DistributedDataParallel as P; L=torch.nn.Linear\n"
    + "d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)\n"
    + "class M(torch.nn.Module):\n"
    + "  def __init__(s): super().__init__(); s.a=L(2,2); s.b=L(2,2)\n"
    + "  def forward(s, x): return s.a(x)\n"
    + "m=P(M())\nfor _ in range(3): m(torch.ones(1,2)).sum().backward()",
}


def python(code, **more):
    return subprocess.run(
        [warm.training(), "-c", code], capture_output=True, text=True, timeout=120, check=False, **more
    )


@pytest.mark.parametrize("failure", REAL)
def test_a_real_failure_is_named(failure):
    done = python(REAL[failure])
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    assert code != 0
    assert said(done.stderr, code).failure == failure


def test_a_worker_that_a_signal_took_is_no_broken_checkpoint():
    # Which of the two the training meets, or DataLoader's own message, is a race that a test cannot decide.
    text = (
        'Traceback (most recent call last):\n  File "/lib/multiprocessing/resource_sharer.py", line 57, in detach\n'
        "    with _resource_sharer.get_connection(self._id) as conn:\n"
        '  File "/lib/multiprocessing/connection.py", line 399, in _recv\n'
    )
    for error in ("    raise EOFError\nEOFError\n", "    chunk = read(handle, remaining)\nConnectionResetError: x\n"):
        assert said(text + error).failure == "dataloader_worker"


def test_a_half_written_safetensors_file(tmp_path):
    code = (
        "from safetensors.torch import load_file, save_file; import torch\nsave_file({'a': torch.ones(999)}, 'x')\n"
        "data = open('x', 'rb').read(); open('x', 'wb').write(data[:300]); load_file('x')"
    )
    assert said(python(code, cwd=tmp_path).stderr).failure == "checkpoint_corrupt"


def test_full_disks_and_limits(tmp_path):
    done = python("open('/dev/full', 'w').write('x' * 99999)")
    assert said(done.stderr).failure == "disk_full"
    done = python("open('big', 'w').write('x' * 99999)", preexec_fn=limit_size, cwd=tmp_path)
    assert said(done.stderr).failure == "disk_full"
    done = python("x=[open('/dev/null') for _ in range(99)]", preexec_fn=limit_files)
    assert said(done.stderr).failure == "too_many_open_files"


@pytest.mark.whole
def test_the_root_comes_before_its_echoes(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "if dist.get_rank() == 1: raise RuntimeError('CUDA out of memory. Tried to allocate 3.00 GiB')\n"
        "dist.all_reduce(torch.ones(1))\n"
    )
    command = [warm.training(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    found = said(done.stdout + done.stderr, done.returncode)
    assert (found.failure, found.rank) == ("cuda_oom", 1)
    assert "3.00 GiB" in found.cause
    assert "CUDA out of memory" in "".join(line for line in done.stderr.splitlines() if rank_in_line(line) == 1)


def test_what_a_training_got_over_is_no_failure():
    steps = "".join(f"step {n} loss 1.{n}\n" for n in range(1, 9))
    text = f"RuntimeError: CUDA out of memory. Tried to allocate 1 GiB\n{steps}"
    assert said(text, 0) is None
    assert said(text, None) is None
    assert said(text + "OSError: [Errno 28] No space left on device\n").failure == "disk_full"
    assert said("OSError: [Errno 28] No space left on device\n", None).failure == "disk_full"


FULL = "CUDA out of memory. Tried to allocate 20.00 MiB"
MISTAKE = "Traceback (most recent call last):\n  File \"train.py\", line 20, in main\nKeyError: 'a'\n"


@pytest.mark.parametrize("begin", ["", "[rank1]: "])
def test_memory_that_was_caught_is_not_what_ended_it(begin):
    mistake = "".join(begin + line for line in MISTAKE.splitlines(keepends=True))
    assert said(f"{FULL}, skipping this batch\n{mistake}").failure == "user_exception"
    assert said(f"{mistake}{begin}torch.OutOfMemoryError: {FULL}\n").failure == "cuda_oom"
    # Of processes whose lines say no rank, the one that ran out may be another.
    assert said(f"{MISTAKE.splitlines()[0]}\ntorch.OutOfMemoryError: {FULL}\n{mistake}").failure == "cuda_oom"


def test_what_lies_beside_the_log_decides():
    killed = "  exitcode  : -9 (pid: 12)\n"
    assert "a user or a scheduler did it" in said(killed, oom_kills=0).cause
    assert [said(text, 137, oom_kills=0).failure for text in (killed, "step 14 loss 1.2\n")] == ["sigkill", "sigkill"]
    assert said("step 14 loss 1.2\n", 137).failure == "sigkill"
    assert "a user" not in said(killed, oom_kills=3).cause
    by_kernel = said("step 14 loss 1.2\n", 137, oom_kills=1, memory_limit=700 << 20)
    assert (by_kernel.failure, "the 700 MiB that it may use" in by_kernel.cause) == ("host_oom", True)
    bus = "  exitcode  : -7 (pid: 12)\n"
    assert said(bus, free_disk=0, free_shm=2**34).failure == "disk_full"
    assert said(bus, free_disk=0, free_shm=0).failure == "shm_too_small"
    assert said("Aborted (core dumped)\n", 134, free_disk=0).failure == "disk_full"
    assert said("Aborted (core dumped)\n", 134, free_disk=2**40).failure == "abort"
    lost = said(
        "step 7 loss 1.5\nstep 8 loss nan\n", None, ended_unobserved=True, newest_checkpoint="/out/checkpoint-5"
    )
    told = {"exit code unknown", "the last good step was 7", "the newest checkpoint is /out/checkpoint-5"}
    assert told <= set(lost.evidence)
    assert said("starting\n", None, ended_unobserved=True).failure == "session_killed"
    assert said("starting\n", None, ended_unobserved=True, oom_kills=2).failure == "host_oom"


@pytest.mark.parametrize(
    ("holders", "own", "failure"),
    [
        (((41, "622.00 MiB"), (7, "1.31 GiB")), "9.70 GiB", "cuda_oom_other_process"),
        (((41, "122.00 MiB"),), "11.20 GiB", "cuda_oom"),
        (((41, "10.10 GiB"),), "", "cuda_oom"),
        (((41, "9.80 GiB"), (7, "1.70 GiB")), "", "cuda_oom_other_process"),
    ],
)
def test_only_others_are_blamed_for_a_full_card(holders, own, failure):
    used = " ".join(f"Process {number} has {held} memory in use." for number, held in holders)
    used += f" Including non-PyTorch memory, this process has {own} memory in use." if own else ""
    found = said(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 28.00 MiB. GPU 0 has a total capacity of "
        f"11.65 GiB of which 8.44 MiB is free. {used} Of the allocated memory 9.27 GiB is allocated by PyTorch, and "
        "158.02 MiB is reserved by PyTorch but unallocated.\n"
    )
    assert found.failure == failure
    assert "process 7 has" in found.cause or failure == "cuda_oom"


def test_trainings_beside_each_other_are_no_trainings_after_each_other():
    header, steps = "Num processes: 1\n", "".join(f"{{'loss': 1.{n}}}\n" for n in range(3))
    assert said(header + header + steps, 0).failure == "not_distributed_silent"
    assert said(header + steps + header + steps, 0) is None
    assert said("[rank0]: " + header + "[rank1]: " + header, 0).failure == "not_distributed_silent"
    assert said(("[rank0]: " + header) * 2, 0) is None


SIGNALS = {129: "sighup", 137: "sigkill", 139: "segfault", 143: "sigterm"}


@pytest.mark.parametrize("code", [126, 127, 130, 134, 135, 7, *SIGNALS])
def test_a_quiet_log_shows_no_line_and_names_no_part(code):
    found = said("epoch 1 loss 2.1\nepoch 2 loss 1.9\n", code)
    assert found.failure == SIGNALS.get(code, found.failure)
    assert (found.line, found.line_number) == ("", 0)
    assert "worker" not in found.cause.lower()
    by_signal = said("epoch 1 loss 2.1\nepoch 2 loss 1.9\n", 128 - code if code > 128 else code)
    assert (by_signal.failure, by_signal.cause) == (found.failure, found.cause)


def test_a_worker_that_died_is_named_by_its_line():
    text = "epoch 2 loss 1.9\nRuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly\n"
    assert "4242" in said(text).cause
    assert said(text, oom_kills=2).failure == "host_oom"


def test_what_only_tells_is_no_failure():
    text = (
        "No GPU found\nWARNING: CUDA is not available\n│   12 │ raise RuntimeError('CUDA out of memory')\n"
        "number of nan iterations: 0\nwer: 0.3 error_rate: 0.1\n"
    )
    assert said(text + "ZeroDivisionError: division by zero\n").failure == "user_exception"


@pytest.mark.whole
@pytest.mark.parametrize(
    "line",
    ["a" * 1500, " " * 1500 + "x", "0" * 1500, ("a 0: error No " * 110)[:1500]],
    ids=["a", "blank", "0", "mixed"],
)
def test_a_hostile_log_costs_seconds_at_most(line):
    log = relevant_log_lines(io.BytesIO("\n".join([line] * 400).encode()))
    begin = time.process_time()
    diagnose(Evidence(lines=log, exit_code=1))
    assert time.process_time() - begin < 3


@pytest.mark.parametrize("failure", sorted({signature.failure for signature, _ in load_signatures()}))
def test_no_expression_takes_long_for_its_own_words(failure):
    written = re.compile(r"\\[a-zA-Z]|\(\?[^)]*?[:=!>]|\{\d*,?\d*\}|[\[\](){}|?*+^$\\]")
    for signature, expressions in load_signatures():
        for expression in expressions if signature.failure == failure else ():
            words = written.sub(" ", expression.pattern).split() or ["x"]
            for unit in (" ".join(words), "".join(words), words[0], words[0] + " "):
                text = "\n".join([(unit * (1500 // len(unit) + 1))[:1500]] * 10)
                begin = time.process_time()
                any(number > 500 for number, _ in enumerate(expression.finditer(text)))
                assert time.process_time() - begin < 0.5, (expression.pattern, unit)


def test_a_loss_that_is_no_number_is_a_failure_though_it_ended_well():
    assert said("step 1 loss 2.0\nstep 2 loss nan\nstep 3 loss nan\n", 0).failure == "nan_loss"
    assert said("step 1 loss 2.0\nstep 2 loss nan\nstep 3 loss 1.9\n", 0) is None
    found = said("step 1 loss nan\nstep 2 loss 2\nstep 3 loss inf\nstep 4 loss nan\n", 0)
    assert (found.failure, found.line) == ("nan_loss", "step 3 loss inf")
    assert said("step 1 loss 2.0\nstep 2 loss -inf\n", 0).failure == "nan_loss"


@pytest.mark.parametrize(
    ("code", "error", "failure"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom", "user_exception"),
        ("return rows[name]", "KeyError: 'label'", "user_exception"),
        ("a @ b", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)", "user_exception"),
        ("raise ValueError(message)", "ValueError: the loss diverged", "nan_loss"),
        ("assert torch.isfinite(value)", "AssertionError", "nan_loss"),
        ("cholesky(value)", "RuntimeError: the input is not positive-definite", "nan_loss"),
        ("int(value)", "ValueError: cannot convert float NaN to integer", "nan_loss"),
        ("f()  # after the loss", "RuntimeError: please upgrade the glossary of this domain", "user_exception"),
    ],
)
def test_a_loss_that_is_no_number_does_not_hide_the_error_that_ended_it(code, error, failure):
    traceback = (
        f'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in step\n    {code}\n{error}\n'
    )
    log = f"step 1 loss 2.0\nstep 2 loss nan\nstep 3 loss nan\n{traceback}"
    found = said(log, 1)
    assert found.failure == failure
    told = "before it, from line 2 on, the loss or its gradients were NaN or infinite"
    assert (found.line == error and told in found.evidence) is (failure != "nan_loss")


def test_an_error_of_one_rank_is_its_end_though_another_one_trains_on():
    steps = "[rank0]: step 1 loss 2.0\n[rank0]: step 2 loss nan\n"
    error = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "a.py", line 9, in f\n[rank1]:     x()\n'
    found = said(f"{steps}{error}[rank1]: RuntimeError: boom\n[rank0]: step 3 loss nan\n", 1)
    assert (found.failure, found.rank) == ("user_exception", 1)


def test_what_comes_before_the_broken_steps_is_not_after_them():
    log = "step 1 loss 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\nstep 2 loss nan\n"
    assert not [words for words in said(log, 1).evidence if "before it" in words]


def test_an_error_that_was_caught_does_not_explain_steps_without_a_number():
    caught = (
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in save\n    f()\nRuntimeError: boom\n'
    )
    assert said(f"step 1 loss 2.0\nstep 2 loss nan\n{caught}step 3 loss nan\n", 1).failure == "nan_loss"


@pytest.mark.parametrize(
    ("edits", "takes", "edit", "advice"),
    [
        ({"recipe.precision": "fp16"}, {"precision", "learning_rate"}, ("recipe.precision", "bf16"), "Use bf16"),
        ({"recipe.precision": "bf16", "recipe.learning_rate": 4e-3}, {"learning_rate"}, ("recipe.learning_rate", 2e-3),
         "Lower recipe.learning_rate"),
        # Far above the default it is a slip.
        ({"recipe.learning_rate": 10.0}, {"learning_rate"}, ("recipe.learning_rate", 3e-3), "recipe.learning_rate"),
        ({"trainer.arguments": ("--lr", "10")}, set(), None, "Lower --lr (10 now)"),
        ({"trainer.arguments": ("optim.learning_rate=0.3",)}, set(), None, "Lower optim.learning_rate (0.3 now)"),
        ({}, set(), None, "Lower the learning rate in the script"),
    ],
)  # fmt: skip
def test_a_loss_that_became_nan_has_the_fixes_where_the_values_are(edits, takes, edit, advice):
    script = {"trainer.kind": "script", "recipe.precision": None} if not takes else {}
    profile = support.profile({**support.FULL_RECIPE, **script, **edits})
    more = {"accepted_recipe_names": frozenset(takes), "preset": shipped_presets()["builtin"]}
    found = said("step 1 loss 2.0\nstep 2 loss nan\n", 0, profile, **more)
    assert (found.change.edits if found.change else None) == (edit and (edit,))
    assert advice in found.remedy
    assert "clip gradients" in found.remedy
    assert ("if it trains in fp16" in found.remedy) == (not takes)


def test_a_change_mends_the_profile():
    profile, takes = WHOLE, frozenset({"micro_batch", "accumulation"})
    found = said(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n", 1, profile, accepted_recipe_names=takes
    )
    assert apply_change(found.change, profile).recipe.micro_batch == 4
    named = {signature.change for signature, _ in load_signatures() if signature.change}
    lower = support.profile({
        **support.FULL_RECIPE, "recipe.precision": "bf16", "recipe.fused_cross_entropy": True,
        "recipe.activation_checkpointing": True, "communication.interface": "eth7", "container.engine": "docker",
        "container.shared_memory": "1g", "nodes.count": 2, "trainer.strategy": "zero2",
        "trainer.arguments": ("--nope",),
    })  # fmt: skip
    passed = takes | {"precision", "learning_rate", "fused_cross_entropy", "activation_checkpointing"}
    refused = b"t.py: error: unrecognized arguments: --nope\nModuleNotFoundError: No module named 'net'\n"
    above = ScriptSource(parent_packages={"net": "/project"})
    evidence = Evidence(
        lines=relevant_log_lines(io.BytesIO(refused)), accepted_recipe_names=passed, world_size=3, script_source=above
    )
    tuned = support.profile({
        "trainer.kind": "finetune", "finetune.tuning": "qlora", "finetune.targets": ("c_attn",),
        "finetune.answers_only": True,
    }, lower)  # fmt: skip
    script = {"trainer.kind": "script", "trainer.preset": "auto", "nodes.count": 1}
    others = ({"recipe.precision": "fp16"}, script)
    profiles = (lower, tuned, *(support.profile(edits, lower) for edits in others))
    for name in named:
        changes = [(before, make_named_change(name, evidence, before)) for before in profiles]
        assert any(change for _, change in changes), name
        assert all(apply_change(change, before) != before for before, change in changes if change)


def test_no_change_is_offered_that_the_training_would_not_notice():
    nothing = Evidence(lines=(), world_size=1)
    names = ("less_memory", "precision", "steadier", "no_fused_kernels", "no_activation_checkpointing", "no_deepspeed")
    names += ("all_linear_layers", "no_quantization", "whole_conversations")
    assert [make_named_change(name, nothing, WHOLE) for name in names] == [None] * len(names)
    assert make_named_change("less_memory", Evidence(lines=(), on_gpus=True), Profile()).title == "expandable segments"


@pytest.mark.parametrize(
    ("phase", "title"),
    [("", "micro batch 8 -> 4"), ("step", "expandable segments"), ("eval", "evaluation batch 8 -> 1")],
)
def test_less_memory_is_offered_where_it_ran_out(phase, title):
    takes = frozenset({"micro_batch", "accumulation", "eval_batch"})
    evidence = Evidence(lines=(), accepted_recipe_names=takes, on_gpus=True, phase=phase, eval_batch=8)
    assert make_named_change("less_memory", evidence, WHOLE).title == title


OWN = """Traceback (most recent call last):
  File "/train.py", line 3, in <module>
    load()
{error}
"""


def test_a_mistake_on_one_rank_is_the_root_of_what_the_others_say():
    own = OWN.format(error="KeyError: 'missing'")
    ranked = "".join(f"[rank1]: {line}\n" for line in own.splitlines())
    timeout = (
        "[rank3]: [E1121 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
        "SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds\n"
    )
    echo = "W1121 api.py:1010] Sending process 19007 closing signal SIGTERM\n"
    found = said(timeout + ranked + echo)
    assert (found.failure, found.rank, found.line) == ("user_exception", 1, "KeyError: 'missing'")
    assert said(own + echo).failure == "user_exception"
    assert said(timeout + echo).failure == "nccl_timeout"
    cut = OWN.format(error="torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15")
    assert said(cut + echo).failure == "sigterm"


def test_a_module_of_the_project_above_the_script_is_put_on_the_path(tmp_path):
    script = tmp_path / "tools/train.py"
    (tmp_path / "net").mkdir()
    script.parent.mkdir()
    for file in (tmp_path / "net/__init__.py", tmp_path / "setup.py"):
        file.touch()
    script.write_text("import net\n")
    chosen = support.profile({
        "trainer.kind": "script", "trainer.script": str(script), "trainer.environment": {"PYTHONPATH": "/other"},
    })  # fmt: skip
    failed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    found = said(failed.stderr, failed.returncode, chosen, script_source=read_script_source(str(script)))
    assert (found.failure, str(tmp_path) in found.remedy) == ("missing_module", True)
    variables = apply_change(found.change, chosen).trainer.environment
    assert variables == {"PYTHONPATH": f"{tmp_path}:/other"}
    assert subprocess.run([sys.executable, script], env=variables, check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "folder", "on_path"),
    [
        # A file of the project has the name of a library; it is there already; no variable can name it.
        ("evaluate", "/project", ""),
        ("net", "/project", "/other:/project"),
        ("net", "/a:b", ""),
    ],
)
def test_a_folder_that_would_not_help_is_not_put_on_the_path(name, folder, on_path):
    chosen = support.profile({
        "trainer.kind": "script", "trainer.script": "/project/t.py",
        "trainer.environment": {"PYTHONPATH": on_path},
    })  # fmt: skip
    source = ScriptSource(parent_packages={name: folder})
    found = said(f"ModuleNotFoundError: No module named '{name}'\n", 1, chosen, script_source=source)
    assert found.failure == "missing_module"
    assert found.change is None
    assert ("pip install evaluate" in found.remedy) == (name == "evaluate")


def test_the_change_that_puts_a_folder_on_the_path_shows_its_name_as_it_is():
    chosen = support.profile({"trainer.kind": "script", "trainer.script": "/t.py"})
    source = ScriptSource(parent_packages={"net": "/a\x1b[1mb"})
    found = said("ModuleNotFoundError: No module named 'net'\n", 1, chosen, script_source=source)
    assert found.change.title.isprintable()
    assert dict(found.change.edits) == {"trainer.environment": {"PYTHONPATH": "/a\x1b[1mb"}}


def test_the_file_with_which_each_python_of_a_run_begins_is_no_file_of_the_users(tmp_path):
    run = f'  File "{tmp_path}/shim/sitecustomize.py", line 92, in call'
    text = f'Traceback (most recent call last):\n  File "{tmp_path}/own.py", line 4, in setup\n    join()\n{run}\n'
    text += "    return original()\nRuntimeError: Distributed package doesn't have NCCL built in\n"
    assert f"line 4 of {tmp_path}/own.py" in said(text).remedy


@pytest.mark.parametrize(
    ("takes", "preset", "arguments", "words", "says", "edits"),
    [
        ("--eta", "hf-trainer", ("--nope", "3", "--eta=1"), ("--output_dir=x", "--logging_steps=10"),
         "The preset “Hugging Face Trainer” passes --output_dir, --logging_steps; it takes --eta (argparse, line 2)",
         {"trainer.preset": "auto"}),
        ("--eta", "hf-trainer", ("--nope", "3", "--eta=1"), ("--nope", "3", "--eta=1"),
         "--nope stands in trainer.arguments; it takes --eta (argparse, line 2)", {"trainer.arguments": ("--eta=1",)}),
        ("--niter", "custom", ("--niters", "3"), ("--niters", "3"), "Did you mean --niter?",
         {"trainer.arguments": ("--niter", "3")}),
    ],
)  # fmt: skip
def test_unknown_arguments_are_told_with_who_passes_them_and_what_was_meant(  # noqa: PLR0913, PLR0917
    tmp_path, takes, preset, arguments, words, says, edits
):
    script = tmp_path / "train.py"
    script.write_text(f"import argparse\np = argparse.ArgumentParser()\np.add_argument('{takes}')\np.parse_args()\n")
    chosen = support.profile({
        "trainer.kind": "script", "trainer.script": str(script), "trainer.preset": preset,
        "trainer.arguments": arguments,
    })  # fmt: skip
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False)
    more = {"script_source": read_script_source(str(script)), "preset": shipped_presets()[preset]}
    found = said(done.stderr, done.returncode, chosen, **more)
    assert found.failure == "user_args"
    assert says in found.remedy
    assert dict(found.change.edits) == edits


@pytest.mark.parametrize(
    "line", ["ERROR: Could not consume arg: --rate=1", "Error: No such option '--rate'. Did you mean '--lr'?"]
)
def test_only_what_was_refused_is_left_out(line):
    chosen = support.profile({
        "trainer.kind": "script", "trainer.script": "/t.py", "trainer.preset": "custom",
        "trainer.arguments": ("--rate=1", "--lr=2"),
    })  # fmt: skip
    assert dict(said(f"{line}\n", 2, chosen).change.edits) == {"trainer.arguments": ("--lr=2",)}


def test_an_exception_of_the_scripts_own_is_told_in_its_words():
    several = said(OWN.format(error="__main__.Bad: several\nlines of words"))
    assert several.cause == "The script raised: __main__.Bad: several lines of words"
    middle = "\nDuring handling of the above exception, another exception occurred:\n\n"
    chained = OWN.format(error="KeyError: 'x'") + middle + OWN.format(error="RuntimeError: bad config")
    assert said(chained).cause == "The script raised: RuntimeError: bad config"
    refused = said("error | the data has 3 tokens, and needs 128 | Add data.\n", 2)
    assert (refused.cause.endswith("has 3 tokens, and needs 128"), refused.remedy) == (True, "Add data.")
    assert said("args []\n", 3).cause == "The script ended by itself with exit code 3."


IN_OWN_CODE = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 40, in <module>
    main()
  File "/home/me/train.py", line 30, in main
    y = batch["lbl"]
{}
"""


@pytest.mark.parametrize(
    "reported",
    [
        "CUDA is not available, running on cpu", "=> no checkpoint found at 'model_best.pth.tar'",
        "TensorBoard could not bind to port 6006, it was already in use", "found 3 nan values in the data, dropped",
        "Could not cache non-existence of file. Will ignore error. Error: [Errno 13] Permission denied: '/x'",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [host]:29500 (errno: 97 - Address).",
        "ModuleNotFoundError: No module named 'apex' - using native AMP",
        "step 1 loss 2.0\nstep 2 loss 1.9\nCUDA is not available, running on cpu\nstep 3 loss 1.8",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB, caught, skipped\nstep 9 loss 2.0",
        "save failed: [Errno 28] No space left on device, retrying\nsaved on retry",
    ],
)  # fmt: skip
def test_a_mistake_in_the_own_code_ended_it_whatever_was_reported_before(reported):
    end = IN_OWN_CODE.format("KeyError: 'lbl'")
    found = said(f"{reported}\n{end}")
    assert (found.failure, found.line) == ("user_exception", "KeyError: 'lbl'")
    middle = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert said(f"{reported}\n{IN_OWN_CODE.format('ValueError: x')}{middle}{end}").failure == "user_exception"
    other = said(f"{reported}\n{IN_OWN_CODE.format('ValueError: invalid literal for int()')}")
    assert (other.failure, other.source_line) == ("user_exception", 30)


def test_what_a_program_raises_itself_may_be_about_what_it_reported():
    raised = IN_OWN_CODE.replace('y = batch["lbl"]', 'raise ValueError("training failed")')
    assert (
        said(f"save failed: [Errno 28] No space left on device\n{raised.format('ValueError: training failed')}").failure
        == "disk_full"
    )
    asserted = IN_OWN_CODE.replace('y = batch["lbl"]', "assert torch.cuda.is_available(), 'needs CUDA'")
    old = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11000)."
    assert said(f"{old}\n{asserted.format('AssertionError: needs CUDA')}").failure == "cuda_driver_too_old"


@pytest.mark.parametrize(
    ("log", "failure"),
    [
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-26T06:00:00 DUE TO TIME LIMIT ***\n",
            "slurm_time_limit",
        ),
        (
            IN_OWN_CODE.replace("/home/me", "/v/lib/python3.11/site-packages/x").format(
                "OSError: [Errno 28] No space left"
            ),
            "disk_full",
        ),
    ],
)
def test_a_verdict_from_outside_and_another_traceback_stay_the_root(log, failure):
    assert said(log + IN_OWN_CODE.format("KeyError: 'lbl'")).failure == failure


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        ("IndexError: list index out of range", "user_exception"),
        ("IndexError: index out of range in self", "index_out_of_range"),
        ("ImportError: cannot import name 'foo' from 'train_utils' (/home/me/train_utils.py)", "user_exception"),
        ("ImportError: cannot import name 'foo' from 'peft' (/v/lib/python3.11/site-packages/peft/__init__.py)",
         "import_mismatch"),
        ("ImportError: cannot import name 'foo' from 'peft' (unknown location)", "import_mismatch"),
        ("yaml.scanner.ScannerError: mapping values are not allowed here", "user_exception"),
    ],
)  # fmt: skip
def test_a_plain_error_of_python_is_no_librarys(error, failure):
    assert said(IN_OWN_CODE.format(error)).failure == failure


def test_a_missing_file_is_told_with_the_folder_in_which_the_script_started():
    chosen = support.profile({"trainer.kind": "script", "trainer.script": "/w/t.py"})
    text = "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.pt'"
    told = said(text, 1, chosen, preset=get_preset("custom", {}))
    assert "relative paths start at /w (trainer.working_directory)" in told.remedy
    assert "at the working directory of the training" in said(text).remedy


def test_expressions_and_classes_are_well_formed():
    for signature, expressions in load_signatures():
        assert 0 < signature.strength < 100
        assert expressions or signature.codes or signature.failure in {"not_distributed_silent", "resume_ignored"}
        names = {name for expression in expressions for name in expression.groupindex}
        for wanted in re.findall(r"\{([a-z]+)", signature.cause + signature.remedy):
            # Those of a failure without expressions are counted, not read.
            assert wanted in names | (
                {"message", "raiser", "place", "start", "stage", "update"} if expressions else {"resumed", "first"}
            ), (
                signature.failure,
                wanted,
            )


def test_the_lines_around_a_mistake_are_shown_while_the_script_is_as_it_was(tmp_path):
    script = tmp_path / "t.py"
    script.write_text("rows = {}\nfor step in range(3):\n\tvalue = rows['lbl\\x1b']\n\tprint(value)\n")
    run, _ = support.export_run(
        tmp_path / "run",
        support.profile({"trainer.kind": "script", "trainer.preset": "custom", "trainer.script": str(script)}),
        support.facts(),
    )
    assert support.run_launch_script(run).returncode == 1
    found = diagnose_run(run)
    assert (found.failure, found.source_file, found.source_line) == ("user_exception", str(script), 3)
    assert [number for number, _ in found.source] == [1, 2, 3, 4]
    assert found.source[2][1].startswith("    value = rows['lbl")
    assert all(code.isprintable() for _, code in found.source)
    os.utime(script, (time.time() + 60,) * 2)
    assert diagnose_run(run).source == ()
    script.unlink()
    assert diagnose_run(run).source == ()


def test_a_log_of_any_kind_is_read(tmp_path):
    log = tmp_path / "odd.log"
    noise = b"step 1 loss 1.0 \xff\xfe\r" * 40 + b"\n"
    log.write_bytes(
        noise * 2000 + b"\x1b[31mRuntimeError: CUDA error: invalid device ordinal\x1b[0m\n" + b"\0x" * 3_000_000
    )
    found = diagnose_log(str(log), 1)
    assert found.failure == "invalid_device_ordinal"
    assert found.line_number == 2001
    assert found.line == "RuntimeError: CUDA error: invalid device ordinal"
    assert diagnose_log("/dev/null", 0) is None


def note_attempt(run, number, state="failed", **ended):
    """Write the events of a start whose one attempt ended so."""
    code = 0 if state == "finished" else 1
    events = [
        {"event": "run_started", "mark": "m", "pid": 2**22 + 7},
        {"event": "attempt_started", "attempt": number, "position": ended.pop("position", 1)},
        {"event": "attempt_ended", "attempt": number, "exit_code": code, **ended},
        {"event": "run_ended", "state": state, "exit_code": code},
    ]
    with run.events_file.open("a") as file:
        for at, event in enumerate(events):
            file.write(json.dumps({"time": 4.0 * number + at, **event}) + "\n")


def failed(folder, edits, *, phase="loss", position=1, **values):
    """A run whose only attempt, with these edits of the profile in its plan, ran out of GPU memory."""
    run = RunFolder(folder)
    run.launch_script.write_text("")
    run.profile_file.write_text(profile_to_toml(support.profile(**values)))
    run.plan_file.write_text(json.dumps({"gpus": ["GPU-1"], "world_size": 1, "attempts": [{"edits": edits}]}))
    run.attempt_log(1).write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    note_attempt(run, 1, out_of_memory=True, phase=phase, position=position)
    return run


def test_a_change_keeps_what_the_attempt_had_changed(tmp_path):
    change = diagnose_run(failed(tmp_path, {"recipe.micro_batch": 1, "recipe.expandable_segments": True})).change
    assert change.title == "activation checkpointing"
    assert dict(change.edits) == {
        "recipe.micro_batch": 1,
        "recipe.expandable_segments": True,
        "recipe.activation_checkpointing": True,
    }


@pytest.mark.parametrize("edits", [{"recipe.micro_batch": "x"}, {"recipe.micro_batch": -1}, {"no.key": 1}, [], 7])
def test_a_plan_that_was_edited_tells_of_no_change(tmp_path, edits):
    assert dict(diagnose_run(failed(tmp_path, edits)).change.edits) == {
        "recipe.micro_batch": 4,
        "recipe.global_batch": 16,
    }


@pytest.mark.parametrize(
    ("words", "title"),
    [((), "evaluation batch 8 -> 1"), (("--per_device_eval_batch_size=4",), "expandable segments")],
)
def test_what_your_own_words_say_is_not_offered(tmp_path, words, title):
    script = {"trainer__kind": "script", "trainer__script": "/t.py", "trainer__preset": "hf-trainer"}
    script |= {"trainer__arguments": words}
    assert diagnose_run(failed(tmp_path, {}, phase="eval", **script)).change.title == title


def test_a_run_is_diagnosed_with_its_profile(tmp_path):
    run = RunFolder(tmp_path)
    run.launch_script.write_text("")
    run.attempt_log(1).write_text("FloatingPointError: Minimum loss scale reached (0.0001).\n")
    note_attempt(run, 1)
    trained = support.profile({"recipe.precision": "fp16", "trainer.output": str(tmp_path / "out")})
    run.profile_file.write_text(profile_to_toml(trained))
    planned = support.prepare_without_errors(
        profile_with_value(trained, "recipe.precision", "fp32"), support.facts()
    ).plan
    run.plan_file.write_bytes(msgspec.json.encode(planned))
    for name in ("checkpoint-5", "checkpoint-12", "checkpoint-x"):
        (tmp_path / "out" / name).mkdir(parents=True)
    assert diagnose_run(run).evidence == ("exit code 1",)
    fill_checkpoint(tmp_path / "out/checkpoint-12")
    found = diagnose_run(run)
    assert found.evidence[-1] == f"the newest checkpoint is {tmp_path}/out/checkpoint-12"
    assert found.failure == "nan_loss"
    assert found.change.edits == (("recipe.precision", "bf16"),)
    run.events_file.unlink()
    note_attempt(run, 1, "stopped")
    assert diagnose_run(run) is None
    run.attempt_log(1).write_text("step 1 loss 2.0\nstep 2 loss nan\n")
    assert diagnose_run(run).failure == "nan_loss"


def fill_checkpoint(folder):
    """Put all that the built-in trainer saves into a checkpoint's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in get_preset("builtin").checkpoints.complete:
        (folder / part).write_text("whole")


@pytest.mark.parametrize("position", [1, 2])
def test_the_checkpoint_is_that_of_the_attempt_that_failed(tmp_path, position):
    """What another optimizer, method or sharding saved lies in a folder of its own."""
    output, rungs = tmp_path / "out", ("layers",)
    values = {**support.FULL_RECIPE, "trainer.output": str(output), "ladder.rungs": rungs, "ladder.consent": rungs}
    prepared = support.prepare_without_errors(support.profile(values), support.facts())
    run = failed(tmp_path, {}, position=position)
    run.profile_file.write_text(profile_to_toml(support.profile(values)))
    run.plan_file.write_bytes(msgspec.json.encode(prepared.plan))
    folders = [output, tmp_path / "out-2-layers"]
    for number, folder in enumerate(folders, start=1):
        fill_checkpoint(folder / f"checkpoint-{number}0")
    shown = f"the newest checkpoint is {folders[position - 1]}/checkpoint-{position}0"
    assert shown in diagnose_run(run).evidence


FAILED = "step 1\nTraceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to\n"


@pytest.mark.parametrize(
    "kept",
    [
        gzip.compress(FAILED.encode()),
        FAILED.encode("utf-16"),
        b"\xfe\xff" + FAILED.encode("utf-16-be"),
        gzip.compress(FAILED.encode("utf-16")),
        b"\0" * 300_000 + FAILED.encode(),
        "\u65e5\u672c\u8a9e\n".encode("gbk") + FAILED.encode(),
    ],
    ids=["gzip", "utf-16", "utf-16-be", "gzip of utf-16", "cut short while it was written", "gbk"],
)
def test_a_log_is_read_as_it_is_kept(tmp_path, kept):
    (tmp_path / "log").write_bytes(kept)
    found = diagnose_log(str(tmp_path / "log"))
    assert (found.failure, found.line) == ("cuda_oom", FAILED.splitlines()[-1])


@pytest.mark.whole
def test_the_start_of_a_long_log_is_read_whole(tmp_path):
    quiet = "rank 1 waits for rank 0, nothing arrived yet\n" * 20_000
    said = "Downloading a shard\n" * 500 + "Failed to initialize NVML: Driver/library version mismatch\n"
    (tmp_path / "log").write_text(said + quiet)
    assert diagnose_log(str(tmp_path / "log")).line.startswith("Failed to initialize NVML")


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (Path(sys.executable).read_bytes(), "not text"),
        (gzip.compress(Path(sys.executable).read_bytes()[:9999]), "not text"),
        (gzip.compress(gzip.compress(Path(sys.executable).read_bytes())), "not text"),
        (gzip.compress(FAILED.encode())[:-9], "truncated gzip file"),
        (b"\x1f\x8b nothing of the kind", "truncated gzip file"),
    ],
    # Workers have to agree on the names, and gzip writes the time.
    ids=["binary", "gzip of binary", "gzip of gzip", "gzip cut short", "no gzip"],
)
def test_what_is_no_log_is_not_called_free_of_failures(tmp_path, kept, said):
    (tmp_path / "log").write_bytes(kept)
    with pytest.raises(BadInput, match=said):
        diagnose_log(str(tmp_path / "log"))


@pytest.mark.whole
def test_a_log_may_come_in_parts():
    words = [str(Path(sys.executable).parent / "tui-train"), "diagnose", "-", "--json"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reading:
        kept = gzip.compress(FAILED.encode())
        for part in (kept[:1], kept[1:]):
            reading.stdin.write(part)
            reading.stdin.flush()
            time.sleep(0.3)
        assert json.loads(reading.communicate()[0])["class"] == "cuda_oom"


def test_a_run_that_fell_back_and_went_through_says_what_was_given_up(tmp_path, capsys):
    run = failed(tmp_path, {}, phase="step")
    assert "try it" in printed(run, capsys)
    note_attempt(run, 2, "finished")
    run.attempt_log(2).touch()
    first, second = printed(run, capsys).splitlines()
    assert first.endswith("; the run finished.")
    assert second == "attempt 1 ran out of GPU memory in the optimizer step"


def printed(run, capsys):
    print_diagnosis(str(run.path), None, as_json=False)
    return capsys.readouterr().out


def test_the_command_says_it_in_json_and_in_words(tmp_path):
    (tmp_path / "a.log").write_text("[rank3]: RuntimeError: CUDA error: device-side assert triggered\n")
    words = ["diagnose", str(tmp_path / "a.log"), "--exit-code", "1"]
    told = json.loads(CliRunner().invoke(cli, [*words, "--json"]).output)
    assert (told["class"], told["rank"], told["line_number"], told["change"]) == ("device_side_assert", 3, 1, None)
    shown = CliRunner().invoke(cli, words).output
    assert "rank 3" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert CliRunner().invoke(cli, ["diagnose", str(tmp_path / "none.log")]).exception.exit_code == 66


def test_a_rank_that_nobody_set_is_told_with_the_launcher_that_sets_it():
    script = support.profile({"trainer.kind": "script", "trainer.script": "/t.py", "trainer.launcher": "python"})
    for text, variable in (
        ("KeyError: 'RANK'", "RANK"),
        ("KeyError: 'WORLD_SIZE'", "WORLD_SIZE"),
        ("ValueError: rendezvous with env://: environment variable RANK expected, but not set", "RANK"),
    ):
        found = said(f"{text}\n", 1, script)
        assert found.cause.startswith(f"{variable} is not set, and the script reads it")
        assert apply_change(found.change, script).trainer.launcher == "torchrun"
