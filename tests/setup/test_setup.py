"""Setup: what a profile means on a machine, once; attempts of a plan share all but their effective profile."""

from pathlib import Path

import msgspec
import pytest
from support import facts, gpu, profile

from tui_train.facts.types import Facts, ScriptSource
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.ladder.attempt_order import attempts_with_fallbacks
from tui_train.memory.predict import predict_memory
from tui_train.profile import store
from tui_train.setup import setup as module
from tui_train.setup.setup import Setup

CASES = sorted(path.parent for path in (Path(__file__).parents[1] / "cases").glob("*/profile.toml"))
MACHINE = (
    "toolchain", "gpu_verdicts", "gpus", "device", "launcher", "first_machine_process_count", "world_size",
    "model_copies", "communication_backend", "launcher_config", "is_slurm_job",
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_attempt_is_what_a_setup_of_its_profile_would_be(monkeypatch, case):
    found = msgspec.json.decode((case / "facts.json").read_bytes(), type=Facts)
    setup = make_setup(store.load_profile_file(str(case / "profile.toml")), found)
    rungs = [step.profile for step in attempts_with_fallbacks(setup.effective_profile, setup.ladder_context)]
    separate = [Setup(rung, found) for rung in rungs]
    alone = [predict_memory(each) for each in separate]
    wanted = [[getattr(each, name) for name in MACHINE] for each in separate]
    picked = []
    monkeypatch.setattr(module, "pick_toolchain", lambda *words: picked.append(words))
    shared = [setup.for_attempt(rung) for rung in rungs]
    assert [[getattr(each, name) for name in MACHINE] for each in shared] == wanted
    assert [predict_memory(each) for each in shared] == alone
    assert not picked, "no attempt chooses a Python again"
    # A batch that holds by a default is no choice of the user's, though each attempt names it.
    assert {each.ladder_context.is_batch_unset for each in shared} == {setup.ladder_context.is_batch_unset}


def test_what_cannot_be_known_is_a_value():
    setup = make_setup(profile({"trainer.kind": "script", "trainer.preset": "no-such"}), facts())
    assert "no-such" in setup.preset_error.message
    assert setup.toolchain is not None, "the machine half is known all the same"
    with pytest.raises(type(setup.preset_error)):
        _ = setup.effective_profile
    assert make_setup(profile({}), facts()).preset_error is None


def test_a_question_is_asked_once_and_of_each_attempt_by_itself():
    setup, asked = make_setup(profile({}), facts()), []

    def length(at):
        asked.append(at)
        return at.effective_profile.recipe.sequence_length

    assert setup.cached_answer(length) == setup.cached_answer(length)
    recipe = msgspec.structs.replace(setup.effective_profile.recipe, sequence_length=17)
    other = setup.for_attempt(msgspec.structs.replace(setup.effective_profile, recipe=recipe))
    assert (other.cached_answer(length), other.effective_profile_of_first_attempt.recipe.sequence_length) == (
        17,
        setup.effective_profile.recipe.sequence_length,
    )
    assert asked == [setup, other]


def test_a_script_that_makes_no_process_group_gets_the_fastest_gpu():
    slow = gpu(0, name="NVIDIA GeForce RTX 3080", sm_count=68, sm_clock_max=1900)
    cards = (slow, gpu(1, sm_clock_max=1900))
    known = msgspec.structs.replace(facts(gpus=cards), sources={"/t.py": ScriptSource(no_process_group=True)})
    own = {"trainer.kind": "script", "trainer.script": "/t.py", "trainer.preset": "custom"}
    setup = make_setup(profile(own), known)
    assert (setup.launcher, setup.world_size, setup.gpus) == ("python", 1, cards[1:])
    named = make_setup(profile(own | {"hardware.gpus": ("0", "1")}), known)
    assert (named.launcher, named.world_size, named.gpus) == ("torchrun", 2, cards)
