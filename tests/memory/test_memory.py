"""What memory is predicted: shapes, sums against real steps, verdicts, and what a profile says of them."""

import json
import math
import os
import struct
import subprocess
import sys
from importlib import resources

import msgspec
import psutil
import pytest
import warm
from estimated_bytes import bytes_of_phase, peak
from support import GIB, TRL_PYTHON, facts, gpu, needs_trl, profile, run_cli, sample, wait_until

from tui_train.facts.models.dimensions import (
    ModelDimensions,
    find_known_dimensions,
    known_models,
    layer_structure_by_model_type,
)
from tui_train.facts.models.model_folders import ModelFolder, read_model_folder
from tui_train.facts.types import YamlDocument
from tui_train.memory import trace as traces
from tui_train.memory.estimate import estimate_memory
from tui_train.memory.predict import predict_memory, rung_effects, smallest_same_result_change_that_fits
from tui_train.memory.types import ALL_LORA_TARGETS, MemoryEstimate, MemorySettings, PhaseMemory
from tui_train.memory.verdict import judge_memory, reserved_bytes, used_bytes_on_card
from tui_train.memory.workload import derive_workload
from tui_train.profile.changes import apply_change
from tui_train.setup.setup import Setup

MISTRAL = find_known_dimensions("mistralai/Mistral-7B-v0.1")
SCRIPT = {"trainer.kind": "script", "trainer.script": "/t.py"}
LARGE = {"recipe.hidden_size": 2048, "recipe.heads": 16, "recipe.layers": 16, "recipe.sequence_length": 2048}
COUNT = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
for row in json.loads(sys.argv[1]):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(row.pop("model_type"), **row))
    print(sum(p.numel() for p in model.parameters()))
"""


# As the child that the trace starts, for one question after the other.
COUNTING = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from memory_trace import trace_memory
for line in sys.stdin:
    print(json.dumps(trace_memory(json.loads(line))["phases"]), flush=True)
"""


def own(layers, hidden, heads):
    values = {"recipe.layers": layers, "recipe.hidden_size": hidden, "recipe.heads": heads}
    found = derive_workload(Setup(profile(values), facts()))
    return found.model


def told(values, where, base=None):
    chosen = profile(values, base)
    return predict_memory(Setup(chosen, where))


def test_known_shapes_have_as_many_parameters_as_transformers_gives_them():
    names = ["Qwen2.5-0.5B", "gpt2", "pythia-70m", "falcon-7b", "falcon-40b",
             "gemma-2-2b", "phi-1.5", "santacoder", "OLMo-2-0425-1B", "stablelm-2-1_6b",
             "Qwen3-0.6B", "Phi-3-mini-4k", "starcoder2-3b", "Mixtral-8x7B"]  # fmt: skip
    shapes = [find_known_dimensions(name) for name in names]
    rows = json.dumps([traces.transformers_config(shape) for shape in shapes])
    done = subprocess.run([warm.training(), "-c", COUNT, rows], capture_output=True, text=True, check=True)
    assert [int(line) for line in done.stdout.split()] == [shape.parameters for shape in shapes]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2-0.5B"),
        ("/models/Llama-2-13b-chat-hf/", "meta-llama/Llama-2-13b"),
        ("Llama 2 70 B", "meta-llama/Llama-2-70b"),
        ("llama31_8b", "meta-llama/Meta-Llama-3-8B"),
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "mistralai/Mistral-7B-v0.1"),
        ("gemma2_2b", "google/gemma-2-2b"),
    ],
)
def test_a_model_is_known_by_its_names(name, found):
    assert find_known_dimensions(name) == known_models()[found]
    assert find_known_dimensions(f"{name}x9") is None


@pytest.mark.whole
@pytest.mark.training
@pytest.mark.parametrize(
    ("sizes", "batch", "more", "error"),
    [
        ((3, 256, 4), (4, 256), {"autocast": "bf16"}, 0.01),
        ((4, 256, 4), (8, 256), {"checkpoints_activations": True, "accumulates_gradients": True}, 0.06),
    ],
)
def test_what_is_foretold_is_what_two_real_steps_take(sizes, batch, more, error):
    """Of the built-in trainer's models, on the CPU, by live storage."""
    model = own(*sizes)
    how = MemorySettings(micro_batch=batch[0], sequence_length=batch[1], optimizer="adamw_fused", **more)
    question = traces.memory_child_request(model, how)
    measured = traces.run_memory_measurement(warm.training(), question)
    assert not measured.problem
    assert measured.parameters == model.parameters
    most = measured.peak_phase_and_bytes[1]
    assert peak(model, how) == pytest.approx(most, rel=error)
    traced = traces.run_memory_trace(warm.training(), question)
    assert traced.peak_phase_and_bytes[1] == pytest.approx(most, rel=0.02), traced.problem


@pytest.mark.whole
@needs_trl
@pytest.mark.parametrize("packed", ["nf4", "nf4-dq"])
def test_weights_that_bitsandbytes_quantizes_are_measured_as_estimated(packed):
    model = own(3, 256, 4)
    how = MemorySettings(
        micro_batch=4, sequence_length=128, trained="lora", quantization=packed, lora_targets=ALL_LORA_TARGETS,
        optimizer="adamw_fused",
    )  # fmt: skip
    question = traces.memory_child_request(model, how)
    measured = traces.run_memory_measurement(TRL_PYTHON, question)
    assert not measured.problem
    most = measured.peak_phase_and_bytes[1]
    assert peak(model, how) == pytest.approx(most, rel=0.06)
    assert traces.run_memory_trace(TRL_PYTHON, question).peak_phase_and_bytes[1] == pytest.approx(most, rel=0.02)


@pytest.fixture(scope="module")
def counted():
    """Ask what a trace counts, by phases."""
    folder = resources.files("tui_train") / "programs" / "memory"
    command = [warm.training(), "-c", COUNTING, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:

        def ask(question):
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())

        yield ask
        child.stdin.close()


SMALL = {"layers": 2, "hidden": 256, "heads": 4, "ffn": 512, "vocab": 2000}
TOKENS = {"micro_batch": 2, "sequence_length": 512}


# Weights of four bits beside LoRA, as bitsandbytes computes with them.
PACKED = {"weight_dtype": "bf16", "autocast": "bf16", "trained": "lora", "quantization": "nf4"}
SHORT_SGD = {"optimizer": "sgd", "sequence_length": 16}
TABLE = {"ties_embeddings": True, "vocab": 50000}


def like(name, **sizes):
    """The sizes of a model whose layers are built like those of a type."""
    built = {key: value for key, value in layer_structure_by_model_type()[name].items() if key != "absent"}
    return {"type": name, **built, **sizes}


SUMMED = [
    # Its head's gradient waits for the embedding's, and they are added in a third place.
    (TABLE, {"optimizer": "sgd", "sequence_length": 64}, 0.02),
    (TABLE, {"optimizer": "sgd", "sequence_length": 64, "accumulates_gradients": True}, 0.02),
    ({"vocab": 50000}, {"optimizer": "adafactor", "weight_dtype": "bf16", "sequence_length": 16}, 0.02),
    # DistributedDataParallel copies the gradients; FSDP shares them out once they are whole.
    ({}, SHORT_SGD | {"sharding": "ddp", "shard_count": 2}, 0.05),
    (TABLE, SHORT_SGD | {"sharding": "fsdp", "shard_count": 8}, 0.15),
    # It caps the weights of attention, and so computes them one by one.
    (like("gemma2", heads=16, head_dim=16), {"sequence_length": 1024}, 0.1),
    # Its activation is written out, with a power that autocast takes in fp32.
    (like("gpt2", learned_positions=512, ffn=2048), {"autocast": "bf16"}, 0.05),
    (like("phi", ffn=2048, layers=16), PACKED, 0.05),
    (like("gpt2", learned_positions=1024), {"attention": "eager", "sequence_length": 1024}, 0.05),
    # Under autocast its norms give fp32, of which each linear layer keeps a copy.
    (like("starcoder2"), {"weight_dtype": "bf16", "autocast": "bf16"}, 0.03),
    # Frozen weights are cast for each pass.
    ({"ffn": 4096, "layers": 6}, {"autocast": "bf16", "trained": "lora", "sequence_length": 32}, 0.05),
    # Its norms keep one input; of fp32 from bitsandbytes, attention keeps values and no view of all three.
    (like("gpt_neox", ffn=2048, layers=16), PACKED | {"lora_rank": 1}, 0.05),
    # One head of values, which are a copy, and a softmax in 16 bits.
    (
        like("falcon", norms_per_layer=1, kv_heads=1, heads=16, ffn=2048, layers=8),
        {
            "weight_dtype": "bf16",
            "trained": "lora",
            "attention": "eager",
            "lora_targets": ALL_LORA_TARGETS,
            "lora_dropout": 0.1,
        },
        0.05,
    ),
    # Each of its heads of queries gets keys and values of its own, whatever attends.
    (like("falcon", kv_heads=4, heads=16, ffn=1024, layers=16), {"attention": "flash"}, 0.01),
    # Eager attention copies its values, which keeps no view of all three.
    ({"type": "phi3", "layers": 16}, {"attention": "eager", "sequence_length": 64, "micro_batch": 32}, 0.05),
    # Their norms multiply with the weight in fp32, or have none.
    (like("gemma3_text", heads=4, head_dim=64, layers=8), {"weight_dtype": "bf16"}, 0.05),
    (like("olmo", layers=8), {"weight_dtype": "bf16"}, 0.05),
    ({"heads": 16}, {"attention": "eager"}, 0.05),
    # What bitsandbytes gives on in fp32 is kept so by what is gated as well.
    (like("stablelm", ffn=1024, layers=8), PACKED | {"lora_targets": ALL_LORA_TARGETS}, 0.05),
    # Autocast copies weights of other 16 bits too.
    ({"ffn": 4096, "layers": 6}, {"weight_dtype": "bf16", "autocast": "fp16", "trained": "lora"}, 0.05),
    # Liger's norms are also those of queries and keys.
    (
        like("qwen3", heads=16, head_dim=64, layers=8),
        {"weight_dtype": "bf16", "fused_kernels": "liger", "loss": "fused"},
        0.05,
    ),
    # Kept in fp32 beside packed weights, all that goes from layer to layer is.
    ({"layers": 8}, {"autocast": "bf16", "trained": "lora", "quantization": "nf4"}, 0.05),
    # TRL's losses, with all that is trained, and with less.
    *(
        ({"ties_embeddings": tied, "vocab": 90000}, {"loss": loss, "micro_batch": 5, "optimizer": "sgd", **more}, 0.06)
        for loss in ("tiled", "checkpointed")
        for tied, more in (
            (False, {"autocast": "bf16"}),
            (True, {"weight_dtype": "bf16"}),
            (True, {"autocast": "bf16", "trained": "lora"}),
        )
    ),
    ({}, {"attention": "eager", "checkpoints_activations": True, "sequence_length": 1024}, 0.05),
    # Pairs of answers, and the frozen copy that DPO compares with.
    *(
        (
            {"layers": 6},
            {
                "sequences_per_sample": 2,
                "has_reference_model": True,
                "loss": "tiled",
                "checkpoints_activations": checkpointing,
                **more,
            },
            0.05,
        )
        for checkpointing, more in ((True, {"autocast": "bf16"}), (False, {"weight_dtype": "bf16"}))
    ),
]


@pytest.mark.whole
@pytest.mark.xdist_group("traced")
@pytest.mark.training
@pytest.mark.parametrize(("values", "more", "error"), sample(SUMMED, 10))
def test_what_is_summed_up_is_what_the_models_own_code_keeps(counted, values, more, error):
    model = ModelDimensions(**{**SMALL, **values})
    how = MemorySettings(**{**TOKENS, "optimizer": "adamw_fused", **more})
    traced = counted(traces.memory_child_request(model, how))
    told = {phase.name: phase.total_bytes for phase in estimate_memory(model, how).phases}
    assert max(told.values()) == pytest.approx(max(traced.values()), rel=error)
    assert told["optimizer step"] == pytest.approx(traced["step"], rel=error)


# Experts, compressed attention, sinks, and norms behind attention; without checkpointing all layers count.
BY_CONFIG = {
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 4, "moe_intermediate_size": 128, "head_dim": 64},
    "deepseek_v3": {
        "n_routed_experts": 8, "num_experts_per_tok": 4, "moe_intermediate_size": 128, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "q_lora_rank": 128, "kv_lora_rank": 64, "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 64, "v_head_dim": 64, "n_group": 1, "topk_group": 1,
    },
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 64},
    "olmo3": {"sliding_window": 256},
}  # fmt: skip


@pytest.mark.xdist_group("traced")
@pytest.mark.training
@pytest.mark.parametrize(("kind", "more"), BY_CONFIG.items())
def test_what_a_config_alone_tells_is_what_the_models_own_code_keeps(counted, tmp_path, kind, more):
    sizes = {
        "model_type": kind, "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 2000,
        "num_key_value_heads": 4, "intermediate_size": 512, "tie_word_embeddings": False, "pad_token_id": 0,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(sizes | more))
    model = read_model_folder(str(tmp_path)).dimensions
    how = MemorySettings(micro_batch=2, sequence_length=512, weight_dtype="bf16", optimizer="sgd")
    traced = counted(traces.memory_child_request(model, how, str(tmp_path)))
    # gpt_oss clamps inside its experts, which keeps some more.
    error = 0.1 if kind == "gpt_oss" else 0.05
    assert peak(model, how) == pytest.approx(max(traced.values()), rel=error)


# MiB of a step on the CPU with bitsandbytes 0.50.2, PEFT 0.21.2 and transformers 5.23: two sequences of 256 tokens.
@pytest.mark.parametrize(
    ("weights", "attention", "checkpointing", "measured"),
    [
        ("bf16", "sdpa", False, 20.67),
        ("bf16", "sdpa", True, 8.15),
        # After prepare_model_for_kbit_training.
        ("fp32", "sdpa", False, 25.93),
        ("fp32", "eager", False, 37.90),
        ("fp32", "sdpa", True, 9.42),
    ],
)
def test_what_is_not_quantized_decides_how_wide_all_between_is(weights, attention, checkpointing, measured):
    model = ModelDimensions(layers=4, hidden=128, heads=4, kv_heads=2, ffn=384, vocab=1000)
    how = MemorySettings(
        micro_batch=2, sequence_length=256, weight_dtype=weights, autocast="bf16", trained="lora", quantization="nf4",
        lora_targets=ALL_LORA_TARGETS, attention=attention, checkpoints_activations=checkpointing, optimizer="sgd",
    )  # fmt: skip
    assert peak(model, how) / 2**20 == pytest.approx(measured, rel=0.03)


def test_experts_in_one_tensor_are_neither_quantized_nor_adapted():
    model = find_known_dimensions("Mixtral-8x7B")
    each = MemorySettings(
        micro_batch=1,
        sequence_length=64,
        weight_dtype="bf16",
        trained="lora",
        quantization="nf4",
        lora_targets=ALL_LORA_TARGETS,
    )
    fused = msgspec.structs.replace(each, fused_experts=True)
    one, other = (estimate_memory(model, how) for how in (each, fused))
    unpacked = model.layers * model.expert_parameters_per_layer * (2 - 0.5625)
    adapters = model.layers * model.experts * 3 * 16 * (model.hidden + model.expert_ffn)
    assert one.trained_count - other.trained_count == adapters
    assert other.phases[0].total_bytes - one.phases[0].total_bytes == pytest.approx(unpacked - 4 * adapters, rel=1e-6)


def test_the_optimizer_holds_what_torch_does():
    """Weights, gradients, two states and foreach's square roots: five times the weights in bf16, four when fused."""
    how = MemorySettings(micro_batch=1, sequence_length=512, weight_dtype="bf16", checkpoints_activations=True)
    step = estimate_memory(MISTRAL, how)
    weights = 2 * MISTRAL.parameters
    assert step.peak_phase.name == "optimizer step"
    assert step.peak_phase.total_bytes == 5 * weights
    fused = msgspec.structs.replace(how, optimizer="adamw_fused")
    assert bytes_of_phase(3, MISTRAL, fused) == 4 * weights
    halved = msgspec.structs.replace(how, sharding="fsdp", shard_count=2)
    assert bytes_of_phase(3, MISTRAL, halved) == pytest.approx(2.5 * weights)
    copied = msgspec.structs.replace(how, sharding="ddp", shard_count=2)
    assert bytes_of_phase(3, MISTRAL, copied) == 6 * weights


def test_each_saving_saves():
    how = MemorySettings(micro_batch=4, sequence_length=2048)
    savings = {
        "checkpoints_activations": True,
        "trained": "lora",
        "loss": "fused",
        "fused_kernels": "liger",
        "attention": "flash",
    }
    for name, value in (*savings.items(), ("weight_dtype", "bf16")):
        less = msgspec.structs.replace(how, **{name: value})
        assert peak(MISTRAL, less) < peak(MISTRAL, how), name
    packed = msgspec.structs.replace(how, weight_dtype="bf16", trained="lora")
    quantized = msgspec.structs.replace(packed, quantization="nf4")
    saving = bytes_of_phase(0, MISTRAL, packed) - bytes_of_phase(0, MISTRAL, quantized)
    assert saving == pytest.approx(MISTRAL.layers * MISTRAL.linear_parameters_per_layer * (2 - 0.5625), rel=0.001)


def test_bands():
    assert judge_memory(10 * GIB, 11 * GIB, 24 * GIB, several_processes=False).band == "fits"
    assert judge_memory(10 * GIB, 11 * GIB, 24 * GIB, several_processes=False, has_caveats=True).band == "tight"
    # Gaps between the blocks decide before the tensors do, and the allocator gives them back near the limit.
    assert judge_memory(18.5 * GIB, 20.5 * GIB, 24 * GIB, several_processes=False).band == "fits"
    assert judge_memory(18.5 * GIB, 22 * GIB, 24.5 * GIB, several_processes=True).band == "tight"
    assert judge_memory(18.5 * GIB, 30 * GIB, 24 * GIB, several_processes=False).band == "tight"
    assert judge_memory(23 * GIB, 23 * GIB, 24 * GIB, several_processes=False).band == "will not fit"
    assert judge_memory(1, 1, 0, several_processes=True).band == "will not fit"


def test_what_is_reserved_is_more_than_the_tensors_by_their_logits_and_processes():
    phases = (PhaseMemory("backward", (("weights", 10 * GIB), ("logits", 5 * GIB))),)
    found = MemoryEstimate(phases, 10, 10)
    assert reserved_bytes(found, several_processes=False) == 18.25 * GIB
    assert reserved_bytes(found, several_processes=True) == 19.75 * GIB
    assert reserved_bytes(found, several_processes=False, expandable=True) == 16.625 * GIB
    assert used_bytes_on_card(GIB, several_processes=False) == 1.5 * GIB


def test_the_card_with_the_least_free_memory_decides():
    where = facts(gpus=(gpu(0), gpu(1, memory_total=20 * GIB)))
    found = told({"recipe.global_batch": 16}, where)
    assert [place.free_bytes for place, _ in found.place_verdicts] == [20 * GIB, 24 * GIB]


@pytest.mark.whole
def test_a_trace_counts_what_is_trained_not_what_the_files_hold(tmp_path):
    """The built-in trainer trains in fp32, whatever a folder says of its files."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "llama"}))
    chosen = profile({"trainer.model": str(tmp_path)})
    where = msgspec.structs.replace(facts(), models={str(tmp_path): read_model_folder(str(tmp_path))})
    found = derive_workload(Setup(chosen, where))
    told = traces.run_memory_trace(
        warm.training(), traces.memory_child_request(found.model, found.settings, found.model_folder)
    )
    assert told.peak_phase_and_bytes[1] == pytest.approx(peak(found.model, found.settings), rel=0.1)


def test_what_makes_it_fit_keeps_the_global_batch():
    where = facts(gpus=(gpu(0),))
    chosen = profile(LARGE)
    assert told(LARGE, where).band == "will not fit"
    change = smallest_same_result_change_that_fits(Setup(chosen, where))
    changed = apply_change(change, chosen)
    assert changed.recipe.global_batch == Setup(chosen, where).effective_profile.recipe.global_batch
    assert predict_memory(Setup(changed, where)).band != "will not fit"
    twice = apply_change(type(change)("", "", (("recipe.micro_batch", changed.recipe.micro_batch * 2),)), changed)
    assert predict_memory(Setup(twice, where)).band == "will not fit", "the largest that fits is taken"


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (SCRIPT, "the script's own model is not known"),
        (SCRIPT | {"trainer.arguments": ("--model_name_or_path=nobody/x",)}, "its sizes are not known here"),
        ({"trainer.kind": "nemo", "nemo.recipe": "llama3_8b", "nemo.tensor_parallel": 2}, "parallel"),
        ({"trainer.kind": "nemo", "nemo.recipe": "chatglm3_6b"}, "is unknown"),
        ({"trainer.kind": "nemo"}, "set a recipe"),
    ],
)
def test_what_cannot_be_known_is_not_made_up(values, part):
    found = told(values, facts(gpus=(gpu(0),)))
    assert found.estimate is None
    assert found.band is None
    assert part in found.why_no_estimate


def test_arguments_and_yaml_tell_how():
    words = ("--model_name_or_path", "Qwen/Qwen2.5-0.5B", "--use_peft", "--lora_r=64", "--load_in_4bit",
             "--torch_compile", "--optim", "adamw_bnb_8bit", "--max_seq_length=777",
             "--attn_implementation=flash_attention_2")  # fmt: skip
    how = told(SCRIPT | {"trainer.arguments": words, "recipe.precision": "bf16"}, facts()).workload.settings
    assert (how.trained, how.lora_rank, how.quantization, how.optimizer) == ("lora", 64, "nf4", "adamw_8bit")
    assert (how.sequence_length, how.attention, how.autocast) == (777, "flash", "bf16")
    assert any("torch.compile" in words for words in how.caveats)
    yaml = YamlDocument(values={"base_model": "meta-llama/Llama-3.2-1B", "adapter": "qlora", "load_in_4bit": True})
    where = msgspec.structs.replace(facts(), documents={"/c.yaml": yaml})
    found = told(SCRIPT | {"trainer.preset": "axolotl", "trainer.config": "/c.yaml"}, where).workload
    assert (found.model.name, found.settings.quantization) == ("meta-llama/Llama-3.2-1B", "nf4")


LOADED = ("--model_name_or_path=Qwen/Qwen2.5-0.5B", "--dtype=float32")
EVALUATES = (*LOADED, "--eval_strategy=steps")


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        # The Hugging Face Trainer's own; what is not told to evaluate is taken to do so with the micro batch.
        ({"trainer.arguments": EVALUATES}, 8),
        ({"trainer.arguments": LOADED}, 0),
        ({"trainer.arguments": (*LOADED, "--eval_strategy=no")}, 0),
        ({"trainer.arguments": (*EVALUATES, "--per_device_eval_batch_size=64")}, 64),
        ({"trainer.arguments": EVALUATES, "recipe.eval_batch": 2}, 2),
        ({"trainer.arguments": EVALUATES, "trainer.preset": "nanogpt", "recipe.eval_batch": 2}, 0),
    ],
)
def test_an_evaluation_has_a_batch_of_its_own(values, wanted):
    found = told(SCRIPT | {"recipe.micro_batch": 1, "recipe.sequence_length": 1024} | values, facts(gpus=(gpu(0),)))
    assert found.workload.settings.eval_batch == wanted
    parts = dict(found.estimate.phases[-1].parts)
    # In fp32 as they are computed, and once more.
    assert parts["logits"] == (wanted or 1) * 1024 * found.workload.model.vocab * 8


def test_a_smaller_evaluation_batch_is_what_makes_an_evaluation_fit():
    where = facts(gpus=(gpu(0),))
    words = (*EVALUATES, "--max_length=2048")
    chosen = profile(SCRIPT | {"trainer.arguments": words, "recipe.micro_batch": 1, "recipe.global_batch": 16})
    found = predict_memory(Setup(chosen, where))
    assert (found.band, found.estimate.peak_phase.name) == ("will not fit", "eval")
    change = smallest_same_result_change_that_fits(Setup(chosen, where))
    assert change.edits == (("recipe.eval_batch", 1),)
    # Where the evaluation is not what is too large, its batch is left alone.
    other = profile({"recipe.micro_batch": 16, "trainer.arguments": (*LOADED, words[-1])}, chosen)
    assert "recipe.eval_batch" not in dict(smallest_same_result_change_that_fits(Setup(other, where)).edits)


@pytest.mark.parametrize(
    ("preset", "told_by_file", "rank"),
    [("trl", {}, 16), ("llama-factory", {"finetuning_type": "full"}, 8), ("axolotl", {}, 16)],
)
def test_lora_is_foretold_as_it_will_train(preset, told_by_file, rank):
    packages = {"peft": "0.18", "llamafactory": "0.9.5", "axolotl": "0.19.0"}
    document = YamlDocument(values={"model_name_or_path": "Qwen/Qwen2.5-0.5B", **told_by_file})
    where = msgspec.structs.replace(facts(gpus=(gpu(0),), packages=packages), documents={"/c.yaml": document})
    values = {"trainer.preset": preset, "trainer.config": "/c.yaml" if preset != "trl" else ""}
    values |= {"trainer.arguments": LOADED} if preset == "trl" else {}
    values |= {"recipe.micro_batch": 1, "recipe.global_batch": 16, "recipe.sequence_length": 128}
    values |= {"recipe.precision": "fp32", "recipe.activation_checkpointing": False}
    chosen = profile(SCRIPT | values)
    full, lora = (told({"recipe.lora": yes}, where, chosen) for yes in (False, True))
    how = lora.workload.settings
    assert (full.workload.settings.trained, how.trained, how.lora_rank, how.lora_targets) == (
        "full",
        "lora",
        rank,
        ALL_LORA_TARGETS,
    )
    # Gradients and states of all weights are gone.
    assert lora.estimate.peak_phase.total_bytes < full.estimate.peak_phase.total_bytes / 2
    (effect,) = (one for one in rung_effects(Setup(chosen, where)) if one.change.title == "LoRA")
    # What is reserved is what is shown and judged.
    assert (
        effect.peak_difference_bytes
        == lora.place_verdicts[0][1].reserved_bytes - full.place_verdicts[0][1].reserved_bytes
    )
    assert effect.peak_difference_bytes < lora.estimate.peak_phase.total_bytes - full.estimate.peak_phase.total_bytes
    assert effect.changes_training
    # Where a trainer is not told, it is none.
    assert (
        told({"recipe.lora": True, "trainer.preset": "hf-trainer"}, where, chosen).workload.settings.trained == "full"
    )


def safetensors(path, tensors, length=None, data=b""):
    header = json.dumps(tensors).encode()
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)


def bf16(*shape):
    return {"dtype": "BF16", "shape": shape, "data_offsets": (0, 2 * math.prod(shape))}


CONFIG = {"model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "torch_dtype": "bfloat16"}  # fmt: skip


def test_a_folder_tells_shape_and_exact_count(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert read_model_folder(str(tmp_path)).dimensions.layers == 2
    safetensors(tmp_path / "a.safetensors", {"w": bf16(10, 20), "__metadata__": {"x": "y"}}, data=bytes(400))
    safetensors(tmp_path / "b.safetensors", {"v": bf16(7)}, data=bytes(14))
    index = {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    read = read_model_folder(str(tmp_path))
    found = read.dimensions
    assert (found.parameters, found.dtype, found.qkv_bias, read.layer_paths) == (207, "bf16", True, ("w",))
    where = msgspec.structs.replace(facts(), models={"/m": ModelFolder(found)})
    assert told({"trainer.model": "/m"}, where).estimate.parameters == 207


def test_a_model_without_some_of_its_files_is_damaged(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    index = {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_model_folder(str(tmp_path)).bad_weights == "", "its weights may have another format"
    safetensors(tmp_path / "a.safetensors", {"w": bf16(10, 20)}, data=bytes(400))
    read = read_model_folder(str(tmp_path))
    assert read.bad_weights == "b.safetensors is missing (1 of 2 files are)"
    assert (read.dimensions.exact_parameters, read.layer_paths) == (0, ())
    (tmp_path / "b.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 14\n")
    assert "git lfs pull" in read_model_folder(str(tmp_path)).bad_weights
    safetensors(tmp_path / "b.safetensors", {"v": bf16(7)}, data=bytes(14))
    assert read_model_folder(str(tmp_path)).bad_weights == ""


def test_layers_of_an_unknown_kind_are_told_not_raised(tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 100, "num_attention_heads": 4, "num_key_value_heads": 4}
    config = {"model_type": "llama", "num_hidden_layers": 8, "vocab_size": 100, "full_attention_interval": 4, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "linear_attention" in read_model_folder(str(tmp_path)).problem


def test_files_in_mxfp4_are_not_counted_by_their_elements(tmp_path):
    made = CONFIG | {"model_type": "gpt_oss", "num_local_experts": 2, "num_experts_per_tok": 1}
    (tmp_path / "config.json").write_text(json.dumps(made | {"quantization_config": {"quant_method": "mxfp4"}}))
    safetensors(tmp_path / "model.safetensors", {"w": {**bf16(5), "dtype": "U16"}}, data=bytes(10))
    found = read_model_folder(str(tmp_path))
    assert (found.problem, found.dimensions.exact_parameters, found.dimensions.dtype) == ("", 0, "bf16")


def test_a_layer_is_found_by_the_end_of_its_path():
    model = ModelFolder(layer_paths=("model.layers.0.mlp.up_proj",))
    assert all(map(model.has_layer, ("up_proj", "mlp.up_proj", "layers.7.mlp.up_proj")))
    assert not any(map(model.has_layer, ("proj", "mlp", "up_proj.weight", "")))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: (path / "config.json").write_text("[" * 100_000),
        lambda path: (path / "config.json").write_bytes(b"\xff\x00"),
        lambda path: (path / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": -1})),
        lambda path: (path / "config.json").write_text(json.dumps(CONFIG | {"hidden_size": "64"})),
        lambda path: (path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "\x1b[31m"})),
        lambda path: (path / "config.json").write_text(json.dumps(CONFIG | {"model_type": ["x"]})),
        lambda path: ((path / "config.json").unlink(), os.mkfifo(path / "config.json")),
        lambda path: safetensors(path / "model.safetensors", {}, length=2**62),
        lambda path: (path / "model.safetensors").write_bytes(b"\x01"),
        lambda path: safetensors(path / "model.safetensors", {"w": bf16(-1, 5)}),
        lambda path: safetensors(path / "model.safetensors", {"w": {"dtype": "BF16"}}),
        lambda path: safetensors(path / "model.safetensors", {"w": 3}),
        lambda path: (path / "model.safetensors.index.json").write_text('{"weight_map": {"w": "../../etc/passwd"}}'),
    ],
)
def test_a_damaged_folder_is_a_problem_in_words(tmp_path, spoil):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    spoil(tmp_path)
    found = read_model_folder(str(tmp_path))
    assert found.dimensions is None
    assert found.problem.isprintable()
    assert found.problem


@pytest.mark.whole
def test_the_command_prints_phases_and_json():
    shown = run_cli("estimate", "quickstart", "--set", "recipe.layers=3").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "Estimated: most in " in shown
    quick = f"--set=trainer.python={warm.training()}"
    data = json.loads(run_cli("estimate", "quickstart", "--json", "--measure", quick).stdout)
    assert data["peak"]["bytes"] == pytest.approx(max(data["measure"]["phases"].values()), rel=0.15)
    mine = ("kind=script", "script=/t.py", "preset=hf-trainer")
    failed = run_cli("estimate", "quickstart", *(f"--set=trainer.{setting}" for setting in mine), code=69)
    assert "the script's own model is not known" in failed.stderr


def test_a_trace_that_fails_or_is_cancelled_says_so():
    model = ModelDimensions(type="nothing", layers=1, hidden=8, heads=1, ffn=8, vocab=8)
    question = traces.memory_child_request(model, MemorySettings(micro_batch=1, sequence_length=8))
    assert "nothing" in traces.run_memory_trace(warm.training(), question).problem
    assert traces.run_memory_trace(warm.training(), question, lambda: True).problem
    assert "cannot be started" in traces.run_memory_trace("/no/python", question).problem


@pytest.mark.whole
def test_what_measures_ends_with_whoever_asked_for_it():
    how = MemorySettings(micro_batch=8, sequence_length=1024)
    asked = traces.memory_child_request(
        ModelDimensions(type="llama", layers=40, hidden=1024, heads=8, ffn=4096, vocab=32000), how
    )
    asks = f"from tui_train.memory import trace; trace.run_memory_measurement({sys.executable!r}, {asked!r})"
    asking = subprocess.Popen([sys.executable, "-c", asks])
    started = lambda: psutil.Process(asking.pid).children()  # noqa: E731
    wait_until(lambda: started() and any("libtorch" in mapped.path for mapped in started()[0].memory_maps()), 60)
    (child,) = started()
    asking.kill()
    asking.wait()
    # Half a minute of work was before it.
    child.wait(timeout=20)
