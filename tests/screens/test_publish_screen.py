"""A result is shown before it is sent to the Hub, by keys: private, refused, and cut off."""

from typing import Any

import pytest
from pilot import on_result, screen_text, until_true
from textual.pilot import Pilot
from training_results import ADAPTER_CONFIG, LOG_LINES, ended_run, write_adapter
from upload_hub import TOKEN, HubRepo, logged_in_hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub on which somebody is logged in by a variable."""
    old = HubRepo({"README.md": b"x", "notes.txt": b"y"})
    with logged_in_hub(
        tmp_path / "hf", monkeypatch, org__base=HubRepo(licence="mit"), ann__old=old, ann__seen=HubRepo(private=False)
    ) as stood_in:
        yield stood_in


@pytest.fixture
def adapter_run(tmp_path):
    """A run that left an adapter of a base that it names by a folder."""
    run = ended_run(tmp_path / "run", LOG_LINES)
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": "/home/ann/base"})
    return run


async def shown(pilot: Pilot[Any], *words: str) -> None:
    """Wait until words are on the screen, which may be broken into lines; a worker waits for the confirmation."""
    await until_true(pilot, lambda: all(word in " ".join(screen_text(pilot).split()) for word in words))


async def asks_for(pilot: Pilot[Any], repo: str) -> None:
    """Open Publish or its question for a repository, and answer that."""
    await pilot.press("r")
    await shown(pilot, "To which repository of the Hugging Face Hub?")
    await pilot.press("ctrl+u", *repo, "enter")


async def test_nothing_is_sent_before_it_was_shown(machine, hub, adapter_run):
    async with on_result(adapter_run, "p publishes it") as pilot:
        await pilot.press("p")
        await shown(pilot, "To which repository of the Hugging Face Hub?")
        await pilot.press(*"ann/tiny", "enter")
        await shown(pilot, "names its base model by a folder", "Name the same model on the Hub: press b")
        assert "Enter Send it" not in screen_text(pilot)
        await pilot.press("b", *"org/base", "enter")
        await shown(
            pilot, "ann/tiny on http", "new, private; as ann", "adapter_model.safetensors", "Card", 'license: "mit"'
        )
        await shown(pilot, "Enter sends it to ann/tiny, private. Nothing was sent yet.", "Enter Send it")
        assert not hub.wrote()
        await pilot.press("enter")
        await shown(pilot, f"✓ published: {hub.url}/ann/tiny (private)")
        assert hub.repos["ann/tiny"].private
        assert "Enter Send it" not in screen_text(pilot)
        await asks_for(pilot, "ann/old")
        await shown(
            pilot, "ann/old on", "exists, private; as ann", "replaced there: README.md", "stays there: notes.txt"
        )
        await asks_for(pilot, "ann/seen")
        await shown(pilot, "ann/seen exists and is public", "or, if that is meant, p")
        await pilot.press("p")
        await shown(pilot, "Enter sends it to ann/seen, public, for all to see.", "p Keep private")
        # Consent for one repository is none for another.
        await asks_for(pilot, "ann/new")
        await shown(pilot, "Enter sends it to ann/new, private.", "p Make public")
        await pilot.press("escape")
        await shown(pilot, "Run › Result")
    assert len(hub.repos["ann/seen"].commits) == len(hub.repos["ann/old"].commits) == 1


async def test_a_refused_token_and_a_cut_connection_are_told(machine, hub, adapter_run):
    async with on_result(adapter_run, "p publishes it") as pilot:
        await pilot.press("p")
        await pilot.press(*"ann/tiny", "enter")
        await pilot.press("b", *"org/base", "enter")
        hub.refusals["/api/models/ann/tiny/commit/main"] = (400, "Too busy")
        await shown(pilot, "Enter Send it")
        await pilot.press("enter")
        await shown(
            pilot, "The Hub did not take it: HTTP 400: Too busy", "Press r: what has arrived is not sent again."
        )
        hub.refusals.clear()
        hub.token = "another"  # noqa: S105 - of no Hub
        await asks_for(pilot, "ann/tiny")
        await shown(pilot, "does not accept the token", "hf auth login", "ann/tiny on http")
        assert "Enter Send it" not in screen_text(pilot)
        assert TOKEN not in screen_text(pilot)
        await asks_for(pilot, "org/base")
        await shown(pilot, "org/base is the base model, not a repository of yours", "OWNER is your account")
