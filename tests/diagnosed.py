"""The diagnosis of a text, as that of a log."""

import io

from tui_train.diagnose import Evidence, diagnose
from tui_train.diagnose.log_reader import relevant_log_lines


def said(text, code=1, profile=None, **more):
    """What is said of a log with this text; `more` is what lies beside it."""
    return diagnose(Evidence(lines=relevant_log_lines(io.BytesIO(text.encode())), exit_code=code, **more), profile)
