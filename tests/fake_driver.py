"""Lets any program run on a machine of `tests/machines/`: builds the fake driver library and says how to load it."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import support

MACHINES_FOLDER = Path(__file__).parent / "machines"
BUILD_FOLDER = Path(__file__).parent / ".built"
FAKE_NVML_SOURCE = MACHINES_FOLDER / "fake_nvml.c"


def driver_environment(machine: str | Path) -> dict[str, str]:
    """Return the environment variables under which a new process sees `machine` through NVML.

    `machine` is the name of a file in `tests/machines/`, or the path of any such file. The library is built once and
    kept. Skips the calling test where there is no C compiler.
    """
    description = Path(machine) if os.sep in str(machine) else MACHINES_FOLDER / f"{machine}.txt"
    if not description.is_file():
        raise FileNotFoundError(description)
    folders = [str(_build_library()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders), "TUI_TRAIN_TEST_MACHINE": str(description.resolve())}


def _build_library() -> Path:
    """Return the folder with the library built from the present source."""
    folder = BUILD_FOLDER / hashlib.sha256(FAKE_NVML_SOURCE.read_bytes()).hexdigest()[:16]
    library = folder / "libnvidia-ml.so.1"
    if library.exists():
        return folder
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("NOT TESTED, for want of a C compiler: how NVIDIA cards are read from the driver")
    folder.mkdir(parents=True, exist_ok=True)
    # Tests run in several processes at once: each builds beside and renames.
    beside = folder / f"{os.getpid()}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-pthread", "-o", beside, FAKE_NVML_SOURCE], check=True)
    beside.rename(library)
    return folder


def run_cli_on_machine(*words, on="two-3090", code=0):
    """Run the program on a machine of the fake driver."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **driver_environment(on)}
    return support.run_cli(*words, code=code, env=environment)
