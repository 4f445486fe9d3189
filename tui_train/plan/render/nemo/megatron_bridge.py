"""megatron_bridge.py: a recipe of Megatron-Bridge 0.3 or newer as a readable Python file."""

from tui_train.plan.render.nemo.nemo_model import (
    argument_reader_code,
    length_and_recomputing_lines,
    model_size_lines,
    model_split_lines,
)
from tui_train.trainers.nemo import NemoFile

_HEAD_TEMPLATE = '''"""The recipe {recipe} of Megatron-Bridge 0.3 to 0.6. Written by tui-train; it runs without it.

launch.sh starts it, one process per GPU. The attempts change the options listed by --help.
"""

import argparse
from pathlib import Path

{imports}

HERE = Path(__file__).resolve().parent


{argument_reader}{weights}

def make_config(arguments):
    config = recipes.{recipe}()
'''
_FILE_TAIL_TEMPLATE = """    return config


# Workers of the data loader and of checkpoints may import this file again, so nothing may train before this line.
if __name__ == "__main__":
    {start}(make_config(read_arguments()), forward_step)
"""
_WEIGHTS_FUNCTION_CODE = """

def weights(folder):
    # Without weights it would silently start from random ones. Since 0.6 it also reads Hugging Face weights.
    looks = (getattr(checkpoint_utils, name, None) for name in ("checkpoint_exists", "is_hf_checkpoint_dir"))
    if not any(look(folder) for look in looks if look):
        raise SystemExit(f"{folder} has no weights that this Megatron-Bridge can load")
    return folder
"""
_LINES_BY_PRECISION = {
    "bf16": ['    config.mixed_precision = "bf16_mixed"'],
    "fp16": ['    config.mixed_precision = "fp16_mixed"'],
    "fp32": [
        "    config.mixed_precision = MixedPrecisionConfig(",
        "        fp32=True,",
        "        params_dtype=torch.float32,",
        "        pipeline_dtype=torch.float32,",
        "        grad_reduce_in_fp32=False,",
        "    )",
    ],
}
# Shares of the data for training, validation and test.
_TRAIN_ONLY_DATA_SPLIT = "1,0,0"


def render_megatron_bridge(file: NemoFile) -> str:
    """Return the text of megatron_bridge.py; the recipe's name must be a Python identifier."""
    head = _HEAD_TEMPLATE.format(
        recipe=_recipe_function_name(file),
        imports="\n".join(_import_lines(file)),
        argument_reader=argument_reader_code(file),
        weights=_WEIGHTS_FUNCTION_CODE if file.model else "",
    )
    body = [
        *_batch_seed_and_log_lines(file),
        *model_size_lines(file, "config.model"),
        *_model_split_lines(file),
        *_data_lines(file),
        *length_and_recomputing_lines("config.model", "config.dataset"),
        *_optimizer_lines(file),
    ]
    body += [*_validation_lines(file), *_precision_lines(file), *_checkpoint_lines(file)]
    return head + "\n".join(body) + "\n" + _FILE_TAIL_TEMPLATE.format(start=file.task)


def _recipe_function_name(file: NemoFile) -> str:
    kind = {"pretrain": "pretrain", "finetune": "peft" if file.peft == "lora" else "sft"}[file.task]
    return f"{file.recipe}_{kind}_config"


def _import_lines(file: NemoFile) -> list[str]:
    lines = ["from megatron.bridge import recipes"]
    if file.task == "finetune":
        lines.append("from megatron.bridge.training import config as configs")
        lines.append("from megatron.bridge.training.finetune import finetune")
    lines.append("from megatron.bridge.training.gpt_step import forward_step")
    if file.precision == "fp32":
        lines = ["import torch", *lines, "from megatron.bridge.training.mixed_precision import MixedPrecisionConfig"]
    if file.task == "pretrain":
        lines.append("from megatron.bridge.training.pretrain import pretrain")
    if file.model:
        lines.append("from megatron.bridge.training.utils import checkpoint_utils")
    return lines


def _batch_seed_and_log_lines(file: NemoFile) -> list[str]:
    lines = [
        "",
        *_assignment_lines("config.train.train_iters", file.steps),
        *_assignment_lines("config.train.global_batch_size", file.global_batch),
    ]
    if file.global_batch:
        lines.append("    config.train.rampup_batch_size = None")
    lines += [
        "    if arguments.micro_batch:",
        "        config.train.micro_batch_size = arguments.micro_batch",
        *_assignment_lines("config.rng.seed", file.seed),
    ]
    if file.steps:
        lines.append(f"    config.logger.log_interval = {1 if file.steps < 100 else 10}")
    return [*lines, '    config.logger.tensorboard_dir = str(Path(arguments.output, "tensorboard"))']


def _precision_lines(file: NemoFile) -> list[str]:
    return ["", *_LINES_BY_PRECISION[file.precision]] if file.precision else []


def _assignment_lines(name: str, value: object) -> list[str]:
    """Return the line that sets a value, none if it is left to the recipe."""
    return [] if value is None else [f"    {name} = {value!r}"]


def _model_split_lines(file: NemoFile) -> list[str]:
    lines = model_split_lines(file, "model", "config.model")
    if file.pipeline_parallel:
        lines += [
            "    model.pipeline_model_parallel_layout = None",
            "    model.num_layers_in_first_pipeline_stage = None",
            "    model.num_layers_in_last_pipeline_stage = None",
            "    model.account_for_embedding_in_pipeline_split = False",
            "    model.account_for_loss_in_pipeline_split = False",
        ]
    if file.task == "finetune" and (file.context_parallel or 1) > 1:
        lines += [
            "    # A GPU may hold part of a sample without its answer: the loss is averaged over all tokens.",
            "    model.calculate_per_token_loss = True",
            "    config.ddp.average_in_collective = False",
        ]
    return lines


def _data_lines(file: NemoFile) -> list[str]:
    if file.task == "finetune":
        return _finetune_data_lines(file)
    if not file.data:
        lines = ["    # MOCK DATA: random tokens, to test whether it runs.", "    config.dataset.blend = None"]
    else:
        prefixes = (path.removesuffix(".bin") for path in file.data)
        lines = [
            "    # Each prefix is a .bin and a .idx file, as written by Megatron's preprocess_data.py.",
            "    prefixes = [",
            *(f"        {prefix!r}," for prefix in prefixes),
            "    ]",
            "    config.dataset.blend = (prefixes, None)",
            "    # The sample index is saved here, because the data folder may be read-only.",
            '    config.dataset.path_to_cache = str(HERE / "samples")',
        ]
    return [
        "",
        *lines,
        "    config.dataset.blend_per_split = None",
        "    # All documents are for training: a small set has none left for validation.",
        f"    config.dataset.split = {_TRAIN_ONLY_DATA_SPLIT!r}",
        "    if arguments.sequence_length:",
        "        config.dataset.seq_length = arguments.sequence_length",
        *_assignment_lines("config.dataset.random_seed", file.seed),
        *_tokenizer_lines(file),
    ]


def _finetune_data_lines(file: NemoFile) -> list[str]:
    """Return the lines for the data of a finetuning, which the recipe would download."""
    if not file.data:
        return [
            "",
            "    # MOCK DATA: random tokens, to test whether it runs.",
            "    config.dataset = configs.GPTDatasetConfig(",
            "        seq_length=arguments.sequence_length or config.dataset.seq_length,",
            *([] if file.seed is None else [f"        random_seed={file.seed},"]),
            f"        split={_TRAIN_ONLY_DATA_SPLIT!r},",
            '        dataloader_type="single",',
            "        num_dataset_builder_threads=1,",
            "        reset_position_ids=False,",
            "        reset_attention_mask=False,",
            "        eod_mask_loss=False,",
            "    )",
            *_tokenizer_lines(file),
        ]
    # Pipeline stages exchange tensors of a fixed shape, so samples are padded.
    padded = ', "pad_to_max_length": True' if (file.pipeline_parallel or 1) > 1 else ""
    return [
        "",
        "    # training.jsonl in this folder, and validation.jsonl if it exists.",
        '    dataset = getattr(configs, "GPTSFTDatasetConfig", None) or configs.FinetuningDatasetConfig',
        "    config.dataset = dataset(",
        f"        dataset_root={file.data[0]!r},",
        "        seq_length=arguments.sequence_length or config.dataset.seq_length,",
        *([] if file.seed is None else [f"        seed={file.seed},"]),
        f"        do_validation={file.validation},",
        "        do_test=False,",
        "        # The line index is saved here, because the data folder may be read-only.",
        f'        dataset_kwargs={{"index_mapping_dir": str(HERE / "samples"){padded}}},',
        "    )",
        *_tokenizer_lines(file),
    ]


def _tokenizer_lines(file: NemoFile) -> list[str]:
    if not file.tokenizer:
        return []
    return [
        '    config.tokenizer.tokenizer_type = "HuggingFaceTokenizer"',
        f"    config.tokenizer.tokenizer_model = {file.tokenizer!r}",
        "    config.tokenizer.vocab_size = None",
    ]


def _optimizer_lines(file: NemoFile) -> list[str]:
    lines = [""]
    if file.learning_rate is not None:
        lines.append(f"    config.optimizer.lr = {file.learning_rate!r}")
        lines.append(f"    config.optimizer.min_lr = {file.learning_rate!r} / 10")
    if file.steps:
        lines.append(f"    config.scheduler.lr_decay_iters = {file.steps}")
    if file.warmup is not None:
        steps = f"int({file.warmup!r} * config.train.train_iters)" if 0 < file.warmup < 1 else str(int(file.warmup))
        lines += ["    config.scheduler.lr_warmup_fraction = None", f"    config.scheduler.lr_warmup_iters = {steps}"]
    elif file.steps:
        lines += [
            f"    if (config.scheduler.lr_warmup_iters or 0) >= {file.steps}:",
            '        raise SystemExit("the recipe warms up for more steps than there are: set recipe.warmup")',
        ]
    return [
        *lines,
        "    # Use these values, not those in a checkpoint of a run with other steps.",
        "    config.scheduler.override_opt_param_scheduler = True",
    ]


def _validation_lines(file: NemoFile) -> list[str]:
    lines = [
        "",
        "    # Part of config.train before 0.4.",
        '    validation = getattr(config, "validation", config.train)',
        *_assignment_lines(
            "validation.eval_interval", min(filter(None, (file.checkpoint_every, file.steps)), default=None)
        ),
    ]
    validates = file.validation and file.task == "finetune" and file.data
    return lines if validates else [*lines, "    validation.eval_iters = 0"]


def _checkpoint_lines(file: NemoFile) -> list[str]:
    lines = [
        "",
        "    # Resumes from the newest checkpoint, if there is one.",
        "    config.checkpoint.save = arguments.output",
        "    config.checkpoint.load = arguments.output",
        *_assignment_lines("config.checkpoint.save_interval", file.checkpoint_every),
    ]
    if file.model:
        lines.append(f"    config.checkpoint.pretrained_checkpoint = weights({file.model!r})")
    return lines
