"""Training data on a host, read there by the Python that trains."""

import json
from contextlib import closing

import msgspec

from tui_train.actions.host_program import HostProgram
from tui_train.facts.data.data_report import (
    ENVIRONMENT_WITHOUT_GPUS,
    PROBE_DEADLINE_SECONDS,
    DataQuestion,
    DataReport,
    parse_data_answer,
)
from tui_train.facts.machine.child_process import ChildResult


def read_data_on_host(host: str, python: str, question: DataQuestion) -> DataReport:
    """Return what an interpreter of a host reads in the data there; Unavailable where it cannot be asked."""
    request, lines = msgspec.to_builtins(question), list[str]()
    with closing(HostProgram(host, python, "data/data_child.py", request, ENVIRONMENT_WITHOUT_GPUS)) as program:
        while (line := program.read_line(PROBE_DEADLINE_SECONDS)) is not None:
            lines.append(json.dumps(line))
    return parse_data_answer(ChildResult("\n".join(lines).encode()))
