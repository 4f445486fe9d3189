"""Environments that train: which torch is right for the cards, what is run, and what is left where it fails."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
from support import facts, gpu, run_cli, set_variables

from tui_train.actions import environments
from tui_train.actions.environments import create as making
from tui_train.actions.environments import pip_settings
from tui_train.actions.environments.progress import InstallOutputReader, InstallProgress
from tui_train.base.errors import BadInput, Unavailable
from tui_train.cli.environments import environments as printed
from tui_train.facts.machine import probe
from tui_train.facts.machine.torch_builds import (
    RECOMMENDED_TORCH_VERSION,
    TorchBuild,
    choose_torch_build,
    torchvision_install_words,
)
from tui_train.runner.system.environments import environments_folder

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


PYTHON = making._InstallingPython("/usr/bin/python3", 3, 12, makes=True)


def planned(name, wheel, uv="", pythons=(PYTHON,)):
    found = making.Installers(folder="/e/hf", standing="free", work="/w", uv=uv, pythons=pythons)
    return making.plan_install("", environments.PACKAGE_SETS[name], found, wheel)


def test_uv_and_pip_are_told_the_same():
    indexed = TorchBuild("https://index/cu126", "")
    with_uv, with_pip = planned("hf", indexed, "/bin/uv"), planned("hf", indexed)
    for plan in (with_uv, with_pip):
        assert plan.commands[1][-3:] == ("--index-url", "https://index/cu126", "torch==2.13.0")
        assert plan.commands[2][-2:] == ("-r", "/w/requirements.txt")
        assert "--index-url" not in plan.commands[2]
    assert with_uv.commands[0][-3:] == ("--python", "/usr/bin/python3", "/e/hf")
    assert with_pip.commands[0] == ("/usr/bin/python3", "-m", "venv", "/e/hf")
    assert with_pip.variables == {}
    seeing = planned("hf-images", indexed)
    assert seeing.commands[1][-2:] == ("torch==2.13.0", "torchvision==0.28.0")
    assert seeing.commands[2] == with_pip.commands[2]
    assert planned("hf", TorchBuild("", "")).commands[1][-1] == "torch==2.13.0"
    brought = planned("hf", indexed, "/bin/uv", pythons=())
    assert brought.commands[0][-2:] == ("3.12", "/e/hf"), "uv brings the Python that is not here"


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
    uv = making.ask_for_installers("", environments.PACKAGE_SETS["hf"]).uv
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


def test_an_environment_that_was_made_is_found_by_its_name():
    folder = environments_folder() / "mine"
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(folder)), check=True)
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
