"""All other machines of a training, asked side by side before it starts: files are brought there, and answers back."""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import select
import socket
import subprocess
import tarfile
import threading
import time
from typing import Any, Sequence

from ..run_folder import supervisor_plan
from ..run_folder.supervisor_plan import SupervisorPlan
from ..system import runner_command, untrusted_json
from ..system.processes import machine_and_boot_identity
from . import node_network, ssh

_MAX_ANSWER_SECONDS = 30.0
_PIECE_BYTES = 1 << 16
_MAX_ANSWER_BYTES = 1 << 20  # bytes of an answer


def main(request_json: str, run_dir: str) -> int:
    """Ask each of the other machines as a question says, and print their answers as JSON, a list in their order."""
    request: dict[str, Any] = json.loads(request_json)
    plan = supervisor_plan.read_plan(run_dir)
    answers: list[dict[str, Any]] = [{} for _ in plan.hosts[1:]]
    links: list[subprocess.Popen[bytes]] = []
    if request["checkpoint"]:
        question, files = _question_and_checkpoint_files(request["checkpoint"])
        question["only_look"] = request["only_look"]
    else:
        question, files = _question_and_run_files(request, plan, run_dir)
    with _token_server(plan.port, question.get("token", "")) as random_port:
        # Where a network is chosen, NCCL and Gloo do not use the one by which the first machine is reached.
        if random_port and not (plan.chooses_network_interface or node_network.chooses_network_interface(os.environ)):
            question["random_port"] = random_port

        def ask(rank: int) -> None:
            ranked = {**question, "rank": rank}
            answers[rank - 1] = _ask_machine(plan.hosts[rank], request["python"], ranked, files, links)

        threads = [threading.Thread(target=ask, args=(rank,), daemon=True) for rank in range(1, len(plan.hosts))]
        for thread in threads:
            thread.start()
        # A checkpoint may be large; a link that is gone ends by itself.
        deadline = time.monotonic() + (float("inf") if request["checkpoint"] else _MAX_ANSWER_SECONDS)
        for thread in threads:
            thread.join(max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX)))
    no_answer = {"problem": f"gave no answer in {_MAX_ANSWER_SECONDS:.0f} s: check that it is on, and its network"}
    os.write(1, (json.dumps([answer or no_answer for answer in answers]) + "\n").encode())
    for child in links:
        if child.poll() is None:
            child.kill()
    return 0


def _ask_machine(
    host: str, python: str, question: dict[str, Any], files: dict[str, str], links: list[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """Return what a host answers, and over which connection; one of a login by hand serves where there is no other."""
    answer: dict[str, Any] = {}
    for connection in dict.fromkeys(("none", ssh.login_control_path_pattern(os.environ))):
        link = _SshLink(host, python, question, files, connection)
        links.append(link.child)
        answer = {**link.exchange(), "connection": connection}
        if not link.login_would_help:
            break
    return answer


def _question_and_run_files(
    request: dict[str, Any], plan: SupervisorPlan, run_dir: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the question about a run folder, and the files that a machine needs which does not see it."""
    names = [request["script"], supervisor_plan.PLAN_FILE_NAME, runner_command.RUNNER_ZIP_NAME, *plan.files]
    files = {name: os.path.join(run_dir, name) for name in names}
    chosen = os.environ.get(node_network.FIRST_ADDRESS_VARIABLE) or plan.address
    question = {
        "what": "run",
        "folder": run_dir,
        "mark": request["mark"],
        "token": request["mark"],
        "port": plan.port,
        "names": [chosen or node_network.without_login_user(plan.hosts[0])],
        "ask": not chosen,
        "identity": machine_and_boot_identity(),
    }
    return question, {name: path for name, path in files.items() if os.path.isfile(path)}


def _question_and_checkpoint_files(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the question about a checkpoint, and its files."""
    files: dict[str, str] = {}
    if os.path.isdir(path):
        folder = path
        for top, _, names in os.walk(path):
            files.update((os.path.relpath(os.path.join(top, name), path), os.path.join(top, name)) for name in names)
    else:
        folder = os.path.dirname(path)
        files[os.path.basename(path)] = path
    stats = {name: os.stat(file) for name, file in files.items()}
    seen = {name: [stat.st_size, int(stat.st_mtime)] for name, stat in stats.items()}
    return {"what": "checkpoint", "folder": folder, "files": seen}, files


class _SshLink:
    """An ssh to a machine on which receive.py runs, and what it is asked."""

    def __init__(
        self, host: str, python: str, question: dict[str, Any], files: dict[str, str], connection: str
    ) -> None:
        # Of the runner itself: its rooms may have come from the compiled modules, which have no text.
        receive = pkgutil.get_data(__name__.rsplit(".", 2)[0], "machines/receive.py")
        assert receive, "it is beside this module"  # noqa: S101 - for the type
        words = ssh.ssh_command(host, (python, "-I", "-S", "-X", "utf8", "-c", receive.decode()), connection)
        self.host, self.question, self.files, self.login_would_help = host, question, files, False
        self.child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=-1
        )

    def exchange(self) -> dict[str, Any]:
        """Return its answers, or its `problem`."""
        with self.child, contextlib.suppress(BrokenPipeError):
            return self._exchange()
        return {"problem": "the link was lost"}

    def _exchange(self) -> dict[str, Any]:
        stdin, stderr = self.child.stdin, self.child.stderr
        assert stdin is not None  # noqa: S101 - for the type
        assert stderr is not None  # noqa: S101 - for the type
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(self.question).encode() + b"\n")
            stdin.flush()
        answer = self._next_answer()
        if answer is None:
            error = stderr.read(_PIECE_BYTES)
            code = self.child.wait()
            if code in (126, 127):
                return {"problem": "no_python"}
            self.login_would_help = ssh.login_would_help(error)
            return {"problem": f"does not answer: {ssh.login_advice(self.host, error)}"}
        answer["off"] = float(answer.pop("clock", 0.0)) - time.time()
        if answer.get("problem") or self.question.get("only_look"):
            return answer
        if not answer["there"]:
            with tarfile.open(fileobj=stdin, mode="w|", dereference=True, format=tarfile.PAX_FORMAT) as tar:
                for name, path in self.files.items():
                    tar.add(path, arcname=name, recursive=False)
        stdin.close()
        last = self._next_answer()
        if last is None:
            return {"problem": f"does not answer: {ssh.ssh_failure_advice(stderr.read(_PIECE_BYTES))}"}
        if last.get("listens"):
            address, port = last["listens"]
            token = str(self.question["token"]).encode()
            last["reached"] = bool(node_network.own_address_towards(str(address), int(port), token))
        return {**answer, **last}

    def _next_answer(self) -> dict[str, Any] | None:
        """Return the next line that is an answer: a login shell there may print others."""
        lines = self.child.stdout
        assert lines is not None  # noqa: S101 - for the type
        while line := lines.readline(_MAX_ANSWER_BYTES):
            with contextlib.suppress(untrusted_json.Unparsable):
                answer: dict[str, Any] = untrusted_json.parse_json(line)
                return answer
        return None


@contextlib.contextmanager
def _token_server(port: int, token: str) -> Any:
    """Answer with the token whoever connects meanwhile to the port, or to a random one, which is given; 0: no token."""
    if not token:
        yield 0
        return
    with node_network.listen_on_port(port) as server, node_network.listen_on_port(0) as random_server:
        closing = threading.Event()
        servers = (server, random_server)
        threading.Thread(target=_serve_token, args=(servers, token.encode(), closing), daemon=True).start()
        yield random_server.getsockname()[1]
        closing.set()


def _serve_token(servers: Sequence[socket.socket], token: bytes, closing: threading.Event) -> None:
    while not closing.is_set():
        for server in select.select(servers, [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                node_network.send_token_to_next_client(server, token)
