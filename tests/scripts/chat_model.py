"""Makes a tiny chat model: python chat_model.py FOLDER [--plain] [--base] [--dtype TYPE] [--seed N].

--base: its end is not the token that ends a turn in its template, as that of a base model.
"""

import argparse
import os

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--plain", action="store_true")
parser.add_argument("--base", action="store_true")
parser.add_argument("--dtype", default="float32")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

# One token for each byte: any text can be written and read.
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
vocabulary = {token: number for number, token in enumerate([*alphabet, *special])}
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
named = {
    "eos_token": special[2 if options.base else 1],
    "pad_token": special[2],
    "additional_special_tokens": special[:2],
}
tokens = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)
if not options.plain:
    tokens.chat_template = TEMPLATE
tokens.save_pretrained(options.folder)

torch.manual_seed(options.seed)
config = Qwen2Config(
    vocab_size=len(vocabulary),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    eos_token_id=tokens.eos_token_id,
    pad_token_id=tokens.pad_token_id,
    bos_token_id=None,
    initializer_range=0.4,
)
Qwen2ForCausalLM(config).to(getattr(torch, options.dtype)).save_pretrained(options.folder)
