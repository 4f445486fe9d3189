"""What the tests of screens share."""

import pytest
from pilot import THREE_CARD_MACHINE


@pytest.fixture
def seed(machine):
    """Make the machine one with two cards that train well, and one that does not."""
    machine(THREE_CARD_MACHINE)
