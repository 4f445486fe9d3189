"""The fallback ladder: less memory on each rung, the same training on all of them unless it is allowed to change."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    example_count,
    facts,
    findings_of,
    gpu,
    plan,
    prepare_without_errors,
    profile,
    values_taken_by_preset,
)

from tui_train.base.command import argv, word_in_run_dir
from tui_train.base.errors import BadInput
from tui_train.facts.types import YamlDocument
from tui_train.memory.ladder.attempt_order import attempts_with_fallbacks
from tui_train.memory.ladder.rungs import RUNGS, get_rung, rung_helps_phase, why_rung_unusable
from tui_train.profile import batch
from tui_train.profile.presets import shipped_presets
from tui_train.profile.types import Profile
from tui_train.runner.logs.memory_patterns import FALLBACK_PHASES
from tui_train.setup.setup import Setup
from tui_train.views import plain_text

ALL = tuple(RUNGS)
CARDS = facts(gpus=(gpu(0),), python="/py")


def titles(chosen, found=CARDS):
    return [attempt.title for attempt in plan(chosen, found).attempts]


def tried(chosen, found=CARDS):
    """All attempts at a profile, its own first."""
    setup = Setup(chosen, found)
    return attempts_with_fallbacks(setup.effective_profile, setup.ladder_context)


def way_down(tries, phase, start=0):
    """The attempts that follow each other while memory runs out in one phase."""
    way = [tries[start]]
    while phase in way[-1].next_index_by_phase:
        way.append(tries[way[-1].next_index_by_phase[phase]])
    return way


def climbed(chosen, found=CARDS, phase="loss"):
    """The recipes of the way down from a profile."""
    return [one.profile.recipe for one in way_down(tried(chosen, found), phase)]


def test_the_default_ladder():
    assert titles(Profile()) == [
        "as planned",
        "expandable segments",
        "micro batch 8 -> 4",
        "micro batch 4 -> 2",
        "micro batch 2 -> 1",
        "activation checkpointing",
    ]
    assert titles(Profile(), facts()) == [title for title in titles(Profile()) if title != "expandable segments"]


def test_a_micro_batch_falls_to_half_or_to_the_next_that_fits():
    values = {"recipe.micro_batch": 12, "recipe.global_batch": 480, "ladder.rungs": ("micro_batch",)}
    assert [recipe.micro_batch for recipe in climbed(profile(values))] == [12, 6, 3, 1]
    values = {"recipe.micro_batch": 100, "recipe.global_batch": 300}
    assert [recipe.micro_batch for recipe in climbed(profile(values, profile({"ladder.rungs": ("micro_batch",)})))] == [
        100, 50, 25, 12, 6, 3, 1,
    ]  # fmt: skip


def test_each_rung_builds_on_the_one_before():
    attempts = plan(Profile(), CARDS).attempts
    environment = [{item.name: item.value for item in attempt.command.env} for attempt in attempts]
    assert "PYTORCH_CUDA_ALLOC_CONF" not in environment[0]
    assert all(found["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True" for found in environment[1:])
    last = argv(attempts[-1].command, "/run")
    batch_of_one = {"--per_device_train_batch_size=1", "--gradient_accumulation_steps=16"}
    assert batch_of_one | {"--gradient_checkpointing=True"} <= {*last}
    assert "--gradient_checkpointing=True" not in argv(attempts[-2].command, "/run")


@pytest.mark.whole
@settings(max_examples=example_count(200), deadline=None)
@given(
    world=st.integers(1, 9),
    micro=st.integers(1, 100),
    steps=st.integers(1, 40),
    rungs=st.permutations(ALL),
    consent=st.lists(st.sampled_from(ALL), unique=True),
)
def test_the_global_batch_is_exact_on_every_rung(world, micro, steps, rungs, consent):
    values = {
        "trainer.launcher": "torchrun", "hardware.processes": world, "hardware.device": "cpu",
        "recipe.micro_batch": micro, "recipe.global_batch": micro * world * steps, "ladder.rungs": tuple(rungs),
        "ladder.consent": tuple(consent),
    }  # fmt: skip
    found = tried(profile(values), facts())
    assert len(found) <= 24
    for one in found:
        recipe = one.profile.recipe
        accumulation = batch.gradient_accumulation(recipe.global_batch, recipe.micro_batch, world)
        assert accumulation
        assert recipe.micro_batch * accumulation * world == micro * world * steps
        for index in one.next_index_by_phase.values():
            # Something became less, and nothing became more.
            needs = [
                (r.micro_batch, r.sequence_length, r.layers, not r.activation_checkpointing)
                for r in (recipe, found[index].profile.recipe)
            ]
            assert needs[1] != needs[0]
            assert all(new <= old for old, new in zip(*needs, strict=True))
    for attempt in plan(profile(values), facts()).attempts:
        given = dict(word.split("=", 1) for word in argv(attempt.command, "/r") if "=" in word)
        batches = [given[f"--{name}"] for name in ("per_device_train_batch_size", "gradient_accumulation_steps")]
        assert int(batches[0]) * int(batches[1]) == micro * steps


LIBRARIES = {"bitsandbytes": "0.48", "liger-kernel": "0.6", "peft": "0.18", "trl": "1.16.0", "datasets": "5.2.0"}
OLD = facts(gpus=(gpu(0), gpu(1)), torch="2.7.1", packages=LIBRARIES)
HF = {"trainer.kind": "script", "trainer.script": "/t.py", "trainer.preset": "hf-trainer"}
DO_TRAIN = {"do_train": True}
REWARDED = {
    "trainer.kind": "finetune", "trainer.model": "/m", "trainer.data": ("/d.jsonl",), "finetune.method": "grpo",
    "finetune.rewards": ("accuracy_reward",), "recipe.micro_batch": 4, "recipe.global_batch": 16,
}  # fmt: skip
SHARES = {
    **HF, "trainer.launcher": "accelerate", "recipe.micro_batch": 8, "recipe.global_batch": 32, "ladder.rungs": ALL
}  # fmt: skip


def test_an_optimizer_step_leaves_the_batch_alone():
    found = climbed(profile({**SHARES, "ladder.consent": ("optimizer_8bit",)}), OLD, "step")
    assert {(one.micro_batch, one.activation_checkpointing, one.fused_cross_entropy) for one in found} == {
        (8, False, False)
    }
    planned = plan(profile(SHARES), OLD)
    made = planned.attempts
    way = planned.fallback_attempt_numbers("step")
    assert [made[number - 1].rung for number in way] == [
        "", "expandable_segments", "fused_optimizer", "sharding", "offload",
    ]  # fmt: skip
    assert made[way[2] - 1].title == "only expandable segments, fused optimizer"
    # With nothing for it on the ladder there is no other attempt.
    assert len(climbed(profile({**SHARES, "ladder.rungs": ("micro_batch",)}), OLD, "step")) == 1


def test_the_phases_without_a_fallback_are_one_line():
    planned = plan(profile({**SHARES, "ladder.rungs": ("micro_batch",)}), OLD)
    said = [line for line in plain_text.plan_text(planned).splitlines() if "no fallback helps" in line]
    where = "in the optimizer step, while the model was loaded, in the evaluation"
    assert said == [f"out of memory {where}: the run fails, no fallback helps there"]
    assert "out of memory in the forward or backward pass: attempt 1, then 2, " in plain_text.plan_text(planned)


def test_after_another_phase_both_are_kept():
    tries = tried(profile({**SHARES, "ladder.rungs": ("fused_optimizer", "micro_batch")}), OLD)
    step = tries[tries[0].next_index_by_phase["step"]]
    both = tries[step.next_index_by_phase["loss"]]
    assert [(one.profile.recipe.fused_optimizer, one.profile.recipe.micro_batch) for one in (step, both)] == [
        (True, 8), (True, 4),
    ]  # fmt: skip
    # The other way round it is the same attempt.
    assert tries[tries[tries[0].next_index_by_phase["loss"]].next_index_by_phase["step"]] == both


@settings(max_examples=example_count(60), deadline=None)
@given(
    micro=st.integers(1, 64),
    rungs=st.permutations(ALL),
    consent=st.lists(st.sampled_from(ALL), unique=True),
    preset=st.sampled_from(["hf-trainer", "trl", "total-batch", "builtin"]),
)
def test_every_way_down_ends_and_helps_the_phase_that_failed(micro, rungs, consent, preset):
    values = {**SHARES, "ladder.rungs": tuple(rungs), "ladder.consent": tuple(consent), "recipe.micro_batch": micro}
    values |= {"recipe.global_batch": micro * 6, "trainer.preset": preset}
    values |= {"trainer.kind": "builtin", "trainer.script": ""} if preset == "builtin" else {}
    chosen = profile(values_taken_by_preset(values))
    context = Setup(chosen, OLD).ladder_context
    usable = {name for name in rungs if not why_rung_unusable(name, context)}
    usable -= {name for name in usable if RUNGS[name].changes_training and name not in consent}
    found = tried(chosen, OLD)
    before = {(one.key, one.level) for one in findings_of(chosen, OLD)}
    for one in found:
        names = [name for name, _ in one.rungs_and_changes]
        assert set(names) <= usable
        assert {(new.key, new.level) for new in findings_of(one.profile, OLD)} <= before
        for phase, index in one.next_index_by_phase.items():
            more = Counter(name for name, _ in found[index].rungs_and_changes) - Counter(names)
            # Ever more changes: no way leads back.
            assert any(rung_helps_phase(name, phase, chosen, context) for name in more)
            assert Counter(names) <= Counter(name for name, _ in found[index].rungs_and_changes)
    assert ("eval" in context.out_of_memory_phases) == (preset != "builtin")
    for phase in context.out_of_memory_phases:
        # While one phase fails, nothing is changed that does not help it, and nothing that helps is left out.
        way = way_down(found, phase)
        names = [name for name, _ in way[-1].rungs_and_changes]
        assert len(names) == len(way) - 1
        assert all(rung_helps_phase(name, phase, chosen, context) for name in names)
        never = {"sharding", "optimizer_8bit"} & {*names}
        left = {name for name in usable if rung_helps_phase(name, phase, chosen, context)} - {*names}
        # A list of rungs: those that not every one of these profiles can take.
        left -= {"sharding", "optimizer_8bit", "fused_optimizer"} if never else set()
        left -= {"micro_batch"} if micro == 1 else set()
        left -= set() if "sharding" in names else {"offload"}
        assert not left or len(names) == 16


def test_all_ways_fit_where_there_are_many():
    consent = ("optimizer_8bit", "sequence_length")
    found = tried(
        profile({**SHARES, "recipe.global_batch": 2**16, "recipe.micro_batch": 2**15, "ladder.consent": consent}), OLD
    )
    assert len(found) == 24
    # Those of one phase are all there; where the mixed one is not, one with more changes takes its place.
    assert all(found[0].next_index_by_phase.get(phase) for phase in FALLBACK_PHASES)
    last = found[-1]
    assert not last.next_index_by_phase or max(last.next_index_by_phase.values()) < 24


@pytest.mark.parametrize("rungs", [Profile().ladder.rungs, ALL])
@pytest.mark.parametrize("micro", [8, 64])
def test_what_helps_a_phase_is_reached_from_every_attempt(micro, rungs):
    """Also where there are too many ways for each to have attempts of its own."""
    chosen = profile({**SHARES, "recipe.micro_batch": micro, "recipe.global_batch": micro * 4, "ladder.rungs": rungs})
    found = tried(chosen, OLD)
    assert len(found) == 24 or micro == 8
    for start in range(len(found)):
        for phase, name in (("eval", "eval_batch"), ("step", "fused_optimizer")):
            assert name in dict(way_down(found, phase, start)[-1].rungs_and_changes)


@pytest.mark.parametrize(
    ("values", "more", "name", "why"),
    [
        ({}, {"torch": "2.13.0"}, "fused_optimizer", "already fused"),
        ({}, {"transformers": "4.51.0"}, "fused_optimizer", ""),
        ({"recipe.activation_checkpointing": True}, {}, "activation_checkpointing", "already on"),
        ({}, {"packages": {}}, "fused_cross_entropy", "the chosen Python has no liger-kernel"),
        ({"trainer.arguments": ("--optim", "adafactor")}, {}, "fused_optimizer", "you set --optim"),
        ({"trainer.arguments": ("--optim=sgd",)}, {}, "optimizer_8bit", "you set --optim=sgd"),
        ({"hardware.device": "cpu"}, {}, "fused_optimizer", "only for GPUs"),
        ({"trainer.preset": "axolotl"}, {}, "fused_cross_entropy", "does not apply to this training"),
        ({"trainer.kind": "builtin"}, {}, "fused_optimizer", ""),
        ({"trainer.kind": "builtin", "trainer.model": "/m"}, {}, "layers", "the loaded model has a fixed size"),
        ({"trainer.kind": "builtin"}, {}, "eval_batch", "nothing is evaluated: no validation data"),
        ({"trainer.kind": "builtin", "trainer.validation_data": ("/v",)}, {}, "eval_batch", ""),
        ({"trainer.preset": "trl"}, {"packages": {}}, "lora", "the chosen Python has no peft"),
        ({"trainer.preset": "trl"}, {}, "lora", ""),
        ({"trainer.preset": "trl", "trainer.arguments": ("--use_peft",)}, {}, "lora", "you set --use_peft"),
        ({"trainer.arguments": ("--per_device_eval_batch_size=4",)}, {}, "eval_batch", "you set --per_device_eval"),
        ({"trainer.arguments": ("--per_device_eval_batch_size={eval_batch}",)}, {}, "eval_batch", ""),
        ({"trainer.preset": "total-batch", "trainer.arguments": ("--ebs={eval_batch}",)}, {}, "eval_batch", ""),
    ],
)
def test_what_has_no_use_here_is_not_offered(values, more, name, why):
    found = facts(gpus=(gpu(0), gpu(1)), **{"torch": "2.7.1", "packages": LIBRARIES, **more})
    chosen = profile({**SHARES, "trainer.launcher": "auto", "ladder.consent": ALL, **values})
    said = why_rung_unusable(name, Setup(chosen, found).ladder_context)
    assert why in said if why else not said
    assert (name in {attempt[0] for one in tried(chosen, found) for attempt in one.rungs_and_changes}) is not bool(why)


@pytest.mark.parametrize(("optimizer", "able"), [("adamw_torch", True), ("paged_adamw_8bit", False), (None, True)])
def test_the_optimizer_of_your_file_stands(optimizer, able):
    told = {"optim": optimizer} if optimizer else {}
    chosen, found = filed("llama-factory", told, ("fused_optimizer",), transformers="4.57.0")
    made = plan(chosen, found)
    assert [attempt.rung for attempt in made.attempts] == ["", "fused_optimizer"][: 1 + able]
    assert [config.values.get("optim") for config in made.configs] == [optimizer, "adamw_torch_fused"][: 1 + able]


@pytest.mark.parametrize(
    ("name", "word", "suffix"),
    [("optimizer_8bit", "--optim=adamw_bnb_8bit", "-8bit"), ("lora", "--use_peft=True", "-lora")],
)
def test_another_optimizer_or_method_begins_anew(name, word, suffix):
    values = {"trainer.preset": "trl", "ladder.rungs": (name, "micro_batch"), "ladder.consent": (name,)}
    values["trainer.script"] = ""
    found = []
    for attempt in plan(profile({**SHARES, **values}), OLD).attempts:
        words = argv(attempt.command, "/run")
        found.append(word in words)
        assert f"--output_dir=/run/output{suffix if found[-1] else ''}" in words
        assert attempt.checkpoints.folder == word_in_run_dir(f"output{suffix if found[-1] else ''}")
    assert not found[0]
    assert found.count(True) > 1
    # One that is so from the start keeps its folder.
    first = plan(profile({**SHARES, **values, f"recipe.{name}": True}), OLD).attempts[0]
    assert {word, "--output_dir=/run/output"} <= {*argv(first.command, "/run")}


@pytest.mark.parametrize(
    ("preset", "told", "why", "wanted"),
    [
        ("llama-factory", {"finetuning_type": "full"}, "", {"finetuning_type": "lora"}),
        ("llama-factory", {"finetuning_type": "freeze"}, "you set finetuning_type: freeze", {}),
        ("llama-factory", {"finetuning_type": "lora"}, "you set finetuning_type: lora", {}),
        ("llama-factory", {}, "it already trains with LoRA", {}),
        ("axolotl", {}, "", {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_target_linear": True}),
        ("axolotl", {"adapter": "qlora"}, "you set adapter: qlora", {}),
    ],
)
def test_lora_takes_the_place_of_a_full_training_only(preset, told, why, wanted):
    chosen, found = filed(preset, told, ("lora",))
    assert why_rung_unusable("lora", Setup(chosen, found).ladder_context).startswith(why)
    first, *rest = [config.values for config in plan(chosen, found).configs]
    assert {key: first.get(key) for key in told} == told
    assert not wanted or not wanted.items() <= first.items()
    assert len(rest) == bool(wanted)
    assert all(wanted.items() <= values.items() for values in rest)


@pytest.mark.parametrize(
    ("preset", "told", "way"),
    [
        # The Hugging Face Trainer's own; axolotl's is as large as the micro batch.
        ("llama-factory", {}, {"eval_batch": "evaluation batch 8 -> 1"}),
        ("llama-factory", {"per_device_eval_batch_size": 32}, {"eval_batch": "evaluation batch 32 -> 1"}),
        ("llama-factory", {"per_device_eval_batch_size": 1}, {}),
        ("axolotl", {"micro_batch_size": 99}, {"eval_batch": "evaluation batch 4 -> 1"}),
        ("axolotl", {"eval_batch_size": 2}, {"eval_batch": "evaluation batch 2 -> 1"}),
    ],
)
def test_an_evaluation_batch_of_your_file_is_taken_for_what_it_is(preset, told, way):
    chosen, found = filed(preset, told, ("eval_batch", "micro_batch"))
    chosen = profile({"recipe.micro_batch": 4}, chosen)
    tries = tried(chosen, found)
    after = tries[tries[0].next_index_by_phase["eval"]] if "eval" in tries[0].next_index_by_phase else tries[0]
    assert {name: change.title for name, change in after.rungs_and_changes} == way
    key = "eval_batch_size" if preset == "axolotl" else "per_device_eval_batch_size"
    values = plan(chosen, found).configs[tries.index(after)].values
    assert values.get(key) == (1 if way else told.get(key))
    assert ("eval_accumulation_steps" in values) is (bool(way) and preset == "llama-factory")


def filed(preset, told, rungs, **of_python):
    """A profile whose preset fills in a YAML file with these values, and the facts that know it."""
    values = {"trainer.kind": "script", "trainer.preset": preset, "trainer.config": "/t.yaml"}
    chosen = profile({**values, "ladder.rungs": rungs, "ladder.consent": rungs})
    packages = {"llamafactory": "0.9.5", "axolotl": "0.19.0", **LIBRARIES}
    found = facts(gpus=(gpu(0),), packages=packages, **of_python)
    return chosen, msgspec.structs.replace(found, documents={"/t.yaml": YamlDocument(values={**DO_TRAIN, **told})})


@pytest.mark.parametrize(
    ("preset", "names"),
    [
        ("hf-trainer", ["expandable_segments", "eval_batch"]),
        ("nanogpt", ["expandable_segments", "micro_batch", "micro_batch", "micro_batch"]),
        ("accelerate", ["expandable_segments", "eval_batch"]),
    ],
)
def test_an_evaluation_takes_smaller_batches_of_its_own(preset, names):
    """The training keeps its micro batch, unless that is what the evaluation takes as well."""
    rungs = ("expandable_segments", "micro_batch", "activation_checkpointing", "eval_batch")
    chosen = profile(values_taken_by_preset({**HF, "trainer.preset": preset, "ladder.rungs": rungs}))
    tries = tried(chosen)
    end = way_down(tries, "eval")[-1]
    assert [name for name, _ in end.rungs_and_changes] == names
    last = end.profile.recipe
    assert (last.eval_batch, last.micro_batch) == ((1, 8) if "eval_batch" in names else (0, 1))
    if "eval_batch" in names:
        words = argv(plan(chosen, CARDS).attempts[tries.index(end)].command, "/run")
        assert {"--per_device_eval_batch_size=1", "--per_device_train_batch_size=8"} <= {*words}
        assert not [word for word in argv(plan(chosen, CARDS).attempts[0].command, "/run") if "eval" in word]


@pytest.mark.parametrize(("memory", "able"), [(47, False), (48, True), (None, True)])
def test_offload_needs_a_host_that_holds_what_the_cards_hold(memory, able):
    chosen = profile({**ACCELERATE, "trainer.strategy": "fsdp2"})
    host = msgspec.structs.replace(SHARED.machine, memory_total=memory and memory * 2**30)
    context = Setup(chosen, msgspec.structs.replace(SHARED, machine=host)).ladder_context
    assert why_rung_unusable("offload", context) == (
        "" if able else "47.0 GiB of host memory are less than 48.0 GiB of GPU memory"
    )


@pytest.mark.parametrize("name", [name for name, found in RUNGS.items() if found.changes_training])
def test_what_changes_the_training_needs_consent(name):
    # A list of rungs: what each needs besides, of those that change the training.
    told = {"optimizer_8bit": SHARES, "lora": {**SHARES, "trainer.preset": "trl", "trainer.script": ""}}
    told |= dict.fromkeys(("completion_length", "generations"), REWARDED)
    chosen = profile({**told.get(name, {}), "ladder.rungs": (name,)})
    assert titles(chosen, OLD) == ["as planned"]
    assert len(titles(profile({"ladder.consent": (name,)}, chosen), OLD)) == 2
    # Consent alone puts nothing on the ladder.
    assert titles(profile({"ladder.rungs": (), "ladder.consent": (name,)})) == ["as planned"]


@pytest.mark.parametrize(("output", "wanted"), [("", "/run/output-2-layers"), ("/my/out", "/my/out-2-layers")])
def test_another_model_has_another_output_folder(output, wanted):
    rungs = {"ladder.rungs": ("layers", "micro_batch"), "ladder.consent": ("layers",)}
    attempts = plan(profile({"trainer.output": output, **rungs}), facts()).attempts
    folders = [next(w for w in argv(a.command, "/run") if w.startswith("--output_dir=")) for a in attempts]
    first = f"--output_dir={output or '/run/output'}"
    assert folders == [first, *[f"--output_dir={wanted}"] * (len(attempts) - 1)]
    assert len(attempts) > 2
    # It resumes from there as well.
    assert attempts[0].checkpoints.folder != attempts[1].checkpoints.folder == attempts[2].checkpoints.folder


@pytest.mark.parametrize(
    ("preset", "arguments", "usable"),
    [
        ("hf-trainer", (), {"expandable_segments", "eval_batch", "micro_batch", "activation_checkpointing"}),
        ("total-batch", (), {"expandable_segments", "micro_batch"}),
        ("custom", (), {"expandable_segments"}),
        ("custom", ("{micro_batch}",), {"expandable_segments"}),
        ("custom", ("-b={total_batch}", "-a={accumulation}"), {"expandable_segments", "micro_batch"}),
        ("custom", ("--len={sequence_length}", "--n={layers}"), {"expandable_segments", "sequence_length", "layers"}),
    ],
)
def test_a_rung_that_the_preset_cannot_pass_is_left_out(preset, arguments, usable):
    values = {**HF, "trainer.preset": preset, "trainer.arguments": arguments}
    chosen = profile(values_taken_by_preset({**values, "ladder.rungs": ALL, "ladder.consent": ALL}))
    context = Setup(chosen, CARDS).ladder_context
    assert {name for name in ALL if not why_rung_unusable(name, context)} == usable
    attempts = plan(chosen, CARDS).attempts
    assert {attempt.rung for attempt in attempts} - {""} == usable
    # Whatever a rung changes reaches the training: no attempt repeats the one before.
    for before, after in pairwise(attempts):
        assert (before.command.parts, before.command.env) != (after.command.parts, after.command.env)


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_your_own_allocator_settings_are_left_alone(name):
    chosen = profile({"trainer.environment": {name: "max_split_size_mb:128"}})
    assert "expandable segments" not in titles(chosen)
    for attempt in plan(chosen, CARDS).attempts:
        assert {item.value for item in attempt.command.env if "ALLOC_CONF" in item.name} == {"max_split_size_mb:128"}


def test_every_preset_and_rung_fits_together():
    for name in shipped_presets():
        values = {"trainer.kind": "script", "trainer.script": "/t.py", "trainer.preset": name}
        if shipped_presets()[name].file:
            values["trainer.config"] = "/t.yaml"
        values = values if name != "builtin" else {"trainer.preset": name}
        chosen = profile(values_taken_by_preset({**values, "ladder.rungs": ALL, "ladder.consent": ALL}))
        made = plan(chosen, msgspec.structs.replace(CARDS, documents={"/t.yaml": YamlDocument(values=DO_TRAIN)}))
        files = {config.path: config.values for config in made.configs}
        assert bool(files) == bool(shipped_presets()[name].file)
        told = []
        for attempt in made.attempts:
            words = [word.replace(".filled", "") for word in argv(attempt.command, "/run")]
            read = [values for path, values in files.items() if f"/run/{path}" in words]
            assert len(read) == bool(files)
            # Each may have a file of its own: then what is in them must differ, not their names.
            yaml_only = files and shipped_presets()[name].file.needs_user_file
            told.append((read if yaml_only else attempt.command.parts, attempt.command.env))
        for before, after in pairwise(told):
            assert before != after


def forbidden(chosen, found):
    """What a check forbids of a profile."""
    return {(finding.key, finding.message) for finding in findings_of(chosen, found) if finding.forbids_plan}


@pytest.mark.parametrize("capability", ["6.1", "7.5", "9.0"])
@pytest.mark.parametrize("kind", ["builtin", "finetune", "hf-trainer", "trl"])
def test_no_attempt_is_what_a_check_forbids(kind, capability):
    values = {"trainer.kind": kind} if kind in {"builtin", "finetune"} else {"trainer.preset": kind}
    values |= {"trainer.model": "/m"} if kind != "builtin" else {}
    chosen = profile(values_taken_by_preset({**SHARES, "ladder.consent": ALL, **values}))
    cards = tuple(gpu(index, compute_capability=capability) for index in range(2))
    found = facts(gpus=cards, torch="2.7.1", packages=LIBRARIES)
    attempts = tried(chosen, found)
    assert len(attempts) > 2
    for one in attempts:
        assert forbidden(one.profile, found) <= forbidden(chosen, found), one.title


def test_a_ladder_ends():
    values = {"recipe.micro_batch": 65536, "recipe.global_batch": 65536, "ladder.rungs": ALL, "ladder.consent": ALL}
    assert len(titles(profile({**values, "recipe.sequence_length": 4_194_304, "recipe.layers": 1000}), facts())) == 24
    small = {"recipe.micro_batch": 1, "recipe.global_batch": 1, "recipe.layers": 1, "recipe.sequence_length": 2}
    switches = {"recipe.activation_checkpointing": True, "recipe.expandable_segments": True}
    assert titles(profile({**values, **small, **switches})) == ["as planned"]


LARGE = {
    "recipe.layers": 12, "recipe.hidden_size": 2048, "recipe.heads": 16, "recipe.sequence_length": 4096,
    "recipe.micro_batch": 16, "recipe.global_batch": 64, "recipe.precision": "bf16",
}  # fmt: skip


def test_rungs_that_leave_too_much_are_passed_over():
    """The global batch stays exact, and the way ends where it does anyway."""
    assert titles(profile(LARGE)) == [
        "as planned",
        "expandable segments, micro batch 16 -> 2",
        "micro batch 2 -> 1",
        "activation checkpointing",
        "only expandable segments",
    ]
    attempts = plan(profile(LARGE), CARDS).attempts
    assert {"--per_device_train_batch_size=2", "--gradient_accumulation_steps=32"} <= {
        *argv(attempts[1].command, "/run")
    }
    # On a larger card less is.
    large = msgspec.structs.replace(gpu(0), memory_total=80 * 2**30)
    assert titles(profile(LARGE), facts(gpus=(large,)))[:4] == [
        "as planned", "expandable segments, micro batch 16 -> 8", "micro batch 8 -> 4", "micro batch 4 -> 2",
    ]  # fmt: skip


@pytest.mark.parametrize("total", [None, 2**30])
def test_no_rung_is_passed_over_without_another_or_without_a_known_card(total):
    card = msgspec.structs.replace(gpu(0), memory_total=total)
    found = titles(profile({**LARGE, "ladder.rungs": ("micro_batch",)}), facts(gpus=(card,)))
    whole = ["as planned", *(f"micro batch {micro} -> {micro // 2}" for micro in (16, 8, 4, 2))]
    assert found == (["as planned", "micro batch 16 -> 1"] if total else whole)


def test_an_unknown_rung_names_the_nearest():
    with pytest.raises(BadInput) as caught:
        get_rung("microbatch")
    assert caught.value.remedy == "Did you mean micro_batch?"


SHARED = facts(gpus=(gpu(0), gpu(1)), packages={"deepspeed": "0.19"})
ACCELERATE = {"trainer.launcher": "accelerate", "ladder.rungs": ("micro_batch", "sharding", "offload")}


def config(chosen, attempt, found=SHARED):
    """The configuration that an attempt names, as it is written, and its path."""
    prepared = prepare_without_errors(chosen, found)
    words = argv(prepared.plan.attempts[attempt].command, "/run")
    path = next(word for word in words if word.startswith("--config_file=")).removeprefix("--config_file=/run/")
    return path, yaml.safe_load(next(file.text for file in prepared.files if file.path == path))


def test_deepspeed_clips_as_the_trainer_is_told_on_every_rung():
    """Its accumulation, which has to be the Trainer's as well, is in test_launchers.py."""
    script = {**HF, "trainer.strategy": "zero2", "trainer.arguments": ("--max_grad_norm=0.5",)}
    chosen = profile({**ACCELERATE, **script, "recipe.micro_batch": 4, "recipe.global_batch": 16})
    made = [attempt.rung for attempt in plan(chosen, SHARED).attempts]
    told = [config(chosen, number)[1]["deepspeed_config"] for number in range(len(made))]
    assert {each["gradient_clipping"] for each in told} == {0.5}
    assert [each["offload_optimizer_device"] == "cpu" for each in told] == [rung == "offload" for rung in made]


@pytest.mark.parametrize(
    ("values", "found", "rungs", "why"),
    [
        ({}, facts(), ("sharding", "offload"), "only for GPUs"),
        ({"trainer.launcher": "torchrun"}, SHARED, ("sharding", "offload"), "only under accelerate"),
        ({}, facts(gpus=(gpu(0),)), ("sharding",), "needs two or more processes"),
        ({}, facts(gpus=(gpu(0), gpu(1)), accelerate="1.5.2"), ("sharding", "offload"), "fsdp2 needs 1.6"),
        ({**HF, "trainer.preset": "custom"}, SHARED, ("sharding", "offload"), "known to go through accelerate"),
    ],
)
def test_what_cannot_be_shared_out_has_no_such_rung(values, found, rungs, why):
    chosen = profile({**ACCELERATE, **values, "ladder.rungs": tuple(rungs), "ladder.consent": tuple(rungs)})
    context = Setup(chosen, found).ladder_context
    assert all(why in why_rung_unusable(name, context) for name in rungs)
    assert titles(chosen, found) == ["as planned"]


def test_offload_is_for_what_is_sharded():
    assert titles(profile({**ACCELERATE, "ladder.rungs": ("offload",)}), SHARED) == ["as planned"]
    one = profile({**ACCELERATE, "trainer.strategy": "fsdp2", "trainer.offload": True, "ladder.rungs": ("offload",)})
    assert titles(one, facts(gpus=(gpu(0),))) == ["as planned"]
    assert config(one, 0, facts(gpus=(gpu(0),)))[1]["fsdp_config"]["fsdp_offload_params"] is True


def test_an_own_script_may_need_less_than_is_foretold():
    named = ("--model_name_or_path=meta-llama/Llama-3.1-8B",)
    found = titles(profile(values_taken_by_preset({**HF, **LARGE, "trainer.arguments": named})))
    assert found[:3] == ["as planned", "expandable segments", "micro batch 16 -> 8"]
