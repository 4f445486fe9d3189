"""`tui-train estimate`: estimates a training's memory, and whether it fits."""

import click
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from tui_train.actions.machine_facts import place_for_profile
from tui_train.base.errors import Unavailable
from tui_train.base.text import percent, size_text, typeset_ascii, visible
from tui_train.checks import find_problems
from tui_train.cli import printing
from tui_train.cli.plans.plans import (
    apply_edits,
    facts_with_fetched_config,
    load_profile,
    require_this_machine,
    unknown_sizes_remedy,
)
from tui_train.facts.models.dimensions import ModelDimensions
from tui_train.memory import trace as traces
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.predict import Prediction, RungEffect, predict_memory, rung_effects
from tui_train.memory.trace import CountedMemory
from tui_train.memory.types import MemorySettings
from tui_train.memory.verdict import FitBand
from tui_train.places.place import Place
from tui_train.profile.fields import FieldValue
from tui_train.setup.setup import Setup
from tui_train.views import plain_text
from tui_train.views.overview import short_count_text

_TOTAL = "total"


class PhasePeak(Struct, frozen=True):
    """The phase that takes most, its bytes of tensors, and their relative error."""

    phase: str
    bytes: int
    error: float


class PlaceAnswer(Struct, frozen=True):
    """Whether it fits a GPU or the machine, in bytes."""

    place: str
    free: int
    left: int
    allocated: int
    reserved: int
    verdict: FitBand


class EffectAnswer(Struct, frozen=True):
    """A change, by how many bytes it changes the peak, and the verdict with it."""

    title: str
    edits: dict[str, FieldValue]
    bytes: int
    verdict: FitBand | None


class EstimateAnswer(Struct, frozen=True, kw_only=True):
    """The estimate: bytes of each part and in total by phase; `trace` or `measure` are there with that option."""

    model: ModelDimensions
    parameters: int
    trained_parameters: int
    how: MemorySettings
    phases: dict[str, dict[str, int]]
    peak: PhasePeak
    not_modelled: tuple[str, ...]
    verdicts: tuple[PlaceAnswer, ...]
    changes: tuple[EffectAnswer, ...]
    trace: CountedMemory | UnsetType = UNSET
    measure: CountedMemory | UnsetType = UNSET


def print_estimate(  # noqa: PLR0913 - one for each option
    reference: str,
    *,
    edits: tuple[str, ...],
    named_place: Place,
    method: str,
    fetch: bool,
    as_json: bool,
) -> None:
    """Print the memory of each phase and whether it fits; `method` is "", "trace" or "measure".

    `fetch`: get the config.json of a model whose sizes are not known.
    """
    profile = apply_edits(load_profile(reference), edits)
    if method:
        require_this_machine(f"--{method}", profile, named_place)
    facts = place_for_profile(profile, named_place).probe_facts_for(profile, printing.report_waiting)
    if fetch:
        facts = facts_with_fetched_config(profile, facts, named_place)
    setup = make_setup(profile, facts)
    if setup.preset_error:
        raise setup.preset_error
    prediction = predict_memory(setup)
    if prediction.estimate is None:
        unknown = prediction.workload.unknown_model
        remedy = (
            unknown_sizes_remedy(unknown, facts)
            if unknown
            else "Change that, or start the training and watch its memory."
        )
        raise Unavailable(f"the memory cannot be estimated: {prediction.why_no_estimate}", remedy)
    for finding in find_problems(setup):
        if finding.forbids_plan:
            click.echo(plain_text.finding_text(finding), err=True)
    answer = _estimate_answer(prediction, rung_effects(setup))
    if not as_json:
        click.echo("\n".join(_estimate_lines(answer)))
    counted = _trace_or_measure_memory(prediction, setup, method) if method else None
    if as_json:
        printing.print_json(replace(answer, **{method: counted}) if counted else answer)
    elif counted:
        click.echo("\n".join(_counted_memory_lines(method, counted)))


def _trace_or_measure_memory(prediction: Prediction, setup: Setup, method: str) -> CountedMemory:
    """Return what a child process traces or measures; Unavailable gives the reason where it cannot."""
    model, settings, tool = prediction.workload.model, prediction.workload.settings, setup.toolchain
    if model is None or settings is None or tool is None:
        raise Unavailable("no Python was found that could train", "Choose a Python (trainer.python).")
    why = traces.why_not_traceable(model, settings)
    if method == "measure" and (settings.quantization or settings.sharding not in {"", "ddp"}):
        why = "two steps on one GPU do not show the memory of sharded or quantized weights"
    if method == "measure" and prediction.band == "will not fit":
        why = "by the estimate it does not fit, and running out of memory may end other programs"
    if why:
        raise Unavailable(
            f"--{method} is not possible: {why}", "Leave out the option for an estimate, or start the training."
        )
    question = traces.memory_child_request(model, settings, prediction.workload.model_folder)
    if method == "trace":
        counted = traces.run_memory_trace(tool.python, question)
    else:
        counted = traces.run_memory_measurement(tool.python, question, setup.gpus[0].uuid if setup.gpus else "")
    if counted.problem:
        raise Unavailable(f"--{method} failed: {visible(counted.problem)}", "Use the estimate.")
    return counted


def _estimate_lines(answer: EstimateAnswer) -> list[str]:
    """Return the table of phases, the peak, the verdicts and the changes."""
    names = dict.fromkeys(name for parts in answer.phases.values() for name in parts if name != _TOTAL)
    rows = [("GiB", *map(_short_phase_name, answer.phases))]
    for name in (*names, _TOTAL):
        parts = (parts.get(name) for parts in answer.phases.values())
        rows.append((name, *(f"{part / 2**30:.2f}" if part else "-" for part in parts)))
    learning = "new ones learn" if answer.how.trained == "lora" else "of them learn"
    trained = f"{short_count_text(answer.trained_parameters)} {learning}"
    parameters = f"{short_count_text(answer.parameters)} parameters, {trained}"
    peak = answer.peak
    lines = [
        f"{visible(answer.model.name)}: {parameters}",
        _settings_text(answer.how),
        "",
        printing.aligned_table_text(rows),
        "",
        f"Estimated: most in {peak.phase}, {size_text(peak.bytes)} of tensors (±{percent(peak.error)}).",
    ]
    for each in answer.verdicts:
        needs = f"needs {size_text(each.reserved)} of {size_text(each.left)} free"
        lines.append(f"{visible(each.place)}: {each.verdict}, {needs} ({size_text(each.allocated)} of tensors)")
    lines += [f"Not modelled: {visible(words)}." for words in answer.not_modelled]
    if answer.changes:
        rows = [("With this change", "memory" if answer.verdicts else "tensors", "")]
        rows += [
            (typeset_ascii(each.title), _signed_size_text(each.bytes), each.verdict or "") for each in answer.changes
        ]
        lines += ["", printing.aligned_table_text(rows)]
    return lines


def _settings_text(settings: MemorySettings) -> str:
    """Return the settings that the estimate is for, in one line."""
    packed = f", others quantized ({settings.quantization})" if settings.quantization else ""
    computed = f", computed in {settings.autocast}" if settings.autocast else ""
    batch = f"micro batch {settings.micro_batch} × {settings.sequence_length} tokens"
    return f"{batch}, weights in {settings.weight_dtype}{packed}{computed}, optimizer {settings.optimizer}"


def _short_phase_name(name: str) -> str:
    return {"forward and loss": "forward", "optimizer step": "step"}.get(name, name)


def _signed_size_text(byte_count: int) -> str:
    return f"{'+' if byte_count > 0 else '-'}{size_text(abs(byte_count))}"


def _counted_memory_lines(method: str, counted: CountedMemory) -> list[str]:
    phase_name, peak_bytes = counted.peak_phase_and_bytes
    peak = size_text(peak_bytes)
    if method == "trace":
        error = percent(traces.TRACE_RELATIVE_ERROR)
        return ["", f"Traced with fake tensors: most in {phase_name}, {peak} (±{error})."]
    lines = ["", f"Measured in two steps on {visible(counted.device)}: most in {phase_name}, {peak} allocated."]
    if counted.reserved:
        lines.append(
            f"PyTorch reserved {size_text(counted.reserved)}; {size_text(counted.used)} of the GPU are in use."
        )
    return lines


def _estimate_answer(prediction: Prediction, changes: tuple[RungEffect, ...]) -> EstimateAnswer:
    estimate, workload = prediction.estimate, prediction.workload
    assert estimate and workload.model and workload.settings  # noqa: S101, PT018 - what has an estimate has both
    peak = estimate.peak_phase
    return EstimateAnswer(
        model=workload.model,
        parameters=estimate.parameters,
        trained_parameters=estimate.trained_count,
        how=workload.settings,
        phases={phase.name: {**dict(phase.parts), _TOTAL: phase.total_bytes} for phase in estimate.phases},
        peak=PhasePeak(peak.name, peak.total_bytes, estimate.relative_error),
        not_modelled=tuple(estimate.caveats),
        verdicts=tuple(
            PlaceAnswer(
                place.name,
                place.free_bytes,
                verdict.available_bytes,
                verdict.tensor_bytes,
                verdict.reserved_bytes,
                verdict.band,
            )
            for place, verdict in prediction.place_verdicts
        ),
        changes=tuple(
            EffectAnswer(each.change.title, dict(each.change.edits), each.peak_difference_bytes, each.band)
            for each in changes
        ),
    )
