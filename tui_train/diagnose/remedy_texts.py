"""Advice for a failure, where the log or the settings say more than its signature can."""

import re
from collections.abc import Sequence

from tui_train.checks.trainer import module_packages
from tui_train.checks.trainer.module_packages import pip_package
from tui_train.diagnose import refused_arguments
from tui_train.diagnose.broken_loss import broken_loss_remedy
from tui_train.diagnose.failed_stage import TrainingStage, failed_stage
from tui_train.diagnose.named_changes import OOM_REMEDY_BY_PHASE
from tui_train.diagnose.traceback_lines import (
    RAISE_STATEMENT_PATTERN,
    cloned_library,
    frames_before,
    index_of_line,
    innermost_user_frame,
    library_of_file,
)
from tui_train.diagnose.types import TRACEBACK_REMEDY_PREFIX, Evidence, LogLine, Signature
from tui_train.profile.types import Profile
from tui_train.setup.recipe.effective_values import working_folder
from tui_train.trainers import trainer_of

_SMALLEST_BATCH_REMEDY = (
    "The micro batch is already 1. A shorter sequence length, activation checkpointing, sharding (fsdp2), "
    "offload, an 8-bit optimizer or LoRA need less."
)

_MIN_CERTAIN_STRENGTH = 60
# Remedies of a script that does not fit a library, which do not help where another library calls it.
_OTHER_VERSION_REMEDY_PATTERN = re.compile(r"was written for(?:\{update\|\})?\.$|so that they fit \(")
_OTHER_VERSION_FAILURES = frozenset({"api_mismatch", "import_mismatch"})
_LIBRARY_BY_CLASS = (
    (re.compile(r"(?:SFT|DPO|KTO|GRPO|ORPO|CPO|RLOO|PPO|Reward)(?:Trainer|Config)"), "trl"),
    (re.compile(r"Accelerator|PartialState"), "accelerate"),
    (re.compile(r"Lo[Rr]a|Peft"), "peft"),
    (
        re.compile(r"(?:Seq2Seq)?Train(?:er|ingArguments)\b|\w*(?:Cache|Tokenizer\w*|For[A-Z]\w+|PreTrained\w+)$"),
        "transformers",
    ),
    (re.compile(r"_*[Uu]nsloth"), "unsloth"),
)
_ADVICE_PATTERN = re.compile(
    r"(?i)\b(?:please|must|should|needs?|required?|requires|use|using|set|pass|try|install|ensure|make sure|specify"
    r"|provide|choose|instead)\b"
)
_UNSUPPORTED_PATTERN = re.compile(
    r"(?i)\b(?:(?:cannot|can.t)(?! (?:be (?:found|opened|read|loaded|empty|none|negative|zero)|find|exceed|open|read"
    r"|load|locate|infer|determine|parse)\b)|unsupported"
    r"|only (?:supports?|works?|available|possible|allowed|implemented|for|with)"
    r"|not (?:yet )?(?:supported|implemented|allowed|available|compatible|possible)"
    r"|(?:does|do)(?:n.t| not) (?:yet )?(?:support|work|allow)|incompatible|unimplemented|exclusive)\b"
)
_EXPECTATION_PATTERN = re.compile(r"(?i)\bexpect(?:s|ed)?\b.*\b(?:got|but|found|received|is|are|given)\b|\binvalid\b")
_COMPILED_ERROR_PATTERN = re.compile(r"\s*(?:Runtime|NotImplemented)Error: ")
_MAX_QUOTED_CODE_LENGTH = 100
# What fails in them was usually given to them.
_SELDOM_WRONG_LIBRARIES = frozenset({"torch", "numpy", "pandas"})
# Those that extend transformers, and have its classes under names of their own.
_LIBRARIES_ON_TRANSFORMERS = frozenset({
    "trl", "peft", "unsloth", "unsloth_zoo", "llamafactory", "swift", "axolotl", "liger_kernel",
})  # fmt: skip
_CHECK_OOM_PREFIX = "Check `dmesg | grep -i oom`; if it shows a kill: "
# The built-in trainer has no workers and loads no weights of a library.
_CPU_OOM_REMEDY = (
    "On the CPU, a smaller micro batch, sequence length or model needs less memory; or end other programs."
)
# The standard library, and what looks up an attribute for another frame.
_BLAMELESS_FRAME_PATTERN = re.compile(
    r'/lib(?:64)?/python\d[\d.]*/(?!(?:site|dist)-packages)|"<|, in __(?:get|del)attr__$'
)
_MODEL_CODE_PACKAGE = "transformers_modules"
_TITLE_BY_LIBRARY = {
    "llamafactory": "LLaMA-Factory", "megatron": "Megatron", "peft": "PEFT", "trl": "TRL",
    _MODEL_CODE_PACKAGE: "transformers_modules (the model's own code)",
}  # fmt: skip
_MODEL_CODE_REMEDY = (
    "The model's repository brings this code (trust_remote_code), and it was written for another transformers: install "
    "the version that its config.json names (transformers_version), take a newer revision of the model, or load it "
    "without trust_remote_code where transformers has it."
)
_VERSION_ERROR_PATTERN = re.compile(r"(\w+\.)*(Attribute|Type|Import|Key|Name)Error\b")
_ERROR_MESSAGE_PATTERN = re.compile(r"[\w.]{0,100}\b[A-Z]\w{1,60}: (?P<message>.+)")
_CONTINUED_SENTENCE_PATTERN = re.compile(r"[a-z]{2,12} [^:=|]{8,400}$")
# They name what was looked up, and nothing to do, unless it is a sentence.
_LOOKUP_ERROR_PATTERN = re.compile(r"(\w+\.)*(?:AttributeError\b|(?:Key|Index)Error\b(?!: (?:\S+ +){3}\S))")


def remedy_and_values(
    signature: Signature, match_values: dict[str, str], error_line: LogLine, evidence: Evidence, profile: Profile | None
) -> tuple[str, dict[str, str]]:
    """Return the remedy for a failure that a line shows, and the values that its text names."""
    if signature.failure == "missing_module" and not signature.remedy:
        module, limit = match_values.get("module", ""), match_values.get("limit", "")
        folder = module_packages.project_folder_of_module(module, evidence.script_source)
        # Braces would be taken for those of a signature.
        return re.sub("[{}]", "", module_packages.missing_module_remedy(module, limit, folder)), match_values
    if by_settings := _remedy_by_settings(signature, evidence, profile):
        return by_settings, match_values
    values = {**_raiser_and_place_values(evidence.lines, error_line), **match_values}
    calling_file = _calling_file(evidence.lines, error_line, values.get("argument", ""))
    if caller := library_of_file(calling_file):
        values["caller"], values["calling_library"] = _TITLE_BY_LIBRARY.get(caller, caller), caller
        values["clone"] = cloned_library(calling_file)
    if profile and evidence.preset and (start := working_folder(profile, evidence.preset)):
        values.setdefault("start", f"{start} (trainer.working_directory)")
    if raised := _ERROR_MESSAGE_PATTERN.match(error_line.text):
        values.setdefault("message", raised["message"])
    if "message" in values:
        values["message"] = _whole_message(evidence.lines, error_line, values["message"])
    if signature.remedy.startswith(TRACEBACK_REMEDY_PREFIX):
        return _traceback_remedy_and_values(signature, values, failed_stage(evidence.lines, error_line))
    is_version = signature.failure in _OTHER_VERSION_FAILURES and _OTHER_VERSION_REMEDY_PATTERN.search(signature.remedy)
    if is_version and "caller" in values:
        return _fitting_versions_remedy(values), values
    if package := pip_package(_called_library(values)):
        values["update"] = f" (`PYTHON -m pip install -U {package}` where that is newer)"
    refused = (
        refused_arguments.refused_arguments_remedy(evidence, profile)
        if signature.change == "leave_out" and profile
        else ""
    )
    # Braces would be taken for those of a signature.
    return re.sub("[{}]", "", refused) or signature.remedy, values


def _remedy_by_settings(signature: Signature, evidence: Evidence, profile: Profile | None) -> str:
    """Return the remedy that follows from how it was trained; empty where that says no more than the signature."""
    if signature.failure == "cuda_oom" and evidence.phase in OOM_REMEDY_BY_PHASE:
        return OOM_REMEDY_BY_PHASE[evidence.phase]
    if profile is None:
        return ""
    if signature.change == "less_memory" and profile.recipe.micro_batch == 1:
        return _SMALLEST_BATCH_REMEDY
    # A warning's own remedy names what it warned of.
    if signature.change == "steadier" and not signature.warning:
        # Braces would be taken for those of a signature.
        return re.sub("[{}]", "", broken_loss_remedy(profile, evidence))
    by_kernel = signature.failure == "host_oom" or (signature.failure == "sigkill" and evidence.oom_kills is None)
    if by_kernel and trainer_of(profile).can_create_model:
        is_certain = signature.strength >= _MIN_CERTAIN_STRENGTH
        return _CPU_OOM_REMEDY if is_certain else f"{_CHECK_OOM_PREFIX}{_CPU_OOM_REMEDY}"
    return ""


def _traceback_remedy_and_values(
    signature: Signature, values: dict[str, str], stage: TrainingStage | None
) -> tuple[str, dict[str, str]]:
    """Return where to look, and the values; a library that refuses something in its own words says what to do."""
    said = {**values, "stage": f" (while the training {stage.words})"} if stage else values
    if "adviser" in values:
        at = "; your code calls it at {place}" if "raiser" in values and _is_place_own(values) else ", at {place}"
        return f"Do what {{adviser}} says{at if 'place' in values else ''}.", said
    if "limited" in values:
        return _unsupported_use_remedy(values), said
    if values.get("library") == _MODEL_CODE_PACKAGE and _VERSION_ERROR_PATTERN.match(values.get("message", "")):
        return _MODEL_CODE_REMEDY, said
    if stage:
        return stage.remedy, said
    if "expecting" in values and "place" in values:
        return "Print what {expecting} gets at {place}, and give it what the message says that it expects.", said
    return _place_remedy(signature, values), said


def _is_place_own(values: dict[str, str]) -> bool:
    """Return whether a place is in a file of the user's own, and not in the clone of a library."""
    return not library_of_file(values["own_file"])


def _unsupported_use_remedy(values: dict[str, str]) -> str:
    """Return how to do without what a library cannot do."""
    at = " at {place}" if "place" in values else ""
    update = "" if values.get("library", "") in _SELDOM_WRONG_LIBRARIES else _update_command(values)
    update = f" A newer one may ({update})." if update else ""
    return f"Leave out or replace what the message names{at}: {{limited}} cannot do it.{update}"


def _place_remedy(signature: Signature, values: dict[str, str]) -> str:
    """Return which line, or which library and its arguments, to look at."""
    if "raiser" not in values:
        return "Look at {place}." if "place" in values else signature.remedy
    look = "Look at what {raiser} was given"
    if "place" in values:
        look = "Look at {place}, and what it gives to {raiser}" if _is_place_own(values) else "Look at {place}"
    if values["library"] in _SELDOM_WRONG_LIBRARIES:
        return f"{look}."
    update = f" ({command})" if (command := _update_command(values)) else ""
    return f"{look}; where that is right, update {{raiser}}{update}, or look for the message among its issues."


def _update_command(values: dict[str, str]) -> str:
    """Return the command that updates the library in which an error was raised, empty where none is known."""
    if values.get("clone"):
        return "`git pull` in its folder"
    return f"`PYTHON -m pip install -U {package}`" if (package := pip_package(values.get("library", ""))) else ""


def _fitting_versions_remedy(values: dict[str, str]) -> str:
    """Return how a library is made to fit the one that it calls."""
    caller, called = values["calling_library"], _called_library(values)
    if caller == _MODEL_CODE_PACKAGE:
        return _MODEL_CODE_REMEDY
    if called in {"", caller} and caller in _LIBRARIES_ON_TRANSFORMERS:
        called = "transformers"
    installed = {caller, called} - {values["clone"]}
    packages = sorted({pip_package(library) for library in installed} - {""})
    update = f"`PYTHON -m pip install -U {' '.join(packages)}`" if packages else "the newest of each"
    return (
        "The call is not in your code: install versions of {caller} and what it calls that fit each other "
        f"({update}; `PYTHON -m pip check` shows conflicts)."
    )


def _called_library(values: dict[str, str]) -> str:
    """Return the library whose class or module an error names, empty where it is not known."""
    function, module = values.get("function", ""), values.get("module", "")
    by_class = (library for pattern, library in _LIBRARY_BY_CLASS if pattern.match(function))
    parts = module.split(".")
    # A package of Google's has a name of two parts.
    return next(by_class, ".".join(parts[: 1 + (parts[0] == "google")]))


def _calling_file(lines: Sequence[LogLine], error_line: LogLine, argument: str) -> str:
    """Return the file that made the call which failed, empty where none is known.

    With ** code passes on what it was given, but for what it names there itself.
    """
    for frame in reversed(frames_before(lines, error_line)):
        code = "".join(frame.code)
        if not _BLAMELESS_FRAME_PATTERN.search(frame.text) and ("**" not in code or f"{argument}=" in code):
            return frame.file
    return ""


def _raiser_and_place_values(lines: Sequence[LogLine], error_line: LogLine) -> dict[str, str]:
    """Return the library in which an error was raised, if one, and the place in a file of the user's.

    Where it raised the error itself, it may say what to do (an adviser), what it cannot do, or what it expects.
    """
    values, title = dict[str, str](), "the script"
    frames = reversed(frames_before(lines, error_line))
    frame = next((frame for frame in frames if not _BLAMELESS_FRAME_PATTERN.search(frame.text)), None)
    code = "".join(frame.code[:1]) if frame else ""
    if frame and (name := library_of_file(frame.file)):
        title = _TITLE_BY_LIBRARY.get(name, name)
        values = {"raiser": title, "library": name, "clone": cloned_library(frame.file)}
    # What is raised in C++ has no such statement.
    is_refusal = RAISE_STATEMENT_PATTERN.match(code) or (
        values.get("library") == "torch" and _COMPILED_ERROR_PATTERN.match(error_line.text)
    )
    if is_refusal and not _LOOKUP_ERROR_PATTERN.match(error_line.text):
        forms = (("adviser", _ADVICE_PATTERN), ("limited", _UNSUPPORTED_PATTERN), ("expecting", _EXPECTATION_PATTERN))
        values |= {name: title for name, pattern in forms if pattern.search(error_line.text)}
    if code and not code.lstrip().startswith("raise"):
        values["code"] = code.strip()[:_MAX_QUOTED_CODE_LENGTH]
    user_frame = innermost_user_frame(lines, error_line)
    if user_frame is None:
        return values
    place = f"line {user_frame.line} of {user_frame.file}"
    place += f", in {user_frame.function}" if user_frame.function else ""
    return {**values, "place": place, "own_file": user_frame.file, "own_line": user_frame.line}


def _whole_message(lines: Sequence[LogLine], error_line: LogLine, message: str) -> str:
    """Return a message with the next line, where it begins or goes on there, or asks for something."""
    at = index_of_line(lines, error_line)
    after = (line.text.strip() for line in lines[at + 1 : at + 4] if line.rank == error_line.rank)
    more = next(filter(None, after), "")
    if message.endswith(":"):
        return f"{error_line.text.strip()} {more}".strip()
    goes_on = more.startswith("Please ") if message.endswith(".") else _CONTINUED_SENTENCE_PATTERN.match(more)
    return f"{message} {more}" if goes_on else message
