"""What launch.sh refuses before it starts, and what it says of a training that did not do what it was to do."""

import json
import os
import shutil
import signal
import subprocess
import sys

import msgspec
import pytest
import warm
from diagnosed import said
from support import (
    SCRIPTS,
    export_run,
    facts,
    plain_environment,
    profile,
    run_launch_script,
    sleeper_profile,
    wait_until,
)

from tui_train.cli.runs import watch as printed
from tui_train.diagnose import diagnose_run
from tui_train.runner.logs.log_head import (
    first_logged_step,
    first_step_if_checkpoint_ignored,
    has_each_process_trained_alone,
    ignored_checkpoint_sentence,
)
from tui_train.runner.logs.memory_failure import read_memory_failure
from tui_train.runner.logs.memory_patterns import OUT_OF_MEMORY_PATTERNS
from tui_train.runner.logs.progress import LogReadingOptions
from tui_train.runs.follow import follow_snapshots
from tui_train.runs.health import health_problems
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status


def begun(run):
    """launch.sh of a run, in the background, once its training is under way."""
    process = subprocess.Popen(
        ["bash", run.launch_script], env=plain_environment(), stdout=subprocess.DEVNULL, start_new_session=True
    )
    wait_until(lambda: read_status(run).attempts)
    return process


def ended(process):
    process.send_signal(signal.SIGTERM)
    return process.wait(30)


@pytest.mark.whole
def test_the_output_folder_of_a_live_run_is_refused_however_it_is_spelled(tmp_path):
    output = tmp_path / "out"
    (tmp_path / "link").symlink_to(tmp_path)
    first, _ = export_run(tmp_path / "one", sleeper_profile(**{"trainer.output": str(output)}), facts())
    spelled = f"{tmp_path}/link/./out"
    second, _ = export_run(tmp_path / "two", sleeper_profile(**{"trainer.output": spelled}), facts())
    process = begun(first)
    try:
        done = run_launch_script(second)
        assert done.returncode == 75, done.stdout
        assert f"a training writes to {spelled} already (process {process.pid})" in done.stderr.decode()
        assert not second.events()
    finally:
        ended(process)
    assert not [*tmp_path.glob(".tui-train*")], "it is released"
    process = begun(second)
    ended(process)
    assert read_status(second).state == "stopped"


def test_what_a_killed_run_left_of_its_output_folder_is_taken_over_once_nothing_trains(tmp_path):
    chosen = sleeper_profile(**{"trainer.output": str(tmp_path / "out")})
    first, second = (export_run(tmp_path / name, chosen, facts())[0] for name in ("one", "two"))
    process = begun(first)
    leader = wait_until(lambda: read_status(first).leader)
    process.kill()
    process.wait()
    try:
        for _ in range(2):
            done = run_launch_script(second)
            assert done.returncode == 75, "also the second time"
            assert "processes of an earlier start still train" in done.stderr.decode()
    finally:
        os.killpg(leader, signal.SIGKILL)
    wait_until(lambda: not read_status(first).leftover)
    ended(begun(second))
    assert read_status(second).state == "stopped"


# ---- a full card, in any wording


FULL = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity)",
    "RuntimeError: CUDA out of memory. (simulated)",
    "torch.AcceleratorError: CUDA error: out of memory",
    "RuntimeError: CUDA driver error: out of memory",
    "RuntimeError: cuda runtime error (2) : out of memory at THCStorage.cu:66",
    "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "RuntimeError: Triton Error [CUDA]: out of memory",
    "ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 2 'out of memory'",
    "[rank1]: RuntimeError: HIP out of memory.",
    "torch.cuda.OutOfMemoryError",
    "ERROR: CUDA out of memory",
    "RuntimeError: CUDA error: out of memory",
    "  what():  CUDA error: out of memory",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 2 bytes.",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "Failed: Cuda failure 'out of memory'",
]
NOT_FULL = [
    "hint: a larger batch may end in CUDA out of memory. Lower it then.",
    "WARNING: CUDA out of memory. Trying again with less",
    "java.lang.OutOfMemoryError: Java heap space",
    "    except torch.OutOfMemoryError:",
    "MemoryError: out of memory of nothing",
]


@pytest.mark.parametrize("line", FULL + NOT_FULL)
def test_ladder_and_diagnosis_agree_on_what_a_full_card_says(tmp_path, line):
    found = said(f"{line}\n")
    names = {failure for failure, _ in OUT_OF_MEMORY_PATTERNS}
    assert (found.failure in names) == (line in FULL), found
    (tmp_path / "log").write_text(f"{line}\n")
    assert bool(read_memory_failure(str(tmp_path / "log"), ()).phase) == (line in FULL)


# ---- a checkpoint that is not loaded


@pytest.mark.parametrize(
    ("lines", "loses"),
    [
        ([" 50%|#####     | 500/1000 [00:01<00:02,  2.00it/s]", " 50%|#####     | 501/1000 [00:01<00:02]"], False),
        (["  0%|          | 1/1000 [00:01<00:02,  2.00it/s]"], True),
        (["Loading checkpoint shards:  50%|##  | 1/2 [00:01<00:01]", " 50%|### | 501/1000 [00:01<00:02]"], False),
        (["Tokenizing train dataset: 100%|####| 40/40 [00:00<00:00, 9 examples/s]"], False),
        (["Map (num_proc=2): 100%|####| 40/40 [0<0]", "Skipping the first batches:   2%| | 12/500 [0<1]"], False),
        (["Map: 100%|####| 40/40 [00:00<00:00]", "{'loss': 2.1, 'epoch': 0.1}", "  0%|  | 2/1000 [00:01<00:02]"], True),
        (["step 3 | loss 2.5"], True),
        (["step 501 | loss 2.5"], False),
    ],
)
def test_where_a_training_began(tmp_path, lines, loses):
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + "\n")
    first = first_logged_step(str(log), LogReadingOptions())
    assert bool(ignored_checkpoint_sentence(first, 500)) == loses
    assert first_step_if_checkpoint_ignored(str(log), 500, LogReadingOptions()) == (first if loses else 0)
    assert first_step_if_checkpoint_ignored(str(log), 0, LogReadingOptions()) == 0


RANK = "rank {} | host box | device cpu | backend {}\n"


@pytest.mark.parametrize(
    ("said", "world_size", "apart"),
    [
        (RANK.format("0/1", "none") * 2, 2, True),
        (RANK.format("0/1", "none"), 1, False),
        (RANK.format("0/1", "none") + RANK.format("1/2", "gloo"), 2, False),
        (RANK.format("0/1", "none") + RANK.format("3/16", "gloo"), 16, False),
        (RANK.format("0/2", "gloo"), 2, False),
        ("", 2, False),
        (f"\0\r{RANK.format('0/1', 'none')}", 2, True),
        ("x" * 4_000_000 + RANK.format("0/1", "none"), 2, False),
    ],
)
def test_processes_that_train_apart(tmp_path, said, world_size, apart):
    (tmp_path / "log").write_text(said)
    assert has_each_process_trained_alone(str(tmp_path / "log"), world_size) is apart
    assert has_each_process_trained_alone(str(tmp_path / "none"), world_size) is False


def trained(folder, steps, source, name):
    """A training of the HF Trainer on the CPU that saves every other step; what launch.sh said."""
    script = folder / "train.py"
    script.write_text(source)
    chosen = profile({
        "trainer.kind": "script", "trainer.preset": "hf-trainer", "trainer.python": warm.training(),
        "trainer.script": str(script), "trainer.output": str(folder / "out"),
        "recipe.steps": steps, "recipe.checkpoint_every": 2, "recipe.micro_batch": 2, "recipe.global_batch": 2,
    })  # fmt: skip
    run, plan = export_run(folder / name, chosen, facts(python=warm.training()))
    run.plan_file.write_bytes(msgspec.json.encode(plan))
    done = run_launch_script(run)
    assert done.returncode == 0, run.attempt_log(1).read_text()
    return run, done.stdout.decode()


@pytest.mark.whole
@pytest.mark.training
@pytest.mark.parametrize("loads", [False, True])
def test_a_checkpoint_that_the_script_does_not_load_is_told_afterwards(tmp_path, loads, capsys):
    source = (SCRIPTS / "hf_trainer.py").read_text()
    # A bar is drawn ten times a second, and its first steps are to be seen.
    begin = "def on_step_begin(self, args, state, _control, **_more):\n"
    source = source.replace(begin, f"{begin}        __import__('time').sleep(0.2)\n")
    if not loads:
        source = source.replace("train(resume_from_checkpoint=arguments.resume_from_checkpoint)", "train()")
    trained(tmp_path, 4, source, "first")
    shutil.rmtree(tmp_path / "first")
    run, said = trained(tmp_path, 6, source, "second")
    (attempt,) = read_status(run).attempts
    assert attempt.resumed == 4
    assert attempt.ignored_checkpoint is not loads
    events = [json.loads(line) for line in run.events_file.read_text().splitlines()]
    assert events[-2].get("ignored_checkpoint") is (None if loads else True)
    assert ("the training does not load it" in said) is not loads
    told = [*follow_snapshots(run, lambda: False)][-1]
    worried = health_problems(told.progress, 0, None, told.why_not_resumed)
    assert any("began at step 1" in words for words in worried) is not loads
    found = diagnose_run(run)
    assert (found.failure if found else None) == (None if loads else "resume_ignored")
    if not loads:
        assert "trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)" in found.remedy
        printed._report_failure(RunFolder(run.path))
        assert "checkpoint not loaded" in capsys.readouterr().err


# ---- what is advised


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("cv2", "opencv-python-headless"), ("yaml", "PyYAML"), ("PIL", "Pillow"), ("sklearn", "scikit-learn"),
        ("flash_attn", "flash-attn --no-build-isolation"), ("datasets", "datasets"), ("lm_eval", "lm-eval"),
    ],
)  # fmt: skip
def test_only_known_packages_are_advised(module, package):
    assert f"pip install {package}`" in said(f"ModuleNotFoundError: No module named '{module}'\n").remedy


@pytest.mark.parametrize("module", ["my_utils", "flash_attention_evil", "reqeusts"])
@pytest.mark.parametrize("words", ["ModuleNotFoundError: No module named '{}'", "ImportError: please pip install {}"])
def test_a_name_that_only_an_error_tells_is_not_to_be_installed(module, words):
    found = said(words.format(module) + "\n")
    assert found.failure == "missing_module"
    assert "install" not in found.remedy
    assert module not in found.remedy
    assert "on PYTHONPATH" in found.remedy


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("RuntimeError: Failure to acquire lock /nfs/cache/x.lock", "file_lock_timeout"),
        ("docker: Error response from daemon: failed to create shim task: OCI runtime", "oci_runtime_failed"),
        ("Error: OCI runtime error: crun: unknown version specified", "podman_failed"),
    ],
)
def test_locks_and_container_runtimes_have_their_class(line, failure):
    assert said(f"{line}\n").failure == failure


def test_a_lock_that_another_process_holds_is_named(tmp_path):
    """By the library that datasets, transformers and torch's extensions lock with."""
    (tmp_path / "other.py").write_text("import filelock; filelock.FileLock('x.lock').acquire(0.1)")
    code = "import filelock, os, sys\nwith filelock.FileLock('x.lock'): os.system(sys.executable + ' other.py')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    found = said(done.stderr)
    assert (found.failure, "x.lock" in found.cause) == ("file_lock_timeout", True)
