"""What was read in data is kept: used for the very same question, and for no other."""

import os
import shlex
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from chat_data import CHAT_ROW, PLAIN_TEMPLATE, write_rows
from msgspec.structs import replace
from support import make_executable, toolchain

from tui_train.base.app_paths import data_summaries_folder
from tui_train.facts.answer_cache import MAX_CACHED_ANSWERS
from tui_train.facts.data.data_cache import read_data_report
from tui_train.facts.data.data_report import DataQuestion

LONG_AGO = 1_600_000_000


@pytest.fixture
def reader(tmp_path):
    """A Python that notes each start, and the question to it; the file that it reads has settled."""
    (tmp_path / "env/lib/python3.11/site-packages").mkdir(parents=True)
    count = tmp_path / "count"
    starts = f'echo x >> {shlex.quote(str(count))}\nexec {shlex.quote(sys.executable)} "$@"'
    python = make_executable(tmp_path / "env/bin/python", f"#!/bin/sh\n{starts}\n")
    data = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    settled(tmp_path)
    return toolchain(python), DataQuestion(files=(str(data),)), lambda: len(count.read_text().split())


def settled(*folders):
    """Let files be as old as those that somebody did not write just now."""
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.utime(path, (LONG_AGO, LONG_AGO))


def kept():
    return sorted(data_summaries_folder().glob("*"))


def test_the_same_is_read_once(reader):
    tool, question, starts = reader
    first = read_data_report(tool, question)
    assert (read_data_report(tool, question), starts()) == (first, 1)
    assert first.rows == 1
    (file,) = kept()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it holds samples of the data"


def longer(path):
    write_rows(path, [CHAT_ROW, CHAT_ROW])
    os.utime(path, (LONG_AGO, LONG_AGO))


CHANGES = {
    "the size of a file": lambda root, tool, asked: longer(root / "d.jsonl"),
    "the time of a file": lambda root, tool, asked: os.utime(root / "d.jsonl", (LONG_AGO, LONG_AGO + 1)),
    "a library": lambda root, tool, asked: (replace(tool, packages={"trl": "9.9"}), asked),
    "an installation": lambda root, tool, asked: (root / "env/lib/python3.11/site-packages/new").mkdir(),
    "the length": lambda root, tool, asked: (tool, replace(asked, length=7)),
    "the method": lambda root, tool, asked: (tool, replace(asked, method="dpo")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_is_read_again(tmp_path, reader, name):
    tool, question, starts = reader
    read_data_report(tool, question)
    changed = CHANGES[name](tmp_path, tool, question)
    read_data_report(*(changed if isinstance(changed, tuple) else (tool, question)))
    assert starts() == 2


def test_a_folder_of_data_is_read_again_for_a_new_file(tmp_path, reader):
    tool, _, starts = reader
    question = DataQuestion(files=(str(tmp_path / "many"),))
    (tmp_path / "many").mkdir()
    for number in (1, 2):
        write_rows(tmp_path / "many" / f"{number}.jsonl", [CHAT_ROW])
        settled(tmp_path / "many")
        assert [(read_data_report(tool, question).rows, starts()) for _ in range(2)] == [(number, number)] * 2


def test_a_model_is_read_again_for_a_new_template(tmp_path, tokenizer, warm_python):
    import shutil

    model = Path(shutil.copytree(tokenizer(PLAIN_TEMPLATE), tmp_path / "model"))
    data = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    settled(tmp_path)
    question = DataQuestion(files=(str(data),), model=str(model))
    before = read_data_report(toolchain(warm_python), question)
    (model / "chat_template.jinja").write_text(PLAIN_TEMPLATE + "the end")
    settled(model)
    after = read_data_report(toolchain(warm_python), question)
    assert before.tokens.total < after.tokens.total


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\n{}", None])
def test_a_damaged_answer_is_ignored(reader, content):
    tool, question, starts = reader
    read_data_report(tool, question)
    (file,) = kept()
    file.write_bytes(file.read_bytes()[:-9] if content is None else content)
    assert (read_data_report(tool, question).rows, starts()) == (1, 2)
    assert (read_data_report(tool, question).rows, starts()) == (1, 2), "it was written again"


@pytest.mark.whole
def test_what_may_differ_the_next_time_is_not_kept(tmp_path, reader):
    tool, question, _ = reader
    for asked in (replace(question, files=("/none.jsonl",)), replace(question, model="/no/model")):
        read_data_report(tool, asked)
    read_data_report(replace(tool, python="/no/python"), question)
    # Written in this moment, it may change again without a sign.
    os.utime(tmp_path / "d.jsonl", (time.time(), time.time()))
    read_data_report(tool, question)
    assert kept() == []


def test_few_are_kept_and_the_latest_used(reader):
    tool, question, starts = reader
    read_data_report(tool, question)
    (first,) = kept()
    for number in range(MAX_CACHED_ANSWERS - 1):
        copy = first.with_name(f"{number}.json")
        copy.write_bytes(first.read_bytes())
        os.utime(copy, (LONG_AGO + number, LONG_AGO + number))
    read_data_report(tool, replace(question, length=7))
    assert len(kept()) == MAX_CACHED_ANSWERS
    assert "0.json" not in {file.name for file in kept()}
    read_data_report(tool, question)
    assert starts() == 2


def test_two_at_once(reader):
    tool, question, _ = reader
    with ThreadPoolExecutor(8) as several:
        answers = list(several.map(lambda _: read_data_report(tool, question), range(8)))
    assert len({str(answer) for answer in answers}) == 1
    assert len(kept()) == 1, "nothing half written is left"


def test_a_folder_that_cannot_be_written_keeps_nothing(reader, monkeypatch, tmp_path):
    tool, question, starts = reader
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "d.jsonl"))
    assert [read_data_report(tool, question).rows for _ in range(2)] == [1, 1]
    assert starts() == 2


@pytest.fixture
def image_reader(reader, tmp_path):
    """The same for data of which a row names an image."""
    (tmp_path / "a.png").write_bytes(b"an image")
    write_rows(tmp_path / "d.jsonl", [CHAT_ROW | {"images": [name]} for name in ("a.png", "none.png")])
    settled(tmp_path)
    return reader


def test_data_with_images_is_read_again_once_one_of_them_changes(image_reader, tmp_path):
    tool, question, starts = image_reader
    first = read_data_report(tool, question)
    assert (first.images.files, first.images.rows, first.usable) == (2, 1, 1)
    assert (read_data_report(tool, question), starts()) == (first, 1)
    (tmp_path / "a.png").write_bytes(b"another image")
    settled(tmp_path)
    assert [(read_data_report(tool, question).usable, starts()) for _ in range(2)] == [(1, 2)] * 2
    (tmp_path / "none.png").write_bytes(b"it came")
    settled(tmp_path)
    assert [(read_data_report(tool, question).usable, starts()) for _ in range(2)] == [(2, 3)] * 2
    (tmp_path / "a.png").unlink()
    assert [(read_data_report(tool, question).usable, starts()) for _ in range(2)] == [(1, 4)] * 2
    (tmp_path / "a.png").write_bytes(b"a new one")
    os.utime(tmp_path / "a.png", (time.time() + 600,) * 2)
    assert [(read_data_report(tool, question).usable, starts()) for _ in range(2)] == [(2, 5), (2, 6)], "just written"


def test_an_image_that_stays_is_looked_at_once_whatever_is_asked(image_reader, tmp_path):
    tool, question, starts = image_reader
    read_data_report(tool, question)
    (looks,) = (data_summaries_folder() / "images").glob("*")
    assert stat.S_IMODE(looks.stat().st_mode) == 0o600
    looks.write_text(looks.read_text().replace('["", 0, 0, 8, true]', '["was seen before", 0, 0, 8, true]'))
    asked = replace(question, length=7)
    assert (read_data_report(tool, asked).problems[0].why, starts()) == ("image 1 was seen before", 2)
    (tmp_path / "a.png").write_bytes(b"and now")
    settled(tmp_path)
    assert read_data_report(tool, asked).usable == 1
    looks.unlink()
    looks.parent.rmdir()
    looks.parent.write_text("no folder")
    assert [(read_data_report(tool, asked).usable, starts()) for _ in range(2)] == [(1, 4), (1, 5)], "nothing is kept"
