"""Results on a Hub that takes them from the real huggingface_hub: bytes, cards, what is asked first, and refusals."""

import hashlib
import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support import run_cli
from terminal import Terminal
from training_results import (
    ADAPTER_CONFIG,
    LOG_LINES,
    ended_run,
    safetensors_bytes,
    write_adapter,
    write_evaluation,
    write_model,
)
from upload_hub import TOKEN, HubRepo, logged_in_hub

from tui_train.actions.evaluate import EVALUATIONS_FOLDER
from tui_train.actions.publish import Publication, PublishOptions
from tui_train.base.errors import BadInput, NotFound, Unavailable
from tui_train.runs.remote_run import RunLocation, write_run_location
from tui_train.runs.results.resuming import FETCH_MARK_FILE
from tui_train.runs.status import read_status

TRL = os.environ.get("TUI_TRAIN_TEST_TRL", "")
with_trl = pytest.mark.skipif(
    not TRL, reason="NOT TESTED with TRL itself: its cards, for which TUI_TRAIN_TEST_TRL names a Python"
)
COMPANIONS = {"tokenizer.json": b'{"a": 1}', "tokenizer_config.json": b"{}", "chat_template.jinja": b"{{ m }}"}
# What a trainer leaves in its output, of which nothing may be seen by others.
PRIVATE = {
    "training_args.bin": b"args", "optimizer.pt": b"states", "scheduler.pt": b"s", "rng_state.pth": b"r",
    "trainer_state.json": b"{}", "train.log": b"log", ".env": b"HF_TOKEN=x", "rows.jsonl": b"{}",
    "checkpoint-20/adapter_model.safetensors": b"w", "checkpoint-20/optimizer.pt": b"o", "runs/events.out": b"e",
}  # fmt: skip


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with a base model, on which somebody is logged in by a variable."""
    with logged_in_hub(tmp_path / "hf", monkeypatch, org__base=HubRepo(licence="apache-2.0")) as stood_in:
        yield stood_in


@pytest.fixture
def adapter_run(tmp_path):
    """A run that left an adapter, and what else trainers leave."""
    run = ended_run(tmp_path / "run", LOG_LINES, **{"trainer.model": "org/base"})
    write_adapter(run.path / "output")
    for name, data in (COMPANIONS | PRIVATE).items():
        (run.path / "output" / name).parent.mkdir(exist_ok=True)
        (run.path / "output" / name).write_bytes(data)
    return run


def publish(run, *words, code=0, **more):
    done = run_cli("publish", f"{run.path}/", *words, code=code, **more)
    assert TOKEN not in done.stdout + done.stderr
    return done


def refusal(run, repo="ann/tiny", **options):
    """Return the error with which nothing is sent."""
    with pytest.raises((BadInput, Unavailable, NotFound)) as raised:
        send_with_a_bare_card(run, repo, options)
    words = f"{raised.value.message}. {raised.value.remedy}"
    assert TOKEN not in words
    return words


def send_with_a_bare_card(run, repo, options):
    with closing(Publication(run, repo, PublishOptions(**options))) as publication:
        publication.send("---\ntags: []\n---\n")


# ---- what is sent ------------------------------------------------------------------------------------------------


def test_the_model_s_files_arrive_byte_for_byte_and_nothing_else(hub, adapter_run):
    told = publish(adapter_run, "ann/tiny", "--yes")
    assert f"published: {hub.url}/ann/tiny (private)" in told.stdout
    assert "not sent: .env, checkpoint-20, optimizer.pt, rng_state.pth, rows.jsonl, runs" in told.stdout
    repo, folder = hub.repos["ann/tiny"], adapter_run.path / "output"
    assert repo.private
    sent = {name: data for name, data in repo.files.items() if name not in {".gitattributes", "README.md"}}
    assert {*sent} == {"adapter_config.json", "adapter_model.safetensors", *COMPANIONS}
    assert sent == {name: (folder / name).read_bytes() for name in sent}
    card = ModelCard(repo.files["README.md"].decode())
    assert (card.data.base_model, card.data.license, card.data.library_name) == ("org/base", "apache-2.0", "peft")
    assert "| Training loss | 2.000 last (step 20), 1.500 best (step 10) |" in card.text
    assert "| Seed | 42 (default) |" in card.text
    assert "Sequence length" not in card.text, "the plan chose it by the data"
    assert str(adapter_run.path) not in str(card)
    assert repo.files["README.md"].decode() in told.stdout


def test_a_model_in_parts_is_public_where_that_is_asked(hub, tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    files = {"model.safetensors.index.json": json.dumps(index).encode(), "pytorch_model.bin": b"older"}
    files |= {"model-1.safetensors": safetensors_bytes(), "model-2.safetensors": safetensors_bytes(16)}
    write_model(run.path / "output", {"architectures": ["Q"], "_name_or_path": "/home/ann/base"}, **files)
    told = json.loads(publish(run, "acme/tiny", "--yes", "--public", "--json").stdout)
    assert (told["published"], told["private"], told["url"]) == (True, False, f"{hub.url}/acme/tiny")
    assert (told["left_out"], told["replaced"]) == (["pytorch_model.bin"], [])
    repo = hub.repos["acme/tiny"]
    assert not repo.private
    assert {*repo.files} - {".gitattributes"} == {"config.json", "README.md", *files} - {"pytorch_model.bin"}
    assert repo.files["model-2.safetensors"] == files["model-2.safetensors"]
    assert json.loads(repo.files["config.json"]) == {"architectures": ["Q"], "_name_or_path": ""}
    assert "base_model" not in ModelCard(told["card"]).data.to_dict()


def test_a_base_that_is_a_folder_is_named_as_it_is_on_the_hub(hub, tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "/home/ann/base"})
    assert "--base ORG/NAME" in refusal(run)
    publish(run, "ann/tiny", "--base", "org/base", "--yes")
    sent = hub.repos["ann/tiny"].files
    assert json.loads(sent["adapter_config.json"]) == ADAPTER_CONFIG
    assert b"/home/ann" not in b"".join(sent.values())
    snapshot = f"/cache/hub/models--org--base/snapshots/{'a' * 40}"
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": snapshot})
    publish(run, "ann/cached", "--yes")
    assert json.loads(hub.repos["ann/cached"].files["adapter_config.json"]) == ADAPTER_CONFIG


def test_data_are_named_with_their_hashes_and_an_evaluation_with_its_verdict(hub, tmp_path):
    data = tmp_path / "rows|x.jsonl"
    data.write_text("a secret row\n")
    os.utime(data, (time.time() - 86400,) * 2)
    changed = tmp_path / "changed.jsonl"
    changed.write_text("newer\n")
    run = ended_run(tmp_path / "run", LOG_LINES)
    paths = json.dumps([str(data), str(changed), str(tmp_path / "gone")])
    run.profile_file.write_text(run.profile_file.read_text().replace("[trainer]", f"[trainer]\ndata = {paths}"))
    write_adapter(run.path / "output")
    write_evaluation(run)
    card = publish(run, "ann/tiny", "--dry-run").stdout
    assert f"sha256:{hashlib.sha256(data.read_bytes()).hexdigest()}" in card
    assert "rows\\|x.jsonl" in card
    assert "changed.jsonl, 0.0 KiB, changed since the training began" in card
    assert "gone, not on the machine that published it" in card
    assert "secret row" not in card
    assert str(tmp_path) not in card.partition("\nfrom ")[0]
    assert "Better than the base, on 100 % of 40 rows" in card
    assert "Loss per token: 1.000; base: 2.000." in card
    assert hub.wrote() == []
    for file in (run.path / EVALUATIONS_FOLDER).iterdir():
        os.utime(file, (time.time() - 86400,) * 2)
    assert "Better than" not in publish(run, "ann/tiny", "--dry-run").stdout, "it was of other weights"


# ---- what is asked first -----------------------------------------------------------------------------------------


def test_rewards_are_named_without_their_folder(hub, tmp_path):
    rewards = ("/home/ann/my.py:score", "accuracy_reward")
    chosen = {"trainer.kind": "finetune", "finetune.method": "grpo", "finetune.rewards": rewards}
    chosen |= {"trainer.data": (str(tmp_path / "d.jsonl"),), "trainer.preset": "auto"}
    run = ended_run(tmp_path / "run", LOG_LINES, **{"trainer.model": "org/base", **chosen})
    write_adapter(run.path / "output")
    card = publish(run, "ann/tiny", "--dry-run").stdout
    assert "| Method | GRPO with LoRA, rank 16" in card
    assert "| Rewards | my.py:score, accuracy_reward |" in card


def test_nothing_is_sent_without_a_yes(hub, adapter_run):
    assert "nothing was sent: there is no terminal to ask on" in publish(adapter_run, "ann/tiny", code=65).stderr
    assert "--json needs --yes or --dry-run" in publish(adapter_run, "ann/tiny", "--json", code=64).stderr
    told = publish(adapter_run, "ann/tiny", "--dry-run").stdout
    assert f"to    ann/tiny on {hub.url}: new, private; as ann" in told
    assert hub.wrote() == []


@pytest.mark.whole
@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_terminal_is_asked(hub, adapter_run, answer):
    terminal = Terminal("publish", f"{adapter_run.path}/", "ann/tiny")
    try:
        terminal.wait_for_any("Publish it, private?")
        assert hub.wrote() == []
        terminal.child.send(f"{answer}\r")
        terminal.child.wait()
    finally:
        terminal.child.close(force=True)
    assert ("ann/tiny" in hub.repos) is (answer == "y")


def test_what_a_repository_holds_is_said(hub, adapter_run):
    hub.repos["ann/tiny"] = HubRepo({"model.gguf": b"g", "README.md": b"old"})
    told = publish(adapter_run, "ann/tiny", "--public", "--yes").stdout
    assert "exists, private; as ann" in told
    assert "replaced there: README.md" in told
    assert "stays there: model.gguf" in told
    assert "stays so: change that in its settings" in told
    assert hub.repos["ann/tiny"].private
    assert hub.repos["ann/tiny"].files["model.gguf"] == b"g"
    hub.asked.clear()
    publish(adapter_run, "ann/tiny", "--yes")
    assert not [path for path in hub.wrote() if path.startswith("/objects/")], "it is there"


def test_what_is_private_does_not_go_where_all_can_see_it(hub, adapter_run):
    hub.repos["ann/tiny"] = HubRepo(private=False)
    assert "exists and is public" in refusal(adapter_run)
    assert hub.wrote() == []
    publish(adapter_run, "ann/tiny", "--public", "--yes")
    assert "adapter_model.safetensors" in hub.repos["ann/tiny"].files


# ---- what cannot be published ------------------------------------------------------------------------------------


@pytest.mark.parametrize("repo", ["tiny", "a/b/c", "../x", "ann/", "ann/a b", "ann/x--y", "ann/x.git", "ann/é", "-a/b"])
def test_a_name_that_is_none_is_refused_before_anything_is_asked(hub, adapter_run, repo):
    assert "Give OWNER/NAME" in refusal(adapter_run, repo)
    assert hub.asked == []


def test_who_may_not_write_is_told_what_to_do(hub, adapter_run, monkeypatch):
    assert "other is neither your account (ann) nor an organization of yours" in refusal(adapter_run, "other/tiny")
    hub.role = "fineGrained"  # of which not all organizations need be known
    assert "the token may not write there: HTTP 403: You don't have the rights" in refusal(adapter_run, "other/tiny")
    hub.role = "read"
    assert "the token can only read" in refusal(adapter_run)
    hub.token = TOKEN[::-1]
    told = publish(adapter_run, "ann/tiny", "--yes", code=69)
    assert "the Hub does not accept the token" in told.stderr
    assert "settings/tokens" in told.stderr
    assert "library_name" in told.stdout, "the card is shown all the same"
    monkeypatch.delenv("HF_TOKEN")
    assert "Log in: hf auth login" in refusal(adapter_run)
    assert "Org/base is the base model, not a repository of yours" in refusal(adapter_run, "Org/base")
    shown = publish(adapter_run, "ann/tiny", "--dry-run")
    assert "Log in: hf auth login" in shown.stderr
    assert "library_name" in shown.stdout
    hub.role = "write"
    Path(os.environ["HF_HOME"]).mkdir(exist_ok=True)
    Path(os.environ["HF_HOME"], "token").write_text(hub.token)
    publish(adapter_run, "ann/tiny", "--yes")


def test_a_hub_that_cannot_be_asked(hub, adapter_run, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "Unset HF_HUB_OFFLINE" in refusal(adapter_run)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    hub.refusals["/create"] = (500, f"broken by {TOKEN}")
    assert "HTTP 500: broken by <masked>" in refusal(adapter_run)
    hub.refusals = {"/commit/main": (403, "storage limit")}
    assert "storage limit" in refusal(adapter_run)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "the Hub cannot be reached" in refusal(adapter_run)


def test_files_that_the_repository_ignores_are_missed(hub, adapter_run):
    hub.repos["ann/tiny"] = HubRepo()
    hub.repos["ann/tiny"].ignored = ("tokenizer.json",)
    assert "tokenizer.json did not arrive" in refusal(adapter_run)


def test_the_variables_of_the_training_are_not_those_of_the_upload(hub, tmp_path):
    elsewhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "none"), "HF_HUB_OFFLINE": "1"}
    run = ended_run(tmp_path / "run", LOG_LINES, **{"trainer.environment": elsewhere})
    write_adapter(run.path / "output")
    publish(run, "ann/tiny", "--yes")
    assert "ann/tiny" in hub.repos


def test_a_result_that_cannot_be_sent_is_refused_before_anything_is_asked(hub, adapter_run, tmp_path):
    output = adapter_run.path / "output"
    outside = tmp_path / "outside"
    outside.write_text("{}")
    for name in ("tokenizer.json", "README.md"):
        (output / name).unlink(missing_ok=True)
        (output / name).symlink_to(outside)
        assert f"{name} in {output} is a link to a file elsewhere" in refusal(adapter_run)
        (output / name).unlink()
    write_adapter(output, data=safetensors_bytes(cut=1))
    assert "cannot be loaded" in refusal(adapter_run)
    assert "has no adapter" in refusal(ended_run(tmp_path / "none"))
    write_run_location(adapter_run.path, RunLocation("box", "/there/run"))
    assert "tui-train fetch run" in refusal(adapter_run)
    assert hub.asked == []


def test_a_fetched_result_is_published_here_without_versions_of_another_machine(hub, adapter_run):
    write_run_location(adapter_run.path, RunLocation("box", "/there/run"))
    (adapter_run.path / FETCH_MARK_FILE).write_text(str(len(read_status(adapter_run).attempts)))
    card = publish(adapter_run, "ann/tiny", "--dry-run").stdout
    assert "| Software | tui-train " in card


def test_a_python_without_the_library_is_told_of(hub, adapter_run, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    assert "lacks what that takes: No module named 'huggingface_hub'" in refusal(adapter_run, python=str(bare))
    assert "Name another Python with huggingface_hub" in refusal(adapter_run, python="/no/python")


WRITE_TRL_CARD = """
import sys
from trl.trainer.utils import generate_model_card
generate_model_card(
    base_model=None, model_name="output", hub_model_id=None, dataset_name=None, tags=["sft", "trl"], wandb_url=None,
    trackio_url=None, trainer_name="SFT",
).save(sys.argv[1])
"""


@with_trl
@pytest.mark.whole
def test_the_card_that_trl_writes_is_completed_by_its_python(hub, tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES, python=TRL)
    folder = write_adapter(run.path / "output")
    (folder / "tokenizer.json").write_bytes(os.urandom(1 << 20))
    subprocess.run([TRL, "-c", WRITE_TRL_CARD, folder / "README.md"], check=True, capture_output=True)
    publish(run, "acme/tiny", "--yes")
    sent = hub.repos["acme/tiny"].files
    for name in ("adapter_config.json", "adapter_model.safetensors", "tokenizer.json"):
        assert sent[name] == (folder / name).read_bytes()
    card = ModelCard(sent["README.md"].decode())
    assert {"sft", "trl", "tui-train"} <= {*card.data.tags}
    assert 'model="acme/tiny"' in card.text
    assert "fine-tuned version of [org/base](https://huggingface.co/org/base)" in card.text
    assert "None" not in card.text
    assert "| Software | torch " in card.text
