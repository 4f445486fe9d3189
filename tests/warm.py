"""Pythons that have imported already what takes longer than what is tested: the training libraries, or this program.

`training()` and `cli_command()` are executables that replace `python` in a profile or a command. Each start is a
process like any other, with the arguments, environment, parent, limits and files that it was given; but the script
runs in a fork of a server, which has imported the modules. Signals reach the fork; each of the two ends with the other,
and the process with the fork's exit code or signal. What a server cannot stand for, the real Python does: any option
but -u and -B, a variable that an interpreter reads as it starts. Tests of what is imported, of process trees and of
processes that go on after their parents have ended take the real one.

As a program, this is the server: python warm.py FOLDER KIND FILE
"""

import ast
import atexit
import fcntl
import gc
import importlib
import io
import os
import random
import resource
import runpy
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

TRAINING_LIBRARIES = (
    "torch.distributed.run",
    "torch.distributed.checkpoint.state_dict",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.checkpoint",
    "torch.utils.data",
    "accelerate.commands.launch",
    "accelerate.scheduler",
    "accelerate.utils",
    "safetensors.torch",
    "transformers.convert_slow_tokenizer",
    "transformers.hf_argparser",
    "transformers.trainer",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
)
PROJECT_FOLDER = Path(__file__).parents[1]
# The plan of a pretraining sets them, and the libraries read them as they are imported.
OFFLINE_VARIABLES = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
# Read by the libraries of the threads as they are loaded.
THREAD_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


# It starts in a few milliseconds, for it imports only what the interpreter has in itself.
CLIENT_SCRIPT = """\
#!{python} -IS
import _signal, _socket, posix, sys

def real():
    posix.execv({real!r}, [{real!r}, *sys.argv[1:]])

words = sys.argv[1:]
options = set()
while words[:1] in (["-u"], ["-B"]):
    options.add(words.pop(0))
# The first one is make's own: no interpreter reads it.
late = (b"PYTHON", b"PYTHONDONTWRITEBYTECODE", b"PYTHONPATH", b"PYTHONUNBUFFERED")
early = [name for name in posix.environ if name.startswith((b"PYTHON", b"LD_")) and name not in late]
if early or not words or (words[0].startswith("-") and words[0] not in ("-m", "-c")):
    real()
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    server.connect({address!r})
except OSError:
    real()
passed = {{_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2}}
ignored = {{int(number) for number in passed if _signal.getsignal(number) == _signal.SIG_IGN}}
_signal.pthread_sigmask(_signal.SIG_BLOCK, passed)
for number in passed - ignored:
    _signal.signal(number, lambda number, _: server.send(bytes([number])))
mask = posix.umask(0)
posix.umask(mask)
unbuffered = "-u" in options or b"PYTHONUNBUFFERED" in posix.environ
me = (sys.argv[0], unbuffered, words, posix.environ, posix.getcwdb(), posix.getpid(), posix.getppid(), mask, ignored)
told = repr(me).encode()
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([len(told).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
server.sendall(told)
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, passed)
# A signal that comes just before the wait begins is seen at its end.
server.settimeout(1)
code = None
while code is None:
    try:
        code = int(server.recv(8) or 70)
    except TimeoutError:
        pass
if code < 0:
    if -code not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(-code, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -code)
posix._exit(code)
"""


# Where the workers of these tests share the servers: conftest.py chooses it.
server_folders: list[Path] = []
_connected_clients: dict[str, tuple[str, socket.socket]] = {}


def training():
    """Return the Python that has imported the training libraries."""
    return _client_path("training")


def cli_command(*words):
    """Return a command of this program, in a Python that has imported it, and nothing of a screen."""
    return [_client_path("program"), "-m", "tui_train", *map(os.fspath, words)]


def _client_path(kind):
    """Return the executable; who asks first starts the server, which ends with the last worker that asked."""
    if kind not in _connected_clients:
        folder = server_folders[0] / f"warm-{kind}"
        folder.mkdir(exist_ok=True)
        made, address = folder / "python", str(folder / "socket")
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                text = CLIENT_SCRIPT.format(python=Path(sys.executable).resolve(), real=sys.executable, address=address)
                made.write_text(text, encoding="utf-8")
                made.chmod(0o755)
            try:
                held = _connect_to_server(address)
            except OSError:
                # Nobody has asked yet, or all who had are gone: a worker that crashed, or had few tests.
                Path(address).unlink(missing_ok=True)
                _start_server(folder, kind)
                held = _connect_to_server(address)
        _connected_clients[kind] = str(made), held
    return _connected_clients[kind][0]


def _connect_to_server(address):
    """Return a connection to the server, which keeps it there."""
    held = socket.socket(socket.AF_UNIX)
    try:
        held.connect(address)
        held.sendall(bytes(8))
    except OSError:
        held.close()
        raise
    return held


def close_servers():
    """Let go of the servers."""
    while _connected_clients:
        _connected_clients.popitem()[1][1].close()


def _start_server(folder, kind):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_"))}
    read, write = os.pipe()
    os.set_inheritable(write, True)
    log = str(folder / "log")
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    files += [(os.POSIX_SPAWN_OPEN, number, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for number in (1, 2)]
    command = [sys.executable, __file__, str(folder), kind, str(write)]
    os.posix_spawn(
        sys.executable, command, environment | OFFLINE_VARIABLES | THREAD_VARIABLES, file_actions=files, setsid=True
    )
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "ready", (folder / "log").read_text()


class ForkServer:
    """Server that forks for each start that a client asks for, and reports its end to that client."""

    def __init__(self, address):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen(128)
        self.chosen = selectors.DefaultSelector()
        self.chosen.register(self.listener, selectors.EVENT_READ, (None, None))
        self.holders = 0

    def serve(self):
        """Serve until the last holder is gone; in a fork, return what it shall run."""
        while True:
            for key, _ in self.chosen.select():
                client, pid = key.data
                if client is None:
                    asked = self.accept()
                    if asked:
                        return asked
                elif key.fileobj is client:
                    self.handle_client_data(client, pid)
                else:
                    self.report_fork_end(client, pid, key.fileobj)

    def accept(self):
        client, _ = self.listener.accept()
        try:
            head, files, _, _ = socket.recv_fds(client, 8, 3)
            told = b""
            while len(told) < int.from_bytes(head, "big") and (part := client.recv(65536)):
                told += part
        except OSError:
            client.close()
            return None
        if not told:
            self.holders += 1
            self.chosen.register(client, selectors.EVENT_READ, (client, 0))
            return None
        pid = os.fork()
        if not pid:
            self.chosen.close()
            client.close()
            self.listener.close()
            return told, files
        for file in files:
            os.close(file)
        self.chosen.register(client, selectors.EVENT_READ, (client, pid))
        self.chosen.register(os.pidfd_open(pid), selectors.EVENT_READ, (client, pid))
        return None

    def handle_client_data(self, client, pid):
        """Pass signals on; a client that is gone takes its fork along."""
        if client.fileno() < 0:
            # Its fork's end came in the same look, and was told already.
            return
        try:
            told = client.recv(64)
        except OSError:
            told = b""
        if not told:
            self.chosen.unregister(client)
        if not pid:
            self.holders -= not told
            if not self.holders:
                sys.exit()
        elif not told:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for number in told:
            os.kill(pid, number)

    def report_fork_end(self, client, pid, watched):
        """Tell a client how its fork ended."""
        self.chosen.unregister(watched)
        os.close(watched)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(KeyError):
            self.chosen.unregister(client)
        with suppress(OSError):
            client.sendall(str(code).encode())
        client.close()


def become_client_process(kind, told, files):
    """Make this fork what the client was started as; return what runs it."""
    executable, unbuffered, words, environment, folder, pid, parent, mask, ignored = ast.literal_eval(told.decode())
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.umask(mask)
    for name in [name for name in dir(resource) if name.startswith("RLIMIT_")]:
        limit = getattr(resource, name)
        resource.setrlimit(limit, resource.prlimit(pid, limit))
    os.chdir(folder)
    os.environ.clear()
    os.environb.update(environment)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN if signal.SIGINT in ignored else signal.default_int_handler)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        raw = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115 - it lasts as long as this
        at_once = unbuffered or number == 2 or os.isatty(number)
        errors = "backslashreplace" if number == 2 else "strict"
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=at_once, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if kind == "training":
        # What a launcher starts is to be as quick.
        sys.executable = executable
    # Of -B as well, which only those ask for whose folder is not to be written to.
    sys.dont_write_bytecode = True
    os.getppid = lambda: parent
    random.seed()
    is_module, is_code = words[0] == "-m", words[0] == "-c"
    sys.argv = words[1:] if is_module else ["-c", *words[2:]] if is_code else words
    sys.path[0] = str(Path.cwd()) if is_module else "" if is_code else str(Path(words[0]).resolve().parent)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))))
    load_sitecustomize()
    if is_module:
        if not hasattr(sys.modules.get(words[1]), "__path__"):
            sys.modules.pop(words[1], None)
        return lambda: runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    if is_code:
        return lambda: exec(words[1], vars(sys.modules["__main__"]))  # noqa: S102 - as python -c does
    return lambda: runpy.run_path(words[0], run_name="__main__")


def load_sitecustomize():
    """Do what an interpreter does with PYTHONPATH; what waits for an import that is done already is called now."""
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[1:1] = folders
    if not any(Path(folder, "sitecustomize.py").is_file() for folder in folders):
        return
    sys.modules.pop("sitecustomize", None)
    importlib.import_module("sitecustomize")
    for finder in [finder for finder in sys.meta_path if hasattr(finder, "acts_by_module")]:
        for name, acts in finder.acts_by_module.items():
            for act in acts if name in sys.modules else ():
                patch_all_references(sys.modules[name], act)


def patch_all_references(module, act):
    """Have a module changed that others took functions from, as they would take them had they been imported later."""
    before = dict(vars(module))
    act(module)
    for name, value in [(name, value) for name, value in vars(module).items() if before.get(name) is not value]:
        for other in [*sys.modules.values()]:
            if name in before and getattr(other, "__dict__", {}).get(name) is before[name]:
                setattr(other, name, value)


def program_modules():
    """Return the modules of this program that need no screen."""
    paths = [path.relative_to(PROJECT_FOLDER) for path in (PROJECT_FOLDER / "tui_train").rglob("*.py")]
    kept = [path for path in paths if not {"programs", "__main__.py"} & {*path.parts}]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in kept]


def main(folder, kind, ready):
    """Import, say so, and serve; what is asked for runs after all of the server's own frames are left."""
    if kind == "program":
        sys.path.insert(0, str(PROJECT_FOLDER))
    for name in TRAINING_LIBRARIES if kind == "training" else program_modules():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    server = ForkServer(f"{folder}/socket")
    os.write(ready, b"ready")
    os.close(ready)
    return become_client_process(kind, *server.serve())


def run_and_exit(run):
    """Run it and end as an interpreter does, but for taking apart all that was imported, which takes longest."""
    code = 0
    try:
        run()
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
        if asked.code is not None and not isinstance(asked.code, int):
            sys.stderr.write(f"{asked.code}\n")
    except BaseException as error:  # noqa: BLE001 - it is shown, as an interpreter would
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in {__file__, runpy.__file__, "<frozen runpy>"}:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 255)


if __name__ == "__main__":
    run_and_exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
