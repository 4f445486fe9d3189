"""A proof of a machine in words: a line for each claim, and a report in Markdown."""

from collections import Counter

from tui_train.actions.cards.claims import Claim
from tui_train.actions.cards.proof import STAGE_BY_NAME, Proof, ProvedMachine, StageResult
from tui_train.base.text import duration_text, visible

_VERDICT_WIDTH = 12
_CLAIM_TABLE_HEADER = ("Claim", "Expected", "Seen", "Verdict")


def claim_text(claim: Claim) -> str:
    """Return a claim and what came of it, in a line."""
    if claim.verdict == "not tested":
        what = claim.why
    else:
        beside = f" (expected: {claim.expected})" if claim.verdict == "differs" else ""
        what = "; ".join(filter(None, (f"{claim.seen}{beside}", claim.why)))
    return visible(f"{claim.verdict:<{_VERDICT_WIDTH}}{claim.claim}: {what}")


def verdict_counts_text(proof: Proof) -> str:
    """Return how many claims hold, differ and were not tested."""
    counts = Counter(claim.verdict for stage in proof.stages for claim in stage.claims)
    return f"{counts['ok']} ok, {counts['differs']} differ, {counts['not tested']} not tested"


def proof_markdown(proof: Proof) -> str:
    """Return the report: the machine, and a table of claims for each stage."""
    lines = ["# What tui-train claims, and what this machine shows", "", verdict_counts_text(proof), ""]
    lines += _machine_lines(proof.machine)
    for stage in proof.stages:
        lines += ["", f"## {stage.name}: {STAGE_BY_NAME[stage.name].about}", "", _duration_line(stage), ""]
        lines += [
            _markdown_row(_CLAIM_TABLE_HEADER),
            _markdown_row(["---"] * len(_CLAIM_TABLE_HEADER)),
            *map(_claim_row, stage.claims),
        ]
    return "\n".join(lines) + "\n"


def _machine_lines(machine: ProvedMachine) -> list[str]:
    rows = (
        ("tui-train", machine.tui_train),
        ("Driver", machine.driver),
        *(("GPU", card) for card in machine.cards),
        ("CPU", machine.cpu),
        ("Python", machine.python),
        ("PyTorch", machine.torch),
    )
    return [f"- {label}: {_markdown_cell(value)}" for label, value in rows if value]


def _duration_line(stage: StageResult) -> str:
    return f"{duration_text(stage.seconds)}{'' if stage.complete else ', not complete'}"


def _claim_row(claim: Claim) -> str:
    verdict = f"{claim.verdict}: {claim.why}" if claim.why else claim.verdict
    return _markdown_row(
        (claim.claim, claim.expected, claim.seen, f"**{verdict}**" if claim.verdict == "differs" else verdict)
    )


def _markdown_row(cells: "list[str] | tuple[str, ...]") -> str:
    return f"| {' | '.join(map(_markdown_cell, cells))} |"


def _markdown_cell(text: str) -> str:
    """Return a text that stays in its cell and is no HTML."""
    return visible(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
