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
from support import UUIDS, export_run, facts, plain_environment, run_launch_script, sample, sleeper_profile
from tui_train.screens.run.run_state import run_state_lines

import tui_train
from tui_train.cli.runs import watch as printed
from tui_train.diagnose import diagnose_run
from tui_train.runs.follow import follow_snapshots, rank_reader_of_attempt
from tui_train.runs.ranks import (
    MAX_RANKS,
    PlannedRanks,
    RankDevice,
    differences_from_plan,
    parse_planned_ranks,
    parse_rank_devices,
    ranks_summary,
)
from tui_train.runs.slow_rank import SlowRankReader
from tui_train.runs.status import read_status

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
    return RankDevice(rank=number, **{**given, "backend": "nccl", **more})


def script(tmp_path, before=""):
    path = tmp_path / "my train.py"
    path.write_text(TRAINS.format(before=before))
    return path


def made(tmp_path, source, processes=1, launcher="python", python=None, **values):
    """A run folder for a script on the CPU, with its plan as data; `python` is the real one where it is given."""
    python = python or warm.training()
    chosen = {"trainer.python": python, "trainer.launcher": launcher, "hardware.processes": processes}
    chosen = sleeper_profile(**{**chosen, "trainer.script": str(source)}, **values)
    run, plan = export_run(tmp_path / "run", chosen, facts(python=python))
    run.plan_file.write_bytes(msgspec.json.encode(plan))
    return run


def trained(run, code=0, **environment):
    done = run_launch_script(run, env=plain_environment(**environment))
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

CPU_LINE = "rank 1/2 | host box | device cpu | backend gloo"
ON_CPU = {"device": "cpu", "name": "", "uuid": "", "backend": "gloo"}


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ([LINE], [rank()]),
        ([LINE] * 3, [rank()]),
        (["[default0]:" + LINE, "[rank1]: " + CPU_LINE], [rank(), rank(1, **ON_CPU)]),
        # Lines that share a line, or follow other words.
        ([f"50%|###  | 5/10{LINE}{CPU_LINE}"], [rank(), rank(1, **ON_CPU)]),
        ([CPU_LINE + CPU_LINE.replace("1/2", "0/2") + " done"], [rank(0, **ON_CPU), rank(1, **ON_CPU)]),
        ([LINE + " and more"], [rank()]),
        # The UUID with and without its beginning, of a part of a card, and none.
        ([LINE.replace("GPU-", "")], [rank()]),
        ([LINE.replace("GPU-ac50e9bd", "AC50E9BD")], [rank()]),
        ([LINE.replace("GPU-", "MIG-")], [rank(uuid=UUIDS[0].replace("GPU-", "MIG-"))]),
        ([LINE.replace(f" {UUIDS[0]}", "")], [rank(uuid="")]),
        (["rank 0/2 | stage pretrain | batch 8 | in /src", "rank", "", "rank 0/2 | host box"], []),
        ([LINE[:-20], "rank " * 100_000], []),
    ],
)
def test_lines_are_read(shown, found):
    assert parse_rank_devices(shown) == tuple(found)


def test_a_log_cannot_bring_control_characters_or_endless_ranks():
    found = parse_rank_devices([LINE.replace("box", "b\x1b[31mx").replace("RTX", "\u202eX")])[0]
    assert "\x1b" not in found.host
    assert "\u202e" not in found.name
    many = [LINE.replace("0/2", f"{number}/2") for number in range(MAX_RANKS + 1)]
    assert len(parse_rank_devices(many)) == MAX_RANKS


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"world_size": "x"}', b'{"gpus": 3}', b'{"device": "\xff"}'])
def test_a_foreign_plan_promises_nothing(data):
    assert parse_planned_ranks(data) == PlannedRanks()
    assert differences_from_plan([rank()], parse_planned_ranks(data)) == ()


# ---- what is compared

T4 = "NVIDIA T4"
ONE = msgspec.structs.replace(TWO, world_size=1, gpus=UUIDS[:1], gpu_names=(NAME,))
NCCL = msgspec.structs.replace(TWO, backend="nccl")
MACHINES = msgspec.structs.replace(TWO, world_size=4, nodes=2)
PART = PlannedRanks(world_size=1, device="cuda", gpus=(UUIDS[0].replace("GPU", "MIG"),), gpu_names=("A100 MIG 1g",))
THERE = [rank(number, world_size=4, host="other", uuid=OTHER[:-1] + str(number)) for number in (2, 3)]
SHARED = [msgspec.structs.replace(one, uuid=OTHER) for one in THERE]
MIXED = "cpu:gloo,cuda:nccl"


@pytest.mark.parametrize(
    ("ranks", "plan"),
    [
        ([rank(0), rank(1)], NCCL),
        ([], TWO),
        ([rank(0, **ON_CPU), rank(1, **ON_CPU)], PlannedRanks(world_size=2, device="cpu", backend="gloo")),
        # A name is enough, also a part of it, and where nothing is known nothing is said.
        ([rank(world_size=1, uuid="", name="GeForce RTX 3090")], ONE),
        ([rank(world_size=1, uuid="", name="")], ONE),
        # Two on one card, as planned.
        ([rank(0), rank(1, uuid=UUIDS[0])], msgspec.structs.replace(TWO, gpus=UUIDS[:1], gpu_names=(NAME,))),
        # The cards of other machines need only be like those of the first.
        ([rank(0, world_size=4), rank(1, world_size=4), *THERE], MACHINES),
        (THERE, MACHINES),
        # The backend counts where one was promised, and processes talk.
        ([rank(0, backend="gloo"), rank(1, backend="gloo")], TWO),
        ([rank(backend=MIXED)], NCCL),
        ([rank(world_size=1, backend="none")], msgspec.structs.replace(NCCL, world_size=1)),
        # Parts of a card are only counted.
        ([rank(world_size=1, uuid=OTHER)], PART),
    ],
)
def test_as_planned_nothing_is_said(ranks, plan):
    assert differences_from_plan(ranks, plan) == ()


@pytest.mark.parametrize(
    ("ranks", "plan", "said"),
    [
        ([rank(world_size=1, name=T4, uuid=OTHER)], ONE, f"rank 0 uses {T4} …44abcd, planned: {NAME} …663b60"),
        ([rank(world_size=1, name=T4, uuid="")], ONE, f"rank 0 uses {T4}, planned: {NAME} …663b60"),
        ([rank(0), rank(1, uuid=UUIDS[0])], TWO, f"ranks 0, 1 share one GPU, {NAME} …663b60"),
        ([rank(0, world_size=4, uuid=OTHER), *THERE], MACHINES, "rank 0 uses"),
        ([rank(0, world_size=4), *THERE, rank(1, world_size=4, host="other", name=T4)], MACHINES, "rank 1 uses"),
        ([rank(0, world_size=4), *SHARED], MACHINES, "ranks 2, 3 share"),
        ([rank(0, **ON_CPU), rank(1, **ON_CPU)], TWO, "ranks 0, 1 train on the CPU, 2 GPUs were planned"),
        ([rank(1, **ON_CPU)], TWO, "rank 1 trains on the CPU, 2 GPUs were planned"),
        ([rank(0)], PlannedRanks(world_size=2, device="cpu"), f"rank 0 uses {NAME} …663b60, the CPU was planned"),
        ([rank(world_size=1)], TWO, "the training sees 1 process, 2 were planned: the processes are not connected"),
        ([rank(world_size=4)], TWO, "the training sees 4 processes, 2 were planned"),
        ([rank(world_size=2)], ONE, "the training sees 2 processes, 1 was planned"),
        ([rank(0, backend="gloo"), rank(1, backend="gloo")], NCCL, "ranks 0, 1 talk through gloo, nccl was planned"),
        ([rank(backend=MIXED)], msgspec.structs.replace(TWO, backend="gloo"), f"rank 0 talks through {MIXED}, gloo"),
        ([rank(0, uuid=OTHER), rank(1, uuid=OTHER)], PART, "the training sees 2 processes, 1 was planned"),
    ],
)
def test_what_is_not_as_planned_is_said(ranks, plan, said):
    (sentence,) = differences_from_plan(ranks, plan)
    assert sentence.startswith(said)


def test_of_thousands_of_ranks_a_few_are_named():
    every = [rank(number, world_size=8192, uuid=f"GPU-{number:08x}{UUIDS[0][12:]}") for number in range(MAX_RANKS)]
    plan = msgspec.structs.replace(TWO, world_size=8192)
    assert len(differences_from_plan(every, plan)) < 12
    assert str(MAX_RANKS - 8) in " ".join(differences_from_plan(every, plan))
    assert ranks_summary(every).startswith("8192 processes")


def test_in_a_few_words():
    assert ranks_summary([]) == ""
    assert ranks_summary([rank(0), rank(1)]) == f"2 processes on {NAME} ×2, nccl"
    assert ranks_summary([rank(device="cpu", name="", backend="none")]) == "1 process on CPU"


# ---- what a script shows that was not changed


@pytest.mark.whole
@pytest.mark.training
def test_plain_python_shows_its_device_once_at_the_first_gradients(tmp_path):
    run = made(tmp_path, script(tmp_path), python=sys.executable)
    log = trained(run)
    host = os.uname().nodename
    assert lines(log) == [f"rank 0/1 | host {host} | device cpu | backend none"]
    assert log.index("rank 0/1") < log.index("done plain")
    found = rank_reader_of_attempt(run, 1)
    assert [(one.device, one.world_size) for one in found.ranks] == [("cpu", 1)]
    assert found.rank_differences == ()


@pytest.mark.training
@pytest.mark.parametrize("launcher", sample(["torchrun", "accelerate"], 2))
def test_each_rank_of_a_group_shows_its_device_once(tmp_path, launcher, capsys):
    before = GROUP if launcher == "torchrun" else "from accelerate import Accelerator; Accelerator()"
    run = made(tmp_path, script(tmp_path, before), 2, launcher, python=sys.executable)
    log = trained(run)
    host = os.uname().nodename
    assert lines(log) == [f"rank {number}/2 | host {host} | device cpu | backend gloo" for number in (0, 1)]
    told = [*follow_snapshots(run, lambda: False)][-1]
    assert [one.rank for one in told.ranks] == [0, 1]
    assert told.rank_differences == ()
    printed.print_logs(str(run.path), None, follow=False)
    assert capsys.readouterr().err == ""


@pytest.mark.whole
@pytest.mark.training
def test_processes_that_do_not_know_each_other_are_found(tmp_path, capsys):
    run = made(tmp_path, script(tmp_path), 2, "torchrun")
    trained(run, code=70)
    assert read_status(run).state == "failed"
    told = [*follow_snapshots(run, lambda: False)][-1]
    sentence = "the training sees 1 process, 2 were planned: the processes are not connected"
    assert told.rank_differences == (sentence,)
    assert f"! {sentence}" in [line.plain for line in run_state_lines(run.name, told, (), 80)]
    printed.print_logs(str(run.path), None, follow=False)
    assert capsys.readouterr().err == f"error: {sentence}\n"
    found = diagnose_run(run)
    assert (found.failure, found.change.edits) == ("not_distributed_silent", (("hardware.processes", 1),))
    assert "rank 0/1" in found.line


@pytest.mark.whole
@pytest.mark.training
def test_processes_that_compute_before_they_meet_are_a_group(tmp_path):
    before = "torch.zeros(1, requires_grad=True).sum().backward()\n" + GROUP
    run = made(tmp_path, script(tmp_path, before), 2, "torchrun")
    log = trained(run)
    assert log.count("rank 0/1 |") == 2
    told = [*follow_snapshots(run, lambda: False)][-1]
    assert [(one.rank, one.world_size) for one in told.ranks] == [(0, 2), (1, 2)]
    assert told.rank_differences == ()
    assert diagnose_run(run) is None


STEPS = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(103):
    if str(dist.get_rank()) in sys.argv[1:]:
        time.sleep(0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
time.sleep(2)
dist.destroy_process_group()
"""


@pytest.mark.whole
@pytest.mark.training
@pytest.mark.parametrize("slow", [("1",), ("0", "1")])
def test_a_rank_that_sleeps_while_the_others_wait_is_named(tmp_path, capsys, slow):
    path = tmp_path / "steps.py"
    path.write_text(STEPS)
    run = made(tmp_path, path, 2, "torchrun", trainer__arguments=slow)
    log = trained(run)
    assert {(rank, number) for rank in "01" for number in ("10", "100")} <= {
        *re.findall(r"rank (\d)/2 .* pass (\d+):", log)
    }, log
    snapshot = [*follow_snapshots(run, lambda: False)][-1]
    printed.stream_run(run)
    named = f"rank 1 on {os.uname().nodename} is slow: the others wait 0."
    assert {named in snapshot.slow_rank_sentence, named in capsys.readouterr().err} == {slow == ("1",)}, log


def exchange_lines(number, *seconds, of=1.0):
    """What each rank prints of a pass."""
    for rank, exchange in enumerate(seconds):
        begin = f"[rank{rank}]: rank {rank}/{len(seconds)} | host box{rank} | pass {number}"
        yield f"{begin}: {exchange:.6f} of {of} s exchange gradients"


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        ({10: (0.5, 0.1, 0.5, 0.5), 100: (0.6, 0.1, 0.5, 0.7)}, "rank 1 on box1 is slow: the others wait 0.5 of 1 s"),
        ({10: (0.5, 0.1, 0.5), 100: (0.1, 0.5, 0.5)}, ""),
        ({10: (0.5, 0.1, 0.5)}, ""),
        ({10: (0.5, 0.1, 0.5), 100: (0.55, 0.5, 0.52)}, ""),
        ({10: (0.5, 0.1, 0.5), 100: (0.5, 0.1, 0.5), 200: (0.5, 0.49, 0.5)}, ""),
        ({10: (0.5,), 100: (0.5,)}, ""),
    ],
)
def test_a_rank_is_slow_where_the_others_wait_for_it_in_two_passes(passes, expected):
    reader = SlowRankReader()
    for number, seconds in passes.items():
        reader.read(exchange_lines(number, *seconds))
    assert reader.sentence.startswith(expected)
    assert bool(reader.sentence) == bool(expected)


def test_a_rank_that_is_late_by_less_than_a_busy_machine_makes_it_is_not_slow():
    reader = SlowRankReader()
    reader.read([*exchange_lines(10, 0.0011, 0.0005, of=0.0017), *exchange_lines(100, 0.012, 0.0014, of=0.0128)])
    assert reader.sentence == ""
    reader.read(exchange_lines(200, 0.0117, 0.0014, of=0.0128))
    assert reader.sentence.startswith("rank 1 on box1 is slow")


def test_passes_that_not_all_ranks_report_are_not_compared():
    reader = SlowRankReader()
    tenth, hundredth, newest = ([*exchange_lines(number, 0.5, 0.1)] for number in (10, 100, 200))
    reader.read([tenth[0], *hundredth, newest[1]])
    assert reader.sentence == ""
    reader.read(newest[:1])
    assert reader.sentence.startswith("rank 1 on box1 is slow")
    reader.read(
        ["rank 7/2 | host x | pass 200: 0.1 of 1.0 s exchange gradients", "rank 1/2 | host x | pass 9: 1 of 2 s"]
    )
    assert reader.sentence.startswith("rank 1 on box1 is slow")


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
def test_it_can_be_turned_off_and_the_python_path_stays(tmp_path):
    source = script(tmp_path, "print(os.environ['PYTHONPATH'])")
    run = made(tmp_path, source, trainer__environment={"TUI_TRAIN_SHOW_DEVICES": "0"})
    log = trained(run, PYTHONPATH=str(tmp_path))
    assert lines(log) == []
    assert f"{run.path}/shim:{tmp_path}\n" in log


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
    devices = shim.RankDevicePrinter()
    devices.print_device_of_loss(tensors=[loss])
    devices.print_device_of_loss(loss)
    (found,) = parse_rank_devices(capsys.readouterr().err.splitlines())
    assert (found.device, found.name, found.uuid, found.backend) == ("cuda:1", NAME, UUIDS[1], "none")


def test_memory_is_limited_when_cuda_starts(shim, monkeypatch):
    started, limited = [], []
    module = SimpleNamespace(
        _lazy_call=started.append,
        get_device_properties=lambda _: SimpleNamespace(total_memory=100),
        set_per_process_memory_fraction=lambda *words: limited.append(words),
    )
    shim.limit_gpu_memory(module)
    for allowed in ("25", "400"):
        monkeypatch.setenv("TUI_TRAIN_GPU_MEMORY", allowed)
        shim.limit_gpu_memory(module)
    assert (len(started), limited) == (2, [])
    for start in started:
        start()
    assert limited == [(0.25, 0), (1.0, 0)]


def test_a_call_can_be_changed_before_it_and_no_failure_reaches_it(shim):
    def fails(*_, **__):
        raise ValueError

    module = SimpleNamespace(Group=SimpleNamespace(join=lambda *words, **named: (words, named)))
    plain, heard = module.Group.join, []
    restore = shim.wrap_call(
        module,
        "Group.join",
        lambda *words, **named: (("gloo", *words[1:]), named),
        lambda *words, **_: heard.append(words),
    )
    assert module.Group.join("nccl", 1, x=2) == (("gloo", 1), {"x": 2})
    assert heard == [("gloo", 1)]
    restore()
    assert module.Group.join is plain
    shim.wrap_call(module, "Group.join", fails, fails)
    assert module.Group.join("nccl", 1, x=2) == (("nccl", 1), {"x": 2})


# ---- what a viewer reads


def test_a_long_log_is_read_from_its_beginning_and_at_most_so_far(tmp_path):
    run = made(tmp_path, script(tmp_path), 2, "torchrun")
    log = run.attempt_log(1)
    second = LINE.replace("0/2", "1/2")
    log.write_text(f"{LINE}\n" + "words\n" * 2_000_000 + f"{second}\n")
    found = rank_reader_of_attempt(run, 1)
    assert [one.rank for one in found.ranks] == [0]
    assert "the CPU was planned" in found.rank_differences[0]
    found.read([second])
    assert [one.rank for one in found.ranks] == [0, 1]


def test_half_a_line_is_waited_for(tmp_path):
    run = made(tmp_path, script(tmp_path), 2, "torchrun")
    log = run.attempt_log(1)
    log.write_text(LINE[:-2])
    found = rank_reader_of_attempt(run, 1)
    assert found.ranks == ()
    with log.open("a") as file:
        file.write(LINE[-2:] + "\n")
    found.read()
    assert found.ranks == (rank(),)
