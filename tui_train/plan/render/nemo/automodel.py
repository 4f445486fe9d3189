"""automodel.yaml: a training with NeMo AutoModel 0.4 or newer, which requires the key `recipe`."""

from typing import Any

from tui_train.trainers.nemo import NemoFile

_TORCH_NAME_BY_PRECISION = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_DATASETS_MODULE = "nemo_automodel.components.datasets.llm"
# Effectively unlimited: max_steps ends the training.
_MORE_EPOCHS_THAN_NEEDED = 1_000_000


def render_automodel_yaml(file: NemoFile) -> str:
    """Return the text of automodel.yaml."""
    import yaml

    head = "# Finetuning with NeMo AutoModel. launch.sh starts it; the options there override these values.\n"
    mock = "" if file.data else "# MOCK DATA: random tokens, to test whether it runs.\n"
    return head + mock + yaml.safe_dump(_config_values(file), sort_keys=False, allow_unicode=True, width=10_000)


def _config_values(file: NemoFile) -> dict[str, Any]:
    values: dict[str, Any] = {
        "recipe": "TrainFinetuneRecipeForNextTokenPrediction",
        "step_scheduler": {
            "global_batch_size": file.global_batch,
            "local_batch_size": file.micro_batch,
            **({"max_steps": file.steps, "num_epochs": _MORE_EPOCHS_THAN_NEEDED} if file.steps else {"num_epochs": 1}),
            "ckpt_every_steps": file.checkpoint_every,
        },
        "dist_env": {"backend": "nccl", "timeout_minutes": 10},
        "rng": {"_target_": "nemo_automodel.components.training.rng.StatefulRNG", "seed": file.seed, "ranked": True},
        "model": {
            "_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
            "pretrained_model_name_or_path": file.model,
            "torch_dtype": _TORCH_NAME_BY_PRECISION[file.precision or "bf16"],
        },
        "checkpoint": {
            "enabled": True,
            "checkpoint_dir": "output",
            "model_save_format": "safetensors",
            "restore_from": "LATEST",
        },
        "distributed": {
            "strategy": "fsdp2",
            "dp_size": "none",
            "tp_size": file.tensor_parallel or 1,
            "cp_size": file.context_parallel or 1,
            "pp_size": file.pipeline_parallel or 1,
        },
    }
    if file.peft == "lora":
        target = "nemo_automodel.components._peft.lora.PeftConfig"
        values["peft"] = {"_target_": target, "match_all_linear": True, "dim": 16, "alpha": 32}
    return {**values, **_data_and_optimizer_values(file)}


def _data_and_optimizer_values(file: NemoFile) -> dict[str, Any]:
    tokenizer = {
        "_target_": "nemo_automodel.NeMoAutoTokenizer.from_pretrained",
        "pretrained_model_name_or_path": file.tokenizer or file.model,
    }
    mock = {
        "_target_": f"{_DATASETS_MODULE}.mock.build_unpacked_dataset",
        "num_sentences": max(64, (file.global_batch or 0) * 4),
        "max_sentence_len": file.sequence_length,
    }
    instructions = {
        "_target_": f"{_DATASETS_MODULE}.column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset",
        "path_or_dataset_id": [f"{folder}/training.jsonl" for folder in file.data],
        "column_mapping": {"question": "input", "answer": "output"},
        "seq_length": file.sequence_length,
        "truncation": True,
    }
    return {
        "loss_fn": {"_target_": "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"},
        "tokenizer": tokenizer,
        "dataset": instructions if file.data else mock,
        "dataloader": {
            "_target_": "torchdata.stateful_dataloader.StatefulDataLoader",
            "collate_fn": "nemo_automodel.components.datasets.utils.default_collater",
            "shuffle": bool(file.data),
        },
        "optimizer": {"_target_": "torch.optim.AdamW", "lr": file.learning_rate},
    }
