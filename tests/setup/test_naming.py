"""What a run is called whose profile the user did not name."""

import pytest
from support import profile

from tui_train.profile.store import require_usable_profile_name
from tui_train.profile.types import Profile
from tui_train.setup.profile_summary import chosen_or_derived_name, training_summary


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "quickstart"),
        ({"trainer.data": ("/data/books.txt",)}, "books-pretrain"),
        ({"trainer.model": "/models/SmolLM2-360M", "trainer.data": ("/d/chat.jsonl",)}, "smollm2-360m-chat-finetune"),
        ({"trainer.kind": "script", "trainer.script": "/a/own_trainer.py"}, "own-trainer"),
        ({"trainer.kind": "script", "trainer.script": "/a/nanoGPT/train.py"}, "nanogpt-train"),
        ({"trainer.kind": "script", "trainer.preset": "axolotl", "trainer.config": "/a/qwen-sft.yaml"}, "qwen-sft"),
        ({"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": "/m/Qwen2.5-0.5B/",
          "trainer.data": ("/d/chat.jsonl",), "recipe.lora": True}, "qwen2.5-0.5b-chat-lora"),
        ({"trainer.kind": "nemo", "nemo.recipe": "llama3_8b", "nemo.task": "finetune"}, "llama3-8b-lora"),
        ({"name": "mine", "trainer.data": ("/data/books.txt",)}, "mine"),
        ({"trainer.data": ("/data/ \u202e中文\n$(x).txt",)}, "x-pretrain"),
        ({"trainer.kind": "script", "trainer.script": "/中/文.py"}, "quickstart"),
        ({"trainer.data": (f"/data/{'long' * 30}.txt",)}, "longlonglonglonglonglonglonglonglonglong"),
    ],
)  # fmt: skip
def test_names_say_what_is_trained(values, name):
    found = chosen_or_derived_name(profile(values))
    assert found == name
    require_usable_profile_name(found)


def test_a_summary_names_files_without_folders():
    several = {"trainer.data": ("/d/a.txt", "/d/b.txt", "/d/c.txt"), "trainer.model": "/m/tiny/"}
    found = training_summary(profile(several))
    assert (found.method, found.model, found.data) == ("finetune", "tiny", "a.txt, b.txt + 1")
    assert training_summary(Profile()).method == "pretrain"
    own = {"trainer.kind": "script", "trainer.preset": "custom", "trainer.data": ("/d/a.txt",)}
    assert training_summary(profile({**own, "trainer.script": "/s/train.py"})).text == "train.py, a.txt"
    assert training_summary(profile({**own, "trainer.config": "/s/sft.yaml"})).text == "sft.yaml, a.txt"
    assert training_summary(profile({"trainer.script": "/s/unused.py"})).text == "pretrain"
