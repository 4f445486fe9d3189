"""Compares what transformers computes with a Hugging Face folder and what NeMo computes with its checkpoint.

Both compute in fp32 on the CPU, whatever the type of the weights: only so does a wrong setting differ from rounding.
"""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from typing import Any

from hf_folder import RefusedInput

# As share of the largest logit; in fp32 two implementations of the same model differ by about 1e-6.
MAX_LOGIT_DIFFERENCE = 1e-4
# Long enough for a wrong frequency to show; no model is shorter by much.
SAMPLE_TOKEN_COUNT = 256


def compare_logits(folder: Path, checkpoint: Path, *, has_transformer_engine: bool) -> float | None:
    """Return the largest difference of the logits, as share of the largest; RefusedInput where it is too large.

    None where they cannot be compared: Transformer Engine's layers compute on GPUs only.
    """
    if has_transformer_engine:
        return None
    import torch

    with torch.inference_mode():
        tokens, expected = _sample_tokens_and_logits(folder)
        gc.collect()
        computed = _nemo_logits(checkpoint, tokens)
    # Either may have rows beyond its tokens.
    rows = min(expected.shape[-1], computed.shape[-1])
    expected, computed = expected[..., :rows], computed[..., :rows]
    share = float((computed - expected).abs().max()) / (float(expected.abs().max()) or 1.0)
    # Also true for what is not a number.
    if not share <= MAX_LOGIT_DIFFERENCE:
        why = f"NeMo computes something else with this model: its logits differ by {share:.2g} of the largest"
        raise RefusedInput(
            f"{why}, at most {MAX_LOGIT_DIFFERENCE:g} is allowed", "Nothing was kept. Train this model with TRL."
        )
    return share


def _sample_tokens_and_logits(folder: Path) -> tuple[Any, Any]:
    """Return one sample of many different tokens, and its logits."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    rows = loaded.get_input_embeddings().weight.shape[0]
    length = min(SAMPLE_TOKEN_COUNT, getattr(loaded.config, "max_position_embeddings", None) or SAMPLE_TOKEN_COUNT)
    tokens = (torch.arange(length) * 7919 % rows).unsqueeze(0)
    return tokens, loaded(tokens).logits


def _nemo_logits(checkpoint: Path, tokens: Any) -> Any:
    """Return the logits of a checkpoint, read as it was written."""
    import torch
    from megatron.core.tensor_parallel import random
    from nemo.lightning.io import api

    load, fork = api.load_context, random.CudaRNGStatesTracker.fork

    def in_fp32(path: Any, subpath: str | None = None, **more: Any) -> Any:
        made = load(path, subpath=subpath, **more)
        config = made.config
        config.fp16 = config.bf16 = False
        config.params_dtype = config.pipeline_dtype = config.autocast_dtype = torch.float32
        config.hidden_dropout = config.attention_dropout = 0.0
        return made

    api.load_context = in_fp32
    # It is for the random numbers of a GPU, and nothing is dropped here.
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    try:
        exporter = load(checkpoint, subpath="model").exporter("hf", checkpoint)
        loaded = exporter.nemo_load(str(checkpoint))[0].module.float().eval()
        length = tokens.shape[1]
        later = torch.ones(1, 1, length, length).tril() < 0.5
        return loaded(tokens, torch.arange(length).unsqueeze(0), later).float()
    finally:
        api.load_context, random.CudaRNGStatesTracker.fork = load, fork
