"""Thousands of hostile values in every field of free text reach the training unchanged, and nothing else is started.

TUI_TRAIN_TEST_VALUES is how many there are, TUI_TRAIN_TEST_SEED the seed of the first. Each is in every field once:
those that hold one text get one for each execution of launch.sh, the lists many.
"""

import os
import random
from pathlib import Path

import pytest
from counting import tries
from hostile import as_name
from support import HOSTILE, OF_BASH, bash, facts, noted, plain_environment, profile, ready, stub

from tui_train.base.command import argv
from tui_train.profile.store import dumps, loads
from tui_train.runs.rundir import RunDir

HOW_MANY = int(os.environ.get("TUI_TRAIN_TEST_VALUES", "16"))
SEED = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))
PARTS = min(8, -(-HOW_MANY // 8))
# So many of them in one list of words, or in the environment.
PACKED = 24
LONG = 20_000
PIECES = (
    *(value for value in HOSTILE if "{" not in value),
    *map(chr, [*range(1, 32), 127, 0x85, 0x2028, 0x202E, 0xFEFF, 0x1F600]),
    *"'\"\\`$&|;<>()*?[]!#~=% {},^-+:@/.",
    "$(touch pwned)", "`touch pwned`", "$((1+1))", "${HOME}", "$'\\n'", '"$(touch pwned)"', "'; touch pwned; '",
    "\n touch pwned \n", "|| touch pwned", ">pwned", "<(touch pwned)", "\\\n", "\\$(touch pwned)", "'\\''", '\\"',
    "EOF", "\nEOF\ntouch pwned\n", "-rf", "--", "--plain", "-c 'touch pwned'", "{a,b}", "{1..9}", "a=b", "\r\n",
    "\x1b]0;x\x07", "e\u0301", "中文", "👩🏽‍🔬", "x" * 50, "@TUI_TRAIN_RUN_DIR@", "$run_dir", "${settings[@]}", "%(x)s",
    "\u00a0", "!$", "!!",
)  # fmt: skip


def value(number):
    """A value by its number, always the same: some pieces, of which one in fifty is very long."""
    chance = random.Random(f"value {SEED} {number}")
    made = "".join(chance.choice(PIECES) for _ in range(chance.choice((1, 1, 2, 3, 6))))
    return (made * LONG)[:LONG] if number % 50 == 49 else made


def name_of(text):
    """A value as the name of a file, as long as names may be."""
    return as_name(text).encode()[:200].decode(errors="ignore") or "x"


def chosen(folder, number):
    """A profile with values in every field, the interpreter that stands in for it, and what has to arrive."""
    one = [value((number + step) % HOW_MANY) for step in range(8)]
    many = [value((number * PACKED + step) % HOW_MANY) for step in range(PACKED)]
    python = folder / "python" / name_of(one[0]) / name_of(one[1])
    python.parent.mkdir(parents=True)
    python.hardlink_to(folder.parent / "python")
    working = folder / "cwd" / name_of(one[2])
    working.mkdir(parents=True)
    words = ["--first", *many]
    table = {f"V{at}": text for at, text in enumerate(many)}
    data = [str(folder / "data" / name_of(text)) for text in many[:5]]
    values = {
        "name": one[3].strip() or "x",
        "hardware.device": "cpu",
        "ladder.rungs": (),
        "trainer.kind": "script",
        "trainer.preset": "custom",
        "trainer.launcher": "torchrun" if number % 2 else "python",
        "trainer.python": str(python),
        "trainer.working_directory": str(working),
        "trainer.script": str(folder / "script" / name_of(one[4])),
        "trainer.output": str(folder / "out" / name_of(one[5])),
        "trainer.data": tuple(data),
        "trainer.environment": table,
        "trainer.arguments": (*words, "--in={data}", "--to={output}"),
    }
    return profile(values), python, working, words, table


def try_one(folder, number):
    """Write a profile and read it again, execute what is made of it, and compare what has arrived."""
    wanted, python, working, words, table = chosen(folder, number)
    assert loads(dumps(wanted), folder=folder) == wanted
    prepared = ready(wanted, facts(python=python))
    run = RunDir(folder / f"run {name_of(value(number))}")
    run.path.mkdir()
    (script,) = (file.text for file in prepared.files if file.path == "launch.sh")
    run.script.write_text(script, newline="")
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), MINE=value(number))
    done = bash(run, "--plain", env=environment)
    assert (done.returncode, done.stderr) == (0, b""), done
    (note,) = noted(folder / "notes")
    command = prepared.plan.attempts[0].command
    assert note["argv"] == argv(command, str(run.path))
    begin = note["argv"].index("--first")
    assert note["argv"][begin : begin + len(words)] == words
    assert wanted.trainer.script in note["argv"]
    assert note["argv"][-1] == f"--to={wanted.trainer.output}"
    assert note["cwd"] == str(working)
    expected = environment | table
    assert {name: note["env"].get(name) for name in expected if name not in OF_BASH} == {
        name: text for name, text in expected.items() if name not in OF_BASH
    }


@pytest.mark.timeout(300 + HOW_MANY * 2)
@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_values_arrive_unchanged_and_start_nothing(part, tmp_path, record_property, monkeypatch):
    tmp_path = tmp_path.resolve()
    stub(tmp_path / "python")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with tries(record_property, "hostile values in every field") as made:
        for number in range(part, HOW_MANY, PARTS):
            folder = tmp_path / str(number)
            folder.mkdir()
            with made.one(f"value {number}, seed {SEED}: {value(number)[:200]!r}"):
                try_one(folder, number)
    assert not [*tmp_path.rglob("pwned")]
    assert [*Path().iterdir()] == []
