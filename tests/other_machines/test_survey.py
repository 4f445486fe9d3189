"""What a machine answers of its Pythons."""

from tui_train.runner.questions import survey


def test_a_python_that_is_slow_is_not_called_missing(tmp_path, monkeypatch):
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(survey, "_MAX_NAMED_PYTHON_SECONDS", 0.2)
    question = {"pythons": [str(slow), str(tmp_path / "none")], "run": "", "probe": ""}
    (found,) = survey._probe_toolchains(question, with_others=False)
    assert (found["python"], found["problem"]) == (str(slow), "it did not answer within 0.2 s")
