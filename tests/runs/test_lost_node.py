"""The end of a job whose node was lost, told from that of an earlier job of the same run."""

import json

import pytest

from tui_train.runner.run_folder import events
from tui_train.runner.run_folder.events import JournalEvent
from tui_train.runs.slurm_job import KnownJob, slurm_end_reason, write_known_job


@pytest.mark.parametrize(
    ("number", "why"),
    # Of a new job nothing is known yet, and what killed the supervisor of the one before may have been anything.
    [("4712", "its node n1 was lost"), ("4713", "")],
)
def test_only_a_job_that_is_queued_again_has_lost_its_node(tmp_path, number, why):
    (tmp_path / "launch.log").write_text("03:22:07 slurm.sh: job 4712 on n1, first n1\n")
    started = JournalEvent(event="run_started", mark="0" * 32, pid=2**22 + 1, start_ticks=1, boot_id="other", host="n1")
    (tmp_path / events.JOURNAL_FILE_NAME).write_text(json.dumps(started._asdict()) + "\n")
    write_known_job(tmp_path, KnownJob(number=number, starts=1))
    assert slurm_end_reason(tmp_path) == why
