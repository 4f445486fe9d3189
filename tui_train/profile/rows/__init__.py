"""ROWS: all choices of a profile in order; each gives the TOML key, `--set`, the form row, its limits and help."""

from tui_train.profile.rows.field import Field, FieldKind
from tui_train.profile.rows.finetune import DATA, FINETUNE
from tui_train.profile.rows.machine import COMMUNICATION, CONTAINER, HARDWARE, NODES, NOTIFY, SLURM
from tui_train.profile.rows.recipe import LADDER, RECIPE
from tui_train.profile.rows.trainer import NEMO, TRACKING, TRAINER

__all__ = ("ROWS", "Field", "FieldKind")

NAME = Field(key="name", label="Profile name", kind="text", help="The name of the saved profile and of its runs.")

ROWS = (
    NAME, *HARDWARE, *TRAINER, *FINETUNE, *DATA, *NEMO, *CONTAINER, *COMMUNICATION, *NODES, *SLURM, *RECIPE, *TRACKING,
    *LADDER, *NOTIFY,
)  # fmt: skip
