"""ROWS: all choices of a profile in order; each gives the TOML key, `--set`, the form row, its limits and help."""

from tui_train.profile.rows.cluster import CLUSTER_ROWS
from tui_train.profile.rows.field import Field, FieldKind, make_field
from tui_train.profile.rows.finetune import DATA_ROWS, FINETUNE_ROWS
from tui_train.profile.rows.machine import (
    COMMUNICATION_ROWS,
    CONTAINER_ROWS,
    HARDWARE_ROWS,
    NODES_ROWS,
    NOTIFY_ROWS,
    SLURM_ROWS,
)
from tui_train.profile.rows.recipe import LADDER_ROWS, RECIPE_ROWS
from tui_train.profile.rows.trainer import NEMO_ROWS, TRACKING_ROWS, TRAINER_ROWS

__all__ = ("ROWS", "Field", "FieldKind")

_NAME_ROW = make_field(
    "name",
    "Profile name",
    "Names the runs, and the profile where it is saved. In the wizard: s on Preview; m on Home renames a run.",
)

ROWS = (
    _NAME_ROW,
    *HARDWARE_ROWS,
    *TRAINER_ROWS,
    *FINETUNE_ROWS,
    *DATA_ROWS,
    *NEMO_ROWS,
    *CONTAINER_ROWS,
    *COMMUNICATION_ROWS,
    *NODES_ROWS,
    *SLURM_ROWS,
    *CLUSTER_ROWS,
    *RECIPE_ROWS,
    *TRACKING_ROWS,
    *LADDER_ROWS,
    *NOTIFY_ROWS,
)
