"""One thing that is wrong, and what the checks say of it."""

from typing import NamedTuple

from tui_train.facts.types import Facts


class Fault(NamedTuple):
    """One thing that is wrong, and what the checks say of it."""

    values: dict  # of the profile
    facts: Facts
    level: str
    key: str
    part: str  # of the message
    fix: bool  # the finding offers a Change, which fixes it
    machine: bool  # it is the machine that lacks something

    def __str__(self):
        return f"{self.key}: {self.part}"

    def assert_told_by(self, finding):
        """Check that a finding is of this fault, and reads as all do."""
        assert (finding.level, finding.key, finding.machine) == (self.level, self.key, self.machine)
        assert self.part in finding.message
        assert finding.message.isprintable()
        assert finding.remedy.endswith((".", "?"))
        assert (finding.change is not None) == self.fix


def error(values, where, key, part, *, fix=False, machine=False):  # noqa: PLR0913
    return Fault(values, where, "error", key, part, fix, machine)


def warning(values, where, key, part, *, fix=False, machine=False):  # noqa: PLR0913
    return Fault(values, where, "warning", key, part, fix, machine)


def note(values, where, key, part, *, fix=False, machine=False):  # noqa: PLR0913
    return Fault(values, where, "note", key, part, fix, machine)
