"""Counts the rows that the sequence length cuts, before a training on them."""

from __future__ import annotations

import argparse

import data_lengths as lengths
from data_chosen import ChatTemplate, ChosenRows, DataError, print_data_line


def refuse_too_many_truncated_rows(
    chosen_rows: ChosenRows, chat_template: ChatTemplate, options: argparse.Namespace
) -> None:
    """Say how many rows and tokens are cut; DataError where they are a larger share of the rows than is allowed."""
    rows = chat_template.row_token_lengths(chosen_rows)
    cut = [row for row in rows if row.length > options.length]
    if not rows:
        print_data_line("long rows are not counted: the model's tokenizer cannot be loaded")
    if not cut:
        return
    scale = chosen_rows.usable_count() / len(rows)
    about = "about " if len(rows) < chosen_rows.usable_count() else ""
    lost = sum(max(0, length - options.length) for row in cut for length in row.lengths)
    done = (
        "left out"
        if options.method == "reward" or chosen_rows.has_images
        else f"cut, with {about}{lost * scale:,.0f} tokens"
    )
    words = f"{about}{len(cut) * scale:,.0f} of {chosen_rows.usable_count():,} rows ({len(cut) / len(rows):.1%})"
    words += f" are longer than {options.length:,} tokens and are {done}"
    if len(cut) / len(rows) <= options.most_cut:
        print_data_line(words)
        return
    longest = lengths.candidate_lengths(max(row.length for row in cut))[-1]
    remedy = f"recipe.sequence_length={longest} cuts none, data.cut={len(cut) / len(rows) + 0.005:.2f} allows it"
    raise DataError(f"{words}: {remedy}")
