"""Converts pip's settings into variables for uv, which does not read them.

Needs nothing but Python, for `.ci/environment` runs it before anything is installed: `python pip_settings.py` prints
the variables, one a line, and ends with 1 where uv has no equal of a setting.
"""

import ast
import os
import subprocess
import sys

# pip's setting, uv's variable, and its separator of several values.
_LISTS = {
    "constraint": ("UV_CONSTRAINT", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
# An argument overrides UV_INDEX_URL, but not UV_DEFAULT_INDEX.
_VALUES = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "index-url": "UV_INDEX_URL",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
}
_FLAGS = {"no-index": ("UV_NO_INDEX", "1"), "pre": ("UV_PRERELEASE", "allow")}
_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
# These do not affect what is installed.
_WITHOUT_EFFECT = frozenset({
    "break-system-packages", "cache-dir", "compile", "config-file", "disable-pip-version-check", "no-cache-dir",
    "no-color", "no-compile", "no-input", "no-python-version-warning", "no-warn-script-location", "prefer-binary",
    "progress-bar", "quiet", "require-virtualenv", "resume-retries", "retries", "root-user-action", "user", "verbose",
})  # fmt: skip
_SECTIONS = ("global.", "install.", ":env:.")
_PATIENCE = 60


def read(python: str) -> dict[str, str]:
    """Return the settings of this Python's pip by their long names, none without pip."""
    # Not in the current folder: its `pip.py` would be run.
    command = [python, "-m", "pip", "config", "list"]
    try:
        listed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE, cwd=os.sep
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    by_name: dict[str, str] = {}
    lines = [line.partition("=") for line in listed.decode("utf-8", "replace").splitlines()]
    for section in _SECTIONS:  # the last one wins
        for name, _, value in lines:
            if name.startswith(section) and value:
                by_name[name[len(section) :].replace("_", "-")] = str(ast.literal_eval(value))
    return by_name


def for_uv(settings: dict[str, str]) -> dict[str, str]:
    """Return the variables for uv, without those that are already set."""
    variables: dict[str, str] = {}
    for name, value in settings.items():
        if name in _LISTS:
            variable, between = _LISTS[name]
            variables[variable] = between.join(value.split())
        elif name in _VALUES:
            variables[_VALUES[name]] = value
        elif name in _FLAGS and value.lower() in _TRUE:
            variable, meaning = _FLAGS[name]
            variables[variable] = meaning
    if "extra-index-url" in settings:
        # As pip does: the newest of all indexes, not the first index that has the name.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in variables.items() if name not in os.environ}


def without_equal(settings: dict[str, str]) -> list[str]:
    """Return the settings of pip without a variable of uv."""
    return sorted(set(settings) - set(_LISTS) - set(_VALUES) - set(_FLAGS) - _WITHOUT_EFFECT)


def main() -> int:
    """Print the variables for uv; the exit code is 1 if pip has a setting that uv does not support."""
    settings = read(sys.executable)
    for name, value in for_uv(settings).items():
        sys.stdout.write(f"{name}={value}\n")
    return bool(without_equal(settings))


if __name__ == "__main__":
    sys.exit(main())
