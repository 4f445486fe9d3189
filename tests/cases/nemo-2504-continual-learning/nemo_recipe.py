"""The NeMo recipe qwen25_500m, for nemo_toolkit 2.3 to 2.7. Written by tui-train; it runs without it.

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
from nemo.collections.common.tokenizers.huggingface.auto_tokenizer import AutoTokenizer


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default=str(HERE / "output"))
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--sequence-length", type=int, default=2048)
    parser.add_argument("--activation-checkpointing", action="store_true")
    return parser.parse_args()


def make_recipe(arguments):
    # The default of recipes is 8 GPUs.
    recipe = llm.qwen25_500m.pretrain_recipe(
        dir=arguments.output,
        name='qwen25_500m',
        num_nodes=1,
        num_gpus_per_node=1,
    )

    # Each prefix is a .bin and a .idx file, as written by Megatron's preprocess_data.py.
    recipe.data = run.Config(
        llm.PreTrainingDataModule,
        paths=[
            '/data/corpus/new_text_document',
        ],
        seq_length=arguments.sequence_length,
        micro_batch_size=arguments.micro_batch,
        global_batch_size=16,
        seed=1,
        tokenizer=run.Config(AutoTokenizer, pretrained_model_name='/models/Qwen2.5-0.5B'),
    )
    # The model has its own sequence length.
    recipe.model.config.seq_length = recipe.data.seq_length
    if arguments.activation_checkpointing:
        recipe.model.config.recompute_granularity = "full"
        recipe.model.config.recompute_method = "uniform"
        recipe.model.config.recompute_num_layers = 1

    recipe.trainer.max_steps = 1000
    recipe.trainer.val_check_interval = 100
    recipe.optim.config.lr = 0.0001
    recipe.optim.lr_scheduler.min_lr = 0.0001 / 10

    recipe.trainer.plugins = run.Config(
        nl.MegatronMixedPrecision,
        precision='bf16-mixed',
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        autocast_enabled=False,
        grad_reduce_in_fp32=True,
    )
    recipe.optim.config.bf16 = True
    recipe.optim.config.fp16 = False

    # Resumes from the newest checkpoint, if there is one.
    recipe.log.ckpt.train_time_interval = None
    recipe.log.ckpt.every_n_train_steps = 100
    recipe.log.ckpt.save_last = True
    # Without the optimizer's state the training could not resume from the last checkpoint.
    recipe.log.ckpt.save_optim_on_train_end = True
    recipe.resume.resume_if_exists = True
    recipe.resume.resume_ignore_no_checkpoint = True
    recipe.resume.restore_config = run.Config(nl.RestoreConfig, path='/checkpoints/qwen25_500m')

    # These need Transformer Engine or Apex, which the chosen Python does not have.
    recipe.model.config.masked_softmax_fusion = False
    recipe.model.config.persist_layer_norm = False
    recipe.model.config.apply_rope_fusion = False
    # PyTorch's AdamW replaces theirs; NeMo cannot save its state if it is sharded.
    recipe.optim.config.use_distributed_optimizer = False
    return recipe


# NeMo starts processes that import this file again, so nothing may train before this line.
if __name__ == "__main__":
    # direct: in this process, so that its exit code is that of the training.
    run.run(make_recipe(read_arguments()), direct=True)
