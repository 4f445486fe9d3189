"""Settings as text: what differs between two runs."""

import pytest

from tui_train.views.setting_values import changed_settings, changed_settings_text


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("recipe.steps=60", "recipe.steps=600", ("steps=600",)),
        ("recipe.steps=60\nrecipe.seed=3", "recipe.steps=60", ("seed=default",)),
        ("", "trainer.arguments=--lr 0.1 --out '/a b' --bf16", ("lr=0.1", "out=a b", "bf16=on")),
        ("trainer.arguments=--lr=0.1", "trainer.arguments=--lr=0.2 '--steps={steps}'", ("lr=0.2",)),
        ("", "recipe.learning_rate=0.1", ("rate=0.1",)),
        ("trainer.arguments=train", "trainer.arguments=eval -v", ("arguments=eval -v",)),
        ("trainer.arguments='open", "trainer.arguments='open --lr=1", ("lr=1",)),
        ("trainer.model=/models/a/", "trainer.model=/models/b/", ("model=b",)),
        ("trainer.model=/old/a", "trainer.model=/new/a", ("model=/new/a",)),
        ("name=a\nhardware.gpus=A", "name=b\nhardware.gpus=B", ()),
    ],
)
def test_a_run_says_what_differs_from_the_one_before(before, after, changed):
    assert changed_settings(before, after) == changed


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (27, "learning_rate=0.1, steps=60"),
        (26, "learning_rate=0.1, +1"),
        (20, "learning_rate=0.1 …"),
        (12, "lea…=0.1, +1"),
        (11, "lear…=0.1 …"),
        (9, ""),
    ],
)
def test_of_changes_those_are_shown_that_have_room(width, text):
    assert changed_settings_text(("learning_rate=0.1", "steps=60"), width) == text


def test_a_short_name_is_not_cut_for_the_number_of_further_changes():
    assert changed_settings_text(("rate=0.05", "steps=60"), len("ra…=0.05, +1")) == "rate=0.05 …"
