"""What ended a training, GPU memory or something else: the logs of real processes, and of torchrun and NCCL."""

import subprocess
import sys

import pytest

from tui_train.runner.logs.memory_failure import MemoryFailure, read_memory_failure
from tui_train.runner.logs.memory_holders import largest_other_holder
from tui_train.runner.logs.memory_patterns import FALLBACK_PHASES, OUT_OF_MEMORY_PATTERNS, TEXT_BY_MEMORY_PHASE

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def end(folder, text, own=()):
    (folder / "log").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_memory_failure(str(folder / "log"), own)


def traceback(error, *frames):
    frames = frames or ("main", "forward")
    lines = [f'  File "/src/train.py", line {number}, in {frame}\n    {frame}()' for number, frame in enumerate(frames)]
    return "\n".join(["Traceback (most recent call last):", *lines, error])


def by(rank, text):
    return "\n".join(f"[rank{rank}]: {line}" for line in text.split("\n"))


def tee(rank, text):
    return "\n".join(f"[default{rank}]:{line}" for line in text.split("\n"))


KEY = traceback("KeyError: 'labels'", "main", "collate")
FULL = traceback(OOM)
NCCL = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited"
GLOO = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:12943."
SUMMARY = """\
E1120 21:54:14.665000 21728 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "/opt/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/torch/distributed/launcher/api.py", line 300, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_21:54:14
  host      : box
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 21929)
  error_file: <N/A>
============================================================"""
ACCELERATE = (
    'Traceback (most recent call last):\n  File "/opt/bin/accelerate", line 8, in <module>\n    sys.exit(main())\n'
    '  File "/opt/accelerate/commands/launch.py", line 800, in simple_launcher\n    raise CalledProcessError('
    "\nsubprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1."
)
WATCHDOG = """\
[rank0]:[E1120 22:05:01.123 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL
[rank0]:[E1120 22:05:01.124 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0 Rank 0] watchdog thread terminated
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 PG GUID 0 Rank 0] Process group watchdog thread terminated with exception: timeout
Fatal Python error: Aborted"""
TEARDOWN = """\
Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f0>
Traceback (most recent call last):
  File "/opt/torch/utils/data/dataloader.py", line 1604, in __del__
    self._shutdown_workers()
  File "/usr/lib/python3.11/multiprocessing/process.py", line 160, in is_alive
    assert self._parent_pid == os.getpid(), 'can only test a child process'
AssertionError: can only test a child process
/usr/lib/python3.11/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 6 leaked
  warnings.warn('resource_tracker: There appear to be %d '
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/resource_tracker.py", line 239, in main
    cache[rtype].remove(name)
KeyError: '/psm_d3f0a1'
Error in atexit._run_exitfuncs:
Traceback (most recent call last):
  File "/opt/site-packages/tensorboard/writer.py", line 9, in close
    self.queue.join()
ValueError: write to closed file
Traceback (most recent call last):
  File "/opt/wandb/sdk/lib/sock_client.py", line 53, in _sendall_with_error_handle
    sent = self._sock.send(data)
OSError: [Errno 9] Bad file descriptor
wandb: Run summary:
wandb:        train/loss 5.31
wandb: You can sync this run to the cloud by running:
W1120 22:06:23.760000 28957 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 1 SIGTERM
[rank0]:[W1120 22:06:24 ProcessGroupNCCL.cpp:1479] Warning: WARNING: destroy_process_group() was not called"""
CAUSE = "\nThe above exception was the direct cause of the following exception:\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n"
WRAPPED = traceback("RuntimeError: the training step failed", "main", "run")
STEPS = "\n".join(f"{{'loss': {5 - step / 10}, 'grad_norm': 1.0, 'epoch': 0.{step}}}" for step in range(1, 9))
RICH = (
    "╭───────────── Traceback (most recent call last) ─────────────╮\n"
    "│ /src/train.py:12 in main                                    │\n"
    "│ ❱ 12 trainer.evaluate()                                     │\n"
    "│ /opt/transformers/trainer.py:4000 in evaluation_loop        │\n"
    "╰─────────────────────────────────────────────────────────────╯\n"
)
GROUP = (
    '  + Exception Group Traceback (most recent call last):\n  |   File "/src/a.py", line 3, in <module>\n'
    "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
    '    | Traceback (most recent call last):\n    |   File "/src/a.py", line 9, in main\n'
    f"    | {OOM}\n    +------------------------------------"
)

ENDED_BY_MEMORY = {
    "its own traceback": FULL,
    "without a traceback": OOM,
    "logged, then the script ended by itself": f"ERROR:train: CUDA out of memory. Tried to allocate\n{FULL}\nbye",
    "torchrun's summary": f"{by(1, FULL)}\n{SUMMARY}",
    "torchrun's summary, old torch": f"{FULL}\n{SUMMARY}",
    "accelerate's summary": f"{FULL}\n{ACCELERATE}",
    "teardown": f"{FULL}\n{TEARDOWN}",
    "the others by NCCL, before": f"{by(0, traceback(NCCL))}\n{by(1, FULL)}\n{SUMMARY}",
    "the others by NCCL, after": f"{by(1, FULL)}\n{by(0, traceback(NCCL))}\n{SUMMARY}",
    "the others by gloo": f"{by(1, FULL)}\n{by(0, traceback(GLOO))}",
    "the others by gloo, with torchrun --tee": f"{tee(1, FULL)}\n{tee(0, traceback(GLOO))}\n{SUMMARY}",
    "an aborted watchdog": f"{by(1, FULL)}\n{WATCHDOG}",
    "ranks line by line": "\n".join(
        line
        for pair in zip(by(0, FULL).split("\n"), by(1, traceback(NCCL, "main", "barrier")).split("\n"), strict=True)
        for line in pair
    ),
    "a summary that names another rank's error": f"{by(0, KEY)}\n{by(1, FULL)}\n{SUMMARY}",
    "a wrapper that names its cause": f"{FULL}\n{CAUSE}\n{WRAPPED}",
    "wrapped twice": f"{FULL}\n{CAUSE}\n{WRAPPED}\n{CAUSE}\n{WRAPPED}",
    "while another error was handled": f"{KEY}\n{DURING}\n{FULL}",
    "while closing failed for it": f"{FULL}\n{DURING}\n{traceback(NCCL, 'destroy')}",
    "a DataLoader's or replica's own": (
        f"{traceback('RuntimeError: Caught OutOfMemoryError in replica 0 on device 0.')}\nOriginal {FULL}"
    ),
    "NCCL that finds no memory": (
        f"{by(0, traceback('torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error'))}\n"
        "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n"
        "[rank0]: Cuda failure 2 'out of memory'"
    ),
    "in C++": "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: out of memory",
    "colours": FULL.replace("torch.OutOf", "\x1b[1;31mtorch\x1b[0m.OutOf").replace("Traceback", "\x1b[31mTraceback"),
    "an error after which it got on, then the end": f"{KEY}\n{STEPS}\n{FULL}",
    "no batch that fits": traceback("RuntimeError: No executable batch size found, reached zero."),
    "a box": f"{RICH}OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "a group": GROUP,
    "an asynchronous error": (
        f"{traceback('torch.AcceleratorError: CUDA error: out of memory')}\n"
        "Search for `cudaErrorMemoryAllocation' in https://docs.nvidia.com for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    ),
    "a line of stdout amid it": FULL.replace("    forward()", "step 3 | loss 2.0\n    forward()"),
    "a thread that wrote on": f"{FULL}\nException in thread Thread-3 (_monitor):\n{traceback('ValueError: closed')}",
    "a line that could not be logged": f"{FULL}\n--- Logging error ---\n{traceback('ValueError: closed file')}",
}
NOT_ENDED_BY_MEMORY = {
    "a warning": f"WARNING:train:CUDA out of memory. Tried to allocate 2.00 GiB. Trying again\n{KEY}",
    "an error that was logged": f"ERROR:train:batch 7 skipped: CUDA out of memory. Tried to allocate 2.00 GiB.\n{KEY}",
    "a traceback that was logged": f"ERROR:train:batch 7 skipped\n{FULL}\n{STEPS}\n{KEY}",
    "a traceback that was logged just before": f"ERROR:train:batch 7 skipped\n{FULL}\n{KEY}",
    "logged by one rank": f"ERROR:train:batch 7 skipped\n{FULL}\n{by(1, KEY)}\n{SUMMARY}",
    "logged with torchrun --tee": f"{tee(0, FULL)}\n{tee(1, KEY)}\n{SUMMARY}",
    "found by another batch size": f"{FULL}\nTrying batch size 4\n{STEPS}\n{KEY}\n{ACCELERATE}",
    "got over, then killed": f"{FULL}\n{STEPS}\nKilled",
    "got over, then a hang": f"{FULL}\n{STEPS}\n{WATCHDOG}",
    "then killed": f"{FULL}\n{SUMMARY.replace('exitcode  : 1 ', 'exitcode  : -9 ')}",
    "handled, and that failed": f"{FULL}\n{DURING}\n{KEY}",
    "the root's own error": f"{by(0, FULL)}\n{by(1, KEY)}\n{SUMMARY}",
    "a source line": f"{KEY.replace('collate()', 'raise MemoryError(' + repr(OOM) + ')')}",
    "a hint": f"hint: a larger batch may end in CUDA out of memory. Lower it then.\n{KEY}",
    "words": "java.lang.OutOfMemoryError: Java heap space\nMemoryError: out of memory of nothing",
    "nothing": "",
    "an unfinished traceback": "\n".join(FULL.split("\n")[:-1]),
}


@pytest.mark.parametrize("shape", ENDED_BY_MEMORY)
def test_what_ended_it_was_gpu_memory(tmp_path, shape):
    for newline in ("\n", "\r\n"):
        assert end(tmp_path, ENDED_BY_MEMORY[shape].replace("\n", newline)).phase in FALLBACK_PHASES


@pytest.mark.parametrize("shape", NOT_ENDED_BY_MEMORY)
def test_what_ended_it_was_something_else(tmp_path, shape):
    assert end(tmp_path, NOT_ENDED_BY_MEMORY[shape]).phase == ""


CAUGHT = """
import logging
def forward():
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
try:
    forward()
except RuntimeError as error:
    {handled}
{after}
"""


@pytest.mark.parametrize(
    ("handled", "after", "phase"),
    [
        ("logging.exception('step 3')", "{}['labels']", ""),
        ("logging.warning('again: %s', error)", "{}['labels']", ""),
        ("raise ValueError('step 3 failed') from error", "", "loss"),
        ("{}['labels']", "", ""),
        ("raise", "", "loss"),
        ("logging.exception('step 3'); raise SystemExit(1)", "", "loss"),
        ("global C\n    class C:\n        def __del__(self): {}['x']\n    c = C(); del c; raise", "", "loss"),
        ("import threading; t = threading.Thread(target=lambda: {}['x']); t.start(); t.join(); raise", "", "loss"),
    ],
)
def test_a_real_process(tmp_path, handled, after, phase):
    code = CAUGHT.format(handled=handled, after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 1
    assert end(tmp_path, done.stderr).phase == phase, done.stderr.decode()


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        (("main", "training_step", "forward"), "loss"),
        (("evaluate", "evaluation_loop", "forward"), "eval"),
        (("main", "from_pretrained", "_apply"), "load"),
        (("main", "_foreach_add_"), "step"),
        (("main", "barrier"), "start"),
        (("main", "evaluate", "barrier"), "eval"),
        (("main",), "loss"),
    ],
)
def test_the_phase_is_that_of_the_innermost_frame(tmp_path, frames, phase):
    text = traceback(OOM, *frames)
    behind_a_bar = f"\r 40%|████      | 4/10 [00:00<00:00, 20.03it/s]{by(1, text)}"
    for written in (text, by(1, text), tee(3, text), behind_a_bar):
        assert end(tmp_path, f"{FULL}\n{STEPS}\n{written}\n{SUMMARY}").phase == phase
    assert phase in TEXT_BY_MEMORY_PHASE


def test_a_line_that_repeats_the_error_keeps_its_phase(tmp_path):
    said = traceback("RuntimeError: CUDA error: out of memory", "main", "_foreach_add_")
    assert end(tmp_path, f"{said}\nERROR: CUDA out of memory").phase == "step"


@pytest.mark.parametrize(
    ("where", "phase"),
    [
        ("forward", "loss"), ("evaluation", "eval"), ("trial", "loss"), ("backward", "loss"), ("closure", "loss"),
        ("step", "step"), ("clipping", "step"), ("load", "load"), ("resume", "load"), ("barrier", "start"),
        ("nowhere", "loss"),
    ],
)  # fmt: skip
def test_the_phase_of_torchs_own_tracebacks(tmp_path, tracebacks, where, phase):
    assert end(tmp_path, tracebacks[where]).phase == phase


# ---- who holds the card

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB "
    "of which 1.00 MiB is free. {} Of the allocated memory 1.00 GiB is allocated by PyTorch"
)
OURS = "Including non-PyTorch memory, this process has 2.00 GiB memory in use."


@pytest.mark.parametrize(
    ("held", "own", "stranger"),
    [
        (f"Process 4242 has 20.50 GiB memory in use. {OURS}", (), "4242"),
        (f"Process 17 has 4.00 GiB memory in use. Process 4242 has 17.50 GiB memory in use. {OURS}", (), "4242"),
        (f"Process 4242 has 20.50 GiB memory in use. {OURS}", {4242}, ""),
        (f"Process 17 has 4.00 GiB memory in use. Process 4242 has 17.50 GiB memory in use. {OURS}", {4242}, "17"),
        # A display is not in the way, and of what torch does not tell apart any may be the training.
        (f"Process 4242 has 300.00 MiB memory in use. {OURS}", (), ""),
        (f"Process 4242 has 1.50 GiB memory in use. {OURS}", (), ""),
        ("Process 4242 has 20.50 GiB memory in use.", (), ""),
        ("Process 17 has 4.00 GiB memory in use. Process 4242 has 17.50 GiB memory in use.", {17}, "4242"),
        (f"Process 4242 has ... GiB memory in use. {OURS}", (), ""),
        (f"Process {'9' * 400} has {'9' * 400} GiB memory in use. {OURS}", (), ""),
        (OURS, (), ""),
    ],
)
def test_another_process_that_fills_the_card(tmp_path, held, own, stranger):
    assert end(tmp_path, MESSAGE.format(held), own) == MemoryFailure("loss", stranger)


def test_in_a_container_the_holder_of_as_much_as_torch_has_is_torch_itself():
    message = MESSAGE.format("Process 17 has 1.60 GiB memory in use. Process 4242 has 20.00 GiB memory in use.")
    assert largest_other_holder(message).pid == "4242"


@pytest.mark.parametrize(
    ("said", "on_host"),
    [
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", True),
        ("numpy.core._exceptions.MemoryError: Unable to allocate 8 GiB", True),
        ("MemoryError", True),
        ("  exitcode  : -9 (pid: 17)", True),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0", True),
        ("RuntimeError: DataLoader worker (pid 17) is killed by signal: Killed.", True),
        (OOM, False),
        ("WARNING: Cannot allocate memory for the cache, trying less", False),
        ("step 5 | loss 2.0", False),
    ],
)
def test_the_hosts_memory_is_told_apart(tmp_path, said, on_host):
    assert end(tmp_path, said).maybe_out_of_host_memory is on_host


# ---- any log at all


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 5000, bytes(range(256)) * 200, b"\xff\xfe" * 999, b"\r" * 100_000, b"[rank1]: " * 50_000,
        b"Traceback (most recent call last):\n" * 20_000, b"a" * 5_000_000, b"(pid=" * 99_999,
        b"Process 1 has 1.1.1 GiB memory in use\n" * 999, ("\u202e\ud7ff\n" * 999).encode("utf-8", "surrogatepass"),
    ],
    ids=range(10),
)  # fmt: skip
def test_no_bytes_end_it(tmp_path, data):
    assert end(tmp_path, data).phase == ""
    assert end(tmp_path, data + b"\n" + FULL.encode()).phase == "loss"


@pytest.mark.whole
def test_of_a_long_log_the_end_is_read(tmp_path):
    noise = b"rank 1 waits\n" * 400_000
    assert end(tmp_path, FULL.encode() + b"\n" + noise).phase == ""
    assert end(tmp_path, noise + FULL.encode()).phase == "loss"


def test_without_a_log_nothing_ended_it(tmp_path):
    assert read_memory_failure(str(tmp_path / "none"), ()) == MemoryFailure()
    assert read_memory_failure(str(tmp_path), ()) == MemoryFailure()


@pytest.mark.parametrize("expression", [expression for _, expression in OUT_OF_MEMORY_PATTERNS])
def test_every_wording_passes_the_quick_look(expression):
    """A wording that it does not let through would never be seen."""
    from hypothesis import given, settings
    from hypothesis import strategies as st

    from tui_train.runner.logs import tracebacks

    @settings(max_examples=30, database=None)
    @given(st.from_regex(expression))
    def passes(text):
        assert tracebacks._MEMORY_WORD_PATTERN.search(text)

    passes()
