"""What is said before a start: scripts that load no checkpoint or wait for --local_rank, W&B without a key, typos."""

import os
import subprocess
import sys

import msgspec
import pytest
from support import SCRIPTS, facts, findings_of, plan, profile, run_cli, toolchain

from tui_train.base.errors import BadInput
from tui_train.facts.machine import probe
from tui_train.facts.machine.container_images import oci_runtime_problem
from tui_train.facts.machine.inherited_settings import starts_without_wandb_prompt
from tui_train.facts.scripts.script_source import parse_script_source, read_script_source
from tui_train.facts.types import YamlDocument
from tui_train.places.profile_facts import probe_profile_facts, read_script_sources
from tui_train.profile import fields, store
from tui_train.profile.changes import apply_change

PARSED = """
from transformers import HfArgumentParser, Trainer, TrainingArguments
options, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
"""
BARE = PARSED + "my = Trainer(model=None, args=options)\nmy.model.train()\nmy.train()\n"
ACCELERATED = "from accelerate import Accelerator\naccelerator = Accelerator()\n"
LOCAL_RANK = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--local_rank', type=int)\n"


def of_script(tmp_path, text, preset="custom", launcher="python", name="train.py"):
    """The profile of a script of this text."""
    (tmp_path / name).write_text(text)
    return profile({
        "trainer.kind": "script", "trainer.preset": preset, "trainer.launcher": launcher,
        "trainer.script": str(tmp_path / name), "trainer.python": sys.executable, "hardware.device": "cpu",
    })  # fmt: skip


def found(tmp_path, text, preset="hf-trainer", launcher="torchrun"):
    """What the whole way from the file on says of a script."""
    return of_key(of_script(tmp_path, text, preset, launcher), "trainer.script")


def known(chosen):
    """A machine that has read the files of a profile."""
    return msgspec.structs.replace(facts(), sources=read_script_sources(chosen))


def of_key(chosen, key, where=None):
    """What is found of a key of a profile."""
    return [one for one in findings_of(chosen, where or known(chosen)) if one.key == key]


def test_a_train_without_a_checkpoint_is_told_with_the_line_to_write(tmp_path):
    (finding,) = found(tmp_path, BARE)
    assert finding.level == "warning"
    assert finding.message.startswith("train() on line 6 of the script is given no checkpoint")
    assert finding.remedy == "Write `my.train(resume_from_checkpoint=options.resume_from_checkpoint)` there."
    line = finding.remedy.split("`")[1]
    assert not found(tmp_path, BARE.replace("my.train()", line)), "the line mends it"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("trainer.train()", 1, "trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)"),
        ("SFTTrainer(m).train()", 1, "trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)"),
        ("t = SFTTrainer(m, args=a)\nt.train()", 2, "t.train(resume_from_checkpoint=a.resume_from_checkpoint)"),
        ("trainer.train(resume_from_checkpoint=last)", 0, ""),
        ("trainer.train(last)", 0, ""),
        ("trainer.train(**more)", 0, ""),
        ("if last: trainer.train(resume_from_checkpoint=last)\nelse: trainer.train()", 0, ""),
        ("model.train()", 0, ""),
        ("model = make()\nmodel.train()", 0, ""),
    ],
)  # fmt: skip
def test_what_a_text_tells_of_train(text, line, words):
    told = parse_script_source(text.encode())
    assert (told.train_without_checkpoint_line, told.corrected_train_call) == (line, words)


def test_an_accelerate_script_that_never_reads_the_checkpoint(tmp_path):
    (finding,) = found(tmp_path, ACCELERATED, "accelerate", "accelerate")
    assert "accelerator.load_state(args.resume_from_checkpoint)" in finding.remedy
    loads = ACCELERATED + "parser.add_argument('--resume_from_checkpoint')"
    assert not found(tmp_path, loads, "accelerate", "accelerate")


def test_nothing_is_said_where_no_such_checkpoint_is_passed_or_the_script_loads_it(tmp_path):
    assert not found(tmp_path, BARE, "custom")
    assert not found(tmp_path, BARE, "nanogpt")
    for name in ("hf_trainer.py", "language_model.py", "stub.py"):
        assert not found(tmp_path, (SCRIPTS / name).read_text()), name
    assert not found(tmp_path, (SCRIPTS / "plain_accelerate.py").read_text(), "custom")


def test_a_script_that_waits_for_local_rank(tmp_path):
    (finding,) = found(tmp_path, LOCAL_RANK, "custom")
    assert finding.message == "line 3 of the script takes --local_rank, which torchrun does not pass"
    (finding,) = found(tmp_path, LOCAL_RANK.replace("--local_rank", "--local-rank"), "custom", "accelerate")
    assert "accelerate does not pass" in finding.message
    changed = LOCAL_RANK.replace("type=int", 'type=int, default=int(os.environ.get("LOCAL_RANK", 0))')
    assert not found(tmp_path, changed, "custom")
    assert not found(tmp_path, LOCAL_RANK, "custom", "python")


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"if", b"\0", b"(" * 5000, b"-" * 500_000 + b"1", b"x." * 50_000 + b"train()"]
)
def test_any_text_is_read_without_an_end_of_the_program(data):
    told = parse_script_source(data)
    assert told.problem or not told.train_without_checkpoint_line


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    assert "it is a pipe" in read_script_source(str(tmp_path / "pipe.py")).problem
    assert read_script_source(str(tmp_path)).problem
    (tmp_path / "long.py").write_bytes(b"#" * (2**20 + 1))
    assert read_script_source(str(tmp_path / "long.py")).problem.endswith("it is larger than 1 MiB")


# ---- W&B


def reported(*, transformers="5.23.0", installed=True, config=None, **trainer):
    """What is said of W&B, of which profile, on which machine."""
    tool = toolchain(transformers=transformers, packages={"wandb": "0.31.0"} if installed else {})
    named = {
        "kind": "script",
        "preset": "hf-trainer",
        "script": "/t.py",
        "config": "/c.yaml" if config else "",
        **trainer,
    }
    chosen = profile({f"trainer.{key}": value for key, value in named.items()})
    documents = {"/c.yaml": YamlDocument(values=config)} if config else {}
    where = msgspec.structs.replace(facts(), toolchains=(tool,), wandb_key=False, documents=documents)
    return of_wandb(chosen, where), chosen, where


def of_wandb(chosen, where):
    return [one for one in findings_of(chosen, where) if "W&B" in one.message]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"arguments": ("--report_to=wandb",)}, True),
        ({"arguments": ("--report_to", "all")}, True),
        ({"arguments": ("--report_to", "tensorboard")}, False),
        ({}, False),
        ({"transformers": "4.57.6"}, True),
        ({"transformers": "4.57.6", "arguments": ("--report_to=none",)}, False),
        ({"transformers": "4.57.6", "environment": {"WANDB_DISABLED": "true"}}, False),
        ({"arguments": ("--report_to=wandb",), "environment": {"WANDB_DISABLED": "true"}}, True),
        ({"transformers": "4.57.6", "environment": {"WANDB_MODE": "offline"}}, False),
        ({"transformers": "4.57.6", "secrets": ("WANDB_API_KEY",)}, False),
        ({"transformers": "4.57.6", "installed": False}, False),
        ({"transformers": "4.57.6", "preset": "custom"}, False),
        ({"preset": "llama-factory", "config": {"report_to": ["wandb"]}}, True),
        ({"preset": "axolotl", "config": {"wandb_project": "mine"}}, True),
        ({"preset": "axolotl", "config": {"wandb_project": "mine", "wandb_mode": "offline"}}, False),
    ],
)
def test_wandb_without_a_key_is_told_where_it_would_be_asked_for(told, says):
    findings, chosen, where = reported(**told)
    assert bool(findings) is says
    if says:
        fixed = apply_change(findings[0].change, chosen)
        assert fixed.trainer.environment["WANDB_MODE"] == "offline"
        assert not of_wandb(fixed, where)
        assert not of_wandb(chosen, msgspec.structs.replace(where, wandb_key=True))


def test_where_wandb_has_its_key(tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "NETRC", "WANDB_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not starts_without_wandb_prompt()
    (tmp_path / ".netrc").write_text("machine github.com\n  login x\n")
    assert not starts_without_wandb_prompt()
    (tmp_path / ".netrc").write_text(
        "machine github.com\n  login x\nmachine api.wandb.ai\n  login user\n  password k\n"
    )
    assert starts_without_wandb_prompt()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example:8080/x")
    assert not starts_without_wandb_prompt()
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_API_KEY", "k")):
        with monkeypatch.context() as inner:
            inner.setenv(name, value)
            assert starts_without_wandb_prompt()
    (tmp_path / ".config/wandb").mkdir(parents=True)
    (tmp_path / ".config/wandb/settings").write_text("[default]\napi_key = k\n")
    assert starts_without_wandb_prompt()


# ---- a Python that is none, a container runtime that is broken, typos


def test_a_folder_and_a_file_without_the_x_bit_are_named_as_that(tmp_path):
    plain = tmp_path / "python"
    plain.write_text("#!/bin/sh\n")
    assert probe.probe_toolchain(str(tmp_path)).problem == "is a folder: give the Python in it, such as bin/python"
    chosen = profile({"trainer.python": str(plain)})
    (finding,) = of_key(chosen, "trainer.python", probe_profile_facts(chosen))
    assert finding.message == f"{plain} is not executable (chmod +x)"


@pytest.mark.parametrize(
    ("said", "broken"),
    [
        ("docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc: x", True),
        ("Error: OCI runtime error: crun: unknown version specified", True),
        ("Error: crun: error opening file `/sys/fs/cgroup`: No such file or directory", True),
        ('docker: … OCI runtime create failed: … exec: "python": executable file not found in $PATH', False),
        ("Error: crun: executable file `python` not found in $PATH: OCI runtime attempted to invoke a command", False),
        ("Traceback (most recent call last):", False),
    ],
)
def test_a_broken_oci_runtime_is_told_from_what_an_image_lacks(said, broken):
    assert oci_runtime_problem(f"first\n{said}\n".encode()).startswith("the OCI runtime") is broken


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("recipe.wobble", "`tui-train keys` lists them."),
        ("recipe.block", "`tui-train keys` lists them."),
        ("recipe.stepz", "Did you mean recipe.steps?"),
        ("steps", "Did you mean recipe.steps?"),
        ("recipe.backend", "Did you mean communication.backend?"),
        ("trainer.enviroment", "Did you mean trainer.environment?"),
    ],
)
def test_the_nearest_of_all_keys_and_none_where_none_is_near(key, remedy):
    with pytest.raises(BadInput) as caught:
        fields.get_field(key)
    assert caught.value.remedy == remedy
    if key.startswith("recipe"):
        with pytest.raises(BadInput) as caught:
            store.profile_from_toml(f"[recipe]\n{key.partition('.')[2]} = 1\n")
        assert caught.value.remedy == remedy


@pytest.mark.parametrize(("option", "words"), [("--stepz=3", "--set recipe.steps=VALUE"), ("--block=3", "")])
def test_a_key_that_is_written_as_an_option(option, words):
    said = run_cli("plan", option, "x", code=64).stderr
    assert ("Did you mean" in said) is bool(words)
    assert words in said


@pytest.mark.parametrize(
    ("text", "line", "rank"),
    [
        ("import os\nrank = int(os.environ['RANK'])", 2, "RANK"),
        ("from os import environ\ndef main():\n    size = environ['WORLD_SIZE']\nmain()", 3, "WORLD_SIZE"),
        ("import os\nif __name__ == '__main__':\n    device = int(os.getenv('LOCAL_RANK'))", 3, "LOCAL_RANK"),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')", 2, "init_process_group"),
        ("dist.init_process_group('gloo', rank=rank, world_size=2)", 0, ""),
        ("import os\nrank = os.environ.get('RANK', 0)", 0, ""),
        ("import os\nif args.distributed:\n    rank = int(os.environ['RANK'])", 0, ""),
        ("import os\ntry:\n    rank = int(os.environ['RANK'])\nexcept KeyError:\n    rank = 0", 0, ""),
        ("import os\nddp = int(os.environ.get('RANK', -1)) != -1\nn = os.environ['WORLD_SIZE'] if ddp else 1", 0, ""),
        ("import os\nos.environ['RANK'] = '0'\nrank = os.environ['RANK']", 0, ""),
        ("import os\nos.environ.update(RANK='0')\nrank = os.environ['RANK']", 0, ""),
        ("def setup():\n    dist.init_process_group('nccl')\nif args.ddp:\n    setup()", 0, ""),
        ("def one():\n    dist.init_process_group()\ndef two():\n    one()\ntwo()", 2, "init_process_group"),
    ],
)
def test_the_line_that_cannot_do_without_a_rank(text, line, rank):
    told = parse_script_source(text.encode())
    assert (told.rank_line, told.rank_name) == (line, rank)


RANKED = "import os\nimport sys\nprint('rank', os.environ['RANK'], sys.argv[1:])\n"


def test_a_script_that_reads_its_rank_is_started_by_torchrun(tmp_path):
    """The Change trains; a launcher of one process that sets no rank is refused."""
    chosen = of_script(tmp_path, RANKED, launcher="auto")
    made = plan(chosen, known(chosen))
    assert made.launcher == "torchrun"
    assert "Launcher torchrun: line 3 of train.py reads RANK." in made.notes
    by_hand = fields.profile_with_value(chosen, "trainer.launcher", "python")
    (finding,) = [one for one in findings_of(by_hand, known(by_hand)) if "RANK" in one.message]
    assert finding.forbids_plan
    changed = apply_change(finding.change, by_hand)
    assert changed.trainer.launcher == "torchrun"
    assert not [one for one in findings_of(changed, known(changed)) if one.level == "error"]
    accelerated = fields.profile_with_value(chosen, "trainer.launcher", "accelerate")
    assert [one for one in findings_of(accelerated, known(accelerated)) if "accelerate does not set" in one.message]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("train.ipynb", '{"cells": [], "metadata": {}}', "is a notebook"),
        ("moved.py", "# Moved to another place.\n", "is a file without code"),
        ("moved.py", '"""Moved to another place."""\n', "is a file without code"),
        ("chat.jsonl", '{"messages": []}\n{"messages": []}\n', "is data"),
        ("train.sh", "#!/bin/bash\npython train.py --lr 1\n", "is a shell script"),
        ("train", "\x7fELF\0\0", "is a program"),
        ("train.py", "def train(:\n    pass\n", "cannot be read as Python: line 1: invalid syntax"),
    ],
)
def test_a_script_that_is_no_python_is_refused(tmp_path, name, text, words):
    (finding,) = of_key(of_script(tmp_path, text, name=name), "trainer.script")
    assert (finding.forbids_plan, words in finding.message) == (True, True)


ETA = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--eta', type=float)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ETA + "parser.parse_args()\n", True),
        (ETA + "parser.parse_known_args()\n", False),
        (ETA + "for name in names:\n    parser.add_argument(name)\nparser.parse_args()\n", False),
    ],
)
def test_arguments_of_a_preset_that_the_script_does_not_take_are_told_before_it_starts(tmp_path, text, said):
    chosen = of_script(tmp_path, text, "hf-trainer", "auto")
    findings = of_key(chosen, "trainer.preset")
    assert bool(findings) == said
    if said:
        assert findings[0].forbids_plan
        # Nothing is named that the preset could pass, but does not here.
        assert "not take --output_dir, --logging_steps, " in findings[0].message
        right = apply_change(findings[0].change, chosen)
        assert right.trainer.preset == "auto"
        assert not of_key(right, "trainer.preset")


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("import argparse, torch\nfrom tqdm import tqdm\nmodel = torch.nn.Linear(1, 1)\n", True),
        ("import torch\ntorch.distributed.init_process_group()\n", False),
        ("import torch\nfrom torch.distributed import fsdp\n", False),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')\n", False),
        ("import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(model)\n", False),
        ("import torch\nmodel = torch.nn.DataParallel(model)\n", False),
        ("import torch, os\nrank = os.environ.get('RANK')\n", False),
        ("import torch\nhead = torch.nn.Linear(1, 1).to('cuda:0')\n", True),
        ("import torch\nhead = torch.nn.Linear(1, 1).to('cuda:1')\n", False),
        ("import torch\ncards = range(torch.cuda.device_count())\n", False),
        ("import torch, accelerate\n", False),
        ("import torch, mylib\n", False),
        ("import numpy\n", False),
    ],
)
def test_a_script_that_knows_of_no_other_process(text, alone):
    assert parse_script_source(text.encode()).no_process_group == alone


def test_what_a_script_imports_from_above_its_folder(tmp_path):
    """Only within its project, and only where nothing of that name lies beside the script."""
    folder = tmp_path / "project/tools/deep"
    folder.mkdir(parents=True)
    for name in ("project/net.py", "project/tools/shapes/__init__.py", "project/beside.py", "outside.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (folder / "beside.py").touch()
    text = b"import net.layers, beside, outside, json, torch\nfrom shapes import one\nfrom . import net\n"
    assert parse_script_source(text, str(folder)).parent_packages == {}
    (tmp_path / "project/setup.py").touch()
    project = str(tmp_path / "project")
    assert parse_script_source(text, str(folder)).parent_packages == {"shapes": f"{project}/tools", "net": project}
    (tmp_path / "project/src/mynet").mkdir(parents=True)
    (tmp_path / "project/src/mynet/__init__.py").touch()
    assert parse_script_source(b"import mynet.data", str(folder)).parent_packages == {"mynet": f"{project}/src"}
    assert parse_script_source(b"import mynet.data", project).parent_packages == {"mynet": f"{project}/src"}
    assert parse_script_source(text).parent_packages == {}


ABSENT = "import absent_module\n"
PYTHON_THAT_FINDS = f"import sys\nsys.path.append('elsewhere')\n{ABSENT}"


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ({"train.py": f"import os, json.decoder\n{ABSENT}"}, {"absent_module": ("", 2)}),
        ({"train.py": "from absent.one import a\nimport absent\nimport other"}, {"absent": ("", 1), "other": ("", 3)}),
        ({"train.py": f"try:\n    {ABSENT}except ImportError:\n    pass\n"}, {}),
        ({"train.py": f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {ABSENT}"}, {}),
        ({"train.py": f"def never():\n    {ABSENT}"}, {}),
        ({"train.py": f"import contextlib\nwith contextlib.suppress(ImportError):\n    {ABSENT}"}, {}),
        ({"train.py": f"if __name__ == '__main__':\n    {ABSENT}"}, {"absent_module": ("", 2)}),
        # What lies beside it is read as well, as far as it runs when it is imported.
        ({"train.py": "import model", "model.py": ABSENT}, {"absent_module": ("model.py", 1)}),
        ({"train.py": "import model", "model.py": f"if __name__ == '__main__':\n    {ABSENT}"}, {}),
        (
            {"train.py": "from net.layers import one", "net/__init__.py": "", "net/layers.py": f"one = 1\n{ABSENT}"},
            {"absent_module": ("net/layers.py", 2)},
        ),
        (
            {"train.py": "import net", "net/__init__.py": "from . import a", "net/a.py": "from .b import c",
             "net/b.py": f"c = 1\n{ABSENT}"},
            {"absent_module": ("net/b.py", 2)},
        ),
        # A package that has the name itself: its module of that name is not imported.
        ({"train.py": "from net import one", "net/__init__.py": "def one(): pass", "net/one.py": ABSENT}, {}),
        (
            {"train.py": "from net import one", "net/__init__.py": "from net.two import one", "net/two.py": "one = 2",
             "net/one.py": ABSENT},
            {},
        ),
        (
            {"train.py": "from net import one", "net/__init__.py": "def __getattr__(name): return 1",
             "net/one.py": ABSENT},
            {},
        ),
        (
            {"train.py": "from net import one", "net/__init__.py": "two = 2", "net/one.py": ABSENT},
            {"absent_module": ("net/one.py", 1)},
        ),
        ({"train.py": "def never():\n    import model", "model.py": ABSENT}, {}),
        # Python's own, which no list has whole.
        ({"train.py": "from __future__ import annotations\nimport _thread, __main__"}, {}),
        # A folder without an __init__.py.
        ({"train.py": "import net.a", "net/a.py": ""}, {}),
        # The project has Python look elsewhere, brings a module of its own, or installs what it needs.
        ({"train.py": PYTHON_THAT_FINDS, "elsewhere/absent_module.py": ""}, {}),
        ({"train.py": f"import paths\n{ABSENT}", "paths.py": PYTHON_THAT_FINDS, "elsewhere/absent_module.py": ""}, {}),
        ({"train.py": f"import sys\nsys.modules['absent_module'] = sys\n{ABSENT}"}, {}),
        ({"train.py": f"import subprocess\nif 0:\n    subprocess.run(['pip', 'install', 'x'])\n    {ABSENT}"}, {}),
    ],
)  # fmt: skip
def test_what_a_script_cannot_import_is_known_before_it_runs(tmp_path, files, missing):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    link = tmp_path / "links" / "run.py"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "train.py")
    modules = probe.probe_toolchain(sys.executable).modules
    for script in (tmp_path / "train.py", link):
        source = read_script_source(str(script), with_imports=True)
        imports = [each for each in source.imports if each.module not in modules]
        assert {each.module: (each.file, each.line) for each in imports} == missing
        ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
        lost = [f"No module named '{name}" in ran.stderr for name in missing]
        assert (ran.returncode, lost[:1]) == (bool(missing), [True] * bool(missing)), ran.stderr


def test_a_helper_that_has_python_look_above_the_script_is_believed():
    text = b"import rootutils\nrootutils.setup_root(__file__, pythonpath=True)\nfrom src import net"
    assert parse_script_source(text, names_beside=("train.py",)).imports == ()


def test_what_lies_beside_a_script_elsewhere_is_not_missing():
    text = b"import model, absent_module"
    names = [each.module for each in parse_script_source(text, names_beside=("train.py", "model/")).imports]
    assert names == ["absent_module"]
    assert parse_script_source(text).imports == (), "what lies beside it is not known"


@pytest.mark.parametrize("entry", ["", ".", "src", "/absolute"])
def test_a_relative_entry_of_pythonpath_may_hold_what_a_script_imports(tmp_path, monkeypatch, entry):
    script = tmp_path / "train.py"
    script.write_text(ABSENT)
    chosen = {"trainer.kind": "script", "trainer.script": str(script)}
    monkeypatch.setenv("PYTHONPATH", f"{entry}:/other")
    for folder, is_known in (("", entry != "src"), ("/", entry == "/absolute")):
        (source,) = read_script_sources(profile(chosen | {"trainer.working_directory": folder})).values()
        assert bool(source.imports) == is_known


@pytest.mark.parametrize(
    ("text", "minor_version", "line"),
    [
        ("x = 1\nif (y := x): pass\n", 0, 0),
        ("x = 1\nmatch x:\n    case 1: pass\n", 10, 3),
        ("with (open('a') as a, open('b') as b): pass\n", 9, 1),
        ("match = 1\nprint(match)\n", 0, 0),
        ("with (open('a') if 1 else open('b')):\n    pass\nwith (open('a')): pass\n", 0, 0),
        ("with (open('a') as a): pass\n", 9, 1),
    ],
)
def test_the_oldest_python_that_reads_a_script(text, minor_version, line):
    source = parse_script_source(text.encode())
    assert (source.minor_version, source.minor_version_line) == (minor_version, line)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="NOT TESTED: this Python reads no newer f-strings")
@pytest.mark.parametrize(
    ("text", "is_new"),
    [
        ('f"{d["k"]}"', True),
        ("f'{f'{x}'}'", True),
        ("f'{chr(10).join(x)}' f'\\n'", False),
        ("f'{\"\\n\".join(x)}'", True),
        ("f'{x!r:>{w}}' f\"{d['k']}\"", False),
        ('f"""{d["k"]}\n{x}"""', False),
        ("f'{x # why\n}'", True),
        ("(f'{x}'\n f'{y}')", False),
    ],
)
def test_f_strings_that_older_pythons_do_not_read(text, is_new):
    source = parse_script_source(f"import os\n{text}\n".encode())
    assert (source.minor_version, source.minor_version_line) == ((12, 2) if is_new else (0, 0))


SWITCHED = (
    "from transformers import HfArgumentParser, TrainingArguments\nargs, = HfArgumentParser((TrainingArguments,))"
)
SWITCHED += ".parse_args_into_dataclasses()\nif args.do_train:\n    n = 1\n"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("if args.do_train:\n    done = trainer.train()\n", 5),
        ("if args.do_train or True:\n    trainer.train()\n", 0),
        ("args.do_train = True\nif args.do_train:\n    trainer.train()\n", 0),
        ("trainer.train()\n", 0),
        ("args.set_training(batch_size=4)\nif args.do_train:\n    trainer.train()\n", 0),
        ("setattr(args, 'do_train', True)\nif args.do_train:\n    trainer.train()\n", 0),
        ("args = replace(args, do_train=True)\nif args.do_train:\n    trainer.train()\n", 0),
        ("sys.argv.append('--do_train')\nif args.do_train:\n    trainer.train()\n", 0),
        ("if args.do_train:\n    trainer.train()\nelse:\n    own_loop()\n", 0),
        ("if args.do_train:\n    trainer.train()\nif args.search:\n    trainer.hyperparameter_search()\n", 0),
        ("if args.do_train:\n    model.train()\n", 0),
        ("from own import MyTrainingArguments\nif args.do_train:\n    trainer.train()\n", 0),
    ],
)
def test_the_line_that_trains_only_with_do_train(more, line):
    assert parse_script_source((SWITCHED + more).encode()).train_switch_line == line
