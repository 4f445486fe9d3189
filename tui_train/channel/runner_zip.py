"""runner.pyz: the program that keeps a run, and answers for a machine to others."""

import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_PACKAGE_FOLDER = Path(__file__).parents[1]


@cache
def runner_texts() -> dict[str, str]:
    """Return the text of each file in the zip, by its path there; the binding of NVIDIA's driver is one of them."""
    paths = sorted((_PACKAGE_FOLDER / "runner").rglob("*.py"))
    names = (
        path.relative_to(_PACKAGE_FOLDER).as_posix().replace("runner/__main__.py", "__main__.py") for path in paths
    )
    own = {name: path.read_text("utf-8") for name, path in zip(names, paths, strict=True)}
    # Imported it would take longer than all else of a start.
    binding = find_spec("pynvml")
    assert binding is not None and binding.origin is not None  # noqa: S101, PT018 - it is installed with this program
    return own | {"runner/gpus/pynvml.py": Path(binding.origin).read_text("utf-8")}


@cache
def runner_zip() -> bytes:
    """Return the zip of readable modules, the same bytes each time it is made."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in runner_texts().items():
            made.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
