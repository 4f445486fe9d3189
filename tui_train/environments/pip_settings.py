"""pip's settings as variables for uv, which reads none of them.

Needs nothing but Python, for `.ci/environment` runs it before anything is installed: `python pip_settings.py` prints
the variables, one a line, and ends with 1 where uv has no equal of a setting.
"""

import ast
import os
import subprocess
import sys

# pip's setting, uv's variable, and what stands between several values there.
_LISTS = {
    "constraint": ("UV_CONSTRAINT", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
# An argument wins over UV_INDEX_URL, but not over UV_DEFAULT_INDEX.
_VALUES = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "index-url": "UV_INDEX_URL",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
}
_FLAGS = {"no-index": ("UV_NO_INDEX", "1"), "pre": ("UV_PRERELEASE", "allow")}
_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
# These change nothing of what is installed into an environment.
_WITHOUT_EFFECT = frozenset({
    "break-system-packages", "cache-dir", "compile", "config-file", "disable-pip-version-check", "no-cache-dir",
    "no-color", "no-compile", "no-input", "no-python-version-warning", "no-warn-script-location", "prefer-binary",
    "progress-bar", "quiet", "require-virtualenv", "resume-retries", "retries", "root-user-action", "user", "verbose",
})  # fmt: skip
_SECTIONS = ("global.", "install.", ":env:.")
_PATIENCE = 60


def read(python: str) -> dict[str, str]:
    """Return the settings of this Python's pip by their long names; none where it has no pip."""
    command = [python, "-m", "pip", "config", "list"]
    try:
        listed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, str] = {}
    lines = [line.partition("=") for line in listed.decode("utf-8", "replace").splitlines()]
    for section in _SECTIONS:  # the later wins
        for name, _, value in lines:
            if name.startswith(section) and value:
                found[name[len(section) :].replace("_", "-")] = str(ast.literal_eval(value))
    return found


def for_uv(settings: dict[str, str]) -> dict[str, str]:
    """Return the variables for uv, without those that are set already."""
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
    """Return the settings of pip that uv has no variable for."""
    return sorted(set(settings) - set(_LISTS) - set(_VALUES) - set(_FLAGS) - _WITHOUT_EFFECT)


def main() -> int:
    """Print the variables for uv; the exit code is 1 where pip has a setting that uv cannot be given."""
    settings = read(sys.executable)
    for name, value in for_uv(settings).items():
        sys.stdout.write(f"{name}={value}\n")
    return bool(without_equal(settings))


if __name__ == "__main__":
    sys.exit(main())
