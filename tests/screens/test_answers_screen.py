"""Answers of what learns from rewards: read back from the table in the log, and shown on Run."""

import pytest
from pilot import finished_run, open_wizard, screen_text, until_true, wait_for_text
from tui_train.screens.run.answer_table import answer_lines, newest_answers

from tui_train.runs.logs.tail import LogTail

# What TRL 1.16 prints of two answers, with rich 15.0 and no terminal.
TABLE = """\
╭────────────────────────────────── Step 42 ───────────────────────────────────╮
│ ┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┓ │
│ ┃ Prompt          ┃ Completion      ┃ letters ┃ my_long_rewar… ┃ Advantage ┃ │
│ ┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━━━━┩ │
│ │ USER            │ ASSISTANT       │    0.50 │            nan │      0.10 │ │
│ │ Say 3 in words, │ three           │         │                │           │ │
│ │ and then tell   │                 │         │                │           │ │
│ │ me a story |    │ Once upon a     │         │                │           │ │
│ │ about │ bars    │ time there was  │         │                │           │ │
│ │                 │ a number        │         │                │           │ │
│ │                 │ [bold]markup[/… │         │                │           │ │
│ │                 │ \x1b[31mred and a   │         │                │           │ │
│ │                 │ verylongwordth… │         │                │           │ │
│ │                 │ 😀 end          │         │                │           │ │
│ ├─────────────────┼─────────────────┼─────────┼────────────────┼───────────┤ │
│ │ これは          │ 数字三          │    1.00 │         -12.25 │     -0.10 │ │
│ │ とても長い文章… │                 │         │                │           │ │
│ │ とても長い文章… │                 │         │                │           │ │
│ └─────────────────┴─────────────────┴─────────┴────────────────┴───────────┘ │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
NARROW_TABLE = """\
╭─────────────────── Step 3 ────────────────────╮
│ ┏━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━┓ │
│ ┃ Prompt ┃ Completion ┃ letters ┃ Advantage ┃ │
│ ┡━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━┩ │
│ │ USER   │ ASSISTANT  │   -0.20 │     -1.49 │ │
│ │ Say 0  │ kuN-NW     │         │           │ │
│ └────────┴────────────┴─────────┴───────────┘ │
╰───────────────────────────────────────────────╯
"""
METRICS = str({"loss": 0.5, "reward": 0.75, "step": 42}) + "\n"
WIDE_HEADS = ("Prompt", "Completion", "letters", "my_long_rewar…", "Advantage")


def read_table(tmp_path, text):
    log = tmp_path / "log"
    log.write_text(text)
    return newest_answers(LogTail(log).remaining_lines())


def test_the_newest_whole_table_is_read_back(tmp_path):
    older, unfinished = TABLE.replace("Step 42", "Step 41"), TABLE.replace("Step 42", "Step 43")[:900]
    table = read_table(tmp_path, f"{older}{METRICS} 70%|██ | 42/60 [00:01<00:01]{TABLE}{METRICS}{unfinished}\n")
    assert (table.step, table.names, table.lines, table.is_cut) == ("42", WIDE_HEADS, (), True)
    (prompt, answer, *scores), (second_prompt, second_answer, *second_scores) = table.rows
    assert prompt == "USER\nSay 3 in words, and then tell me a story | about │ bars"
    # An escape sequence is not shown, breaks of the answer's own are kept, those of the table are not.
    assert answer == (
        "ASSISTANT\nthree\n\nOnce upon a time there was a number [bold]markup[/… red and a verylongwordth… 😀 end"
    )
    assert (second_prompt, second_answer) == ("これは とても長い文章… とても長い文章…", "数字三")
    assert [each.strip() for each in scores + second_scores] == ["0.50", "nan", "0.10", "1.00", "-12.25", "-0.10"]
    shown = answer_lines(table).plain
    assert "Answer 1 of 2   letters 0.50   my_long_rewar… nan   Advantage 0.10\nPrompt\nUSER\n" in shown
    assert "COLUMNS=200" in shown


def test_the_role_stays_above_what_it_says_in_a_narrow_column(tmp_path):
    table = read_table(tmp_path, f"100%|██████████| 3/3 [00:40<00:00, 13.38s/it]{NARROW_TABLE}")
    assert table.rows[0][:2] == ("USER\nSay 0", "ASSISTANT\nkuN-NW")


def test_lines_of_other_processes_in_a_table_are_left_out(tmp_path):
    noisy = "".join(f"[rank0]:{line}\n[rank1]: a warning\n" for line in TABLE.splitlines())
    assert read_table(tmp_path, noisy) == read_table(tmp_path, TABLE)


@pytest.mark.parametrize(
    "damaged",
    [TABLE.replace("letters ┃", "letters ."), TABLE.replace("┡", "X"), TABLE.replace("数字三", "数字│三")],
    ids=["heads", "rule", "bars"],
)
def test_a_table_whose_cells_cannot_be_told_apart_is_shown_as_it_is(tmp_path, damaged):
    table = read_table(tmp_path, damaged)
    assert table.rows == ()
    assert "me a story |    │ Once upon a     │" in answer_lines(table).plain


def test_an_answer_cannot_pretend_to_be_a_table(tmp_path):
    title = "╭─ Step 7 ─╮"
    assert read_table(tmp_path, TABLE.replace("three       ", title)).step == "42"
    assert read_table(tmp_path, f"{title}\n{METRICS}") is None


async def test_answers_are_shown_and_the_newest_follow(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text(METRICS + TABLE)
    async with open_wizard("m", run=run) as pilot:
        await wait_for_text(pilot, "Run › Metrics", "reward  0.75", "Answers")
        await pilot.press("a")
        await wait_for_text(
            pilot, "Run › Answers", "step 42", "Answer 1 of 2   letters 0.50", "number [bold]markup[/…", "数字三"
        )
        with run.attempt_log(2).open("a") as log:
            log.write(TABLE.replace("Step 42", "Step 43"))
        pilot.app.screen._read_answers()
        await wait_for_text(pilot, "step 43")
        await pilot.press("escape")
        await wait_for_text(pilot, "Run › Metrics")


async def test_the_key_for_answers_is_named_where_none_were_printed(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text(METRICS)
    async with open_wizard("m", run=run) as pilot:
        await wait_for_text(pilot, "reward  0.75")
        await pilot.press("a")
        await wait_for_text(pilot, "No answers in this log. With Printed answers on Recipe")


async def test_what_writes_no_answers_offers_none(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text(METRICS.replace("reward", "kl"))
    async with open_wizard("m", run=run) as pilot:
        await wait_for_text(pilot, "kl  0.75")
        screen = pilot.app.screen
        await pilot.press("a")
        await until_true(pilot, lambda: "kl  0.75" in screen_text(pilot))
        assert pilot.app.screen is screen
