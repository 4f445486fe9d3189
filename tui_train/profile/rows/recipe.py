"""Rows of the recipe, and of what is tried after out of memory."""

from tui_train.profile.rows.field import make_field

RECIPE_ROWS = (
    make_field("recipe.layers", "Layers", "Number of transformer layers.", limits=(1, 1000)),
    make_field(
        "recipe.hidden_size", "Hidden size", "Hidden size of the model; a multiple of 2 x heads.", limits=(8, 65536)
    ),
    make_field(
        "recipe.ffn_hidden_size",
        "FFN size",
        "Size of the feed-forward layers; empty: 4 x the hidden size, where that is set.",
        limits=(1, 1_000_000),
    ),
    make_field("recipe.heads", "Heads", "Number of attention heads.", limits=(1, 1024)),
    make_field("recipe.sequence_length", "Sequence length", "Tokens per sample.", limits=(2, 4_194_304)),
    make_field(
        "recipe.micro_batch",
        "Micro batch",
        "Samples that one GPU (process) computes at a time. More need more memory.",
        limits=(1, 65536),
    ),
    make_field(
        "recipe.eval_batch",
        "Evaluation batch",
        "Samples that one GPU (process) computes at a time in evaluations; 0: the trainer's default.",
        limits=(0, 65536),
    ),
    make_field(
        "recipe.global_batch",
        "Global batch",
        "Samples per optimizer step: micro batch x gradient accumulation x processes.",
        limits=(1, 16_777_216),
    ),
    make_field(
        "recipe.learning_rate",
        "Learning rate",
        "Highest learning rate of the schedule, such as 2e-4.",
        limits=(1e-12, 100),
    ),
    make_field(
        "recipe.lr_scaling",
        "LR scaling",
        "Changes the learning rate with the global batch, against the LR reference batch: in proportion (linear, for "
        "SGD), by the square root (sqrt, for Adam), or not at all (none).",
    ),
    make_field(
        "recipe.lr_base_batch",
        "LR reference batch",
        "Global batch for which the learning rate was tuned (for LR scaling); 0: same as global batch.",
        limits=(0, 16_777_216),
    ),
    make_field("recipe.precision", "Precision", "bf16 needs RTX 30, A100 or newer GPUs; fp16 needs a GPU."),
    make_field(
        "recipe.epochs",
        "Epochs",
        "Passes through the training data. Not used if Steps is set.",
        limits=(0.001, 100_000),
    ),
    make_field(
        "recipe.steps", "Steps", "Number of optimizer steps. If set, Epochs is not used.", limits=(1, 1_000_000_000)
    ),
    make_field(
        "recipe.warmup",
        "Warmup",
        "Steps in which the learning rate rises at first: a number, or a share of all steps such as 0.03.",
        limits=(0, 1_000_000),
    ),
    make_field(
        "recipe.schedule", "LR schedule", "Learning rate after the warmup: linear or cosine decay to 0, or constant."
    ),
    make_field(
        "recipe.weight_decay", "Weight decay", "How strongly AdamW pulls the weights towards 0.", limits=(0, 10)
    ),
    make_field(
        "recipe.activation_checkpointing",
        "Act. checkpointing",
        "Computes activations twice instead of keeping them: less memory, about 25 % slower, same result.",
    ),
    make_field(
        "recipe.expandable_segments",
        "Expandable segments",
        "Lets PyTorch grow its blocks of GPU memory: less is lost to gaps between them.",
    ),
    make_field(
        "recipe.fused_optimizer",
        "Fused optimizer",
        "Runs AdamW in one kernel: less memory, same result. The default of transformers 5 with torch 2.8.",
    ),
    make_field(
        "recipe.fused_cross_entropy",
        "Fused cross entropy",
        "Computes the loss in pieces: less memory, same result up to rounding. Needs liger-kernel.",
    ),
    make_field(
        "recipe.optimizer_8bit",
        "8-bit optimizer",
        "AdamW with 8-bit states: less memory, changes the result. Needs bitsandbytes.",
    ),
    make_field("recipe.lora", "LoRA", "Trains a small adapter: much less memory, changes the result. Needs peft."),
    make_field(
        "recipe.checkpoint_every",
        "Checkpoint every",
        "Steps between checkpoints. A run that was stopped or failed resumes from the newest one.",
        limits=(1, 1_000_000_000),
    ),
    make_field(
        "recipe.evaluate_every",
        "Evaluate every",
        "Steps between evaluations. Needs validation data, or an evaluation share.",
        limits=(1, 1_000_000_000),
    ),
    make_field(
        "recipe.seed",
        "Seed",
        "Seed of the random numbers: initial weights and order of the data.",
        limits=(0, 2**31 - 1),
    ),
)

LADDER_ROWS = (
    make_field(
        "ladder.rungs",
        "After out of memory",
        "Changes tried in this order after a GPU runs out of memory.",
        kind="names",
        empty="nothing: the run fails",
    ),
    make_field(
        "ladder.consent", "Consent", "Fallbacks allowed although they change the result.", kind="names", empty="none"
    ),
)
