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
        help="Functions that score answers, for GRPO and RLOO: FILE.py:FUNCTION of yours, or TRL's accuracy_reward.",
        empty="none",
    ),
    Field(
        key="finetune.tuning",
        label="Tuning",
        kind="choice",
        options=get_args(FinetuneTuning),
        help="lora: small adapter matrices. qlora: the same on weights in 4 bits. full: all weights, much more memory.",
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
        help="Puts several samples into one sequence: faster where samples are short. Best with FlashAttention.",
    ),
    Field(
        key="finetune.answers_only",
        label="Answers only",
        kind="switch",
        help="Only what the assistant says is learned. Not set: on, for chats where the chat template marks it.",
        optional=True,
    ),
    Field(
        key="finetune.beta",
        label="Beta",
        kind="number",
        minimum=0,
        maximum=100,
        help="Higher stays closer to the model before. Not set: TRL's, 0.1 of DPO and KTO, 0.05 of RLOO, 0 of GRPO.",
        optional=True,
    ),
    Field(
        key="finetune.generations",
        label="Generations",
        kind="integer",
        minimum=2,
        maximum=4096,
        help="Answers that the model writes to each prompt, to be compared. Not set: TRL's own, 8 of GRPO, 2 of RLOO.",
        optional=True,
    ),
    Field(
        key="finetune.completion_length",
        label="Answer length",
        kind="integer",
        minimum=1,
        maximum=1048576,
        help="Tokens after which an answer that the model writes is cut off. Not set: TRL's own, 512.",
        optional=True,
    ),
    Field(
        key="finetune.freeze_vision",
        label="Frozen vision",
        kind="switch",
        help="Of a model that sees, the adapter is put into the language part alone; the vision tower stays as it is.",
    ),
)

DATA_ROWS = (
    Field(
        key="data.evaluation",
        label="Evaluation share",
        kind="number",
        minimum=0,
        maximum=0.9,
        help="Share of the rows kept for evaluations; 0: none. Not set: 5 %, at least 10 rows; none of under 30.",
        optional=True,
    ),
    Field(
        key="data.cut",
        label="Cut share",
        kind="number",
        minimum=0,
        maximum=1,
        help="Share of the rows that may be longer than the sequence length; with more the run does not start.",
    ),
    Field(
        key="data.weights",
        label="Mix of files",
        kind="numbers",
        minimum=0,
        maximum=1_000_000,
        help="A ratio, one number a file: 3 1 takes 3/4 of an epoch's rows from the first, some again if few.",
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
