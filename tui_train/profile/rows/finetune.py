"""Rows of a fine-tuning: its method, its adapter, and what becomes of the data."""

from typing import get_args

from tui_train.profile.rows.field import Field
from tui_train.profile.types import FinetuneMethod, FinetuneTuning

FINETUNE_ROWS = (
    Field(
        key="finetune.method",
        label="Method",
        kind="choice",
        options=get_args(FinetuneMethod),
        help="sft: learns from examples. dpo, reward: from pairs of answers. kto: from answers marked good or bad. "
        "grpo, rloo: from rewards of what the model writes itself.",
    ),
    Field(
        key="finetune.rewards",
        label="Rewards",
        kind="rewards",
        help="Functions that score answers (GRPO, RLOO): your FILE.py:FUNCTION, or TRL's accuracy_reward.",
        empty="none",
    ),
    Field(
        key="finetune.tuning",
        label="Tuning",
        kind="choice",
        options=get_args(FinetuneTuning),
        help="lora: a small adapter. qlora: the same, with the model in 4 bits. full: all weights, much more memory.",
    ),
    Field(
        key="finetune.rank",
        label="LoRA rank",
        kind="integer",
        minimum=1,
        maximum=4096,
        help="Size of the adapter matrices: a higher rank can learn more, and takes more memory.",
    ),
    Field(
        key="finetune.alpha",
        label="LoRA alpha",
        kind="integer",
        minimum=1,
        maximum=65536,
        help="Scale of the adapter: its output is multiplied by alpha / rank.",
    ),
    Field(
        key="finetune.dropout",
        label="LoRA dropout",
        kind="number",
        minimum=0,
        maximum=0.9,
        help="Share of the adapter's input that is dropped at random while it learns.",
    ),
    Field(
        key="finetune.targets",
        label="LoRA targets",
        kind="names",
        help="Names of the layers that get an adapter, such as q_proj, v_proj.",
        empty="all linear layers",
    ),
    Field(
        key="finetune.packing",
        label="Packing",
        kind="switch",
        help="Puts several whole samples into one sequence, where each sees itself alone: faster where they are short.",
    ),
    Field(
        key="finetune.answers_only",
        label="Answers only",
        kind="switch",
        help="Only the assistant's answers are learned. Not set: on, for chats whose template marks the answers.",
        optional=True,
    ),
    Field(
        key="finetune.beta",
        label="Beta",
        kind="number",
        minimum=0,
        maximum=100,
        help="Higher: stays closer to the original model. Not set: TRL's default (DPO, KTO 0.1; RLOO 0.05; GRPO 0).",
        optional=True,
    ),
    Field(
        key="finetune.generations",
        label="Generations",
        kind="integer",
        minimum=2,
        maximum=4096,
        help="Answers that the model writes to each prompt, to compare them. Not set: TRL's default (GRPO 8, RLOO 2).",
        optional=True,
        empty="not set",
    ),
    Field(
        key="finetune.completion_length",
        label="Answer length",
        kind="integer",
        minimum=1,
        maximum=1048576,
        help="Longest answer that the model writes while it trains, in tokens. Not set: TRL's default, 512.",
        optional=True,
        empty="not set",
    ),
    Field(
        key="finetune.completions",
        label="Printed answers",
        kind="integer",
        minimum=1,
        maximum=64,
        help="So many of the newest answers are printed in the log, with their rewards: m, then a on Run shows them.",
        optional=True,
        empty="none",
    ),
    Field(
        key="finetune.freeze_vision",
        label="Frozen vision",
        kind="switch",
        help="For models that see images: only the language part gets an adapter, the vision part stays as it is.",
    ),
)

DATA_ROWS = (
    Field(
        key="data.evaluation",
        label="Evaluation share",
        kind="number",
        minimum=0,
        maximum=0.9,
        help="Share of the rows kept to evaluate on; 0: none. Not set: 5 %, at least 10 rows; none if under 30.",
        optional=True,
    ),
    Field(
        key="data.cut",
        label="Rows cut, at most",
        kind="number",
        minimum=0,
        maximum=1,
        help="Share of the rows that may be cut at the sequence length: 0.1 is 10 %. With more, no run starts.",
    ),
    Field(
        key="data.weights",
        label="Mix of files",
        kind="numbers",
        minimum=0,
        maximum=1_000_000,
        help="One number per file: 3 1 takes 3/4 of an epoch's rows from the first, some twice if it has few.",
        empty="every row once",
    ),
    Field(
        key="data.max_pixels",
        label="Image pixels",
        kind="integer",
        minimum=784,
        maximum=89_478_485,
        help="Images of more pixels are made smaller before the training: 1003520 is 1,280 tokens of Qwen2.5-VL.",
        optional=True,
    ),
)
