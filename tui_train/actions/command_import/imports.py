"""A profile of a text, a file or the words of a command that starts a training elsewhere."""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath

from tui_train.actions.command_import import engines, launchers
from tui_train.actions.command_import.arguments import import_arguments
from tui_train.actions.command_import.finetuning import (
    FINETUNE_METHODS,
    finetune_method_of_module,
    import_finetuning,
)
from tui_train.actions.command_import.shell import (
    MAX_TEXT_CHARACTERS,
    ShellCommand,
    Word,
    lines_as_typed,
    read_shell_text,
)
from tui_train.actions.command_import.table import SECRETS_NOT_KEPT_REASON, Import, ImportTable
from tui_train.actions.command_import.variables import import_variables
from tui_train.base.errors import BadInput, NotFound
from tui_train.base.parse import MissingFile, Unparsable, read_file_to_parse
from tui_train.base.text import display_path, nearest_path_clause, visible
from tui_train.facts.yaml_documents import read_document
from tui_train.profile import fields
from tui_train.profile.presets import shipped_presets
from tui_train.profile.secret_values import profile_without_secrets
from tui_train.profile.types import LauncherName
from tui_train.runner.system.paths import path_state, similar_existing_path
from tui_train.setup.profile_summary import UNNAMED_PROFILE_NAME, chosen_or_derived_name
from tui_train.trainers import trainer_of

IMPORTABLE_TEXT = (
    "Paste a line with python, torchrun, accelerate launch, deepspeed, trl, llamafactory-cli, axolotl or docker run, "
    "or a file: a shell or sbatch script, or the YAML of accelerate, LLaMA-Factory or axolotl."
)
_YAML_SUFFIXES = (".yaml", ".yml")
_SHELL_SUFFIXES = (".sh", ".sbatch", ".slurm")
IMPORTABLE_SUFFIXES = (*_YAML_SUFFIXES, *_SHELL_SUFFIXES)
_PYTHON_PATTERN = re.compile(r"python(\d+(\.\d+)?)?")
_LAUNCHER_BY_MODULE = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate launch",
}
_OptionReader = Callable[[ImportTable, Sequence[Word]], Sequence[Word]]
# What starts processes: the launcher of the plan, how its options are read, and what to say of it.
_LAUNCHERS: dict[str, tuple[LauncherName, _OptionReader, str]] = {
    "torchrun": ("torchrun", launchers.import_torchrun_options, ""),
    "torch.distributed.launch": (
        "torchrun", launchers.import_torchrun_options, "it sets LOCAL_RANK; this one passed --local-rank as well"
    ),
    "deepspeed": (
        "torchrun", launchers.import_deepspeed_options, "it sets LOCAL_RANK; deepspeed passed --local_rank as well"
    ),
    "accelerate launch": ("accelerate", launchers.import_accelerate_options, ""),
}  # fmt: skip
# Commands of trainers, with their preset and the launcher that they use.
_PRESET_AND_LAUNCHER_BY_COMMAND = {
    ("trl", "sft"): ("trl", "accelerate"),
    ("llamafactory-cli", "train"): ("llama-factory", ""),
    ("lmf", "train"): ("llama-factory", ""),
    ("axolotl", "train"): ("axolotl", "accelerate"),
}
_OWN_LOG_REASON = "a run goes on by itself, with its own log"
_REASON_BY_PREFIX = {
    **dict.fromkeys(("nohup", "setsid", "exec", "time", "stdbuf", "unbuffer"), _OWN_LOG_REASON),
    "sudo": "the plan starts all as you: docker takes those in its group",
    "srun": "the plan starts a task on each machine by itself",
}
_ENVIRONMENT_PREFIXES = frozenset({"uv", "poetry", "pdm", "pipenv", "pixi", "hatch", "conda", "micromamba"})
_ENVIRONMENT_COMMANDS = frozenset({"source", ".", "conda", "module", "mamba", "micromamba", "activate"})
_NOT_RUN_REASON = "is not run: do it before, where it is needed"
_ENVIRONMENT_REASON = "is not run: choose the Python of that environment (trainer.python)"
_FALLBACK_PROFILE_NAME = "imported"
_MAX_SHOWN_CHARACTERS = 60


def import_words(words: Sequence[str], folder: Path) -> Import:
    """Return what words on a command line mean: a file, the text of a command, or its words; BadInput if nothing."""
    if len(words) == 1 and _names_file(words[0], folder):
        return import_file(folder / words[0], folder)
    if len(words) > 1 and any(letter.isspace() for letter in words[0]):
        raise BadInput(
            "there are more words after the command in quotes", "Put options before it, and quote all of it."
        )
    return import_text(words[0] if len(words) == 1 else shlex.join(words), folder)


def _names_file(word: str, folder: Path) -> bool:
    """Return whether a word is a path and no command: something is there, or it ends as such a file does."""
    # A long command is no path that a system takes: Path.exists raises for it, this one does not.
    is_there = os.path.exists(folder / word)  # noqa: PTH110
    return is_there or (word.lower().endswith(IMPORTABLE_SUFFIXES) and len(word.split()) == 1)


def import_file(path: Path, folder: Path) -> Import:
    """Return what a file means, started in a folder: YAML, or a script for a shell or sbatch; BadInput if nothing."""
    if path.suffix.lower() in _YAML_SUFFIXES:
        return _import_yaml(path, folder)
    try:
        text = read_file_to_parse(path, MAX_TEXT_CHARACTERS).decode("utf-8-sig")
    except (MissingFile, Unparsable, UnicodeDecodeError) as error:
        raise NotFound(f"{display_path(str(path))} cannot be read: {visible(str(error))}", IMPORTABLE_TEXT) from None
    return import_text(text, folder)


def import_text(text: str, folder: Path) -> Import:
    """Return what the lines of a shell mean that start a training in a folder; BadInput for none, or for several."""
    table = ImportTable(folder)
    engines.import_sbatch_options(table, lines_as_typed(text))
    _import_shell_text(table, text, {})
    return _finished_import(table)


def _import_shell_text(table: ImportTable, text: str, environment: Mapping[str, Word]) -> None:
    """Take the only command of a text that trains, and say of all others why they are not run."""
    shell = read_shell_text(text, table.folder)
    command = _training_command(shell.commands)
    for each in shell.commands:
        if each is not command:
            is_environment = PurePath(each.words[0].text).name in _ENVIRONMENT_COMMANDS
            table.leave_out(_command_text(each), _ENVIRONMENT_REASON if is_environment else _NOT_RUN_REASON)
    for line, why in shell.reason_by_line.items():
        table.leave_out(line, why)
    for name, is_used in shell.use_by_variable.items():
        if is_used:
            table.note_replaced(f"{name}=…", "put in where the lines name it")
        else:
            table.leave_out(f"{name}=…", "is neither exported nor used")
    table.folder = command.folder
    _import_command(table, command.words, {**environment, **command.environment})
    _import_redirections(table, command.redirections)


def _import_redirections(table: ImportTable, rest: Sequence[str]) -> None:
    """Say what becomes of the words behind a command: where its output goes, and what it reads."""
    reads = any(word.startswith(("<", "0<")) for word in rest)
    pipes = any(word.startswith("|") and after != "tee" for word, after in pairwise((*rest, "")))
    if reads or pipes:
        table.leave_out(" ".join(rest), "a run reads nothing, and nothing else reads its output")
    elif rest:
        table.note_replaced(" ".join(rest), _OWN_LOG_REASON)


def looks_like_command(text: str) -> bool:
    """Return whether a text names what starts a training, and is not just paths."""
    try:
        commands = read_shell_text(text, Path("/")).commands
    except BadInput:
        return False
    return any(len(each.words) > 1 and _training_certainty(each) for each in commands)


def _training_command(commands: Sequence[ShellCommand]) -> ShellCommand:
    """Return the only command that trains; one that surely does before scripts of Python, which may do anything."""
    ranks = [_training_certainty(command) for command in commands]
    best = [command for command, rank in zip(commands, ranks, strict=True) if rank and rank == max(ranks)]
    if not best:
        script = next((file for command in commands if (file := _shell_script(command))), "")
        if script:
            remedy = f"Import that file: tui-train import {shlex.quote(script)}"
            raise BadInput(f"it starts the shell script {visible(script)}", visible(remedy))
        raise BadInput("there is no command that trains", IMPORTABLE_TEXT)
    if len(best) > 1:
        first, second = (_command_text(command) for command in best[:2])
        raise BadInput(f"there are {len(best)} trainings: {first}, and {second}", "Give the lines of one of them.")
    return best[0]


def _shell_script(command: ShellCommand) -> str:
    """Return the shell script that a command starts, empty for none."""
    starts = [word.text for word in command.words[:2] if not word.problem]
    return next((text for text in starts if text.endswith(_SHELL_SUFFIXES)), "")


def _training_certainty(command: ShellCommand) -> int:
    """Return how surely a command trains: 2 for one with a launcher, 1 for a script of Python, 0 for another one."""
    _, words = _split_prefixes(command.words)
    names = [PurePath(word.text).name for word in words[:4]]
    if not names:
        return 0
    if (
        (*names[:2],) in _PRESET_AND_LAUNCHER_BY_COMMAND
        or (names[0] == "trl" and names[1:] and names[1] in FINETUNE_METHODS)
        or names[0] in _LAUNCHERS
        or names[:2] == ["accelerate", "launch"]
    ):
        return 2
    if names[0] in {"docker", "podman"}:
        return 2 * (names[1:2] == ["run"])
    if not _PYTHON_PATTERN.fullmatch(names[0]):
        return 0
    _, program = _split_python_options(words[1:])
    first, second, *_ = (*(word.text for word in program), "", "")
    if first == "-m":
        is_trainer = bool(_preset_of_module(second) or finetune_method_of_module(second))
        return 2 * (second in _LAUNCHER_BY_MODULE or is_trainer)
    return int(first.endswith(".py"))


def _split_python_options(words: Sequence[Word]) -> tuple[Sequence[Word], Sequence[Word]]:
    """Return the options of Python itself, but -m and -c, and the words from its program on."""
    end = 0
    while end < len(words) and words[end].text.startswith("-") and words[end].text not in {"-m", "-c"}:
        end += 2 if words[end].text in {"-W", "-X"} else 1
    return words[:end], words[end:]


def _split_prefixes(words: Sequence[Word]) -> tuple[list[tuple[str, ...]], Sequence[Word]]:
    """Return what stands before a command, each with its options, and the words of the command itself."""
    prefixes: list[tuple[str, ...]] = []
    while words and _is_prefix(words[0]):
        starts = (at for at, word in enumerate(words) if at and _starts_command(word))
        end = next(starts, len(words))
        prefixes.append(tuple(word.text for word in words[:end]))
        words = words[end:]
    return prefixes, words


def _is_prefix(word: Word) -> bool:
    return PurePath(word.text).name in _REASON_BY_PREFIX.keys() | _ENVIRONMENT_PREFIXES


def _starts_command(word: Word) -> bool:
    name = PurePath(word.text).name
    known = {
        *_LAUNCHERS,
        *_REASON_BY_PREFIX,
        *_ENVIRONMENT_PREFIXES,
        "accelerate",
        "docker",
        "podman",
        *(first for first, _ in _PRESET_AND_LAUNCHER_BY_COMMAND),
    }
    return name in known or bool(_PYTHON_PATTERN.fullmatch(name))


def _import_command(table: ImportTable, words: Sequence[Word], environment: dict[str, Word]) -> None:
    """Take a command with its variables."""
    prefixes, words = _split_prefixes(words)
    for prefix, *options in prefixes:
        if why := _REASON_BY_PREFIX.get(PurePath(prefix).name):
            table.note_replaced(prefix, why)
            if options:
                table.leave_out(" ".join(options), f"an option of {prefix}, which the plan does not pass")
        else:
            table.leave_out(" ".join((prefix, *options)), "choose the Python of that environment (trainer.python)")
    if not words:
        raise BadInput("there is no command that trains", IMPORTABLE_TEXT)
    name = PurePath(words[0].text).name
    if name in {"docker", "podman"}:
        _import_container(table, words, environment)
        return
    if name == "accelerate":
        words = (Word("accelerate launch"), *words[2:])
        name = "accelerate launch"
    if command := _PRESET_AND_LAUNCHER_BY_COMMAND.get((name, words[1].text if len(words) > 1 else "")):
        _import_trainer_command(table, words, environment, *command)
    elif name == "trl" and len(words) > 1 and words[1].text in FINETUNE_METHODS:
        shown = f"{words[0].text} {words[1].text}"
        table.take_value(shown, "trainer.launcher", "accelerate")
        import_variables(table, environment)
        import_finetuning(table, words[1].text, shown, words[2:])
    elif name in _LAUNCHERS:
        _import_launcher(table, name, words[0].text, words[1:], environment)
    else:
        _import_python(table, words, environment)


def _import_container(table: ImportTable, words: Sequence[Word], environment: dict[str, Word]) -> None:
    """Take what starts a container, and the command inside, also where a shell there reads it."""
    if table.profile.container.engine != "none":
        raise BadInput("that container starts another container", "Give the command inside with one engine before it.")
    for variable in environment:
        table.leave_out(f"{variable}=…", "is not passed to the container")
    inner, inner_environment = engines.import_container(table, words)
    if len(inner) != 3 or PurePath(inner[0].text).name not in {"bash", "sh"} or inner[1].text not in {"-c", "-lc"}:
        _import_command(table, inner, inner_environment)
        return
    lines = inner[2]
    if lines.problem:
        raise BadInput(f"what the container starts {lines.problem}", "Give the line with that put in.")
    _import_shell_text(table, lines.text, inner_environment)


def _import_python(table: ImportTable, words: Sequence[Word], environment: dict[str, Word]) -> None:
    """Take a command of Python: a launcher or a trainer as a module, or a script as one process."""
    python, rest = words[0], words[1:]
    if "/" in python.text and not python.problem and table.profile.container.engine == "none":
        table.take(python.text, "trainer.python", python)
    options, rest = _split_python_options(rest)
    for option in (word.text for word in options):
        if option == "-u":
            table.note_replaced(option, "the plan sets PYTHONUNBUFFERED")
        else:
            table.leave_out(option, "an option of Python that the plan does not pass")
    module = rest[1].text if len(rest) > 1 and rest[0].text == "-m" else ""
    if launcher := _LAUNCHER_BY_MODULE.get(module):
        _import_launcher(table, launcher, f"-m {module}", rest[2:], environment)
        return
    edits: dict[str, fields.FieldValue] = {"trainer.launcher": "python", "hardware.processes": 1}
    table.take_values(python.text, edits, "one process, on one GPU where there is one")
    import_variables(table, environment)
    _import_program(table, rest)


def _import_launcher(
    table: ImportTable, name: str, shown: str, words: Sequence[Word], environment: dict[str, Word]
) -> None:
    launcher, read_options, why = _LAUNCHERS[name]
    table.take_value(shown, "trainer.launcher", launcher, why)
    import_variables(table, environment)
    _import_program(table, read_options(table, words))


def _import_trainer_command(
    table: ImportTable, words: Sequence[Word], environment: dict[str, Word], preset: str, launcher: str
) -> None:
    """Take a command of a trainer, which its preset starts."""
    shown = f"{words[0].text} {words[1].text}"
    table.take_value(shown, "trainer.preset", preset)
    if launcher:
        table.take_value(shown, "trainer.launcher", launcher)
    import_variables(table, environment)
    _import_preset_arguments(table, words[2:])


def _import_program(table: ImportTable, words: Sequence[Word]) -> None:
    """Take the script or module, and its arguments."""
    if not words:
        raise BadInput("the command names no script", "Give the whole line, with the script in it.")
    first, *rest = words
    if first.text in {"-m", "--module"} and rest and (method := finetune_method_of_module(rest[0].text)):
        import_finetuning(table, method, f"-m {rest[0].text}", rest[1:])
        return
    if first.text in {"-m", "--module"} and rest:
        preset = _preset_of_module(rest[0].text)
        if not preset:
            remedy = "Give it as a file: the same line with PATH.py in its place."
            raise BadInput(f"it starts the module {visible(rest[0].text)}, and only files can be started here", remedy)
        table.take_value(f"-m {rest[0].text}", "trainer.preset", preset)
        _import_preset_arguments(table, rest[1:])
        return
    if first.problem or not first.text.endswith(".py"):
        why = first.problem or "is no Python file"
        raise BadInput(f"what it starts, {visible(first.text)}, {why}", "Give the line with the script, a .py file.")
    table.take(first.text, "trainer.script", first, _missing_file_text(table, first.text))
    _set_working_folder(table)
    import_arguments(table, rest)


def _missing_file_text(table: ImportTable, path: str) -> str:
    """Return that a script is not here, and what is near its path; empty where it is, or lies in a container."""
    whole = str(table.folder / Path(path).expanduser())
    if table.profile.container.engine != "none" or path_state(whole) != "missing":
        return ""
    return f"no such file{nearest_path_clause(whole, similar_existing_path(whole))}"


def _set_working_folder(table: ImportTable) -> None:
    """Start in the folder of the command, where that is not the script's own."""
    folder = table.path_on_machine(str(table.folder))
    script = table.profile.trainer.script or table.profile.trainer.config
    if str(PurePath(script).parent) != folder:
        table.take(f"cd {table.folder}", "trainer.working_directory", folder)


def _import_preset_arguments(table: ImportTable, words: Sequence[Word]) -> None:
    """Take the arguments of a trainer of a preset, whose YAML file is the first where it reads one."""
    rest = [*words]
    file = trainer_of(table.profile).preset.file
    if file and file.needs_user_file:
        if not rest or rest[0].text.startswith("-"):
            raise BadInput("the command names no YAML file", "Give the whole line, with its YAML file.")
        table.take(rest[0].text, "trainer.config", rest[0])
        del rest[0]
    _set_working_folder(table)
    import_arguments(table, rest)


def _preset_of_module(module: str) -> str:
    return next((name for name, preset in shipped_presets().items() if module and preset.module == module), "")


def _import_yaml(path: Path, folder: Path) -> Import:
    """Return what a YAML file of accelerate, LLaMA-Factory or axolotl means."""
    table, name = ImportTable(folder), display_path(str(path))
    document = read_document(str(path))
    if document.problem:
        raise BadInput(f"{name}: {document.problem}", IMPORTABLE_TEXT)
    keys = document.values.keys()
    if "distributed_type" in keys:
        table.take(name, "trainer.accelerate_config", str(path))
        table.take_value(name, "trainer.launcher", "accelerate")
        launchers.import_accelerate_config(table, launchers.read_accelerate_config(str(path)))
        return _finished_import(table)
    is_llama_factory = "model_name_or_path" in keys and not {"stage", "finetuning_type"}.isdisjoint(keys)
    preset = "axolotl" if "base_model" in keys else "llama-factory" if is_llama_factory else ""
    if not preset:
        raise BadInput(f"{name} is a YAML file of no trainer that is known here", IMPORTABLE_TEXT)
    table.take_value(name, "trainer.preset", preset)
    table.take(name, "trainer.config", str(path))
    _set_working_folder(table)
    return _finished_import(table)


def _finished_import(table: ImportTable) -> Import:
    """Return the import under a name, without what is surely a secret."""
    profile, secrets = profile_without_secrets(table.profile)
    for secret in secrets:
        table.leave_out(secret.description, SECRETS_NOT_KEPT_REASON)
    name = chosen_or_derived_name(profile)
    name = _FALLBACK_PROFILE_NAME if name == UNNAMED_PROFILE_NAME else name
    return Import(fields.profile_with_value(profile, "name", name), (*table.rows,))


def _command_text(command: ShellCommand) -> str:
    text = " ".join(word.text for word in command.words)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
