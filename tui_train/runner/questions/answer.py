"""The one door for questions: each is answered by its function, in lines of JSON and, of files, their bytes."""

from __future__ import annotations

import importlib
from typing import Any

from ..system.processes import lasting_machine_identity
from ..system.refused import Refused
from .answer_lines import RequestFailedError, send_json_line

_FUNCTION_BY_QUESTION_NAME = {
    "put": ("run_start", "receive_run"),
    "start": ("run_start", "start_run"),
    "drop": ("run_start", "remove_run"),
    "size": ("run_start", "send_run_size"),
    "stop": ("run_start", "stop_run"),
    "status": ("run_changes", "send_status"),
    "runs": ("run_changes", "send_status_of_newest_runs"),
    "feed": ("run_changes", "send_changes"),
    "fetch": ("run_output", "send_output_files"),
    "queue": ("queue", "send_queue"),
    "move": ("queue", "move_run"),
    "program": ("program", "run_program"),
    "child": ("child", "send_child_output"),
    "installers": ("environment", "send_folder_and_installers"),
    "make": ("environment", "make_environment"),
    "unmake": ("environment", "cancel_environment"),
    "survey": ("survey", "send_survey"),
    "names": ("survey", "send_names_in_folder"),
    "code": ("project_code", "send_project_code"),
    "missing": ("project_files", "send_which_files_are_missing"),
    "take": ("project_files", "receive_files"),
    "slurm": ("slurm", "send_command_results"),
    "jobs": ("slurm", "send_listed_jobs"),
}


def answer(question: dict[str, Any]) -> int:
    """Answer a question and return the exit code; what cannot be done is said in a line."""
    module, function = _FUNCTION_BY_QUESTION_NAME[question["do"]]
    try:
        # Only what is asked: fifty modules would take longer than most answers.
        getattr(importlib.import_module(f"{__package__}.{module}"), function)(question)
    except RequestFailedError as error:
        # Another machine may have the name by now.
        send_json_line(error=str(error), gone=error.gone, node=lasting_machine_identity())
        return 69
    except Refused as refused:
        send_json_line(error=refused.message)
        return 69
    except BrokenPipeError:
        return 0
    return 0
