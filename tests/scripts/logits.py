"""logits.py make FOLDER: a small model with norms that are not all one. logits.py compare FOLDER OTHER...: by how much
what transformers computes with each other differs at most.
"""

import runpy
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

what, folder, *others = sys.argv[1:]
torch.manual_seed(0)


def logits(path):
    model = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, torch_dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.arange(256).reshape(4, 64)).logits


if what == "make":
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    model = Qwen2ForCausalLM(Qwen2Config(**small, **heads))
    for name, weight in model.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model.save_pretrained(folder)
    sys.argv = ["tokenizer.py", folder]
    runpy.run_path(str(Path(__file__).with_name("tokenizer.py")))
else:
    first = logits(folder)
    print(*(float((logits(other) - first).abs().max()) for other in others))
