"""Facts of a run for the card of its result: without local paths, contents of data, or what looks like a secret."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tui_train import __version__
from tui_train.actions.evaluate import newest_stored_evaluation
from tui_train.actions.publish import HashedDataFile, Publication
from tui_train.base.text import duration_text, grouped_digits, loss_text, size_text
from tui_train.facts import yaml_documents
from tui_train.profile import fields
from tui_train.profile.rewards import chosen_rewards
from tui_train.profile.types import FinetuneMethod, FinetuneSettings, Profile
from tui_train.runs.follow import read_progress
from tui_train.runs.remote_run import read_remote_location
from tui_train.runs.results.result import RunResult, StepLoss
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.trainers import trainer_has_own_field
from tui_train.trainers.auto_preset import SCRIPT_OWN_VALUE_SOURCE_TEXT
from tui_train.trainers.finetune import LABEL_BY_METHOD
from tui_train.views.evaluation import mean_score_texts, verdict_text
from tui_train.views.model_card import ModelCardFacts, is_hub_id
from tui_train.views.run_settings import effective_settings

_CARD_LABEL_BY_METHOD: dict[FinetuneMethod, str] = {**LABEL_BY_METHOD, "sft": "supervised fine-tuning (SFT)"}
_PIPELINE_BY_TASK = {
    "CAUSAL_LM": "text-generation",
    "SEQ_CLS": "text-classification",
    "TOKEN_CLS": "token-classification",
}
# Shown also where nobody chose them: without these nobody can repeat the run.
_ALWAYS_SHOWN_KEYS = (
    "recipe.learning_rate", "recipe.global_batch", "recipe.sequence_length", "recipe.precision", "recipe.seed",
)  # fmt: skip
# Not chosen, these follow from the data and the model as the plan found them: a default of ours would be untrue.
_KEYS_SET_BY_DATA_OR_MODEL = frozenset({"recipe.sequence_length", "recipe.precision"})
_SHOWN_SECTIONS = ("recipe", "finetune", "data", "nemo")
_SHOWN_KINDS = frozenset({"choice", "integer", "integers", "number", "numbers", "switch", "names"})
_NOT_SHOWN_VALUES = frozenset({"", "not used", SCRIPT_OWN_VALUE_SOURCE_TEXT, "the trainer's own"})
_DATASET_ARGUMENTS = ("--dataset_name", "--dataset-name")


def read_model_card_facts(
    publication: Publication, profile: Profile, data: tuple[HashedDataFile, ...]
) -> ModelCardFacts:
    """Return what the card of a result says."""
    run, weights = publication.run, publication.weights
    finetune = profile.finetune if trainer_has_own_field(profile, "finetune") else None
    home = Path("~").expanduser()
    paths = (run.path, weights.path, publication.result.base, *profile.trainer.data, profile.trainer.script, home)
    return ModelCardFacts(
        repo=publication.repo,
        base=publication.base,
        revision=publication.revision,
        license=publication.hub.license,
        is_adapter=weights.kind == "adapter",
        pipeline=_PIPELINE_BY_TASK.get(weights.task, ""),
        datasets=tuple(_dataset_ids(profile)),
        tags=(finetune.method, finetune.tuning) if finetune else (),
        facts=tuple(_labelled_facts(publication, finetune, data)),
        settings=tuple(_labelled_settings(run, profile)),
        local_paths=tuple(str(path) for path in paths if str(path).startswith("/") and len(str(path)) > 1),
    )


def _dataset_ids(profile: Profile) -> Iterator[str]:
    """Yield the datasets of the Hub that a script's arguments name."""
    for word, following in pairwise((*profile.trainer.arguments, "")):
        name, equals, value = word.partition("=")
        named = value if equals else following
        if name in _DATASET_ARGUMENTS and is_hub_id(named) and not Path(named).exists():
            yield named


def _labelled_facts(
    publication: Publication, finetune: FinetuneSettings | None, data: tuple[HashedDataFile, ...]
) -> Iterator[tuple[str, str]]:
    run, result = publication.run, publication.result
    plan, attempts = run.plan(), read_status(run).attempts
    yield "Method", _method_text(finetune) if finetune else _weights_method_text(result)
    if rewards := chosen_rewards(finetune) if finetune else ():
        yield "Rewards", ", ".join(reward.text.rpartition("/")[2] for reward in rewards)
    yield "Weights", f"{result.weights_origin_text}, {size_text(publication.weights.size)}"
    yield from (("Data", _data_file_text(file)) for file in data)
    progress = read_progress(run, attempts)
    if progress.step:
        yield f"{progress.position_word.capitalize()}s", grouped_digits(progress.step)
    for label, last, best in (
        ("Training loss", result.loss, result.loss_best),
        ("Evaluation loss", result.eval_loss, result.eval_loss_best),
    ):
        if last:
            yield label, _losses_text(last, best)
    if evaluation := newest_stored_evaluation(run, publication.weights):
        what, own, other = mean_score_texts(evaluation)
        scores = f"{what[0].upper()}{what[1:]}: {own}; {evaluation.other_name}: {other}."
        yield "Evaluation", f"{verdict_text(evaluation)} {scores} {evaluation.note}"
    for attempt in attempts[-1:]:
        if changes := _attempt_of_plan(plan, attempt.position).get("changes"):
            yield "Changed after out of memory", ", ".join(map(str, changes))
    if result.seconds is not None:
        yield "Time", duration_text(result.seconds)
    if result.energy_text:
        yield "Energy of the GPUs", result.energy_text
    yield "Hardware", _hardware_text(plan)
    versions = {} if read_remote_location(run.path) or publication.options.python else publication.hub.versions
    software = (f"{name} {version}" for name, version in versions.items())
    yield "Software", ", ".join((*software, f"tui-train {__version__}"))


def _method_text(finetune: FinetuneSettings) -> str:
    method = _CARD_LABEL_BY_METHOD[finetune.method]
    if finetune.tuning == "full":
        return f"{method} of all weights"
    kind = "QLoRA (the base in 4 bits)" if finetune.tuning == "qlora" else "LoRA"
    return f"{method} with {kind}, rank {finetune.rank}, alpha {finetune.alpha}, dropout {finetune.dropout:g}"


def _weights_method_text(result: RunResult) -> str:
    """Return what a script trained, which may have been another method: `LoRA adapter, rank 16`."""
    rank = result.weights.rank if result.weights else 0
    return f"{replace(result, base='').weights_kind_and_base_text}{f', rank {rank}' if rank else ''}"


def _data_file_text(file: HashedDataFile) -> str:
    size = f", {size_text(file.size)}" if file.size else ""
    return f"{file.name}{size}, {f'sha256:{file.sha256}' if file.sha256 else file.why_not_hashed}"


def _losses_text(last: StepLoss, best: StepLoss | None) -> str:
    words = f"{loss_text(last.loss)} last ({last.position_text})"
    return f"{words}, {loss_text(best.loss)} best ({best.position_text})" if best and best != last else words


def _hardware_text(plan: Mapping[str, Any]) -> str:
    names, nodes = plan.get("gpu_names"), plan.get("nodes")
    counted = Counter(map(str, names)) if isinstance(names, list) else Counter[str]()
    cards = ", ".join(f"{count} × {name}" for name, count in counted.items()) or "CPU"
    return f"{nodes} machines, the first with {cards}" if isinstance(nodes, int) and nodes > 1 else cards


def _attempt_of_plan(plan: Mapping[str, Any], position: int) -> dict[str, Any]:
    attempts = plan.get("attempts")
    found = attempts[position - 1] if isinstance(attempts, list) and 0 < position <= len(attempts) else {}
    return found if isinstance(found, dict) else {}


def _labelled_settings(run: RunFolder, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield the settings that were chosen, and those that a repetition needs, as the last attempt had them."""
    plan, attempts = run.plan(), read_status(run).attempts
    edits = _attempt_of_plan(plan, attempts[-1].position).get("edits") if attempts else {}
    in_force = effective_settings(profile, plan, yaml_documents.read_document(profile.trainer.config))
    chosen = fields.chosen_keys(profile)
    for key, row in fields.FIELDS.items():
        is_shown = key.partition(".")[0] in _SHOWN_SECTIONS and row.kind in _SHOWN_KINDS
        if not is_shown or not (key in chosen or key in _ALWAYS_SHOWN_KEYS or key in (edits or {})):
            continue
        if key in _KEYS_SET_BY_DATA_OR_MODEL and in_force[key].is_default and key not in (edits or {}):
            continue
        value = str(edits[key]) if edits and key in edits else in_force[key].text
        if value not in _NOT_SHOWN_VALUES and "/" not in value:
            yield row.label, value
