"""The NeMo recipe llama32_1b, for nemo_toolkit 2.3 to 2.7. Written by tui-train; it runs without it.

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


class MockData(llm.MockDataModule):
    """NeMo's random tokens with an attention mask, which is needed without Transformer Engine."""

    def setup(self, stage=""):
        super().setup(stage)
        # NeMo passes whether there is a mask as the seed.
        for data in (self._train_ds, self._validation_ds, self._test_ds):
            data.__init__(
                self.tokenizer, data.name, len(data), self.seq_length, create_attention_mask=self.create_attention_mask
            )


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default=str(HERE / "output"))
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--sequence-length", type=int, default=4096)
    parser.add_argument("--activation-checkpointing", action="store_true")
    parser.add_argument("--layers", type=int, default=8)
    return parser.parse_args()


def make_recipe(arguments):
    # The default of recipes is 8 GPUs.
    recipe = llm.llama32_1b.pretrain_recipe(
        dir=arguments.output,
        name='llama32_1b',
        num_nodes=1,
        num_gpus_per_node=4,
    )

    # Your model size instead of the recipe's.
    recipe.model.config.num_layers = arguments.layers
    recipe.model.config.hidden_size = 1024
    # Each head has its own keys and values.
    recipe.model.config.num_attention_heads = 16
    recipe.model.config.num_query_groups = 16
    recipe.model.config.kv_channels = 64
    recipe.model.config.ffn_hidden_size = 4096

    # Your split over GPUs instead of the recipe's.
    strategy = recipe.trainer.strategy
    strategy.tensor_model_parallel_size = 2
    strategy.sequence_parallel = True

    # MOCK DATA: random tokens, to test whether it runs.
    recipe.data = run.Config(
        MockData,
        seq_length=arguments.sequence_length,
        micro_batch_size=arguments.micro_batch,
        global_batch_size=32,
        tokenizer=run.Config(AutoTokenizer, pretrained_model_name='/models/Llama-3.2-1B'),
    )
    # The model has its own sequence length.
    recipe.model.config.seq_length = recipe.data.seq_length
    if arguments.activation_checkpointing:
        recipe.model.config.recompute_granularity = "full"
        recipe.model.config.recompute_method = "uniform"
        recipe.model.config.recompute_num_layers = 1

    recipe.trainer.max_steps = 200
    recipe.trainer.val_check_interval = 50
    recipe.optim.config.lr = 0.0003
    recipe.optim.lr_scheduler.min_lr = 0.0003 / 10

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
    recipe.log.ckpt.every_n_train_steps = 50
    recipe.log.ckpt.save_last = True
    # Without the optimizer's state the training could not resume from the last checkpoint.
    recipe.log.ckpt.save_optim_on_train_end = True
    recipe.resume.resume_if_exists = True
    recipe.resume.resume_ignore_no_checkpoint = True

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
