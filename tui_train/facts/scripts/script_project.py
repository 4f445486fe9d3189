"""Finds what a script imports from the folders of its project, above its own: Python does not look there by itself."""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tui_train.facts.scripts.script_syntax import ScriptModule

# Above a folder with one of these lie other projects.
_FILES_OF_PROJECT_ROOT = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
_MAX_FOLDERS_ABOVE = 4
_MAX_NAMES = 200


def packages_above(script: ScriptModule, folder: str) -> dict[str, str]:
    """Return the folder that holds each package which a script imports from above its own folder, by the name."""
    names = [name for name in imported_names(script) if not _holds_module(Path(folder), name)]
    found: dict[str, str] = {}
    for above in _project_folders_above(Path(folder)) if folder and names else ():
        for name in names:
            if name not in found and _holds_module(above, name):
                found[name] = str(above)
    return found


def imported_names(script: ScriptModule) -> tuple[str, ...]:
    """Return the top-level names that a script imports and that do not come with Python."""
    names: dict[str, None] = {}
    for node in script.nodes:
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module.partition(".")[0]] = None
    return tuple(name for name in names if name not in sys.stdlib_module_names)[:_MAX_NAMES]


def _project_folders_above(folder: Path) -> Iterator[Path]:
    """Yield the folders above one up to the root of its project, the nearest first, and the `src` in each.

    None where there is no root.
    """
    above: list[Path] = []
    for each in (folder, *folder.parents)[: _MAX_FOLDERS_ABOVE + 1]:
        if each != folder:
            above.append(each)
        if any(os.path.lexists(each / name) for name in _FILES_OF_PROJECT_ROOT):
            yield from above
            yield from (inner for outer in (folder, *above) if (inner := outer / "src").is_dir() and inner != folder)
            return


def _holds_module(folder: Path, name: str) -> bool:
    return (folder / name / "__init__.py").is_file() or (folder / f"{name}.py").is_file()
