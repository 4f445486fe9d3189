"""How the data of a fine-tuning is made ready: the program and its arguments."""

from tui_train.base.command import Part, in_run_dir
from tui_train.profile.mixture import weights
from tui_train.profile.types import Profile

PROGRAMS = (
    "prepare_data", "data_chosen", "data_rows", "data_formats", "data_convert", "data_mixture", "data_tally",
    "data_template", "data_bounds",
)  # fmt: skip


def data_parts(profile: Profile, folder: str, *, marked: bool) -> tuple[Part, ...]:
    """Return the words that write the data into a folder of the run; `marked` answers alone are to be learned."""
    seed = profile.recipe.seed or 0
    validation = tuple(Part((f"--validation={path}",)) for path in profile.trainer.validation_data)
    share = profile.data.evaluation
    held_out = (Part((f"--share={share:g}", f"--seed={seed}")),) if share and not validation else ()
    return (
        Part((in_run_dir("prepare/prepare_data.py"),)),
        Part((in_run_dir(folder, "--into="),)),
        *validation,
        *held_out,
        *_template(profile),
        *((Part(("--marked-answers",), "other data than chats is refused"),) if marked else ()),
        *_mixed(profile),
        Part(profile.trainer.data),
    )


def _template(profile: Profile) -> tuple[Part, ...]:
    """Return whose chat template tries the rows: the model's, unless the training takes another one."""
    own = any(word.split("=")[0] == "--chat_template_path" for word in profile.trainer.arguments)
    if own or not profile.trainer.model:
        return ()
    only = ("--answers-only",) if profile.finetune.answers_only else ()
    revision = (f"--revision={profile.trainer.revision}",) if profile.trainer.revision else ()
    return (
        Part(
            (f"--model={profile.trainer.model}", *revision, *only), "rows that its chat template refuses are left out"
        ),
    )


def _mixed(profile: Profile) -> tuple[Part, ...]:
    """Return what each file has of an epoch, and the seed by which rows are chosen for it."""
    numbers = ",".join(f"{weight:g}" for weight in weights(profile))
    return (Part((f"--weights={numbers}", f"--seed={profile.recipe.seed or 0}")),) if numbers else ()
