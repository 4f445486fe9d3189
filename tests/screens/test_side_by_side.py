"""A diff in two columns: both lie beside each other at every width, and what differs is seen."""

import pytest
from tui_train.screens.widgets.side_by_side import side_by_side, side_by_side_texts

from tui_train.views.file_diff import FileDiff, diff_rows

ARGUMENTS = "exec torchrun --nproc_per_node=2 train.py --model=org/name --learning_rate=0.0002 --data=chats.jsonl"
OLD = ["#!/bin/sh", "", ARGUMENTS, "# 中文字", "exit"]
NEW = ["#!/bin/sh", "", ARGUMENTS.replace("chats", "other"), "# 中文", "trap - EXIT", "exit"]
DIFF = FileDiff("launch.sh.diff", diff_rows(("20260101-before", "now"), OLD, NEW))


def drawn(width):
    return side_by_side(DIFF, width).split("\n")


@pytest.mark.parametrize("width", [20, 61, 106, 117, 240])
def test_each_row_is_a_line_of_two_columns(width):
    lines = drawn(width)
    assert len(lines) == len(DIFF.rows) == len(side_by_side_texts(DIFF))
    starts = {line[: line.plain.index("│")].cell_length for line in lines}
    assert starts == {(width - 3) // 2 + 1}
    assert max(line.cell_length for line in lines) <= width


@pytest.mark.parametrize("width", [106, 117])
def test_what_differs_is_seen_where_the_line_is_cut(width):
    (line,) = (line.plain for line in drawn(width) if "--data" in line.plain)
    old, new = line.split("│")
    assert old.startswith("- …")
    assert "chats" in old
    assert new.startswith(" + …")
    assert "other" in new


def test_a_line_that_is_new_stands_alone():
    (line,) = (line.plain for line in drawn(106) if "trap" in line.plain)
    assert line.partition("│")[0].strip() == ""
