"""Fine-tuning by TRL itself on small models: what is prepared, what is learned, and how a run goes on."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chat_data import (
    CHAT_ROW,
    PLAIN_TEMPLATE,
    ROW_BY_FORMAT,
    SYSTEM_CHAT_ROW,
    USER_FIRST_TEMPLATE,
    assistant_message,
    numbered_row,
    user_message,
    write_rows,
)
from fine_tuning import PREPARE_DATA_PROGRAM, TUNING_LIBRARIES, finetune_profile, read_rows, run_prepare_data
from hub import FakeHub
from msgspec.structs import replace
from support import (
    SCRIPTS,
    TRL_PYTHON,
    export_run,
    facts,
    findings_of,
    gpu,
    needs_trl,
    plain_environment,
    prepare,
    prepare_without_errors,
    profile,
    run_cli,
    run_launch_script,
    sample,
    toolchain,
    wait_until,
)
from tiny_trainings import attempt_log_text, logged_losses

from tui_train.actions.merge import MergeOptions, merge_adapter
from tui_train.base.command import argv
from tui_train.base.text import grouped_digits
from tui_train.facts.data.data_report import (
    AnswersOnlySupport,
    DataQuestion,
    DataReport,
    RowLengths,
    SequenceLengthEffect,
    TokenCounts,
    TurnEndTokens,
)
from tui_train.facts.data.data_use import facts_key_of_question as data_key
from tui_train.facts.machine import probe
from tui_train.facts.models.model_folders import ModelFolder
from tui_train.memory.data_defaults import make_setup
from tui_train.places.profile_facts import probe_profile_facts
from tui_train.profile.changes import apply_change
from tui_train.profile.fields import profile_with_value
from tui_train.profile.types import FinetuneSettings as Chosen
from tui_train.runs import run_folders
from tui_train.runs.results.result import read_result
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.setup.recipe.data_questions import question_about_data
from tui_train.setup.recipe.effective_values import EffectiveValue
from tui_train.trainers.finetune import (
    FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD,
    FinetuneTrainer,
    default_learning_rate,
    supported_tuning_labels,
)
from tui_train.trainers.finetune_options import adapter_options
from tui_train.views.choices import is_field_shown
from tui_train.views.finetune_notes import backend_screen_notes, recipe_screen_notes
from tui_train.views.overview import training_outline_lines

SMALL = {
    "trainer.kind": "finetune",
    "recipe.sequence_length": 64,
    "data.cut": 1.0,
    # A tiny model learns in few steps only so.
    "trainer.allow": ("learning_rate",),
    "recipe.micro_batch": 2,
    "recipe.global_batch": 4,
    "recipe.checkpoint_every": 2,
    "ladder.rungs": ("micro_batch",),
}


def planned(chosen, found=None):
    """The plan of a profile, on a machine with the libraries of a fine-tuning unless told otherwise."""
    return prepare_without_errors(chosen, found or facts(packages=TUNING_LIBRARIES)).plan


def config(chosen, found=None):
    (made,) = planned(chosen, found).configs
    return made.values


# ---- the plan ----------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_method():
    assert config(finetune_profile())["learning_rate"] == 2e-4
    assert config(finetune_profile(finetune__tuning="full"))["learning_rate"] == 2e-5
    for method, (_, of_adapters) in FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD.items():
        more = {"finetune__rewards": ("my.score",)} if method in {"grpo", "rloo"} else {}
        values = config(finetune_profile(finetune__method=method, **more))
        assert (
            values["learning_rate"]
            == default_learning_rate(finetune_profile(finetune__method=method).finetune)
            == of_adapters
        )
        preferring = method != "sft"
        assert values["num_train_epochs"] == (1 if preferring else 3)
        assert values["warmup_steps"] == (0.1 if preferring else 0.03)
        assert values["save_total_limit"] == 2
    assert FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD["kto"] == (5e-7, 5e-7)
    assert FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD["reward"][1] == 1e-4
    shown = planned(finetune_profile(finetune__method="dpo")).numbers
    assert "1 epoch (as in TRL's example for dpo)" in shown
    assert "10 % of the steps to warm up (as in the alignment handbook)" in shown
    assert "max_steps" not in config(finetune_profile())
    assert config(finetune_profile(recipe__steps=7))["max_steps"] == 7


MARKS = DataReport(rows=800, usable=800, format="messages", chat=True, answers=AnswersOnlySupport(possible=True))


@pytest.mark.parametrize(
    ("read", "values", "answers", "share"),
    [
        (MARKS, {}, True, "0.05"),
        (replace(MARKS, usable=40_000), {}, True, "0.025"),
        (replace(MARKS, usable=200), {}, True, "0.05"),
        (replace(MARKS, usable=60), {}, True, "0.1667"),
        (replace(MARKS, usable=30), {}, True, "0.2"),
        (replace(MARKS, usable=29), {}, True, ""),
        (replace(MARKS, answers=AnswersOnlySupport(possible=True, caution="its end is not marked")), {}, None, "0.05"),
        (replace(MARKS, format="text", chat=False), {}, None, "0.05"),
        (MARKS, {"finetune__answers_only": False, "data__evaluation": 0.0}, False, ""),
        (MARKS, {"trainer__validation_data": ("/v.jsonl",)}, True, ""),
    ],
)
def test_marked_answers_are_learned_alone_and_some_of_the_rows_evaluated(read, values, answers, share):
    asked = DataQuestion(files=("/d.jsonl",), model="/m", answers_only=values.get("finetune__answers_only"))
    chosen = finetune_profile(**values)
    made = planned(chosen, replace(facts(packages=TUNING_LIBRARIES), data={data_key(asked): read}))
    passed, words = made.configs[0].values, argv(made.preparations[0].command, "/run")
    assert passed.get("assistant_only_loss") is answers
    assert [word for word in words if word.startswith("--share")] == ([f"--share={share}"] if share else [])
    assert passed.get("load_best_model_at_end", False) is bool(share or chosen.trainer.validation_data)
    shown, by_default = " ".join(made.numbers), answers is True
    assert ("answers alone are learned (the chat template marks the answers)" in shown) is by_default
    assert ("for evaluations (the default)" in shown) is bool(share)


@pytest.mark.parametrize(("rows", "note"), [(60, "about 10 rows: the default"), (20, "20 rows are too few")])
def test_beside_the_share_stands_how_many_rows_are_kept_and_why(rows, note):
    read = replace(MARKS, rows=rows, usable=rows, all_read=True)
    asked = data_key(DataQuestion(files=("/d.jsonl",), model="/m"))
    setup = make_setup(finetune_profile(), replace(facts(packages=TUNING_LIBRARIES), data={asked: read}))
    assert note in backend_screen_notes(setup)["data.evaluation"]


def test_before_the_data_are_read_the_share_says_that_it_counts_rows():
    noted = backend_screen_notes(make_setup(finetune_profile(), facts(packages=TUNING_LIBRARIES)))
    assert noted["data.evaluation"] == "5 %, at least 10 rows; none under 30"


def test_where_the_rate_is_from_stands_right_beside_it():
    setup = make_setup(finetune_profile(recipe__steps=72), facts(packages=TUNING_LIBRARIES))
    rate = next(line for line in training_outline_lines(setup) if line.label == "Rate")
    assert rate.note == "as in TRL's example for sft; 3 steps to warm up"


def test_beside_what_is_not_set_stands_what_it_comes_out_as():
    def notes(read, **values):
        asked = data_key(DataQuestion(files=("/d.jsonl",), model="/m"))
        found = replace(facts(packages=TUNING_LIBRARIES), data={asked: read})
        return recipe_screen_notes(make_setup(finetune_profile(**values), found))

    unmarked = replace(MARKS, answers=AnswersOnlySupport(), tokens=replace(TOKENS, cut=0))
    assert notes(MARKS)["finetune.answers_only"] == "on: the template marks answers"
    assert notes(unmarked)["finetune.answers_only"] == "off: the template marks none"
    assert "finetune.answers_only" not in notes(replace(unmarked, format="prompt_completion", chat=False))
    assert "finetune.answers_only" not in notes(MARKS, finetune__answers_only=False)
    assert notes(MARKS, recipe__steps=72, recipe__warmup=0.03)["recipe.warmup"] == "3 % of 72 steps: 3"
    short = lengths_of(500, ((64, 9), (512, 0)), limit=2048)
    assert notes(short)["recipe.sequence_length"] == f"all rows, longest 500; limit {grouped_digits(2048)}"


def test_rows_without_a_sense_are_not_shown():
    blind = ModelFolder(layer_paths=("model.layers.0.self_attn.q_proj",))
    seeing = ModelFolder(layer_paths=("visual.blocks.0.attn.qkv",))

    def shown(model, key, **values):
        found = replace(facts(packages=TUNING_LIBRARIES), models={"/m": model})
        return is_field_shown(key, make_setup(finetune_profile(**values), found))

    for key, value in (("finetune.freeze_vision", True), ("data.max_pixels", 784)):
        assert (shown(blind, key), shown(seeing, key), shown(ModelFolder(), key)) == (False, True, True)
        assert shown(blind, key, **{key.replace(".", "__"): value}), "what is chosen can be taken back"
    base = "recipe.lr_base_batch"
    assert (shown(blind, base), shown(blind, base, recipe__lr_scaling="sqrt")) == (False, True)
    assert shown(blind, base, recipe__lr_base_batch=8)


def test_the_best_checkpoint_is_kept_where_each_is_evaluated():
    asked = data_key(DataQuestion(files=("/d.jsonl",), model="/m"))
    found = replace(facts(packages=TUNING_LIBRARIES), data={asked: MARKS})
    # Of 3 epochs with 760 rows; evaluations that are chosen are followed.
    for more, saved, every in (({}, 29, 29), ({"recipe__evaluate_every": 30}, 120, 30)):
        values = config(finetune_profile(**more), found)
        assert (values["save_steps"], values["eval_steps"]) == (saved, every)
        assert values["metric_for_best_model"] == "eval_loss"
    apart = finetune_profile(recipe__evaluate_every=30, recipe__checkpoint_every=100)
    assert "load_best_model_at_end" not in config(apart, found)
    (finding,) = [each for each in findings_of(apart, found) if "best checkpoint" in each.message]
    assert config(apply_change(finding.change, apart), found)["load_best_model_at_end"] is True
    sharded = finetune_profile(trainer__strategy="zero3", data__evaluation=0.1)
    values = {value.key for value in FinetuneTrainer(sharded).preset.file.values}
    assert "metric_for_best_model" in values
    assert "load_best_model_at_end" not in values


def test_what_an_attempt_falls_back_to_reaches_trl():
    rungs = ("fused_optimizer", "fused_cross_entropy", "optimizer_8bit", "lora")
    chosen = finetune_profile(
        finetune__tuning="full", finetune__method="reward", ladder__rungs=rungs, ladder__consent=rungs
    )
    packages = TUNING_LIBRARIES | {"liger-kernel": "0.8.5"}
    found = facts(gpus=(gpu(0),), packages=packages, transformers="4.57.6", torch="2.7.1")
    made = planned(chosen, found)
    words = {attempt.rung: " ".join(argv(attempt.command, "/run")) for attempt in made.attempts}
    expected = {
        "fused_optimizer": "--optim=adamw_torch_fused", "fused_cross_entropy": "--use_liger_kernel=True",
        "optimizer_8bit": "--optim=adamw_bnb_8bit", "lora": "--use_peft=True",
    }  # fmt: skip
    assert {rung for rung in expected if rung in words} == {*words} - {""}
    assert all(expected[rung] in words[rung] for rung in words if rung)
    assert "--lora_task_type=SEQ_CLS" in words["lora"]
    whole, adapter = made.configs[0].values, made.configs[-1].values
    assert adapter["learning_rate"] == pytest.approx(10 * whole["learning_rate"])
    for name in ("fused_optimizer", "fused_cross_entropy", "optimizer_8bit"):
        alone = planned(finetune_profile(finetune__tuning="full", **{f"recipe__{name}": True}), found)
        assert expected[name] in argv(alone.attempts[0].command, "/run")


def test_what_is_not_evaluated_has_no_fallback_for_evaluations():
    assert "eval" not in planned(finetune_profile()).phases
    assert "evaluation batch" not in str(planned(finetune_profile()).attempts)
    assert "evaluation batch" in str(planned(finetune_profile(data__evaluation=0.1)).attempts)


def test_a_warmup_is_said_as_this_transformers_takes_it():
    old = facts(packages=TUNING_LIBRARIES, transformers="4.57.6")
    assert (config(finetune_profile())["warmup_steps"], config(finetune_profile(), old)["warmup_ratio"]) == (0.03, 0.03)
    for found in (None, old):
        assert config(finetune_profile(recipe__warmup=10.0), found)["warmup_steps"] == 10
        assert config(finetune_profile(recipe__warmup=0.0), found)["warmup_steps"] == 0


def test_kto_is_never_given_one_answer_at_a_time():
    made = planned(finetune_profile(finetune__method="kto", ladder__rungs=("micro_batch",)))
    sizes = [word for attempt in made.attempts for word in argv(attempt.command, "/run") if "train_batch_size" in word]
    assert sizes == ["--per_device_train_batch_size=4", "--per_device_train_batch_size=2"]


def test_options_of_the_users_own_hold_and_are_shown():
    chosen = finetune_profile(trainer__arguments=("--learning_rate", "1e-3", "--output_dir=/out"))
    made = planned(chosen)
    assert made.numbers[0] == "learning rate 0.001 (from your arguments)"
    assert made.attempts[0].checkpoints.folder == "/out"
    assert not [word for word in argv(made.attempts[0].command, "/run") if word == "--output_dir=/run/output"]


OPTIONS = {"": ("learning_rate", "use_peft", "gradient_checkpointing", "optim_args"), "sft": ("packing", "neftune")}


def of_arguments(*words, options=OPTIONS, **values):
    found = facts(packages=TUNING_LIBRARIES, trl_options=options)
    chosen = finetune_profile(trainer__arguments=words, **values)
    return chosen, [each for each in findings_of(chosen, found) if each.key == "trainer.arguments"]


def test_options_that_trl_does_not_know_are_refused():
    chosen, (finding,) = of_arguments("--optim_args", "a=1", "--neftun_x=5", "--no_gradient_checkpointing")
    assert (finding.level, "--neftune" in finding.remedy) == ("error", True)
    fixed = apply_change(finding.change, chosen)
    assert fixed.trainer.arguments == ("--optim_args", "a=1", "--neftune=5", "--no_gradient_checkpointing")
    _, (far,) = of_arguments("--qqqq")
    assert (far.level, far.change) == ("error", None)
    # Those of another method are not of this one.
    assert of_arguments("--packing=True")[1] == []
    assert of_arguments("--packing=True", finetune__method="dpo", options=OPTIONS | {"dpo": ()})[1][0].forbids_plan


def test_the_beginning_of_an_option_is_written_whole():
    """TRL would take it, and the checks of what it undoes would not see it."""
    chosen, (finding,) = of_arguments("--use_pef=True")
    assert apply_change(finding.change, chosen).trainer.arguments == ("--use_peft=True",)
    assert of_arguments("--use_peft=True")[1][0].forbids_plan


def test_only_the_option_that_undoes_the_plan_is_left_out():
    """Its value may be that of another one as well."""
    chosen, (finding,) = of_arguments("--optim_args", "steps", "--eval_strategy", "steps")
    assert apply_change(finding.change, chosen).trainer.arguments == ("--optim_args", "steps")


def test_options_of_a_trl_that_cannot_be_read_are_noted():
    assert [each.level for each in of_arguments("--nonsense=1", options={})[1]] == ["note"]
    assert of_arguments(options={})[1] == []


def test_values_that_an_older_trl_ignores_are_named():
    older = facts(packages=TUNING_LIBRARIES, trl_options=OPTIONS)
    assert any("lora_dropout" in each.message for each in findings_of(finetune_profile(), older))


def test_weights_that_an_adapter_leaves_alone_take_16_bits_where_the_gpus_can():
    new, old = gpu(0), gpu(0, name="NVIDIA GeForce GTX 1080 Ti", compute_capability="6.1")
    arches = {"arch_list": ("sm_61", "sm_86"), "packages": TUNING_LIBRARIES}
    assert config(finetune_profile(), facts(gpus=(new,), **arches))["dtype"] == "bfloat16"
    assert config(finetune_profile(), facts(gpus=(old,), **arches))["dtype"] == "float16"
    assert config(finetune_profile(), facts(packages=TUNING_LIBRARIES))["dtype"] == "float32"
    # Those that learn stay in fp32, and compute in 16 bits.
    whole = config(finetune_profile(finetune__tuning="full"), facts(gpus=(new,), **arches))
    assert (whole["bf16"], "dtype" in whole) == (True, False)


def test_only_an_adapter_has_options_of_one():
    lora = config(finetune_profile(finetune__rank=8, finetune__targets=("q_proj", "v_proj")))
    assert (lora["use_peft"], lora["lora_r"], lora["lora_target_modules"]) == (True, 8, ["q_proj", "v_proj"])
    # Of a list of one TRL makes an expression for the whole path, which fits no layer.
    assert adapter_options(Chosen(targets=("q_proj",)))["lora_target_modules"] == ["q_proj", "q_proj"]
    assert adapter_options(Chosen(targets=("all-linear",)))["lora_target_modules"] == "all-linear"
    assert not [key for key in config(finetune_profile(finetune__tuning="full")) if "lora" in key or "peft" in key]
    four = config(finetune_profile(finetune__tuning="qlora"), facts(gpus=(gpu(0),), packages=TUNING_LIBRARIES))
    assert four["load_in_4bit"]
    assert config(finetune_profile(finetune__method="reward"))["lora_task_type"] == "SEQ_CLS"


def test_what_is_missing_in_a_python_is_named():
    for gone in ("trl", "datasets", "peft"):
        packages = {name: version for name, version in TUNING_LIBRARIES.items() if name != gone}
        assert any(f"has no {gone}" in item.message for item in ready_findings(packages))
    assert any("1.0 or newer" in item.message for item in ready_findings(TUNING_LIBRARIES | {"trl": "0.19.1"}))
    assert not [item for item in ready_findings(TUNING_LIBRARIES) if item.forbids_plan]


def ready_findings(packages):
    return findings_of(finetune_profile(), facts(packages=packages))


def test_data_is_prepared_before_the_training(tmp_path):
    chosen = finetune_profile(data__evaluation=0.1, recipe__seed=3)
    (step,) = planned(chosen).preparations
    assert argv(step.command, "/run")[1:] == [
        "/run/prepare/prepare_data.py", "--into=/run/data", "--share=0.1", "--seed=3", "--model=/m", "--find-answers",
        "--length=1024", "--method=sft", "--most-cut=0.1", "/d.jsonl",
    ]  # fmt: skip
    (other,) = planned(finetune_profile(trainer__arguments=("--chat_template_path=/t",))).preparations
    assert argv(other.command, "/run")[3:5] == ["--model=/m", "--chat-template=/t"], "the template is not the model's"
    run, _ = export_run(tmp_path / "run", chosen, facts(python=sys.executable, packages=TUNING_LIBRARIES))
    shown = run_launch_script(run, "--dry-run", env=plain_environment()).stdout.decode()
    assert shown.index("prepare_data.py") < shown.index("-m trl.scripts.sft")


def test_the_end_of_a_turn_reaches_trl_and_the_preparation():
    asked = DataQuestion(files=("/d.jsonl",), model="/m")
    ends = TurnEndTokens(turn="<|im_end|>", eos="<|endoftext|>", passed="<|im_end|>")
    found = replace(
        facts(packages=TUNING_LIBRARIES),
        data={data_key(asked): DataReport(rows=2, usable=2, format="messages", ends=ends)},
    )
    assert config(finetune_profile(), found).get("eos_token") == ends.passed
    for other in ({"trainer__model": "/n"}, {"trainer__arguments": ("--eos_token=x",)}, {"finetune__method": "dpo"}):
        assert "eos_token" not in config(finetune_profile(**other), found if "finetune__method" not in other else None)
    own = finetune_profile(trainer__arguments=("--eos_token=x",))
    (step,) = planned(own, found).preparations
    assert "--keep-end" in argv(step.command, "/run")


TOKENS = TokenCounts(
    counted=1000, total=9000, learned=900, epoch=9000, shortest=1, median=500, p95=2000, longest=8000, cut=400
)
LARGE, GIB = "Qwen/Qwen2.5-7B-Instruct", 2**30
AT = ((64, 900), (512, 500), (1024, 400), (2048, 30), (2304, 9), (4096, 2), (8192, 0))


def lengths_of(longest, at=AT, limit=0, *, estimated=False):
    """What was read of 1,000 rows, of which each length cuts so many."""
    cuts = tuple(SequenceLengthEffect(length, rows, 0, 1000) for length, rows in at)
    lengths = RowLengths(counted=1000, p99=2291, longest=longest, at=cuts, estimated=estimated)
    return DataReport(rows=1000, usable=1000, format="messages", chat=True, lengths=lengths, limit=limit)


@pytest.mark.parametrize(
    ("read", "memory", "shown", "micro"),
    [
        (lengths_of(8000), 80, "2304, 99 % of the rows, p99 2,291", 4),
        (lengths_of(8000, limit=2000), 80, "2000, the model's limit; 99 % of the rows, p99 2,291", 4),
        (lengths_of(500, ((64, 9), (512, 0))), 80, "512, all rows, longest 500", 4),
        (lengths_of(8000, estimated=True), 80, "2304, 99 % of the rows, p99 2,291 estimated from bytes", 4),
        # A smaller micro batch comes before a shorter length.
        (lengths_of(8000), 24, "2304, 99 % of the rows, p99 2,291, memory allows 4,096", 2),
    ],
)
def test_the_default_length_follows_the_data_the_model_and_memory(read, memory, shown, micro):
    asked = DataQuestion(files=("/d.jsonl",), model=LARGE)
    found = replace(
        facts(gpus=(gpu(0, memory_total=memory * GIB),), packages=TUNING_LIBRARIES), data={data_key(asked): read}
    )
    chosen = finetune_profile(trainer__model=LARGE)
    setup = make_setup(chosen, found)
    shown = re.sub(r"(\d),(\d)", rf"\1{grouped_digits(1000)[1]}\2", shown)
    length = setup.effective_values["sequence_length"]
    assert (f"{length.value}, {length.source}", setup.effective_profile.recipe.micro_batch) == (shown, micro)
    assert ("Length", shown.partition(", ")[2]) in [(line.label, line.note) for line in training_outline_lines(setup)]
    assert question_about_data(setup) == asked, "what is read does not depend on the length that follows from it"
    # What is free changes from plan to resume; the length does not.
    busy = replace(found.machine, gpus=(replace(found.machine.gpus[0], memory_free=GIB),))
    assert make_setup(chosen, replace(found, machine=busy)).effective_values["sequence_length"] == length
    mine = make_setup(finetune_profile(trainer__model=LARGE, recipe__sequence_length=700), found)
    assert mine.effective_values["sequence_length"] == EffectiveValue(700)
    short = replace(found, data={}, models={LARGE: ModelFolder(max_tokens=512)})
    limited = EffectiveValue(512, "the model's limit")
    assert make_setup(chosen, short).effective_values["sequence_length"] == limited
    assert make_setup(chosen, replace(found, other_machine="box")).effective_values["sequence_length"] == length
    away = replace(found, other_machine="box", data={})
    unread = EffectiveValue(1024, "default; the data has not been read")
    assert make_setup(chosen, away).effective_values["sequence_length"] == unread


def test_too_many_rows_that_are_cut_are_refused_with_the_length_that_cuts_none():
    asked = DataQuestion(files=("/d.jsonl",), model=LARGE, length=1024)
    read = replace(lengths_of(8000), tokens=TOKENS)
    found = replace(
        facts(gpus=(gpu(0, memory_total=80 * GIB),), packages=TUNING_LIBRARIES), data={data_key(asked): read}
    )
    chosen = finetune_profile(trainer__model=LARGE, recipe__sequence_length=1024)

    def cut(of, where=found):
        return next(each for each in findings_of(of, where) if f"longer than {grouped_digits(1024)}" in each.message)

    refused = cut(chosen)
    assert (refused.level, "400 rows (40.0 %)" in refused.message) == ("error", True)
    assert "To cut them all the same: data.cut=0.4" in refused.remedy
    assert apply_change(refused.change, chosen).recipe.sequence_length == 8192
    assert cut(profile_with_value(chosen, "data.cut", 0.4)).level == "warning"
    # Where the model takes no more, only consent is left.
    least = replace(found, data={data_key(asked): replace(read, limit=1024)})
    assert dict(cut(chosen, least).change.edits) == {"data.cut": 0.4}
    assert not [
        each for each in findings_of(apply_change(cut(chosen, least).change, chosen), least) if each.key == "data.cut"
    ]


@pytest.mark.parametrize(
    ("kind", "only", "set_of_trl", "marked"),
    [
        ("", True, {"assistant_only_loss": True}, True),
        ("", False, {"assistant_only_loss": False, "completion_only_loss": False}, False),
        ("messages", True, {"assistant_only_loss": True}, True),
        ("alpaca", True, {"completion_only_loss": True}, False),
        ("prompt_completion", False, {"completion_only_loss": False}, False),
        ("text", None, {}, False),
    ],
)
def test_answers_alone_are_asked_for_by_the_option_that_the_format_has(kind, only, set_of_trl, marked):
    chosen = finetune_profile(finetune__answers_only=only)
    read = {data_key(DataQuestion(files=("/d.jsonl",))): DataReport(format=kind)} if kind else {}
    made = planned(chosen, replace(facts(packages=TUNING_LIBRARIES), data=read))
    values = {key: value for key, value in made.configs[0].values.items() if key.endswith("_only_loss")}
    assert values == set_of_trl
    assert ("--marked-answers" in argv(made.preparations[0].command, "/run")) is marked


# ---- the preparation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROW_BY_FORMAT)
def test_each_format_is_written_as_trl_takes_it(tmp_path, name):
    columns = {
        "messages": {"messages"}, "sharegpt": {"messages"}, "alpaca": {"prompt", "completion"},
        "prompt_completion": {"prompt", "completion"}, "text": {"text"}, "preference": {"prompt", "chosen", "rejected"},
        "kto": {"prompt", "completion", "label"},
    }  # fmt: skip
    write_rows(tmp_path / "d.jsonl", [ROW_BY_FORMAT[name]] * 2)
    assert "2 rows to train on" in run_prepare_data(tmp_path / "data", tmp_path / "d.jsonl")
    (first, second) = read_rows(tmp_path / "data/train.jsonl")
    assert first == second
    # TRL knows conversations with from and value, and nothing else of that name.
    assert first.keys() in (columns[name], {"conversations"}) or name != "sharegpt"
    assert name == "sharegpt" or first.keys() == columns[name]


def test_pairs_with_and_without_a_prompt_become_alike(tmp_path):
    pairs = [
        {"prompt": "The sky is", "chosen": " blue", "rejected": " green"},
        {"chosen": "The sky is blue", "rejected": "The sky is green"},
    ]
    run_prepare_data(tmp_path / "data", write_rows(tmp_path / "d.jsonl", pairs))
    first, second = read_rows(tmp_path / "data/train.jsonl")
    assert first == second == pairs[0]


def test_what_cannot_be_learned_is_left_out_and_said(tmp_path):
    bad = [{"messages": []}, {"messages": [user_message("hi")]}, {"else": 1}]
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW, *bad, CHAT_ROW])
    path.write_text(path.read_text() + "{broken\n")
    said = run_prepare_data(tmp_path / "data", path)
    assert [f"line {number}:" in said for number in (2, 3, 4, 6)] == [True] * 4
    assert "4 of 6 rows are left out" in said
    assert read_rows(tmp_path / "data/train.jsonl") == [CHAT_ROW, CHAT_ROW]


def test_rows_that_the_template_refuses_are_left_out_and_said(tmp_path, tokenizer, warm_python):
    path = write_rows(
        tmp_path / "d.jsonl",
        [CHAT_ROW, SYSTEM_CHAT_ROW, CHAT_ROW, {"messages": []}, SYSTEM_CHAT_ROW, CHAT_ROW, CHAT_ROW],
    )
    words = [f"--model={tokenizer(USER_FIRST_TEMPLATE)}", "--share=0.5", path]
    said = run_prepare_data(tmp_path / "data", *words, python=warm_python)
    assert re.findall(r"line (\d): the template refuses", said) == ["2", "5"]
    assert "3 of 7 rows are left out, 2 of them refused" in said
    assert (read_rows(tmp_path / "data/train.jsonl"), read_rows(tmp_path / "data/test.jsonl")) == (
        [CHAT_ROW] * 2,
        [CHAT_ROW] * 2,
    )
    # Without the model, and with one that cannot be loaded, nothing is tried.
    run_prepare_data(tmp_path / "all", path)
    assert len(read_rows(tmp_path / "all/train.jsonl")) == 6
    assert "is not checked" in run_prepare_data(tmp_path / "some", f"--model={tmp_path}", path, python=warm_python)
    assert len(read_rows(tmp_path / "some/train.jsonl")) == 6


def test_rows_for_evaluations_that_the_template_refuses_are_left_out(tmp_path, tokenizer, warm_python):
    train = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    test = write_rows(tmp_path / "t.jsonl", [SYSTEM_CHAT_ROW, CHAT_ROW])
    words = [f"--model={tokenizer(USER_FIRST_TEMPLATE)}", "--answers-only", f"--validation={test}", train]
    assert "line 1: the template refuses" in run_prepare_data(tmp_path / "data", *words, python=warm_python)
    assert read_rows(tmp_path / "data/test.jsonl") == [CHAT_ROW]


def test_a_template_that_refuses_all_rows_ends_the_run(tmp_path, tokenizer, warm_python):
    path = write_rows(tmp_path / "d.jsonl", [SYSTEM_CHAT_ROW])
    for template, said in ((USER_FIRST_TEMPLATE, "refuses all rows"), (None, "no chat template")):
        words = (f"--model={tokenizer(template)}", path)
        assert said in run_prepare_data(tmp_path / "data", *words, code=65, python=warm_python)
        assert not (tmp_path / "data").exists()


def test_a_share_is_kept_for_evaluations_and_is_the_same_each_time(tmp_path):
    rows = [{"text": str(number)} for number in range(50)]
    path = write_rows(tmp_path / "d.jsonl", rows)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run_prepare_data(tmp_path / name, "--share=0.2", f"--seed={seed}", path)
    train, test = (read_rows(tmp_path / f"a/{name}.jsonl") for name in ("train", "test"))
    assert (len(train), len(test)) == (40, 10)
    assert sorted(train + test, key=str) == sorted(rows, key=str)
    assert [read_rows(tmp_path / f"{name}/test.jsonl") == test for name in ("b", "c")] == [True, False]
    # At least one, and never all.
    one = write_rows(tmp_path / "two.jsonl", rows[:2])
    run_prepare_data(tmp_path / "e", "--share=0.01", one)
    assert (len(read_rows(tmp_path / "e/train.jsonl")), len(read_rows(tmp_path / "e/test.jsonl"))) == (1, 1)


def test_validation_data_must_have_the_same_format(tmp_path):
    train, other = write_rows(tmp_path / "t.jsonl", [CHAT_ROW]), write_rows(tmp_path / "o.jsonl", [{"text": "x"}])
    assert "the validation data is text" in run_prepare_data(tmp_path / "data", f"--validation={other}", train, code=65)
    assert not (tmp_path / "data").exists()
    run_prepare_data(tmp_path / "data", f"--validation={train}", train)
    assert read_rows(tmp_path / "data/test.jsonl") == [CHAT_ROW]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("messages", ""), ("sharegpt", ""), ("prompt_completion", "prompt + completion, of which only answers"),
        ("alpaca", "alpaca, of which only answers"), ("text", "which has no answers to mark"),
    ],
)  # fmt: skip
def test_data_without_marked_answers_is_refused_before_the_training(tmp_path, name, said):
    path = write_rows(tmp_path / "d.jsonl", [ROW_BY_FORMAT[name]])
    answer = run_prepare_data(tmp_path / "data", "--marked-answers", path, code=65 if said else 0)
    assert said in answer
    assert (tmp_path / "data").exists() is not bool(said)


def test_it_is_done_once(tmp_path):
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    run_prepare_data(tmp_path / "data", path)
    assert run_prepare_data(tmp_path / "data", path).rstrip().endswith("is reused")
    write_rows(path, [CHAT_ROW, CHAT_ROW])
    assert "it was made before" in run_prepare_data(tmp_path / "data", path)
    assert read_rows(tmp_path / "data/train.jsonl") == [CHAT_ROW]


def test_a_preparation_that_is_stopped_leaves_nothing(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text((json.dumps(CHAT_ROW) + "\n") * 300_000)
    command = [sys.executable, "-B", str(PREPARE_DATA_PROGRAM), f"--into={tmp_path / 'data'}", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as preparing:
        wait_until(lambda: [*tmp_path.glob("data.new.*")], 30)
        preparing.terminate()
        assert preparing.wait(30) == 143
    assert [left.name for left in tmp_path.iterdir()] == ["d.jsonl"]


@pytest.mark.parametrize(
    ("content", "into", "words", "code"),
    [
        (b"", "data", (), 65),
        (b"\x00\xff\x00", "data", (), 65),
        (b'{"messages": []}\n', "data", (), 65),
        # One row cannot be split, and a file is no folder.
        (json.dumps(CHAT_ROW).encode(), "data", ("--share=0.5",), 65),
        (json.dumps(CHAT_ROW).encode(), "d.jsonl/data", (), 73),
    ],
)
def test_what_cannot_be_prepared_ends_the_run_and_leaves_nothing(tmp_path, content, into, words, code):
    (tmp_path / "d.jsonl").write_bytes(content)
    assert "data: error: " in run_prepare_data(tmp_path / into, *words, tmp_path / "d.jsonl", code=code)
    assert [path.name for path in tmp_path.iterdir()] == ["d.jsonl"]


# ---- TRL itself --------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def trl():
    """The Python that has TRL, as the probe knows it."""
    return probe.probe_toolchain(TRL_PYTHON)


def chosen_for(model, data, **values):
    more = {key.replace("__", "."): value for key, value in values.items()}
    return profile(
        SMALL | {"trainer.python": TRL_PYTHON, "trainer.model": str(model), "trainer.data": (str(data),)} | more
    )


def trained(folder, chosen, trl, *words, code=0):
    """Train to the end through the exported script."""
    run, plan = export_run(folder, chosen, replace(facts(), toolchains=(trl,)))
    done = run_launch_script(run, *words, env=offline(folder), timeout=1200)
    assert done.returncode == code, done.stdout.decode()[-500:] + attempt_log_text(run, 1)[-4000:]
    return run, plan


def offline(folder):
    return plain_environment(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=f"{folder}-cache", ACCELERATE_USE_CPU="true")


@needs_trl
@pytest.mark.parametrize("name", sample(ROW_BY_FORMAT, 3))
def test_each_format_is_learned_by_its_method(tmp_path, model, trl, name):
    method = {"preference": "dpo", "kto": "kto"}.get(name, "sft")
    rows = [
        numbered_row(ROW_BY_FORMAT[name], number) | ({"label": number % 2 == 0} if name == "kto" else {})
        for number in range(8)
    ]
    data = write_rows(tmp_path / "d.jsonl", rows)
    chosen = chosen_for(model, data, finetune__method=method, recipe__steps=6, recipe__learning_rate=5e-3)
    run, plan = trained(tmp_path / "run", chosen, trl)
    found = logged_losses(run)
    assert len(found) == 6
    assert found[-1] < found[0]
    assert plan.global_batch == 4
    made = json.loads((run.path / "output/adapter_config.json").read_text())
    assert made["base_model_name_or_path"] == str(model)
    assert read_status(run).state == "finished"


@needs_trl
@pytest.mark.parametrize("method", ["sft", "dpo", "reward"])
def test_all_weights_are_trained(tmp_path, model, trl, method):
    row = ROW_BY_FORMAT["preference"] if method != "sft" else CHAT_ROW
    data = write_rows(tmp_path / "d.jsonl", [numbered_row(row, number) for number in range(8)])
    values = {"finetune__method": method, "finetune__tuning": "full", "data__evaluation": 0.25, "recipe__epochs": 2.0}
    run, _ = trained(tmp_path / "run", chosen_for(model, data, recipe__evaluate_every=1, **values), trl)
    assert (run.path / "output/model.safetensors").stat().st_size > 100_000
    assert len(re.findall(r"'eval_loss'", attempt_log_text(run, 1))) >= 2


@needs_trl
def test_preferences_train_once_and_give_the_best_checkpoint(tmp_path, model, trl):
    """By TRL's own arguments, which it saves, and by the evaluations that it made."""
    data = write_rows(tmp_path / "d.jsonl", [numbered_row(ROW_BY_FORMAT["preference"], number) for number in range(32)])
    values = {"finetune__method": "dpo", "data__evaluation": 0.25}
    run, plan = trained(tmp_path / "run", chosen_for(model, data, **values), trl)
    code = "import json, sys, torch; print(json.dumps(torch.load(sys.argv[1], weights_only=False).to_dict()))"
    kept = sorted((run.path / "output").glob("checkpoint-*"))
    words = [TRL_PYTHON, "-c", code, str(kept[0] / "training_args.bin")]
    passed = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    wanted = {
        "num_train_epochs": 1.0, "warmup_steps": 0.1, "learning_rate": 5e-6, "lr_scheduler_type": "cosine",
        "eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 2, "save_total_limit": 2,
        "load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "max_length": 64,
    }  # fmt: skip
    assert {name: passed[name] for name in wanted} == wanted
    assert wanted["save_steps"] == plan.configs[-1].values["save_steps"]
    losses = re.findall(r"'eval_loss': '?([\d.]+)", attempt_log_text(run, 1))
    state = json.loads((kept[-1] / "trainer_state.json").read_text())
    assert (len(losses), state["max_steps"], 2 <= len(kept) <= 3) == (3, 6, True)
    assert Path(state["best_model_checkpoint"]).is_dir()


@needs_trl
def test_answers_are_found_by_the_preparation_where_nothing_was_read(tmp_path, model, trl):
    data = write_rows(
        tmp_path / "d.jsonl", [{"messages": [user_message("a long question " * 3), assistant_message("yes")]}] * 8
    )
    losses = []
    for number, only in enumerate((None, True, False)):
        chosen = chosen_for(model, data, finetune__answers_only=only, recipe__steps=1)
        run, plan = trained(tmp_path / f"run{number}", chosen, trl)
        assert plan.configs[-1].values.get("assistant_only_loss") is only
        assert ("only answers are learned: the chat template marks them" in attempt_log_text(run, 1)) is (only is None)
        losses += logged_losses(run)
    assert losses[0] == losses[1] != losses[2]


@needs_trl
def test_a_stopped_run_resumes(tmp_path, model, trl):
    data = write_rows(tmp_path / "d.jsonl", [numbered_row(CHAT_ROW, number) for number in range(40)])
    chosen = chosen_for(model, data, recipe__epochs=8.0, finetune__dropout=0.0, recipe__checkpoint_every=100)
    whole, _ = trained(tmp_path / "whole", chosen, trl)
    run, _ = export_run(tmp_path / "run", chosen, replace(facts(), toolchains=(trl,)))
    started = subprocess.Popen(
        ["bash", run.path / "launch.sh"], env=offline(tmp_path / "run"), stdout=subprocess.DEVNULL
    )
    wait_until(
        lambda: started.poll() is not None or (run.attempt_log(1).exists() and "'loss'" in attempt_log_text(run, 1)),
        300,
    )
    assert started.poll() is None
    started.send_signal(signal.SIGTERM)
    assert started.wait(120) == 143
    begun = len(logged_losses(run))
    assert 0 < begun < 80
    done = run_launch_script(run, env=offline(tmp_path / "run"), timeout=1200)
    assert done.returncode == 0, attempt_log_text(run, 2)[-3000:]
    assert "resumes from" in done.stdout.decode()
    assert "is reused" in attempt_log_text(run, 2)
    rest = logged_losses(run, 2)
    assert rest == pytest.approx(logged_losses(whole)[-len(rest) :], abs=2e-3)
    assert begun + len(rest) >= 80


@needs_trl
def test_a_revision_of_the_hub_is_downloaded_and_then_fine_tuned(tmp_path, model, monkeypatch):
    files = {path.name: path.read_bytes() for path in model.iterdir() if path.name != "template"}
    data = write_rows(tmp_path / "d.jsonl", [numbered_row(CHAT_ROW, number) for number in range(8)])
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    # Only the pinned revision can be loaded.
    broken = {**files, "model.safetensors": b"broken", "tokenizer.json": b"broken"}
    with FakeHub({"acme/tiny": broken}, revisions={("acme/tiny", "v1"): files}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        chosen = chosen_for("acme/tiny", data, recipe__steps=2, trainer__revision="v1")
        prepared = prepare(chosen, probe_profile_facts(chosen))
        assert [step.name for step in prepared.plan.preparations] == ["model", "data"]
        run_folders.export_plan_files(tmp_path / "run", prepared.files)
        run = RunFolder(tmp_path / "run")
        environment = plain_environment(
            HF_HOME=str(tmp_path / "hf"), HF_ENDPOINT=hub.url, HF_DATASETS_CACHE=str(tmp_path / "cache")
        )
        done = run_launch_script(run, env=environment, timeout=400)
    assert done.returncode == 0, attempt_log_text(run, 1)[-3000:]
    assert len(hub.ranges("model.safetensors")) == 1
    assert len(logged_losses(run)) == 2
    made = json.loads((run.path / "output/adapter_config.json").read_text())
    assert made["base_model_name_or_path"] == "acme/tiny"
    # Without the Hub: what is looked at before a training, and what is made of the adapter after it.
    found = read_result(run)
    assert (found.base, found.revision) == ("acme/tiny", "v1")
    facts_of_it = probe_profile_facts(chosen)
    (read,) = facts_of_it.data.values()
    assert read.tokens
    assert facts_of_it.models["acme/tiny"].dimensions
    words = ("merge", f"{run.path}/", tmp_path / "merged", f"--python={TRL_PYTHON}")
    run_cli(*words, env=environment | {"HF_HUB_OFFLINE": "1"})


@needs_trl
def test_the_options_that_are_read_are_those_of_trl(trl):
    """As its own parsers have them; nothing that the plan writes is unknown to it."""
    code = (
        "import importlib, json, sys\n"
        "parsers = [importlib.import_module('trl.scripts.' + name).make_parser() for name in sys.argv[1:]]\n"
        "print(json.dumps([[word for one in parser._actions for word in one.option_strings] for parser in parsers]))"
    )
    said = subprocess.run(
        [TRL_PYTHON, "-c", code, *FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD], capture_output=True, text=True, check=True
    ).stdout
    for method, words in zip(FULL_AND_ADAPTER_LEARNING_RATES_BY_METHOD, json.loads(said.splitlines()[-1]), strict=True):
        names = {word.lstrip("-").replace("-", "_") for word in words}
        listed = {*trl.trl_options[""], *trl.trl_options[method]}
        assert listed - names == set()
        assert {name for name in names - listed if name.removeprefix("no_") not in listed} == {"h", "help"}
        values = {
            "rewards": ("my.score",),
            "generations": 2,
            "completion_length": 9,
            "beta": 0.1,
            "answers_only": False,
        }
        values = {f"finetune__{name}": value for name, value in values.items()}
        chosen = finetune_profile(finetune__method=method, **values)
        found = replace(facts(), toolchains=(trl,))
        assert not [each for each in findings_of(chosen, found) if "ignores" in each.message]


def test_what_is_cut_is_counted_and_too_much_of_it_refused(tmp_path, tokenizer, warm_python):
    """By the model's own tokenizer, before the training; the end of turns is kept for it."""
    model = tokenizer(PLAIN_TEMPLATE.replace("}}</s>", "}}<sep>"))
    long = {"messages": [user_message("What is it?"), assistant_message("the quick brown fox " * 40)]}
    path = write_rows(tmp_path / "d.jsonl", [numbered_row(CHAT_ROW, number) for number in range(6)] + [long] * 4)
    words = [f"--model={model}", "--length=100", path]
    said = run_prepare_data(tmp_path / "no", "--most-cut=0.1", *words, python=warm_python, code=65)
    refused = re.search(
        r"error: 4 of 10 rows \(40.0%\) are longer than 100 tokens and are cut, with .* tokens: (.*)", said
    )
    assert refused[1].endswith("cuts none, data.cut=0.41 allows it")
    assert not (tmp_path / "no").exists()
    length = re.search(r"sequence_length=(\d+)", refused[1])[1]
    assert "longer" not in run_prepare_data(
        tmp_path / "all", *words[:1], f"--length={length}", path, python=warm_python
    )
    said = run_prepare_data(tmp_path / "some", "--most-cut=0.41", *words, python=warm_python)
    assert "4 of 10 rows (40.0%) are longer" in said
    assert "data: turns end with <sep>, the tokenizer's end is </s>: it is passed as the end token" in said
    assert (tmp_path / "some/.end").read_text() == "<sep>"
    run_prepare_data(tmp_path / "kept", "--keep-end", *words, python=warm_python)
    assert not (tmp_path / "kept/.end").exists()
    # A template of the user's own takes the place of the model's.
    (tmp_path / "t.jinja").write_text(PLAIN_TEMPLATE)
    run_prepare_data(tmp_path / "own", f"--chat-template={tmp_path}/t.jinja", *words, python=warm_python)
    assert not (tmp_path / "own/.end").exists()
    # Plain text has no turns, whatever its length.
    text = write_rows(tmp_path / "text.jsonl", [{"text": "the quick brown fox"}, {"text": "a dog"}])
    run_prepare_data(tmp_path / "text", *words[:2], text, python=warm_python)
    assert not (tmp_path / "text/.end").exists()


STOPS = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
folder, base = sys.argv[1:]
tokens = AutoTokenizer.from_pretrained(folder)
if base:
    from peft import PeftModel
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)
    model.generation_config = GenerationConfig.from_pretrained(folder)
else:
    model = AutoModelForCausalLM.from_pretrained(folder)
turn = [{"role": "user", "content": "Hi"}]
made = tokens.apply_chat_template(turn, add_generation_prompt=True, return_tensors="pt", return_dict=True)
made = {name: made[name] for name in ("input_ids", "attention_mask")}
out = model.generate(**made, do_sample=False, max_new_tokens=40)[0, made["input_ids"].shape[1]:]
print(tokens.decode(out))
"""
SHORT = [
    [user_message("Hi"), assistant_message("Hello.")],
    [user_message("Bye"), assistant_message("See you.")],
    [user_message("Who?"), assistant_message("A fox.")],
]


@needs_trl
@pytest.mark.whole
@pytest.mark.parametrize(("method", "tuning"), [("sft", "full"), ("sft", "lora"), ("kto", "lora")])
def test_a_base_model_stops_where_its_template_ends_a_turn(tmp_path, trl, method, tuning):
    """In `try`, and in plain generate(), though its tokenizer and its generation_config.json end elsewhere."""
    base = tmp_path / "base"
    subprocess.run([TRL_PYTHON, str(SCRIPTS / "chat_model.py"), str(base), "--base"], check=True, capture_output=True)
    pairs = [{"prompt": row[:1], "completion": row[1:], "label": True} for row in SHORT]
    rows = pairs if method == "kto" else [{"messages": row} for row in SHORT]
    values = {
        "trainer.kind": "finetune", "trainer.python": TRL_PYTHON, "trainer.model": str(base), "finetune.method": method,
        "finetune.tuning": tuning, "finetune.rank": 32, "recipe.steps": 80, "recipe.micro_batch": 6,
        "recipe.global_batch": 6, "recipe.learning_rate": 1e-2,
        "trainer.allow": ("learning_rate",),
        "trainer.data": (str(write_rows(tmp_path / "d.jsonl", rows * 4)),), "hardware.device": "cpu",
    }  # fmt: skip
    run, _ = trained(tmp_path / "run", profile(values), trl)
    assert "data: turns end with <|im_end|>, the tokenizer's end is <|endoftext|>" in attempt_log_text(run, 1)
    output = run.path / "output"
    held = json.loads((output / "generation_config.json").read_text())
    assert held["eos_token_id"] == [257, 258]
    words = [TRL_PYTHON, "-c", STOPS, str(output), str(base) if tuning == "lora" else ""]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=offline(tmp_path)).stdout
    if method == "sft":
        assert said == "Hello.<|im_end|>\n"
        assert run_cli("try", f"{run.path}/", "--prompt", "Hi", "--max-tokens", "40").stdout == "Hello.\n"
    if tuning == "lora":
        merge_adapter(run, str(tmp_path / "merged"), MergeOptions())
        held = json.loads((tmp_path / "merged/generation_config.json").read_text())
        assert held["eos_token_id"] == [257, 258]


@pytest.mark.parametrize(
    ("without", "cuda", "able"),
    [
        ("", "12.8", ("full", "LoRA", "QLoRA")),
        ("", None, ("full", "LoRA")),
        ("bitsandbytes", "12.8", ("full", "LoRA")),
        ("peft", "12.8", ("full",)),
        ("trl", "12.8", ()),
        ("datasets", "12.8", ()),
    ],
)
def test_what_a_python_can_do_is_known(without, cuda, able):
    packages = {name: version for name, version in TUNING_LIBRARIES.items() if name != without}
    assert supported_tuning_labels(toolchain(cuda=cuda, packages=packages)) == able
    assert supported_tuning_labels(toolchain(packages=TUNING_LIBRARIES | {"trl": "0.19.1"})) == ()


def test_a_trainer_says_what_it_does():
    assert FinetuneTrainer(finetune_profile()).method_label() == "SFT LoRA"
    assert (
        FinetuneTrainer(finetune_profile(finetune__method="dpo", finetune__tuning="full")).method_label() == "DPO full"
    )
