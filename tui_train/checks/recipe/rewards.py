"""Checks of rewards, and of the answers that they score."""

from collections.abc import Iterator

from tui_train.base.text import display_path
from tui_train.checks.finding import Finding, error, warning
from tui_train.profile.changes import Change
from tui_train.profile.rewards import chosen_rewards, generates_answers, generations_in_force, reward_name_problem
from tui_train.setup.recipe import data_questions, options
from tui_train.setup.setup import Setup
from tui_train.trainers.finetune import LABEL_BY_METHOD

# A step waits for as many calls as it has answers, or for one of all of them.
_SLOW_SECONDS = 3.0
# By these the answers of a step are no longer those of the global batch.
_OPTIONS_OF_GENERATION_BATCH = frozenset({"generation_batch_size", "steps_per_generation"})
_NAMING_REMEDY = "Name a function as FILE.py:FUNCTION, a dotted path such as my_rewards.score, or one of TRL's."


def missing_or_misnamed_rewards(setup: Setup) -> Iterator[Finding]:
    """A method that learns from rewards without one, and rewards that TRL cannot import by their names."""
    chosen = setup.profile.finetune
    if not generates_answers(chosen):
        return
    # A reward model of the user's own is a reward as well.
    if not chosen.rewards and "reward_model_name_or_path" not in _option_names_in_arguments(setup):
        yield error(
            "finetune.rewards",
            f"{LABEL_BY_METHOD[chosen.method]} needs a reward function, and none is chosen",
            "Name a function of yours that scores answers: finetune.rewards=FILE.py:FUNCTION (docs/finetune.md).",
        )
    for text in chosen.rewards:
        if why := reward_name_problem(text):
            yield error("finetune.rewards", f"the reward {text} {why}", _NAMING_REMEDY)
    rewards = chosen_rewards(chosen)
    for reward in rewards:
        if reward.file and setup.facts.paths.get(reward.file) == "missing":
            yield error(
                "finetune.rewards", f"there is no {display_path(reward.file)}", "Correct its path (finetune.rewards)."
            )
    modules = {reward.dotted.rpartition(".")[0]: reward.file for reward in rewards if reward.file}
    for reward in rewards:
        other = modules.get(reward.dotted.rpartition(".")[0])
        if reward.file and other != reward.file:
            message = f"{display_path(reward.file)} and {display_path(other or '')} have the same module name in Python"
            yield error("finetune.rewards", message, "Give the files different names.")


def _option_names_in_arguments(setup: Setup) -> frozenset[str]:
    return frozenset(given.option for given in options.given_options(setup.profile.trainer.arguments))


def rewards_failing_on_rows(setup: Setup) -> Iterator[Finding]:
    """Rewards that failed, or took long, on three rows of the data with made-up answers."""
    report = data_questions.data_report_at_length_in_force(setup)
    for trial in report.rewards if report else ():
        name = trial.text.rpartition("/")[2]
        if setup.facts.paths.get(trial.text.rpartition(":")[0]) == "missing":
            continue
        if trial.problem:
            yield error(
                "finetune.rewards",
                f"{name} cannot be used as a reward: {trial.problem}",
                "Correct its file: it is tried again on rows of data. To start without a trial: trainer.allow=rewards.",
            )
        elif trial.untried:
            message = f"the reward {name} was not tried: {trial.untried}"
            yield warning(
                "finetune.rewards",
                message,
                "Try it where it trains. To start without a trial here: trainer.allow=rewards.",
            )
        elif trial.seconds >= _SLOW_SECONDS:
            message = f"{name} took {trial.seconds:.0f} s for three answers, and each training step waits for it"
            yield warning(
                "finetune.rewards", message, "Make it faster, or let it score all answers of a call in parallel."
            )


def generations_not_dividing_batch(setup: Setup) -> Iterator[Finding]:
    """A global batch that does not hold all answers to each prompt."""
    profile, batch = setup.profile, setup.effective_profile.recipe.global_batch
    count = generations_in_force(profile.finetune)
    if not generates_answers(profile.finetune) or not batch or batch % count == 0:
        return
    if _option_names_in_arguments(setup) & _OPTIONS_OF_GENERATION_BATCH:
        return
    smallest = (setup.effective_profile.recipe.micro_batch or 1) * setup.model_copies
    step = next(number for number in range(smallest, smallest * count + 1, smallest) if number % count == 0)
    wanted = max(step, round(batch / step) * step)
    yield error(
        "recipe.global_batch",
        f"a global batch of {batch} does not hold whole groups of {count} answers to a prompt",
        f"Choose a multiple of {step} (recipe.global_batch), or another number of answers (finetune.generations).",
        change=Change(
            f"global batch {wanted}", f"{wanted // count} prompts a step", (("recipe.global_batch", wanted),)
        ),
    )
