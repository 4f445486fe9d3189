"""ROWS: one row a choice, from which come the TOML key, `--set`, the form row, its limits and its help."""

from typing import Literal

from msgspec import Struct

FieldKind = Literal["choice", "integer", "number", "switch", "text", "path", "paths", "words", "names", "table"]


class Field(Struct, frozen=True, kw_only=True):
    """One choice: `key` is its place in the profile, limits are inclusive, `empty` says what an empty value means."""

    key: str
    label: str
    kind: FieldKind
    help: str
    options: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    empty: str = ""


ROWS = (
    Field(key="name", label="Profile name", kind="text", help="How runs and the saved profile are called."),
    Field(
        key="hardware.device",
        label="Device",
        kind="choice",
        options=("auto", "cuda", "cpu"),
        help="auto takes the GPUs when there are usable ones, else the CPU.",
    ),
    Field(
        key="hardware.gpus",
        label="GPUs",
        kind="words",
        help="UUIDs of the cards to train on, as `nvidia-smi -L` prints them.",
        empty="the recommended cards",
    ),
    Field(
        key="hardware.processes",
        label="Processes",
        kind="integer",
        minimum=0,
        maximum=64,
        help="Training processes (world size). On GPUs it is one per card: leave 0.",
    ),
    Field(
        key="trainer.kind",
        label="What trains",
        kind="choice",
        options=("builtin", "script"),
        help="The built-in trainer, or a script of your own with a preset that passes it the recipe.",
    ),
    Field(
        key="trainer.launcher",
        label="Launcher",
        kind="choice",
        options=("auto", "python", "torchrun", "accelerate"),
        help="What starts the training processes; auto is python for one, torchrun for several.",
    ),
    Field(
        key="trainer.python",
        label="Python",
        kind="path",
        help="The interpreter that trains. It needs torch; this program itself does not.",
        empty="the best one found",
    ),
    Field(key="trainer.script", label="Script", kind="path", help="The Python file that trains."),
    Field(
        key="trainer.preset",
        label="Preset",
        kind="text",
        help="How the recipe becomes arguments of the script.",
    ),
    Field(
        key="trainer.arguments",
        label="More arguments",
        kind="words",
        help="Passed to the training after the others, quoted as in a shell. {micro_batch} and the like are filled in.",
        empty="none",
    ),
    Field(
        key="trainer.working_directory",
        label="Start in",
        kind="path",
        help="The folder in which the training starts.",
        empty="the folder of the script",
    ),
    Field(
        key="trainer.model",
        label="Model folder",
        kind="path",
        help="A local Hugging Face folder (config, weights, tokenizer). Its size cannot be changed below.",
        empty="a new model of the size below",
    ),
    Field(
        key="trainer.data",
        label="Training data",
        kind="paths",
        help='Text files, or JSONL with a "text" field.',
        empty="the sample text",
    ),
    Field(
        key="trainer.output",
        label="Output folder",
        kind="path",
        help="Where checkpoints and the model go.",
        empty="output/ in the run folder",
    ),
    Field(
        key="trainer.environment",
        label="Environment",
        kind="table",
        help="Variables for the training, NAME=VALUE. Secrets do not belong here: name them below.",
        empty="none",
    ),
    Field(
        key="trainer.secrets",
        label="Secrets by name",
        kind="names",
        help="Variables that must be set where the run is started, such as HF_TOKEN. Their values are never written.",
        empty="none",
    ),
    Field(key="recipe.layers", label="Layers", kind="integer", minimum=1, maximum=1000, help="Transformer layers."),
    Field(
        key="recipe.hidden_size",
        label="Hidden size",
        kind="integer",
        minimum=8,
        maximum=65536,
        help="Width of the model; a multiple of 2 x heads.",
    ),
    Field(key="recipe.heads", label="Heads", kind="integer", minimum=1, maximum=1024, help="Attention heads."),
    Field(
        key="recipe.sequence_length",
        label="Sequence length",
        kind="integer",
        minimum=2,
        maximum=4_194_304,
        help="Tokens in one sample.",
    ),
    Field(
        key="recipe.micro_batch",
        label="Micro batch",
        kind="integer",
        minimum=1,
        maximum=65536,
        help="Samples that one process takes at a time. Memory grows with it.",
    ),
    Field(
        key="recipe.global_batch",
        label="Global batch",
        kind="integer",
        minimum=1,
        maximum=16_777_216,
        help="Samples in one optimizer step over all processes: micro batch x accumulation x processes.",
    ),
    Field(
        key="recipe.learning_rate",
        label="Learning rate",
        kind="number",
        minimum=1e-12,
        maximum=100,
        help="The peak learning rate, before scaling.",
    ),
    Field(
        key="recipe.lr_scaling",
        label="LR scaling",
        kind="choice",
        options=("none", "linear", "sqrt"),
        help="How the learning rate follows the global batch: linear suits SGD, sqrt or none suit Adam.",
    ),
    Field(
        key="recipe.lr_base_batch",
        label="LR was chosen for",
        kind="integer",
        minimum=0,
        maximum=16_777_216,
        help="The global batch for which the learning rate is right; 0 is the one above.",
    ),
    Field(
        key="recipe.precision",
        label="Precision",
        kind="choice",
        options=("fp32", "bf16", "fp16"),
        help="bf16 needs cards of compute capability 8.0 or newer; fp16 needs a GPU.",
    ),
    Field(
        key="recipe.steps",
        label="Steps",
        kind="integer",
        minimum=1,
        maximum=1_000_000_000,
        help="Optimizer steps in the whole training.",
    ),
    Field(
        key="recipe.activation_checkpointing",
        label="Act. checkpointing",
        kind="switch",
        help="Recomputes activations in the backward pass: less memory, about a quarter slower, same results.",
    ),
    Field(
        key="recipe.expandable_segments",
        label="Expandable segments",
        kind="switch",
        help="Lets the CUDA allocator grow its blocks: less memory lost to fragmentation.",
    ),
    Field(
        key="recipe.checkpoint_every",
        label="Checkpoint every",
        kind="integer",
        minimum=1,
        maximum=1_000_000_000,
        help="Optimizer steps between checkpoints; a run resumes from the newest complete one.",
    ),
    Field(key="recipe.seed", label="Seed", kind="integer", minimum=0, maximum=2**31 - 1, help="Fixes order and start."),
    Field(
        key="ladder.rungs",
        label="After out of memory",
        kind="names",
        help="What is tried, in this order, when a GPU runs out of memory.",
        empty="nothing: stop at once",
    ),
    Field(
        key="ladder.consent",
        label="Consent",
        kind="names",
        help="Rungs that change the training itself and that you allow.",
        empty="none",
    ),
)
