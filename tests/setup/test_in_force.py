"""Values that nobody chose: kept as the trainer's file, arguments and defaults have them, and shown."""

import json

import msgspec
import pytest
import yaml
from support import SCRIPTS, export_run, facts, findings_of, gpu, plain_environment, plan, profile, run_launch_script
from yaml_configs import AXOLOTL_CONFIG, CONFIG_BY_PRESET, LLAMA_FACTORY_CONFIG, TWO_CARD_FACTS, profile_with_config

from tui_train.base.command import argv, word_in_run_dir
from tui_train.profile import store
from tui_train.profile.changes import apply_change
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, accepted_placeholders, shipped_presets
from tui_train.profile.types import Profile, Recipe
from tui_train.setup.recipe.effective_values import EffectiveValue
from tui_train.setup.setup import Setup
from tui_train.views import plain_text

OURS = {"resume_from_checkpoint"}


def changed(before, after):
    """The keys, with dots between levels, whose values differ, and their new values."""
    flat = {}
    for side, values in enumerate((before, after)):
        stack = [("", values)]
        while stack:
            at, value = stack.pop()
            if isinstance(value, dict):
                stack += [(f"{at}.{key}".lstrip("."), inner) for key, inner in value.items()]
            else:
                flat.setdefault(at, [None, None])[side] = value
    return {key: new for key, (old, new) in flat.items() if old != new}


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        *((name, {}, {}) for name in CONFIG_BY_PRESET),
        ("llama-factory", {"recipe.learning_rate": 2e-4}, {"learning_rate": 2e-4}),
        ("llama-factory", {"recipe.steps": 7}, {"max_steps": 7}),
        ("llama-factory", {"recipe.precision": "fp16"}, {"bf16": False, "fp16": True}),
        ("llama-factory", {"recipe.activation_checkpointing": False}, {"disable_gradient_checkpointing": True}),
        ("llama-factory", {"recipe.global_batch": 64}, {"gradient_accumulation_steps": 16}),
        ("llama-factory", {"recipe.checkpoint_every": 5}, {"save_strategy": "steps", "save_steps": 5}),
        ("llama-factory", {"trainer.output": "/o"}, {"output_dir": "/o"}),
        ("llama-factory", {"recipe.lr_scaling": "linear", "recipe.lr_base_batch": 16}, {"learning_rate": 2e-5}),
        ("axolotl", {"recipe.micro_batch": 4}, {"micro_batch_size": 4}),
        ("axolotl", {"recipe.micro_batch": 4, "recipe.global_batch": 16},
         {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "batch_size": None}),
        ("axolotl", {"recipe.seed": 3}, {"seed": 3}),
        ("axolotl", {"recipe.checkpoint_every": 5},
         {"save_strategy": "steps", "save_steps": 5, "saves_per_epoch": None}),
        ("total-batch-yaml", {"recipe.micro_batch": 8}, {"training.batch_size": 16}),
        ("total-batch-yaml", {"recipe.global_batch": 32}, {"training.accumulation_steps": 1}),
    ],
)  # fmt: skip
def test_only_what_is_chosen_differs(tmp_path, name, values, wanted):
    chosen, found = profile_with_config(tmp_path, name, **values)
    before = found.documents[chosen.trainer.config].values
    after = changed(before, plan(chosen, found).configs[0].values)
    assert {key: value for key, value in after.items() if key not in OURS} == wanted


def test_a_global_batch_that_is_no_longer_the_files_is_said(tmp_path):
    one = {"recipe.micro_batch": 1}
    for values, said in (
        (one, True),
        ({}, False),
        ({"recipe.micro_batch": 2}, False),
        (one | {"recipe.global_batch": 32}, False),
    ):
        notes = plan(*profile_with_config(tmp_path, "llama-factory", **values)).notes
        assert any("The global batch is 16, no longer 32 (from mine.yaml)" in note for note in notes) == said


def test_what_holds_is_shown_with_where_it_comes_from(tmp_path):
    chosen, found = profile_with_config(tmp_path, "llama-factory")
    said = plain_text.plan_text(plan(chosen, found))
    assert "micro batch 2 × accumulation 8 × 2 processes = global batch 32 (from mine.yaml)" in said
    assert "learning rate 1e-05 (from mine.yaml), 3 epochs (from mine.yaml)" in said
    held = Setup(chosen, found).effective_values
    told = {name: (held[name].value, held[name].source) for name in ("precision", "sequence_length", "seed", "steps")}
    assert told == {
        "precision": ("bf16", "from mine.yaml"), "sequence_length": (4096, "from mine.yaml"),
        "seed": (42, "LLaMA-Factory's default"), "steps": (None, "from mine.yaml"),
    }  # fmt: skip
    chosen = profile({"recipe.learning_rate": 2e-4}, chosen)
    assert "learning rate 0.0002, 3 epochs (from mine.yaml)" in plain_text.plan_text(plan(chosen, found))
    auto, found = profile_with_config(tmp_path, "axolotl")
    assert Setup(auto, found).effective_values["precision"] == EffectiveValue(None, "from mine.yaml", "auto")


def test_fallbacks_begin_with_what_holds_and_change_nothing_else(tmp_path):
    chosen, found = profile_with_config(tmp_path, "llama-factory", **{"ladder.rungs": ("micro_batch",)})
    first, second = plan(chosen, found).configs
    assert changed(first.values, second.values) == {
        "per_device_train_batch_size": 1, "gradient_accumulation_steps": 16,
    }  # fmt: skip
    # Where the batch is not known, it says so in place of changing the training.
    chosen, found = profile_with_config(tmp_path, "axolotl", **{"ladder.rungs": ("micro_batch",)})
    assert len(plan(chosen, found).attempts) == 1
    (note,) = [item for item in findings_of(chosen, found) if item.key == "recipe.micro_batch"]
    assert (note.level, "no smaller batch can be tried" in note.message) == ("note", True)


@pytest.mark.parametrize(("name", "folder"), [("llama-factory", "saves/qwen"), ("axolotl", "/data/out")])
def test_checkpoints_are_looked_for_where_the_file_has_them_written(tmp_path, name, folder):
    chosen, found = profile_with_config(tmp_path, name)
    made = plan(chosen, found)
    assert made.attempts[0].checkpoints.folder == str(tmp_path / folder)
    assert made.output == str(tmp_path / folder)
    there = msgspec.structs.replace(found, paths={str(tmp_path / folder): "folder"})
    assert any("exists already" in item.message for item in findings_of(chosen, there))
    # Another method has a folder of its own, which the file is then told.
    lora = {"ladder.rungs": ("lora",), "ladder.consent": ("lora",)}
    text = CONFIG_BY_PRESET[name].replace("finetuning_type: lora", "finetuning_type: full")
    chosen, found = profile_with_config(tmp_path, name, text, **lora)
    packages = {"peft": "0.18", "llamafactory": "0.9.5", "axolotl": "0.19.0"}
    found = msgspec.structs.replace(found, toolchains=facts(packages=packages).toolchains)
    fell = plan(chosen, found)
    assert [attempt.rung for attempt in fell.attempts] == ["", "lora"]
    assert fell.configs[-1].values["output_dir"] == f"{tmp_path / folder}-lora"
    assert fell.attempts[-1].checkpoints.folder == f"{tmp_path / folder}-lora"


def test_a_checkpoint_of_your_file_holds_until_there_is_a_newer_one(tmp_path):
    folder = tmp_path / "my project"
    modules = folder / "modules" / "llamafactory"
    modules.mkdir(parents=True)
    (modules / "launcher.py").write_text((SCRIPTS / "noted.py").read_text())
    variables = {"NOTES": str(tmp_path), "PYTHONPATH": str(modules.parent)}
    text = LLAMA_FACTORY_CONFIG + "resume_from_checkpoint: 'saves/it''s\\old'\n"
    more = {"trainer.environment": variables, "hardware.device": "cpu", "ladder.rungs": ()}
    chosen, found = profile_with_config(folder, "llama-factory", text, **more)
    run, _ = export_run(tmp_path / "run", chosen, found)

    def seen():
        assert run_launch_script(run, env=plain_environment(), timeout=120).returncode == 0, run.attempt_log(
            1
        ).read_text()
        (path,) = tmp_path.glob("*.json")
        (told,) = json.loads(path.read_text())["files"].values()
        return yaml.safe_load(told)["resume_from_checkpoint"]

    assert seen() == "saves/it's\\old"
    newer = folder / "saves" / "qwen" / "checkpoint-5"
    newer.mkdir(parents=True)
    (newer / "trainer_state.json").write_text("{}")
    assert seen() == str(newer)


def test_your_own_arguments_hold(tmp_path):
    words = ("--learning_rate", "3e-4", "--per_device_train_batch_size=4", "--bf16", "--output_dir=out")
    values = {"trainer.kind": "script", "trainer.script": "/src/t.py", "trainer.arguments": words}
    made = plan(profile(values), TWO_CARD_FACTS)
    assert made.numbers[0] == "learning rate 0.0003 (from your arguments)"
    assert made.attempts[0].batch == (
        "micro batch 4 x accumulation 1 x 2 processes = global batch 8 (from your arguments)"
    )
    assert made.attempts[0].checkpoints.folder == "/src/out"
    assert not [word for word in argv(made.attempts[0].command, "/run") if word.startswith("--output_dir=/run")]
    assert Setup(profile(values), TWO_CARD_FACTS).effective_values["precision"].value == "bf16"
    # The batch is said where no fallback can lower it.
    assert {attempt.rung for attempt in made.attempts} & {"micro_batch"} == set()
    assert any("no smaller one can be tried" in item.message for item in findings_of(profile(values), TWO_CARD_FACTS))
    # Without words of one's own the run folder's is passed: where checkpoints are must be known.
    other = plan(profile({**values, "trainer.arguments": ()}), TWO_CARD_FACTS)
    assert other.attempts[0].checkpoints.folder == word_in_run_dir("output")


@pytest.mark.parametrize("name", shipped_presets())
def test_a_preset_knows_defaults_of_what_it_passes_only(name):
    found = shipped_presets()[name]
    passed = {KEY_BY_PLACEHOLDER[placeholder].removeprefix("recipe.") for placeholder in accepted_placeholders(found)}
    assert found.defaults.keys() <= passed | {"accumulation", "global_batch"}
    assert all(name in Recipe.__struct_fields__ for name in found.defaults.keys() - {"accumulation"})


def test_defaults_of_a_module_are_not_those_of_a_script():
    values = {"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": "/m"}
    assert Setup(profile(values), TWO_CARD_FACTS).effective_profile.recipe.learning_rate == 2e-5
    mine = Setup(profile({**values, "trainer.script": "/mine.py"}), TWO_CARD_FACTS)
    assert mine.effective_profile.recipe.learning_rate is None
    assert mine.effective_values["learning_rate"] == EffectiveValue(None, "up to the script")


def test_defaults_of_ours_follow_what_is_chosen():
    for processes, whole in ((1, 16), (2, 16), (3, 24), (5, 40)):
        made = plan(profile({"hardware.processes": processes, "trainer.launcher": "torchrun"}), facts())
        assert made.global_batch == whole
    assert plan(profile({"recipe.micro_batch": 20}), facts()).global_batch == 20


def test_what_is_not_in_a_file_was_not_chosen():
    assert store.profile_to_toml(Profile()) == 'schema = 2\nname = "quickstart"\n'
    assert store.profile_from_toml("[recipe]\nsteps = 5\n").recipe == Recipe(steps=5)
    assert profile({"recipe.steps": None}, store.profile_from_toml("[recipe]\nsteps = 5\n")) == Profile()


def test_trl_is_told_its_data():
    values = {"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": "/m"}
    found = msgspec.structs.replace(TWO_CARD_FACTS, paths={"/a.jsonl": "file", "/b b.jsonl": "file"})
    made = plan(profile({**values, "trainer.data": ("/a.jsonl", "/b b.jsonl")}), found)
    (config,) = made.configs
    assert config.values == {"datasets": [{"path": "json", "data_files": ["/a.jsonl", "/b b.jsonl"], "split": "train"}]}
    for attempt in made.attempts:
        words = argv(attempt.command, "/run")
        assert words[words.index("--config") + 1] == f"/run/{config.path}"
    bare = plan(profile(values), TWO_CARD_FACTS)
    assert bare.configs == ()
    assert "--config" not in argv(bare.attempts[0].command, "/run")


def test_a_precision_of_a_file_is_checked_as_a_chosen_one_is(tmp_path):
    old = facts(gpus=(gpu(0, compute_capability="7.5", name="NVIDIA T4"),), packages={"llamafactory": "0.9.5"})
    chosen, found = profile_with_config(tmp_path, "llama-factory")
    old = msgspec.structs.replace(old, documents=found.documents)
    (finding,) = [item for item in findings_of(chosen, old) if item.key == "recipe.precision"]
    assert (finding.level, "bf16 (from mine.yaml)" in finding.message) == ("error", True)
    fixed = apply_change(finding.change, chosen)
    assert changed(found.documents[chosen.trainer.config].values, plan(fixed, old).configs[0].values).items() >= {
        ("bf16", False), ("fp16", True),
    }  # fmt: skip
    trl = profile({"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": "/m"})
    assert [item.level for item in findings_of(trl, old) if item.key == "recipe.precision"] == ["warning"]


def fell(values, found=TWO_CARD_FACTS):
    """The rungs of the attempts at a profile."""
    return [attempt.rung for attempt in plan(profile(values), found).attempts]


SCRIPT = {"trainer.kind": "script", "trainer.script": "/t.py"}
TRL = {"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": "/m"}


def test_a_batch_that_is_only_a_librarys_default_is_not_lowered_for_a_script_of_ones_own():
    values = {**SCRIPT, "ladder.rungs": ("micro_batch",)}
    assert fell(values) == [""]
    (note,) = findings_of(profile(values), TWO_CARD_FACTS)
    assert (note.level, note.key) == ("note", "recipe.micro_batch")
    assert fell({**values, "recipe.micro_batch": 4, "recipe.global_batch": 8}) == ["", *["micro_batch"] * 2]
    # Of a module the defaults are its own.
    assert fell({**TRL, "ladder.rungs": ("micro_batch",)}) == ["", *["micro_batch"] * 3]


def test_a_rung_that_your_own_words_would_undo_is_left_out():
    words = ("--max_length=4096", "--gradient_checkpointing=False")
    rungs = {"ladder.rungs": ("activation_checkpointing", "sequence_length"), "ladder.consent": ("sequence_length",)}
    assert fell({**TRL, **rungs, "trainer.arguments": words}) == [""]
    assert "sequence_length" in fell({**TRL, **rungs})


def test_a_value_of_another_form_is_not_replaced(tmp_path):
    text = AXOLOTL_CONFIG + "gradient_checkpointing: offload\n"
    chosen, found = profile_with_config(tmp_path, "axolotl", text, **{"ladder.rungs": ("activation_checkpointing",)})
    assert [attempt.rung for attempt in plan(chosen, found).attempts] == [""]
    assert plan(chosen, found).configs[0].values["gradient_checkpointing"] == "offload"


def test_a_configuration_among_the_arguments_is_not_passed_over():
    chosen = profile({**TRL, "trainer.arguments": ("--x", "--config", "/my.yaml")})
    (finding,) = [item for item in findings_of(chosen, TWO_CARD_FACTS) if item.level == "error"]
    assert "does not read the file" in finding.message
    fixed = apply_change(finding.change, chosen)
    assert (fixed.trainer.config, fixed.trainer.arguments) == ("/my.yaml", ("--x",))


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"recipe.precision": "fp16"}, "bf16=true"),
        ({"recipe.learning_rate": 1e-4}, "learning_rate=5e-6"),
        ({"recipe.activation_checkpointing": False}, "disable_gradient_checkpointing=false"),
        ({"recipe.lora": True}, "finetuning_type=full"),
    ],
)
def test_words_of_a_yaml_trainer_do_not_overrule_what_is_set(tmp_path, values, word):
    chosen, found = profile_with_config(tmp_path, "llama-factory", **values, **{"trainer.arguments": (word,)})
    assert any(f"{word} in your arguments overrides" in item.message for item in findings_of(chosen, found))


def test_deepspeed_is_not_told_an_accumulation_that_nobody_knows():
    values = {**SCRIPT, "trainer.preset": "custom", "trainer.strategy": "zero2", "trainer.launcher": "accelerate"}
    found = facts(gpus=(gpu(0), gpu(1)), packages={"deepspeed": "0.19"})
    assert any("must know the gradient accumulation" in item.message for item in findings_of(profile(values), found))


def test_an_output_folder_that_is_not_passed_is_said():
    values = {**SCRIPT, "trainer.preset": "custom", "trainer.output": "/out", "ladder.rungs": ()}
    (finding,) = findings_of(profile(values), TWO_CARD_FACTS)
    assert (finding.level, finding.key) == ("warning", "trainer.output")


@pytest.mark.parametrize(
    ("preset", "values", "processes", "words", "edits"),
    [
        ("total-batch-yaml", {}, 3, "training.batch_size 32 (from mine.yaml) is for all 3 processes",
         {"recipe.micro_batch": 11}),
        ("total-batch-yaml", {}, 4, "", None),
        ("total-batch", {"trainer.arguments": ("--batch_size=31",)}, 3, "batch_size 31 (from your arguments)",
         {"recipe.micro_batch": 10}),
        # nanoGPT divides its accumulation, and asserts that this is whole.
        ("nanogpt", {"trainer.arguments": ("--batch_size=4", "--gradient_accumulation_steps=40")}, 3,
         "gradient_accumulation_steps 40 (from your arguments)", {"recipe.global_batch": 13 * 3 * 4}),
        ("nanogpt", {"trainer.arguments": ("--batch_size=4", "--gradient_accumulation_steps=40")}, 2, "", None),
    ],
)  # fmt: skip
def test_a_total_that_the_processes_do_not_divide_is_a_finding(  # noqa: PLR0913, PLR0917 - a table
    tmp_path, preset, values, processes, words, edits
):
    more = {"hardware.device": "cpu", "hardware.processes": processes, **values}
    chosen, where = profile(SCRIPT | {"trainer.preset": preset} | more), TWO_CARD_FACTS
    if preset == "total-batch-yaml":
        chosen, where = profile_with_config(tmp_path, preset, **more)
    found = [item for item in findings_of(chosen, where) if "cannot be divided among them" in item.message]
    assert [(item.level, words in item.message, dict(item.change.edits)) for item in found] == (
        [("error", True, edits)] if edits else []
    )
    if edits and preset == "total-batch-yaml":
        fixed = apply_change(found[0].change, chosen)
        assert not [item for item in findings_of(fixed, where) if item.level == "error"]
        size = plan(fixed, where).configs[0].values["training"]["batch_size"]
        assert size == edits["recipe.micro_batch"] * processes
