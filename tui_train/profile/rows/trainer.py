"""Rows of what trains: the trainer and NeMo."""

from typing import get_args

from tui_train.profile.rows.field import Field
from tui_train.profile.types import LauncherName, Strategy, TrainerKind

TRAINER_ROWS = (
    Field(
        key="trainer.kind",
        label="Trainer",
        kind="choice",
        options=get_args(TrainerKind),
        help="Fine-tune a model on your data (TRL), pretrain a new small one, run a script of yours, or a NeMo recipe.",
    ),
    Field(
        key="trainer.launcher",
        label="Launcher",
        kind="choice",
        options=("auto", *get_args(LauncherName)),
        help=(
            "Starts the processes. auto: python for one, torchrun for several (or if your script reads RANK), "
            "accelerate for sharding."
        ),
    ),
    Field(
        key="trainer.strategy",
        label="Sharding",
        kind="choice",
        options=get_args(Strategy),
        help="ddp: a full model per GPU. fsdp2, or zero1 to zero3 (DeepSpeed): a shard per GPU; both need accelerate.",
    ),
    Field(
        key="trainer.offload",
        label="CPU offload",
        kind="switch",
        help="Keeps the shards in main memory: much less GPU memory, much slower.",
    ),
    Field(
        key="trainer.accelerate_config",
        label="accelerate config",
        kind="path",
        help="File that `accelerate config` wrote: used for what you leave unset here. It is not changed.",
        empty="your default_config.yaml, if you have one",
    ),
    Field(
        key="trainer.python",
        label="Python",
        kind="path",
        help="The Python interpreter that runs the training; it needs torch.",
        empty="the best one on this machine",
    ),
    Field(key="trainer.script", label="Script", kind="path", help="The training script, a Python file."),
    Field(
        key="trainer.preset",
        label="Preset",
        kind="text",
        help=(
            "How your script gets values such as the rate. auto: as its source takes them (`tui-train presets` "
            "lists all)."
        ),
    ),
    Field(
        key="trainer.arguments",
        label="Extra arguments",
        kind="words",
        help="More arguments of the training, typed as in a shell. {micro_batch} and the like become the values set.",
        empty="none",
    ),
    Field(
        key="trainer.working_directory",
        label="Working directory",
        kind="path",
        help="The folder in which the training is started.",
        empty="the folder of the script or of its config file",
    ),
    Field(
        key="trainer.config",
        label="Config file",
        kind="path",
        help="YAML file that the training reads. Your values go into a copy of it; the file itself is not changed.",
        empty="none",
    ),
    Field(
        key="trainer.model",
        label="Model",
        kind="model",
        help="A Hugging Face model: its id on the Hub, such as Qwen/Qwen2.5-0.5B, or a folder. For NeMo, a folder.",
        empty="builtin: a new model; nemo: the recipe's own",
    ),
    Field(
        key="trainer.revision",
        label="Revision",
        kind="text",
        help="Branch, tag or commit of the model on the Hub. Only a commit never changes.",
        empty="main",
    ),
    Field(
        key="trainer.data",
        label="Training data",
        kind="paths",
        help="Fine-tuning: chats, Alpaca, prompt + completion, pairs or text (docs/data.md). Pretraining: text or "
        "JSONL. NeMo: .bin files with their .idx, or a folder with training.jsonl. A path with spaces needs quotes.",
        empty="builtin: a sample text",
    ),
    Field(
        key="trainer.validation_data",
        label="Validation data",
        kind="paths",
        help="Rows to evaluate on while it trains, in the format of the training data.",
        empty="none",
    ),
    Field(
        key="trainer.test_data",
        label="Test data",
        kind="paths",
        help="Rows to evaluate on after the training, in the format of the training data.",
        empty="none",
    ),
    Field(
        key="trainer.output",
        label="Output folder",
        kind="path",
        help="Where checkpoints and the trained model are saved.",
        empty="output/ in the run folder",
    ),
    Field(
        key="trainer.allow",
        label="Checks to skip",
        kind="names",
        help="Type learning_rate, length or rewards: the run then starts although that check says no.",
        empty="none of learning_rate, length, rewards",
    ),
    Field(
        key="trainer.environment",
        label="Env. variables",
        kind="table",
        help="Environment variables of the training, NAME=VALUE. For secrets use trainer.secrets.",
        empty="none",
    ),
    Field(
        key="trainer.secrets",
        label="Secret variables",
        kind="names",
        help="Names of variables to pass from your shell, such as HF_TOKEN. Their values are never written to disk.",
        empty="none named",
    ),
    Field(
        key="trainer.progress",
        label="Progress lines",
        kind="text",
        help=r"Regular expression, if your script's steps are not shown: it (?P<step>\d+) L=(?P<loss>\S+)",
        empty="the usual forms",
    ),
)

NEMO_ROWS = (
    Field(
        key="nemo.recipe",
        label="NeMo recipe",
        kind="text",
        help="Name of the recipe, such as qwen25_500m. See `tui-train recipes`.",
    ),
    Field(
        key="nemo.task",
        label="Task",
        kind="choice",
        options=("pretrain", "finetune"),
        help="pretrain starts from random weights, finetune from the recipe's weights or those in the model folder.",
    ),
    Field(
        key="nemo.peft",
        label="Tuning",
        kind="choice",
        options=("lora", "none"),
        help="lora trains small adapter matrices; none trains all weights and needs much more memory.",
    ),
    Field(
        key="nemo.tokenizer",
        label="Tokenizer",
        kind="path",
        help="A local Hugging Face folder with the tokenizer that the data was tokenized with.",
        empty="GPT-2 (NeMo downloads it)",
    ),
    Field(
        key="nemo.mock_data",
        label="Mock data",
        kind="switch",
        help="Trains on random tokens, to test whether the recipe runs.",
    ),
    Field(
        key="nemo.set",
        label="Recipe settings",
        kind="dotted",
        help="Other settings of the recipe, such as model.config.hidden_dropout=0.1; values as in Python.",
        empty="none",
    ),
    Field(
        key="nemo.tensor_parallel",
        label="Tensor parallel",
        kind="integer",
        minimum=1,
        maximum=1024,
        help="Number of GPUs that share each layer.",
        optional=True,
    ),
    Field(
        key="nemo.pipeline_parallel",
        label="Pipeline parallel",
        kind="integer",
        minimum=1,
        maximum=1024,
        help="Number of pipeline stages; each GPU holds one stage of layers.",
        optional=True,
    ),
    Field(
        key="nemo.context_parallel",
        label="Context parallel",
        kind="integer",
        minimum=1,
        maximum=1024,
        help="Number of GPUs that share the tokens of each sample.",
        optional=True,
    ),
)


TRACKING_ROWS = (
    Field(
        key="tracking.tensorboard",
        label="TensorBoard",
        kind="switch",
        help="Write TensorBoard files to the output folder; needs tensorboard in the Python that trains.",
    ),
    Field(
        key="tracking.wandb",
        label="Weights & Biases",
        kind="switch",
        help="Report to Weights & Biases; needs wandb, and WANDB_API_KEY under Secret variables or WANDB_MODE=offline.",
    ),
    Field(
        key="tracking.trackio",
        label="Trackio",
        kind="switch",
        help="Hugging Face's tracker, on the machine that trains and without an account; needs trackio there.",
    ),
    Field(
        key="tracking.project",
        label="Tracking project",
        kind="text",
        help="The project at Weights & Biases and of Trackio in which runs of this profile appear.",
        empty="chosen by the trainer",
    ),
)
