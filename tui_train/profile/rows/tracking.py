"""Rows of where the training reports to."""

from tui_train.profile.rows.field import Field

TRACKING = (
    Field(
        key="tracking.tensorboard",
        label="TensorBoard",
        kind="switch",
        help="The training writes event files to its output folder; needs tensorboard in the Python that trains.",
    ),
    Field(
        key="tracking.wandb",
        label="Weights & Biases",
        kind="switch",
        help="The training reports there; needs wandb, and WANDB_API_KEY by name under secrets, or WANDB_MODE=offline.",
    ),
    Field(
        key="tracking.project",
        label="W&B project",
        kind="text",
        help="The project at Weights & Biases in which runs of this profile appear.",
        empty="chosen by the trainer",
    ),
)
