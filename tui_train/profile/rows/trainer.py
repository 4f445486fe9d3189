"""Rows of what trains: the trainer and NeMo."""

from tui_train.profile.rows.field import make_field

TRAINER_ROWS = (
    make_field(
        "trainer.kind",
        "Trainer",
        "Fine-tune a model on your data (TRL), pretrain a new small one, run a script of yours, or a NeMo recipe.",
    ),
    make_field(
        "trainer.launcher",
        "Launcher",
        "Starts the processes. auto: python for one, torchrun for several (or if your script reads RANK), "
        "accelerate for sharding.",
    ),
    make_field(
        "trainer.strategy",
        "Sharding",
        "ddp: a full model per GPU. fsdp2, or zero1 to zero3 (DeepSpeed): a shard per GPU; both need accelerate.",
    ),
    make_field("trainer.offload", "CPU offload", "Keeps the shards in main memory: much less GPU memory, much slower."),
    make_field(
        "trainer.accelerate_config",
        "accelerate config",
        "File that `accelerate config` wrote: used for what you leave unset here. It is not changed.",
        kind="path",
        empty="your default_config.yaml, if you have one",
    ),
    make_field(
        "trainer.python",
        "Python",
        "The Python interpreter that runs the training; it needs torch.",
        kind="path",
        empty="the best one on this machine",
    ),
    make_field("trainer.script", "Script", "The training script, a Python file.", kind="path"),
    make_field(
        "trainer.preset",
        "Preset",
        "How your script is given values such as the learning rate. auto: by the arguments that its source declares.",
    ),
    make_field(
        "trainer.arguments",
        "Extra arguments",
        "More arguments of the training, typed as in a shell. {micro_batch} and the like become the values set.",
        empty="none",
    ),
    make_field(
        "trainer.working_directory",
        "Working directory",
        "The folder in which the training is started.",
        kind="path",
        empty="the folder of the script or of its config file",
    ),
    make_field(
        "trainer.config",
        "Config file",
        "YAML file that the training reads. Your values go into a copy of it; the file itself is not changed.",
        kind="path",
        empty="none",
    ),
    make_field(
        "trainer.model",
        "Model",
        "A Hugging Face model: its id on the Hub, such as Qwen/Qwen2.5-0.5B, or a folder. For NeMo, a folder.",
        kind="model",
        empty="builtin: a new model; nemo: the recipe's own",
    ),
    make_field(
        "trainer.revision",
        "Revision",
        "Branch, tag or commit of the model on the Hub. Only a commit never changes.",
        empty="main",
    ),
    make_field(
        "trainer.data",
        "Training data",
        "Fine-tuning: chats, Alpaca, prompt + completion, pairs or text (docs/data.md). Pretraining: text or "
        "JSONL. NeMo: .bin files with their .idx, or a folder with training.jsonl. A path with spaces needs quotes.",
        kind="paths",
        empty="builtin: a sample text",
    ),
    make_field(
        "trainer.validation_data",
        "Validation data",
        "Rows to evaluate on while it trains, in the format of the training data.",
        kind="paths",
        empty="none",
    ),
    make_field(
        "trainer.test_data",
        "Test data",
        "Rows to evaluate on after the training, in the format of the training data.",
        kind="paths",
        empty="none",
    ),
    make_field(
        "trainer.output",
        "Output folder",
        "Where checkpoints and the trained model are saved.",
        kind="path",
        empty="output/ in the run folder",
    ),
    make_field(
        "trainer.allow",
        "Checks to skip",
        "Type learning_rate, length or rewards: the run then starts although that check says no.",
        kind="names",
        empty="none of learning_rate, length, rewards",
    ),
    make_field(
        "trainer.environment",
        "Env. variables",
        "Environment variables of the training, NAME=VALUE. For secrets use trainer.secrets.",
        empty="none",
    ),
    make_field(
        "trainer.secrets",
        "Secret variables",
        "Names of variables to pass from your shell, such as HF_TOKEN. Their values are never written to disk.",
        kind="names",
        empty="none named",
    ),
    make_field(
        "trainer.progress",
        "Progress lines",
        r"If Run shows no steps: a regular expression; for iter 12 L=0.5: iter (?P<step>\d+) L=(?P<loss>\S+)",
        empty="the usual forms",
    ),
)

NEMO_ROWS = (
    make_field("nemo.recipe", "NeMo recipe", "Name of the recipe, such as qwen25_500m. See `tui-train recipes`."),
    make_field(
        "nemo.task",
        "Task",
        "pretrain starts from random weights, finetune from the recipe's weights or those in the model folder.",
    ),
    make_field(
        "nemo.peft", "Tuning", "lora trains small adapter matrices; none trains all weights and needs much more memory."
    ),
    make_field(
        "nemo.tokenizer",
        "Tokenizer",
        "A local Hugging Face folder with the tokenizer that the data was tokenized with.",
        kind="path",
        empty="GPT-2 (NeMo downloads it)",
    ),
    make_field("nemo.mock_data", "Mock data", "Trains on random tokens, to test whether the recipe runs."),
    make_field(
        "nemo.set",
        "Recipe settings",
        "Other settings of the recipe, such as model.config.hidden_dropout=0.1; values as in Python.",
        kind="dotted",
        empty="none",
    ),
    make_field("nemo.tensor_parallel", "Tensor parallel", "Number of GPUs that share each layer.", limits=(1, 1024)),
    make_field(
        "nemo.pipeline_parallel",
        "Pipeline parallel",
        "Number of pipeline stages; each GPU holds one stage of layers.",
        limits=(1, 1024),
    ),
    make_field(
        "nemo.context_parallel",
        "Context parallel",
        "Number of GPUs that share the tokens of each sample.",
        limits=(1, 1024),
    ),
)


TRACKING_ROWS = (
    make_field(
        "tracking.tensorboard",
        "TensorBoard",
        "Write TensorBoard files to the output folder; needs tensorboard in the Python that trains.",
    ),
    make_field(
        "tracking.wandb",
        "Weights & Biases",
        "Report to Weights & Biases; needs wandb, and WANDB_API_KEY under Secret variables or WANDB_MODE=offline.",
    ),
    make_field(
        "tracking.trackio",
        "Trackio",
        "Hugging Face's tracker, on the machine that trains and without an account; needs trackio there.",
    ),
    make_field(
        "tracking.project",
        "Tracking project",
        "The project at Weights & Biases and of Trackio in which runs of this profile appear.",
        empty="chosen by the trainer",
    ),
)
