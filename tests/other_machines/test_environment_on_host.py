"""Environments for training that are made here or on a host: by what it has, once, also when the link is cut."""

import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import msgspec
import pytest
from ssh import bare_host, cut_connections_later
from support import machine, make_executable, run_cli, wait_until
from tui_train.screens.app.environment_installer import _create_in_free_folder

from tui_train.actions import environments
from tui_train.actions.environments import PackageSet
from tui_train.actions.environments import create as making
from tui_train.actions.environments.create import InstallCancelled, InstallPlan
from tui_train.base.errors import AlreadyExists, CannotWrite, NoAnswer, Unavailable
from tui_train.base.text import display_path
from tui_train.checks.finding import EnvironmentInstall
from tui_train.facts.machine import probe
from tui_train.facts.machine.torch_builds import TorchBuild
from tui_train.facts.types import Machine
from tui_train.runner.questions import environment
from tui_train.runner.system.environments import (
    UNFINISHED_MARKER_NAME,
    environments_folder,
    is_unfinished,
    mark_unfinished_and_lock,
)

WHEEL = TorchBuild("", "the build of a test")


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """An index with a torch that says its version, and a set that needs nothing else; returns its address."""
    folder = tmp_path / "index" / "torch"
    folder.mkdir(parents=True)
    name = "torch-2.13.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("torch/__init__.py", "from . import version\n__version__ = '2.13.0'\n")
        wheel.writestr("torch/version.py", "cuda = None\n")
        wheel.writestr("torch-2.13.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
        wheel.writestr("torch-2.13.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("torch-2.13.0.dist-info/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{name}">{name}</a>')
    (tmp_path / "set.txt").write_text("torch==2.13.0\n")
    monkeypatch.setattr(PackageSet, "requirements_file", tmp_path / "set.txt")
    return (tmp_path / "index").as_uri()


def installing(path, *commands, code="1", host=""):
    """The making of an environment by other commands, filled up to as many as there are steps."""
    filled = (*commands, *(("true",),) * 4)[:4]
    hf = environments.PACKAGE_SETS["hf"]
    return InstallPlan(host=host, package_set=hf, path=path, commands=filled, variables={}, id=code)


def follow(plan, cancelled=lambda: False):
    """Follow the making of an environment, and return what was printed."""
    told = []
    making.create_environment(plan, machine(), told.append, told.append, cancelled)
    return told


def test_a_machine_is_asked_what_could_make_one_and_where(tmp_path):
    hf = environments.PACKAGE_SETS["hf"]
    found = making.ask_for_installers("", hf, str(tmp_path / "new"), sys.executable)
    assert (found.standing, found.folder) == ("free", str(tmp_path / "new"))
    assert found.pythons[0].path == sys.executable
    assert (found.pythons[0].major, found.pythons[0].minor) == sys.version_info[:2]
    assert found.free > 0
    usual = making.ask_for_installers("", hf)
    assert usual.folder.endswith("/tui-train/envs/hf")
    Path(usual.folder).mkdir(parents=True)
    assert making.ask_for_installers("", hf).standing == "taken"
    assert making.ask_for_installers("", hf, first_free=True).folder == f"{usual.folder}-2"
    with pytest.raises(AlreadyExists, match="already exists") as raised:
        making.plan_install("", hf, making.ask_for_installers("", hf), WHEEL)
    assert f"such as --path {usual.folder}-2" in raised.value.remedy
    with pytest.raises(Unavailable, match="no absolute path"):
        making.ask_for_installers("", hf, "here/new")


def test_what_a_host_lacks_is_said_before_anything_is_made():
    hf = environments.PACKAGE_SETS["hf"]
    python = making._InstallingPython("/usr/bin/python3", 3, 12, makes=True)
    bare = making.Installers(folder="/e/hf", standing="free", work="/w", pythons=())
    with pytest.raises(Unavailable, match=r"needs Python 3\.10 to 3\.13, and box has none") as raised:
        making.plan_install("box", hf, bare, WHEEL)
    assert "Install uv there" in raised.value.remedy
    old = msgspec.structs.replace(bare, pythons=(msgspec.structs.replace(python, minor=8),))
    with pytest.raises(Unavailable, match="and box has none"):
        making.plan_install("box", hf, old, WHEEL)
    debian = msgspec.structs.replace(bare, pythons=(msgspec.structs.replace(python, makes=False),))
    with pytest.raises(Unavailable, match="lacks venv or ensurepip") as raised:
        making.plan_install("box", hf, debian, WHEEL)
    assert "apt install python3-venv" in raised.value.remedy
    with pytest.raises(Unavailable, match=r"/opt/python on box is not a Python 3\.10 to 3\.13"):
        making.plan_install("box", hf, msgspec.structs.replace(bare, pythons=(python,)), WHEEL, "/opt/python")
    with pytest.raises(CannotWrite, match=r"box:/e/hf has 1\.0 KiB free, and the environment takes about") as raised:
        making.plan_install("box", hf, msgspec.structs.replace(bare, pythons=(python,), free=1024), WHEEL)
    assert "tui-train env create NAME --on box --path FOLDER" in raised.value.remedy
    whole = making.plan_install("box", hf, msgspec.structs.replace(bare, pythons=(python,), free=10**12), WHEEL)
    assert whole.commands[0] == ("/usr/bin/python3", "-m", "venv", "/e/hf")
    assert whole.commands[2][-2:] == ("-r", "/w/requirements.txt")


@pytest.mark.parametrize(
    ("line", "why", "remedy"),
    [
        (
            "  cause: Failed to fetch: https://u:p@whl.example/cu129/torch/",
            "whl.example cannot be reached",
            "TUI_TRAIN_",
        ),
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full", "Free some space"),
        ("ERROR: No matching distribution found for torch==2.13.0", "No matching distribution found", "last lines"),
    ],
)
def test_a_failed_one_is_a_sentence_and_leaves_nothing(tmp_path, line, why, remedy):
    path, told = tmp_path / "envs" / "new", []
    plan = installing(path, ("true",), (sys.executable, "-c", f"print({line!r}); exit(1)"))
    with pytest.raises(Unavailable, match="could not be installed") as raised:
        making.create_environment(plan, machine(), told.append, told.append)
    assert why in raised.value.message
    assert "u:p" not in raised.value.message
    assert remedy in raised.value.remedy
    assert told == ["Making the environment …", "Installing torch …", line]
    assert list(path.parent.iterdir()) == []


def test_one_that_cannot_be_started_or_does_not_work_says_so_and_leaves_nothing(tmp_path):
    path = tmp_path / "envs" / "new"
    with pytest.raises(Unavailable, match="/nowhere/uv cannot be started"):
        follow(installing(path, ("/nowhere/uv",)))
    broken = (sys.executable, "-c", "raise SystemExit('torch is broken')")
    with pytest.raises(Unavailable, match="does not work: torch is broken") as raised:
        follow(installing(path, *(("true",),) * 3, broken, code="2"))
    assert "--index-url" in raised.value.remedy
    assert not path.exists()


def test_where_pytorchs_index_cannot_be_reached_pips_own_is_tried_and_said(tmp_path):
    failed = "Failed to fetch: https://download.pytorch.org/whl/cu126/torch/"
    program = f"import sys\nif '--index-url' in sys.argv: sys.exit({failed!r})\nprint('installed', *sys.argv[1:])"
    words = ("--index-url", "https://download.pytorch.org/whl/cu126", "torch")
    install = (sys.executable, "-c", program, *words)
    told = follow(installing(tmp_path / "new", ("true",), install))
    assert told[2:4] == [failed, "download.pytorch.org cannot be reached: trying pip's own index …"]
    assert told[6:] == ["installed torch", "Installing the other libraries …", "Checking it …"]
    mirror = (*install[:3], "--index-url", "https://whl.example/cu126", "torch")
    with pytest.raises(Unavailable, match="could not be installed"):
        follow(installing(tmp_path / "other", ("true",), mirror))


@pytest.mark.parametrize(
    ("cuda", "recipe", "module", "said"),
    [
        ("", "", "", ""),
        ("12.9", "", "", "the index has torch 2.13.0 only, which cannot use GPUs"),
        ("", "qwen", "class qwen: finetune_recipe = print", ""),
        ("", "qwen", "class llama: finetune_recipe = print", "NeMo does not work in it: it has no qwen"),
        ("", "qwen", "raise ImportError('apex')", "NeMo does not work in it: ImportError: apex"),
    ],
)
def test_what_was_made_is_checked(tmp_path, cuda, recipe, module, said):
    (tmp_path / "torch.py").write_text("class version: cuda = None\n__version__ = '2.13.0'\n")
    (tmp_path / "nemo" / "collections").mkdir(parents=True)
    (tmp_path / "nemo" / "collections" / "llm.py").write_text(f"print('a word')\n{module}\n")
    command = [sys.executable, "-c", making._CHECK_CODE, cuda, recipe, making._recipes_program_text()]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == said
    assert bool(done.returncode) == bool(said)
    assert ("NeMo has 1 recipes, qwen" in done.stdout) == bool(recipe and not said)


def test_nothing_of_the_current_folder_has_a_part_in_it(tmp_path, monkeypatch):
    clone, path = tmp_path / "clone", tmp_path / "envs" / "new"
    clone.mkdir()
    (clone / "venv.py").write_text("open('was-run', 'w')")
    for name in ("uv", "python3.13"):
        make_executable(clone / "bin" / name, "#!/bin/sh\ntouch was-run\n")
    monkeypatch.chdir(clone)
    monkeypatch.setenv("PATH", f"bin:{os.environ['PATH']}")
    found = making.ask_for_installers("", environments.PACKAGE_SETS["hf"])
    assert not [path for path in (found.uv, *(each.path for each in found.pythons)) if path.startswith(("bin", "./"))]
    told = follow(installing(path, (sys.executable, "-m", "venv", "--without-pip", str(path)), ("pwd",)))
    assert "/" in told, "uv reads settings and pip relative paths there"
    assert sorted(path.name for path in clone.iterdir()) == ["bin", "venv.py"]


def test_what_is_being_made_or_was_abandoned_is_no_environment(tmp_path):
    folder = environments_folder() / "new"
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(folder)), check=True)
    lock = mark_unfinished_and_lock(folder)
    assert "env new" not in [tool.label for tool in probe.probe_toolchains(deadline=20)]
    hf = environments.PACKAGE_SETS["hf"]
    assert making.ask_for_installers("", hf, str(folder)).standing == "making"
    os.close(lock)
    abandoned = making.ask_for_installers("", hf, str(folder), first_free=True)
    assert (abandoned.standing, abandoned.folder) == ("free", str(folder))
    follow(installing(folder))
    assert not (folder / "bin").exists()


def test_one_that_another_machine_with_this_home_makes_is_followed(tmp_path, capfd):
    path = tmp_path / "new"
    path.mkdir()
    environment._work_folder(path).mkdir(parents=True)
    lock = mark_unfinished_and_lock(path)
    # No process of this machine.
    environment._write_json(path, "maker", {"id": "1", "process": [1, 1]})

    def end():
        (path / UNFINISHED_MARKER_NAME).unlink()
        environment._write_json(path, "end", {"step": 3, "code": 0, "said": ""})
        os.close(lock)

    ending = threading.Timer(1.0, end)
    ending.start()
    environment._send_log(path, 0)
    ending.join()
    assert '"code": 0' in capfd.readouterr().out


def test_a_cancel_that_the_host_does_not_hear_is_said(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    make_executable(tmp_path / "bin" / "ssh", "#!/bin/sh\nexit 255\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    with pytest.raises(NoAnswer, match="it was not cancelled: ") as raised:
        making._cancel(installing(tmp_path / "new", host="box"))
    assert "It may go on there" in raised.value.remedy


def test_it_is_made_once_and_goes_on_where_nobody_follows(tmp_path):
    path, counted = tmp_path / "new", tmp_path / "count"
    waits = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    work = ("sh", "-c", f"echo x >> {counted}; echo begun; {waits}; echo done; touch {path}/made")
    install = installing(path, work)
    lines = making._install_lines(install, 0, lambda: False)
    assert next(lines).text
    lines.close()
    # The link is cut: whoever asks again, by the same id, hears all of it.
    assert is_unfinished(path)
    hf = environments.PACKAGE_SETS["hf"]
    again = making.ask_for_installers("", hf, str(path))
    assert (again.standing, again.id) == ("making", "1")
    followed = making.ask_for_installers("", hf, str(path), first_free=True)
    assert (followed.folder, followed.id) == (str(path), "1")
    (tmp_path / "go").touch()
    told = follow(install)
    assert told[:3] == ["Making the environment …", "begun", "done"]
    assert "Checking it …" in told
    assert (path / "made").exists()
    assert not is_unfinished(path)
    assert follow(install) == told
    assert counted.read_text() == "x\n"
    with pytest.raises(Unavailable, match="is there already"):
        follow(installing(path, work, code="2"))


def test_another_one_of_that_folder_is_not_begun_while_it_is_made(tmp_path):
    install = installing(tmp_path / "new", ("sleep", "30"))
    next(making._install_lines(install, 0, lambda: False))
    with pytest.raises(Unavailable, match="is there already and is being made"):
        follow(installing(tmp_path / "new", ("true",), code="2"))
    making._cancel(install)
    assert not (tmp_path / "new").exists()


def test_a_cancelled_one_ends_with_all_that_it_started_and_leaves_nothing(tmp_path):
    path, began = tmp_path / "new", tmp_path / "began"
    install = installing(path, ("sh", "-c", f"sh -c 'trap : TERM HUP; echo $$ > {began}; sleep 100' & sleep 100"))
    with pytest.raises(InstallCancelled):
        follow(install, began.exists)
    assert not path.exists()
    # What was killed is listed until the kernel has ended it.
    wait_until(lambda: not Path(f"/proc/{began.read_text().strip()}").exists(), 5)


def test_one_whose_maker_was_killed_is_told_and_made_again(tmp_path):
    path = tmp_path / "new"
    install = installing(path, ("sh", "-c", "sleep 0.5; kill -9 0"))
    with pytest.raises(Unavailable, match="it was ended there before it was done"):
        follow(install)
    assert not path.exists()
    assert "Checking it …" in follow(installing(path, ("true",), code="2"))


def test_a_lost_host_is_asked_again_from_where_it_was_heard_last(tmp_path, monkeypatch):
    monkeypatch.setattr(making, "_RETRY_SECONDS", 0.1)
    whole, asked = making._install_lines, []

    def cut_once(install, at, cancelled):
        asked.append(at)
        for line in whole(install, at, cancelled):
            yield line
            if len(asked) == 1:
                raise NoAnswer("box did not answer", "")

    monkeypatch.setattr(making, "_install_lines", cut_once)
    told = follow(installing(tmp_path / "new", ("sh", "-c", "echo one; sleep 0.5; echo two")))
    assert [line for line in told if line in {"one", "two"}] == ["one", "two"]
    assert any("It goes on there; asking again" in line for line in told)
    assert asked[1] > 0


class Reporter:
    """What the wizard reports of an installation."""

    host = ""

    def __init__(self):
        self.told = []
        self.report_folder = self.begin_step = self.add_output_line = self.told.append


def test_the_wizard_makes_it_there_in_a_folder_that_is_free(monkeypatch):
    taken = making.ask_for_installers("", environments.PACKAGE_SETS["hf"]).folder
    Path(taken).mkdir(parents=True)
    work = f"mkdir {taken}-2/bin; ln -s {sys.executable} {taken}-2/bin/python"
    commands = (("sh", "-c", work), ("echo", "torch"), ("true",))
    monkeypatch.setattr(making, "_install_commands", lambda *_: commands)
    monkeypatch.setattr(making, "_CHECK_CODE", "print('checked')")
    reporter = Reporter()
    install = EnvironmentInstall("hf", "install torch")
    python = _create_in_free_folder(install, Machine(hostname=""), reporter, lambda: False)
    assert python == f"{taken}-2/bin/python"
    assert reporter.told[0] == display_path(f"{taken}-2")
    assert reporter.told[-1] == "checked"


@pytest.mark.whole
def test_a_host_makes_one_with_its_own_python_while_the_link_is_cut(tmp_path, monkeypatch, wheels):
    monkeypatch.setattr(making, "_RETRY_SECONDS", 0.2)
    hf, told = environments.PACKAGE_SETS["hf"], []
    with bare_host(tmp_path, monkeypatch, "", what="an environment that is made on a host over ssh") as home:
        python = str(home / "bin" / "python3")
        installers = making.ask_for_installers("box", hf, python=python)
        assert installers.folder == str(home / ".local/share/tui-train/envs/hf")
        install = making.plan_install("box", hf, installers, TorchBuild(wheels, "of the test"), python)
        cut = cut_connections_later(tmp_path, 1.5)
        making.create_environment(install, machine(), told.append, told.append)
        cut.join()
        assert any("It goes on there" in line for line in told)
        assert told[-1] == "torch 2.13.0 is imported"
        assert making.ask_for_installers("box", hf).standing == "taken"
        listed = run_cli("env", "list", "--on", "box").stdout
        assert "env hf" in listed
        assert "tui-train env create NAME --on box" in listed
        again = run_cli("env", "create", "hf", "--on", "box", "--yes", code=73)
        assert "already exists on box" in again.stderr
    assert Path(installers.folder).is_dir()
