"""Training data on a host, read there by the Python that trains."""

import json
from collections.abc import Callable
from contextlib import closing

import msgspec

from tui_train.actions.sent_program import SentProgram
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.facts.data.data_report import (
    ENVIRONMENT_WITHOUT_GPUS,
    PROBE_DEADLINE_SECONDS,
    DataQuestion,
    DataReport,
    parse_data_answer,
)
from tui_train.facts.machine.child_process import ChildResult
from tui_train.facts.types import Facts
from tui_train.places.profile_facts import data_question_with_key_and_python
from tui_train.profile.types import Profile


def read_data_on_host(
    host: str, python: str, question: DataQuestion, is_cancelled: Callable[[], bool] = lambda: False
) -> DataReport:
    """Return what an interpreter of a host reads in the data there; Unavailable where it cannot be asked."""
    request, lines = msgspec.to_builtins(question), list[str]()
    with closing(SentProgram(host, python, "data/data_child.py", request, ENVIRONMENT_WITHOUT_GPUS)) as program:
        while (line := program.read_line(PROBE_DEADLINE_SECONDS, is_cancelled)) is not None:
            lines.append(json.dumps(line))
    return parse_data_answer(ChildResult("\n".join(lines).encode()))


def read_data_or_say_why_not(
    host: str, python: str, question: DataQuestion, is_cancelled: Callable[[], bool] = lambda: False
) -> DataReport:
    """Return what an interpreter of a host reads in the data there, with the `problem` where it cannot be asked."""
    try:
        return read_data_on_host(host, python, question, is_cancelled)
    except TuiTrainError as error:
        return DataReport(problem=f"{error.message}. {error.remedy}")


def facts_with_data_on_host(profile: Profile, facts: Facts, host: str, on_wait: Callable[[str], None]) -> Facts:
    """Return the facts of a host with what its Python reads in the profile's data; up to two minutes."""
    asked = data_question_with_key_and_python(profile, facts)
    if asked is None or any(facts.paths.get(path, "missing") == "missing" for path in asked[1].files):
        return facts
    key, question, toolchain = asked
    on_wait(f"Reading the data on {visible(host)} …")
    return msgspec.structs.replace(facts, data={key: read_data_or_say_why_not(host, toolchain.python, question)})
