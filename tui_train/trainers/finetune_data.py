"""Preparation of fine-tuning data: the program and its arguments."""

from collections.abc import Mapping

from tui_train.base.command import CommandPart, word_in_run_dir
from tui_train.base.parse import parse_json_as
from tui_train.facts.data.data_report import DataQuestion, DataReport
from tui_train.profile.data_weights import valid_data_weights
from tui_train.profile.rewards import generates_answers
from tui_train.profile.types import Profile

PREPARATION_MODULE_NAMES = (
    "prepare_data", "data_chosen", "data_rows", "data_formats", "data_convert", "data_mixture", "data_tally",
    "data_template", "data_turns", "data_lengths", "data_bounds", "data_images", "data_image_tokens",
)  # fmt: skip


def preparation_parts(profile: Profile, folder: str, *, marked_answers: bool) -> tuple[CommandPart, ...]:
    """Return the words that write the data into a folder of the run; with `marked_answers` only these are learned."""
    seed = profile.recipe.seed or 0
    validation = tuple(CommandPart((f"--validation={path}",)) for path in profile.trainer.validation_data)
    share = profile.data.evaluation or 0.0
    held_out = (CommandPart((f"--share={share:g}", f"--seed={seed}")),) if share and not validation else ()
    return (
        CommandPart((word_in_run_dir("prepare/prepare_data.py"),)),
        CommandPart((word_in_run_dir(folder, "--into="),)),
        *validation,
        *held_out,
        *_model_and_chat_template_parts(profile),
        *((CommandPart(("--marked-answers",), "other data than chats is refused"),) if marked_answers else ()),
        *_data_weight_parts(profile),
        *_max_pixels_parts(profile),
        CommandPart(profile.trainer.data),
    )


def _max_pixels_parts(profile: Profile) -> tuple[CommandPart, ...]:
    most = profile.data.max_pixels
    return (CommandPart((f"--max-pixels={most}",), "images of more pixels are made smaller"),) if most else ()


def _model_and_chat_template_parts(profile: Profile) -> tuple[CommandPart, ...]:
    """Return whose chat template tries the rows: the model's, unless the training takes another one."""
    if not profile.trainer.model:
        return ()
    own = (f"--chat-template={path}",) if (path := chosen_chat_template(profile)) else ()
    only = ("--answers-only",) if profile.finetune.answers_only else _option_to_find_marked_answers(profile)
    # A reward model writes nothing that could end.
    keeps = profile.finetune.method == "reward" or _user_argument_value(profile, "--eos_token")
    end = ("--keep-end",) if keeps else ()
    revision = (f"--revision={profile.trainer.revision}",) if profile.trainer.revision else ()
    words = (f"--model={profile.trainer.model}", *revision, *own, *only, *end)
    return (CommandPart(words, "rows that its chat template refuses are left out"), *_length_limit_parts(profile))


def _option_to_find_marked_answers(profile: Profile) -> tuple[str, ...]:
    """Return that the preparation finds out whether answers are marked, where nothing here says it."""
    undecided = profile.finetune.method == "sft" and profile.finetune.answers_only is None
    return ("--find-answers",) if undecided and not _user_argument_value(profile, "--assistant_only_loss") else ()


def _length_limit_parts(profile: Profile) -> tuple[CommandPart, ...]:
    """Return the length after which rows are cut, and of how many of them that may be; prompts are never cut."""
    length = profile.recipe.sequence_length
    if generates_answers(profile.finetune):
        return (CommandPart((f"--method={profile.finetune.method}",), "rows are prompts, with all of their columns"),)
    if not length:
        return ()
    words = (f"--length={length}", f"--method={profile.finetune.method}", f"--most-cut={profile.data.cut:g}")
    return (CommandPart(words, "so many rows may be longer (data.cut)"),)


def chosen_chat_template(profile: Profile) -> str:
    """Return the chat template that TRL's option names instead of the model's, empty for none."""
    return _user_argument_value(profile, "--chat_template_path")


def end_token_to_pass(profile: Profile, reports: Mapping[str, DataReport]) -> str:
    """Return the token to pass as the end of a chat, where its data was read and the model would not stop at it."""
    if profile.finetune.method != "sft" or _user_argument_value(profile, "--eos_token"):
        return ""
    wanted = profile.trainer.data, profile.trainer.model, profile.trainer.revision, chosen_chat_template(profile)
    for encoded, report in reports.items():
        question = parse_json_as(encoded.encode(), DataQuestion)
        if (question.files, question.model, question.revision, question.chat_template) == wanted:
            return report.ends.passed
    return ""


def _user_argument_value(profile: Profile, option_name: str) -> str:
    """Return the value that the user's arguments give an option, empty for none."""
    words = profile.trainer.arguments
    for word, following in zip(words, (*words, "")[1:], strict=True):
        option, equals, value = word.partition("=")
        if option == option_name:
            return value if equals else following
    return ""


def _data_weight_parts(profile: Profile) -> tuple[CommandPart, ...]:
    """Return what each file has of an epoch, and the seed by which rows are chosen for it."""
    numbers = ",".join(f"{weight:g}" for weight in valid_data_weights(profile))
    return (CommandPart((f"--weights={numbers}", f"--seed={profile.recipe.seed or 0}")),) if numbers else ()
