"""What programs print when they fail is called by its name, whatever their launcher adds, and wherever it stands."""

import io
from pathlib import Path

import msgspec
import pytest
from diagnosed import said
from support import sample

from tui_train.diagnose.log_progress import last_step_with_finite_numbers
from tui_train.diagnose.log_reader import relevant_log_lines

HERE = Path(__file__).parents[1]
_ALL = msgspec.toml.decode((HERE / "messages.toml").read_bytes())
AFTER = tuple(_ALL.pop("after").values())
MESSAGES = [
    (failure, source, text.strip("\n") + "\n")
    for failure, sources in _ALL.items()
    for source, texts in sources.items()
    for text in texts
]
# More than the reader keeps of a log's head and tail.
NOISE = "".join(f"step {number} took 1.2 s, the next batch is read\n" for number in range(18_000))


@pytest.mark.parametrize("failure", sorted(_ALL))
def test_a_message_gives_its_failure(failure):
    for named, source, text in MESSAGES:
        if named == failure:
            found = said(text)
            assert found, (source, text)
            assert (found.failure, source, text) == (failure, source, text)
            assert found.remedy
            assert found.line.strip() in text


@pytest.mark.parametrize("failure", sorted(_ALL))
def test_what_a_launcher_adds_hides_no_cause(failure):
    for number, (named, source, text) in enumerate(MESSAGES):
        if named == failure:
            for after in sample(AFTER, len(AFTER), number % len(AFTER)):
                assert (said(text + after).failure, source, text) == (failure, source, text)


@pytest.mark.whole
@pytest.mark.parametrize(("failure", "source", "text"), sample(MESSAGES, 72), ids=lambda value: value[:20])
def test_it_is_found_in_the_middle_of_a_long_log(failure, source, text):
    assert (said(NOISE + text + NOISE).failure, source) == (failure, source)


@pytest.mark.whole
def test_a_training_that_went_well_has_no_failure_whatever_it_printed():
    assert [(source, text) for _, source, text in MESSAGES if said(text, 0)] == []


@pytest.mark.parametrize("line", (HERE / "healthy_lines.txt").read_text().splitlines(), ids=lambda line: line[:24])
def test_what_a_healthy_library_prints_is_not_why_a_later_error_ended_the_run(line):
    end = 'Traceback (most recent call last):\n  File "own.py", line 3, in <module>\nIndentationFault: x\n'
    assert "Fault: x" in said(line + "\n" + end).cause


@pytest.mark.parametrize(("before", "step"), [("", None), (" 12%|█▏  | 12/100 [00:03<00:22, 4.0it/s]\n", 12)])
def test_a_bar_of_the_data_is_no_step(before, step):
    text = before + "Map: 100%|███| 400/400 [00:00<00:00, 9000 examples/s]\n"
    assert last_step_with_finite_numbers(relevant_log_lines(io.BytesIO(text.encode()))) == step


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("steps: 10 loss: 0.8105 iter time (s): 1.137", 10),
        ("steps: 4/100", 4),
        ("accumulation steps: 4", None),
        ("Iter: [200/391] Time 0.1 Error 0.52", 200),
        ("ValueError: at most 9 batches, at step 3", None),
    ],
)
def test_which_number_of_a_line_is_its_step(line, step):
    assert last_step_with_finite_numbers(relevant_log_lines(io.BytesIO(line.encode()))) == step
