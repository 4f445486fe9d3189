"""Makes a small tokenizer in a folder: tokenizer.py FOLDER [--with-model] [--template=FILE].

With a small model beside it, and with the chat template in that file.
"""

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = {
    "pad": "<pad>",
    "bos": "<s>",
    "eos": "</s>",
    "mask": "<mask>",
    "sep": "<sep>",
    "cls": "<cls>",
    "unk": "<unk>",
}

folder = sys.argv[1]
made = Tokenizer(models.BPE(unk_token=None))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=[*SPECIAL.values()], initial_alphabet=alphabet)
made.train_from_iterator(["the quick brown fox jumps over the lazy dog " * 20], trainer)
named = {f"{name}_token": word for name, word in SPECIAL.items()}
whole = PreTrainedTokenizerFast(tokenizer_object=made, **named)
for word in sys.argv[2:]:
    if word.startswith("--template="):
        with open(word.partition("=")[2], encoding="utf-8") as file:
            whole.chat_template = file.read()
whole.save_pretrained(folder)

if "--with-model" in sys.argv:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    small = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    Qwen2ForCausalLM(Qwen2Config(vocab_size=512, architectures=["Qwen2ForCausalLM"], **small, **heads)).save_pretrained(
        folder
    )
