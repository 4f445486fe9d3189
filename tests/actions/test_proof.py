"""The proof of a machine: each stage on cards that are pretended, and on the CPU what there is of it."""

import json
import os
import re
import shlex
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import warm
from fake_driver import MACHINES_FOLDER, driver_environment
from msgspec import structs
from support import facts, profile, run_cli, set_variables, wait_until

from tui_train.actions.cards import memory, samples
from tui_train.actions.cards.claims import checked_claim
from tui_train.actions.cards.exchange import exchange_claims, rank_claims
from tui_train.actions.cards.kernels import kernel_claims
from tui_train.actions.cards.out_of_memory import out_of_memory_claims
from tui_train.actions.cards.proof import STAGE_BY_NAME, Proof, ProofStage, load_proof, prove_stages, proved_machine
from tui_train.actions.cards.training_kinds import training_kind_claims
from tui_train.actions.cards.tuning import tuning_claims
from tui_train.actions.doctor.short_runs import ShortRunContext, ShortRunObserver
from tui_train.base.errors import Unavailable
from tui_train.cli.plans.cards import update_report
from tui_train.facts.machine.probe import probe_machine
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.workload import new_model_dimensions
from tui_train.places.place import Place
from tui_train.profile.types import Recipe
from tui_train.runs.interrupts import Interrupts
from tui_train.runs.run_folders import list_runs
from tui_train.views.proof_report import proof_markdown

PRETENDED = Path(__file__).parents[1] / "pretended_cuda"
CU130 = {"cuda": "13.0", "arch_list": tuple(f"sm_{arch}" for arch in (75, 80, 86, 90, 100, 120))}


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """Makes a run_context on a machine of the fake driver whose CUDA is the CPU."""

    def run_context(machine):
        archs = " ".join(arch.removeprefix("sm_") for arch in CU130["arch_list"])
        pretends = {"PYTHONPATH": str(PRETENDED), "PRETEND": "cuda", "PRETEND_ARCHS": archs}
        set_variables(monkeypatch, driver_environment(machine) | pretends)
        found = structs.replace(facts(**CU130), machine=probe_machine())
        gpus = found.machine.gpus
        listed = "".join(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})\n" for gpu in gpus)
        shown = "".join(f"{gpu.uuid}, {gpu.memory_free >> 20}, 97, 71\n" for gpu in gpus)
        says = f"case $1 in -L) printf %s {shlex.quote(listed)};; --query-gpu*) printf %s {shlex.quote(shown)};; esac"
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return ShortRunContext(Place(), found, ShortRunObserver())

    return run_context


def verdicts(claims):
    made = {claim.claim: claim.verdict for claim in claims}
    assert not list_runs()
    return made


def on_cpu():
    return ShortRunContext(Place(), facts(), ShortRunObserver())


@pytest.mark.whole
@pytest.mark.training
def test_a_card_that_this_torch_has_no_code_for_fails_as_foreseen(pretended):
    run_context = pretended("seed-3090-gt1030-3090")
    made = [*kernel_claims(profile(), run_context)]
    assert {claim.verdict for claim in made} == {"ok"}, made
    (blocked,) = [claim for claim in made if "GT 1030" in claim.claim]
    assert "cannot compute" in blocked.expected
    assert "no kernel image" in blocked.seen


@pytest.mark.whole
@pytest.mark.training
def test_cards_that_do_otherwise_than_foreseen_differ(pretended, monkeypatch):
    run_context = pretended("seed-3090-gt1030-3090")
    monkeypatch.setenv("PRETEND_ARCHS", "61")
    made = [claim.verdict for claim in kernel_claims(profile(), run_context) if claim.claim.endswith("the verdict")]
    assert made == ["differs", "differs", "differs"]


@pytest.mark.whole
@pytest.mark.training
def test_each_process_uses_the_card_of_the_plan(pretended):
    run_context = pretended("seed-3090-gt1030-3090")
    assert verdicts(rank_claims(profile(), run_context)) == {
        f"Process {rank} of 2 uses the device of the plan": "ok" for rank in (0, 1)
    }


@pytest.mark.whole
@pytest.mark.training
def test_nccl_and_gloo_are_compared(pretended):
    made = {claim.claim: claim for claim in exchange_claims(profile(), pretended("seed-3090-gt1030-3090"))}
    assert [claim.verdict for claim in made.values()][:2] == ["ok", "ok"]
    # Which of them is faster where both are Gloo is chance.
    assert "times as fast" in made["NCCL is faster than Gloo on GPUs"].seen


@pytest.mark.whole
@pytest.mark.training
def test_a_real_out_of_memory_is_climbed_down_with_the_same_losses(pretended):
    made = [*out_of_memory_claims(profile(), pretended("seed-3090-gt1030-3090"))]
    assert [claim.verdict for claim in made] == ["ok", "ok", "ok"], made


@pytest.mark.whole
@pytest.mark.training
def test_what_is_estimated_and_traced_is_measured_on_the_card(pretended, monkeypatch):
    small = new_model_dimensions(Recipe(layers=2, hidden_size=128, heads=2))
    monkeypatch.setattr(memory, "_CARD_MODELS", ("small",))
    monkeypatch.setattr(memory, "find_known_dimensions", lambda _: small)
    monkeypatch.setattr(memory, "_CARD_SETTINGS", structs.replace(memory._CARD_SETTINGS, sequence_length=64))
    made = {claim.claim: claim for claim in memory.memory_claims(profile(), pretended("seed-3090-gt1030-3090"))}
    kinds = [claim.rpartition(": ")[2] for claim in made]
    assert kinds[:7] == ["estimate", "trace", "reserved", "CUDA context", "estimate", "trace", "reserved"]
    assert {claim.verdict for claim in made.values() if claim.claim.endswith("trace")} == {"ok"}, made


@pytest.mark.whole
@pytest.mark.training
def test_precisions_optimizers_and_ddp_train_as_the_plain_training(pretended):
    made = verdicts(training_kind_claims(profile(), pretended("seed-3090-gt1030-3090")))
    named = {claim.partition(" train")[0]: verdict for claim, verdict in made.items()}
    for kind in ("One process", "bf16", "fp16", "the fused optimizer", "activation checkpointing", "DDP"):
        assert named[kind] == "ok", named
    assert set(named) >= {"FSDP2", "ZeRO-2", "ZeRO-3", "the 8-bit optimizer"}


@pytest.mark.whole
@pytest.mark.training
def test_tuning_is_compared_with_every_setting(pretended):
    (claim,) = tuning_claims(profile(), pretended("seed-3090-gt1030-3090"))
    assert "the fastest of 6" in claim.expected


@pytest.mark.whole
def test_samples_are_compared_with_nvidia_smi(pretended, tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "_BUSY_SECONDS", 5)
    text = (
        (MACHINES_FOLDER / "two-3090.txt")
        .read_text()
        .replace("driver = 570.133.20\ncuda = 12.8", "driver = 580\ncuda = 13.0")
    )
    always_busy = text.replace("mode = default", "mode = default\nuse = 97\ntemperature = 71")
    (tmp_path / "busy.txt").write_text(always_busy)
    run_context = pretended(str(tmp_path / "busy.txt"))
    assert [claim.verdict for claim in samples.sample_claims(profile(), run_context)] == ["ok", "ok"]
    smi = tmp_path / "nvidia-smi"
    smi.write_text(smi.read_text().replace(", 97, 71", ", 12, 71"))
    assert [claim.verdict for claim in samples.sample_claims(profile(), run_context)] == ["differs", "differs"]


@pytest.mark.whole
@pytest.mark.training
def test_what_has_no_nemo_is_not_tested(pretended):
    results = [*prove_stages(stages("nemo"), profile(), pretended("seed-3090-gt1030-3090"))]
    assert [claim.verdict for claim in results[-1].claims] == ["not tested"]


def stages(*names):
    return [STAGE_BY_NAME[name] for name in names]


def test_a_machine_without_cards_says_what_it_could_not_test():
    results = [*prove_stages(stages("out-of-memory", "samples", "nemo"), profile(), on_cpu())]
    assert [(result.name, result.complete) for result in results if result.complete] == [
        ("out-of-memory", True), ("samples", True), ("nemo", True),
    ]  # fmt: skip
    assert {claim.verdict for result in results for claim in result.claims} == {"not tested"}


def stage_of(*made, name="kernels"):
    """A stage whose claims are given; an error among them ends it."""

    def claims(_profile, _bench):
        for each in made:
            if isinstance(each, Exception):
                raise each
            yield each

    return ProofStage(name, "what it is about", claims)


OK = checked_claim("a", "1", "1", holds=True)
OFF = checked_claim("b", "1", "2", holds=False)


def test_a_stage_that_cannot_go_on_says_why():
    *_, last = prove_stages([stage_of(OK, Unavailable("no bash", "Install it."))], profile(), on_cpu())
    assert last.complete
    assert [(claim.verdict, claim.why) for claim in last.claims] == [("ok", ""), ("not tested", "no bash")]


def test_what_was_broken_off_is_no_claim():
    interrupts = Interrupts()
    run_context = on_cpu()._replace(interrupts=interrupts)
    made = []
    for result in prove_stages([stage_of(OK, OFF), stage_of(OK, name="ranks")], profile(), run_context):
        made.append(result)
        interrupts.record_signal(2, None)
    assert [(result.name, result.claims, result.complete) for result in made] == [("kernels", (OK,), False)]


def test_results_are_kept_for_this_machine_alone(tmp_path):
    machine = proved_machine(make_setup(profile(), facts()))
    proof = Proof(machine=machine)
    for stage in (stage_of(OK, name="memory"), stage_of(OFF)):
        for result in prove_stages([stage], profile(), on_cpu()):
            proof = proof.with_result(result)
    assert [stage.name for stage in proof.stages] == ["kernels", "memory"]
    assert not proof.holds
    file = tmp_path / "report.json"
    file.write_bytes(msgspec.json.encode(proof))
    assert load_proof(file, machine) == proof
    assert load_proof(file, structs.replace(machine, driver="another")).stages == ()
    for damaged in (b"", b"{", b"[]", b'{"machine": {}, "stages": 3}', b"[" * 9999):
        file.write_bytes(damaged)
        assert load_proof(file, machine).stages == ()


def test_results_of_two_calls_at_once_are_all_kept(tmp_path):
    machine = proved_machine(make_setup(profile(), facts()))
    results = [*prove_stages([stage_of(OK, name=name) for name in STAGE_BY_NAME], profile(), on_cpu())][1::2]
    with ThreadPoolExecutor(len(results)) as pool:
        [*pool.map(lambda result: update_report(tmp_path, machine, (result,)), results)]
    assert load_proof(tmp_path / "report.json", machine).stages == tuple(results)
    # Nor does a call lose its own to one that proves another choice.
    other = structs.replace(machine, driver="another")
    update_report(tmp_path, other, results[:1])
    assert update_report(tmp_path, machine, results).stages == tuple(results)


def test_what_a_card_says_stays_in_its_cell():
    hostile = checked_claim("a | b", "<b>x</b>", "line\nbreak \x1b[31m", holds=False, why="c|d")
    result = next(prove_stages([stage_of(hostile)], profile(), on_cpu()))
    text = proof_markdown(Proof(machine=proved_machine(make_setup(profile(), facts()))).with_result(result))
    (row,) = [line for line in text.splitlines() if line.startswith("| a")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert "<b>" not in text
    assert "\x1b" not in text


@pytest.mark.whole
def test_a_second_call_goes_on_where_the_first_ended(tmp_path):
    words = ("doctor", "--cards", "--stage", "out-of-memory", "--stage", "nemo", "--output", tmp_path)
    shown = run_cli(*words).stdout
    assert "not tested" in shown
    report = tmp_path / "report.json"
    kept = json.loads(report.read_text())
    assert [stage["name"] for stage in kept["stages"]] == ["out-of-memory", "nemo"]
    assert "| Claim | Expected | Seen | Verdict |" in (tmp_path / "REPORT.md").read_text()
    kept["stages"][0]["claims"][0]["verdict"] = "differs"
    report.write_text(json.dumps(kept))
    assert "proved before" in run_cli(*words, code=69).stdout
    assert json.loads(run_cli(*words, "--json", code=69).stdout) == kept
    run_cli(*words, "--again")
    run_cli(*words[:4], "--skip", "out-of-memory", *words[6:])
    assert json.loads(report.read_text())["stages"][0]["claims"][0]["verdict"] == "not tested"


@pytest.mark.parametrize("words", [(), ("--cards", "--stage", "nothing"), ("quickstart", "--again")])
def test_wrong_words_are_refused(words):
    run_cli("doctor", *words, code=64)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--slurm",), "Prove it on a node: srun"),
        (("--set", "hardware.scheduler=slurm"), "Prove it on a node: srun"),
        (("--machine", "box.json"), "--on HOST"),
        (("--set", "container.engine=docker"), "container.engine=none"),
    ],
)
def test_what_is_not_one_machine_that_can_be_asked_is_refused(words, remedy):
    assert remedy in run_cli("doctor", "--cards", *words, code=65).stderr


def test_a_host_says_what_is_proved_only_there():
    run_context = ShortRunContext(Place("box"), facts(), ShortRunObserver())
    results = [*prove_stages(stages("memory", "tune", "samples"), profile(), run_context)]
    for result in results:
        (claim,) = result.claims
        assert claim.verdict == "not tested"
        assert claim.why.endswith(f"on box, tui-train doctor --cards --stage {result.name}")


@pytest.mark.whole
@pytest.mark.training
def test_an_interrupt_leaves_the_results_so_far_and_no_process(tmp_path):
    words = ["doctor", "--cards", "--stage", "kernels", "--stage", "trainings", "--output", tmp_path]
    report = tmp_path / "report.json"
    with subprocess.Popen(warm.cli_command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_until(lambda: report.exists() and '"trainings"' in report.read_text(), 120)
        wait_until(list_runs, 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert not list_runs()
    assert [stage["complete"] for stage in json.loads(report.read_text())["stages"]] == [True, False]
