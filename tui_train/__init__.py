"""From `ssh gpu-box` to a running, resumable training, and a script that needs nothing of ours."""

from pathlib import Path

__version__ = "0.1.0"

# In a checkout the screens live beside this package, so that no generic `screens` is installed; see pyproject.toml.
if not (Path(__file__).parent / "screens").is_dir():
    __path__.append(str(Path(__file__).parent.parent))
