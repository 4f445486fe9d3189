"""The recipe llama32_3b_peft_config of Megatron-Bridge 0.3 to 0.6. Written by tui-train; it runs without it.

launch.sh starts it, one process per GPU. The attempts change the options listed by --help.
"""

import argparse
from pathlib import Path

from megatron.bridge import recipes
from megatron.bridge.training import config as configs
from megatron.bridge.training.finetune import finetune
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.utils import checkpoint_utils

HERE = Path(__file__).resolve().parent


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default=str(HERE / "output"))
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--sequence-length", type=int, default=4096)
    parser.add_argument("--activation-checkpointing", action="store_true")
    return parser.parse_args()


def weights(folder):
    # Without weights it would silently start from random ones. Since 0.6 it also reads Hugging Face weights.
    looks = (getattr(checkpoint_utils, name, None) for name in ("checkpoint_exists", "is_hf_checkpoint_dir"))
    if not any(look(folder) for look in looks if look):
        raise SystemExit(f"{folder} has no weights that this Megatron-Bridge can load")
    return folder


def make_config(arguments):
    config = recipes.llama32_3b_peft_config()

    config.train.train_iters = 200
    config.train.global_batch_size = 32
    config.train.rampup_batch_size = None
    if arguments.micro_batch:
        config.train.micro_batch_size = arguments.micro_batch
    config.rng.seed = 1
    config.logger.log_interval = 10
    config.logger.tensorboard_dir = str(Path(arguments.output, "tensorboard"))

    # Your split over GPUs instead of the recipe's.
    model = config.model
    model.tensor_model_parallel_size = 2
    model.sequence_parallel = True

    # training.jsonl in this folder, and validation.jsonl if it exists.
    dataset = getattr(configs, "GPTSFTDatasetConfig", None) or configs.FinetuningDatasetConfig
    config.dataset = dataset(
        dataset_root='/data/chats',
        seq_length=arguments.sequence_length or config.dataset.seq_length,
        seed=1,
        do_validation=False,
        do_test=False,
        # The line index is saved here, because the data folder may be read-only.
        dataset_kwargs={"index_mapping_dir": str(HERE / "samples")},
    )
    config.tokenizer.tokenizer_type = "HuggingFaceTokenizer"
    config.tokenizer.tokenizer_model = '/models/Llama-3.2-3B'
    config.tokenizer.vocab_size = None
    # The model has its own sequence length.
    config.model.seq_length = config.dataset.seq_length
    if arguments.activation_checkpointing:
        config.model.recompute_granularity = "full"
        config.model.recompute_method = "uniform"
        config.model.recompute_num_layers = 1

    config.optimizer.lr = 0.0003
    config.optimizer.min_lr = 0.0003 / 10
    config.scheduler.lr_decay_iters = 200
    if (config.scheduler.lr_warmup_iters or 0) >= 200:
        raise SystemExit("the recipe warms up for more steps than there are: set recipe.warmup")
    # Use these values, not those in a checkpoint of a run with other steps.
    config.scheduler.override_opt_param_scheduler = True

    # Part of config.train before 0.4.
    validation = getattr(config, "validation", config.train)
    validation.eval_interval = 50
    validation.eval_iters = 0

    config.mixed_precision = "bf16_mixed"

    # Resumes from the newest checkpoint, if there is one.
    config.checkpoint.save = arguments.output
    config.checkpoint.load = arguments.output
    config.checkpoint.save_interval = 50
    config.checkpoint.pretrained_checkpoint = weights('/models/llama32-3b-megatron')
    return config


# Workers of the data loader and of checkpoints may import this file again, so nothing may train before this line.
if __name__ == "__main__":
    finetune(make_config(read_arguments()), forward_step)
