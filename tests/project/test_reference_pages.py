"""The pages and the man page that are made from the program."""

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from tui_train.checks import CHECKS

ROOT = Path(__file__).parents[2]
TEXTS = runpy.run_path(str(ROOT / "assets" / "reference_pages.py"))["reference_texts"]()


@pytest.mark.parametrize("path", TEXTS)
def test_what_is_made_from_the_code_is_that_of_the_code(path):
    assert (ROOT / path).read_text(encoding="utf-8") == TEXTS[path], "run: python assets/reference_pages.py"


def test_the_page_of_the_checks_has_a_row_for_each():
    page = TEXTS["docs/checks.md"]
    assert page.count("\n| ") == len(CHECKS) + page.count("\n| Check |")


def test_no_cell_breaks_its_table():
    for path, text in TEXTS.items():
        if path.endswith(".md"):
            tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
            for rows in tables:
                assert len({row.replace("\\|", "").count("|") for row in rows}) == 1, path


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
def test_the_man_page_is_typeset_without_a_complaint():
    page = ROOT / "assets" / "tui-train.1"
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True, check=True)
    assert not done.stderr
    assert "tui-train" in done.stdout
