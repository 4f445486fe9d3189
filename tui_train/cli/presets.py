"""What `tui-train presets` does: the list of presets with what they take, or the text of one."""

from typing import Any

import click
import msgspec

from tui_train.base.errors import BadInput, NotFound
from tui_train.base.files import read_regular, reason
from tui_train.base.places import presets_folder
from tui_train.base.text import home, visible
from tui_train.cli.columns import listed
from tui_train.presets import PLACEHOLDERS, OwnPreset, Preset, presets, takes, texts
from tui_train.presets.own import MOST, own_presets


def show_all(*, as_json: bool) -> None:
    """Print all presets, the user's own after the shipped; those that cannot be used go to stderr with the reason."""
    mine = own_presets()
    usable = {name: found.preset for name, found in mine.items() if found.preset}
    if as_json:
        data = [_data(name, found, "") for name, found in presets().items()]
        data += [_own_data(name, found) for name, found in mine.items()]
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
        return
    rows = []
    for name, found in {**presets(), **usable}.items():
        starts = (
            "this program's own"
            if name == "builtin"
            else f"python -m {found.module}"
            if found.module
            else "your script"
        )
        recipe = ", ".join(_keys(found)) or "what you type"
        resumes = "resumes" if found.checkpoints else "does not resume"
        rows.append((visible(name), f"Starts {visible(starts)}, {resumes}. Takes: {recipe}."))
    click.echo(listed(rows))
    click.echo(
        f"\nYour own: {home(str(presets_folder()))}/NAME.toml; `tui-train presets NAME` prints one to begin with."
    )
    for one in mine.values():
        if one.problem:
            click.echo(f"not used: {visible(one.problem)}", err=True)


def text(name: str) -> None:
    """Print the TOML of a preset, byte for byte where it is shipped; NotFound lists the known ones."""
    if name in texts():
        click.echo(texts()[name], nl=False)
        return
    found = own_presets().get(name)
    if found is None:
        known = ", ".join([*presets(), *own_presets()])
        raise NotFound(f"there is no preset {visible(name)}", f"Known are: {visible(known)}.")
    try:
        lines = read_regular(found.path, MOST).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise BadInput(f"cannot read {home(found.path)}: {reason(error)}", "Give a TOML file there.") from None
    for line in lines:
        click.echo(visible(line.expandtabs()))


def _keys(found: Preset) -> list[str]:
    """Return the names of the recipe's values that a preset passes, in the order of the recipe."""
    keys = dict.fromkeys(PLACEHOLDERS[name] for name in PLACEHOLDERS if name in takes(found))
    return [key.removeprefix("recipe.") for key in keys if key.startswith("recipe.")]


def _data(name: str, found: Preset, path: str) -> dict[str, Any]:
    return {
        "name": name,
        "path": path,
        "problem": "",
        "takes": sorted(PLACEHOLDERS[one] for one in takes(found)),
        "preset": msgspec.to_builtins(found),
    }


def _own_data(name: str, found: OwnPreset) -> dict[str, Any]:
    if found.preset:
        return _data(name, found.preset, found.path)
    return {"name": name, "path": found.path, "problem": found.problem, "takes": [], "preset": None}
