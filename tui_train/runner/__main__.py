"""`python3 RUN/runner.pyz …`: what keeps a run, on a machine that has nothing else of tui-train."""

import os
import signal
import sys

if sys.version_info < (3, 8):  # noqa: UP036 - any Python may be named, and an older one deserves a sentence
    # An f-string, or a type, would be an error of syntax there.
    sys.stderr.write("launch.sh: needs Python 3.8 or newer here, and this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(69)

if __name__ == "__main__":
    # Ctrl-C ends it without a word until it listens to signals.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from runner import compiled  # type: ignore[import-not-found,unused-ignore]
    from runner.system import runner_command  # type: ignore[import-not-found,unused-ignore]

    runner_command.RUNNER_ZIP_PATH = os.path.dirname(os.path.realpath(__file__))
    compiled.import_from_compiled_cache(runner_command.RUNNER_ZIP_PATH, may_write=sys.argv[1:2] == ["launch"])
    from runner.command_line import main  # type: ignore[import-not-found,unused-ignore]

    sys.exit(main(sys.argv[1:], os.path.dirname(runner_command.RUNNER_ZIP_PATH)))
