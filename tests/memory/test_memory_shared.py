"""What FSDP holds of a model whose layers are frozen and recomputed: predicted, and really so with torch's own."""

import json
import subprocess
from importlib import resources

import pytest
import warm
from estimated_bytes import bytes_of_phase, peak
from msgspec.structs import replace

from tui_train.facts.models.dimensions import ModelDimensions, find_known_dimensions
from tui_train.memory.estimate import estimate_memory
from tui_train.memory.types import ALL_LORA_TARGETS, MemorySettings

# Layers of a frozen matrix with LoRA beside it, recomputed reentrantly; prints the most that lived in the backward.
REAL = """
import functools, json, sys
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist
from memory_trace import AllocationCounter, MemoryAccount
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
LAYERS, TOKENS, WIDTH = 12, 512, 256


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down = torch.nn.Linear(WIDTH, 4, bias=False)
        self.up = torch.nn.Linear(4, WIDTH, bias=False)

    def forward(self, x):
        return x + torch.relu(self.frozen(x)) + self.up(self.down(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer.__call__, x, use_reentrant=True)
        return x


def apart(module):
    return isinstance(module, Layer) or getattr(getattr(module, "weight", None), "requires_grad", False)


def most(share):
    account = MemoryAccount(1)
    model = share(Model())
    with AllocationCounter(account):
        loss = model(torch.randn(TOKENS, WIDTH).requires_grad_()).sum()
        account.phase = "backward"
        loss.backward()
    return account.peaks["backward"] / (TOKENS * WIDTH * 4)


def first(model):
    policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=apart)
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def second(model):
    mesh = init_device_mesh("cpu", (1,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


print(json.dumps([most(lambda model: model), most(first), most(second)]))
dist.destroy_process_group()
"""


@pytest.mark.training
def test_only_fsdps_first_version_holds_the_gradients_of_frozen_layers_inputs():
    target = str(resources.files("tui_train").joinpath("programs/memory"))
    words = [warm.training(), "-c", REAL, target]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    alone, first, second = json.loads(done.stdout.splitlines()[-1])
    assert second == pytest.approx(alone, abs=1)
    model = ModelDimensions(layers=12, hidden=256, heads=4, ffn=256, vocab=8)
    how = MemorySettings(
        micro_batch=1,
        sequence_length=512,
        trained="lora",
        lora_rank=4,
        checkpoints_activations=True,
        sharding="fsdp",
        shard_count=2,
    )
    held = replace(how, holds_frozen_layers=True)
    difference = peak(model, held) - peak(model, how)
    assert difference / (512 * 256 * 4) == pytest.approx(first - alone, abs=2)


MISTRAL = find_known_dimensions("mistralai/Mistral-7B-v0.1")
LORA = MemorySettings(
    micro_batch=1, sequence_length=1024, weight_dtype="bf16", trained="lora", sharding="fsdp", shard_count=2
)


def test_a_shared_out_model_is_loaded_by_shares_or_whole_once():
    parts = bytes_of_phase(0, MISTRAL, LORA)
    whole = bytes_of_phase(0, MISTRAL, replace(LORA, loads_whole_model=True))
    assert whole == pytest.approx(3 * parts)


def test_packed_weights_that_fsdp_2_leaves_out_are_on_each_card():
    packed = replace(LORA, quantization="nf4")
    shared = bytes_of_phase(0, MISTRAL, packed)
    whole = bytes_of_phase(0, MISTRAL, replace(packed, keeps_quantized_unsharded=True))
    assert whole - shared == pytest.approx(MISTRAL.layers * MISTRAL.linear_parameters_per_layer * 0.5625 / 2, rel=0.001)


def test_what_scales_the_layers_instead_of_lora_keeps_what_goes_out_of_them():
    alone = replace(LORA, sharding="", shard_count=1, lora_targets=())
    scaled = replace(alone, lora_targets=ALL_LORA_TARGETS, trains_output_scales=True)
    out = sum(width for _, width in MISTRAL.linear_shapes_per_layer.values())
    assert estimate_memory(MISTRAL, scaled).trained_count == MISTRAL.layers * out
    difference = peak(MISTRAL, scaled) - peak(MISTRAL, alone)
    assert difference > MISTRAL.layers * 1024 * 2 * out


def test_recomputing_only_every_second_product_is_between_all_and_none():
    how = MemorySettings(micro_batch=1, sequence_length=4096, weight_dtype="bf16")
    some = replace(how, checkpoints_activations=True, checkpoints_whole_layers=False)
    sizes = [bytes_of_phase(1, MISTRAL, each) for each in (replace(some, checkpoints_whole_layers=True), some, how)]
    assert sizes == sorted(set(sizes))


def test_layer_norm_and_bitsandbytes_give_on_fp32():
    phi = find_known_dimensions("microsoft/phi-2")
    how = replace(LORA, quantization="nf4", autocast="bf16", sharding="", shard_count=1, checkpoints_activations=True)
    same = replace(how, quantization="gptq")
    kept = [dict(estimate_memory(phi, each).phases[1].parts)["activations"] for each in (how, same)]
    assert kept[0] > 1.9 * kept[1]
    assert estimate_memory(MISTRAL, how).phases[1].parts[-2] == estimate_memory(MISTRAL, same).phases[1].parts[-2]


def test_what_waits_in_the_hosts_memory_or_is_stepped_at_once_is_not_held():
    how = MemorySettings(
        micro_batch=2, sequence_length=4096, weight_dtype="bf16", checkpoints_activations=True, loss="compiled"
    )
    offloads = estimate_memory(MISTRAL, replace(how, offloads_activations=True)).phases[1]
    kept = dict(estimate_memory(MISTRAL, how).phases[1].parts)["activations"] - dict(offloads.parts)["activations"]
    assert kept == (MISTRAL.layers - 2) * how.micro_batch_tokens * MISTRAL.hidden * 2
    at_once = estimate_memory(MISTRAL, replace(how, steps_in_backward_pass=True)).phases[3]
    assert at_once.total_bytes < 3.2 * 2 * MISTRAL.parameters, "weights and two states"
    logits = dict(estimate_memory(MISTRAL, how).phases[4].parts)["logits"]
    assert logits == how.micro_batch_tokens * MISTRAL.vocab * 2 * 9 / 8, "nor does evaluation hold more"
