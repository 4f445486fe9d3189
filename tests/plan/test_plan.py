"""plan(): what would be started, from what was chosen and what is; pure, exact and the same each time."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    FULL_RECIPE,
    UUIDS,
    example_count,
    facts,
    gpu,
    plan,
    prepare_without_errors,
    profile,
    toolchain,
    values_taken_by_preset,
)

from tui_train.base.command import argv, expand_word
from tui_train.base.errors import BadInput, Unavailable
from tui_train.facts.types import Facts
from tui_train.plan.render.script.launch_script import render_launch_script
from tui_train.profile import batch
from tui_train.profile.types import Profile

SCRIPT = {"trainer.kind": "script", "trainer.script": "/src/my train.py"}


def words(chosen, found=None, attempt=0, checkpoint=""):
    """The command of an attempt in the run folder /run."""
    return argv(plan(chosen, found or facts(python="/py")).attempts[attempt].command, "/run", checkpoint)


def environment(chosen, found=None, attempt=0):
    made = plan(chosen, found or facts(python="/py"))
    values = {"RUN_DIR": "/run", "PYTHONPATH": ":/before", "GPUS": "$GPUS", "NODE_RANK": "0", "ADDRESS": "10.0.0.1"}
    return {setting.name: expand_word(setting.value, values) for setting in made.attempts[attempt].command.env}


def test_a_pretraining_evaluates_where_it_has_data():
    def told(**values):
        made = words(profile(**values))
        return [word for word in made if "eval" in word or "validation" in word]

    assert told(recipe__evaluate_every=5) == []
    data = ["--validation_data=/v.txt"]
    assert told(trainer__validation_data=("/v.txt",)) == [*data, "--eval_strategy=epoch"]
    every = told(trainer__validation_data=("/v.txt",), recipe__evaluate_every=5)
    assert every == [*data, "--eval_strategy=steps", "--eval_steps=5"]


def test_the_cores_are_divided_for_the_machine_with_the_most_processes():
    uneven = {"nodes.count": 2, "nodes.address": "10.0.0.1", "nodes.processes": (1, 4), "recipe.global_batch": None}
    assert environment(profile({"hardware.device": "cpu", **uneven}), facts(cpu_count=8))["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(
    ("launcher", "gpus", "processes", "world"),
    [("python", 0, 0, 1), ("torchrun", 0, 0, 1), ("torchrun", 0, 3, 3), ("torchrun", 2, 0, 2), ("accelerate", 2, 2, 2)],
)
def test_processes_follow_the_devices(launcher, gpus, processes, world):
    found = facts(gpus=tuple(gpu(number) for number in range(gpus)), cpu_count=8)
    chosen = profile({"trainer.launcher": launcher, "hardware.processes": processes, "recipe.global_batch": 48})
    made = plan(chosen, found)
    assert made.world_size == world
    assert made.device == ("cuda" if gpus else "cpu")
    assert made.gpus == UUIDS[: world if gpus else 0]
    assert environment(chosen, found)["OMP_NUM_THREADS"] == str(8 // world)
    assert environment(chosen, found)["CUDA_VISIBLE_DEVICES"] == ",".join(made.gpus)
    assert f"--expect={world}x{made.device}" in argv(made.attempts[0].command, "/run")


def configuration(chosen, found):
    return yaml.safe_load(
        next(file.text for file in prepare_without_errors(chosen, found).files if file.path == "accelerate.yaml")
    )


@pytest.mark.parametrize("launcher", ["python", "torchrun", "accelerate"])
def test_one_card_is_no_group(launcher):
    chosen = profile({"trainer.launcher": launcher, "hardware.gpus": UUIDS[:1]})
    made = plan(chosen, facts(gpus=(gpu(0), gpu(1))))
    assert (made.world_size, made.gpus) == (1, UUIDS[:1])
    if launcher == "accelerate":
        told = configuration(chosen, facts(gpus=(gpu(0), gpu(1))))
        assert (told["distributed_type"], told["num_processes"]) == ("NO", 1)


def test_the_first_python_that_can_train_is_taken():
    tools = (toolchain("/no-torch", torch=None), toolchain("/no-accelerate", accelerate=None), toolchain("/good"))
    found = Facts(machine=facts().machine, toolchains=tools)
    assert plan(Profile(), found).python == "/good"
    assert plan(profile(SCRIPT), found).python == "/no-accelerate"
    assert plan(profile({"trainer.launcher": "accelerate"} | SCRIPT), found).python == "/good"
    assert plan(profile({"trainer.python": "/good"} | SCRIPT), found).python == "/good"
    with pytest.raises(Unavailable, match="/no-torch has no torch"):
        plan(profile({"trainer.python": "/no-torch"} | SCRIPT), found)


def test_a_python_whose_torch_can_use_the_cards_goes_before_one_that_cannot():
    tools = (toolchain("/cpu", cuda=None, arch_list=()), toolchain("/gpu", cuda="12.8", arch_list=("sm_86",)))
    found = Facts(machine=facts(gpus=(gpu(0, UUIDS[0]),)).machine, toolchains=tools)
    assert plan(Profile(), found).python == "/gpu"
    assert plan(profile({"hardware.device": "cpu"}), found).python == "/cpu"
    assert plan(Profile(), Facts(machine=facts().machine, toolchains=tools)).python == "/cpu"


def test_a_script_starts_in_its_own_folder_with_the_presets_words():
    mine = {"trainer.preset": "hf-trainer", "trainer.arguments": ("--model_name", "gpt2")} | SCRIPT
    chosen = profile(values_taken_by_preset(mine))
    command = plan(chosen, facts()).attempts[0].command
    assert command.cwd == "/src"
    # What was not chosen is the script's own: only where it writes and how often it logs is this program's.
    ours = ["--enable_jit_checkpoint=True", "--output_dir=/run/output", "--logging_steps=10"]
    assert words(profile(mine)) == ["/py", "/src/my train.py", *ours, "--model_name", "gpt2"]
    assert words(chosen, checkpoint="/c")[-1] == "--resume_from_checkpoint=/c"
    assert plan(profile({"trainer.script": "/train.py"}, chosen), facts()).attempts[0].command.cwd == "/"
    assert plan(profile({"trainer.working_directory": "/w"}, chosen), facts()).attempts[0].command.cwd == "/w"


@pytest.mark.parametrize(
    ("precision", "flags"),
    [
        ("bf16", ["--bf16=True", "--fp16=False"]),
        ("fp16", ["--bf16=False", "--fp16=True"]),
        ("fp32", ["--bf16=False", "--fp16=False"]),
        (None, []),
    ],
)
def test_precision_reaches_the_hf_trainer(precision, flags):
    chosen = profile({"recipe.precision": precision, "recipe.activation_checkpointing": True} | SCRIPT)
    found = words(chosen, facts(gpus=(gpu(0),)))
    assert [word for word in found if "16=" in word] == flags
    assert "--gradient_checkpointing=True" in found


def test_custom_passes_what_is_typed_with_the_numbers_filled_in():
    mine = ("-b", "{micro_batch}", "--in={data}", "--lr={learning_rate},{precision}", "{nothing}", "--m={model}", "{}")
    values = {"trainer.preset": "custom", "trainer.arguments": mine, "trainer.data": ("/a b", "/c")}
    chosen = profile(values_taken_by_preset(values | {"trainer.model": "/m"} | SCRIPT))
    expected = ["-b", "8", "--in=/a b", "--in=/c", "--lr=0.003,fp32", "{nothing}", "--m=/m", "{}"]
    assert words(chosen)[2:] == expected
    for key, empty in (("trainer.model", ""), ("trainer.data", ()), ("recipe.micro_batch", None)):
        with pytest.raises(BadInput, match="has no value, so the argument would be left out"):
            plan(profile({key: empty}, chosen), facts())


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (FULL_RECIPE, (8, 16, 2, 60)),
        (SCRIPT | {"trainer.preset": "custom", "trainer.arguments": ()}, (0, 0, 0, 0)),
    ],
    ids=["whole", "unknown"],
)
def test_a_plan_has_the_numbers_of_its_recipe_and_0_for_what_is_not_known(values, numbers):
    made = plan(profile(values), facts())
    assert (made.micro_batch, made.global_batch, made.accumulation, made.steps) == numbers


def test_a_loaded_model_keeps_its_size():
    found = words(profile({"trainer.model": "/models/tiny", "trainer.data": ("/d",)}))
    assert "--model=/models/tiny" in found
    assert not [word for word in found if word.startswith(("--layers", "--hidden", "--heads"))]


def test_your_own_variables_win():
    found = environment(profile({"trainer.environment": {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}}))
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["WANDB_MODE"] == "offline"


@pytest.mark.parametrize(
    ("yours", "path"),
    [({}, "/run/shim:/before"), ({"PYTHONPATH": "/a:/b"}, "/run/shim:/a:/b"), ({"PYTHONPATH": ""}, "/run/shim")],
)
def test_a_script_shows_its_devices_beside_the_python_path_that_it_has(yours, path):
    chosen = profile({**SCRIPT, "trainer.environment": yours})
    assert environment(chosen)["PYTHONPATH"] == path
    assert [program.path for program in plan(chosen, facts(python="/py")).programs] == ["shim/sitecustomize.py"]


def test_every_setting_says_why():
    for launcher in ("python", "torchrun", "accelerate"):
        for cards in ((), (gpu(0),)):
            made = plan(profile({"trainer.launcher": launcher}), facts(gpus=cards))
            for attempt in made.attempts:
                assert all(setting.why and setting.origin for setting in attempt.command.env)


@pytest.mark.parametrize(
    ("scaling", "base", "rate"), [("none", 8, 0.1), ("linear", 8, 0.2), ("sqrt", 4, 0.2), ("linear", 0, 0.1)]
)
def test_the_learning_rate_follows_the_global_batch(scaling, base, rate):
    values = {"recipe.lr_scaling": scaling, "recipe.lr_base_batch": base, "recipe.learning_rate": 0.1}
    made = plan(profile(values), facts(python="/py"))
    assert made.learning_rate == pytest.approx(rate)
    assert f"--learning_rate={made.learning_rate!r}" in words(profile(values))
    # A rung keeps the global batch, so the learning rate as well.
    assert f"--learning_rate={made.learning_rate!r}" in words(profile(values), attempt=len(made.attempts) - 1)


@settings(max_examples=example_count(300), deadline=None)
@given(total=st.integers(1, 5000), micro=st.integers(1, 600), world=st.integers(1, 17))
def test_batch_arithmetic_is_exact(total, micro, world):
    steps = batch.gradient_accumulation(total, micro, world)
    assert (steps is not None) == (total % (micro * world) == 0)
    if steps is not None:
        assert micro * world * steps == total
        return
    near = batch.nearest_global_batches(total, micro, world)
    assert near
    for value in near:
        assert batch.gradient_accumulation(value, micro, world)
        assert abs(value - total) < micro * world
    fitting = [value for value in range(1, total + 1) if batch.gradient_accumulation(total, value, world)]
    below, above = [v for v in fitting if v < micro], [v for v in fitting if v > micro]
    assert batch.nearest_micro_batches(total, micro, world) == tuple(below[-1:] + above[:1])


def test_only_what_reaches_the_training_is_said_of_it():
    two = {"trainer.launcher": "torchrun", "hardware.processes": 2, "hardware.device": "cpu"} | SCRIPT
    hf = plan(profile(values_taken_by_preset(two)), facts())
    assert hf.numbers == ("learning rate 0.003", "60 steps")
    assert hf.attempts[0].batch == "micro batch 8 x accumulation 1 x 2 processes = global batch 16"
    assert {"--per_device_train_batch_size=8", "--gradient_accumulation_steps=1"} <= {
        *words(profile(values_taken_by_preset(two)))
    }
    total = plan(profile(values_taken_by_preset({"trainer.preset": "total-batch"} | two)), facts())
    assert total.numbers == ("learning rate 0.003",)
    custom = profile({"trainer.preset": "custom"} | two)
    assert plan(custom, facts()).numbers == ()
    assert plan(custom, facts()).attempts[0].batch == "2 processes, batch: up to the script"
    both = {"recipe.micro_batch": 8, "recipe.global_batch": 15}
    for word in ("global_batch", "accumulation"):
        with pytest.raises(BadInput, match="not a multiple"):
            plan(profile({"trainer.arguments": ("{micro_batch}", f"--n={{{word}}}"), **both}, custom), facts())
    with pytest.raises(BadInput, match="is set, but not used"):
        plan(profile(both, custom), facts())


MACHINES = {"nodes.count": 3, "nodes.address": "10.0.0.1", "nodes.port": 29511, "recipe.global_batch": 96}


@pytest.mark.parametrize("launcher", ["auto", "torchrun", "accelerate"])
@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_several_machines_are_one_world(launcher, gpus):
    found = facts(python="/py", gpus=tuple(gpu(number) for number in range(gpus)), cpu_count=8)
    chosen = profile({"trainer.launcher": launcher, "hardware.processes": 0 if gpus else 2, **MACHINES})
    made = plan(chosen, found)
    each = gpus or 2
    assert (made.world_size, made.nodes, made.world_size // made.nodes) == (3 * each, 3, each)
    assert made.micro_batch * made.accumulation * made.world_size == 96
    assert [attempt.title for attempt in made.attempts] == ["as planned"]
    assert all(attempt.batch.endswith("= global batch 96") for attempt in made.attempts)
    assert any(note.startswith("No fallbacks") for note in made.notes)
    assert any(word.startswith(f"--expect={3 * each}x") for word in argv(made.attempts[0].command, "/run"))
    assert environment(chosen, found)["OMP_NUM_THREADS"] == str(8 // each)
    assert "GLOO_SOCKET_IFNAME" not in environment(chosen, found)
    if launcher == "accelerate":
        told = configuration(chosen, found)
        assert "main_process_ip" not in told, "it may be known only at the start"
        assert "gpu_ids" not in told, "they are the first machine's"


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_hosts_are_one_world_that_falls_back_together(launcher):
    """Two machines of four cards, as in the examples of several manuals."""
    found = facts(python="/py", gpus=tuple(gpu(number, f"GPU-{number}") for number in range(4)))
    several = {"nodes.hosts": ("ann@gpu-a", "gpu-b"), "trainer.launcher": launcher, "recipe.global_batch": 64}
    made = plan(profile({**several, "recipe.micro_batch": 2}), found)
    assert (made.world_size, made.nodes, made.world_size // made.nodes, made.hosts) == (8, 2, 4, ("ann@gpu-a", "gpu-b"))
    assert (made.is_started_by_hand, len(made.attempts) > 1) == (False, True)
    second = " ".join(argv(made.attempts[0].command, "/run", node_rank=1, address="10.0.0.1"))
    assert "rank=1 " in second
    assert "10.0.0.1" in second
    script = render_launch_script(made)
    assert "address=${TUI_TRAIN_ADDRESS:-gpu-a}\n" in script
    with_its_address = plan(profile({**several, "nodes.address": "10.0.0.1"}), found)
    assert "address=${TUI_TRAIN_ADDRESS:-10.0.0.1}\n" in render_launch_script(with_its_address)


def test_a_strategy_brings_its_launcher():
    found = facts(python="/py", gpus=(gpu(0), gpu(1)))
    made = plan(profile({"trainer.strategy": "fsdp2"}), found)
    assert (made.launcher, made.world_size) == ("accelerate", 2)
    assert "accelerate with fsdp2" in made.title
    assert configuration(profile({"trainer.strategy": "fsdp2"}), found)["distributed_type"] == "FSDP"


def test_a_python_that_can_shard_goes_before_one_that_cannot():
    tools = (toolchain("/old", accelerate="1.5.0"), toolchain("/new"), toolchain("/ds", packages={"deepspeed": "0.19"}))
    found = Facts(machine=facts(gpus=(gpu(0), gpu(1))).machine, toolchains=tools)
    assert plan(profile(SCRIPT), found).python == "/old"
    assert plan(profile({"trainer.strategy": "fsdp2"} | SCRIPT), found).python == "/new"
    assert plan(profile({"trainer.strategy": "zero3"} | SCRIPT), found).python == "/ds"
