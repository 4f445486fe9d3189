"""The lines of Hardware about a Slurm cluster: its partitions, and which of them is chosen."""

from textual.content import Content

from tui_train.base.text import visible
from tui_train.facts.other_machines.cluster import Cluster
from tui_train.facts.other_machines.slurm import chosen_partitions
from tui_train.facts.types import Machine
from tui_train.views.clusters import HEADER, accounts_text, cluster_rows

from ..widgets.text_layout import LIVE, MUTED, OPEN, columns, fit, heading, styled

_MAX_ROWS = 5
_WIDTHS = (16, 12, 17, 0)


def cluster_lines(cluster: Cluster | None, machine: Machine, partition: str, width: int) -> list[Content]:
    """Return the partitions, the chosen ones first, and the heading of the GPUs of a node."""
    if cluster is None:
        return [heading("Slurm", "", width), styled(("Asking sinfo …", MUTED))]
    if cluster.problem:
        return [heading("Slurm", "", width), fit(styled((visible(cluster.problem), MUTED)), width)]
    chosen = {part.name for part in chosen_partitions(cluster, partition)}
    # One row for each kind of node.
    kept = [part for part in cluster.partitions for _ in part.nodes or (None,)]
    listed = sorted(zip(kept, cluster_rows(cluster), strict=True), key=lambda pair: pair[0].name not in chosen)
    lines = [heading("Slurm", accounts_text(cluster), width), _cluster_row(HEADER, width, styled("  "), MUTED)]
    for part, row in listed[:_MAX_ROWS]:
        mine = part.name in chosen
        lines.append(
            _cluster_row(row, width, styled((LIVE[0], "$primary") if mine else OPEN, " "), "b" if mine else "")
        )
    if len(listed) > _MAX_ROWS:
        lines.append(styled((f"  and {len(listed) - _MAX_ROWS} more: F3 on Partition lists all", MUTED)))
    head = [Content(), heading(f"GPUs of {visible(machine.hostname)}", "", width)] if machine.gpus else [Content()]
    return [*lines, *head]


def _cluster_row(cells: tuple[str, ...], width: int, mark: Content, style: str) -> Content:
    shown = zip(cells, _WIDTHS, strict=False)
    return styled(mark, columns(width - 2, *(((cell, style), size) for cell, size in shown)))
