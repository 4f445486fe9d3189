"""Prints the training libraries of this interpreter as one line of JSON, without importing them.

Runs in the training interpreter, Python 3.8 or later, standard library only. Its text is passed on the command line, so
that neither this file nor its folder need be readable there.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import pkgutil
import platform
import re
import sys
from importlib import machinery, metadata, util
from pathlib import Path

VERSION_ASSIGNMENT_PATTERN = re.compile(r"^__version__\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
CUDA_ASSIGNMENT_PATTERN = re.compile(r"^cuda\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
LONG_FLAG_PATTERN = re.compile(r"^\s*(?:parser\.add_argument\(\s*|)['\"](--[a-z][a-z_-]*)['\"],", re.MULTILINE)
# The value of CUDA_ARCH_FLAGS, a C string of its own in the binding.
ARCH_FLAGS_PATTERN = re.compile(rb"\0((?:sm|compute)_[0-9]+[af]?(?: (?:sm|compute)_[0-9]+[af]?)*)\0")

_MAX_FILE_BYTES = 1 << 24
# libtorch_python.so has some 30 MB, and what is looked for lies in their middle.
_MAX_LIBRARY_BYTES = 1 << 30
# Libraries whose presence or version decides what can be generated.
OTHER_LIBRARIES_LISTED = (
    "nemo_toolkit", "nemo_run", "nemo_automodel", "megatron-bridge", "megatron-core", "deepspeed", "trl", "peft",
    "datasets", "bitsandbytes", "flash-attn", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "llamafactory", "axolotl",
    "lightning", "liger-kernel", "huggingface_hub", "wandb", "tensorboard", "trackio", "transformer-engine",
    "apex",
)  # fmt: skip
# TRL's programs, each of which names the classes whose fields are its options.
TRL_PROGRAMS = ("sft", "dpo", "kto", "reward", "grpo", "rloo")
# Bases that have no options of their own.
BASE_CLASSES_WITHOUT_OPTIONS = ("object", "ABC")
# What imports without a file of its own, by the module whose finder provides it.
MODULES_BY_FINDER = {
    "_frozen_importlib": (), "_frozen_importlib_external": (), "builtins": (), "zipimport": (), "_virtualenv": (),
    "_distutils_hack": ("distutils",), "_pynvml_redirector": ("pynvml",),
}  # fmt: skip
MODULE_SUFFIXES = tuple(machinery.all_suffixes())
# Those that are there where this can be imported.
MODULE_BY_COMPILED_LIBRARY = {"transformer-engine": "transformer_engine", "apex": "scaled_masked_softmax_cuda"}


def read_content(path: Path, max_bytes: int = _MAX_FILE_BYTES) -> bytes:
    """Return what a file holds, at most so many bytes, nothing where it cannot be read."""
    try:
        # A pipe or a device in its place is never waited for.
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(max_bytes)
    except OSError:
        return b""


def read_text(path: Path) -> str:
    """Return the text of a file, empty where it cannot be read."""
    return read_content(path).decode("utf-8", "replace")


def find_package_init_file(name: str) -> Path | None:
    """Return the `__init__.py` of an importable top-level package, None where there is none."""
    try:
        spec = util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def package_version(name: str, init_file: Path | None) -> str | None:
    """Return the version of package `name` whose `__init__.py` is `init_file`; "unknown" where nothing tells."""
    if init_file is None:
        return None
    try:
        found = metadata.version(name)
    except (metadata.PackageNotFoundError, OSError, KeyError, ValueError):
        found = None
    if found:
        return str(found)
    match = VERSION_ASSIGNMENT_PATTERN.search(read_text(init_file))
    return match.group(1) if match else "unknown"


def compiled_architectures(torch_folder: Path) -> list[str]:
    """Return the architectures of the torch in `torch_folder`, as `torch.cuda.get_arch_list()` would with a GPU."""
    # Conda keeps the library beside the interpreter's own.
    for lib in (torch_folder / "lib", Path(sys.prefix) / "lib"):
        match = ARCH_FLAGS_PATTERN.search(read_content(lib / "libtorch_python.so", _MAX_LIBRARY_BYTES))
        if match:
            return match.group(1).decode("ascii").split()
    return []


def released_architectures(torch_folder: Path, cuda: str) -> list[str]:
    """Return the architectures that torch 2.11 and later say its releases for `cuda` and this processor have."""
    try:
        for node in ast.parse(read_text(torch_folder / "cuda" / "__init__.py")).body:
            target: ast.expr
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                target, value = node.target, node.value
            elif isinstance(node, ast.Assign):
                target, value = node.targets[0], node.value
            else:
                continue
            if isinstance(target, ast.Name) and target.id == "PYTORCH_RELEASES_CODE_CC":
                return [f"sm_{code}" for code in sorted(ast.literal_eval(value)[cuda][platform.machine()])]
    except (SyntaxError, ValueError, LookupError, TypeError):
        return []
    return []


def long_flags(program: Path) -> list[str]:
    """Return the long flags that a program names to its argument parser."""
    return sorted(set(LONG_FLAG_PATTERN.findall(read_text(program))))


def library_versions() -> dict[str, str]:
    """Return the versions of those of OTHER_LIBRARIES_LISTED that are installed."""
    found = {}
    for name in OTHER_LIBRARIES_LISTED:
        try:
            found[name] = str(metadata.version(name))
        except (metadata.PackageNotFoundError, OSError, KeyError, ValueError):
            continue
    # Images have these built, some without saying so where packages are listed. Another project is named apex as well.
    for name, module in MODULE_BY_COMPILED_LIBRARY.items():
        init_file = find_package_init_file(module)
        found.pop(name, None) if init_file is None else found.setdefault(name, "unknown")
    return found


def bases_and_fields_by_class(files: list[Path]) -> dict[str, tuple[list[str], list[str]]]:
    """Return the bases and the annotated fields of the classes in these files, by name; the first of a name counts."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for file in files:
        try:
            body = ast.parse(read_text(file)).body
        except (SyntaxError, ValueError):
            continue
        for node in body:
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                fields = [
                    each.target.id for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                ]  # fmt: skip
                found.setdefault(node.name, (bases, fields))
    return found


def read_common_and_own_trl_options() -> dict[str, list[str]]:
    """Return the options of TRL's programs: under "" those of all, and by name what each has besides; else nothing."""
    trl, transformers = find_package_init_file("trl"), find_package_init_file("transformers")
    if trl is None or transformers is None:
        return {}
    scripts, trainer = trl.parent / "scripts", trl.parent / "trainer"
    files = [scripts / "utils.py", *sorted(trainer.glob("*_config.py")), transformers.parent / "training_args.py"]
    known = bases_and_fields_by_class(files)
    programs: dict[str, set[str]] = {}
    for program in TRL_PROGRAMS:
        script = scripts / f"{program}.py"
        # Some have a class of their own.
        known |= bases_and_fields_by_class([script])
        match = re.search(r"dataclass_types = \(([\w, ]+)\)", read_text(script))
        wanted = re.findall(r"\w+", match.group(1)) if match else [""]
        options: set[str] = set()
        while wanted:
            name = wanted.pop()
            if name not in known and name not in BASE_CLASSES_WITHOUT_OPTIONS:
                return {}
            bases, fields = known.get(name, ([], []))
            wanted += bases
            options |= {field for field in fields if not field.startswith("_")}
        programs[program] = options
    common = set.intersection(*programs.values())
    return {"": sorted(common), **{program: sorted(names - common) for program, names in programs.items()}}


def modules_of_finder(name: str) -> tuple[str, ...] | None:
    """Return what the finder in the module of this name imports, None where that is not known."""
    if name in MODULES_BY_FINDER:
        return MODULES_BY_FINDER[name]
    # setuptools has one for each package that is installed as editable.
    module = sys.modules.get(name) if name.startswith("__editable__") else None
    if module is None:
        return None
    return (*getattr(module, "MAPPING", ()), *getattr(module, "NAMESPACES", ()))


def importable_modules() -> list[str]:
    """Return the top-level names that this interpreter can import; none where a hook may import more of them."""
    found = {*sys.builtin_module_names}
    for finder in (*sys.meta_path, *sys.path_hooks, builtins.__import__):
        names = modules_of_finder(getattr(finder, "__module__", ""))
        if names is None:
            return []
        found.update(name.partition(".")[0] for name in names)
    for place in sys.path:
        found.update(module_names_in_path_entry(place))
    return sorted(name for name in found if name.isidentifier() and not name.startswith("_"))


def module_names_in_path_entry(place: str) -> list[str]:
    """Return the names of folders and modules in a folder of sys.path, which is listed once, or in a zip file."""
    try:
        with os.scandir(place) as entries:
            # Without an __init__.py a folder is a package as well: none is looked into, of hundreds on a cold disk.
            return [
                entry.name.partition(".")[0]
                for entry in entries
                if entry.name.endswith(MODULE_SUFFIXES) or may_be_folder(entry)
            ]
    except NotADirectoryError:
        return [each.name for each in pkgutil.iter_modules([place])]
    except OSError:
        return []


def may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link that cannot be followed."""
    try:
        return entry.is_dir()
    except OSError:
        return True


def describe_toolchain() -> dict[str, object]:
    """Return what this interpreter has, under the field names of `Toolchain`."""
    torch_file = find_package_init_file("torch")
    found: dict[str, object] = {
        "python": sys.executable or "",
        "version": platform.python_version(),
        "accelerate": package_version("accelerate", find_package_init_file("accelerate")),
        "transformers": package_version("transformers", find_package_init_file("transformers")),
        "packages": library_versions(),
        "modules": importable_modules(),
        "trl_options": read_common_and_own_trl_options(),
    }
    if torch_file is None:
        return found
    # The installed metadata leaves out the local part, "+cu132".
    version_text = read_text(torch_file.parent / "version.py")
    match = VERSION_ASSIGNMENT_PATTERN.search(version_text)
    found["torch"] = match.group(1) if match else package_version("torch", torch_file)
    found["torchrun"] = long_flags(torch_file.parent / "distributed" / "run.py")
    match = CUDA_ASSIGNMENT_PATTERN.search(version_text)
    if match:
        found["cuda"] = match.group(1)
        found["arch_list"] = compiled_architectures(torch_file.parent) or released_architectures(
            torch_file.parent, match.group(1)
        )
    return found


if __name__ == "__main__":
    answer = {
        "prefix": os.path.realpath(sys.prefix),
        "executable": sys.executable or "",
        "toolchain": describe_toolchain(),
    }
    print(json.dumps(answer))
