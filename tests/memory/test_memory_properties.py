"""What holds of every profile: no rung makes a profile worse, nor raises what it is there to lower."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import GIB, UUIDS, example_count, facts, findings_of, gpu, profile

from tui_train.memory.ladder.attempt_order import attempts_with_fallbacks
from tui_train.memory.ladder.rungs import RUNGS
from tui_train.memory.predict import predict_memory
from tui_train.setup.setup import Setup

CARDS = tuple(gpu(index, uuid=f"{UUIDS[0][:-1]}{index}", memory_total=80 * GIB) for index in range(4))
MODELS = ("Qwen/Qwen2.5-0.5B", "mistralai/Mistral-7B-v0.1", "meta-llama/Llama-3.2-3B", "gpt2", "tiiuae/falcon-7b")
# What of an estimate belongs to where memory ran out.
WHERE = {"loss": ("forward and loss", "backward"), "step": ("optimizer step",), "load": ("load",), "eval": ("eval",)}
RECIPES = st.fixed_dictionaries({
    "recipe.micro_batch": st.sampled_from([1, 2, 3, 8]),
    "recipe.sequence_length": st.sampled_from([2, 128, 2048]),
    "recipe.precision": st.sampled_from(["fp32", "bf16"]),
    "recipe.activation_checkpointing": st.booleans(),
    "recipe.fused_cross_entropy": st.booleans(),
    "recipe.optimizer_8bit": st.booleans(),
    "ladder.rungs": st.permutations(list(RUNGS)).map(tuple),
    "ladder.consent": st.just(tuple(name for name, rung in RUNGS.items() if rung.changes_training)),
})  # fmt: skip
BUILTIN = st.fixed_dictionaries({
    "trainer.kind": st.just("builtin"),
    "recipe.layers": st.sampled_from([1, 3, 16]),
    "recipe.hidden_size": st.sampled_from([64, 1024]),
    "trainer.strategy": st.sampled_from(["ddp", "fsdp2"]),
})  # fmt: skip
SCRIPTS = st.fixed_dictionaries({
    "trainer.kind": st.just("script"),
    "trainer.script": st.just("/t.py"),
    "trainer.arguments": st.tuples(
        st.sampled_from([f"--model_name_or_path={name}" for name in MODELS]),
        st.sampled_from(["--dtype=bfloat16", "--dtype=float32"]),
        st.sampled_from(["--eval_strategy=steps", "--use_peft", "--load_in_4bit=True", "--optim=adamw_torch", "--x"]),
        st.just("--max_length=512"),
    ),
    "trainer.strategy": st.sampled_from(["ddp", "fsdp2", "zero1", "zero2", "zero3"]),
})  # fmt: skip


@st.composite
def profiles(draw):
    """A profile whose batches are exact, and the machine that it is for."""
    count = draw(st.sampled_from([1, 2, 4]))
    values = draw(RECIPES) | draw(st.one_of(BUILTIN, SCRIPTS))
    steps = draw(st.sampled_from([1, 2, 5]))
    values["recipe.global_batch"] = values["recipe.micro_batch"] * count * steps
    return profile(values), facts(gpus=CARDS[:count])


def errors(chosen, where):
    return {finding.message for finding in findings_of(chosen, where) if finding.level == "error"}


def may_rise(before, after):
    """Bytes that a change may cost while it saves others: what it is physically bought with."""
    then, model = after.workload.settings, after.workload.model
    now = before.workload.settings
    cost = 0
    if then.accumulates_gradients and not now.accumulates_gradients:
        # The gradients of one micro batch are there while the next is computed.
        cost += dict(next(each for each in after.estimate.phases if each.name == "optimizer step").parts)["gradients"]
        # Of a tied table the sum of its two gradients, beside what the micro batches before gave.
        cost += model.embedding_parameters * 4 if model.ties_embeddings else 0
    if then.loss == "fused" != now.loss:
        # It computes gradients with the loss: of the head, and of what goes into it.
        cost += (model.embedding_parameters + then.micro_batch_tokens * model.hidden) * then.compute_value_bytes
    if then.checkpoints_activations and not now.checkpoints_activations:
        # The input of a layer, beside all of that layer.
        cost += then.micro_batch_tokens * model.hidden * then.residual_value_bytes
    return cost


@pytest.mark.whole
@settings(max_examples=example_count(60), deadline=None)
@given(profiles())
def test_no_rung_raises_what_it_is_there_to_lower_nor_makes_a_profile_wrong(made):
    chosen, where = made
    tries = attempts_with_fallbacks(chosen, Setup(chosen, where).ladder_context)
    found = [predict_memory(Setup(each.profile, where)) for each in tries]
    for before, attempt in zip(found, tries, strict=True):
        for phase, index in attempt.next_index_by_phase.items():
            after, changed = found[index], tries[index]
            assert errors(changed.profile, where) <= errors(attempt.profile, where), changed.title
            assert after.estimate.peak_phase.total_bytes <= before.estimate.peak_phase.total_bytes + may_rise(
                before, after
            ), changed.title
            sizes = [
                max(part.total_bytes for part in each.estimate.phases if part.name in WHERE[phase])
                for each in (before, after)
            ]
            assert sizes[1] <= sizes[0] + (may_rise(before, after) if phase == "loss" else 0), changed.title
