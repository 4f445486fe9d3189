"""`python3 RUN/runner.pyz …`: what keeps a run, on a machine that has nothing else of tui-train."""

import os
import signal
import sys
import zlib

if sys.version_info < (3, 8):  # noqa: UP036 - any Python may be named, and an older one deserves a sentence
    # An f-string would be an error of syntax there.
    sys.stderr.write("launch.sh: needs Python 3.8 or newer here, and this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(69)

_ZIP_PATH = os.path.dirname(os.path.realpath(__file__))


def _unpacked_modules_folder() -> str:
    """Return where the modules are unpacked in the user's cache, empty where that cannot be.

    A zip keeps no compiled modules, and to compile them takes longer than all else before a training begins.
    """
    try:
        with open(_ZIP_PATH, "rb") as file:
            name = f"{zlib.crc32(file.read()):08x}"
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        parent = os.path.join(cache, "tui-train", "runner")
        folder = os.path.join(parent, name)
        if not os.path.isdir(folder):
            _unpack_modules(parent, name)
        status = os.stat(folder)
    except OSError:
        return ""
    # What others may write to is no place for a program.
    return folder if os.path.isabs(cache) and status.st_uid == os.geteuid() and not status.st_mode & 0o022 else ""


def _unpack_modules(cache_folder: str, name: str) -> None:
    import shutil
    import tempfile
    import zipfile

    os.makedirs(cache_folder, mode=0o700, exist_ok=True)
    beside = tempfile.mkdtemp(dir=cache_folder)
    try:
        with zipfile.ZipFile(_ZIP_PATH) as packed:
            packed.extractall(beside)
        os.rename(beside, os.path.join(cache_folder, name))
    except OSError:
        # Another start was quicker, or the disk is full.
        shutil.rmtree(beside, ignore_errors=True)


def _run_command_line() -> int:
    folder = _unpacked_modules_folder()
    if folder:
        sys.path[0] = folder
    try:
        from runner import program  # type: ignore[import-not-found,unused-ignore]
        from runner.command_line import main  # type: ignore[import-not-found,unused-ignore]
    except EOFError:
        if not folder:
            raise
        # A full disk left a torn file among the compiled modules.
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-X", "utf8", _ZIP_PATH, *sys.argv[1:]])  # noqa: S606
    program.ZIP_PATH = _ZIP_PATH
    return int(main(sys.argv[1:], os.path.dirname(_ZIP_PATH)))


if __name__ == "__main__":
    # Ctrl-C ends it without a word until it listens to signals.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_run_command_line())
