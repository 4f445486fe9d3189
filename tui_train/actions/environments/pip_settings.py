"""Converts pip's settings into variables for uv, which does not read them.

Needs nothing but Python, for `.ci/environment` runs it before anything is installed: `python pip_settings.py` prints
the variables, one a line, and ends with 1 where uv has no equal of a setting.
"""

import ast
import os
import subprocess
import sys

# pip's setting, uv's variable, and its separator of several values.
_UV_VARIABLE_AND_SEPARATOR_BY_SETTING = {
    "constraint": ("UV_CONSTRAINT", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
# An argument overrides UV_INDEX_URL, but not UV_DEFAULT_INDEX.
_UV_VARIABLE_BY_SETTING = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "index-url": "UV_INDEX_URL",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
}
_UV_VARIABLE_AND_VALUE_BY_FLAG = {"no-index": ("UV_NO_INDEX", "1"), "pre": ("UV_PRERELEASE", "allow")}
_PIP_TRUE_WORDS = frozenset({"1", "on", "t", "true", "y", "yes"})
# These do not affect what is installed.
_PIP_SETTINGS_WITHOUT_EFFECT = frozenset({
    "break-system-packages", "cache-dir", "compile", "config-file", "disable-pip-version-check", "no-cache-dir",
    "no-color", "no-compile", "no-input", "no-python-version-warning", "no-warn-script-location", "prefer-binary",
    "progress-bar", "quiet", "require-virtualenv", "resume-retries", "retries", "root-user-action", "user", "verbose",
})  # fmt: skip
_PIP_SECTION_PREFIXES = ("global.", "install.", ":env:.")
_PIP_TIMEOUT_SECONDS = 60


def read_pip_settings(python: str) -> dict[str, str]:
    """Return the settings of this Python's pip by their long names, none without pip."""
    # Not in the current folder: its `pip.py` would be run.
    command = [python, "-m", "pip", "config", "list"]
    try:
        listed = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PIP_TIMEOUT_SECONDS,
            cwd=os.sep,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    by_name: dict[str, str] = {}
    lines = [line.partition("=") for line in listed.decode("utf-8", "replace").splitlines()]
    for section in _PIP_SECTION_PREFIXES:  # the last one wins
        for name, _, value in lines:
            if name.startswith(section) and value:
                by_name[name[len(section) :].replace("_", "-")] = str(ast.literal_eval(value))
    return by_name


def uv_variables(settings: dict[str, str]) -> dict[str, str]:
    """Return the variables for uv, without those that are already set."""
    variables: dict[str, str] = {}
    for name, value in settings.items():
        if name in _UV_VARIABLE_AND_SEPARATOR_BY_SETTING:
            variable, between = _UV_VARIABLE_AND_SEPARATOR_BY_SETTING[name]
            variables[variable] = between.join(value.split())
        elif name in _UV_VARIABLE_BY_SETTING:
            variables[_UV_VARIABLE_BY_SETTING[name]] = value
        elif name in _UV_VARIABLE_AND_VALUE_BY_FLAG and value.lower() in _PIP_TRUE_WORDS:
            variable, meaning = _UV_VARIABLE_AND_VALUE_BY_FLAG[name]
            variables[variable] = meaning
    if "extra-index-url" in settings:
        # As pip does: the newest of all indexes, not the first index that has the name.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in variables.items() if name not in os.environ}


def pip_settings_unknown_to_uv(settings: dict[str, str]) -> list[str]:
    """Return the settings of pip without a variable of uv."""
    return sorted(
        set(settings)
        - set(_UV_VARIABLE_AND_SEPARATOR_BY_SETTING)
        - set(_UV_VARIABLE_BY_SETTING)
        - set(_UV_VARIABLE_AND_VALUE_BY_FLAG)
        - _PIP_SETTINGS_WITHOUT_EFFECT
    )


def main() -> int:
    """Print the variables for uv; the exit code is 1 if pip has a setting that uv does not support."""
    settings = read_pip_settings(sys.executable)
    for name, value in uv_variables(settings).items():
        sys.stdout.write(f"{name}={value}\n")
    return bool(pip_settings_unknown_to_uv(settings))


if __name__ == "__main__":
    sys.exit(main())
