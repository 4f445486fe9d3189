"""The lines in which two files differ, as rows of both."""

import difflib

from hypothesis import given, settings
from hypothesis import strategies as st
from support import example_count

from tui_train.views.file_diff import DiffRow, FileDiff, diff_rows

LINES = st.lists(st.sampled_from(["a", "b", "c", "d", "x = 1", "x = 2"]), max_size=40)
NAMES = ("before", "now")


def test_rows_have_both_lines_of_a_change_and_two_around_it():
    old, new = [*"abcdefgh"], [*"abcDeXfgh"]
    assert diff_rows(NAMES, old, new) == (
        DiffRow("names", *NAMES),
        DiffRow("place", "2,6", "2,7"),
        DiffRow("same", "b", "b"),
        DiffRow("same", "c", "c"),
        DiffRow("changed", "d", "D"),
        DiffRow("same", "e", "e"),
        DiffRow("changed", None, "X"),
        DiffRow("same", "f", "f"),
        DiffRow("same", "g", "g"),
    )


@settings(max_examples=example_count(300))
@given(LINES, LINES)
def test_their_text_is_a_unified_diff(old, new):
    def places_in_full(line):
        # difflib leaves out a count of one.
        return " ".join(word if "," in word or word == "@@" else f"{word},1" for word in line.split(" "))

    expected = [
        places_in_full(line) if line.startswith("@@") else line
        for line in difflib.unified_diff(old, new, *NAMES, lineterm="", n=2)
    ]
    if old != new:
        assert FileDiff("x.diff", diff_rows(NAMES, old, new)).text.split("\n") == expected
