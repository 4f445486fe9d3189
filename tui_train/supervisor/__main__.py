"""`python3 RUN/supervisor …`: the folder as a program, on a machine that has nothing else of tui-train."""

import os
import sys

if sys.version_info < (3, 8):  # noqa: UP036 - any Python may be named, and an older one deserves a sentence
    # An f-string would be an error of syntax there.
    sys.stderr.write("launch.sh: needs Python 3.8 or newer here, and this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(69)

# The run folder comes last on the path, so that no file of the user's takes the place of a standard module.
_FOLDER = os.path.dirname(os.path.realpath(__file__))
sys.path = [*(entry for entry in sys.path if os.path.realpath(entry) != _FOLDER), os.path.dirname(_FOLDER)]

if __name__ == "__main__":
    from supervisor.command import main  # type: ignore[import-not-found,unused-ignore]

    sys.exit(main(sys.argv[1:], os.path.dirname(_FOLDER)))
