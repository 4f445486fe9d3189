"""Environments that train: which torch is right for the cards, what is run, and what is left where it fails."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
from support import facts, gpu, machine, run_cli, set_variables, wait_until

from tui_train.actions import environments
from tui_train.actions.environments import create as making
from tui_train.actions.environments import pip_settings
from tui_train.actions.environments.progress import InstallOutputReader, InstallProgress
from tui_train.base.errors import BadInput, CannotWrite, Unavailable
from tui_train.cli.environments import environments as printed
from tui_train.facts.machine import probe
from tui_train.facts.machine.torch_builds import (
    RECOMMENDED_TORCH_VERSION,
    TorchBuild,
    choose_torch_build,
    torchvision_install_words,
)
from tui_train.runner.system.environments import environments_folder, first_free_path, mark_unfinished_and_lock

ROOT = Path(__file__).parents[2]
PYTORCH = "https://download.pytorch.org/whl/"


def cards(*capabilities):
    return [gpu(at, f"GPU-{at}", compute_capability=found) for at, found in enumerate(capabilities)]


@pytest.mark.parametrize(
    ("capabilities", "driver", "index", "part"),
    [
        ((), None, f"{PYTORCH}cpu", "no GPU"),
        (("8.6", "8.6"), "13.0", "", "all 2 GPUs"),
        (("8.6",), None, "", "supports the GPU"),
        (("8.6",), "12.8", f"{PYTORCH}cu129", "the driver does not support CUDA 13"),
        (("6.1",), "13.0", f"{PYTORCH}cu126", "CUDA 12.6 supports the GPU"),
        (("7.0", "8.6"), "13.0", f"{PYTORCH}cu126", "all 2 GPUs"),
        (("7.5",), "13.0", "", "supports the GPU"),
        (("12.0",), "12.8", f"{PYTORCH}cu129", "supports the GPU"),
        (("12.0",), "13.0", "", "supports the GPU"),
        (("6.1", "12.0", "12.0"), "13.0", "", "2 of 3 GPUs"),
    ],
)
def test_torch_is_the_build_with_code_for_the_cards(capabilities, driver, index, part):
    chosen = choose_torch_build(cards(*capabilities), driver)
    assert chosen.index == index
    assert part in chosen.why


def test_a_build_without_code_for_any_card_is_refused():
    with pytest.raises(Unavailable, match=r"supports compute capability 8\.7$") as raised:
        choose_torch_build(cards("8.7"), "13.0")
    assert "PyTorch for Jetson" in raised.value.remedy
    with pytest.raises(Unavailable, match="compute capability 3\\.7"):
        choose_torch_build(cards("3.7"), "11.4")


@pytest.mark.parametrize(
    ("capability", "driver", "needed"), [("12.0", "11.8", 570), ("8.6", "11.4", 525), ("6.1", "11.8", 525)]
)
def test_a_driver_that_is_too_old_is_named_with_the_one_that_is_needed(capability, driver, needed):
    with pytest.raises(Unavailable, match="driver is too old") as raised:
        choose_torch_build(cards(capability, capability), driver)
    assert f"Update the NVIDIA driver to {needed} or newer" in raised.value.remedy


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        ("2.14.1", ("torchvision==0.29.*", "torch==2.14.1")),
        (
            "2.0.1+cu118",
            ("torchvision==0.15.*", "torch==2.0.1", "--index-url", "https://download.pytorch.org/whl/cu118"),
        ),
        ("1.13.1", ()),
        ("2.x", ()),
        ("", ()),
    ],
)
def test_the_torchvision_that_fits_a_torch(torch, words):
    assert torchvision_install_words(torch) == words


def test_the_set_with_torchvision_has_the_one_for_its_torch():
    seeing = environments.PACKAGE_SETS["hf-images"]
    version = environments.torch_requirement(seeing).removeprefix("torch==")
    assert seeing.torch_companion.startswith(torchvision_install_words(version)[0].removesuffix("*"))


@pytest.mark.parametrize("name", environments.PACKAGE_SETS)
def test_a_lock_is_exact_and_names_nothing_of_one_build_of_torch(name):
    lines = environments.PACKAGE_SETS[name].requirements_file.read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert all("==" in line and "@" not in line and "+" not in line.partition(";")[0] for line in pins)
    assert not [line for line in pins if line.startswith(("nvidia-cu", "cuda-", "triton"))]
    torch = environments.torch_requirement(environments.PACKAGE_SETS[name])
    assert torch in pins
    assert torch.startswith(f"torch=={RECOMMENDED_TORCH_VERSION}."), "the version in words"


def pinned(words):
    """Names and versions, without extras and markers."""
    pairs = (word.partition(";")[0].strip().partition("==") for word in words if "==" in word)
    return {(name.partition("[")[0].replace("_", "-"), version) for name, _, version in pairs}


def test_the_extras_have_the_versions_of_the_locks():
    extras = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]["optional-dependencies"]
    for extra, name in (("train", "hf"), ("train-libraries", "hf"), ("nemo", "nemo")):
        found = pinned(extras[extra])
        assert found
        assert found <= pinned(environments.PACKAGE_SETS[name].requirements_file.read_text().splitlines())


def test_uv_and_pip_are_told_the_same():
    wanted, path = environments.PACKAGE_SETS["hf"], Path("/e/hf")
    indexed = TorchBuild("https://index/cu126", "")
    with_uv = making.plan_install(wanted, path, sys.executable, indexed, "/bin/uv")
    with_pip = making.plan_install(wanted, path, sys.executable, indexed, "")
    for plan in (with_uv, with_pip):
        assert plan.commands[1][-3:] == ("--index-url", "https://index/cu126", "torch==2.13.0")
        assert plan.commands[2][-2:] == ("-r", str(wanted.requirements_file))
        assert "--index-url" not in plan.commands[2]
    assert with_pip.commands[0] == (sys.executable, "-m", "venv", "/e/hf")
    assert with_pip.variables == {}
    seeing = making.plan_install(environments.PACKAGE_SETS["hf-images"], path, sys.executable, indexed, "")
    assert seeing.commands[1][-2:] == ("torch==2.13.0", "torchvision==0.28.0")
    assert seeing.commands[2] == with_pip.commands[2]
    from_pypi = making.plan_install(wanted, path, sys.executable, TorchBuild("", ""), "")
    assert from_pypi.commands[1][-1] == "torch==2.13.0"


@pytest.fixture
def pip_set(monkeypatch, tmp_path):
    """Set pip by a file and by variables, and nothing of uv."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)

    def write(lines="", **variables):
        (tmp_path / "pip.conf").write_text(f"[global]\n{lines}")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
        set_variables(monkeypatch, variables)
        return pip_settings.read_pip_settings(sys.executable)

    return write


def test_uv_brings_the_python_that_is_not_here(monkeypatch):
    monkeypatch.setattr(making, "supports_python", lambda *_: False)
    monkeypatch.setattr(making, "find_uv", lambda: "/x/uv")
    hf = environments.find_package_set("hf")
    assert making.find_supported_python(hf) == "3.12"
    plan = making.plan_install(hf, Path("/made"), "3.12", TorchBuild("", "", ""), "/x/uv")
    assert plan.commands[0][-3:] == ("--python", "3.12", "/made")
    monkeypatch.setattr(making, "find_uv", lambda: "")
    with pytest.raises(Unavailable, match=r"3\.10 to 3\.13"):
        making.find_supported_python(hf)


def test_uv_is_given_what_pip_is_set_to(pip_set, monkeypatch):
    lines = "index-url = https://old/simple\nextra-index-url = https://a/s\n https://b/s\nno-index = no\n"
    settings = pip_set(
        f"{lines}[install]\npre = yes", PIP_INDEX_URL="https://mirror/simple", PIP_FIND_LINKS="/wheels /more"
    )
    assert pip_settings.pip_settings_unknown_to_uv(settings) == []
    given = pip_settings.uv_variables(settings)
    assert given["UV_INDEX_URL"] == "https://mirror/simple"
    assert given["UV_EXTRA_INDEX_URL"].split() == ["https://a/s", "https://b/s"]
    assert given["UV_FIND_LINKS"] == "/wheels,/more"
    assert given["UV_PRERELEASE"] == "allow"
    assert "UV_NO_INDEX" not in given
    monkeypatch.setenv("UV_FIND_LINKS", "/mine")
    assert "UV_FIND_LINKS" not in pip_settings.uv_variables(settings), "what is set for uv stays"


@pytest.mark.whole
@pytest.mark.parametrize(("line", "code"), [("retries = 3", 0), ("require-hashes = true", 1)])
def test_a_setting_that_uv_has_no_equal_of_leaves_it_to_pip(pip_set, line, code):
    pip_set(line)
    done = subprocess.run([sys.executable, "-I", pip_settings.__file__], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr


def test_an_index_that_is_named_wins_over_that_of_pip(pip_set, tmp_path):
    """The real uv asks the one that holds the builds for the cards, not the mirror."""
    uv = making.find_uv()
    if not uv:
        pytest.skip("NOT TESTED: which index uv asks: there is no uv")
    wheels = tmp_path / "named" / "thing"
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / "thing-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
        wheel.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("thing-1.dist-info/RECORD", "")
    (wheels / "index.html").write_text('<a href="thing-1-py3-none-any.whl">thing-1-py3-none-any.whl</a>')
    given = pip_settings.uv_variables(pip_set(f"index-url = {(tmp_path / 'mirror').as_uri()}"))
    command = [uv, "--no-config", "pip", "install", "--dry-run", "--no-cache", "--python", sys.executable]
    command += ["--index-url", (tmp_path / "named").as_uri(), "thing"]
    done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, check=False)
    assert "thing==1" in done.stderr


def venv(path):
    return (sys.executable, "-m", "venv", "--without-pip", str(path))


def failing(path, *commands):
    """The plan of an environment that `commands` make; it takes no room, whatever this machine's disk has."""
    small = msgspec.structs.replace(environments.PACKAGE_SETS["hf"], gigabytes=0, gigabytes_with_cuda=0)
    return making.InstallPlan(package_set=small, path=path, commands=commands, variables={})


def test_what_fails_is_removed_again(tmp_path):
    path = tmp_path / "envs" / "new"
    for command, why in ((venv(path), "torch cannot be imported"), ((str(tmp_path / "none"),), "cannot be started")):
        with pytest.raises(Unavailable, match=why):
            making.create_environment(failing(path, command), machine(), print)
        assert list(path.parent.iterdir()) == []


def test_what_is_there_is_never_touched(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("mine", "link"):
        with pytest.raises(CannotWrite, match="already exists"):
            making.create_environment(failing(tmp_path / name, ("false",)), machine(), print)
    assert (tmp_path / "mine" / "file").read_text() == "mine"


def test_a_set_that_is_not_there_is_said():
    with pytest.raises(BadInput, match="no package set nemoo") as raised:
        environments.find_package_set("nemoo")
    assert raised.value.remedy == "Did you mean nemo?"


def cli(*words, code=0, **variables):
    return run_cli(*words, code=code, env={**os.environ, **variables})


def test_nothing_is_installed_without_a_yes(tmp_path):
    done = cli("env", "create", "hf", "--path", str(tmp_path / "e"), "--dry-run", TUI_TRAIN_INDEX="https://my/index")
    assert "https://my/index torch==" in done.stdout
    asked = cli("env", "create", "hf", "--path", str(tmp_path / "e"), code=69)
    assert "Add --yes" in asked.stderr
    assert list(tmp_path.iterdir()) == []
    named = cli("env", "create", "hf", "--dry-run", "--path", str(tmp_path / "e"), "--index-url", "none")
    assert "--index-url" not in named.stdout
    cli("env", "create", "hf", "--path", str(tmp_path), "--dry-run", code=73)
    cli("env", "create", "hf", "--python", "/nowhere/python", "--dry-run", code=69)


SECRETS = ("https://user:pa55@host/simple", "https://pa55@host/simple", "https://user:p@pa55@host/simple")


@pytest.mark.whole
@pytest.mark.parametrize("address", SECRETS)
def test_a_password_in_an_address_is_never_shown(tmp_path, address):
    words = ("env", "create", "hf", "--dry-run", "--path", str(tmp_path / "e"))
    for done in (cli(*words, "--index-url", address), cli(*words, TUI_TRAIN_INDEX=address)):
        assert "host/simple" in done.stdout
        assert "pa55" not in done.stdout + done.stderr
    with pytest.raises(Unavailable, match="exit code 1: false") as raised:
        making.create_environment(failing(tmp_path / "f", ("false", "--index-url", address)), machine(), print)
    assert "host/simple" in raised.value.message
    assert "pa55" not in raised.value.message


def test_an_environment_that_was_made_is_found_by_its_name():
    folder = environments_folder() / "mine"
    subprocess.run(venv(folder), check=True)
    labels = {Path(tool.python).parents[1].name: tool.label for tool in probe.probe_toolchains(deadline=20)}
    assert labels["mine"] == "env mine"
    listed = cli("env", "list").stdout
    assert "env mine" in listed
    assert "tui-train env create NAME" in listed


def test_recipes_are_told_of_no_python_without_nemo():
    done = cli("recipes", "--python", sys.executable, code=69)
    assert "has no nemo_toolkit" in done.stderr
    assert "tui-train env create nemo" in done.stderr


def test_the_list_says_what_nemo_a_python_has():
    for packages, said in (
        ({"nemo_toolkit": "2.7.3", "nemo_run": "1"}, "recipes (2.7.3)"),
        ({"nemo_automodel": "0.7.0"}, "AutoModel (0.7.0)"),
        ({"megatron-bridge": "0.5.0", "nemo_automodel": "0.7.0"}, "Megatron-Bridge (0.5.0)"),
        ({"nemo_toolkit": "3.0.0"}, "has nemo_toolkit 3.0.0, but its language-model recipes"),
        ({"nemo_automodel": "0.2.0"}, "has nemo_automodel 0.2.0, but 0.4 or newer"),
        ({}, "-"),
    ):
        (tool,) = facts(packages=packages).toolchains
        assert printed._nemo_support_text(tool).startswith(said)
    old = facts(gpus=cards("6.1", "8.6"))
    assert printed._supported_card_count_text(old.toolchains[0], old.machine) == "1 of 2"


# The work


def test_what_uv_and_pip_print_is_progress():
    uv = InstallOutputReader()
    assert uv.begin_step("Installing torch …") == InstallProgress("Installing torch …")
    for line in (
        "Using Python 3.11.7 environment at: /e",
        "Downloading torch (500.0MiB)",
        "Downloading sympy (6.0MiB)",
    ):
        now = uv.read_line(line)
    assert (now.text, now.downloaded, now.total) == ("Downloading torch (500 MiB)", 0, 506 << 20)
    assert uv.read_line(" Downloaded torch").downloaded == 500 << 20
    assert uv.read_line("Installed 10 packages in 1s").text == "Installed 10 packages in 1s, compiling them …"
    pip = InstallOutputReader()
    pip.read_line("  Downloading torch-2.13.0-cp311-none-linux.whl (500.0 MB)")
    now = pip.read_line("  Downloading sympy-1.13-py3-none-any.whl.metadata (100 kB)")
    assert pip.read_line("  Downloading nvidia_nccl-2-py3-none-any.whl (100 MB)").downloaded == 500_000_000
    assert pip.read_line("Installing collected packages: torch").downloaded == 600_000_000


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
def test_a_failed_installation_is_a_sentence_and_leaves_nothing(tmp_path, line, why, remedy):
    path = tmp_path / "envs" / "new"
    plan = failing(path, ("mkdir", "-p", str(path)), (sys.executable, "-c", f"print({line!r}); exit(1)"))
    told = []
    with pytest.raises(Unavailable, match="could not be installed") as raised:
        making.create_environment(plan, machine(), told.append, told.append)
    assert why in raised.value.message
    assert "u:p" not in raised.value.message
    assert remedy in raised.value.remedy
    assert told == ["Making the environment …", "Installing torch …", line]
    assert list(path.parent.iterdir()) == []


def test_where_pytorchs_index_cannot_be_reached_pips_own_is_tried_and_said(tmp_path, monkeypatch):
    path, told = tmp_path / "envs" / "new", []
    monkeypatch.setattr(making, "_verify_environment", lambda *_: None)
    unreachable = "print('Failed to fetch: https://download.pytorch.org/whl/cu126/torch/'); sys.exit(1)"
    program = f"import sys\nif '--index-url' in sys.argv: {unreachable}\nprint('installed', *sys.argv[1:])"
    install = (sys.executable, "-c", program, "--index-url", "https://download.pytorch.org/whl/cu126", "torch")
    making.create_environment(failing(path, ("mkdir", "-p", str(path)), install), machine(), told.append, told.append)
    why = "torch and its libraries could not be installed: download.pytorch.org cannot be reached."
    failed = "Failed to fetch: https://download.pytorch.org/whl/cu126/torch/"
    instead = f"{why} Installing torch from pip's own index …"
    assert told[2:] == [failed, instead, "installed torch", "Checking it …"]
    mirror = (*install[:3], "--index-url", "https://whl.example/cu126", "torch")
    with pytest.raises(Unavailable, match="could not be installed"):
        making.create_environment(failing(tmp_path / "other", mirror), machine(), told.append, told.append)


def test_a_cancelled_installation_ends_with_all_it_started_and_leaves_nothing(tmp_path):
    path, mark = tmp_path / "envs" / "new", f"3.{os.getpid()}"
    told = []
    plan = failing(path, ("sh", "-c", f"echo begun; sh -c 'trap : TERM HUP; sleep 100.{mark[2:]}' & sleep 100"))
    with pytest.raises(making.InstallCancelled):
        making.create_environment(plan, machine(), print, told.append, lambda: bool(told))
    assert not path.exists()
    look = ["pgrep", "-f", f"sleep 100.{mark[2:]}$"]
    # What was killed is listed until the kernel has ended it.
    wait_until(lambda: subprocess.run(look, check=False, stdout=subprocess.DEVNULL).returncode, 5)


def test_less_room_than_it_takes_is_said_before(tmp_path):
    huge = msgspec.structs.replace(environments.PACKAGE_SETS["hf"], gigabytes=10**9)
    plan = msgspec.structs.replace(failing(tmp_path / "envs" / "new", ("false",)), package_set=huge)
    with pytest.raises(CannotWrite, match="GiB free, and the environment takes about"):
        making.create_environment(plan, machine(), print)
    assert list(tmp_path.iterdir()) == []


def test_an_environment_whose_maker_was_killed_is_none_and_is_made_again():
    folder = environments_folder() / "new"
    subprocess.run(venv(folder), check=True)
    lock = mark_unfinished_and_lock(folder)
    assert "env new" not in [tool.label for tool in probe.probe_toolchains(deadline=20)]
    with pytest.raises(CannotWrite, match="already exists"):
        making.refuse_existing_environment(folder)
    assert first_free_path(folder).name == "new-2"
    os.close(lock)
    assert first_free_path(folder) == folder
    making.refuse_existing_environment(folder)
    assert not folder.exists()


def test_an_index_with_torch_for_the_cpu_only_is_no_success(tmp_path):
    path = tmp_path / "envs" / "new"
    code = "import pathlib, sys; site = next(pathlib.Path(sys.argv[1]).glob('lib/python*/site-packages')) / 'torch'"
    code += "; site.mkdir(); (site / '__init__.py').write_text('__version__ = 1'); (site / 'version.py').touch()"
    plan = msgspec.structs.replace(failing(path, venv(path), (sys.executable, "-c", code, str(path))), cuda="12.9")
    with pytest.raises(Unavailable, match="which cannot use GPUs"):
        making.create_environment(plan, machine(), print)
    assert not path.exists()


def test_nothing_of_the_current_folder_is_part_of_what_is_installed(tmp_path, monkeypatch):
    clone, path = tmp_path / "clone", tmp_path / "envs" / "new"
    clone.mkdir()
    (clone / "venv.py").write_text("open('was-run', 'w')")
    monkeypatch.chdir(clone)
    plan = failing(path, venv(path), ("pwd",), ("false",))
    told = []
    with pytest.raises(Unavailable):
        making.create_environment(plan, machine(), print, told.append)
    assert [path.name for path in clone.iterdir()] == ["venv.py"]
    assert told == ["/"], "uv reads settings and pip relative paths there"
