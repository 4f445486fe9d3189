"""The user's accelerate config: read where accelerate reads it, and kept in the plan's own, or said and why."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from ssh import survey_this_machine
from support import (
    facts,
    findings_of,
    gpu,
    parse_command_lines,
    plain_environment,
    plan,
    prepare_without_errors,
    profile,
)

from tui_train.base.command import argv
from tui_train.facts.types import ScriptSource
from tui_train.facts.yaml_documents import parse_document
from tui_train.memory.predict import predict_memory
from tui_train.places.profile_facts import read_profile_files
from tui_train.setup.setup import Setup
from tui_train.views.run_settings import effective_settings

BASIC = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "NO", "num_processes": 1}
SCRIPT = {
    "trainer.kind": "script", "trainer.script": "/t.py", "trainer.preset": "custom", "trainer.launcher": "accelerate",
}  # fmt: skip
TWO = facts(gpus=(gpu(0), gpu(1)))
FSDP = {
    "fsdp_version": 1, "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_state_dict_type": "FULL_STATE_DICT",
    "fsdp_transformer_layer_cls_to_wrap": "Block", "activation_checkpointing": True,
}  # fmt: skip
ZERO = {"zero_stage": 3, "gradient_accumulation_steps": 4, "gradient_clipping": 0.5, "zero3_init_flag": False}


def with_config(config, where=None):
    """These facts of a machine, on which the user has that accelerate config."""
    found = parse_document(yaml.safe_dump({**BASIC, **config}).encode())
    return msgspec.structs.replace(where or facts(), accelerate_config="/c.yaml", documents={"/c.yaml": found})


def words_in(run, prepared):
    """The words of accelerate, whose config is written into a run folder."""
    run.mkdir()
    (run / "accelerate.yaml").write_text(next(f.text for f in prepared.files if f.path == "accelerate.yaml"))
    return argv(prepared.plan.attempts[0].command, str(run))[3:]


def written(chosen, where):
    """The config that the plan writes."""
    return prepare_without_errors(profile(SCRIPT | chosen), where).plan.configs[0].values


def test_a_users_precision_holds_with_its_source():
    where = with_config({"mixed_precision": "bf16"})
    held = Setup(profile(SCRIPT), where)
    assert held.effective_profile.recipe.precision == "bf16"
    precision = held.effective_values["precision"]
    assert (precision.value, precision.source) == ("bf16", "from your accelerate config")
    made = plan(profile(SCRIPT), where)
    assert made.configs[0].values["mixed_precision"] == "bf16"
    assert made.notes[0] == "bf16: from your accelerate config (/c.yaml)."
    # What a run did is read in its own plan.
    settings = effective_settings(profile(SCRIPT), json.loads(msgspec.json.encode(made)))
    assert settings["recipe.precision"].text == "bf16 (default)"


@pytest.mark.parametrize(
    ("chosen", "config", "mixed"),
    [
        ({"recipe.precision": "fp32"}, {"mixed_precision": "bf16"}, "no"),
        ({"recipe.precision": "bf16"}, {"mixed_precision": "fp16"}, "bf16"),
        ({}, {"mixed_precision": "fp8"}, "fp8"),
        ({}, {"mixed_precision": False}, "no"),
        ({}, {"fp16": True}, "fp16"),
        # The Hugging Face Trainer leaves it to accelerate, unless an argument sets it.
        ({"trainer.preset": "hf-trainer"}, {"mixed_precision": "bf16"}, "bf16"),
        ({"trainer.preset": "hf-trainer", "trainer.arguments": ("--fp16=True",)}, {"mixed_precision": "bf16"}, "fp16"),
        # TRL's own bf16 overrides it, and axolotl's file decides.
        ({"trainer.preset": "trl", "trainer.script": "", "trainer.model": "/m"}, {"mixed_precision": "fp16"}, "bf16"),
        # The trainers of this program have no script that could override it.
        ({"trainer.kind": "builtin"}, {"mixed_precision": "bf16"}, "bf16"),
    ],
)  # fmt: skip
def test_what_is_nearer_to_the_training_decides(chosen, config, mixed):
    chosen = dict(SCRIPT | chosen)
    if chosen["trainer.kind"] == "builtin":
        chosen = {"trainer.kind": "builtin", "trainer.launcher": "accelerate"}
    where = with_config(config, TWO)
    made = prepare_without_errors(profile(chosen), where).plan
    assert made.configs[0].values["mixed_precision"] == mixed
    words = argv(made.attempts[0].command, "/run")
    # A value of the launcher's is not passed to a script, only to what is ours.
    assert [word for word in words if word.startswith("--bf16")] == (
        ["--bf16=True"] if chosen["trainer.kind"] == "builtin" else []
    )
    if "recipe.precision" in chosen:
        assert any(f"{chosen['recipe.precision']} (recipe.precision) instead of" in note for note in made.notes)


@pytest.mark.parametrize("launcher", ["python", "torchrun"])
def test_nothing_is_said_where_nothing_reads_it(launcher):
    chosen = profile(SCRIPT | {"trainer.launcher": launcher})
    where = with_config({"mixed_precision": "bf16", "distributed_type": "MEGATRON_LM"})
    assert Setup(chosen, where).effective_profile.recipe.precision is None
    assert not [item for item in findings_of(chosen, where) if "accelerate config" in item.message]


def test_the_automatic_launcher_says_that_it_would_not_read_it():
    chosen = profile(SCRIPT | {"trainer.launcher": "auto"})
    where = msgspec.structs.replace(
        with_config({"mixed_precision": "bf16"}), sources={"/t.py": ScriptSource(creates_accelerator=True)}
    )
    (finding,) = [item for item in findings_of(chosen, where) if item.key == "trainer.launcher"]
    assert (finding.level, finding.change.edits) == ("warning", (("trainer.launcher", "accelerate"),))
    quiet = profile({"recipe.precision": "bf16"}, chosen)
    assert not [item for item in findings_of(quiet, where) if item.key == "trainer.launcher"]
    # Naming a file is choosing what reads it.
    named_file = profile({"trainer.accelerate_config": "/c.yaml"}, chosen)
    assert Setup(named_file, where).launcher == "accelerate"


def test_checks_and_memory_see_the_precision_in_force():
    old = facts(gpus=(gpu(0, compute_capability="6.1", name="GTX 1080"),), arch_list=("sm_61",))
    chosen = profile(SCRIPT)
    (finding,) = [
        item for item in findings_of(chosen, with_config({"mixed_precision": "bf16"}, old)) if "bf16" in item.message
    ]
    assert (finding.level, finding.key) == ("error", "recipe.precision")
    assert "bf16 (from your accelerate config)" in finding.message
    model = profile(
        SCRIPT | {"trainer.preset": "hf-trainer", "trainer.arguments": ("--model_name_or_path=gpt2",),
                  "recipe.micro_batch": 8, "recipe.global_batch": 16}
    )  # fmt: skip
    full, mixed = (
        predict_memory(Setup(model, where)).estimate for where in (TWO, with_config({"mixed_precision": "bf16"}, TWO))
    )
    assert full
    assert mixed
    assert full != mixed


def test_what_has_no_key_is_passed_on_as_accelerate_reads_it(tmp_path):
    """Read back by accelerate launch's own parser."""
    config = {
        "mixed_precision": "fp16", "dynamo_config": {"dynamo_backend": "EAGER", "dynamo_mode": "default"},
        "debug": True, "fsdp_config": FSDP, "distributed_type": "FSDP", "num_processes": 2,
    }  # fmt: skip
    zero = {"deepspeed_config": ZERO, "distributed_type": "DEEPSPEED", "num_processes": 2}
    lines = []
    for values, strategy in ((config, "fsdp2"), (zero, "zero3")):
        chosen = profile(SCRIPT | {"trainer.strategy": strategy, "trainer.preset": "hf-trainer"})
        where = with_config(values, facts(gpus=(gpu(0), gpu(1)), packages={"deepspeed": "0.19.8"}))
        lines.append(words_in(tmp_path / strategy, prepare_without_errors(chosen, where)))
    fsdp, deepspeed = (found["env"] for found in parse_command_lines("accelerate", lines)["found"])
    assert fsdp["ACCELERATE_MIXED_PRECISION"] == "fp16"
    assert (fsdp["ACCELERATE_DYNAMO_BACKEND"], fsdp["ACCELERATE_DEBUG_MODE"]) == ("EAGER", "true")
    assert (fsdp["FSDP_VERSION"], fsdp["FSDP_STATE_DICT_TYPE"]) == ("2", "FULL_STATE_DICT")
    assert (fsdp["FSDP_TRANSFORMER_CLS_TO_WRAP"], fsdp["FSDP_ACTIVATION_CHECKPOINTING"]) == ("Block", "true")
    assert deepspeed["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "3"
    assert deepspeed["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "4"
    assert deepspeed["ACCELERATE_GRADIENT_CLIPPING"] == "0.5"


@pytest.mark.parametrize(
    ("config", "level", "message", "edits"),
    [
        ({"distributed_type": "FSDP", "fsdp_config": {**FSDP, "offload_params": True}}, "warning", "(FSDP)",
         {"trainer.strategy": "fsdp2", "trainer.offload": True}),
        ({"distributed_type": "DEEPSPEED", "deepspeed_config": ZERO}, "warning", "DeepSpeed",
         {"trainer.strategy": "zero3"}),
        ({"gpu_ids": "1"}, "note", "names GPU 1", {"hardware.gpus": ("1",)}),
        ({"gpu_ids": 1}, "note", "names GPU 1", {"hardware.gpus": ("1",)}),
        ({"gpu_ids": "7"}, "note", "names GPU 7", None),
        ({"use_cpu": True}, "note", "trains on the CPU", {"hardware.device": "cpu"}),
        ({"num_machines": 2, "main_process_ip": "10.0.0.1", "main_process_port": 1234}, "warning", "2 machines",
         {"nodes.count": 2, "nodes.address": "10.0.0.1", "nodes.port": 1234}),
        ({"deepspeed_config": {"deepspeed_config_file": "ds.json"}}, "error", "deepspeed_config_file in", None),
        ({"compute_environment": "AMAZON_SAGEMAKER"}, "warning", "is for AMAZON_SAGEMAKER", None),
        ({"ipex_config": {"ipex": True}}, "warning", "ipex_config in", None),
        ({"tp_config": {"tp_size": 2}}, "error", "tp_config in /c.yaml", None),
        ({"num_processes": "four"}, "warning", "num_processes: four in", None),
        ({"mixed_precision": "int8"}, "warning", "does not know: int8", None),
        ({"fsdp_config": [1]}, "warning", "no table under fsdp_config", None),
    ],
)  # fmt: skip
def test_what_is_not_kept_is_a_finding_with_its_key(config, level, message, edits):
    where = with_config({"num_processes": 2, **config}, TWO)
    found = [item for item in findings_of(profile(SCRIPT), where) if message in item.message]
    assert [item.level for item in found] == [level]
    assert (dict(found[0].change.edits) if found[0].change else None) == edits


@pytest.mark.parametrize(
    "config",
    [
        {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 1, "fsdp_reshard_after_forward": "NO_SHARD"}},
        {"distributed_type": "FSDP", "fsdp_config": {"sharding_strategy": 3}},
        {"main_training_function": "train", "downcast_bf16": "no", "ipex_config": {"ipex": False}},
        {"dynamo_backend": None, "num_processes": "2"},
        {"dynamo_config": {"dynamo_backend": None}},
    ],
)
def test_what_makes_no_difference_is_not_spoken_of(config):
    where = with_config({"num_processes": 2, **config}, TWO)
    chosen = profile(SCRIPT | {"trainer.preset": "hf-trainer"})
    assert not [item.message for item in findings_of(chosen, where) if "accelerate config" in item.message]
    assert "dynamo_config" not in written({}, where)


def test_an_unknown_key_costs_only_itself():
    values = written({}, with_config({"backend": "gloo", "ipex_config": {"ipex": True}, "mixed_precision": "bf16"}))
    assert values["mixed_precision"] == "bf16"
    assert not {"backend", "ipex_config"} & {*values}


def test_a_config_for_gpus_names_no_precision_and_no_processes_for_the_cpu():
    chosen = {"hardware.device": "cpu"}
    where = with_config({"mixed_precision": "fp8", "distributed_type": "MULTI_GPU", "num_processes": 8})
    said = [item for item in findings_of(profile(SCRIPT | chosen), where) if "accelerate config" in item.message]
    assert [(item.level, item.key) for item in said] == [("note", "recipe.precision")]
    assert written(chosen, where)["mixed_precision"] == "no"
    # One for the CPU is the user's word about it.
    own = with_config({"mixed_precision": "fp16", "use_cpu": True})
    assert "error" in {
        item.level for item in findings_of(profile(SCRIPT | chosen), own) if item.key == "recipe.precision"
    }
    more = with_config({"distributed_type": "MULTI_CPU", "use_cpu": True, "num_processes": 8})
    assert any(item.key == "hardware.processes" for item in findings_of(profile(SCRIPT | chosen), more))


def offered():
    """What `accelerate config` lets one choose for FSDP, by the constants of the installed accelerate."""
    found = importlib.util.find_spec("accelerate")
    source = Path(found.submodule_search_locations[0], "utils", "constants.py").read_text()
    known = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and isinstance(node.targets[0], ast.Name)
    }
    choices = {
        "auto_wrap_policy": "AUTO_WRAP_POLICY", "backward_prefetch": "BACKWARD_PREFETCH",
        "reshard_after_forward": "SHARDING_STRATEGY", "sharding_strategy": "SHARDING_STRATEGY",
        "state_dict_type": "STATE_DICT_TYPE",
    }  # fmt: skip
    flags = ("offload_params", "forward_prefetch", "use_orig_params", "cpu_ram_efficient_loading",
             "sync_module_states", "activation_checkpointing")  # fmt: skip
    first = [(key, value) for key, name in choices.items() for value in known[f"FSDP_{name}"]]
    first += [("sharding_strategy", number) for number in range(1, len(known["FSDP_SHARDING_STRATEGY"]) + 1)]
    second = [("state_dict_type", value) for value in known["FSDP2_STATE_DICT_TYPE"]]
    second += [("reshard_after_forward", value) for value in (True, False)]
    both = [(key, value) for key in flags for value in (True, False)]
    both += [("min_num_params", 10**8), ("transformer_layer_cls_to_wrap", "A,B"), ("reshard_after_forward", None)]
    for version, options in ((1, [*first, *both]), (2, [*second, *both])):
        yield from ({"fsdp_version": version, f"fsdp_{key}": value} for key, value in options)


@pytest.mark.whole
def test_accelerate_takes_every_choice_of_fsdp_as_it_is_written(tmp_path):
    """By its own launch code, and the plugin that a script makes of the variables from there."""
    resharding = {"FULL_SHARD": "true", "SHARD_GRAD_OP": "false", "HYBRID_SHARD": "true", "HYBRID_SHARD_ZERO2": "false",
                  1: "true", 2: "false", 4: "true", 5: "false", False: "false"}  # fmt: skip
    lost = {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "LOCAL_STATE_DICT", 4, 5}
    cases, lines = [*offered()], []
    chosen = profile(SCRIPT | {"trainer.strategy": "fsdp2", "trainer.preset": "hf-trainer"})
    for number, settings in enumerate(cases):
        where = with_config({"distributed_type": "FSDP", "num_processes": 2, "fsdp_config": settings}, TWO)
        said = [item for item in findings_of(chosen, where) if item.key == "trainer.accelerate_config"]
        (_, version), (key, value) = settings.items()
        assert [item.level for item in said] == (["warning"] if version == 1 and value in lost else []), settings
        assert all(f"{key}: " in item.message for item in said)
        lines.append(words_in(tmp_path / str(number), prepare_without_errors(chosen, where)))
    for settings, found in zip(cases, parse_command_lines("accelerate", lines)["found"], strict=True):
        assert "refused" not in found, (settings, found)
        (_, _), (key, value) = settings.items()
        if key in {"fsdp_reshard_after_forward", "fsdp_sharding_strategy"}:
            assert found["env"]["FSDP_RESHARD_AFTER_FORWARD"] == resharding.get(value, "true"), settings
        if key == "fsdp_state_dict_type":
            kept = "SHARDED_STATE_DICT" if value in lost else value
            assert found["env"]["FSDP_STATE_DICT_TYPE"] == kept, settings


@pytest.mark.parametrize(
    "text", ["a: &a [1]\nb: [*a, *a]\nc: {", "- 1", "x: " + "[" * 60 + "]" * 60, "distributed_type: \x00"]
)
def test_a_damaged_file_is_said_and_not_used(text):
    where = msgspec.structs.replace(
        facts(), accelerate_config="/c.yaml", documents={"/c.yaml": parse_document(text.encode())}
    )
    (finding,) = [item for item in findings_of(profile(SCRIPT), where) if item.key == "trainer.accelerate_config"]
    assert (finding.level, "cannot be used" in finding.message) == ("warning", True)
    named_file = profile(SCRIPT | {"trainer.accelerate_config": "/c.yaml"})
    assert "error" in {item.level for item in findings_of(named_file, where) if item.key == "trainer.accelerate_config"}


@pytest.mark.whole
def test_it_is_found_where_accelerate_writes_it(tmp_path, monkeypatch):
    """Written by `accelerate config` itself, for each of the variables that move it."""
    assert not read_profile_files(profile(SCRIPT)).accelerate_config
    home = tmp_path / "hf"
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.accelerate_cli",
        "config",
        "default",
        "--mixed_precision=bf16",
    ]
    subprocess.run(command, env=plain_environment(HF_HOME=str(home)), check=True, capture_output=True)
    monkeypatch.setenv("HF_HOME", str(home))
    found = read_profile_files(profile(SCRIPT))
    assert Path(found.accelerate_config).is_relative_to(home)
    assert found.documents[found.accelerate_config].values["mixed_precision"] == "bf16"
    # One that is named counts instead.
    other = tmp_path / "other.yaml"
    other.write_text("distributed_type: 'NO'\nmixed_precision: fp16\n")
    chosen = profile(SCRIPT | {"trainer.accelerate_config": str(other)})
    files = read_profile_files(chosen)
    where = msgspec.structs.replace(TWO, documents=files.documents, accelerate_config=files.accelerate_config)
    assert Setup(chosen, where).effective_profile.recipe.precision == "fp16"


def test_another_host_sends_its_own_with_the_facts(tmp_path):
    """By the runner, started here with that host's variables."""
    config = tmp_path / "hf" / "accelerate" / "default_config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("distributed_type: 'NO'\nmixed_precision: bf16\n")
    question = {"probe": ""}
    for home, found in ((tmp_path / "hf", str(config)), (tmp_path / "none", "")):
        answer = survey_this_machine(question, plain_environment(HF_HOME=str(home)))
        precisions = {path: parse_document(data).values["mixed_precision"] for path, data in answer.files.items()}
        assert (answer.accelerate_config, precisions) == (found, {found: "bf16"} if found else {})
