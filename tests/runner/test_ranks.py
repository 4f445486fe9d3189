"""Each run shows which devices its processes use, also that of a script which does not, and a viewer compares them."""

import importlib.util
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest
import warm
from support import UUIDS, bash, exported, facts, plain_environment, profile, sample

import tui_train
from tui_train.cli.runs import watch as printed
from tui_train.diagnose import diagnose_run
from tui_train.facts.machine import probe
from tui_train.runs.follow import read_ranks, watch
from tui_train.runs.ranks import (
    MAX_RANKS,
    PlannedRanks,
    Rank,
    differences,
    parse_planned_ranks,
    parse_ranks,
    ranks_summary,
)
from tui_train.runs.status import status
from tui_train.wizard import wizard

SHIM = os.path.join(os.path.dirname(tui_train.__file__), "programs/shim/sitecustomize.py")  # noqa: PTH118, PTH120
NAME = "NVIDIA GeForce RTX 3090"
BARE = [uuid.removeprefix("GPU-") for uuid in UUIDS]
OTHER = "GPU-00000000-1111-2222-3333-44444444abcd"
TWO = PlannedRanks(world_size=2, device="cuda", gpus=UUIDS, gpu_names=(NAME, NAME))
LINE = f"rank 0/2 | host box | device cuda:0 {NAME} {UUIDS[0]} | backend nccl"

TRAINS = """
import os, sys, torch
{before}
weight = torch.zeros(2, requires_grad=True)
for _ in range(3):
    (weight ** 2).sum().backward()
print("done", torch.autograd.backward.__wrapped__ if hasattr(torch.autograd.backward, "__wrapped__") else "plain")
"""
GROUP = 'import torch.distributed as dist; dist.init_process_group("gloo")'


def rank(number=0, **more):
    given = {"world_size": 2, "host": "box", "device": f"cuda:{number}", "name": NAME, "uuid": UUIDS[number % 2]}
    return Rank(rank=number, **{**given, "backend": "nccl", **more})


def script(tmp_path, before=""):
    path = tmp_path / "my train.py"
    path.write_text(TRAINS.format(before=before))
    return path


def made(tmp_path, source, processes=1, launcher="python", python=None, **values):
    """A run folder for a script on the CPU, with its plan as data; `python` is the real one where it is given."""
    python = python or warm.training()
    chosen = profile({
        "trainer.kind": "script",
        "trainer.preset": "custom",
        "trainer.launcher": launcher,
        "trainer.python": python,
        "trainer.script": str(source),
        "hardware.processes": processes,
        **{key.replace("__", "."): value for key, value in values.items()},
    })  # fmt: skip
    run, plan = exported(tmp_path / "run", chosen, facts(python=python))
    run.plan_file.write_bytes(msgspec.json.encode(plan))
    return run


def trained(run, code=0, **environment):
    done = bash(run, env=plain_environment(**environment))
    log = run.attempt_log(1).read_text()
    assert done.returncode == code, done.stdout.decode() + log
    return log


def lines(log):
    return sorted(re.findall(r"rank \d/\d \| host \S+ \| device .*? \| backend (?:gloo|none|nccl)", log))


def child(folder, code, path=(), python=sys.executable, **environment):
    """What a Python with the module on its path says to code."""
    parts = [os.path.dirname(SHIM), *map(str, path)]  # noqa: PTH120
    more = {"PYTHONPATH": ":".join(parts), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    (folder / "code.py").write_text(code)
    return subprocess.run(
        [python, folder / "code.py"], env=plain_environment(**more), capture_output=True, text=True, check=False
    )


# ---- what lines tell


def test_a_line_is_read():
    assert parse_ranks([LINE]) == (rank(),)
    assert parse_ranks(["[default0]:" + LINE, "[rank1]: " + LINE.replace("0/2", "1/2")])[1].rank == 1


def test_lines_that_share_a_line_or_follow_other_words():
    cpu = "rank 1/2 | host box | device cpu | backend gloo"
    assert [found.rank for found in parse_ranks([f"50%|###  | 5/10{LINE}{cpu}"])] == [0, 1]
    assert parse_ranks([cpu + cpu.replace("1/2", "0/2") + " done"])[1].backend == "gloo"
    assert parse_ranks([LINE + " and more"])[0].backend == "nccl"


def test_the_uuid_is_read_with_and_without_its_beginning_and_may_be_missing():
    assert parse_ranks([LINE.replace("GPU-", "")]) == (rank(),)
    assert parse_ranks([LINE.replace("GPU-ac50e9bd", "AC50E9BD")]) == (rank(),)
    found = parse_ranks(["rank 0/1 | host box | device cuda:0 NVIDIA T4 | backend none"])[0]
    assert (found.name, found.uuid) == ("NVIDIA T4", "")
    mig = parse_ranks([LINE.replace("GPU-", "MIG-")])[0]
    assert mig.uuid == UUIDS[0].replace("GPU-", "MIG-")


def test_what_is_no_such_line_is_passed_over():
    other = "rank 0/2 | stage pretrain | batch 8 | in /src"
    assert parse_ranks([other, "rank", "", "rank 0/2 | host box", LINE[:-20], "rank " * 100_000]) == ()


def test_a_log_cannot_bring_control_characters_or_endless_ranks():
    found = parse_ranks([LINE.replace("box", "b\x1b[31mx").replace("RTX", "\u202eX")])[0]
    assert "\x1b" not in found.host
    assert "\u202e" not in found.name
    many = [LINE.replace("0/2", f"{number}/2") for number in range(50)]
    assert len(parse_ranks(many, limit=4)) == 4
    assert parse_ranks([LINE] * 3) == (rank(),)


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"world_size": "x"}', b'{"gpus": 3}', b'{"device": "\xff"}'])
def test_a_foreign_plan_promises_nothing(data):
    assert parse_planned_ranks(data) == PlannedRanks()
    assert differences([rank()], parse_planned_ranks(data)) == ()


# ---- what is compared


def test_as_planned_nothing_is_said():
    assert differences([rank(0), rank(1)], TWO) == ()
    assert differences([rank(0), rank(1)], msgspec.structs.replace(TWO, backend="nccl")) == ()
    assert differences([], TWO) == ()
    cpu = [rank(number, device="cpu", name="", uuid="", backend="gloo") for number in (0, 1)]
    assert differences(cpu, PlannedRanks(world_size=2, device="cpu", backend="gloo")) == ()


def test_a_card_that_was_not_chosen_is_named_beside_those_that_were():
    plan = msgspec.structs.replace(TWO, world_size=1, gpus=UUIDS[:1], gpu_names=(NAME,))
    found = differences([rank(world_size=1, name="NVIDIA T4", uuid=OTHER)], plan)
    assert found == ("rank 0 uses NVIDIA T4 …44abcd, planned: NVIDIA GeForce RTX 3090 …663b60",)
    assert differences([rank(world_size=1, uuid="", name="NVIDIA T4")], plan) == (
        "rank 0 uses NVIDIA T4, planned: NVIDIA GeForce RTX 3090 …663b60",
    )
    assert differences([rank(world_size=1, uuid="", name="GeForce RTX 3090")], plan) == ()
    assert differences([rank(world_size=1, uuid="", name="")], plan) == ()


def test_two_ranks_on_one_card():
    same = [rank(0), rank(1, uuid=UUIDS[0])]
    assert differences(same, TWO) == ("ranks 0, 1 share one GPU, NVIDIA GeForce RTX 3090 …663b60",)
    shared = msgspec.structs.replace(TWO, gpus=UUIDS[:1], gpu_names=(NAME,))
    assert differences(same, shared) == ()


def test_the_cards_of_other_machines_need_only_be_like_those_of_the_first():
    plan = msgspec.structs.replace(TWO, world_size=4, nodes=2)
    there = [rank(number, world_size=4, host="other", uuid=OTHER[:-1] + str(number)) for number in (2, 3)]
    assert differences([rank(0, world_size=4), rank(1, world_size=4, uuid=UUIDS[1]), *there], plan) == ()
    assert differences(there, plan) == ()
    assert differences([rank(0, world_size=4, uuid=OTHER), *there], plan)
    assert differences([rank(0, world_size=4), *there, rank(1, world_size=4, host="other", name="NVIDIA T4")], plan)
    same = [rank(number, world_size=4, host="other", uuid=OTHER) for number in (2, 3)]
    assert differences([rank(0, world_size=4), *same], plan)


def test_of_thousands_of_ranks_a_few_are_named():
    every = [rank(number, world_size=8192, uuid=f"GPU-{number:08x}{UUIDS[0][12:]}") for number in range(MAX_RANKS)]
    plan = msgspec.structs.replace(TWO, world_size=8192)
    assert len(differences(every, plan)) < 12
    assert str(MAX_RANKS - 8) in " ".join(differences(every, plan))
    assert ranks_summary(every).startswith("8192 ranks")


def test_the_cpu_instead_of_cards_and_cards_instead_of_the_cpu():
    cpu = {"device": "cpu", "name": "", "uuid": "", "backend": "gloo"}
    assert differences([rank(0, **cpu), rank(1, **cpu)], TWO) == ("ranks 0, 1 train on the CPU, 2 GPUs were planned",)
    assert differences([rank(1, **cpu)], TWO) == ("rank 1 trains on the CPU, 2 GPUs were planned",)
    plan = PlannedRanks(world_size=2, device="cpu")
    assert differences([rank(0)], plan) == ("rank 0 uses NVIDIA GeForce RTX 3090 …663b60, the CPU was planned",)


@pytest.mark.parametrize(
    ("seen", "wanted", "sentence"),
    [
        (1, 2, "the training sees 1 process, 2 were planned: the processes are not connected"),
        (4, 2, "the training sees 4 processes, 2 were planned"),
        (2, 1, "the training sees 2 processes, 1 was planned"),
        (2, 2, None),
    ],
)
def test_the_number_of_processes(seen, wanted, sentence):
    found = differences([rank(world_size=seen)], msgspec.structs.replace(TWO, world_size=wanted))
    assert found == ((sentence,) if sentence else ())


def test_the_backend_where_one_was_promised():
    gloo = [rank(0, backend="gloo"), rank(1, backend="gloo")]
    assert differences(gloo, TWO) == ()
    assert differences(gloo, msgspec.structs.replace(TWO, backend="nccl")) == (
        "ranks 0, 1 talk through gloo, nccl was planned",
    )
    assert differences([rank(backend="cpu:gloo,cuda:nccl")], msgspec.structs.replace(TWO, backend="nccl")) == ()
    assert differences([rank(backend="cpu:gloo,cuda:nccl")], msgspec.structs.replace(TWO, backend="gloo"))
    assert (
        differences([rank(world_size=1, backend="none")], msgspec.structs.replace(TWO, world_size=1, backend="nccl"))
        == ()
    )


def test_mig_is_only_counted():
    plan = PlannedRanks(world_size=1, device="cuda", gpus=(UUIDS[0].replace("GPU", "MIG"),), gpu_names=("A100 MIG 1g",))
    assert differences([rank(world_size=1, uuid=OTHER)], plan) == ()
    assert len(differences([rank(0, uuid=OTHER), rank(1, uuid=OTHER)], plan)) == 1


def test_in_a_few_words():
    assert ranks_summary([]) == ""
    assert ranks_summary([rank(0), rank(1)]) == f"2 ranks on {NAME} ×2, nccl"
    assert ranks_summary([rank(device="cpu", name="", backend="none")]) == "1 rank on CPU"


# ---- what a script shows that was not changed


@pytest.mark.training
def test_plain_python_shows_its_device_once_at_the_first_gradients(tmp_path):
    run = made(tmp_path, script(tmp_path), python=sys.executable)
    log = trained(run)
    host = os.uname().nodename
    assert lines(log) == [f"rank 0/1 | host {host} | device cpu | backend none"]
    assert log.index("rank 0/1") < log.index("done plain")
    found = read_ranks(run, 1)
    assert [(one.device, one.world_size) for one in found.known] == [("cpu", 1)]
    assert found.mismatch == ()


@pytest.mark.training
@pytest.mark.parametrize("launcher", sample(["torchrun", "accelerate"], 2))
def test_each_rank_of_a_group_shows_its_device_once(tmp_path, launcher, capsys):
    before = GROUP if launcher == "torchrun" else "from accelerate import Accelerator; Accelerator()"
    run = made(tmp_path, script(tmp_path, before), 2, launcher, python=sys.executable)
    log = trained(run)
    host = os.uname().nodename
    assert lines(log) == [f"rank {number}/2 | host {host} | device cpu | backend gloo" for number in (0, 1)]
    told = [*watch(run, lambda: False)][-1]
    assert [one.rank for one in told.ranks] == [0, 1]
    assert told.mismatch == ()
    printed.print_logs(str(run.path), None, follow=False)
    assert capsys.readouterr().err == ""


@pytest.mark.training
def test_processes_that_do_not_know_each_other_are_found(tmp_path, capsys):
    run = made(tmp_path, script(tmp_path), 2, "torchrun")
    trained(run, code=70)
    assert status(run).state == "failed"
    told = [*watch(run, lambda: False)][-1]
    sentence = "the training sees 1 process, 2 were planned: the processes are not connected"
    assert told.mismatch == (sentence,)
    printed.print_logs(str(run.path), None, follow=False)
    assert capsys.readouterr().err == f"error: {sentence}\n"
    found = diagnose_run(run)
    assert (found.failure, found.change) == ("not_distributed_silent", None)
    assert "rank 0/1" in found.line


@pytest.mark.training
def test_processes_that_compute_before_they_meet_are_a_group(tmp_path):
    before = "torch.zeros(1, requires_grad=True).sum().backward()\n" + GROUP
    run = made(tmp_path, script(tmp_path, before), 2, "torchrun")
    log = trained(run)
    assert log.count("rank 0/1 |") == 2
    told = [*watch(run, lambda: False)][-1]
    assert [(one.rank, one.world_size) for one in told.ranks] == [(0, 2), (1, 2)]
    assert told.mismatch == ()
    assert diagnose_run(run) is None


@pytest.mark.training
def test_one_process_alone_is_no_failure_of_a_plan_of_one(tmp_path):
    run = made(tmp_path, script(tmp_path), 1, "torchrun")
    trained(run)
    assert status(run).state == "finished"
    assert diagnose_run(run) is None


@pytest.mark.training
def test_accelerate_that_starts_one_process_instead_of_two_is_found(tmp_path):
    words = ["-m", "accelerate.commands.launch", "--num_processes=2", "--cpu", script(tmp_path)]
    environment = plain_environment(PYTHONPATH=os.path.dirname(SHIM))  # noqa: PTH120
    done = subprocess.run([warm.training(), *words], env=environment, capture_output=True, text=True, check=True)
    found = parse_ranks(done.stderr.splitlines())
    assert len(found) == 1
    assert "sees 1 process, 2 were planned" in differences(found, PlannedRanks(world_size=2, device="cpu"))[0]


@pytest.mark.training
@pytest.mark.whole
def test_the_python_path_and_a_module_of_the_same_name_stay(tmp_path):
    mine = tmp_path / "my modules"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import builtins, os\nbuiltins.mine = os.environ['PYTHONPATH']\n")
    before = "import builtins, sitecustomize; print('mine', builtins.mine, sitecustomize.__file__)"
    run = made(tmp_path, script(tmp_path, before), python=sys.executable)
    log = trained(run, PYTHONPATH=str(mine))
    assert f"mine {run.path}/shim:{mine} {mine}/sitecustomize.py" in log
    assert len(lines(log)) == 1


GATHERS = """
import torch, torch.distributed as dist

def train(group):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
    model(torch.ones(2, 4)).sum().backward()
    dist.all_gather([torch.zeros(20000), torch.zeros(20000)], torch.ones(20000), group=group)
    dist.destroy_process_group(group)

dist.init_process_group("gloo")
for _ in range(20):
    train(dist.new_group(backend="gloo"))
"""


@pytest.mark.training
@pytest.mark.whole
def test_models_that_are_freed_after_a_gather_over_gloo_let_the_training_end(tmp_path):
    """Without the module torch 2.13 stops within the first of these groups, in most runs, for ever."""
    path = tmp_path / "gathers.py"
    path.write_text(GATHERS)
    assert len(lines(trained(made(tmp_path, path, 2, "torchrun")))) == 2


@pytest.mark.training
def test_it_can_be_turned_off(tmp_path):
    run = made(tmp_path, script(tmp_path), trainer__environment={"TUI_TRAIN_SHOW_DEVICES": "0"})
    assert lines(trained(run)) == []


@pytest.mark.whole
@pytest.mark.training
def test_a_script_that_fails_at_an_import_fails_as_before(tmp_path):
    source = script(tmp_path, "import nothing_of_this_name")
    run = made(tmp_path, source, python=sys.executable)
    log = trained(run, code=1)
    alone = subprocess.run(
        [sys.executable, source], env=plain_environment(), capture_output=True, text=True, check=False
    )
    assert log == alone.stderr


def test_a_module_of_the_same_name_that_fails_is_told_by_python(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("1 / 0\n")
    done = child(tmp_path, "import sys; print('went on', 'torch' in sys.modules)", [mine])
    assert (done.returncode, done.stdout) == (0, "went on False\n")
    assert "ZeroDivisionError" in done.stderr


def test_a_run_inside_a_run_starts_python_once_and_runs_the_module_behind_both(tmp_path):
    with open(SHIM) as file:  # noqa: PTH123
        text = file.read()
    folders = [tmp_path / name for name in ("inner", "outer", "mine")]
    for folder in folders:
        folder.mkdir()
    for folder in folders[:2]:
        (folder / "sitecustomize.py").write_text(text)
    (folders[2] / "sitecustomize.py").write_text("print('mine')\n")
    environment = plain_environment(PYTHONPATH=os.pathsep.join(map(str, folders)))
    command = [sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mine", f"{folders[2]}/sitecustomize.py"]
    assert done.stderr == ""


def test_a_second_one_on_the_path_adds_nothing(tmp_path):
    (tmp_path / "other").mkdir()
    with open(SHIM) as file:  # noqa: PTH123
        (tmp_path / "other/sitecustomize.py").write_text(file.read())
    code = "import sys; print([getattr(finder, 'tui_train', 0) for finder in sys.meta_path].count(True))"
    assert child(tmp_path, code, [tmp_path / "other"]).stdout == "1\n"


FAKE = f"""
import types, torch
names = {BARE!r}[:COUNT]
torch.version.cuda, current = "12.8", [0]
torch._C._cuda_init = lambda: None
torch._C._cuda_getDeviceCount = lambda: len(names)
torch.cuda.device_count = lambda: len(names)
torch.cuda._cudart = object()
torch.cuda.current_device = lambda: current[0]
torch.cuda._queued_calls[:] = [call for call in torch.cuda._queued_calls if "sitecustomize" in call[0].__module__]
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(name={NAME!r}, uuid=names[index])
def choose(index):
    torch.cuda._lazy_init()
    current[0] = index
torch._C._cuda_setDevice = choose
"""


@pytest.mark.parametrize(
    ("count", "code", "expected"),
    [
        (1, "torch.cuda.init()", f"cuda:0 {NAME} {UUIDS[0]}"),
        (2, "torch.cuda.init()", ""),
        (2, "torch.cuda.init(); torch.cuda.set_device(1); torch.cuda.set_device(0)", f"cuda:1 {NAME} {UUIDS[1]}"),
        (2, "torch.cuda.set_device(1); del names[:]", f"cuda:1 {NAME} {UUIDS[1]}"),
        (1, "torch.cuda.get_device_properties = None; torch.cuda.init()", "cuda:0"),
        (1, "import os; os.environ['WORLD_SIZE'] = '2'; torch.cuda.init()", ""),
    ],
)
def test_a_card_is_shown_once_it_is_known(tmp_path, warm_python, count, code, expected):
    done = child(tmp_path, FAKE.replace("COUNT", str(count)) + code + "\nprint('done')\n", python=warm_python)
    host = os.uname().nodename
    assert done.stdout == "done\n", done.stderr
    assert done.stderr == (f"rank 0/1 | host {host} | device {expected} | backend none\n" if expected else "")


JOIN = f"{GROUP[:-1]}, init_method='tcp://127.0.0.1:0', rank=0, world_size=1)"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"torch.cuda.set_device(1); {JOIN}", f"cuda:1 {NAME} {UUIDS[1]}"),
        (f"{JOIN}; print('joined'); torch.cuda.set_device(1)", f"cuda:1 {NAME} {UUIDS[1]}"),
        (f"{JOIN}; torch.cuda.init()", "?"),
        (f"{JOIN}; torch.zeros(1, requires_grad=True).sum().backward()", "cpu"),
        (JOIN, "cpu"),
        (f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''; {JOIN}", "cpu"),
    ],
)
def test_a_rank_of_a_group_waits_for_the_choice_of_its_card(tmp_path, warm_python, code, expected):
    several = "import os; os.environ['WORLD_SIZE'] = '2'\n"
    done = child(tmp_path, FAKE.replace("COUNT", "2") + several + code, python=warm_python)
    shown = [line for line in done.stderr.splitlines() if line.startswith("rank ")]
    assert done.returncode == 0, done.stderr
    assert shown == [f"rank 0/1 | host {os.uname().nodename} | device {expected} | backend gloo"]


@pytest.fixture
def shim():
    spec = importlib.util.spec_from_file_location("shim", SHIM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loss_tells_the_device(shim, monkeypatch, capsys):
    cards = {1: SimpleNamespace(name=NAME, uuid=BARE[1])}
    monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace(get_device_properties=cards.get))
    loss = SimpleNamespace(device=SimpleNamespace(type="cuda", index=1))
    devices = shim.Devices()
    devices.gradients((), {"tensors": [loss]})
    devices.gradients((loss,), {})
    (found,) = parse_ranks(capsys.readouterr().err.splitlines())
    assert (found.device, found.name, found.uuid, found.backend) == ("cuda:1", NAME, UUIDS[1], "none")


def test_a_call_can_be_changed_before_it_and_no_failure_reaches_it(shim):
    def fails(*_):
        raise ValueError

    module = SimpleNamespace(join=lambda *words, **named: (words, named))
    plain, heard = module.join, []
    calls = shim.Calls()
    before = [fails, lambda words, named: (("gloo", *words[1:]), named), lambda *_: None]
    calls.around(module, "join", before, [fails, lambda words, named: heard.append(words)])
    assert module.join("nccl", 1, x=2) == (("gloo", 1), {"x": 2})
    assert heard == [("gloo", 1)]
    calls.put_back()
    assert module.join is plain


# ---- what a viewer reads


def test_a_long_log_is_read_from_its_beginning_and_at_most_so_far(tmp_path):
    run = made(tmp_path, script(tmp_path), 2, "torchrun")
    log = run.attempt_log(1)
    second = LINE.replace("0/2", "1/2")
    log.write_text(f"{LINE}\n" + "words\n" * 2_000_000 + f"{second}\n")
    found = read_ranks(run, 1)
    assert [one.rank for one in found.known] == [0]
    assert "the CPU was planned" in found.mismatch[0]
    found.read([second])
    assert [one.rank for one in found.known] == [0, 1]


def test_half_a_line_is_waited_for(tmp_path):
    run = made(tmp_path, script(tmp_path), 2, "torchrun")
    log = run.attempt_log(1)
    log.write_text(LINE[:-2])
    found = read_ranks(run, 1)
    assert found.known == ()
    with log.open("a") as file:
        file.write(LINE[-2:] + "\n")
    found.read()
    assert found.known == (rank(),)


async def shown(run, size=(80, 24)):
    """The lines of the screen that shows a run, once it has read all."""
    app = wizard(str(run.path))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await app.workers.wait_for_complete()
        await pilot.pause(1.5)  # the state of a run is drawn once a second
        return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


@pytest.mark.whole
async def test_the_screen_has_a_line_more_only_where_something_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "probe_machine", lambda *_, **__: facts().machine)
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_, **__: ())
    run = made(tmp_path, script(tmp_path), 2, "torchrun")
    run.events_file.write_text(
        '{"time":1,"event":"run_started"}\n{"time":1,"event":"attempt_started","attempt":1,"position":1}\n'
    )
    cpu = "rank {}/{} | host box | device cpu | backend gloo\n"
    run.attempt_log(1).write_text(cpu.format(0, 2) + cpu.format(1, 2) + "first\n")
    good = await shown(run)
    run.attempt_log(1).write_text(cpu.format(0, 1) + cpu.format(0, 1) + "first\n")
    bad = await shown(run)
    at = next(number for number, line in enumerate(good) if "2 ranks on CPU, gloo" in line)
    assert not good[at + 1].startswith(" !")
    assert bad[at + 1].startswith(" ! the training sees 1 process, 2 were planned: the processes are not")
    assert not bad[at + 2].startswith(" !")
