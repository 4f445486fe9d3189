"""A container whose client is gone: its log goes on from exactly where it broke off, and it ends with its code."""

import errno
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import container_engines
import pytest
from support import SCRIPTS, example_count, wait_until

from tui_train.runner import attempt as attempts
from tui_train.runner.containers import container, rejoin
from tui_train.runner.logs.already_logged import ByteSource, LoggedTailFilter, skip_already_logged
from tui_train.runner.system.processes import ProcessFamily
from tui_train.runner.system.transport import LocalTransport, NodeCommand

# As a plan has it before every command in a container.
ONE_STREAM = ("sh", "-c", 'exec "$0" "$@" 2>&1')
NAME = "tui-train-20261122-101010-1-2-1"


# ---- what a log has already


def beyond(log, *streams):
    """Return what the two streams have beyond a log, and what the log has beyond them."""
    sources = []
    for text in (log, *streams):
        with tempfile.TemporaryFile() as file:
            file.write(text)
            file.seek(0)
            sources.append(ByteSource(os.dup(file.fileno())))
    left = skip_already_logged(sources[0], sources[1:])
    for source in sources:
        os.close(source.descriptor)
    return [text[source.passed :] for text, source in zip(streams, sources[1:], strict=True)], left


@pytest.mark.parametrize(
    ("log", "out", "err", "rest"),
    [
        (b"", b"a\n", b"b\n", [b"a\n", b"b\n"]),
        (b"a\n", b"a\nb\n", b"", [b"b\n", b""]),
        (b"tick\n" * 3, b"tick\n" * 5, b"", [b"tick\n" * 2, b""]),
        (b"x\n", b"x\ny\n", b"x\nz\n", [b"y\n", b"x\nz\n"]),
        (b"step 1\nste", b"step 1\nstep 2\n", b"", [b"p 2\n", b""]),
        (b"\r 1%|step 1\n\r 2%|", b"step 1\nstep 2\n", b"\r 1%|\r 2%|\r 3%|", [b"step 2\n", b"\r 3%|"]),
        # The client's own words, before and after.
        (b"WARNING: no swap\nstep 1\nstep 2\n", b"step 1\nstep 2\nstep 3\n", b"", [b"step 3\n", b""]),
        (b"step 1\nerror during connect\nstep 2\n", b"step 1\nstep 2\nstep 3\n", b"", [b"step 3\n", b""]),
        # An engine that keeps text only writes other bytes than the training.
        (b"a \xff b\nstep 2\n", b"a \xef\xbf\xbd b\nstep 2\nstep 3\n", b"", [b"step 3\n", b""]),
    ],
)
def test_what_a_log_lacks(log, out, err, rest):
    assert beyond(log, out, err) == (rest, b"")


@pytest.mark.parametrize("seed", range(example_count(40)))
def test_no_line_is_lost_and_none_is_there_twice(seed):
    """However two streams of lines and bars came one between the other, in whatever pieces they were written."""
    chance = random.Random(seed)
    streams = [
        [f"{name} {number} {'x' * chance.choice([0, 3, 3000])}\n".encode() for number in range(chance.randrange(200))]
        for name in ("out", "err")
    ]
    streams[1] += [b"\r%d%%|##" % number for number in range(chance.randrange(99))]
    order = [0] * len(streams[0]) + [1] * len(streams[1])
    chance.shuffle(order)
    left = [iter(stream) for stream in streams]
    cut = chance.randrange(len(order) + 1)
    log = b"".join(next(left[one]) for one in order[:cut])
    rest = [b"".join(one) for one in left]
    # The client is killed in the midst of a line.
    half = chance.randrange(len(rest[0]) + 1) if chance.random() < 0.5 else 0
    log, rest[0] = log + rest[0][:half], rest[0][half:]
    assert beyond(log, *map(b"".join, streams)) == (rest, b"")


def test_a_log_of_many_megabytes_is_read_in_pieces():
    out = b"".join(b"step %d loss 1.234\n" % number for number in range(200_000))
    source = ByteSource(os.memfd_create("log"))
    os.write(source.descriptor, out[:-10])
    os.lseek(source.descriptor, 0, os.SEEK_SET)
    assert beyond(out[:-10], out, b"") == ([out[-10:], b""], b"")
    while source.fill_to(1):
        source.skip(source.fill_to(1))
        assert len(source._data) < 1 << 20
    os.close(source.descriptor)


@pytest.mark.parametrize(
    ("begun", "pieces", "new"),
    [
        (b"", [b"a"], b"a"),
        (b"tick 5", [b"tick 5 done\n"], b" done\n"),
        (b"tick 5", [b"ti", b"ck 5", b" done\n"], b" done\n"),
        (b"Error: EOF", [b"Epoch 5\n"], b"Epoch 5\n"),
        (b"\rbar 1|" * 40, [b"\rbar 1|" * 30, b"\rbar 1|" * 11], b"\rbar 1|"),
        (b"\rbar 1|" * 40 + b"error: EOF\n", [b"\rbar 1|" * 41], b"\rbar 1|"),
    ],
)
def test_what_an_engine_tells_late_is_not_told_twice(begun, pieces, new):
    ahead = LoggedTailFilter(begun)
    assert b"".join(ahead.new_bytes(1, piece) for piece in pieces) == new


# ---- an engine that is none, but has the words


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """An engine whose one container has said what stands in files, and has ended, as far as files say so."""
    folder = tmp_path / "stub"
    folder.mkdir()
    for name in ("out", "err", "code"):
        (folder / name).write_bytes(b"")
    engine = tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    engine.write_text(
        f"""#!/bin/sh
cd {folder}
case "$*" in
  "logs --follow"*) tail -c +1 -f out & one=$!; tail -c +1 -f err >&2 & two=$!
    until [ -s code ]; do sleep 0.05; done; sleep 0.3; kill $one $two ;;
  logs*) [ ! -e no-logs ] || {{ echo "configured logging driver does not support reading" >&2; exit 1; }}
    cat out; cat err >&2 ;;
  wait*) until [ -s code ]; do sleep 0.05; done; cat code ;;
  *format*) if [ -s code ]; then echo "false $(cat code)"; else echo "true 0"; fi ;;
  *inspect*) [ ! -e gone ] ;;
  *) exit 9 ;;
esac
"""
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent}:{os.environ['PATH']}")
    return folder


@pytest.fixture(autouse=True)
def _zipped(zipped_runner):
    """It starts itself once more."""


class Rejoined:
    """The container, rejoined as the supervisor does."""

    def __init__(self, log, engine="docker"):
        self.transport = LocalTransport()
        self.leader = rejoin.rejoin_container(self.transport, engine, NAME, str(log), "mark")

    def exit_code(self):
        return self.transport.exit_code(self.leader)


def ended(task):
    return wait_until(lambda: (code := task.exit_code()) is not None and (code,), 30)[0]


def test_it_goes_on_and_ends_as_the_container_does(tmp_path, stub):
    log = tmp_path / "attempt-1.log"
    log.write_bytes(b"WARNING: a client's own\nstep 1\n! 1\nst")
    (stub / "out").write_bytes(b"step 1\nstep 2\n")
    (stub / "err").write_bytes(b"! 1\n! 2\n")
    task = Rejoined(log)
    wait_until(lambda: log.read_bytes().endswith(b"step 1\n! 1\nstep 2\n! 2\n") or b"! 2\nep 2\n" in log.read_bytes())
    assert task.exit_code() is None
    with (stub / "out").open("ab") as file:
        file.write(b"step 3\n")
    wait_until(lambda: b"step 3\n" in log.read_bytes())
    (stub / "code").write_text("7")
    assert ended(task) == 7
    text = log.read_bytes()
    assert Counter(re.findall(rb"ep \d\n|! \d\n", text)) == dict.fromkeys(
        (b"ep 1\n", b"ep 2\n", b"ep 3\n", b"! 1\n", b"! 2\n"), 1
    )


def test_a_container_that_has_ended_already_tells_its_last_lines(tmp_path, stub):
    log = tmp_path / "attempt-1.log"
    log.write_bytes(b"step 1\n")
    (stub / "out").write_bytes(b"step 1\nstep 2\nthe end")
    (stub / "code").write_text("3")
    assert ended(Rejoined(log)) == 3
    assert log.read_bytes() == b"step 1\nstep 2\nthe end"


def test_an_engine_that_keeps_no_log_says_so_and_the_code_is_the_containers(tmp_path, stub):
    log = tmp_path / "attempt-1.log"
    log.write_bytes(b"step 1\n")
    (stub / "no-logs").touch()
    task = Rejoined(log)
    wait_until(lambda: b"does not support reading" in log.read_bytes())
    (stub / "code").write_text("5")
    assert ended(task) == 5
    assert log.read_bytes().count(b"\n") == 3


def test_an_engine_that_is_away_is_left_to_whoever_asks(tmp_path, stub):
    log = tmp_path / "attempt-1.log"
    log.write_bytes(b"step 1\n")
    (stub / "no-logs").touch()
    (stub / "gone").touch()
    assert ended(Rejoined(log)) == 125
    assert log.read_bytes() == b"step 1\n"


@pytest.mark.parametrize(("container", "stops"), [("0", False), ("143", True)])
def test_a_stop_after_the_end_of_a_container_does_not_make_it_a_stopped_one(stub, monkeypatch, container, stops):
    (stub / "code").write_text(container)
    (stub / "gone").touch()
    signals = SimpleNamespace(stop="SIGTERM", code=143)
    planned, transport = SimpleNamespace(engine="docker", nodes=1, hosts=()), SimpleNamespace(exit_code=lambda _: 0)
    start = SimpleNamespace(planned=planned, signals=signals, transport=transport)
    monkeypatch.setattr(attempts, "_stop_attempt", lambda *_: 143)
    assert attempts._wait_for_attempt_end(start, ProcessFamily("none"), NAME, "") == (
        (143, True) if stops else (0, False)
    )


def test_a_start_without_a_free_descriptor_blocks_no_signal_and_leaves_nothing_open(tmp_path, monkeypatch):
    def full(_flags):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("tui_train.runner.system.transport.os.pipe2", full)
    blocked, opened = signal.pthread_sigmask(signal.SIG_BLOCK, ()), len([*Path("/proc/self/fd").iterdir()])
    try:
        with pytest.raises(OSError, match="open files"):
            LocalTransport().start(NodeCommand(("true",), os.environ, str(tmp_path / "log")))
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
        assert len([*Path("/proc/self/fd").iterdir()]) == opened
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


# ---- real engines


pytestmark = pytest.mark.xdist_group("engines")


def without_client(log, engine, *arguments, told, wrapped=ONE_STREAM):
    """Start a container that tells its steps, and kill its client once it has written more than so many to a log."""
    words = [engine, "run", f"--name={NAME}", "--rm=false", "--init", "--pull=never", "--network=none"]
    words += [
        f"--volume={SCRIPTS}:{SCRIPTS}:ro",
        container_engines.IMAGE_NAME,
        *wrapped,
        "python",
        f"{SCRIPTS}/teller.py",
        *arguments,
    ]
    with log.open("ab") as file:
        client = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        wait_until(lambda: len(steps(log)[0]) > told, 60)
    finally:
        client.kill()
        client.wait()


def steps(log):
    """How often each step is told: in lines, and in the bar."""
    text = log.read_bytes()
    return Counter(re.findall(rb"line (\d{5})\.", text)), Counter(re.findall(rb"\rbar (\d{5})\|", text))


@pytest.mark.engine
@pytest.mark.parametrize(("wrapped", "end"), [(ONE_STREAM, ""), ((), "\n")], ids=["one stream", "two streams"])
def test_a_lost_client_loses_no_line(tmp_path, engine, containers, wrapped, end):
    """Nor any of a bar that never ends its line, where both are one stream."""
    log = tmp_path / "attempt-1.log"
    without_client(log, engine, "400", "0.01", "7", end, told=40, wrapped=wrapped)
    time.sleep(1)
    before = len(steps(log)[0])
    assert container.must_rejoin_container(engine, NAME, 137, lambda: True)
    task = Rejoined(log, engine)
    wait_until(lambda: len(steps(log)[0]) > before + 50)
    assert ended(task) == 7
    assert steps(log) == ({b"%05d" % step: 1 for step in range(400)},) * 2
    # Of two streams, the engine decides which comes last.
    assert log.read_bytes().count(b"no end of line") == 1
    assert log.read_bytes().endswith(b"no end of line") or wrapped != ONE_STREAM
    assert not container.must_rejoin_container(engine, NAME, 7, lambda: True)
    container.remove_container(engine, NAME)
    assert containers() == []


@pytest.mark.engine
@pytest.mark.whole
def test_a_container_that_ended_before_it_was_rejoined(tmp_path, engine, containers):
    log = tmp_path / "attempt-1.log"
    without_client(log, engine, "60", "0.01", "3", told=0)
    wait_until(lambda: container.container_exit_code(engine, NAME) is not None)
    assert container.must_rejoin_container(engine, NAME, 137, lambda: True)
    assert ended(Rejoined(log, engine)) == 3
    assert steps(log) == ({b"%05d" % step: 1 for step in range(60)},) * 2
    container.remove_container(engine, NAME)


@pytest.mark.engine
@pytest.mark.whole
def test_a_second_client_may_be_lost_as_well(tmp_path, engine, containers):
    log = tmp_path / "attempt-1.log"
    without_client(log, engine, "300", "0.01", "0", told=20)
    task = Rejoined(log, engine)
    before = len(steps(log)[0])
    wait_until(lambda: len(steps(log)[0]) > before + 20)
    os.killpg(task.leader.pid, signal.SIGKILL)
    assert ended(task) == 137
    assert ended(Rejoined(log, engine)) == 0
    assert steps(log) == ({b"%05d" % step: 1 for step in range(300)},) * 2
    container.remove_container(engine, NAME)


@pytest.mark.engine
@pytest.mark.whole
def test_what_an_earlier_start_left(engine, containers, tmp_path):
    """Names that train are told; a container that has ended is removed, and one of another start is let be."""
    mark = NAME.removeprefix("tui-train-").rpartition("-")[0]
    other = container.container_name(engine, "another", 1)
    words = [engine, "run", "-d", "--pull=never", "--network=none"]
    for name, seconds in ((NAME, "60"), (container.container_name(engine, mark, 2), "0"), (other, "0")):
        subprocess.run(
            [*words, f"--name={name}", container_engines.IMAGE_NAME, "sleep", seconds], check=True, capture_output=True
        )
    wait_until(lambda: container.container_exit_code(engine, container.container_name(engine, mark, 2)) == 0)
    assert container.remove_ended_containers_and_list_running(engine, mark) == (NAME,)
    assert set(containers()) == {NAME, other}
    container.stop_container(engine, NAME, 1)
    assert container.container_exit_code(engine, NAME) is not None
    assert container.remove_ended_containers_and_list_running(engine, mark) == ()
    assert containers() == [other]
