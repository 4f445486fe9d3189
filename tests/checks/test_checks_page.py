"""The page of the checks, which is made from them."""

import runpy
from pathlib import Path

from tui_train.checks import CHECKS

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_checks_is_that_of_the_code():
    page = (ROOT / "docs" / "checks.md").read_text()
    assert page == runpy.run_path(str(ROOT / "assets" / "checks_page.py"))["checks_page"](), (
        "run: python assets/checks_page.py"
    )
    assert page.count("\n| ") == len(CHECKS) + page.count("\n| Check |")
