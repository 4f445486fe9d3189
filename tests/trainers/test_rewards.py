"""Training on rewards by TRL itself: the plan, what is refused before it, and tiny runs of GRPO and RLOO."""

import json
import re
import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from chat_data import user_message, write_rows
from fine_tuning import TUNING_LIBRARIES, finetune_profile
from msgspec.structs import replace
from support import (
    SCRIPTS,
    TRL_PYTHON,
    boxed,
    export_run,
    facts,
    findings_of,
    inside,
    needs_trl,
    plain_environment,
    prepare_without_errors,
    profile,
    run_launch_script,
)
from tiny_trainings import attempt_log_text
from tui_train.screens.run.answer_table import newest_answers

from tui_train.base.command import argv
from tui_train.diagnose.run_diagnosis import diagnose_run
from tui_train.facts.data.data_report import DataReport
from tui_train.facts.data.data_use import facts_key_of_question
from tui_train.facts.machine import probe
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.predict import predict_memory
from tui_train.places.profile_facts import probe_profile_facts
from tui_train.profile import fields, store
from tui_train.profile.rewards import parse_reward, reward_name_problem
from tui_train.profile.types import Profile
from tui_train.runs.results.metrics import read_metrics
from tui_train.runs.status import read_status
from tui_train.setup.recipe.data_questions import question_about_data, training_epoch_size
from tui_train.setup.recipe.no_effect import why_no_effect

pytestmark = pytest.mark.timeout(600)


def rewarded(method="grpo", *rewards, **values):
    return finetune_profile(finetune__method=method, finetune__rewards=rewards or ("/x/my.py:score",), **values)


def plan_of(chosen, **more):
    return prepare_without_errors(chosen, replace(facts(packages=TUNING_LIBRARIES), **more)).plan


# ---- the plan ----------------------------------------------------------------------------------------------------


def test_what_is_chosen_reaches_trl_and_nothing_else():
    values = plan_of(rewarded("grpo", "/x/my.py:score", "accuracy_reward", "lib.sub.fn")).configs[0].values
    assert values["reward_funcs"] == ["my.score", "accuracy_reward", "lib.sub.fn"]
    assert "beta" not in values
    assert not [word for word in argv(plan_of(rewarded()).attempts[0].command, "/run") if "generations" in word]
    chosen = rewarded("rloo", finetune__generations=4, finetune__completion_length=64, finetune__beta=0.0)
    assert plan_of(chosen).configs[0].values["beta"] == 0.0
    words = argv(plan_of(chosen).attempts[0].command, "/run")
    assert words[1:3] == ["-m", "trl.scripts.rloo"]
    assert {"--num_generations=4", "--max_completion_length=64"} < set(words)
    assert not [word for word in words if "completions" in word]
    printed = argv(plan_of(rewarded("rloo", finetune__completions=3)).attempts[0].command, "/run")
    assert {"--log_completions=True", "--num_completions_to_print=3"} < set(printed)
    # What generates has no length of a sequence; an evaluation has all answers to a prompt.
    assert not [word for word in words if word.startswith("--max_length")]
    assert "--per_device_eval_batch_size=4" in words
    assert "--per_device_eval_batch_size=8" in argv(plan_of(rewarded()).attempts[0].command, "/run")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "/run/shim:/x:/y"),
        ({"PYTHONPATH": "/mine"}, "/run/shim:/x:/y:/mine"),
        ({"PYTHONPATH": ""}, "/run/shim:/x:/y"),
    ],
)
def test_rewards_are_found_on_the_python_path(tmp_path, environment, expected):
    names = ("/x/my.py:score", "/x/my.py:other", "/y/two.py:score", "think_format_reward")
    chosen = rewarded("grpo", *names, trainer__environment=environment)
    run, _ = export_run(tmp_path / "run", chosen, facts(packages=TUNING_LIBRARIES))
    shown = run_launch_script(run, "--dry-run", env=plain_environment()).stdout.decode()
    assert re.findall(r"PYTHONPATH=(\S+)", shown)[-1] == expected.replace("/run", str(run.path))


def test_rewards_are_mounted_into_a_container():
    chosen = rewarded(**{key.replace(".", "__"): value for key, value in inside().items()}, hardware__device="cpu")
    made = prepare_without_errors(chosen, boxed(packages=TUNING_LIBRARIES)).plan
    assert any("/x" in str(part.words) for part in made.container.parts)
    (path,) = [each.value for each in made.attempts[0].command.env if each.name == "PYTHONPATH"]
    assert path == "/x"


def test_no_fallback_changes_the_groups_or_the_evaluation():
    rungs = ("eval_batch", "micro_batch")
    made = plan_of(rewarded(data__evaluation=0.1, ladder__rungs=rungs))
    sizes = [re.findall(r"(?:train_batch_size|steps|eval_batch_size)=(\d+)", " ".join(argv(each.command, "/run")))
             for each in made.attempts]  # fmt: skip
    assert sizes == [["4", "4", "8"], ["2", "8", "8"], ["1", "16", "8"]]
    assert "metric_for_best_model" not in made.configs[0].values


SIZES_PATTERN = r"--(?:num_generations|max_completion_length|\w*accumulation_steps|per_device_train_batch_size)=(\d+)"


def test_shorter_and_fewer_answers_need_consent_and_say_what_they_change():
    rungs = ("micro_batch", "completion_length", "generations")
    chosen = rewarded(ladder__rungs=rungs, recipe__micro_batch=2, recipe__global_batch=16)
    assert [each.rung for each in plan_of(chosen).attempts] == ["", "micro_batch"]
    made = plan_of(fields.profile_with_value(chosen, "ladder.consent", rungs[1:]))
    assert [each.title for each in made.attempts if each.rung in rungs[1:]] == [
        "answer length 512 -> 256", "generations 8 -> 4",
    ]  # fmt: skip
    last = " ".join(argv(made.attempts[-1].command, "/run"))
    # Half as many answers are written at once, and a step still learns from as many prompts.
    assert sorted(re.findall(SIZES_PATTERN, last), key=int) == ["1", "4", "8", "256"]


@pytest.mark.parametrize(("generations", "batch"), [(2, 16), (5, 20), (4, 4)])
def test_generations_are_not_halved_where_no_whole_groups_are_left(generations, batch):
    chosen = rewarded(
        finetune__generations=generations, recipe__micro_batch=4, recipe__global_batch=batch,
        ladder__rungs=("generations",), ladder__consent=("generations",),
    )  # fmt: skip
    assert len(plan_of(chosen).attempts) == 1


def test_memory_of_what_is_generated_is_not_claimed():
    found = predict_memory(make_setup(rewarded(), facts(packages=TUNING_LIBRARIES)))
    assert (found.estimate, found.workload.why_unknown) == (
        None,
        "the model writes answers while it trains, whose memory is not modelled",
    )


def test_a_step_takes_as_many_prompts_as_it_has_groups():
    chosen = rewarded(recipe__epochs=2.0, recipe__sequence_length=9)
    setup = make_setup(chosen, facts(packages=TUNING_LIBRARIES))
    question = question_about_data(setup)
    assert (question.length, [each.dotted for each in question.rewards]) == (0, ["my.score"])
    read = DataReport(rows=800, usable=800, format="prompt", all_read=True)
    setup = make_setup(chosen, replace(setup.facts, data={facts_key_of_question(question): read}))
    assert training_epoch_size(setup).steps == 800 * 8 // 16
    # Nothing is kept for evaluations unless that is chosen: each would write answers.
    assert setup.effective_profile.data.evaluation is None
    assert why_no_effect("recipe.sequence_length", setup) == "the fine-tuning does not take it"


def test_rewards_that_are_not_to_be_tried_are_not_asked_for():
    setup = make_setup(rewarded(trainer__allow=("rewards",)), facts(packages=TUNING_LIBRARIES))
    assert question_about_data(setup).rewards == ()
    sft = make_setup(finetune_profile(finetune__rewards=("/x/my.py:f",)), facts(packages=TUNING_LIBRARIES))
    assert question_about_data(sft).rewards == ()
    assert why_no_effect("finetune.rewards", sft) == "only for GRPO and RLOO"


def test_options_of_the_users_own_are_heeded():
    words = ("--reward_model_name_or_path=/rm", "--generation_batch_size=20", "--num_generations=4")
    chosen = finetune_profile(finetune__method="grpo", finetune__generations=5, trainer__arguments=words)
    found = [each for each in findings_of(chosen, facts(packages=TUNING_LIBRARIES)) if each.level == "error"]
    assert [each.message for each in found] == ["--num_generations=4 would override what the plan sets and checks"]
    assert "finetune.generations" in found[0].remedy


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/x/my.py:score", ""), ("accuracy_reward", ""), ("get_soft_overlong_punishment", ""), ("lib.sub.fn", ""),
        ("score", "is neither a reward of TRL nor FILE.py:FUNCTION"), ("/x/my.py", "names no function"),
        ("/x/my:score", "does not name a .py file before the colon"),
        ("/x/my-file.py:score", "has a file name that Python cannot import"),
        ("/x/my.py:", "names no function after the colon"), ("/x/my.py:a.b", "names no function after the colon"),
        ("a..b", "is neither a reward of TRL nor FILE.py:FUNCTION"),
    ],
)  # fmt: skip
def test_a_reward_is_named_by_its_file_or_its_path(text, why):
    assert reward_name_problem(text) == why


def test_a_file_becomes_the_path_that_trl_imports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed = fields.parse_value(fields.get_field("finetune.rewards"), "my.py:score, accuracy_reward lib.fn")
    assert typed == (f"{tmp_path}/my.py:score", "accuracy_reward", "lib.fn")
    assert (parse_reward(typed[0]).dotted, parse_reward(typed[0]).folder) == ("my.score", str(tmp_path))
    # In a profile a relative path is taken from its own folder.
    (tmp_path / "p.toml").write_text('schema = 2\nname = "p"\n[finetune]\nrewards = ["sub/my.py:score"]\n')
    assert store.load_profile_file(str(tmp_path / "p.toml")).finetune.rewards == (f"{tmp_path}/sub/my.py:score",)
    assert fields.profile_with_value(Profile(), "finetune.rewards", typed).finetune.rewards == typed


def test_answers_end_where_the_template_ends_a_turn():
    """Also of a base model, whose tokenizer ends elsewhere: what it writes in the training would never stop."""
    path = Path(__file__).parents[2] / "tui_train/programs/shim/sitecustomize.py"
    shim = runpy.run_path(str(path), run_name="shim")
    numbers = {"<|im_end|>": 257, "<|endoftext|>": 258}

    class Tokenizer:
        eos_token = "<|endoftext|>"  # noqa: S105 - of a text, not of a login

        @property
        def eos_token_id(self):
            return numbers[self.eos_token]

        def get_vocab(self):
            return numbers

    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=258))
    trainer = SimpleNamespace(processing_class=Tokenizer(), model=model, eos_token_ids=[258])
    ends = trainer.eos_token_ids
    shim["TurnEndToken"]("<|im_end|>").set_as_tokenizer_end(trainer)
    assert ends == model.generation_config.eos_token_id == [257, 258]


# ---- TRL itself --------------------------------------------------------------------------------------------------

REWARDS = """
def letters(completions, target, **kwargs):
    texts = [each if isinstance(each, str) else each[0]["content"] for each in completions]
    return [text.count("a") - abs(len(text) - one) / 50 for text, one in zip(texts, target)]

def raises_later(completions, trainer_state, **kwargs):
    return [1 / (1 - trainer_state.global_step)] * len(completions)

def too_large(completions, completion_ids, **kwargs):
    longest = max(map(len, completion_ids))
    if len(completions) > 4 or longest > 5:
        import torch
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {longest}.00 GiB. GPU 0 has 8 GiB")
    return [float(len(each)) for each in completion_ids]

def short_later(completions, trainer_state, **kwargs):
    return [0.0] * (len(completions) - trainer_state.global_step)
"""


@pytest.fixture(scope="module")
def trl():
    return probe.probe_toolchain(TRL_PYTHON)


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat") / "model"
    subprocess.run([TRL_PYTHON, str(SCRIPTS / "chat_model.py"), str(folder)], check=True, capture_output=True)
    return folder


def tiny(folder, model, reward="letters", *, chat=True, **values):
    """A profile of a training of few steps, on rows and a reward of the user's own."""
    rows = [{"prompt": [user_message(f"Say {n}")] if chat else f"Say {n}:", "target": n} for n in range(12)]
    (folder / "my_rewards.py").write_text(REWARDS)
    usual = {
        "trainer.kind": "finetune", "trainer.python": TRL_PYTHON, "trainer.model": str(model), "hardware.device": "cpu",
        "trainer.data": (str(write_rows(folder / "d.jsonl", rows)),), "finetune.method": "grpo",
        "finetune.rewards": (f"{folder}/my_rewards.py:{reward}",), "finetune.generations": 4,
        "finetune.completion_length": 10, "recipe.steps": 3, "recipe.micro_batch": 4, "recipe.global_batch": 8,
        "recipe.checkpoint_every": 2, "ladder.rungs": ("micro_batch",),
    }  # fmt: skip
    return profile(usual, **values)


def launch(folder, chosen, trl):
    run, _ = export_run(folder, chosen, replace(facts(), toolchains=(trl,)))
    return run, relaunch(run)


def relaunch(run):
    environment = plain_environment(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=f"{run.path}-c", ACCELERATE_USE_CPU="true")
    return run_launch_script(run, env=environment, timeout=500)


@needs_trl
@pytest.mark.whole
@pytest.mark.parametrize(("method", "tuning", "chat"), [("grpo", "lora", True), ("rloo", "full", False)])
def test_a_reward_of_the_users_is_learned_from(tmp_path, chat_model, trl, method, tuning, chat):  # noqa: PLR0913, PLR0917 - fixtures and what is varied
    more = {"finetune__method": method, "finetune__tuning": tuning, "finetune__beta": 0.1, "finetune__completions": 2}
    evaluated = {"data__evaluation": 0.25} if tuning == "full" else {}
    chosen = tiny(tmp_path, chat_model, chat=chat, **more, **evaluated)
    found = probe_profile_facts(chosen)
    (read,) = found.data.values()
    assert (read.format, [each.problem for each in read.rewards]) == ("prompt", [""])
    assert not [each for each in findings_of(chosen, found) if each.level == "error"]
    run, done = launch(tmp_path / "run", chosen, trl)
    assert done.returncode == 0, attempt_log_text(run, 1)[-3000:]
    metrics = read_metrics(run)
    for name in ("reward", "reward_std", "completions/mean_length", "frac_reward_zero_std"):
        assert metrics.series_named(name).newest[0] == 3, name
    assert ("eval_reward" in attempt_log_text(run, 1)) is (tuning == "full")
    shown = newest_answers(attempt_log_text(run, 1).split("\n"))
    assert (shown.step, shown.names) == ("3", ("Prompt", "Completion", "letters", "Advantage"))
    assert len(shown.rows) == 2
    for prompt, _, reward, advantage in shown.rows:
        assert re.fullmatch(r"USER\nSay \d+" if chat else r"Say \d+:", prompt)
        assert abs(float(reward)) < 9
        assert abs(float(advantage)) < 9
    weights = "adapter_model.safetensors" if tuning == "lora" else "model.safetensors"
    assert (run.path / "output" / weights).stat().st_size > 1000


@needs_trl
@pytest.mark.whole
@pytest.mark.parametrize(
    ("reward", "said"),
    [("raises_later", "my_rewards.py, in raises_later"), ("short_later", "returned 7 values for 8 answers")],
)
def test_a_reward_that_fails_in_the_training_is_named(tmp_path, chat_model, trl, reward, said):
    run, done = launch(tmp_path / "run", tiny(tmp_path, chat_model, reward), trl)
    assert done.returncode != 0
    cause = diagnose_run(run)
    assert said in f"{cause.cause} {cause.remedy}"


@needs_trl
@pytest.mark.whole
def test_answers_become_shorter_and_fewer_until_their_memory_is_enough(tmp_path, chat_model, trl):
    rungs = ("micro_batch", "completion_length", "generations")
    more = {"ladder__rungs": rungs, "ladder__consent": rungs[1:], "recipe__micro_batch": 2, "recipe__steps": 1}
    chosen = tiny(tmp_path, chat_model, "too_large", trainer__allow=("rewards",), **more)
    run, done = launch(tmp_path / "run", chosen, trl)
    assert done.returncode == 0, attempt_log_text(run, 4)[-3000:]
    planned = run.plan()["attempts"]
    assert [planned[each.position - 1]["rung"] for each in read_status(run).attempts] == ["", *rungs]
    assert "'completions/max_length': '5'" in attempt_log_text(run, 4)


@needs_trl
@pytest.mark.whole
def test_a_training_on_rewards_resumes(tmp_path, chat_model, trl):
    run, done = launch(tmp_path / "run", tiny(tmp_path, chat_model, "raises_later", recipe__checkpoint_every=1), trl)
    assert done.returncode != 0
    code = Path(tmp_path / "my_rewards.py")
    code.write_text(code.read_text().replace("1 / (1 - ", "1 / (9 - "))
    done = relaunch(run)
    assert done.returncode == 0, attempt_log_text(run, 2)[-3000:]
    assert "resumes from" in done.stdout.decode()
    assert len(re.findall(r"'reward': ", attempt_log_text(run, 2))) == 2
    assert json.loads((run.path / "output/checkpoint-3/trainer_state.json").read_text())["global_step"] == 3
