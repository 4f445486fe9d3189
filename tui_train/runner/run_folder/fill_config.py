"""Configuration files with the paths that only the running machine knows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..system import safe_open
from ..system.refused import CANNOT_WRITE_EXIT_CODE, UNAVAILABLE_EXIT_CODE, Refused

if TYPE_CHECKING:
    from .supervisor_plan import SupervisorPlan

# They stand in files of the plan for what only the running machine knows, in texts between double quotes.
RUN_DIR_PLACEHOLDER = "@TUI_TRAIN_RUN_DIR@"
CHECKPOINT_PLACEHOLDER = "@TUI_TRAIN_CHECKPOINT@"
_ESCAPE_BY_CHARACTER = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def filled_config_path(path: str) -> str:
    """Return where a file of the plan is written with the paths put in: `config.filled.yaml`."""
    stem, dot, ending = path.rpartition(".")
    return f"{stem}.filled{dot}{ending}"


def fill_config_files(planned: SupervisorPlan, position: int, run_dir: str, checkpoint: str) -> None:
    """Write the files of an attempt, counted from 1, with its paths put in, each whole or not at all.

    Where there is no checkpoint, the value that the plan names takes its place. Refused: 69 where a file of the plan
    cannot be read, 73 where one cannot be written.
    """
    for path, otherwise in planned.attempts[position - 1].fills:
        source, target = os.path.join(run_dir, path), os.path.join(run_dir, filled_config_path(path))
        try:
            text = safe_open.read_bounded(source).decode("utf-8", "surrogateescape")
        except OSError as error:
            raise Refused(UNAVAILABLE_EXIT_CODE, f"{source} cannot be read: {error.strerror}") from None
        filled = _insert_run_dir_and_checkpoint(text, run_dir, checkpoint, otherwise)
        try:
            safe_open.write_atomically(target, filled.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise Refused(CANNOT_WRITE_EXIT_CODE, f"{target} cannot be written: {error.strerror}") from None


def yaml_text(value: Any) -> str:
    """Return a single value, as JSON has it, as YAML 1.1 and 1.2 in one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _yaml_number(value)
    return str(value) if isinstance(value, int) else f'"{_escape_for_yaml(str(value))}"'


def _yaml_number(value: float) -> str:
    # YAML 1.1 reads an exponent only behind a point, and with its sign.
    digits, exponent, power = repr(value).partition("e")
    if digits.lstrip("-") in {"inf", "nan"}:
        return digits.replace("inf", ".inf").replace("nan", ".nan")
    if "." not in digits:
        digits += ".0"
    return f"{digits}{exponent}{power if power[:1] in {'', '-', '+'} else '+' + power}"


def _insert_run_dir_and_checkpoint(text: str, run_dir: str, checkpoint: str, without_checkpoint: object) -> str:
    if not checkpoint:
        text = text.replace(f'"{CHECKPOINT_PLACEHOLDER}"', yaml_text(without_checkpoint))
    # Piece by piece: a path may hold what looks like a mark.
    pieces = (
        piece.replace(CHECKPOINT_PLACEHOLDER, _escape_for_yaml(checkpoint)) for piece in text.split(RUN_DIR_PLACEHOLDER)
    )
    return _escape_for_yaml(run_dir).join(pieces)


def _escape_for_yaml(text: str) -> str:
    """Return a text as it stands between the double quotes of YAML; bytes that are no text stay as they are."""
    return "".join(_ESCAPE_BY_CHARACTER.get(char) or _escape_unprintable(char) for char in text)


def _escape_unprintable(char: str) -> str:
    if char.isprintable() or "\udc80" <= char <= "\udcff":
        return char
    return f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
