"""`tui-train presets`: lists presets with what they take, or prints the text of one."""

import click
from msgspec import Struct

from tui_train.base.app_paths import presets_folder
from tui_train.base.errors import BadInput, NotFound
from tui_train.base.files import read_error_reason, read_regular_file
from tui_train.base.text import display_path, visible
from tui_train.cli.printing import description_list_text, print_json
from tui_train.profile.presets import (
    KEY_BY_PLACEHOLDER,
    Preset,
    accepted_placeholders,
    shipped_preset_texts,
    shipped_presets,
)
from tui_train.profile.presets.user_presets import MAX_PRESET_BYTES, user_presets
from tui_train.profile.types import AUTO_PRESET


class PresetAnswer(Struct, frozen=True, kw_only=True):
    """A preset, the keys that it passes to a script, and its file, empty for a shipped one; or the problem with it."""

    name: str
    path: str
    problem: str = ""
    takes: tuple[str, ...] = ()
    preset: Preset | None = None


Presets = tuple[PresetAnswer, ...]


def print_presets(name: str | None, *, as_json: bool) -> None:
    """Print one preset as TOML, or a list of all."""
    if name and as_json:
        raise click.UsageError("Give NAME or --json, not both: a preset is printed as TOML.")
    if name:
        print_preset(name)
    else:
        print_all_presets(as_json=as_json)


def print_all_presets(*, as_json: bool) -> None:
    """Print all presets, the user's own last; those that cannot be used go to stderr with the reason."""
    found = [_preset_answer(name, preset) for name, preset in shipped_presets().items()]
    found += [_preset_answer(name, own.preset, own.path, own.problem) for name, own in user_presets().items()]
    if as_json:
        print_json(found)
        return
    rows = [(AUTO_PRESET, "Starts your script, and passes what its source takes: `tui-train plan` says what that is.")]
    # One of the user's takes the place of a shipped one.
    for name, preset in {each.name: each.preset for each in found if each.preset}.items():
        starts = (
            "the built-in trainer"
            if name == "builtin"
            else f"python -m {preset.module}"
            if preset.module
            else "your script"
        )
        recipe = ", ".join(_recipe_names_in_preset(preset)) or "your arguments"
        resumes = "can resume" if preset.checkpoints else "cannot resume"
        rows.append((visible(name), f"Starts {visible(starts)}; {resumes}. Passes: {recipe}."))
    click.echo(description_list_text(rows))
    click.echo(
        f"\nYour own: {display_path(str(presets_folder()))}/NAME.toml;"
        " `tui-train presets NAME` prints one as a template."
    )
    for each in found:
        if each.problem:
            click.echo(f"not used: {visible(each.problem)}", err=True)


def print_preset(name: str) -> None:
    """Print the TOML of a preset, byte for byte where it is shipped; NotFound lists the known ones."""
    if name == AUTO_PRESET:
        raise NotFound(
            ("auto is not a preset with a file: it follows from what your script declares"),
            "See what it passes to your script: tui-train plan PROFILE.",
        )
    if name in shipped_preset_texts():
        click.echo(shipped_preset_texts()[name], nl=False)
        return
    own_preset = user_presets().get(name)
    if own_preset is None:
        names = ", ".join([*shipped_presets(), *user_presets()])
        raise NotFound(f"no preset {visible(name)}", f"Known presets: {visible(names)}.")
    try:
        lines = read_regular_file(own_preset.path, MAX_PRESET_BYTES).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise BadInput(
            f"cannot read {display_path(own_preset.path)}: {read_error_reason(error)}",
            "Put a TOML file there (tui-train presets NAME prints one as a template).",
        ) from None
    for line in lines:
        click.echo(visible(line.expandtabs()))


def _recipe_names_in_preset(preset: Preset) -> list[str]:
    """Return the names of the recipe's values that a preset passes, in the order of the recipe."""
    keys = dict.fromkeys(
        KEY_BY_PLACEHOLDER[name] for name in KEY_BY_PLACEHOLDER if name in accepted_placeholders(preset)
    )
    return [key.removeprefix("recipe.") for key in keys if key.startswith("recipe.")]


def _preset_answer(name: str, preset: Preset | None, path: str = "", problem: str = "") -> PresetAnswer:
    accepted = accepted_placeholders(preset) if preset else ()
    takes = tuple(sorted(KEY_BY_PLACEHOLDER[placeholder] for placeholder in accepted))
    return PresetAnswer(name=name, path=path, problem=problem, takes=takes, preset=preset)
