"""What a training was doing when an error ended it, as the functions of its traceback tell."""

import re
from collections.abc import Sequence

from msgspec import Struct

from tui_train.diagnose.traceback_lines import frames_before
from tui_train.diagnose.types import LogLine


class TrainingStage(Struct, frozen=True):
    """A part of a training: the frames that show it, what is done in it, and where its mistakes usually lie."""

    frame: re.Pattern[str]
    words: str
    remedy: str


# What lies further outside calls these for everything that a training does.
_MIDDLE_OF_TRAINING_PATTERN = re.compile(
    r", in (?:train|fit|training_step|_?inner_training_loop|_fast_inner_training_loop|train_step|run|forward|backward"
    r"|_(?:wrapped_)?call_impl|compute_loss|step|__torch_(?:function|dispatch)__)$"
)
_STAGES = (
    TrainingStage(
        re.compile(r"/(?:wandb|tensorboard|tensorboardX|mlflow|swanlab|trackio|comet_ml|neptune|clearml|aim)/"),
        "logged its numbers",
        "Not the training failed but what records it: log in there and correct its settings, or train without it "
        '(report_to="none").',
    ),
    TrainingStage(
        re.compile(r", in (?:push_to_hub|_push_from_checkpoint|create_repo|create_commit|upload_\w+|preupload_\w+)$"),
        "uploaded to the Hub",
        "Correct the repository's name (hub_model_id) and log in with a token that may write (`hf auth login`), or set "
        "push_to_hub=False; what was trained lies in the output folder.",
    ),
    TrainingStage(
        re.compile(r", in _?(?:load|restore|resume|set)_?\w*(?:checkpoint|ckpt|state_dict|optimizer|rng_state)\w*$"),
        "loaded a checkpoint",
        "The checkpoint has to be of the same model, adapter and libraries, and of the same kind of sharding (FSDP, "
        "ZeRO) as what loads it ({place|see the traceback}): name one that is, or load its weights alone.",
    ),
    TrainingStage(
        re.compile(r", in _?save_?(?:model|checkpoint|pretrained|state|state_dict|optimizer\w*|ckpt)?$"),
        "saved a checkpoint",
        "The steps before it went well. See that the output folder can be written and has room, and what is saved at "
        "{place|that line}; resume from the checkpoint before.",
    ),
    TrainingStage(
        re.compile(r", in (?:from_pretrained|_?load_pretrained_\w+|get_peft_model|_load_model\w*|load_model\w*)$"),
        "loaded the model",
        "See what the message says of the model or its tokenizer, and what it is loaded with at {place|that line}: its "
        "folder has to be whole (config.json, tokenizer files, every part of the weights), and a model newer than the "
        "installed transformers needs an update of it.",
    ),
    TrainingStage(
        re.compile(r", in (?:apply_chat_template|render_jinja_template)$"),
        "applied the chat template",
        "Print one conversation of the data: each message needs a role and a content that the template knows, in the "
        "order that it expects (user and assistant in turn).",
    ),
    TrainingStage(
        re.compile(r'/datasets/(?:\w+_dataset|dataset_dict)\.py", line \d+, in \w*(?:map|filter)\w*$'),
        "prepared the data (map)",
        "A row is not as the function at {place|that line} expects: print the columns and the first rows "
        "(`print(dataset[0])`), and the row that it fails on (without batched and num_proc).",
    ),
    TrainingStage(
        re.compile(r'/datasets/(?:load|builder|data_files|inspect|packaged_modules/.*)\.py", line \d+, in '),
        "read the data",
        "Check the name, the format and the split of the data at {place|that line}: load_dataset alone, in a Python of "
        "its own, shows the same error sooner.",
    ),
    TrainingStage(
        re.compile(r"/torch/utils/data/_utils/|, in \w*(?:collat|torch_call)\w*$"),
        "made a batch of the data",
        "Rows of one batch do not go together, or one is not as {place|the code} expects: print `dataset[0]` and the "
        "lengths of its columns; num_workers=0 and batch size 1 find the row.",
    ),
    TrainingStage(
        re.compile(r", in \w*compute_metrics\w*$"),
        "computed its metrics",
        "Print the shapes of predictions and labels at {place|that line}: predictions may be a tuple or logits, labels "
        "hold -100, and both need one entry for each example.",
    ),
    TrainingStage(
        re.compile(r", in \w*rewards?(?:_\w+)?$"),
        "computed rewards",
        "A reward function returns one number for each completion, from what the columns of the data give it: call it "
        "with one row by hand ({place|see the traceback}).",
    ),
    TrainingStage(
        re.compile(r"/torch/distributed/(?:device_mesh\.py|_?tensor/)"),
        "computed with sharded tensors",
        "See what the mesh or the sharded tensors (DTensor) are given at {place|that line}: the sizes of the mesh "
        "multiply to the number of processes, its dimensions have the names that are asked for, and what is sharded "
        "divides by them.",
    ),
    TrainingStage(
        re.compile(
            r'/accelerate/accelerator\.py", line \d+, in _?prepare'
            r'|/deepspeed/\S+", line \d+, in (?:initialize|__init__)$'
            r'|/torch/distributed/(?:fsdp|_composable)/\S+", line \d+, in (?:__init__|fully_shard|_\w*(?:init|wrap))'
        ),
        "set the model up for several GPUs",
        "See what the wrapper was given at {place|that line}: all weights in one dtype and on the device that it "
        "expects, layers of the names in the sharding settings, and no device_map.",
    ),
    TrainingStage(
        re.compile(
            r'/(?:argparse|hf_argparser|(?:omegaconf|pydantic|simple_parsing|draccus)/[\w/]+)\.py"'
            r"|, in _?parse_\w*args\w*$"
        ),
        "read its arguments",
        "Correct what the message names in the arguments or the configuration file ({place|see the traceback}); the "
        "examples of the installed version show the names and values.",
    ),
)


def failed_stage(lines: Sequence[LogLine], error_line: LogLine) -> TrainingStage | None:
    """Return the innermost part of a training that the traceback before a line shows, None where it shows none."""
    for frame in reversed(frames_before(lines, error_line)):
        if stage := next((stage for stage in _STAGES if stage.frame.search(frame.text)), None):
            return stage
        if _MIDDLE_OF_TRAINING_PATTERN.search(frame.text):
            return None
    return None
