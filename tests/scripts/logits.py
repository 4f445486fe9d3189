"""logits.py make FOLDER [theta|llama3|linear]: a small model with norms that are not all one, and with this RoPE as
transformers 5 names it. logits.py compare FOLDER OTHER...: by how much what transformers computes with each other
differs at most, for the tokens that all of them have.
"""

import runpy
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

what, folder, *others = sys.argv[1:]
torch.manual_seed(0)


def logits(path):
    model = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, torch_dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.arange(256).reshape(4, 64)).logits


if what == "make":
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    scaled = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    ropes = {
        "theta": {"rope_type": "default", "rope_theta": 1e6},
        "llama3": {"rope_type": "llama3", "rope_theta": 500000.0, **scaled},
        "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    }
    rope = {"rope_parameters": ropes[others[0]]} if others else {}
    if others and others[0] != "theta":
        model = LlamaForCausalLM(LlamaConfig(**small, **heads, **rope))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**small, **heads, **rope))
    for name, weight in model.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
        elif others:
            # Large enough for attention to depend on positions.
            torch.nn.init.normal_(weight, std=0.15)
    model.save_pretrained(folder)
    sys.argv = ["tokenizer.py", folder]
    runpy.run_path(str(Path(__file__).with_name("tokenizer.py")))
else:
    first, rest = logits(folder), [logits(other) for other in others]
    print(*(float((other - first[..., : other.shape[-1]]).abs().max()) for other in rest))
