"""What `tui-train estimate` does: what a training's memory is predicted to be, and whether it fits."""

from typing import Any

import click

from tui_train.base.errors import Unavailable
from tui_train.base.text import size, table, visible
from tui_train.checks import check
from tui_train.cli.plans import edited, load, print_json
from tui_train.memory import trace as traces
from tui_train.memory.predict import Effect, Prediction, effects, predict
from tui_train.memory.trace import Counted
from tui_train.resolve.resolve import Resolved, resolve
from tui_train.workflow import show
from tui_train.workflow.machines import Source, facts_for


def estimate(reference: str, edits: tuple[str, ...], how: str, source: Source, *, as_json: bool) -> None:
    """Print what each phase takes and whether it fits; `how` is "", "trace" or "measure"."""
    profile = edited(load(reference), edits)
    facts = facts_for(profile, source)
    resolved = resolve(profile, facts)
    found = predict(facts, resolved)
    if found.estimate is None:
        raise Unavailable(f"the memory cannot be estimated: {found.why_not}", "Change the profile, or measure a run.")
    for finding in check(profile, facts):
        if finding.forbids:
            click.echo(show.finding(finding), err=True)
    changes = effects(facts, resolved)
    if not as_json:
        click.echo("\n".join(_lines(found, changes)))
    counted = count(found, resolved, how) if how else None
    if as_json:
        print_json(_data(found, changes, how, counted))
    elif counted:
        click.echo("\n".join(_counted(how, counted)))


def count(found: Prediction, resolved: Resolved, how: str) -> Counted:
    """Return what a child counts or measures; Unavailable says why it cannot."""
    model, asked, tool = found.asked.model, found.asked.how, resolved.toolchain
    if model is None or asked is None or tool is None:
        raise Unavailable("no Python was found that could train", "Choose one (trainer.python).")
    why = traces.uncovered(model, asked)
    if how == "measure" and (asked.packed or asked.sharding not in {"", "ddp"}):
        why = "two steps on one card say nothing of shared-out or packed weights"
    if how == "measure" and found.band == "will not fit":
        why = "by the estimate two steps do not fit, and running out of memory may end other programs"
    if why:
        raise Unavailable(f"it cannot be done: {why}", "Take the estimate, or start the training.")
    question = traces.question(model, asked, found.asked.folder)
    if how == "trace":
        told = traces.trace(tool.python, question)
    else:
        told = traces.measure(tool.python, question, resolved.gpus[0].uuid if resolved.gpus else "")
    if told.problem:
        raise Unavailable(f"the {how} did not come through: {visible(told.problem)}", "Take the estimate.")
    return told


def _lines(found: Prediction, changes: tuple[Effect, ...]) -> list[str]:
    """Return the table of phases, the peak, the verdicts and the changes."""
    estimate, model = found.estimate, found.asked.model
    if estimate is None or model is None:
        return []
    names = tuple(dict.fromkeys(name for phase in estimate.phases for name, _ in phase.parts))
    rows = [("GiB", *(_short(phase.name) for phase in estimate.phases))]
    for name in names:
        parts = (dict(phase.parts).get(name) for phase in estimate.phases)
        rows.append((name, *(f"{part / 2**30:.2f}" if part else "-" for part in parts)))
    rows.append(("in all", *(f"{phase.total / 2**30:.2f}" for phase in estimate.phases)))
    peak, error = estimate.peak, estimate.error
    lines = [
        f"{visible(model.name)}: {estimate.parameters / 1e6:,.1f} M parameters, {estimate.trained / 1e6:,.1f} M learn",
        *_training(found),
    ]
    lines += ["", table(rows), "", f"Estimated: at most {size(peak.total)} of tensors (±{error:.0%}), in: {peak.name}."]
    for place, verdict in found.places:
        lines.append(f"{visible(place.name)}: {verdict.band} ({size(verdict.left)} left for tensors)")
    lines += [f"Not modelled: {visible(words)}." for words in estimate.caveats]
    if changes:
        rows = [(visible(each.change.title), _signed(each.difference), each.band or "") for each in changes]
        lines += ["", table([("Change", "peak", ""), *rows])]
    return lines


def _training(found: Prediction) -> list[str]:
    """Return what the sums are of, in one line."""
    how = found.asked.how
    if how is None:
        return []
    packed = f", others packed ({how.packed})" if how.packed else ""
    computed = f", computed in {how.autocast}" if how.autocast else ""
    batch = f"micro batch {how.micro_batch} x {how.sequence_length} tokens"
    return [f"{batch}, weights in {how.weights}{packed}{computed}, optimizer {how.optimizer}"]


def _short(name: str) -> str:
    return {"forward and loss": "forward", "optimizer step": "step"}.get(name, name)


def _signed(count: int) -> str:
    return f"{'+' if count > 0 else '-'}{size(abs(count))}"


def _counted(how: str, told: Counted) -> list[str]:
    name, most = told.peak
    if how == "trace":
        return ["", f"Traced with fake tensors: at most {size(most)} (±{traces.ERROR:.0%}), in: {name}."]
    lines = ["", f"Measured in two steps on {visible(told.device)}: at most {size(most)} allocated, in: {name}."]
    if told.reserved:
        lines.append(f"The allocator reserved {size(told.reserved)}; the card has {size(told.used)} in use.")
    return lines


def _data(found: Prediction, changes: tuple[Effect, ...], how: str, told: Counted | None) -> dict[str, Any]:
    estimate = found.estimate
    if estimate is None:
        return {}
    data: dict[str, Any] = {
        "model": found.asked.model,
        "how": found.asked.how,
        "phases": {phase.name: {**dict(phase.parts), "total": phase.total} for phase in estimate.phases},
        "peak": {"phase": estimate.peak.name, "bytes": estimate.peak.total, "error": estimate.error},
        "not_modelled": estimate.caveats,
        "verdicts": [
            {"place": place.name, "free": place.free, "left": verdict.left, "verdict": verdict.band}
            for place, verdict in found.places
        ],
        "changes": [
            {
                "title": each.change.title,
                "edits": dict(each.change.edits),
                "bytes": each.difference,
                "verdict": each.band,
            }
            for each in changes
        ],
    }
    return data | ({how: told} if told else {})
