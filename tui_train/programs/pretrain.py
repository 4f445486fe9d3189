"""Train a causal language model on text by transformers' Trainer, started by python, torchrun or accelerate launch."""

import atexit
import json
import math
import os
import signal
import sys
import time
from array import array
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.convert_slow_tokenizer import bytes_to_unicode


class ShuffledSamples(torch.utils.data.Dataset[Any]):
    """`count` samples of shuffled epochs one after another, in an order that depends only on the seed."""

    def __init__(self, blocks: Any, seed: int, count: int) -> None:
        self.blocks, self.count = blocks, count
        self.order = lru_cache(2)(lambda epoch: np.random.default_rng([seed, epoch]).permutation(len(blocks)))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        epoch, place = divmod(index, len(self.blocks))
        tokens = torch.tensor(self.blocks[self.order(epoch)[place]], dtype=torch.long)
        # Nothing predicts the first token; releases before 5 would count it.
        return {"input_ids": tokens, "labels": torch.cat([torch.tensor([-100]), tokens[1:]])}


class PretrainingTrainer(hf.Trainer):
    """Ends after a step whose loss is not a number, without a checkpoint, or in which a rank got SIGTERM, with one."""

    exit_code, end_message, stop_requested, last_log_time, step_tokens = 0, "", 0, time.perf_counter(), 0

    def _get_train_sampler(self, *_: Any) -> Any:
        # A step has the same samples whatever the micro batch and the world size, also after a resume.
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def log(self, logs: dict[str, Any], *more: Any) -> None:
        if "loss" in logs:
            before, self.last_log_time, step = self.last_log_time, time.perf_counter(), self.state.global_step
            logs |= {"step": step, "tokens_per_second": round(self.step_tokens / (self.last_log_time - before))}
            # A signal reaches one rank a step earlier than another.
            steps, told = self.accelerator.gather(
                torch.tensor([[step, self.stop_requested]], device=self.args.device)
            ).T.tolist()
            # In fp16 the scaler skips the steps whose gradients overflow.
            bad = [name for name in ("loss", "grad_norm")[: 2 - self.args.fp16] if not math.isfinite(logs.get(name, 0))]
            if len(set(steps)) > 1:
                self.exit_code, self.end_message = (
                    2,
                    f"error | the ranks are at steps {steps} | Put the output on a disk of all.",
                )
            elif bad:
                self.exit_code, self.end_message = (
                    3,
                    f"error | {bad[0].replace('_', ' ')} is {logs[bad[0]]} at step {step}",
                )
            elif any(told) and step < self.state.max_steps:
                self.exit_code, self.end_message = 143, f"stopped | step {step} of {self.state.max_steps}"
            if self.exit_code:
                self.args.eval_strategy, self.control.should_evaluate = "no", False
                self.control.should_save, self.control.should_training_stop = self.exit_code == 143, True
        super().log(logs, *more)


def load_model_and_tokenizer(options: Any) -> tuple[Any, Any]:
    """Return the model in fp32, and its tokenizer."""
    names, auto = os.listdir(options.model) if options.model else [], hf.AutoModelForCausalLM
    safe: Any = {"trust_remote_code": False}  # else transformers asks on stdin whether to run the model's code
    if any("token" in name for name in names):
        tokenizer = hf.AutoTokenizer.from_pretrained(options.model, model_max_length=10**12, **safe)
    else:
        tokens = Tokenizer(models.BPE(vocab={text: byte for byte, text in bytes_to_unicode().items()}, merges=[]))
        tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokens.decoder = decoders.ByteLevel()
        tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token="<|endoftext|>")
    # A new model has 257 tokens, and room up to a multiple of eight, which suits tensor cores.
    shape = {
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "hidden_size": options.hidden_size,
    }
    shape |= {"intermediate_size": math.ceil(options.hidden_size / 12) * 32, "tie_word_embeddings": True}
    shape |= {"max_position_embeddings": max(2048, options.sequence_length), "vocab_size": 264}
    new = hf.LlamaConfig(**shape, bos_token_id=None, eos_token_id=256)
    config = hf.AutoConfig.from_pretrained(options.model, **safe) if options.model else new
    has_weights = any(name.endswith((".safetensors", ".bin")) for name in names)
    model = auto.from_pretrained(options.model, **safe) if has_weights else auto.from_config(config, **safe)
    if len(tokenizer) > (known := model.get_input_embeddings().num_embeddings):
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, the model {known} | Take the model's own.")
    return model.float(), tokenizer


def read_token_blocks(paths: list[str], options: Any, tokenizer: Any) -> Any:
    """Return the tokens of all texts, those of .jsonl files with an end, as blocks of the sequence length."""
    tokens, length, raw, end = array("i"), options.sequence_length, len(tokenizer) == 257, tokenizer.eos_token_id
    for path in paths:
        rows, number = path.endswith(".jsonl"), 0
        try:
            with open(path, encoding="utf-8-sig") as file:
                pieces = filter(str.strip, file) if rows else iter(lambda: file.read(1 << 20) + file.readline(), "")
                for number, piece in enumerate(pieces, 1):
                    text = json.loads(piece)[options.text_field] if rows else piece
                    ids = text.encode(errors="replace") if raw else tokenizer.encode(text, add_special_tokens=False)
                    tokens.extend(ids if end is None or not rows else [*ids, end])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, text {number}: {error} | Give UTF-8 text, or .jsonl with its texts.") from error
    if paths and len(tokens) < length:
        raise ValueError(f"{len(tokens)} tokens are less than one sequence of {length} | Shorten it, or add text.")
    return np.frombuffer(tokens, np.int32)[: len(tokens) // length * length].reshape(-1, length)


def main() -> None:
    """Train, and end with 0, 1 for a failure, 2 for invalid input, 3 for a loss that is no number, 143 for SIGTERM."""
    parser: Any = hf.HfArgumentParser(hf.TrainingArguments, allow_abbrev=False)
    for name, size in {"layers": 4, "hidden_size": 128, "heads": 4, "sequence_length": 128}.items():
        parser.add_argument(f"--{name}", type=int, default=size, help="of a new model")
    parser.add_argument("--text_field", default="text", help="in a .jsonl file")
    for name in ("--data", "--validation_data"):
        parser.add_argument(name, action="append", default=[], help="a UTF-8 file: text or .jsonl; can be repeated")
    parser.add_argument("--model", help="a folder with config.json, perhaps with weights and a tokenizer")
    parser.add_argument("--expect", help="processes and device, such as 2xcuda: fewer would train without an error")
    parser.set_defaults(logging_steps=1, logging_nan_inf_filter=False, report_to="none", prediction_loss_only=True)
    parser.set_defaults(save_total_limit=2, ddp_find_unused_parameters=False)
    try:
        args, own = parser.parse_args_into_dataclasses()
        if own.expect not in {None, found := f"{args.world_size}x{args.device.type}"}:
            raise ValueError(f"expected {own.expect}, got {found} | Check the launcher and CUDA_VISIBLE_DEVICES.")
        hf.set_seed(args.seed)
        model, tokenizer = load_model_and_tokenizer(own)
        data, held_out = (read_token_blocks(paths, own, tokenizer) for paths in (own.data, own.validation_data))
    except (ValueError, OSError) as error:
        print("error |", error, file=sys.stderr)
        sys.exit(2)
    batch = args.per_device_train_batch_size, args.gradient_accumulation_steps, args.world_size
    samples = ShuffledSamples(data, args.seed, args.max_steps * math.prod(batch))
    trainer = PretrainingTrainer(
        model, args, hf.default_data_collator, samples, ShuffledSamples(held_out, args.seed, len(held_out))
    )
    trainer.tokenizer = trainer.processing_class = tokenizer  # one of the two is saved with the model, by the version
    trainer.step_tokens = math.prod(batch) * own.sequence_length
    trainer.accelerator.print("batch | micro {} x accumulation {} x world {} = global".format(*batch), math.prod(batch))
    signal.signal(signal.SIGTERM, lambda *_: setattr(trainer, "stop_requested", 1))
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if trainer.is_fsdp_enabled:
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    if not trainer.exit_code:
        trainer.save_model()
    trainer.accelerator.print(trainer.end_message or f"done | model saved in {args.output_dir}", flush=True)
    trainer.accelerator.wait_for_everyone()
    atexit._run_exitfuncs()
    os._exit(trainer.exit_code)  # threads of Gloo can abort an interpreter that takes its time to end


if __name__ == "__main__":
    main()
