"""`tui-train report`: what tells how a run went, in one file, without a secret in it."""

import json
import os
import platform
import re
import tarfile
from pathlib import Path

import fake_secrets
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SCRIPTS, example_count, facts, prepare_without_errors, profile, run_cli, sample

from tui_train.base import secrets
from tui_train.facts.machine.communication_tests import (
    CommunicationTestResult,
    Examination,
    RankStage,
    save_communication_examination,
)
from tui_train.facts.types import Facts
from tui_train.profile import store
from tui_train.runs import archive, run_folders

KINDS = ("huggingface", "openai project", "github", "gitlab", "jwt", "npm", "databricks", "pypi", "linear", "stripe")
TOKENS = [fake_secrets.texts_with_secrets()[kind][1][0] for kind in KINDS]
HF = TOKENS[0]
VALUES = ["correct horse battery", 'it\'s $HOME\\n"quoted" 中文', "p4ss;w0rd&more"]
FAILED = RankStage(rank=0, stage="all_reduce", problem="no answer", hangs=True)
KEY = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\nAAAAB3NzaC1yc2EAAAAD\n-----END OPENSSH PRIVATE KEY-----"
)
LINES = {
    "GET with bearer qwertyuiop1234567890": "qwertyuiop1234567890",
    "postgres://u:aaa%40bbb@db/x": "aaa%40bbb",
    "python t.py --token plain-value-1 --steps 5": "plain-value-1",
    "python t.py --hub-token=plain-value-2": "plain-value-2",
    "python t.py '--hub_token=plain value 2'": "plain value",
    "python t.py --api-key 'plain value 3' x": "plain value 3",
    'PGPASSWORD = "plain \\" value 9"': "value 9",
    "https://host/x?page=2&apiKey=plainvalue12": "plainvalue12",
    "https://account.blob.core.windows.net/c?sv=2021-06-08&sig=abc%2Bdef%3D&se=2026": "abc%2Bdef",
    "https://host/maps?key=abcdefghijklmnop0123": "abcdefghijklmnop0123",
    "cloning https://x-oauth-0123456789abcdef01234@example.org/x.git": "0123456789abcdef01234",
    "postgres://u:p@ss@wrd1@db/x": "ss@wrd1",
    '{"accessToken": "plainvalue13"}': "plainvalue13",
    "clientSecret=plainvalue14": "plainvalue14",
    "DB_PASS=hunter22": "hunter22",
    "my password is: correcthorse": "correcthorse",
    "the passphrase was hunter23, it said": "hunter23",
    "your API key is: plainvalue20": "plainvalue20",
    "Set-Cookie: session=zzzyyyxxx; HttpOnly": "zzzyyyxxx",
    "export GITLAB_PAT=plainvalue15": "plainvalue15",
    "db-pass: plainvalue16": "plainvalue16",
    "+trainer.dbPass=plainvalue17": "plainvalue17",
    "\x1b[32mHF_TO\x1b[0mKEN=\x1b[1mplain\x1b[0mvalue18": "value18",
    "\\u001b[32mmy_password\\u001b[0m: plainvalue19": "plainvalue19",
    "Authorization: \x1b[1mBearer\x1b[0m abc.def-ghi2": "abc.def-ghi2",
}


@pytest.mark.parametrize("line", LINES)
def test_secrets_in_lines_are_masked(line):
    text, found = secrets.mask_secrets(f"before\n{line}\nafter")
    assert LINES[line] not in text
    assert secrets.MASK_TEXT in text
    assert sum(found.values()) >= 1
    assert text.startswith("before\n")
    assert text.endswith("\nafter")


@pytest.mark.parametrize("token", [*TOKENS, KEY])
@pytest.mark.parametrize("around", ["{}", "'{}'", "x={},", "https://h/?t={}&x", "<{}>", "\x1b[31m{}\x1b[0m", "中{}文"])
def test_tokens_are_known_by_their_form_wherever_they_stand(token, around):
    text, found = secrets.mask_secrets(around.format(token))
    assert token not in text
    assert token[8:-4] not in text
    assert sum(found.values()) == 1


@pytest.mark.parametrize("token", TOKENS)
def test_colours_within_a_token_do_not_hide_it(token):
    for colour in ("\x1b[31m", "\x1b[0m", "\x1b[38;5;196m", "\\u001b[1m"):
        for at in (1, len(token) // 2, len(token) - 3):
            text, found = secrets.mask_secrets(f"a\nx {token[:at]}{colour}{token[at:]} y\nb")
            assert token[-8:] not in text, (token, colour, at)
            assert token[:12] not in text, (token, colour, at)
            assert found


def test_what_is_a_secret_among_arguments():
    for words in (
        ["--hub", HF],
        ["--url=https://u:pass1234@h/x"],
        ["--url", "https://h/x?access_token=plainvalue"],
        ["data=https://h/x?sig=abcdef"],
        ["--header", "Authorization: Bearer abcdef"],
        ["--password", "hunter2"],
        ["db.pass_word=x", "db_pass=hunter2"],
        ["--pw", "hf_\x1b[1m" + HF[3:]],
    ):
        assert [secret.certain for secret in secrets.find_possible_secret_arguments(words)] == [True], words
    none = ["--url=https://h/x?page=2", "--pass", "2", "--image", "docker://nemo@sha256:0123", "trainer.max_token=512"]
    none += ["--sort_key=length", "--repo", "git@github.com:a/b.git"]
    assert [*secrets.find_possible_secret_arguments(none)] == []


def test_half_a_key_is_masked_too():
    begin, end = KEY[:60], KEY[40:]
    assert "b3BlbnNz" not in secrets.mask_secrets(begin)[0]
    assert "AAAAB3Nz" not in secrets.mask_secrets("a line\n" + end)[0]
    assert secrets.mask_secrets("a line\n" + end)[0].startswith("a line\n")


@settings(max_examples=example_count(100))
@given(st.text(), st.lists(st.text(min_size=6)))
def test_known_values_are_gone_from_any_text(text, values):
    masked, _ = secrets.mask_secrets(text + "".join(values), values)
    assert not [value for value in values for piece in masked.split(secrets.MASK_TEXT) if value in piece]


# As long as one that takes minutes, were its time the square of its length.
LONG = ["a-", "://", "wandb ", "x=", "-----BEGIN PRIVATE KEY-----", "a", "eyJ", "\x1b[", "\x1b]", "\x1b[1m", "?a="]
LONG += [("?key=", "a&"), ("a://", "b:"), "docker login ", "wandb login "]


@pytest.mark.parametrize("text", sample(LONG, 3, 2), ids=ascii)
def test_no_text_takes_long(text):
    begin, unit = text if isinstance(text, tuple) else ("", text)
    secrets.mask_secrets(begin + unit * (200_000 // len(unit)))


@pytest.mark.parametrize("kind", fake_secrets.SECRET_TEMPLATES)
def test_a_planted_secret_is_gone(kind):
    for seed in range(3):
        text, values = fake_secrets.texts_with_secrets(seed)[kind]
        masked, found = secrets.mask_secrets(f"before\n{text}\nafter")
        assert values
        # Not even most of one.
        assert not [value for value in values if value in masked or value[4:-4] in masked], masked
        assert found
        assert masked.startswith("before\n")
        assert masked.endswith("\nafter")


def test_healthy_logs_stay_as_they_are():
    logs = [path.read_text(errors="replace") for path in (Path(__file__).parents[1] / "logs").glob("*.log")]
    for text in (*logs, *(line for seed in range(5) for line in fake_secrets.harmless_lines(seed))):
        assert secrets.mask_secrets(text) == (text, {})


# ---- the command


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that has secrets wherever they may get to."""
    first, second, third = VALUES
    monkeypatch.setenv("PLANTED_PASSWORD", third)
    chosen = profile(
        {
            "name": "planted",
            "trainer.kind": "script",
            "trainer.preset": "custom",
            "trainer.script": str(SCRIPTS / "sleeper.py"),
            "trainer.arguments": ("--wandb_api_key", first),
            "trainer.secrets": ("PLANTED_PASSWORD",),
        }
    )
    prepared = prepare_without_errors(chosen, facts())
    run = run_folders.create_run_folder("planted", prepared.files)
    # As one that was written by hand, which no check has seen.
    values = {"MY_TOKEN": second, "HARMLESS": "stays here"}
    text = store.profile_to_toml(profile({"trainer.environment": values}, chosen))
    run.profile_file.write_text(text)
    run.plan_file.write_text(
        json.dumps({"argv": ["--wandb_api_key", first], "env": values, "home": str(Path.home() / "x")})
    )
    run.events_file.write_text(json.dumps({"time": 1.0, "event": "run_started", "signal": HF}) + "\n")
    every = [
        *(text for text, _ in fake_secrets.texts_with_secrets().values()),
        *LINES,
        *VALUES,
        KEY,
        f"prompt {platform.node()}:{Path.home()}/mine$",
        "a plain line",
    ]
    run.attempt_log(1).write_text("\n".join(every))
    run.launch_log.write_text(f"--token {third}\n")
    (run.path / "node-1").mkdir()
    (run.path / "node-1" / "events.jsonl").write_text(f'{{"x": "{HF}"}}\n')
    (run.path / "output").mkdir()
    (run.path / "output" / "model.bin").write_text("weights")
    (run.path / "attempt-9.log").symlink_to("/etc/passwd")
    os.mkfifo(run.path / "attempt-8.log")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "launch.log").write_text("of another folder\n")
    (run.path / "node-2").symlink_to(elsewhere)
    return run


def report(*arguments, code=0, folder=None):
    done = run_cli("report", *arguments, code=code, cwd=folder)
    return done.stdout if code == 0 else done.stderr


def contents(path):
    with tarfile.open(path) as opened:
        assert all(one.isfile() and not one.uname and not one.uid for one in opened.getmembers())
        return {one.name.partition("/")[2]: opened.extractfile(one).read().decode() for one in opened.getmembers()}


def test_the_archive_has_what_tells_and_no_secret(run, tmp_path):
    said = report(run.name, folder=tmp_path)
    (path,) = tmp_path.glob("*.tar.gz")
    assert path.name == f"tui-train-{run.name}.tar.gz"
    assert path.stat().st_mode & 0o777 == 0o600
    files = contents(path)
    assert {*files} == {
        "machine.json", "about.json", "profile.toml", "plan.json", "launch.sh", "events.jsonl", "launch.log",
        "attempt-1.log", "node-1/events.jsonl",
    }  # fmt: skip
    together = "\n".join(files.values())
    of_every_kind = [value for _, values in fake_secrets.texts_with_secrets().values() for value in values]
    for value in (*of_every_kind, *VALUES, "b3BlbnNz", *LINES.values()):
        for form in (value, json.dumps(value)[1:-1], repr(value)[1:-1]):
            assert form not in together, form
    assert str(Path.home()) + "/" not in files["attempt-1.log"]
    assert "~/mine$" in files["attempt-1.log"]
    if len(platform.node()) > 1 and platform.node() not in {"localhost", "host"}:
        assert platform.node() not in together
    assert "a plain line" in files["attempt-1.log"]
    assert "stays here" in files["profile.toml"]
    assert "PLANTED_PASSWORD" in files["profile.toml"], "names of secrets tell what was set"
    for name in ("machine.json", "about.json", "plan.json"):
        json.loads(files[name])
    about = json.loads(files["about.json"])
    assert about["tui-train"]
    assert about["status"]["state"] == "lost"
    for name in files:
        assert re.search(rf"^{re.escape(name)}  ", said, re.MULTILINE), name
    assert re.search(r"masked: .*tokens: \d+", said)
    assert "Read it before you send it" in said


def test_nothing_is_overwritten_unasked_and_a_failure_leaves_nothing(run, tmp_path):
    target = tmp_path / "mine.tar.gz"
    target.write_text("mine")
    assert "already exists" in report(run.name, target, code=73)
    assert target.read_text() == "mine"
    report(run.name, target, "--force")
    assert "launch.sh" in contents(target)
    assert "cannot write" in report(run.name, target / "below.tar.gz", code=73)
    assert [path.name for path in tmp_path.iterdir() if "tar" in path.name] == ["mine.tar.gz"]
    assert "no run" in report("nope", code=66)


@pytest.mark.whole
@pytest.mark.parametrize("line_ends", sample(["\n", "\r", " "], 3, 1))
def test_of_a_long_log_both_ends_are_there_and_no_half_secret(run, line_ends):
    """A token lies across each of the two cuts, and nowhere else."""
    log = run.attempt_log(1)
    size = archive.KEPT_HEAD_BYTES + archive.KEPT_TAIL_BYTES + 500_000
    text = bytearray(("first" + line_ends + ("x" * 99 + line_ends) * (size // 100)).encode())
    for cut in (archive.KEPT_HEAD_BYTES, len(text) - archive.KEPT_TAIL_BYTES):
        text[cut - 12 : cut - 12 + len(HF)] = HF.encode()
    text += f"{line_ends}last".encode()
    # What was added moved the second cut by that much.
    log.write_bytes(text)
    (entry,) = [one for one in archive.masked_archive_entries(run, "{}") if one.name == "attempt-1.log"]
    assert entry.text.startswith("first")
    assert entry.text.endswith("last")
    assert "left out" in entry.text
    assert len(entry.text) < archive.KEPT_HEAD_BYTES + archive.KEPT_TAIL_BYTES + 100
    for length in (6, 10):
        for start in range(len(HF) - length):
            assert HF[start : start + length] not in entry.text


CASES = sorted(path.parent for path in (Path(__file__).parents[1] / "cases").glob("*/facts.json"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_file_that_a_plan_becomes_is_there(case, tmp_path):
    found = msgspec.json.decode((case / "facts.json").read_bytes(), type=Facts)
    prepared = prepare_without_errors(store.load_profile_file(str(case / "profile.toml")), found)
    run = run_folders.RunFolder(tmp_path)
    run_folders.write_run_files(tmp_path, prepared.files)
    run.plan_file.write_bytes(msgspec.json.encode(prepared.plan))
    archived = {entry.name for entry in archive.masked_archive_entries(run, "{}")}
    assert {file.path for file in prepared.files if not file.data} <= archived


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "a/../../secret", "", ".", "secret/"])
@pytest.mark.parametrize("named", ["configs", "programs"])
def test_a_plan_that_names_files_of_others_does_not_get_them(tmp_path, path, named):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "launch.sh").write_text("#!/bin/bash\n")
    (tmp_path / "run" / "plan.json").write_text(json.dumps({named: [{"path": path}]}))
    found = archive.masked_archive_entries(run_folders.RunFolder(tmp_path / "run"), "{}")
    assert {entry.name for entry in found} == {"machine.json", "about.json", "launch.sh", "plan.json"}


def test_what_the_doctor_found_out_of_the_communication_is_there(tmp_path):
    (tmp_path / "launch.sh").write_text("#!/bin/bash\n")
    failed = CommunicationTestResult(processes=2, works=False, stages=(FAILED,), cause=f"no route, {HF}")
    save_communication_examination("key", Examination(result=failed))
    found = {entry.name: entry.text for entry in archive.masked_archive_entries(run_folders.RunFolder(tmp_path), "")}
    assert "no route" in found["communication.json"]
    assert HF not in found["communication.json"]
