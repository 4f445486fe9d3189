"""`python3 RUN/supervisor …`: the folder as a program, on a machine that has nothing else of tui-train."""

import os
import signal
import sys

if sys.version_info < (3, 8):  # noqa: UP036 - any Python may be named, and an older one deserves a sentence
    # An f-string would be an error of syntax there.
    sys.stderr.write("launch.sh: needs Python 3.8 or newer here, and this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(69)

# The run folder comes last on the path, so that no file of the user's takes the place of a standard module.
_FOLDER = os.path.dirname(os.path.realpath(__file__))
sys.path = [*(entry for entry in sys.path if os.path.realpath(entry) != _FOLDER), os.path.dirname(_FOLDER)]

if __name__ == "__main__":
    # Ctrl-C ends it without a word until it listens to signals.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from supervisor.command import main  # type: ignore[import-not-found,unused-ignore]

        sys.exit(main(sys.argv[1:], os.path.dirname(_FOLDER)))
    except EOFError:
        # A full disk left a torn file in the cache of compiled modules.
        if sys.flags.dont_write_bytecode:
            raise
        import shutil

        shutil.rmtree(os.path.join(_FOLDER, "__pycache__"), ignore_errors=True)
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-B", "-X", "utf8", _FOLDER, *sys.argv[1:]])  # noqa: S606
