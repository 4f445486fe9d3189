"""nemo_recipe.py: a recipe of nemo_toolkit 2.3 to 2.7 as a readable Python file."""

from tui_train.plan.render.nemo.nemo_model import (
    argument_reader_code,
    length_and_recomputing_lines,
    model_size_lines,
    model_split_lines,
)
from tui_train.trainers.nemo import NemoFile

_HEAD_TEMPLATE = '''"""The NeMo recipe {recipe}, for nemo_toolkit 2.3 to 2.7. Written by tui-train; it runs without it.

launch.sh starts it, one process per GPU. The attempts change the options listed by --help.
"""

import argparse
import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Read when nemo_run is imported; otherwise it writes to the home folder.
os.environ.setdefault("NEMORUN_HOME", str(HERE / "nemo_run"))

import nemo_run as run
import torch
from nemo import lightning as nl
from nemo.collections import llm
'''
_TOKENIZER_IMPORT_LINE = "from nemo.collections.common.tokenizers.huggingface.auto_tokenizer import AutoTokenizer\n"
_MOCK_TOKENIZER_IMPORT_LINE = "from nemo.collections.common.tokenizers.null_tokenizer import NullTokenizer\n"
_MOCK_DATA_CLASS_CODE = '''

class MockData(llm.MockDataModule):
    """NeMo's random tokens with an attention mask, which is needed without Transformer Engine."""

    def setup(self, stage=""):
        super().setup(stage)
        # NeMo passes whether there is a mask as the seed.
        for data in (self._train_ds, self._validation_ds, self._test_ds):
            data.__init__(
                self.tokenizer, data.name, len(data), self.seq_length, create_attention_mask=self.create_attention_mask
            )
'''
# The rows of GPT-2's vocabulary, which recipes without one of their own get.
_GPT2_VOCABULARY_SIZE = 50257
_FILE_TAIL_TEXT = """

# NeMo starts processes that import this file again, so nothing may train before this line.
if __name__ == "__main__":
    # direct: in this process, so that its exit code is that of the training.
    run.run(make_recipe(read_arguments()), direct=True)
"""
# Lightning's name, the type of the parameters, and whether gradients are reduced in fp32.
_PRECISION_SETTINGS_BY_NAME = {
    "fp32": ("32-true", "torch.float32", False),
    "bf16": ("bf16-mixed", "torch.bfloat16", True),
    "fp16": ("16-mixed", "torch.float16", False),
}


def render_nemo_recipe(file: NemoFile) -> str:
    """Return the text of nemo_recipe.py; the recipe's name must be a Python identifier."""
    tokenizer = _TOKENIZER_IMPORT_LINE if file.tokenizer else _MOCK_TOKENIZER_IMPORT_LINE if not file.data else ""
    mock = "" if file.data else _MOCK_DATA_CLASS_CODE
    body = [
        *_recipe_lines(file),
        *model_size_lines(file, "recipe.model.config"),
        *_model_split_lines(file),
        *_data_lines(file),
        *_length_steps_and_rate_lines(file),
        *_precision_lines(file),
        *_checkpoint_lines(file),
        *_turned_off_feature_lines(file),
        *_user_setting_lines(file),
        *_mock_tokenizer_lines(file),
        "    return recipe",
    ]
    return (
        _HEAD_TEMPLATE.format(recipe=file.recipe)
        + tokenizer
        + mock
        + f"\n\n{argument_reader_code(file)}\n\ndef make_recipe(arguments):\n"
        + "\n".join(body)
        + "\n"
        + _FILE_TAIL_TEXT
    )


def _recipe_lines(file: NemoFile) -> list[str]:
    lines = [
        "    # The default of recipes is 8 GPUs.",
        f"    recipe = llm.{file.recipe}.{file.task}_recipe(",
        "        dir=arguments.output,",
        f"        name={file.recipe!r},",
        f"        num_nodes={file.nodes},",
        f"        num_gpus_per_node={file.gpus},",
    ]
    if file.task == "finetune":
        lines.append(f"        peft_scheme={file.peft!r},")
    return [*lines, "    )"]


def _model_split_lines(file: NemoFile) -> list[str]:
    lines = model_split_lines(file, "strategy", "recipe.trainer.strategy")
    if file.pipeline_parallel:
        lines += [
            '    for stage in ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"):',
            "        if getattr(strategy, stage, None):",
            "            setattr(strategy, stage, None)",
        ]
    if (file.pipeline_parallel or 1) > 1:
        kind = (
            _PRECISION_SETTINGS_BY_NAME[file.precision][1] if file.precision else "recipe.trainer.plugins.params_dtype"
        )
        lines.append(f"    strategy.pipeline_dtype = {kind}")
    return lines


def _data_lines(file: NemoFile) -> list[str]:
    if not file.data:
        why = "MOCK DATA: random tokens, to test whether it runs."
        kind, lines = "MockData", []
    elif file.task == "finetune":
        why = "training.jsonl in this folder, and validation.jsonl if it exists."
        kind, lines = "FineTuningDataModule", [f"        dataset_root={file.data[0]!r},"]
    else:
        why = "Each prefix is a .bin and a .idx file, as written by Megatron's preprocess_data.py."
        kind = "PreTrainingDataModule"
        lines = _data_path_lines(file)
    micro_batch = _argument_or_recipe_expression("arguments.micro_batch", file.micro_batch, "micro_batch_size")
    length = _argument_or_recipe_expression("arguments.sequence_length", file.sequence_length, "seq_length")
    lines += [
        f"        seq_length={length},",
        f"        micro_batch_size={micro_batch},",
        f"        global_batch_size={file.global_batch or 'recipe.data.global_batch_size'},",
    ]
    if file.data and file.seed is not None:
        lines.append(f"        seed={file.seed},")
    if file.tokenizer:
        lines.append(f"        tokenizer=run.Config(AutoTokenizer, pretrained_model_name={file.tokenizer!r}),")
    module = f"llm.{kind}" if file.data else kind
    config = ["", f"    # {why}", "    recipe.data = run.Config(", f"        {module},", *lines, "    )"]
    if file.tokenizer and file.task == "finetune":
        config += ["    # Otherwise the model's tokenizer would replace this one.", '    recipe.tokenizer = "data"']
    return config


def _argument_or_recipe_expression(argument: str, chosen: int | None, recipe_field: str) -> str:
    """Return the expression for an argument's value, or the recipe's value if none is set."""
    return argument if chosen else f"{argument} or recipe.data.{recipe_field}"


def _data_path_lines(file: NemoFile) -> list[str]:
    if not file.validation_data:
        return ["        paths=[", *_data_prefix_lines(file.data, 12), "        ],"]
    test = file.test_data or file.validation_data
    lines = ["        paths={"]
    for name, paths in (("train", file.data), ("validation", file.validation_data), ("test", test)):
        if name == "test" and not file.test_data:
            lines.append("            # NeMo requires three sets, and does not use this one in a pretraining.")
        lines += [f'            "{name}": [', *_data_prefix_lines(paths, 16), "            ],"]
    return [*lines, "        },"]


def _data_prefix_lines(paths: tuple[str, ...], indent: int) -> list[str]:
    return [f"{' ' * indent}{path.removesuffix('.bin')!r}," for path in paths]


def _turned_off_feature_lines(file: NemoFile) -> list[str]:
    if not file.without:
        return []
    neither = len(file.without) > 1
    why = "Transformer Engine or Apex" if neither else "Transformer Engine"
    lines = [
        "",
        f"    # These need {why}, which the chosen Python does not have.",
        *(f"    recipe.model.config.{name} = False" for name in file.without),
    ]
    if neither:
        lines += [
            "    # PyTorch's AdamW replaces theirs; NeMo cannot save its state if it is sharded.",
            "    recipe.optim.config.use_distributed_optimizer = False",
        ]
    return lines


def _user_setting_lines(file: NemoFile) -> list[str]:
    if not file.more:
        return []
    lines = ["", "    # Your settings (nemo.set). A name that the recipe does not have is an error here."]
    return [*lines, *(f"    recipe.{name} = {value!r}" for name, value in file.more)]


def _mock_tokenizer_lines(file: NemoFile) -> list[str]:
    if file.data or file.tokenizer:
        return []
    return [
        "",
        "    # As many tokens as the model has rows. NeMo would download GPT-2's tokenizer to know their number.",
        f"    rows = recipe.model.config.vocab_size or {_GPT2_VOCABULARY_SIZE}",
        "    recipe.data.tokenizer = run.Config(NullTokenizer, vocab_size=rows - 1)",
    ]


def _length_steps_and_rate_lines(file: NemoFile) -> list[str]:
    lines = [*length_and_recomputing_lines("recipe.model.config", "recipe.data"), ""]
    if file.steps:
        lines.append(f"    recipe.trainer.max_steps = {file.steps}")
    if between := min(filter(None, (file.checkpoint_every, file.steps)), default=0):
        lines.append(f"    recipe.trainer.val_check_interval = {between}")
    if not file.validation:
        lines.append("    recipe.trainer.limit_val_batches = 0")
    if file.learning_rate is not None:
        lines.append(f"    recipe.optim.config.lr = {file.learning_rate!r}")
        lines.append(f"    recipe.optim.lr_scheduler.min_lr = {file.learning_rate!r} / 10")
    if file.warmup is not None:
        steps = f"int({file.warmup!r} * recipe.trainer.max_steps)" if 0 < file.warmup < 1 else str(int(file.warmup))
        lines.append(f"    recipe.optim.lr_scheduler.warmup_steps = {steps}")
    return lines


def _precision_lines(file: NemoFile) -> list[str]:
    if file.precision is None:
        return []
    name, kind, summed = _PRECISION_SETTINGS_BY_NAME[file.precision]
    return [
        "",
        "    recipe.trainer.plugins = run.Config(",
        "        nl.MegatronMixedPrecision,",
        f"        precision={name!r},",
        f"        params_dtype={kind},",
        f"        pipeline_dtype={kind},",
        "        autocast_enabled=False,",
        f"        grad_reduce_in_fp32={summed},",
        "    )",
        f"    recipe.optim.config.bf16 = {file.precision == 'bf16'}",
        f"    recipe.optim.config.fp16 = {file.precision == 'fp16'}",
    ]


def _checkpoint_lines(file: NemoFile) -> list[str]:
    lines = ["", "    # Resumes from the newest checkpoint, if there is one."]
    if file.checkpoint_every:
        lines += [
            "    recipe.log.ckpt.train_time_interval = None",
            f"    recipe.log.ckpt.every_n_train_steps = {file.checkpoint_every}",
        ]
    lines += [
        "    recipe.log.ckpt.save_last = True",
        "    # Without the optimizer's state the training could not resume from the last checkpoint.",
        "    recipe.log.ckpt.save_optim_on_train_end = True",
        "    recipe.resume.resume_if_exists = True",
        "    recipe.resume.resume_ignore_no_checkpoint = True",
    ]
    if file.model:
        lines.append(f"    recipe.resume.restore_config = run.Config(nl.RestoreConfig, path={file.model!r})")
    return lines
