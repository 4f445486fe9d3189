"""Makes a tiny Llama whose tokenizer llama.cpp's converter knows: python llama_model.py FOLDER."""

import os
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz"]
vocabulary = {name: number for number, name in enumerate(names)}
special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
unknown = special["unk_token"]
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=unknown, byte_fallback=True, fuse_unk=True))
tokenizer.normalizer = normalizers.Replace(" ", "▁")
tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
turns = ["<|im_start|>", "<|im_end|>"]
tokens = PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=turns, **special)
tokens.chat_template = TEMPLATE
tokens.save_pretrained(sys.argv[1])
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tokens),
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=tokens.bos_token_id,
    eos_token_id=tokens.eos_token_id,
)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
