"""Rows of a fine-tuning: its method, its adapter, and what becomes of the data."""

from tui_train.profile.rows.field import make_field

FINETUNE_ROWS = (
    make_field(
        "finetune.method",
        "Method",
        "sft: learns from examples. dpo, reward: from pairs of answers. kto: from answers marked good or bad. "
        "grpo, rloo: from rewards of what the model writes itself.",
    ),
    make_field(
        "finetune.rewards",
        "Rewards",
        "Functions that score answers (GRPO, RLOO): your FILE.py:FUNCTION, or TRL's accuracy_reward.",
        kind="rewards",
        empty="none",
    ),
    make_field(
        "finetune.tuning",
        "Tuning",
        "lora: a small adapter. qlora: the same, with the model in 4 bits. full: all weights, much more memory.",
    ),
    make_field(
        "finetune.rank",
        "LoRA rank",
        "Size of the adapter matrices: a higher rank can learn more, and takes more memory.",
        limits=(1, 4096),
    ),
    make_field(
        "finetune.alpha",
        "LoRA alpha",
        "Scale of the adapter: its output is multiplied by alpha / rank.",
        limits=(1, 65536),
    ),
    make_field(
        "finetune.dropout",
        "LoRA dropout",
        "Share of the adapter's input that is dropped at random while it learns.",
        limits=(0, 0.9),
    ),
    make_field(
        "finetune.targets",
        "LoRA targets",
        "Names of the layers that get an adapter, such as q_proj, v_proj.",
        kind="names",
        empty="all linear layers",
    ),
    make_field(
        "finetune.packing",
        "Packing",
        "Puts several whole samples into one sequence, where each sees itself alone: faster where they are short.",
    ),
    make_field(
        "finetune.answers_only",
        "Answers only",
        "Only the assistant's answers are learned. Not set: on, for chats whose template marks the answers.",
    ),
    make_field(
        "finetune.beta",
        "Beta",
        "Higher: stays closer to the original model. Not set: TRL's default (DPO, KTO 0.1; RLOO 0.05; GRPO 0).",
        limits=(0, 100),
    ),
    make_field(
        "finetune.generations",
        "Generations",
        "Answers that the model writes to each prompt, to compare them. Not set: TRL's default (GRPO 8, RLOO 2).",
        limits=(2, 4096),
        empty="not set",
    ),
    make_field(
        "finetune.completion_length",
        "Answer length",
        "Longest answer that the model writes while it trains, in tokens. Not set: TRL's default, 512.",
        limits=(1, 1048576),
        empty="not set",
    ),
    make_field(
        "finetune.completions",
        "Printed answers",
        "How many of the newest answers are printed in the log, with their rewards; m, then a on Run shows them.",
        limits=(1, 64),
        empty="none",
    ),
    make_field(
        "finetune.freeze_vision",
        "Frozen vision",
        "For models that see images: only the language part gets an adapter, the vision part stays as it is.",
    ),
)

DATA_ROWS = (
    make_field(
        "data.evaluation",
        "Evaluation share",
        "Share of the rows kept to evaluate on; 0: none. Not set: 5 %, at least 10 rows; none if under 30.",
        empty="auto",
        limits=(0, 0.9),
    ),
    make_field(
        "data.cut",
        "Rows cut, at most",
        "Share of the rows that may be cut at the sequence length: 0.1 is 10 %. With more, no run starts.",
        limits=(0, 1),
    ),
    make_field(
        "data.weights",
        "Mix of files",
        "One number per file: 3 1 takes 3/4 of an epoch's rows from the first file, some twice if it has few.",
        limits=(0, 1_000_000),
        empty="every row once",
    ),
    make_field(
        "data.max_pixels",
        "Image pixels",
        "Images of more pixels are made smaller before the training: 1003520 is 1,280 tokens of Qwen2.5-VL.",
        limits=(784, 89_478_485),
    ),
)
