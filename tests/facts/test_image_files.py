"""The images that rows name: sent with the data, and seen by a container."""

import pytest
from chat_data import CHAT_ROW, write_rows
from support import facts, inside, profile

from tui_train.cli.runs.send import _file_sets
from tui_train.facts.data.data_use import image_folders_of_data
from tui_train.facts.data.image_files import image_files_of_data
from tui_train.places.profile_facts import _read_profile_data

PNG = b"\x89PNG\r\n\x1a\n and more"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Rows that name images below them and elsewhere, files that are none, and what is not there."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("d/pics/a.png", "d/pics/deep/b.png", "e/c.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(PNG)
    (tmp_path / "secret").write_text("a key")
    elsewhere = [f"file://{tmp_path}/e/c.png", "../secret", "none.png", "http://localhost/y.png"]
    named = ["pics/a.png", "pics/deep/b.png", "pics/a.png", *elsewhere]
    return write_rows(tmp_path / "d/d.jsonl", [CHAT_ROW | {"images": [each]} for each in named])


def test_images_that_rows_name_are_sent_with_the_data(data, tmp_path):
    images = [str(tmp_path / name) for name in ("d/pics/a.png", "d/pics/deep/b.png", "e/c.png")]
    assert image_files_of_data((str(data),)) == images, "and no other file that a row names"
    chosen = {"trainer.kind": "finetune", "trainer.model": "org/m"}
    sent = _file_sets(profile(chosen | {"trainer.data": (str(data),)}))
    assert [f"{each.folder}/{file.name}" for each in sent for file in each.files] == [str(data), *images]
    whole = _file_sets(profile(chosen | {"trainer.data": (str(data.parent),)}))
    assert [[f"{each.folder}/{file.name}" for file in each.files] for each in whole][1:] == [images[2:]]


def test_a_container_is_told_which_folders_of_images_rows_name(data, tmp_path):
    values = {"trainer.kind": "finetune", "trainer.model": "org/m", "trainer.data": (str(data),)}
    found = _read_profile_data(profile(values | inside()), facts())
    folders = tuple(str(tmp_path / name) for name in ("d/pics", "e"))
    assert image_folders_of_data((str(data),), found) == folders
