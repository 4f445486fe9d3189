"""What is sent to a host: a project's own files and nothing else, to the same paths, continued after a cut link."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import make_executable, profile

from tui_train.base.errors import BadInput, CannotWrite, NoAnswer
from tui_train.base.parse import parse_json_as
from tui_train.cli.app import cli
from tui_train.cli.runs import send
from tui_train.facts.scripts import project_files
from tui_train.facts.scripts.project_files import data_or_model_file_set, project_file_set
from tui_train.places import project_code
from tui_train.places.project_code import code_record_files
from tui_train.places.sent_files import HostToSendTo, find_files_to_send, send_files
from tui_train.profile import store
from tui_train.runs.run_code import RunCode

BOX = HostToSendTo("box", "box")
ODD = "a 中 'b\"\n$(x)"
# On the host another folder is at the path of the project; of its stdin $CUT bytes arrive.
SSH = """\
#!/bin/bash
last=${{@: -1}}
read='cat'
[ -e {cut} ] && read="stdbuf -o0 head -c $(cat {cut})"
$read | HOME={home} unshare --mount sh -c 'mount --bind "$0" "$1" && exec bash -c "$2"' {there} {here} "$last"
"""


def is_mountable() -> bool:
    done = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return os.geteuid() == 0 and done.returncode == 0


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with all that is to be sent, and much that is not."""
    folder = tmp_path / "project"
    for name in ("lib", ".venv/bin", "__pycache__", "env", "old-run", "out"):
        (folder / name).mkdir(parents=True)
    (folder / "train.py").write_text("import lib.m\n")
    (folder / "lib" / "m.py").write_text("1\n")
    (folder / "lib" / ODD).write_text("odd\n")
    (folder / "link").symlink_to("lib/m.py")
    (folder / "away").symlink_to("/etc/hostname")
    (folder / "up").symlink_to("../secret")
    (folder / ".env").write_text("KEY=1\n")
    make_executable(folder / "tool.sh", "#!/bin/sh\n")
    for name in (".venv/bin/x", "__pycache__/m.pyc", "env/pyvenv.cfg", "old-run/launch.sh", "out/model.bin"):
        (folder / name).touch()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


@pytest.fixture
def there(project, tmp_path, monkeypatch):
    """The folder that a host has at the path of the project."""
    if not is_mountable():
        pytest.skip("NOT TESTED, for want of root and mount namespaces: files sent to a host")
    there = tmp_path / "there"
    there.mkdir()
    places = {"home": tmp_path / "home", "there": there, "here": project, "cut": tmp_path / "cut"}
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    make_executable(tmp_path / "bin" / "ssh", SSH.format(**places))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return there


def names(file_set):
    return sorted(file.name for file in file_set.files)


OWN = sorted(["train.py", "lib/m.py", f"lib/{ODD}", "link", "tool.sh"])
LED_OUT = "a link that leads out of the project"


def test_of_a_folder_without_git_its_own_files_are_sent(project):
    found = project_file_set(str(project / "train.py"), "", [str(project / "out")])
    assert (found.folder, names(found), found.is_git) == (str(project), OWN, False)
    assert dict(found.left_out) == {
        "away": LED_OUT, "up": LED_OUT, ".env": "it may hold secrets", "env": "an environment", "old-run": "a run",
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("git") is None, reason="NOT TESTED, for want of git: a project that is sent")
def test_of_a_repository_what_git_does_not_ignore_is_sent(project, monkeypatch):
    monkeypatch.setattr(project_files, "_MAX_UNTRACKED_BYTES", 1000)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / ".gitignore").write_text("env/\nold-run/\nout/\n.venv/\n__pycache__/\n")
    (project / "tracked.bin").write_bytes(bytes(5000))
    subprocess.run(["git", "add", "tracked.bin"], cwd=project, check=True)
    (project / "loose.bin").write_bytes(bytes(5000))
    (project / "lib" / "nested").mkdir()
    (project / "lib" / "nested" / "train.py").touch()
    found = project_file_set(str(project / "lib" / "nested" / "train.py"), "", [])
    assert names(found) == sorted([*OWN, ".gitignore", "tracked.bin", "lib/nested/train.py"])
    assert dict(found.left_out) == {
        "away": LED_OUT, "up": LED_OUT, ".env": "it may hold secrets", "loose.bin": "4.9 KiB",
    }  # fmt: skip


def test_a_script_in_a_home_folder_is_sent_alone(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    found = project_file_set(str(project / "train.py"), "", [])
    assert names(found) == ["train.py"]
    assert [name for name, _ in found.left_out] == ["all but the script"]


def test_a_repository_that_git_cannot_list_is_said(project, monkeypatch):
    assert project_file_set(str(project / "train.py"), "", []).git_problem == ""
    (project / ".git").mkdir()
    monkeypatch.setenv("PATH", "/nowhere")
    assert project_file_set(str(project / "train.py"), "", []).git_problem == "git is not installed (not on PATH)"


def test_a_home_folder_is_no_data(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    with pytest.raises(BadInput, match="no folder of data"):
        data_or_model_file_set(str(project))


def test_of_a_data_folder_links_are_followed(project):
    (project / "lib" / "again").symlink_to(".")
    (project / "lib" / "data").symlink_to("../env")
    (project / "lib" / "gone").symlink_to("/nowhere")
    found = data_or_model_file_set(str(project / "lib"))
    assert names(found) == sorted(["m.py", ODD, "data/pyvenv.cfg"])
    assert dict(found.left_out) == {"gone": "No such file or directory"}
    assert names(data_or_model_file_set(str(project / "link"))) == ["link"]


def test_too_many_files_are_refused(project, monkeypatch):
    monkeypatch.setattr(project_files, "MAX_FILES", 3)
    with pytest.raises(BadInput, match="more than 3 files"):
        data_or_model_file_set(str(project / "lib" / ".."))


def test_a_project_arrives_as_it_is(project, there):
    found = project_file_set(str(project / "train.py"), "", [str(project / "out")])
    missing = find_files_to_send(BOX, found)
    assert len(missing.files) == len(OWN)
    send_files(BOX, missing)
    assert (
        sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_symlink() or path.is_file()) == OWN
    )
    assert (there / "lib" / ODD).read_text() == "odd\n"
    assert (there / "link").readlink() == Path("lib/m.py")
    assert os.access(there / "tool.sh", os.X_OK)
    assert find_files_to_send(BOX, found).files == ()
    (there / "lib" / "m.py").write_text("changed there")
    later = (project / "lib" / "m.py").stat().st_mtime + 2
    os.utime(there / "lib" / "m.py", (later, later))
    edited = find_files_to_send(BOX, found)
    assert [file.name for file, _ in edited.files] == ["lib/m.py"]
    assert (edited.replaced, edited.newer) == (("lib/m.py",), ("lib/m.py",))
    os.utime(there / "lib" / "m.py", (1, 1))
    edited = find_files_to_send(BOX, found)
    assert (edited.replaced, edited.newer) == (("lib/m.py",), ())


def test_a_host_that_only_the_first_one_reaches_gets_it_too(project, there):
    other = HostToSendTo("other", "other", asking_host="box")
    found = project_file_set(str(project / "train.py"), "", [])
    send_files(other, find_files_to_send(other, found))
    assert find_files_to_send(other, found).files == ()
    assert (there / "lib" / ODD).read_text() == "odd\n"


def test_all_hosts_of_a_training_get_it():
    def named(host, *others):
        chosen = profile({"nodes.hosts": others})
        return [(each.name, each.asking_host) for each in send._hosts_to_send_to(chosen, host)]

    assert named("box") == [("box", None)]
    assert named("box", "a", "b", "c") == [("box", None), ("b", "box"), ("c", "box")]
    assert named("", "a", "b") == [("b", None)]
    with pytest.raises(BadInput, match="no host is named"):
        named("")


def test_nothing_is_written_through_a_link_of_the_host(project, there, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (there / "lib").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CannotWrite, match="lib is no folder there"):
        send_files(BOX, find_files_to_send(BOX, project_file_set(str(project / "train.py"), "", [])))
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_cut_link_is_continued(project, there, tmp_path):
    (project / "train.py").write_bytes(os.urandom(3 << 20))
    found = project_file_set(str(project / "train.py"), "", [])
    missing = find_files_to_send(BOX, found)
    (tmp_path / "cut").write_text(str(1 << 20))
    with pytest.raises((CannotWrite, NoAnswer), match="lost"):
        send_files(BOX, missing)
    (tmp_path / "cut").unlink()
    left = find_files_to_send(BOX, found)
    assert 0 < left.size < missing.size - (1 << 19)
    assert not (there / "train.py").exists()
    sent = []
    send_files(BOX, left, sent.append)
    assert sent[-1] == left.size
    assert (there / "train.py").read_bytes() == (project / "train.py").read_bytes()
    assert not (there / ".tui-train-sending").exists()


@pytest.mark.parametrize("text", ["i", "import lib.n\n", "import lib.m\nimport lib.n\n"])
def test_a_file_that_changes_meanwhile_is_not_put_in_place(project, there, text):
    (there / "train.py").write_text("what was there")
    missing = find_files_to_send(BOX, project_file_set(str(project / "train.py"), "", []))
    (project / "train.py").write_text(text)
    with pytest.raises(BadInput, match=r"train\.py has changed while it was sent to box, which keeps what it had"):
        send_files(BOX, missing)
    assert (there / "train.py").read_text() == "what was there"
    assert (there / "lib" / ODD).read_text() == "odd\n", "the files after it arrive"
    found = project_file_set(str(project / "train.py"), "", [])
    send_files(BOX, find_files_to_send(BOX, found))
    assert (there / "train.py").read_text() == text


def test_a_file_is_the_same_by_size_and_a_time_that_a_disk_may_keep_less_exactly(project, there):
    found = project_file_set(str(project / "train.py"), "", [])
    send_files(BOX, find_files_to_send(BOX, found))
    second = (project / "train.py").stat().st_mtime_ns // 10**9
    for at in (project, there):
        os.utime(at / "train.py", ns=(second * 10**9, second * 10**9))
    os.utime(there / "train.py", ns=(second * 10**9, second * 10**9 + 999_999_999))
    (there / "train.py").chmod(0o777)
    found = project_file_set(str(project / "train.py"), "", [])
    assert find_files_to_send(BOX, found).files == ()
    (there / "train.py").write_text("another size")
    os.utime(there / "train.py", ns=(second * 10**9, second * 10**9 + 999_999_999))
    differing = find_files_to_send(BOX, found)
    assert (differing.replaced, differing.newer) == (("train.py",), ())
    (there / "tool.sh").chmod(0o644)
    assert {file.name for file, _ in find_files_to_send(BOX, found).files} == {"train.py", "tool.sh"}


def test_the_command_shows_asks_and_sends(project, there):
    values = {
        "name": "mine",
        "trainer.kind": "script",
        "trainer.script": str(project / "train.py"),
        "hardware.host": "box",
    }
    store.save_profile(profile(values))

    def said(*words, code=0, **more):
        done = CliRunner().invoke(cli, ["send", "mine", *words], **more)
        assert done.exit_code == code, done.output
        return done.output

    shown = said("--dry-run")
    assert "box: 6 files to send" in shown
    assert ".env (it may hold secrets)" in shown
    assert not [*there.iterdir()]
    said(code=1)
    assert not [*there.iterdir()], "nobody said yes"
    assert "box: all files are there" not in said("--yes")
    assert (there / "lib" / "m.py").exists()
    assert "box: all files are there" in said()
    (there / "lib" / "m.py").write_text("changed there")
    later = (project / "lib" / "m.py").stat().st_mtime + 2
    os.utime(there / "lib" / "m.py", (later, later))
    assert "NEWER than here: lib/m.py" in said("--dry-run")


def test_hosts_with_one_disk_get_it_once(project, there):
    chosen = profile({"name": "mine", "trainer.kind": "script", "trainer.script": str(project / "train.py")})
    store.save_profile(chosen)
    done = CliRunner().invoke(cli, ["send", "mine", "--on", "box", "--set", "nodes.hosts=box,other", "--yes"])
    assert done.exit_code == 0, done.output
    assert "other: 6 files to send" in done.output
    assert done.output.count("files sent") == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="NOT TESTED, for want of git: the code of a run on a host")
def test_a_run_on_a_host_keeps_the_code_that_was_sent(project, there, monkeypatch):
    # Another test may have the processor.
    monkeypatch.setattr(project_code, "_MAX_SECONDS", 120.0)
    script = str(project / "train.py")
    chosen = profile({"trainer.kind": "script", "trainer.script": script})

    def code():
        files = {file.path: file.content for file in code_record_files("box", chosen)}
        return parse_json_as(files["code.json"], RunCode), files.get("code.diff", b"")

    assert code()[0].problem == "no git repository"
    for words in (["init", "-q"], ["add", "train.py"], ["-c", "user.name=n", "-c", "user.email=n@x", "commit", "-qm1"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    assert "not as here: tui-train send" in code()[0].problem
    found = project_file_set(script, "", [])
    send_files(BOX, find_files_to_send(BOX, found))
    kept, patch = code()
    assert (len(kept.commit), kept.sent_to, kept.host) == (40, "box", "")
    assert b"lib/m.py" in patch
    (project / "lib" / "m.py").write_text("2\n")
    assert code()[0].problem == "box has 1 file of it, such as lib/m.py, not as here: tui-train send"
