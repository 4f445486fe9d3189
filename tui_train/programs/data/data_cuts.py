"""Counts the rows that the sequence length cuts, before a training on them."""

from __future__ import annotations

import argparse

import data_lengths as lengths
from data_chosen import ChatTemplate, Chosen, DataError, say


def check(chosen: Chosen, chat_template: ChatTemplate, asked: argparse.Namespace) -> None:
    """Say how many rows and tokens are cut; DataError where they are a larger share of the rows than is allowed."""
    rows = chat_template.lengths(chosen)
    cut = [row for row in rows if row.length > asked.length]
    if not rows:
        say("long rows are not counted: the model's tokenizer cannot be loaded")
    if not cut:
        return
    scale = chosen.usable() / len(rows)
    about = "about " if len(rows) < chosen.usable() else ""
    lost = sum(max(0, length - asked.length) for row in cut for length in row.lengths)
    done = "left out" if asked.method == "reward" else f"cut, with {about}{lost * scale:,.0f} tokens"
    words = f"{about}{len(cut) * scale:,.0f} of {chosen.usable():,} rows ({len(cut) / len(rows):.1%})"
    words += f" are longer than {asked.length:,} tokens and are {done}"
    if len(cut) / len(rows) <= asked.most_cut:
        say(words)
        return
    longest = lengths.candidates(max(row.length for row in cut))[-1]
    remedy = f"recipe.sequence_length={longest} cuts none, data.cut={len(cut) / len(rows) + 0.005:.2f} allows it"
    raise DataError(f"{words}: {remedy}")
