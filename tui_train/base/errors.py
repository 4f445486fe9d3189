"""The errors that users see, each with its remedy and exit code.

    TuiTrainError
    ├── BadInput      65  a profile, value or file that cannot be used
    ├── NotFound      66  a run, profile or file that does not exist
    ├── Unavailable   69  the machine lacks something, or the plan cannot run here
    │   └── NoAnswer       a host or Slurm has not said whether it did what it was asked
    ├── StartInterrupted  a signal came while a run started: 128 and its number
    └── CannotWrite   73  no permission, no space, not the user's own folder
        └── AlreadyExists  something is there, and nobody allowed to overwrite it

The numbers are those of sysexits.h, so that they do not meet the exit codes of a training.
"""


class TuiTrainError(Exception):
    """The fault and its cause (`message`), and what to do (`remedy`)."""

    exit_code = 70

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class BadInput(TuiTrainError):
    """Input of the user that cannot be used."""

    exit_code = 65


class NotFound(TuiTrainError):
    """Something that the user named does not exist."""

    exit_code = 66


class Unavailable(TuiTrainError):
    """This machine cannot do what was asked."""

    exit_code = 69


class NoAnswer(Unavailable):
    """A host, or a command of Slurm, that may have done its work, but has not said so."""


class StartInterrupted(TuiTrainError):
    """A signal interrupted the start of a run, which is not running; `exit_code` is 128 plus the signal number."""

    def __init__(self, message: str, remedy: str, exit_code: int) -> None:
        super().__init__(message, remedy)
        self.exit_code = exit_code


class EndedBySignal(SystemExit):
    """A signal ended this program; `code` is 128 plus the signal number."""


class CannotWrite(TuiTrainError):
    """A file or folder could not be written, or would be overwritten."""

    exit_code = 73


class AlreadyExists(CannotWrite):
    """A file would be overwritten without permission."""
