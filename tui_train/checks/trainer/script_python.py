"""Checks of a script against the Python that runs it: whether that reads it, and has what it imports."""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tui_train.base.text import display_path, names_text
from tui_train.checks.finding import Finding, error, warning
from tui_train.checks.trainer.module_packages import (
    add_to_pythonpath_change,
    missing_module_remedy,
    pip_package,
    project_folder_of_module,
)
from tui_train.facts.types import ScriptImport, ScriptSource, Toolchain
from tui_train.profile.changes import Change
from tui_train.setup.machine.toolchain import why_python_unusable
from tui_train.setup.setup import Setup

_MAX_MODULES_SHOWN = 4
# They came with Python up to 3.11 or 3.12.
_REMOVED_STANDARD_MODULES = frozenset({
    "aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "imp", "lib2to3", "mailcap",
    "nis", "nntplib", "pipes", "smtpd", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib",
})  # fmt: skip
_STANDARD_MODULES = sys.stdlib_module_names | _REMOVED_STANDARD_MODULES


def script_newer_than_python(setup: Setup) -> Iterator[Finding]:
    """A script with syntax that is newer than the Python which runs it."""
    source, tool = setup.script_source, setup.toolchain
    if source is None or tool is None or not source.minor_version:
        return
    if 0 < _python_minor_version(tool) < source.minor_version:
        where = f"line {source.minor_version_line} of {_script_file_text(setup, '')}"
        newer = f"Python 3.{source.minor_version}"
        message = f"{where} needs {newer} or newer, and {_python_or_image_text(setup, tool)} is Python {tool.version}"
        change = _other_python_change(setup, (), source.minor_version)
        remedy = f"Choose a Python with {newer} (trainer.python), or rewrite that line."
        yield error(_python_or_image_key(setup), message, remedy, change=change, machine=True, start=True)


def missing_imports(setup: Setup) -> Iterator[Finding]:
    """What a script imports as it begins and the Python which runs it does not have."""
    source, tool = setup.script_source, setup.toolchain
    if source is None or tool is None or why_python_unusable(setup.profile, tool):
        return
    missing = _surely_missing_imports(setup, source, tool)
    in_project = [each for each in missing if project_folder_of_module(each.module, source)]
    if in_project:
        yield _module_in_parent_folder_finding(setup, source, in_project)
    others = [each for each in missing if each not in in_project]
    change = _other_python_change(setup, [each.module for each in others])
    # What lies beside a script on another machine was not read: an unknown module may be found there.
    for provider in ("package", "python") if setup.facts.other_machine else ("package", "python", ""):
        group = [each for each in others if _module_provider(each.module) == provider]
        if group:
            message = f"{_python_or_image_text(setup, tool)} has no {_imported_modules_text(setup, group)}"
            remedy = _install_modules_remedy(setup, tool, group, provider)
            if provider or not _may_libraries_add_modules(source, tool):
                yield error(_python_or_image_key(setup), message, remedy, change=change, machine=True, start=True)
            else:
                yield warning(_python_or_image_key(setup), message, remedy, change=change, machine=True)


def _may_libraries_add_modules(source: ScriptSource, tool: Toolchain) -> bool:
    """Return whether a library that is not known here is imported, which may bring modules that no folder has."""
    return any(each.module in tool.modules and not _module_provider(each.module) for each in source.imports)


def _module_provider(module: str) -> str:
    """Return what a module comes with: a package of a known name, Python itself; empty if unknown."""
    if pip_package(module):
        return "package"
    return "python" if module in _STANDARD_MODULES else ""


def _surely_missing_imports(setup: Setup, source: ScriptSource, tool: Toolchain) -> list[ScriptImport]:
    """Return what the script imports that is surely not there and that no other check reports."""
    folders_on_path = {*filter(None, setup.profile.trainer.environment.get("PYTHONPATH", "").split(":"))}
    if not tool.modules or folders_on_path - {*source.parent_packages.values()}:
        return []
    reported = set(setup.profile.tracking.chosen_trackers)
    on_path = {name for name, folder in source.parent_packages.items() if folder in folders_on_path}
    return [each for each in source.imports if each.module not in {*tool.modules, *reported, *on_path}]


def _module_in_parent_folder_finding(setup: Setup, source: ScriptSource, modules: Sequence[ScriptImport]) -> Finding:
    folder = project_folder_of_module(modules[0].module, source)
    together = [each for each in modules if project_folder_of_module(each.module, source) == folder]
    imported = _imported_modules_text(setup, together)
    message = f"the script imports {imported} from {display_path(folder)}, a folder in which Python does not look"
    remedy, change = missing_module_remedy(modules[0].module, folder=folder), None
    if _is_in_container(setup):
        # The image may have a PYTHONPATH of its own, which one of the profile would hide.
        remedy = f"Mount that folder (container.mounts). {remedy}"
    else:
        change = add_to_pythonpath_change(setup.profile, modules[0].module, folder)
    # A library that is imported before may have Python look there.
    return warning("trainer.script", message, remedy, change=change)


def _install_modules_remedy(setup: Setup, tool: Toolchain, modules: Sequence[ScriptImport], provider: str) -> str:
    if _is_in_container(setup):
        return "Choose an image that has it (container.image)."
    if provider == "python":
        return "That module comes with other versions of Python: choose one (trainer.python)."
    if provider != "package":
        return missing_module_remedy("")
    python = shlex.quote(tool.python)
    install = f"{python} -m pip install" if "pip" in tool.modules else f"uv pip install --python {python}"
    packages = " ".join(dict.fromkeys(pip_package(each.module) for each in modules))
    return f"Install it there: `{install} {packages}`, or choose another Python (trainer.python)."


def _imported_modules_text(setup: Setup, modules: Sequence[ScriptImport]) -> str:
    """Return modules and where they are imported, of many the first ones."""
    texts = [f"{each.module} ({_script_file_text(setup, each.file)}, line {each.line})" for each in modules]
    return names_text(texts, _MAX_MODULES_SHOWN)


def _script_file_text(setup: Setup, file: str) -> str:
    return file or Path(setup.profile.trainer.script).name


def _python_or_image_text(setup: Setup, tool: Toolchain) -> str:
    return f"the image {setup.profile.container.image}" if _is_in_container(setup) else display_path(tool.python)


def _is_in_container(setup: Setup) -> bool:
    return setup.profile.container.engine != "none"


def _other_python_change(setup: Setup, modules: Sequence[str], minor_version: int = 0) -> Change | None:
    """Return the change to another Python here that can train and has all this, None if there is none."""
    for tool in () if _is_in_container(setup) else setup.facts.toolchains:
        has_all = {*modules} <= {*tool.modules} and _python_minor_version(tool) >= minor_version
        as_able = setup.toolchain is None or bool(tool.cuda) >= bool(setup.toolchain.cuda)
        if has_all and as_able and not why_python_unusable(setup.profile, tool):
            name = display_path(tool.python)
            why = f"Python {tool.version}, torch {tool.torch or ''}"
            return Change(f"use {name}", why, (("trainer.python", tool.python),))
    return None


def _python_minor_version(tool: Toolchain) -> int:
    """Return the number after the dot in the version of a Python 3, 0 if unknown."""
    version = re.match(r"3\.(\d+)", tool.version)
    return int(version[1]) if version else 0


def _python_or_image_key(setup: Setup) -> str:
    return "container.image" if _is_in_container(setup) else "trainer.python"
