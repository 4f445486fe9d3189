"""Converts a model between a Hugging Face folder and a NeMo checkpoint, by NeMo's own converters, and compares both.

Runs in the training interpreter, with {"direction": "import" or "export", "source": FOLDER, "target": FOLDER,
"work_folder": EMPTY FOLDER} as its argument. It uses no GPU and needs no Transformer Engine. Its last line is JSON:
`finished` with the `difference` of the logits, or the `problem` that there is, with a `remedy`.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import hf_folder
import nemo_compare
from hf_folder import RefusedInput

# The class in NeMo of each type of model in Hugging Face's config.json.
NEMO_CLASS_BY_MODEL_TYPE = {
    "baichuan": "Baichuan2Model",
    "chatglm": "ChatGLMModel",
    "deepseek_v2": "DeepSeekModel",
    "deepseek_v3": "DeepSeekModel",
    "gemma": "GemmaModel",
    "gemma2": "Gemma2Model",
    "gemma3_text": "Gemma3Model",
    "gpt_oss": "GPTOSSModel",
    "llama": "LlamaModel",
    "mistral": "MistralModel",
    "mixtral": "MixtralModel",
    "nemotron": "NemotronModel",
    "phi3": "Phi3Model",
    "qwen2": "Qwen2Model",
    "qwen3": "Qwen3Model",
    "qwen3_moe": "Qwen3Model",
    "starcoder2": "Starcoder2Model",
}
# Transformer Engine's layers hold the norm before them; without it the norm is a layer of its own.
PLAIN_NAME_BY_FUSED_NORM = {
    "self_attention.linear_qkv.layer_norm_": "input_layernorm.",
    "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
}


def patch_out_gpu() -> None:
    """Let what NeMo asks of CUDA before it saves or loads be left out: what it converts is on the CPU anyway."""
    import torch
    from nemo.lightning.io import pl as saving

    cuda: Any = torch.cuda
    cuda.synchronize = lambda *_: None
    cuda.current_device = lambda: torch.device("cpu")
    cuda.Stream = lambda *_, **__: None
    # It moves what was read to the GPU that is initialized.
    setattr(saving, "_fix_tensors_device", lambda checkpoint: checkpoint)  # noqa: B010 - it is private there


def patch_out_transformer_engine() -> None:
    """Have the converters name the layers as they are without it, and models leave out what only it can do.

    The converters would leave the norms as new ones have them, and say nothing.
    """
    from megatron.core.transformer.transformer_config import TransformerConfig
    from nemo.lightning import io

    apply, checked = io.apply_transforms, TransformerConfig.__post_init__

    def named(source: Any, target: Any, mapping: dict[str, str], transforms: Any = (), **more: Any) -> Any:
        for one in transforms:
            one.source_key, one.target_key = unfused_weight_name(one.source_key), unfused_weight_name(one.target_key)
        match_norm_dtype(source, target)
        names = {unfused_weight_name(here): unfused_weight_name(there) for here, there in mapping.items()}
        return apply(source, target, names, list(transforms), **more)

    def plain_config(config: Any) -> None:
        config.apply_rope_fusion = config.masked_softmax_fusion = config.persist_layer_norm = False
        checked(config)

    io.apply_transforms = named
    TransformerConfig.__post_init__ = plain_config


def match_norm_dtype(source: Any, target: Any) -> None:
    """Give the norms of NeMo's model the type of the other's weights: without Transformer Engine they are fp32."""
    ours, other = (target, source) if hasattr(source, "dtype") and hasattr(source, "config_class") else (source, target)
    for name, weight in ours.named_parameters():
        if "layernorm" in name:
            weight.data = weight.data.to(other.dtype)


def unfused_weight_name(key: Any) -> Any:
    """Return the name of a weight, or several, as it is without Transformer Engine."""
    if isinstance(key, dict):
        return {name: unfused_weight_name(weight_name) for name, weight_name in key.items()}
    if isinstance(key, (tuple, list)):
        return tuple(map(unfused_weight_name, key))
    for fused, alone in PLAIN_NAME_BY_FUSED_NORM.items():
        key = key.replace(fused, alone)
    return key


def patch_in_llama3_rope_numbers() -> None:
    """Have the converter of Llama keep each number of a llama3 RoPE: it takes the factor alone."""
    from nemo.collections.llm.gpt.model import llama

    names = {
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_position_embeddings": "old_context_len",
    }
    importer, original = llama.HFLlamaImporter, llama.Llama31Config
    read = importer.config.fget

    def config_with_rope_scaling(self: Any) -> Any:
        scaling = hf_folder.read_json_object(Path(str(self)) / "config.json").get("rope_scaling") or {}
        given = {own: scaling[name] for name, own in names.items() if name in scaling}
        # A checkpoint keeps what its configuration was made with, and nothing that is set afterwards.
        llama.Llama31Config = functools.partial(original, **given)
        try:
            return read(self)
        finally:
            llama.Llama31Config = original

    importer.config = property(config_with_rope_scaling)


def empty_nemo_model(folder: Path) -> Any:
    """Return NeMo's model for a Hugging Face folder; its size is read by the converter."""
    from nemo.collections import llm

    kind = hf_folder.read_json_object(folder / "config.json").get("model_type")
    if kind not in NEMO_CLASS_BY_MODEL_TYPE:
        raise RefusedInput(f"NeMo has no known converter for models of type {kind}", "Train it with TRL.")
    # The converter takes another one of the same class, with the sizes that it reads.
    return object.__new__(getattr(llm, NEMO_CLASS_BY_MODEL_TYPE[kind]))


def convert_and_compare(direction: str, source: Path, target: Path, work_folder: Path) -> float | None:
    """Do it, and return by how much the logits of the two differ."""
    from nemo.collections import llm
    from nemo.collections.llm.gpt.model.base import HAVE_TE
    from nemo.lightning.io.connector import ModelConnector

    # Its default is one folder in /tmp for all users, where files of other tokenizers may lie.
    ModelConnector.save_hf_tokenizer_assets.__defaults__ = (str(work_folder / "tokenizer"),)
    patch_out_gpu()
    if not HAVE_TE:
        patch_out_transformer_engine()
    if direction == "import":
        patch_in_llama3_rope_numbers()
        folder, checkpoint = hf_folder.make_copy_for_transformers_4(source, work_folder / source.name), target
        llm.import_ckpt(empty_nemo_model(folder), f"hf://{folder}", output_path=target)
    else:
        folder, checkpoint = target, source
        llm.export_ckpt(source, "hf", output_path=target)
    gc.collect()
    return nemo_compare.compare_logits(folder, checkpoint, has_transformer_engine=HAVE_TE)


def main(direction: str, source: str, target: str, work_folder: str) -> None:
    """Say in the last line what came of it."""
    warnings.simplefilter("ignore")
    # What NeMo starts has the usual output, and must not hold the one that is waited for.
    answer = os.dup(1)
    os.dup2(2, 1)
    # Some libraries leave files where they are started.
    os.chdir(work_folder)
    outcome: dict[str, object]
    try:
        outcome = {
            "finished": True,
            "difference": convert_and_compare(direction, Path(source), Path(target), Path(work_folder)),
        }
    except RefusedInput as error:
        outcome = {"problem": error.args[0], "remedy": error.args[1]}
    except Exception as error:  # noqa: BLE001 - whatever NeMo raises is the answer
        outcome = {"problem": f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0]}"[:400]}
    os.write(answer, (json.dumps(outcome) + "\n").encode())
    # What NeMo leaves running must not keep it from ending.
    os._exit(0)


# Saving starts processes that import this file again.
if __name__ == "__main__":
    # All of it is done on the CPU, so that it is the same on every machine.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    main(**json.loads(sys.argv[1]))
