"""Spreads the rows of an epoch over files by their weights."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any


def epoch_row_counts_of_files(rows: list[int], weights: list[float]) -> list[int]:
    """Return how many rows of an epoch each file has by its weight: as many in all as the files have rows."""
    total = sum(rows)
    parts = [weight if count else 0.0 for weight, count in zip(weights, rows, strict=True)]
    weight_sum = sum(parts)
    exact = [total * part / weight_sum if weight_sum else 0.0 for part in parts]
    taken = [int(share) for share in exact]
    # What rounding leaves goes where it cut off most.
    order = sorted((at for at, part in enumerate(parts) if part), key=lambda at: taken[at] - exact[at])
    for at in order[: total - sum(taken)]:
        taken[at] += 1
    return taken


def set_row_repeats_by_weight(times: array[int], counts: list[int], weights: list[float], seed: int) -> list[int]:
    """Set how often each row is written, which is 0 for those that are not, or 1; return how many each file has.

    `counts` are the rows of each file, in the order of `times`. Which rows are written once more follows from the seed.
    """
    starts = [sum(counts[:at]) for at in range(len(counts))]
    rows_by_file = [
        [at for at in range(start, start + count) if times[at]] for start, count in zip(starts, counts, strict=True)
    ]
    taken = epoch_row_counts_of_files([len(numbers) for numbers in rows_by_file], weights)
    for which, numbers in enumerate(rows_by_file):
        each, more = divmod(taken[which], max(len(numbers), 1))
        once_more = random.Random(f"{seed} {which}").sample(numbers, more)  # noqa: S311 - the same each time
        for at in numbers:
            times[at] = each
        for at in once_more:
            times[at] += 1
    return taken


def mixed_epoch_shares_and_tokens(
    entries: list[list[str]], question: dict[str, Any], usable: Mapping[str, int], counted: Mapping[str, list[int]]
) -> dict[str, Any]:
    """Return what each named file or folder has of an epoch, and the tokens and unlearned rows of one.

    `entries` are the paths of each; `usable` the rows of a path, `counted` what was counted of a sample of them.
    """
    by_entry, tokens, lost, rows, sums = [], 0.0, 0.0, [], []
    # A file that is named twice, or that is in a folder that is named as well, was counted as often.
    times_read = Counter(path for paths in entries for path in paths)
    for paths in entries:
        numbers = [counted.get(path, [0, 0, 0, 0]) for path in paths]
        done, gone, epoch, refused = (sum(column) for column in zip(*numbers, strict=True)) if numbers else (0, 0, 0, 0)
        whole = sum(usable.get(path, 0) // times_read[path] for path in paths)
        rows.append(round(whole * done / (done + refused)) if done + refused else whole)
        sums.append((max(done, 1), gone, epoch))
    taken = epoch_row_counts_of_files(rows, question["weights"])
    for at, named in enumerate(question["files"]):
        done, gone, epoch = sums[at]
        tokens += taken[at] * epoch / done
        lost += taken[at] * gone / done
        by_entry.append({"file": named, "weight": question["weights"][at], "rows": rows[at], "taken": taken[at]})
    return {"shares": by_entry, "epoch": round(tokens), "unlearned": round(lost)}
