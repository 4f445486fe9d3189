"""A model whose sizes are not known: its config.json is fetched alone, with consent, and gives the estimate."""

import json
import re
from pathlib import Path

import click
import msgspec
import pytest
from hub import MAIN_COMMIT, FakeHub
from pilot import PRETRAIN_KEY, THREE_CARD_MACHINE, press_keys, screen_text, wait_for_workers
from support import facts, gpu, profile

from tui_train.actions import model_config
from tui_train.base.errors import BadInput, Unavailable
from tui_train.cli.plans.plans import facts_with_fetched_config
from tui_train.facts.models import hub as hub_facts
from tui_train.facts.models.hub import MAX_CONFIG_BYTES
from tui_train.facts.models.hub_child import ask_hub_for_model_config
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.predict import predict_memory
from tui_train.places.place import Place
from tui_train.wizard import make_wizard

CONFIG = json.dumps({
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "vocab_size": 32000,
    "num_attention_heads": 16, "torch_dtype": "bfloat16",
}).encode()  # fmt: skip
CHOSEN = {
    "trainer.kind": "script", "trainer.preset": "trl", "trainer.script": "/train.py", "trainer.model": "acme/new",
    "recipe.micro_batch": 1, "recipe.global_batch": 1,
}  # fmt: skip


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with a model that is not known, and a cache of this test's own."""
    models = {
        "acme/new": {"config.json": CONFIG, "model.safetensors": bytes(5000)},
        "acme/gated": {"config.json": CONFIG},
        "acme/bare": {"model.gguf": b"gg"},
        "acme/large": {"config.json": b"[" * (MAX_CONFIG_BYTES + 1)},
        "acme/odd": {"config.json": b"<html>"},
    }
    with FakeHub(models, revisions={("acme/new", "v1"): {"config.json": CONFIG}}, gated=["acme/gated"]) as stood_in:
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_ENDPOINT", stood_in.url)
        yield stood_in


def here(chosen):
    """The facts of a machine with a card and the cache that there is."""
    return msgspec.structs.replace(facts(gpus=(gpu(0),)), hub=hub_facts.read_hub_cache(hub_facts.hub_variables(chosen)))


def fetched(chosen):
    return model_config.fetch_model_config(chosen, here(chosen).hub, chosen.trainer.model)


def test_config_json_alone_is_fetched_and_gives_the_estimate(hub, capsys):
    chosen = profile(CHOSEN)
    before = here(chosen)
    assert predict_memory(make_setup(chosen, before)).workload.unknown_model == "acme/new"
    after = facts_with_fetched_config(chosen, before, Place())
    found = predict_memory(make_setup(chosen, after))
    assert (found.workload.model.name, found.workload.model.layers, found.band) == ("acme/new", 8, "fits")
    assert hub.asked == [("GET", "/acme/new/resolve/main/config.json", None)]
    cached = here(chosen).hub.find_model("acme/new")
    assert (cached.folder.endswith(MAIN_COMMIT), "weights" in cached.missing, cached.kind) == (True, True, "llama")
    assert "config.json (0.2 KiB)" in capsys.readouterr().err
    # It is known now, and the Hub is not asked again.
    facts_with_fetched_config(chosen, after, Place())
    assert len(hub.asked) == 1
    assert "nothing to fetch" in capsys.readouterr().err


def test_a_revision_is_fetched_beside_main(hub):
    chosen = profile({**CHOSEN, "trainer.revision": "v1"})
    path = fetched(chosen)
    assert (path.parents[2] / "refs" / "v1").read_text() == path.parent.name
    assert not (path.parents[2] / "refs" / "main").exists()
    assert hub.asked[-1][1] == "/acme/new/resolve/v1/config.json"
    with pytest.raises(BadInput, match="cannot be the name of a revision"):
        fetched(profile({**CHOSEN, "trainer.revision": "../../up"}))


def test_offline_nothing_is_asked(hub):
    chosen = profile({**CHOSEN, "trainer.environment": {"HF_HUB_OFFLINE": "1"}})
    with pytest.raises(Unavailable, match="offline"):
        fetched(chosen)
    assert hub.asked == []


def test_a_token_is_used_where_the_profile_names_it(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.token)
    gated = {**CHOSEN, "trainer.model": "acme/gated"}
    with pytest.raises(Unavailable, match="access must be asked for") as refused:
        fetched(profile(gated))
    assert ("HF_TOKEN under trainer.secrets" in refused.value.remedy, hub.signed) == (True, [])
    assert fetched(profile({**gated, "trainer.secrets": ("HF_TOKEN",)})).read_bytes() == CONFIG


def test_a_token_goes_to_no_other_host(hub):
    other = hub.url.replace("127.0.0.1", "localhost")
    hub.moved = other
    assert ask_hub_for_model_config(hub.url, "acme/new", "", hub.token).text == CONFIG.decode()
    assert hub.signed == [hub.url.partition("//")[2]]
    hub.moved = hub.url
    assert ask_hub_for_model_config(other, "acme/gated", "", hub.token).refusal == "gated"


@pytest.mark.parametrize(
    ("model", "refusal"), [("bare", "bare"), ("none", "missing"), ("large", "unusable"), ("odd", "unusable")]
)
def test_what_is_no_config_is_refused(hub, model, refusal):
    found = ask_hub_for_model_config(hub.url, f"acme/{model}", "", "")
    assert (found.refusal, found.text) == (refusal, "")
    assert found.problem


def test_a_token_that_cannot_be_sent_is_not_shown(hub):
    found = ask_hub_for_model_config(hub.url, "acme/new", "", "hf_secret\nmore")
    assert (found.refusal, "secret" in found.problem, hub.asked) == ("unusable", False, [])


def test_a_hub_that_is_not_there_is_said():
    assert ask_hub_for_model_config("http://127.0.0.1:1", "acme/new", "", "").refusal == "unreachable"
    assert ask_hub_for_model_config("file:///etc", "acme/new", "", "").refusal == "unusable"


def test_it_is_not_fetched_for_another_machine(hub):
    chosen = profile(CHOSEN)
    with pytest.raises(click.UsageError, match="leave out --machine"):
        facts_with_fetched_config(chosen, here(chosen), Place(machine_file=Path("box.json")))
    assert hub.asked == []


@pytest.mark.whole
async def test_f3_asks_and_fetches(hub, machine):
    machine(THREE_CARD_MACHINE)
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys(PRETRAIN_KEY, "enter", "enter")(pilot)
        app.edits.set_profile(profile({**CHOSEN, "recipe.global_batch": 2}))
        await wait_for_workers(pilot)
        assert "its sizes are not known here" in screen_text(pilot)
        assert "F3 Fetch config.json" in screen_text(pilot)
        await press_keys("f3")(pilot)
        assert hub.url in screen_text(pilot)
        await press_keys("escape")(pilot)
        assert hub.ranges("config.json") == []
        await press_keys("f3", "enter")(pilot)
        await wait_for_workers(pilot)
        assert re.search(r"needs .* ±\d+ % of .* GiB free", screen_text(pilot))
        assert "F3 Second estimate" in screen_text(pilot)
