"""The code that a run started from: kept by its commit and a patch, restored byte for byte, and shown."""

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import fake_secrets
import psutil
import pytest
from support import facts, make_executable, prepare_without_errors, run_cli, sleeper_profile

from tui_train.base.errors import NoAnswer
from tui_train.base.parse import parse_json_as
from tui_train.places import project_code as places_code
from tui_train.places.place import Place
from tui_train.places.project_code import code_record_files
from tui_train.profile import store
from tui_train.runner.questions import project_code
from tui_train.runner.questions.project_code import may_hold_secrets, read_project_code_and_patch
from tui_train.runs import archive
from tui_train.runs.results.result import read_result
from tui_train.runs.run_code import CODE_FILE_NAME, PATCH_FILE_NAME, RunCode, code_not_kept_in_time_text, read_run_code
from tui_train.runs.run_folders import RunFolder, write_run_files
from tui_train.views.compare import differing_code_rows, read_compared_runs

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="NOT TESTED, for want of git: the code of a run")
ODD = "a 中 'b\"\n$(x)"


def git(folder, *words):
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    return subprocess.run([GIT, *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository with a script, other files and one commit."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    # Another test may have the processor.
    monkeypatch.setattr(project_code, "_MAX_SECONDS", 120.0)
    monkeypatch.setattr(places_code, "_MAX_SECONDS", 120.0)
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    (folder / "train.py").write_text("import lib\n")
    (folder / "lib" / "__init__.py").write_text("rate = 1\n")
    (folder / "gone.py").write_text("old\n")
    (folder / "logo.bin").write_bytes(bytes(range(256)))
    (folder / ".gitignore").write_text("out/\n*.local.py\n")
    commit(folder)
    return folder


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "m")


def run_of(project, name="run"):
    """A run folder with what a start in a project keeps."""
    folder = project.parent / name
    files = code_record_files("", sleeper_profile(**{"trainer.script": str(project / "train.py")}))
    write_run_files(folder, files)
    (folder / "launch.sh").write_text("")
    return RunFolder(folder)


def tree(folder):
    """All that is in a project, without git's own."""
    found = {}
    for top, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git" and not (Path(top) / name).is_symlink()]
        for path in (each for each in Path(top).iterdir() if each.name not in {*folders, ".git"}):
            content = str(path.readlink()) if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(folder))] = (content, path.lstat().st_mode)
    return found


def edit(project):
    """Change a project in all ways: also what is staged, odd in its name, binary, without a last line end."""
    (project / "train.py").write_bytes(b"import lib\r\nprint(1)")
    (project / "gone.py").unlink()
    (project / "logo.bin").write_bytes(bytes(range(255, -1, -1)))
    (project / "lib" / ODD).write_text("odd\n")
    (project / "empty").touch()
    make_executable(project / "tool.sh", "#!/bin/sh\n")
    (project / "link").symlink_to("/nowhere")
    (project / "staged.py").write_text("staged\n")
    git(project, "add", "staged.py")
    (project / "staged.py").write_text("and changed\n")
    (project / ".gitattributes").write_text("*.dos text eol=crlf\n")
    (project / "x.dos").write_bytes(b"a\r\nb\r\n")


def test_a_project_is_restored_byte_for_byte(project, tmp_path):
    edit(project)
    before = git(project, "status", "--porcelain"), tree(project)
    objects = sorted(path for path in (project / ".git").rglob("*") if path.is_file())
    run = run_of(project)
    assert (git(project, "status", "--porcelain"), tree(project)) == before
    assert objects == sorted(path for path in (project / ".git").rglob("*") if path.is_file())
    command = read_run_code(run.path).restore_command(str(run.path))
    # The user's settings of git are others by then.
    (project / "train.py").write_text("other")
    git(project, "config", "apply.whitespace", "fix")
    for new in (shlex.quote(str(tmp_path / "new")), "../relative"):
        subprocess.run(["bash", "-c", command.replace("NEW_FOLDER", new)], check=True, cwd=tmp_path)
    assert tree(tmp_path / "relative") == tree(tmp_path / "new")
    assert tree(tmp_path / "new") == before[1]


def test_a_file_that_became_a_link_is_restored(project, tmp_path):
    (project / "gone.py").unlink()
    (project / "gone.py").symlink_to("train.py")
    run = run_of(project)
    code = read_run_code(run.path)
    assert ([file.name for file in code.changed], code.problem) == (["gone.py"], "")
    command = code.restore_command(str(run.path)).replace("NEW_FOLDER", shlex.quote(str(tmp_path / "new")))
    subprocess.run(["bash", "-c", command], check=True)
    assert (tmp_path / "new" / "gone.py").readlink() == Path("train.py")


def test_settings_of_git_change_no_patch(project):
    edit(project)
    patch = read_project_code_and_patch(str(project / "train.py"))[1]
    for name, value in {
        "diff.noprefix": "true", "diff.external": "false", "color.ui": "always", "status.relativePaths": "true",
        "core.quotePath": "false", "core.fsmonitor": "false", "diff.submodule": "log",
        "status.showUntrackedFiles": "no",
    }.items():  # fmt: skip
        git(project, "config", name, value)
    assert read_project_code_and_patch(str(project / "train.py"))[1] == patch


def test_a_start_keeps_its_code(project):
    (project / "train.py").write_text("import lib, time\ntime.sleep(0)\n")
    prepared = prepare_without_errors(sleeper_profile(**{"trainer.script": str(project / "train.py")}), facts())
    run = Place().submit(prepared, prepared.plan)
    code = read_run_code(run.path)
    assert code.commit == git(project, "rev-parse", "HEAD").strip()
    assert [file.name for file in code.changed] == ["train.py"]
    assert b"+import lib, time" in (run.path / PATCH_FILE_NAME).read_bytes()
    said = run_cli("result", run.name).stdout
    assert f"{code.short_commit} (main), 1 file changed: train.py" in said
    assert f"worktree add --detach NEW_FOLDER {code.commit} && git -C " in said
    entries = {entry.name: entry.text for entry in archive.masked_archive_entries(run, "")}
    assert code.commit in entries[CODE_FILE_NAME]
    assert "+import lib, time" in entries[PATCH_FILE_NAME]


def test_what_is_no_code_of_the_users_is_not_kept():
    assert code_record_files("", sleeper_profile(**{"trainer.script": ""})) == ()
    assert code_record_files("", sleeper_profile(**{"trainer.kind": "builtin"})) == ()


def test_what_is_left_out_is_named(project, monkeypatch):
    monkeypatch.setattr(project_code, "_MAX_KEPT_FILES", 3)
    (project / ".env").write_text("KEY=1\n")
    (project / "photo.raw").write_bytes(b"\0" * 100)
    (project / "rows.csv").write_text("1\n" * 200_000)
    os.mkfifo(project / "pipe")
    git(project, "init", "-q", "inner")
    (project / "inner" / "x").touch()
    token = fake_secrets.texts_with_secrets()["huggingface"][1][0]
    (project / "push.py").write_text(f'login("{token}")\n')
    for number in range(3):
        (project / f"n{number}.py").write_text("x" * 100 * (number + 1))
    (project / "small.py").write_text("x")
    code = read_run_code(run_of(project).path)
    why = {file.name: file.why for file in code.left_out}
    assert why == {
        ".env": "it may hold secrets", "photo.raw": "binary, and not in git", "rows.csv": "0.4 MB",
        "inner/": "a repository of its own", "push.py": "it has what looks like a secret",
        "n1.py": "too many changes", "n2.py": "too many changes",
    }  # fmt: skip
    assert [file.name for file in code.changed] == ["n0.py", "small.py"]
    run = run_of(project)
    assert token not in (run.path / PATCH_FILE_NAME).read_text()
    assert ".env (it may hold secrets)" in dict(read_result(run).code)["Not kept"]


@pytest.mark.parametrize(
    ("name", "secret"),
    {
        ".env": True, "a/.env.local": True, "prod.env": True, ".env.example": False, "id_rsa": True, "k.pem": True,
        ".ssh/config": True, "credentials.json": True, "secrets.yaml": True, "hf_token": True, "tokens.txt": True,
        "tokenizer.json": False, "tokens.py": False, "secrets.py": False, "train.py": False, "key_value.py": False,
        "environment.yml": False, "special_tokens_map.json": False, "monkey.txt": False,
    }.items(),
)  # fmt: skip
def test_files_of_secrets_are_known_by_their_names(name, secret):
    assert may_hold_secrets(name) is secret


def problem_of(project):
    code = read_run_code(run_of(project).path)
    return code.problem, code.commit_and_changes_text


def test_what_git_cannot_tell_is_said_in_a_line(project, tmp_path, monkeypatch):
    plain = tmp_path / "plain"
    plain.mkdir()
    assert problem_of(plain) == ("no git repository", "not kept: no git repository")
    assert problem_of(tmp_path / "not there")[0] == "No such file or directory"
    git(plain, "init", "-q")
    assert problem_of(plain)[0] == "the git repository has no commit yet"
    git(tmp_path, "clone", "-q", "--bare", str(project), "bare.git")
    assert problem_of(tmp_path / "bare.git")[0] == "a git repository without a work tree (bare)"
    (project / "out").mkdir()
    (project / "out" / "train.py").touch()
    code = read_run_code(run_of(project / "out").path)
    assert [file.why for file in code.left_out] == ["ignored by git, or not in its work tree"]
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{project}", "shallow")
    assert "shallow clone, no changes" in read_run_code(run_of(tmp_path / "shallow").path).commit_and_changes_text
    (project / ".git" / "HEAD").write_text("ref: refs/heads/none\n")
    assert problem_of(project)[0] == "the git repository has no commit yet"
    monkeypatch.setenv("PATH", "/nowhere")
    assert problem_of(project)[0] == "git is not installed (not on PATH)"


@pytest.mark.whole
def test_a_git_that_hangs_or_refuses_is_said_in_a_line(project, tmp_path, monkeypatch):
    monkeypatch.setattr(project_code, "_MAX_SECONDS", 3.0)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "git"
    make_executable(stub, f"#!/bin/sh\nsleep 60 & echo $! > {tmp_path}/child\nwait\n")
    assert problem_of(project)[0] == "git took more than 3 s"
    child = int((tmp_path / "child").read_text())
    monkeypatch.setattr(project_code, "_MAX_SECONDS", 120.0)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    refusal = f"fatal: detected dubious ownership in repository at '{project}'"
    make_executable(stub, f'#!/bin/sh\necho "{refusal}" >&2\nexit 128\n')
    assert problem_of(project)[0] == "git refuses a repository of another user (safe.directory)"
    make_executable(stub, "#!/bin/sh\nprintf 'fatal: \\033[31mbroken\\n' >&2\nexit 1\n")
    assert problem_of(project)[1] == r"not kept: git: \x1b[31mbroken"
    make_executable(stub, "#!/bin/sh\necho odd\n")
    assert problem_of(project)[0] == "git answers in a form that is not known"


def hanging_git(folder, monkeypatch, subcommand):
    """Put a git on PATH that hangs where it is asked this."""
    (folder / "bin").mkdir()
    make_executable(
        folder / "bin" / "git",
        f'#!/bin/sh\ncase " $* " in *" {subcommand} "*) exec sleep 60 ;; esac\nexec {GIT} "$@"\n',
    )
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


def test_a_start_waits_for_no_code_that_hangs(project, tmp_path, monkeypatch):
    monkeypatch.setattr(places_code, "_MAX_SECONDS", 0.3)
    hanging_git(tmp_path, monkeypatch, "rev-parse")
    before = time.monotonic()
    run = run_of(project)
    assert time.monotonic() - before < 30.0
    why = "reading it took more than 0.3 s"
    assert read_run_code(run.path).problem == why
    assert code_not_kept_in_time_text(run.path) == f"The code of your project is not kept with the run: {why}"


def test_a_host_that_does_not_answer_in_time_is_late(monkeypatch):
    def give_up(_host, _question, _answer_type, answer_seconds):
        time.sleep(answer_seconds - 0.1)
        raise NoAnswer("box gave no answer", "Try again.")

    monkeypatch.setattr(places_code, "_MAX_SECONDS", 0.3)
    monkeypatch.setattr(places_code, "ask_host", give_up)
    (file,) = places_code.code_record_files("box", sleeper_profile(**{"trainer.script": "/project/train.py"}))
    assert parse_json_as(file.content, RunCode).is_late


@pytest.mark.whole
def test_a_start_names_the_changes_that_it_did_not_wait_for(project, tmp_path, monkeypatch):
    (project / "train.py").write_text("import time; time.sleep(0)\n")
    hanging_git(tmp_path, monkeypatch, "read-tree")
    path = store.save_profile(sleeper_profile(**{"trainer.script": str(project / "train.py"), "name": "mine"}))
    said = run_cli("run", str(path), "--detach").stdout
    assert "! The uncommitted changes of your project are not kept with the run: git took more than 4 s" in said


def test_a_submodule_with_changes_is_named(project, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(project, other)
    git(project, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "part")
    commit(project)
    (project / "part" / "train.py").write_text("changed")
    (project / "train.py").write_text("changed too")
    code = read_run_code(run_of(project).path)
    assert [(file.name, file.why) for file in code.left_out] == [("part", "a submodule with changes")]
    assert [file.name for file in code.changed] == ["train.py"]


def test_a_repository_runs_no_program_of_its_own(project, tmp_path):
    (project / "train.py").write_text("changed")
    for name in ("post-index-change", "fsmonitor-watchman"):
        make_executable(project / ".git" / "hooks" / name, f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    git(project, "config", "core.fsmonitor", str(project / ".git" / "hooks" / "fsmonitor-watchman"))
    assert "1 file changed" in read_run_code(run_of(project).path).commit_and_changes_text
    assert not (tmp_path / "hooked").exists()


def test_a_worktree_inside_a_hook_of_git_is_still_that_of_the_script(project, tmp_path, monkeypatch):
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    (tmp_path / "tree" / "train.py").write_text("changed")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    code = read_run_code(run_of(tmp_path / "tree").path)
    assert (code.folder, [file.name for file in code.changed]) == (str(tmp_path / "tree"), ["train.py"])


def test_runs_that_differ_in_code_are_compared(project):
    (project / "train.py").write_text("first")
    first = run_of(project, "first")
    same = run_of(project, "same")
    (project / "train.py").write_text("second")
    (project / "gone.py").unlink()
    second = run_of(project, "second")
    commit(project)
    third = run_of(project, "third")
    rows = {row.label: row.cells for row in differing_code_rows(read_compared_runs((first, second)))}
    assert [*rows] == ["gone.py", "train.py"]
    assert rows["gone.py"] == ("as committed", "deleted")
    assert rows["train.py"][0] != rows["train.py"][1]
    assert differing_code_rows(read_compared_runs((first, same))) == ()
    commits = {row.label: row.cells for row in differing_code_rows(read_compared_runs((second, third)))}["Commit"]
    assert commits[0] != commits[1]
    shutil.rmtree(project / ".git")
    rows = {row.label: row.cells for row in differing_code_rows(read_compared_runs((third, run_of(project, "fourth"))))}
    assert rows["Commit"] == (commits[1], "unknown")
    assert "Commit" in run_cli("compare", str(first.path), str(third.path)).stdout
