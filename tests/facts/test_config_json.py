"""The size of a model as config.json alone gives it, against what transformers counts, and what it does not give."""

import json
import subprocess
from pathlib import Path

import pytest
import warm

from tui_train.facts.models.config_json import parse_model_dimensions

# As they stand on the Hub, without what has no weights; counted by transformers 5.23.
MODELS = json.loads(Path(__file__).with_name("model_configs.json").read_text())
CONFIG_BY_NAME = {row["name"]: row["config"] for row in MODELS}
COUNT = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
for row in json.load(open(sys.argv[1])):
    config = row["config"]
    config.pop("quantization_config", None)
    kind = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
    model.tie_weights()
    print(sum(p.numel() for p in model.parameters()))
"""
PLAIN = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "vocab_size": 32000,
    "num_attention_heads": 16, "num_key_value_heads": 4, "hidden_act": "silu", "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 4096, "bos_token_id": 1,
}  # fmt: skip


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row["name"])
def test_a_config_alone_tells_the_parameters(row):
    assert parse_model_dimensions(row["config"]).parameters == pytest.approx(row["parameters"], rel=0.02)


@pytest.mark.training
def test_transformers_counts_as_many():
    path = Path(__file__).with_name("model_configs.json")
    done = subprocess.run([warm.training(), "-c", COUNT, path], capture_output=True, text=True, check=True)
    assert [int(line) for line in done.stdout.split()] == [row["parameters"] for row in MODELS]


def test_a_type_that_nobody_wrote_down_is_counted_where_all_its_fields_are_understood():
    known, other = parse_model_dimensions(PLAIN), parse_model_dimensions(PLAIN | {"model_type": "acme"})
    assert other.parameters == known.parameters
    assert not known.caveats
    assert "acme" in other.caveats[0]


@pytest.mark.parametrize(
    ("config", "part"),
    [
        # Of a type without a row any field could be a part.
        (PLAIN | {"model_type": "acme", "memory_slots": 64}, "memory_slots"),
        (PLAIN | {"model_type": "acme", "hidden_act": "gelu"}, "gated"),
        (PLAIN | {"model_type": "acme", "tie_word_embeddings": None}, "tied"),
        (PLAIN | {"model_type": "bart", "is_encoder_decoder": True}, "is_encoder_decoder"),
        # Layers of something else, and towers of which no rule is known.
        (PLAIN | {"layer_types": ["full_attention", "fourier"] * 4}, "fourier"),
        (CONFIG_BY_NAME["google/gemma-3-4b-it"] | {"audio_config": {"hidden_size": 1}}, "audio_config"),
        (PLAIN | {"vision_config": {"image_size": 448}}, "vision_config"),
        (PLAIN | {"vision_config": {"hidden_size": 1024, "num_hidden_layers": 12}}, "vision_config"),
        # A nested table leaves out what is the default of its type.
        ({"model_type": "acme_vl", "text_config": {**PLAIN, "num_key_value_heads": None}}, "keys and values"),
        (PLAIN | {"per_layer_config": {"3": {"hidden_size": 9}}}, "per_layer_config"),
        (PLAIN | {"quantization_config": {"quant_method": "fp8"}}, "quantization"),
    ],
)
def test_what_it_does_not_tell_is_named(config, part):
    with pytest.raises(ValueError, match=part):
        parse_model_dimensions(config)


@pytest.mark.parametrize(
    "more",
    [
        {"mlp_only_layers": 5}, {"layer_types": 5}, {"per_layer_config": [1]}, {"num_hidden_layers": 2**39},
        {"num_local_experts": 8, "num_experts_per_tok": "2"}, {"text_config": []}, {"vision_config": [1]},
        {"vision_config": {"hidden_size": 8, "depth": 2, "deepstack_visual_indexes": 3}}, {"kv_lora_rank": -1},
    ],
    ids=str,
)  # fmt: skip
def test_an_odd_value_is_left_out_or_refused(more):
    try:
        found = parse_model_dimensions(PLAIN | more)
    except ValueError:
        return
    assert found.parameters == pytest.approx(parse_model_dimensions(PLAIN).parameters, rel=0.02)


def test_experts_are_counted_with_those_that_all_tokens_share():
    found = parse_model_dimensions(CONFIG_BY_NAME["deepseek-ai/DeepSeek-V3"])
    assert (found.experts, found.experts_per_token, found.dense_layers, found.expert_layers) == (256, 8, 3, 58)
    assert (found.expert_ffn, found.shared_ffn, found.ffn_width_per_token) == (2048, 2048, 9 * 2048)
    assert parse_model_dimensions(CONFIG_BY_NAME["meta-llama/Llama-4-Maverick-17B-128E"]).expert_layers == 24


def test_mxfp4_is_counted_as_it_is_trained():
    found = parse_model_dimensions(CONFIG_BY_NAME["openai/gpt-oss-20b"])
    assert (found.dtype, "mxfp4" in found.caveats[0]) == ("bf16", True)
