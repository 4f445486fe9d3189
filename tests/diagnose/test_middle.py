"""Large logs: nothing between head and tail that a signature is about gets lost, in bounded memory."""

import contextlib
import gzip
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from diagnosed import said
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from support import sample

from tui_train.diagnose import Evidence, diagnose, diagnose_log, log_reader
from tui_train.diagnose.log_middle import KeptMiddleLines, _all_line_expressions, _possible_expression_numbers
from tui_train.diagnose.log_reader import relevant_log_lines
from tui_train.diagnose.required_words import normalized_for_required_words, required_words

STEP = "step {} | loss 2.5 | lr 1.0e-03\n"
FRAMES = "frame #{0}: c10d::ProcessGroupNCCL::run() + 0x{0} (0x7f in /opt/torch/lib/libtorch.so)\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
STACK = 'Traceback (most recent call last):\n  File "/a.py", line 9, in {}\n    loss()\n{}\n'


def repeated(line, size):
    return "".join(line.format(number) for number in range(size // len(line) + 1))


# Beyond what is kept whole at each end.
BEFORE = repeated(STEP, log_reader._BLOCK_BYTES + 20_000)
AFTER = repeated(FRAMES, (log_reader._TAIL_BLOCK_COUNT + 1) * log_reader._BLOCK_BYTES)


def around(text, before=BEFORE, after=AFTER):
    return f"{before}{text}\n{after}"


@pytest.mark.parametrize(
    ("text", "failure"),
    sample(
        [
            (
                "[rank3]:[E1120 22:05:01 x.cpp:616] [Rank 3] Watchdog caught collective operation timeout: Work(Seq=1)",
                "nccl_timeout",
            ),
            ("Failed to initialize NVML: Driver/library version mismatch", "driver_library_mismatch"),
            ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-20 DUE TO TIME LIMIT ***", "slurm_time_limit"),
            ("NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus.", "gpu_hardware"),
            (
                "\x1b[31m[rank1]: RuntimeError: CUDA error: invalid device \x1b[1mordinal\x1b[0m",
                "invalid_device_ordinal",
            ),
            (f"[rank1]: {OOM}", "cuda_oom"),
            ("bash: line 1: accelerate: command not found", "command_not_found"),
        ],
        3,
    ),
)
def test_a_cause_in_the_middle_is_found(text, failure):
    whole = around(text, after=AFTER + STACK.format("main", "RuntimeError: no end"))
    found = said(whole)
    assert found.failure == failure
    assert found.line_number == whole[: whole.index(text[:20])].count("\n") + 1


@pytest.mark.whole
def test_it_is_not_lost_among_many_others():
    noise = repeated("RuntimeError: retry {}\n", 800_000)
    assert said(around("GPU has fallen off the bus", noise, noise)).failure == "gpu_hardware"


def test_what_only_informs_does_not_take_its_place():
    told = repeated("INFO train: CUDA error: invalid device ordinal was seen at {}\n", 50_000)
    assert said(around(told + "RuntimeError: CUDA error: invalid device ordinal")).failure == "invalid_device_ordinal"


@pytest.mark.whole
@pytest.mark.parametrize("where", ["evaluate", "barrier", "training_step"])
def test_a_traceback_in_the_middle_keeps_its_frames(where):
    found = said(around(STACK.format(where, OOM)))
    assert found.failure == "cuda_oom"
    assert ("recipe.eval_batch" in found.remedy) == (where == "evaluate")


def test_an_error_of_the_script_in_the_middle_is_shown():
    found = said(around(STACK.format("main", "KeyError: 'labels'")))
    assert (found.failure, found.line) == ("user_exception", "KeyError: 'labels'")


@pytest.mark.whole
def test_what_a_training_got_over_in_the_middle_is_not_to_blame():
    text = around(f"{OOM}\n{repeated(STEP, 300_000)}" + "bash: line 1: accelerate: command not found")
    assert said(text).failure == "command_not_found"


@pytest.mark.whole
def test_a_healthy_log_stays_healthy():
    frightening = "INFO train step {} loss 2.0, 0 errors, 0 nan grads, error_file=<N/A>\n"
    assert said(repeated(frightening, 2_000_000), 0) is None


def test_many_kinds_of_lines_are_kept_few_of():
    middle = KeptMiddleLines()
    middle.keep_relevant_lines(
        0, b"\n".join(b"RuntimeError: CUDA error: invalid device ordinal %d" % number for number in range(5000))
    )
    kept = [number for number, _ in middle.kept_lines()]
    assert len(kept) < 50
    assert kept[0] == 0
    assert kept[-1] == 4999


MEASURE = """
import io, resource, sys
from tui_train.diagnose import log_reader
class Log(io.RawIOBase):
    left = int(sys.argv[1]) << 20
    step = 0
    def read(self, size):
        lines = []
        while size > 0 and self.left > 0:
            self.step += 1
            line = b"step %d | loss %.4f | RuntimeError: id %x\\n" % (self.step, 1 / self.step, self.step)
            lines.append(line); size -= len(line); self.left -= len(line)
        return b"".join(lines)
found = log_reader.relevant_log_lines(Log())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, len(found))
"""


@pytest.mark.whole
def test_memory_does_not_grow_with_the_log():
    def peak(megabytes):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(megabytes)], capture_output=True, text=True, check=True, timeout=250
        )
        return [int(number) for number in done.stdout.split()]

    small, large = peak(2), peak(26)
    assert large[0] - small[0] < 12, "MiB"
    assert large[1] < small[1] + 3000, "lines"


# ---- required words


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (r"^Error 80\d$", [{"error "}]),
        (r"(?i)loss.{0,9}(nan|inf)\b", [{"loss"}, {"nan", "inf"}]),
        (r"a(?!bad)b+c?def", [{"a"}, {"b"}, {"def"}]),
        (r"(?:x(?P<y>one|two)|[ab]three\.)", [{"one", "three.", "two"}]),
        (r"no(one)?\s*thing|\x27else", [{"thing", "else"}]),
        (r"(maybe)?", []),
        (r"[\w.]*(\d|x)", []),
    ],
)
def test_the_words_of_an_expression(expression, wanted):
    found = [{word.decode() for word in words} for words in required_words(expression)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, wanted))


def test_each_expression_has_words():
    assert len(_all_line_expressions()) > 900
    assert all(expression.required for expression in _all_line_expressions())


@pytest.mark.whole
@pytest.mark.parametrize("part", sample(range(8), 8))
def test_what_an_expression_matches_is_looked_at(part):
    known = _all_line_expressions()
    for number in range(part, len(known), 8):
        expression = known[number]
        words = [word.decode() for word in sorted(expression.required[0])]
        texts = st.from_regex(expression.pattern) if expression.pattern.pattern else st.sampled_from(words)

        @settings(
            max_examples=3, database=None, phases=[Phase.generate],
            suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
        )  # fmt: skip
        @given(texts, st.just(number))
        def looked_at(text, number):
            assert number in _possible_expression_numbers(
                normalized_for_required_words(text.encode("utf-8", "replace"))
            ), text

        with contextlib.suppress(Unsatisfiable):  # some only look ahead for what must not be there
            looked_at()


# ---- a log so large that its end is read first


class Noted(log_reader.LogReadObserver):
    """Notes what it is told, and leaves after so many bytes."""

    def __init__(self, leaves=1 << 60, by=log_reader.StopReading):
        self.ends, self.read, self.leaves, self.by = [], [], leaves, by

    def note_early_diagnosis(self, found):
        self.ends.append(found and found.failure)

    def note_bytes_read(self, done, total):
        self.read.append((done, total))
        if done >= self.leaves:
            raise self.by


@pytest.fixture
def small(monkeypatch):
    """A log of some hundred KB counts as large."""
    monkeypatch.setattr(log_reader, "_BLOCK_BYTES", 8 << 10)
    monkeypatch.setattr(log_reader, "_MIN_LARGE_LOG_BYTES", 200_000)
    monkeypatch.setattr(log_reader, "_LARGE_LOG_END_BYTES", 60_000)


LOGS = sorted((Path(__file__).parents[1] / "logs").glob("*.log"))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("path", sample(LOGS, 4, 1), ids=lambda path: path.stem)
@pytest.mark.parametrize("where", ["between", "before", "after"])
def test_a_large_log_has_the_verdict_of_one_read_in_order(path, where, tmp_path):
    steps = repeated(STEP, 150_000).encode()
    one, other = path.read_bytes(), b"step 1 | loss 2.0\n"
    pieces = {"between": (other, steps, one, steps), "before": (steps, steps, one), "after": (one, steps, steps)}
    data = b"\n".join(pieces[where])
    (tmp_path / "log").write_bytes(data)
    watch = Noted()
    found = diagnose_log(str(tmp_path / "log"), 1, watch)
    assert found == diagnose(Evidence(lines=relevant_log_lines(io.BytesIO(data)), exit_code=1))
    assert len(watch.ends) == 1
    assert where != "before" or watch.ends == [found and found.failure]
    done, totals = zip(*watch.read, strict=True)
    assert [*done] == sorted(done)
    assert {*totals} == {len(data)}
    assert done[-1] > len(data) - 2 * log_reader._TAIL_BLOCK_COUNT * log_reader._BLOCK_BYTES


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("by", [log_reader.StopReading, KeyboardInterrupt])
def test_a_large_log_that_is_left_tells_what_was_read_and_its_end(by, tmp_path):
    steps = repeated(STEP, 150_000)
    rank = f"{steps}[rank3]: {OOM}\n{steps}"
    (tmp_path / "log").write_text(f"{rank}{steps}bash: line 1: accelerate: command not found\n")
    early, late = Noted(0, by), Noted(200_000, by)
    found = diagnose_log(str(tmp_path / "log"), 1, early)
    assert (found.failure, found.position_text, early.stopped) == ("command_not_found", "near its end", True)
    assert early.ends == ["command_not_found"]
    found = diagnose_log(str(tmp_path / "log"), None, late)
    assert late.stopped
    whole = diagnose_log(str(tmp_path / "log"), None)
    assert found.failure == whole.failure


@pytest.mark.usefixtures("small")
def test_a_compressed_log_is_read_from_its_start_alone(tmp_path):
    with gzip.open(tmp_path / "log.gz", "wb") as file:
        file.write(os.urandom(1 << 16).hex().encode() * 4 + f"\n{OOM}\n".encode())
    watch = Noted()
    assert diagnose_log(str(tmp_path / "log.gz"), 1, watch).failure == "cuda_oom"
    assert watch.ends == []
    assert watch.read


@pytest.mark.usefixtures("small")
def test_a_list_reads_the_end_of_a_large_log_alone(tmp_path):
    (tmp_path / "log").write_text(f"{repeated(STEP, 300_000)}{OOM}\n")
    watch = log_reader.LargeLogStopper()
    assert diagnose_log(str(tmp_path / "log"), 1, watch).failure == "cuda_oom"
    assert watch.stopped


@pytest.mark.whole
def test_ctrl_c_ends_the_reading_of_a_large_log_with_what_is_known(tmp_path):
    log = tmp_path / "log"
    with log.open("w") as file:
        for _ in range(32):
            file.write(repeated(STEP, 10_000_000))
        file.write(f"{OOM}\n")
    command = [sys.executable, "-m", "tui_train", "diagnose", str(log)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "end shows out of GPU memory" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "shown by  near its end: torch.OutOfMemoryError" in out
    assert "Stopped" in error
