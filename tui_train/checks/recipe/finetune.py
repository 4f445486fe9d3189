"""Checks of a fine-tuning."""

from collections.abc import Iterator

from msgspec import structs

from tui_train.base.text import display_path, visible
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.checks.recipe.data import data_findings
from tui_train.facts.data.data_use import known_format_of_files, learns_whole_chats
from tui_train.memory.data_defaults import longest_fitting_length
from tui_train.profile import data_weights as weights_of_files
from tui_train.profile.changes import Change
from tui_train.profile.rewards import generates_answers
from tui_train.setup.recipe import data_questions, options
from tui_train.setup.setup import Setup
from tui_train.trainers.finetune import (
    LABEL_BY_METHOD,
    default_learning_rate,
    has_evaluation_data,
    keeps_best_checkpoint,
)
from tui_train.trainers.finetune_options import ALL_LINEAR_LORA_TARGET, learns_marked_answers

# What the plan sets, each with the key for it.
PROFILE_KEY_BY_PLAN_OPTION = {
    "config": "",
    "dataset_name": "trainer.data",
    "datasets": "trainer.data",
    "model_name_or_path": "trainer.model",
    "model_revision": "trainer.revision",
    "use_peft": "finetune.tuning",
    "load_in_4bit": "finetune.tuning",
    "eval_strategy": "data.evaluation",
    "reward_funcs": "finetune.rewards",
    "num_generations": "finetune.generations",
    "max_completion_length": "finetune.completion_length",
    "resume_from_checkpoint": "",
}

# Matrices that are embeddings, or the head: adapters of them are not what LoRA usually trains.
_UNUSUAL_LORA_TARGETS = frozenset({"embed_tokens", "lm_head", "wte", "wpe", "word_embeddings", "embed_in", "embed_out"})
_MAX_LAYER_NAMES_SHOWN = 12


def missing_model_or_data(setup: Setup) -> Iterator[Finding]:
    """No model to start from, or no data to learn from."""
    profile = setup.profile
    if not profile.trainer.model:
        message = "no model is chosen"
        remedy = (
            "Name a model folder (config.json, weights, tokenizer) or a model of the Hub, such as "
            "Qwen/Qwen3-0.6B (trainer.model)."
        )
        yield error("trainer.model", message, remedy)
    elif setup.facts.paths.get(profile.trainer.model, "folder") == "folder" and _lacks_model_weights(setup):
        message = f"no weights in {display_path(profile.trainer.model)}: neither model.safetensors nor its parts"
        remedy = (
            "Name a complete model folder or a model of the Hub (trainer.model). If it is an adapter, merge it first "
            "(tui-train merge)."
        )
        yield error("trainer.model", message, remedy)
    if not profile.trainer.data:
        message = "no training data is chosen"
        remedy = "Name your data files (trainer.data): JSONL, JSON, CSV, Parquet or text."
        yield error("trainer.data", message, remedy)


def invalid_data_weights(setup: Setup) -> Iterator[Finding]:
    """Weights of the data files that are not one for each, or leave no row of one to be learned from."""
    profile = setup.profile
    if why := weights_of_files.data_weights_problem(profile.data.weights, len(profile.trainer.data)):
        yield error(
            "data.weights",
            f"how much each file counts cannot be used: {why}",
            weights_of_files.DATA_WEIGHTS_REMEDY,
            change=Change("no weights", "every row counts once", (("data.weights", ()),)),
        )
    report = data_questions.data_report_at_length_in_force(setup)
    for share in report.shares if report else ():
        if share.weight and not share.rows:
            yield error(
                "data.weights",
                f"{share.file} is to count (data.weights), but has no usable row",
                "Leave the file out, or give it the weight 0.",
            )


def answers_only_for_unread_data(setup: Setup) -> Iterator[Finding]:
    """Answers alone of data that is read only where it trains: whether these are chats is known then."""
    profile, facts = setup.profile, setup.facts
    away = bool(facts.other_machine) or profile.container.engine != "none"
    known_format = known_format_of_files(profile.trainer.data, facts.data)
    if away and not known_format and learns_marked_answers(profile.finetune, known_format):
        yield note(
            "finetune.answers_only",
            "only of chats can the answers alone be learned, and the data has not been read here",
            "If the data is not chats, the run fails at its start. For prompt + completion leave "
            "finetune.answers_only unset.",
        )


def chats_learned_whole(setup: Setup) -> Iterator[Finding]:
    """Chats of which everything is learned, as the template does not mark answers."""
    report, question = data_questions.data_report_at_length_in_force(setup), data_questions.question_about_data(setup)
    if (
        report
        and question
        and report.tokens
        and setup.profile.finetune.answers_only is None
        and learns_whole_chats(report, question)
    ):
        yield note(
            "finetune.answers_only",
            f"the users' messages are learned as well as the answers: {report.answers.caution or report.answers.why}",
            "That seldom makes the answers worse. If you mind, name a model or Jinja file whose template marks them: "
            "--chat_template_path=PATH in trainer.arguments.",
        )


def _lacks_model_weights(setup: Setup) -> bool:
    inside = (path for path in setup.trainer.own_paths() if path.startswith(f"{setup.profile.trainer.model}/"))
    states = [setup.facts.paths.get(path) for path in inside]
    return bool(states) and all(state == "missing" for state in states)


def problems_of_read_data(setup: Setup) -> Iterator[Finding]:
    """Faults in the data; missing paths are checked for every trainer."""
    profile = setup.profile
    question = data_questions.question_with_length_in_force(setup)
    report = data_questions.data_report_at_length_in_force(setup)
    if question and report:
        if setup.facts.paths.get(profile.trainer.model) == "missing":
            # That is an error of its own; that it has no tokenizer either helps nobody.
            report = structs.replace(report, tokenizer="", tokenizer_is_missing=False)
        states = {path: setup.facts.paths.get(path, "file") for path in profile.trainer.data}
        known_bad = frozenset(visible(path) for path, state in states.items() if state not in {"file", "folder"})
        yield from data_findings(
            report, question, known_bad, max_cut_share=profile.data.cut, max_length=longest_fitting_length(setup)
        )


def unknown_lora_targets(setup: Setup) -> Iterator[Finding]:
    """LoRA's targets that no layer of the model has as its name: PEFT refuses them if no other name fits."""
    profile = setup.profile
    names, model = profile.finetune.targets, setup.facts.models.get(profile.trainer.model)
    if profile.finetune.tuning == "full" or not model or not model.layer_paths or names == (ALL_LINEAR_LORA_TARGET,):
        return
    missing = [name for name in names if not model.has_layer(name)]
    if not missing:
        return
    known_bad = dict.fromkeys(path.rpartition(".")[2] for path in model.layer_paths)
    layers = ", ".join([name for name in known_bad if name not in _UNUSUAL_LORA_TARGETS][:_MAX_LAYER_NAMES_SHOWN])
    # Experts may be stored by other names than the classes of transformers have.
    fails = len(missing) == len(names) and not (model.dimensions and model.dimensions.experts)
    rest = tuple(name for name in names if name not in missing)
    title = f"only {', '.join(rest)}" if rest else "all linear layers"
    yield (error if fails else warning)(
        "finetune.targets",
        f"the model has no layer called {' or '.join(missing)}"
        + (f": only {', '.join(rest)} would get an adapter" if rest else ": LoRA would have nothing to train"),
        f"Its layers are {layers}. Leave finetune.targets empty for all of them.",
        change=Change(title, "the model has them", (("finetune.targets", rest),)),
    )


def qlora_on_cpu(setup: Setup) -> Iterator[Finding]:
    """Weights in 4 bits, without the GPU that they need."""
    if setup.profile.finetune.tuning == "qlora" and setup.device != "cuda":
        yield error(
            "finetune.tuning",
            "QLoRA needs a GPU: weights in 4 bits work only there",
            "Choose LoRA (finetune.tuning=lora).",
            change=Change("LoRA", "it trains on the CPU too", (("finetune.tuning", "lora"),)),
        )


def lora_fallback_with_own_learning_rate(setup: Setup) -> Iterator[Finding]:
    """A fallback to an adapter, which takes another rate than all weights."""
    profile = setup.profile
    chosen, ladder = profile.finetune, profile.ladder
    may_fall_back = chosen.tuning == "full" and "lora" in ladder.rungs and "lora" in ladder.consent
    if may_fall_back and profile.recipe.learning_rate is None:
        adapter_rate = default_learning_rate(structs.replace(chosen, tuning="lora"))
        yield note(
            "recipe.learning_rate",
            f"if memory runs out, the fallback LoRA trains with its own learning rate, {adapter_rate:g}",
            "To use one rate for both, set it (recipe.learning_rate).",
        )


def both_steps_and_epochs(setup: Setup) -> Iterator[Finding]:
    """Epochs beside a number of steps, which takes their place."""
    recipe = setup.profile.recipe
    if recipe.steps is not None and recipe.epochs is not None:
        yield warning(
            "recipe.epochs",
            f"steps and epochs are both set: the training ends after {recipe.steps} steps",
            "Leave one of them empty (recipe.steps, recipe.epochs).",
            change=Change("no steps", "the epochs end it", (("recipe.steps", None),)),
        )


def evaluations_without_data_or_checkpoint(setup: Setup) -> Iterator[Finding]:
    """Evaluations without data for them, and those that fall on no checkpoint."""
    profile = setup.profile
    every, saved = profile.recipe.evaluate_every, profile.recipe.checkpoint_every
    if (
        has_evaluation_data(setup.effective_profile)
        and not generates_answers(profile.finetune)
        and not keeps_best_checkpoint(setup.effective_profile)
        and every
        and saved
    ):
        aligned = -(-saved // every) * every
        yield warning(
            "recipe.checkpoint_every",
            f"the best checkpoint may be lost: the training saves every {saved} steps, but evaluates every {every}",
            "Save whenever it evaluates (recipe.checkpoint_every), so that the best checkpoint is kept.",
            change=Change(f"save every {aligned} steps", "each is evaluated", (("recipe.checkpoint_every", aligned),)),
        )
    if every is not None and not has_evaluation_data(setup.effective_profile):
        yield warning(
            "recipe.evaluate_every",
            "there is no validation data, so nothing is evaluated",
            "Name validation data (trainer.validation_data), or keep a share of the rows (data.evaluation).",
            change=Change("keep 5 % of the rows", "they are not trained on", (("data.evaluation", 0.05),)),
        )


def too_small_micro_batch(setup: Setup) -> Iterator[Finding]:
    """A micro batch that is too small for the method."""
    min_micro, micro = setup.ladder_context.min_micro_batch, setup.effective_profile.recipe.micro_batch
    if micro is not None and micro < min_micro:
        method = LABEL_BY_METHOD[setup.profile.finetune.method]
        yield error(
            "recipe.micro_batch",
            f"{method} needs a micro batch of {min_micro} or more: it compares the answers of a batch with each other",
            "Raise the micro batch, and the global batch to at least micro batch x processes.",
        )


def arguments_overriding_plan(setup: Setup) -> Iterator[Finding]:
    """Arguments that would undo what the plan says, unseen."""
    profile = setup.profile
    for argument in options.given_options(profile.trainer.arguments):
        instead = PROFILE_KEY_BY_PLAN_OPTION.get(argument.option)
        if instead is not None:
            words = " ".join(argument.words)
            remaining = argument.arguments_without_it(profile.trainer.arguments)
            yield error(
                "trainer.arguments",
                f"{words} would override what the plan sets and checks",
                f"Leave it out{f' and set {instead}' if instead else ''}.",
                change=Change(f"without {words}", "the plan sets it", (("trainer.arguments", remaining),)),
            )
