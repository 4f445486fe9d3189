"""A log's lines as Run shows them: values in columns, noise dimmed, all else as it is written."""

import pytest

from tui_train.runner.logs.lines import StyledPart
from tui_train.views.readable_log_lines import line_shows_cause, readable_line_parts


def read(text):
    return readable_line_parts([StyledPart(text)])


def text_of(parts):
    return "".join(part.text for part in parts).rstrip()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("{'loss': '2.303', 'grad_norm': '0.51', 'learning_rate': '4.5e-05', 'epoch': '0.12'}",
         "epoch 0.12       loss 2.303      grad_norm 0.51       learning_rate 4.5e-05"),
        ("{'loss': 2.3026100000, 'num_tokens': 123456.0, 'lr': 0.0}", "loss 2.303      num_tokens 123456.0   lr 0.0"),
        ("{'loss': 1, 'id': '00123', 'hash': '123e456789'}", "loss 1          id 00123      hash 123e456789"),
        ('{"step": 10, "val/loss": nan}', "step 10         val/loss nan"),
        ("[rank1]: {'loss': 0.5, 'mode': 'fast'}", "[rank1]: loss 0.5        mode fast"),
        ("{'loss': '1,234', 'epoch': 2}", "epoch 2          loss 1,234"),
        ("{'loss':0.5,'epoch':1}", "epoch 1          loss 0.5"),
    ],
)  # fmt: skip
def test_values_stand_in_columns_what_one_trains_for_first(line, shown):
    assert text_of(read(line)) == shown


def test_values_of_equal_names_stand_below_each_other():
    one, two = (text_of(read(f"{{'loss': {loss}, 'learning_rate': {rate}, 'epoch': {epoch}}}"))
                for loss, rate, epoch in ((12.3456, 1e-5, 0.1), (0.5, 1.23456e-10, 12.25)))  # fmt: skip
    assert [one.index(name) for name in ("loss", "learning_rate")] == [
        two.index(name) for name in ("loss", "learning_rate")
    ]


@pytest.mark.parametrize(
    "line",
    ["", "plain words", "{'a': 'b'}", "{'loss': 0.5, 'x': {'y': 1}}", "{'loss': 0.5} and more", "{}", "{'loss': 0.5",
     "{'loss': [1, 2]}", "step 1 loss 2", "ValueError: {'loss': 1}", "{" + "'a': 1, " * 400 + "}",
     "ValueError: `x` is deprecated, use y", "UserWarning: the data has 3 rows that are empty", "{" + "'" * 1900],
)  # fmt: skip
def test_other_lines_stay_as_they_are(line):
    assert read(line) == (StyledPart(line),)


@pytest.mark.parametrize(
    "line",
    [
        "/x.py:3: FutureWarning: `y` is old.",
        # bitsandbytes 0.49, backends/cpu/ops.py, and transformers 5.23, integrations/hub_kernels.py
        "Failed to load CPU gemm_4bit_forward from kernels-community: No module named 'kernels'. Please make sure you",
        "Failed to load kernel flash-attn: no build",
    ],
)
def test_known_noise_is_dimmed(line):
    assert [part.colour for part in read(line)] == ["2"]
    assert read(f"ImportError: {line}") == (StyledPart(f"ImportError: {line}"),)


def test_a_colour_of_its_own_is_kept():
    coloured = (StyledPart("step 1 ", "1;32"), StyledPart("loss 2"))
    assert readable_line_parts(coloured) == coloured


def test_the_line_that_shows_the_cause_is_found_behind_its_rank():
    line = "RuntimeError: CUDA error: an illegal memory access was encountered"
    written = [StyledPart("[rank1]: "), StyledPart(line, "31")]
    assert line_shows_cause(written, line)
    assert not line_shows_cause(written, "another error")
    assert not line_shows_cause([StyledPart("KeyError: 12")], "KeyError: 1")
    assert not line_shows_cause([StyledPart("    raise AssertionError(x)")], "AssertionError")
    assert not line_shows_cause([StyledPart("Error")], "Error")
    assert not line_shows_cause(written, "")
