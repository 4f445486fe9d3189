"""The disk that checkpoints need, against the disk that is there."""

import msgspec
import pytest
from ssh import survey_this_machine
from support import facts, findings_of, gpu, profile

from screens.discovery.machine_queries import facts_with_answer
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.disk import checkpoint_disk_use
from tui_train.places.profile_facts import ProfileFiles, have_files_changed, probe_profile_facts, read_profile_files
from tui_train.profile.changes import apply_change

GIB = 2**30
PACKAGES = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0", "bitsandbytes": "0.49.0", "deepspeed": "0.19.0"}
QWEN = "Qwen/Qwen2.5-7B"
# Parameters of that model, and of an adapter of rank 16 on all its linear layers.
WHOLE, ADAPTER = 7_615_616_512, 40_370_176
TUNE = {"trainer.kind": "finetune", "trainer.model": QWEN, "trainer.data": ("/d.jsonl",), "recipe.steps": 1000}
FULL = TUNE | {"finetune.tuning": "full"}
TRL = {"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": QWEN, "recipe.steps": 5000}


def where(free=None):
    cards = (gpu(0), gpu(1))
    return msgspec.structs.replace(facts(gpus=cards, packages=PACKAGES), free={} if free is None else {"": free})


def needs(values):
    chosen = profile(values)
    return checkpoint_disk_use(make_setup(chosen, where()))


@pytest.mark.parametrize(
    ("values", "weights", "states"),
    [
        (FULL, 4 * WHOLE, 8 * WHOLE),
        (FULL | {"recipe.optimizer_8bit": True}, 4 * WHOLE, int(WHOLE * 2 * (1 + 4 / 256))),
        (FULL | {"trainer.strategy": "fsdp2"}, 4 * WHOLE, 8 * WHOLE),
        # 16 bits, and beside the states fp32 weights.
        (FULL | {"trainer.strategy": "zero2"}, 2 * WHOLE, 12 * WHOLE),
        (TUNE, 4 * ADAPTER, 8 * ADAPTER),
        (TUNE | {"finetune.tuning": "qlora"}, 2 * ADAPTER, 4 * ADAPTER),
        (FULL | {"trainer.arguments": ("--save_only_model=True",)}, 4 * WHOLE, 0),
        (TRL, 4 * WHOLE, 8 * WHOLE),
    ],
)
def test_a_checkpoint_has_what_is_trained_and_the_states_of_its_optimizer(values, weights, states):
    found = needs(values)
    assert (found.weight_bytes, found.state_bytes) == (weights, states)


@pytest.mark.parametrize(
    ("values", "made", "kept", "at_once"),
    [
        (FULL, 10, 2, 3),
        (FULL | {"recipe.checkpoint_every": 500}, 2, 2, 2),
        (FULL | {"trainer.arguments": ("--save_total_limit=5",)}, 10, 5, 6),
        # The newest and the best.
        (FULL | {"trainer.arguments": ("--save_total_limit", "1"), "data.evaluation": 0.1}, 10, 2, 3),
        (FULL | {"recipe.steps": None}, 0, 2, 3),
        (TRL, 10, 0, 10),
        (TRL | {"recipe.steps": None}, 0, 0, 0),
        (TRL | {"recipe.steps": None, "trainer.arguments": ("--save_strategy=epoch",)}, 3, 0, 3),
        ({"recipe.steps": 60, "recipe.checkpoint_every": 20}, 3, 2, 3),
    ],
)
def test_how_many_checkpoints_there_are_at_a_time(values, made, kept, at_once):
    found = needs(values)
    assert (found.written_count, found.kept_count, found.max_count_at_once) == (made, kept, at_once)


def of_disk(values, free):
    return [one for one in findings_of(profile(values), where(free)) if one.key == "trainer.output"]


def test_what_is_kept_is_lowered_to_what_there_is_room_for():
    (finding,) = of_disk(TRL, 500 * GIB)
    assert finding.level == "warning"
    assert finding.change.edits == (("trainer.arguments", ("--save_total_limit=4",)),)
    chosen = apply_change(finding.change, profile(TRL))
    assert [one for one in findings_of(chosen, where(500 * GIB)) if one.key == "trainer.output"] == []
    (finding,) = of_disk(FULL | {"trainer.arguments": ("--save_total_limit=5", "--lr_scheduler_kwargs={}")}, 200 * GIB)
    assert finding.change.edits == (("trainer.arguments", ("--lr_scheduler_kwargs={}", "--save_total_limit=1")),)


def test_a_checkpoint_that_finds_no_room_keeps_it_from_starting_here_alone():
    (finding,) = of_disk(FULL, 50 * GIB)
    assert (finding.level, finding.start, finding.forbids_plan) == ("error", True, False)
    assert "85.1 GiB" in finding.message
    assert "50.0 GiB" in finding.message


@pytest.mark.parametrize(("values", "free"), [(FULL, 300 * GIB), (TUNE, 2 * GIB), (TRL, None)])
def test_where_there_is_room_or_nothing_is_known_nothing_is_said(values, free):
    assert of_disk(values, free) == []


def test_a_run_that_goes_on_has_its_checkpoints_there_already():
    chosen = profile(FULL | {"trainer.output": "/o"})
    there = msgspec.structs.replace(where(), free={"/o": 100 * GIB}, paths={"/o": "folder"})
    assert not any("needed for" in one.message for one in findings_of(chosen, there))


def test_what_is_free_is_read_where_the_output_will_be(tmp_path):
    out = str(tmp_path / "new" / "out")
    chosen = profile({"trainer.output": out})
    files = read_profile_files(chosen)
    assert set(files.free) == {"", out, files.temporary_folder}
    assert probe_profile_facts(chosen).free[out] is not None
    seen = facts_with_answer(facts(), "paths", read_profile_files(chosen))
    assert (seen.free.keys(), seen.unwritable) == (files.free.keys(), dict.fromkeys((out, files.temporary_folder), ""))


def test_all_that_is_read_of_the_files_of_a_profile_comes_to_the_wizard():
    names = {*ProfileFiles.__struct_fields__} - {"sources"}
    seen = facts_with_answer(facts(), "paths", ProfileFiles(sources={}, **{name: {name: "read"} for name in names}))
    assert not [name for name in names if name not in getattr(seen, name)]


def test_another_host_says_what_is_free_there(tmp_path):
    out = str(tmp_path / "new" / "out")
    question = {"pythons": (), "only_named": True, "paths": (out,), "files": ()}
    answer = survey_this_machine(question)
    assert set(answer.free) == {"", out}
    assert all(answer.free.values())


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        ("trainer.script", "train.py", "{}"),
        ("trainer.config", "config.yaml", "{}"),
        ("trainer.accelerate_config", "accelerate.yaml", "{}"),
        ("trainer.data", "rows.jsonl", ("{}",)),
        ("trainer.model", "config.json", "{folder}"),
        ("finetune.rewards", "mine.py", ("{}:score",)),
    ],
)
def test_a_file_that_is_changed_beside_the_wizard_is_known_to_have_changed(tmp_path, key, name, value):
    file = tmp_path / name
    file.write_text("{}")
    kind = "script" if key in {"trainer.script", "trainer.config", "trainer.accelerate_config"} else "finetune"
    fill = lambda text: text.format(file, folder=tmp_path)  # noqa: E731
    named = tuple(map(fill, value)) if isinstance(value, tuple) else fill(value)
    chosen = profile({"trainer.kind": kind, "finetune.method": "grpo", key: named})
    seen = facts_with_answer(facts(), "paths", read_profile_files(chosen))
    assert not have_files_changed(chosen, seen)
    file.write_text("{} ")
    assert have_files_changed(chosen, seen)
