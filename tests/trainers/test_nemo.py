"""NeMo without NeMo: what is found fault with, what is planned, and the files that are written for it."""

import ast
import itertools
import json
import re
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import msgspec
import pytest
import yaml
from nemo_faults import (
    AUTOMODEL,
    BARE,
    BRIDGE,
    BRIDGED,
    FAULTS,
    FINETUNE,
    MOCK,
    MODEL_SIZES,
    NEMO,
    NEMO_WITHOUT_NUMBERS,
    RECIPES,
    WITH_NEMO,
    with_checkpoint,
)
from support import HOSTILE_VALUES, boxed, facts, findings_of, gpu, inside, plan, prepare_without_errors, profile

from tui_train.base.command import argv
from tui_train.facts.models import nemo_models
from tui_train.facts.types import Facts
from tui_train.memory import workload
from tui_train.plan.render.nemo.nemo_recipe import render_nemo_recipe
from tui_train.profile.changes import apply_change
from tui_train.setup.recipe import no_effect
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo
from tui_train.views import choices


def without_the_note(findings):
    return [item for item in findings if item.level != "note"] or findings


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_alone_and_what_is_offered_fixes_it(name):
    fault = FAULTS[name]
    (finding,) = without_the_note(findings_of(profile(fault.values), fault.facts))
    fault.assert_told_by(finding)
    if finding.change:
        changed = findings_of(apply_change(finding.change, profile(fault.values)), fault.facts)
        assert (fault.level, fault.key) not in [(item.level, item.key) for item in changed]


@pytest.mark.parametrize(
    ("values", "where"),
    [
        (NEMO, WITH_NEMO),
        (NEMO | {"nemo.tensor_parallel": 2}, WITH_NEMO),
        (FINETUNE, WITH_NEMO),
        (FINETUNE | {"nemo.recipe": "mamba2_130m", "nemo.peft": "none"}, WITH_NEMO),
        (NEMO, facts(gpus=(gpu(0),), packages=RECIPES, python="/p", recipes={"/p": {"qwen25_500m": ("pretrain",)}})),
    ],
)
def test_what_is_right_is_not_found_fault_with(values, where):
    assert findings_of(profile(values), where) == ()


def test_nemo_trains_with_as_many_processes_on_each_machine():
    several = {"nodes.count": 2, "nodes.address": "10.0.0.1", "nodes.processes": (2, 1), "recipe.global_batch": 48}
    (finding,) = without_the_note(findings_of(profile(NEMO | several), WITH_NEMO))
    assert (finding.level, finding.key) == ("error", "nodes.processes")
    fixed = apply_change(finding.change, profile(NEMO | several | {"recipe.global_batch": 32}))
    assert without_the_note(findings_of(fixed, WITH_NEMO)) == ()


def test_a_finetune_in_a_container_must_be_given_its_weights():
    chosen, where = profile(FINETUNE | {"trainer.model": ""} | inside()), boxed(gpus=(gpu(0),), packages=RECIPES)
    found = [(item.level, item.message) for item in findings_of(chosen, where) if item.key == "trainer.model"]
    assert [level for level, _ in found] == ["error"]
    assert "the image, and there are none" in found[0][1]


def test_a_split_model_has_fewer_copies_that_take_samples():
    four = facts(gpus=[gpu(number, f"GPU-{number}") for number in range(4)], packages=RECIPES)
    split = {"nemo.tensor_parallel": 2, "recipe.micro_batch": 2, "recipe.global_batch": 16}
    chosen = profile(NEMO | split)
    made = plan(chosen, four)
    assert (made.world_size, made.accumulation, Setup(chosen, four).model_copies) == (4, 4, 2)
    assert made.attempts[0].batch == "micro batch 2 x accumulation 4 x 2 copies of the model = global batch 16"
    assert [word for word in argv(made.attempts[0].command, "/run") if "nproc" in word] == ["--nproc-per-node=4"]
    assert {item.name: item.value for item in made.attempts[0].command.env}["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    whole = plan(profile(NEMO | {"recipe.global_batch": 32}), four)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in {item.name for item in whole.attempts[0].command.env}


def test_each_attempt_says_what_it_changes_and_the_global_batch_stays():
    made = plan(profile(NEMO), facts(gpus=(gpu(0),), packages=RECIPES, python="/py"))
    told = [argv(attempt.command, "/run") for attempt in made.attempts]
    assert told[0] == ["/py", "/run/nemo_recipe.py", "--output=/run/output", "--micro-batch=8", "--sequence-length=128"]
    batches = [word for words in told for word in words if word.startswith("--micro-batch")]
    assert batches == [f"--micro-batch={size}" for size in (8, 8, 4, 2, 1, 1)]
    assert told[-1][-1] == "--activation-checkpointing"
    assert all(attempt.batch.endswith("global batch 16") for attempt in made.attempts)
    assert made.resumes_itself


def test_an_own_size_is_only_taken_where_no_weights_are_loaded():
    mine = NEMO | MODEL_SIZES | {"ladder.rungs": ("layers",), "ladder.consent": ("layers",)}
    made = plan(profile(mine), WITH_NEMO)
    assert (made.nemo.layers, made.nemo.hidden_size, made.nemo.heads) == (4, 128, 4)
    assert [argv(attempt.command, "/run")[-1] for attempt in made.attempts] == ["--layers=4", "--layers=2"]
    kept = plan(profile({key: value for key, value in mine.items() if key not in MODEL_SIZES}), WITH_NEMO)
    assert (kept.nemo.layers, len(kept.attempts)) == (None, 1)
    loads = profile(mine | {"trainer.model": "/m"})
    assert {item.key for item in findings_of(loads, WITH_NEMO) if "is set, but not used" in item.message} == {
        *MODEL_SIZES
    }
    assert no_effect.why_no_effect("recipe.layers", Setup(loads, WITH_NEMO)) == "the model folder decides"


@pytest.mark.parametrize("where", [WITH_NEMO, BRIDGE], ids=["recipes", "bridge"])
def test_what_is_not_chosen_stays_the_recipes_own(where):
    made = plan(profile(NEMO_WITHOUT_NUMBERS), where)
    words = argv(made.attempts[0].command, "/run")
    assert [word for word in words if word.startswith("--") and "recipe.py" not in word][-1] == "--output=/run/output"
    assert (made.numbers, made.global_batch, made.steps) == ((), 0, 0)
    assert made.attempts[0].batch.endswith("batch: the recipe's default")
    text = written(NEMO_WITHOUT_NUMBERS, where)
    for name in (".lr =", "min_lr", "warmup", "max_steps", "train_iters", "plugins =", "mixed_precision",
                 "save_interval", "every_n_train_steps", "seed", "global_batch_size = "):  # fmt: skip
        assert name not in text, name
    one = written(NEMO_WITHOUT_NUMBERS | {"recipe.steps": 7}, where)
    gone = {line.strip() for line in one.splitlines()} - {line.strip() for line in text.splitlines()}
    assert any(line.endswith("= 7") for line in gone)
    assert not [line for line in gone if ".lr =" in line or "precision" in line or "seed" in line]


def test_hidden_size_and_heads_of_a_recipe_change_together():
    (finding,) = findings_of(profile(NEMO | {"recipe.hidden_size": 128}), WITH_NEMO)
    assert (finding.level, finding.key) == ("error", "recipe.heads")
    text = written(NEMO | {"recipe.layers": 2})
    assert "num_layers = arguments.layers" in text
    assert "hidden_size" not in text


def written(values, where=WITH_NEMO):
    """The text of the file that NeMo is given."""
    files = {file.path: file.text for file in prepare_without_errors(profile(values), where).files}
    return next(files[name] for name in nemo.FILE_NAME_BY_FLAVOUR.values() if name in files)


@pytest.mark.parametrize("word", [word for word in HOSTILE_VALUES if word])
def test_any_path_reaches_the_file_as_it_is(word):
    text = written(
        NEMO | {"trainer.data": (f"/{word}.bin",), "nemo.tokenizer": f"/{word}", "trainer.model": f"/m{word}"}
    )
    strings = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert {f"/{word}", f"/m{word}"} <= strings
    for task in (NEMO, FINETUNE):
        paths = {"trainer.data": (f"/{word}.bin",), "nemo.tokenizer": f"/t{word}", "trainer.model": f"/m{word}"}
        tree = ast.parse(written(task | paths, BRIDGE))
        strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert {f"/{word}" if task is NEMO else f"/{word}.bin", f"/t{word}", f"/m{word}"} <= strings
    model = yaml.safe_load(written(FINETUNE | {"trainer.model": f"/{word}"}, AUTOMODEL))["model"]
    assert model["pretrained_model_name_or_path"] == f"/{word}"


@pytest.mark.parametrize("name", ["x; import os", "x()", "x.y", "class", "ü", ""])
def test_a_name_that_is_none_in_python_never_becomes_code(name):
    for where in (WITH_NEMO, BRIDGE):
        assert any(item.level == "error" for item in findings_of(profile(NEMO | {"nemo.recipe": name}), where))


def test_the_file_is_clean_python(tmp_path):
    variants = [
        NEMO,
        MOCK,
        FINETUNE,
        NEMO | MODEL_SIZES,
        NEMO | {"nemo.pipeline_parallel": 2, "recipe.precision": "bf16"},
    ]
    variants += [FINETUNE | {"nemo.peft": "none"}, MOCK | FINETUNE | {"trainer.data": (), "recipe.precision": "fp32"}]
    for number, (values, where) in enumerate(itertools.product(variants, (WITH_NEMO, BRIDGE))):
        (tmp_path / f"recipe_{number}.py").write_text(written(values, where))
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select=F,E7,B", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def split_of(values, **fields):
    """The strategy that a recipe's own becomes, by the lines of the file that say how the model is split."""
    strategy = SimpleNamespace(**fields)
    _, _, rest = written(values).partition("    strategy = recipe.trainer.strategy\n")
    exec(textwrap.dedent(rest.partition("\n\n")[0]), {"strategy": strategy})  # noqa: S102 - they are our own
    return vars(strategy)


# Of llama31_70b: 4 x 4 x 2 GPUs. Of qwen3_30b_a3b: 4 x 2, and its experts on 4.
MANY = {"nemo.recipe": "llama31_70b", "recipe.global_batch": 512, "recipe.micro_batch": 1}
EXPERTS = MANY | {"nemo.recipe": "qwen3_30b_a3b"}


def several(count):
    return facts(gpus=[gpu(number, f"GPU-{number}") for number in range(count)], packages=RECIPES, python="/p")


def test_a_recipes_own_split_stays_and_each_of_yours_replaces_that_one():
    stages = {"num_layers_in_first_pipeline_stage": 3, "num_layers_in_last_pipeline_stage": 2}
    own = {"tensor_model_parallel_size": 4, "expert_model_parallel_size": 64, "sequence_parallel": True, **stages}
    for where in (several(32), BRIDGE):
        text = written(NEMO | MANY, where)
        assert "parallel_size" not in text
        assert "sequence_parallel" not in text
    assert split_of(NEMO | {"nemo.context_parallel": 2}, **own) == own | {"context_parallel_size": 2}
    found = split_of(NEMO | {"nemo.tensor_parallel": 1}, **own)
    assert found == own | {"tensor_model_parallel_size": 1, "sequence_parallel": False}
    found = split_of(NEMO | {"nemo.pipeline_parallel": 1}, **own)
    assert [found[stage] for stage in stages] == [None, None]
    assert not stages.keys() & split_of(NEMO | {"nemo.pipeline_parallel": 1}).keys()


def test_a_recipes_own_split_is_judged_by_the_cards_and_counts_the_copies():
    chosen = profile(NEMO | MANY)
    assert Setup(chosen, several(32)).model_copies == 1
    assert findings_of(chosen, several(32)) == ()
    for cards in (1, 2, 24):
        (finding,) = findings_of(chosen, several(cards))
        assert (finding.level, finding.key) == ("error", "nemo.tensor_parallel")
        assert "the recipe llama31_70b is made for more GPUs" in finding.message
        assert "4 × 4 × 2 = 32, which does not divide" in finding.message
        fixed = apply_change(finding.change, chosen)
        assert (fixed.nemo.tensor_parallel, fixed.nemo.pipeline_parallel, fixed.nemo.context_parallel) == (1, 1, 1)
        assert [item.level for item in findings_of(fixed, several(cards)) if item.key.startswith("nemo.")] == []
    own = profile(NEMO | MANY | {"nemo.pipeline_parallel": 1, "nemo.context_parallel": 1})
    assert Setup(own, several(8)).model_copies == 2


def test_experts_of_a_recipe_for_more_cards_are_found():
    whole = profile(NEMO | EXPERTS)
    assert findings_of(whole, several(8)) == ()
    one = profile(NEMO | EXPERTS | {"nemo.tensor_parallel": 1, "nemo.pipeline_parallel": 1})
    (finding,) = findings_of(one, several(1))
    assert "distributes its experts over 4 GPUs" in finding.message
    fixed = apply_change(finding.change, one)
    assert findings_of(fixed, several(1)) == ()
    assert "recipe.trainer.strategy.expert_model_parallel_size = 1\n" in written(
        NEMO | EXPERTS | {"nemo.tensor_parallel": 1, "nemo.pipeline_parallel": 1, "nemo.set": fixed.nemo.set},
        several(1),
    )


def test_a_recipes_own_warm_up_stays_and_is_judged_by_the_steps():
    short = NEMO | {"recipe.steps": 40}
    assert "warmup" not in written(short)
    (finding,) = findings_of(profile(short), WITH_NEMO)
    assert "warms up for 500 steps, and 40 steps are trained: its learning rate would reach only 8%" in finding.message
    # A run on random tokens learns nothing at any rate.
    warmups = [
        found for found in findings_of(profile(MOCK | {"recipe.steps": 5}), WITH_NEMO) if found.key == "recipe.warmup"
    ]
    assert warmups == []
    share = "    recipe.optim.lr_scheduler.warmup_steps = int(0.1 * recipe.trainer.max_steps)\n"
    assert share in written(short | {"recipe.warmup": 0.1})
    assert "    recipe.optim.lr_scheduler.warmup_steps = 7\n" in written(short | {"recipe.warmup": 7.0})
    assert "lr_warmup_iters = int(0.1 * config.train.train_iters)" in written(short | {"recipe.warmup": 0.1}, BRIDGE)
    assert 'raise SystemExit("the recipe warms up for more steps' in written(short, BRIDGE)


def test_the_own_values_are_those_of_every_recipe():
    tasks = {"pretrain": ("pretrain",), "finetune": ("lora", "none")}
    known = {
        (name, own)
        for name, does in nemo_models.known_tasks_by_recipe().items()
        for task in does
        for own in tasks[task]
    }
    without = {name for name in nemo_models.known_tasks_by_recipe() if name.startswith(("mamba2_", "nemotronh_"))}
    own = nemo_models.known_defaults_by_recipe_and_task().keys()
    assert own <= known
    # These raise where they are called: no LoRA, or all weights.
    assert {name for name, _ in known - own} <= without | {"nemotron4_340b", "qwen25_72b", "qwen2_72b"}


def test_the_ffn_is_a_size_like_the_others():
    assert "ffn_hidden_size = 512\n" in written(NEMO | MODEL_SIZES)
    for where in (WITH_NEMO, BRIDGE):
        assert "ffn_hidden_size = 700\n" in written(NEMO | MODEL_SIZES | {"recipe.ffn_hidden_size": 700}, where)
        alone = written(NEMO | {"recipe.ffn_hidden_size": 700}, where)
        assert "ffn_hidden_size = 700\n" in alone
        assert ".hidden_size = " not in alone
    loads = profile(FINETUNE | {"recipe.ffn_hidden_size": 700})
    assert {item.key for item in findings_of(loads, WITH_NEMO) if "is set, but not used" in item.message} == {
        "recipe.ffn_hidden_size"
    }


def test_the_estimate_counts_the_size_that_is_chosen():
    where = facts(gpus=(gpu(0),), packages=RECIPES, python="/p")

    def parameters(**sizes):
        chosen = profile(NEMO | {f"recipe.{name}": size for name, size in sizes.items()})
        return workload.derive_workload(Setup(chosen, where)).model.parameters

    whole = parameters()
    assert parameters(layers=12) < whole
    # Three matrices of 896 x 1 a layer.
    assert parameters(ffn_hidden_size=4865) - parameters(ffn_hidden_size=4864) == 24 * 3 * 896
    own = {"layers": 2, "hidden_size": 64, "heads": 4}
    assert parameters(**own, ffn_hidden_size=256) == parameters(**own)


def test_the_tokens_of_a_tokenizer_must_have_rows_in_the_model(tmp_path):
    folder = tmp_path / "tok"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    model = {"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": [{"id": 160000}]}))
    found = nemo_models.read_nemo_tokenizer(str(folder))
    assert (found.kind, found.vocabulary) == ("PreTrainedTokenizerFast", 160001)
    where = msgspec.structs.replace(WITH_NEMO, tokenizers={"/tok": found})
    (finding,) = findings_of(profile(NEMO), where)
    assert apply_change(finding.change, profile(NEMO)).nemo.set == {"model.config.vocab_size": "160001"}
    # A Llama recipe takes the tokenizer's own number.
    assert findings_of(profile(NEMO | {"nemo.recipe": "llama32_1b"}), where) == ()
    assert nemo_models.read_nemo_tokenizer(str(tmp_path)).vocabulary == 0


def test_mock_data_needs_nothing_from_the_network():
    text = written(MOCK | {"nemo.tokenizer": ""})
    assert "    recipe.data.tokenizer = run.Config(NullTokenizer, vocab_size=rows - 1)\n    return recipe\n" in text
    own = written(MOCK | {"nemo.tokenizer": "", "nemo.set": {"model.config.vocab_size": "512"}})
    assert own.index("vocab_size = 512") < own.index("rows = recipe.model.config.vocab_size or 50257")
    assert [item.key for item in findings_of(profile(MOCK | {"nemo.tokenizer": ""}), WITH_NEMO)] == ["nemo.mock_data"]


def test_a_finetune_takes_the_tokenizer_that_is_named():
    said = '    recipe.tokenizer = "data"\n'
    assert said in written(FINETUNE | {"nemo.tokenizer": "/tok"})
    assert said not in written(FINETUNE)
    assert said not in written(NEMO)


def test_mock_data_is_said_wherever_one_looks():
    assert "MOCK DATA" in written(MOCK)
    prepared = prepare_without_errors(profile(MOCK), WITH_NEMO)
    assert "MOCK DATA" in " ".join(prepared.plan.notes)
    assert "# MOCK DATA" in prepared.files[0].text
    assert "MOCK DATA" not in written(NEMO)


def test_automodel_trains_all_weights_without_peft():
    told = yaml.safe_load(written(FINETUNE | {"trainer.model": "/m", "nemo.peft": "none"}, AUTOMODEL))
    assert ("peft" in told, told["step_scheduler"]["global_batch_size"]) == (False, 16)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "qwen25_500m_pretrain_config"),
        ({"nemo.task": "finetune", "nemo.peft": "lora"}, "qwen25_500m_peft_config"),
        ({"nemo.task": "finetune", "nemo.peft": "none"}, "qwen25_500m_sft_config"),
    ],
)
def test_each_task_has_a_recipe_of_its_own_in_megatron_bridge(values, name):
    assert f"    config = recipes.{name}()\n" in written((FINETUNE if values else NEMO) | values, BRIDGE)


def test_a_line_of_megatron_is_read():
    """One of Megatron-Bridge 0.3.1, and one of a step that fp16 skipped, which has no loss."""
    line = (
        " [2026-11-21 07:30:10] iteration        2/      40 | consumed samples:            4 |"
        " elapsed time per iteration (ms): 65.6 | learning rate: 2.000000E-04 | global batch size:     2 |"
        " lm loss: 6.248657E+00 | loss scale: 1.0 | grad norm: 1.487 | number of skipped iterations:   0 |"
    )
    (expression,) = plan(profile(MOCK), BRIDGE).log.expressions
    found = re.search(expression, line).groupdict()
    assert found == {"step": "2", "steps": "40", "lr": "2.000000E-04", "loss": "6.248657E+00"}
    skipped = line.replace(" lm loss: 6.248657E+00 |", "")
    assert re.search(expression, skipped).groupdict() == found | {"loss": None}
    assert re.search(expression, "saving checkpoint at iteration       2 to /out in torch_dist format") is None


def test_a_python_with_megatron_bridge_goes_between_recipes_and_automodel():
    automodel, bridge, toolkit = AUTOMODEL.toolchains[0], BRIDGE.toolchains[0], WITH_NEMO.toolchains[0]
    assert [nemo.nemo_flavour(tool) for tool in (automodel, bridge, toolkit)] == ["automodel", "bridge", "recipes"]
    assert sorted((automodel, bridge, toolkit), key=nemo.flavour_preference_rank) == [toolkit, bridge, automodel]
    both = facts(packages=BRIDGED | {"nemo_automodel": "0.7.0"}).toolchains[0]
    assert nemo.nemo_flavour(both) == "bridge"


def test_a_python_with_recipes_goes_before_one_with_automodel():
    tools = (*AUTOMODEL.toolchains, *facts(python="/recipes", packages=RECIPES).toolchains)
    found = Facts(machine=AUTOMODEL.machine, toolchains=tools)
    assert Setup(profile(NEMO), found).toolchain.python == "/recipes"


def test_the_recipes_that_are_offered_do_the_task():
    setup = Setup(profile(NEMO), WITH_NEMO)
    names = [option.value for option in choices.field_options("nemo.recipe", setup)]
    assert {"qwen25_500m", "llama32_1b", "llama3_8b_64k"} <= set(names)
    finetune = choices.field_options("nemo.recipe", Setup(profile(FINETUNE), WITH_NEMO))
    assert "llama3_8b_64k" not in [option.value for option in finetune]
    known = (*nemo_models.known_tasks_by_recipe(), *nemo_models.known_tasks_by_recipe("bridge"))
    assert all(map(nemo.is_valid_recipe_name, known))
    bridged = choices.field_options("nemo.recipe", Setup(profile(FINETUNE), BRIDGE))
    assert "qwen25_500m" in [option.value for option in bridged]
    assert "deepseek_v3" not in [option.value for option in bridged]


def test_asking_a_python_without_nemo_says_why():
    told = nemo_models.probe_recipes(sys.executable)
    assert told.tasks == {}
    assert "ModuleNotFoundError" in told.problem
    assert "No module named 'megatron'" in nemo_models.probe_recipes(sys.executable, "bridge").problem
    assert nemo_models.probe_recipes("/nowhere/python").problem.startswith("cannot be started")


def test_what_needs_a_missing_library_is_off_and_nothing_else():
    written = {}
    for name, packages in {"bare": BARE, "apex": BARE | {"apex": "0.1"}, "whole": RECIPES}.items():
        text = render_nemo_recipe(plan(profile(NEMO), facts(gpus=(gpu(0),), packages=packages)).nemo)
        written[name] = set(re.findall(r"recipe\.([\w.]+) = False", text))
    fused = {f"model.config.{name}" for name in ("masked_softmax_fusion", "persist_layer_norm", "apply_rope_fusion")}
    assert written["bare"] - written["whole"] == fused | {"optim.config.use_distributed_optimizer"}
    assert written["apex"] - written["whole"] == {"model.config.apply_rope_fusion"}


@pytest.mark.parametrize(
    ("typed", "value"), [("0.1", "0.1"), ("true", "True"), ("None", "None"), ("[1, 'a\\n']", "[1, 'a\\n']")]
)
def test_a_setting_of_ones_own_is_written_as_a_value(typed, value):
    made = plan(profile(NEMO | {"nemo.set": {"model.config.own": typed}}), WITH_NEMO)
    assert f"    recipe.model.config.own = {value}\n    return recipe\n" in render_nemo_recipe(made.nemo)


def test_data_for_validation_and_test_is_told_by_path():
    more = {"trainer.validation_data": ("/v 1.bin", "/v2.bin"), "trainer.test_data": ("/t.bin",)}
    text = render_nemo_recipe(plan(profile(NEMO | more), WITH_NEMO).nemo)
    told = re.search(r"paths=(\{.*?\n        \}),", text, re.DOTALL).group(1)
    assert ast.literal_eval(told) == {"train": ["/a"], "validation": ["/v 1", "/v2"], "test": ["/t"]}


def test_a_checkpoint_that_fits_another_recipe_offers_that_one():
    sizes = nemo_models.known_model_and_sizes_by_recipe()["qwen25_1p5b"].numbers
    found = with_checkpoint(**sizes)
    finding = next(item for item in findings_of(profile(FINETUNE), found) if item.key == "trainer.model")
    assert apply_change(finding.change, profile(FINETUNE)).nemo.recipe in {"qwen25_1p5b", "qwen2_1p5b"}
    own = FINETUNE | {"nemo.set": {f"model.config.{name}": str(size) for name, size in sizes.items()}}
    assert not [item for item in findings_of(profile(own), found) if item.key == "trainer.model"]


def test_a_damaged_checkpoint_is_refused(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "context").mkdir()
    assert "weights/.metadata" in nemo_models.read_nemo_checkpoint(str(tmp_path)).problem
    (tmp_path / "weights" / ".metadata").touch()
    (tmp_path / "context" / "io.json").touch()
    assert nemo_models.read_nemo_checkpoint(str(tmp_path)).problem == ""
    (tmp_path / "context" / "model.yaml").write_text("config: [")
    assert "model.yaml" in nemo_models.read_nemo_checkpoint(str(tmp_path)).problem
    (tmp_path / "context" / "model.yaml").write_text("_target_: a.b.LlamaModel\nconfig: {num_layers: 3}\n")
    assert nemo_models.read_nemo_checkpoint(str(tmp_path)).numbers == {"num_layers": 3}
