"""Makes a tiny model that sees pictures: python vision_model.py FOLDER qwen|llava [--seed N]."""

import argparse
import json
import os
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PICTURE = {"qwen": "<|vision_start|><|image_pad|><|vision_end|>", "llava": "<image>\n"}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}PICTURE{% elif 'text' in part %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("family", choices=("qwen", "llava"))
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
           "<|video_pad|>", "<image>"]  # fmt: skip
vocabulary = {token: number for number, token in enumerate([*alphabet, *special])}
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokens = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer,
    additional_special_tokens=[*special[:2], *special[3:]],
    **dict(zip(("eos_token", "pad_token"), special[1:3], strict=True)),
)
text = {
    "vocab_size": len(vocabulary), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.2,
    "bos_token_id": None, "eos_token_id": tokens.eos_token_id, "pad_token_id": tokens.pad_token_id,
}  # fmt: skip
torch.manual_seed(options.seed)
if options.family == "qwen":
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    config = transformers.Qwen2_5_VLConfig(
        text_config=text,
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32,
            "patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1],
        },
        image_token_id=vocabulary["<|image_pad|>"],
        video_token_id=vocabulary["<|video_pad|>"],
        vision_start_token_id=vocabulary["<|vision_start|>"],
        vision_end_token_id=vocabulary["<|vision_end|>"],
        tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.Qwen2_5_VLForConditionalGeneration(config)
else:
    config = transformers.LlavaConfig(
        text_config={**text, "model_type": "llama"},
        vision_config={
            "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": 56, "patch_size": 14, "projection_dim": 32,
        },
        image_token_id=vocabulary["<image>"],
        vision_feature_layer=-1,
    )  # fmt: skip
    model = transformers.LlavaForConditionalGeneration(config)
tokens.chat_template = TEMPLATE.replace("PICTURE", PICTURE[options.family])
model.save_pretrained(options.folder)
tokens.save_pretrained(options.folder)
# Written by hand: to make the processor of Qwen2.5-VL takes torchvision, to train a LLaVA does not.
pixels = {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 64}
square = {"height": 56, "width": 56}
settings = {
    "qwen": {
        "processor_class": "Qwen2_5_VLProcessor",
        "image_processor": {"image_processor_type": "Qwen2VLImageProcessor", "size": pixels, "patch_size": 14},
        "video_processor": {"video_processor_type": "Qwen2VLVideoProcessor", "size": pixels, "patch_size": 14},
    },
    "llava": {
        "processor_class": "LlavaProcessor", "patch_size": 14, "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1, "image_token": "<image>",
        "image_processor": {
            "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 56}, "crop_size": square,
        },
    },
}  # fmt: skip
Path(options.folder, "processor_config.json").write_text(json.dumps(settings[options.family]), encoding="utf-8")
