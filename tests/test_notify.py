"""What tells the user of a run's end: a command and a POST, of real runs that nobody watches."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from support import bash, exported, facts, plain_environment, profile, sleeping, until

from tui_train.runs.start import start
from tui_train.runs.status import status
from tui_train.runs.stop import stop

pytestmark = pytest.mark.training


def run_of(tmp_path, *words, **values):
    """A run folder whose training sleeps for a moment."""
    values = {f"notify.{name}": value for name, value in values.items()}
    return exported(tmp_path / "my-run", profile(values, sleeping("--seconds=0.1", *words)), facts())[0]


@pytest.fixture
def server():
    """A server that keeps what is posted to it, and answers with the code in the path."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(int(self.path.rpartition("/")[2]))
            self.end_headers()

        def log_message(self, *_words):
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    made.got = got
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_a_command_gets_the_run_and_its_state(tmp_path):
    out = tmp_path / "told"
    words = ("sh", "-c", 'printf "%s|%s|%s|%s" "$TUI_TRAIN_RUN" "$TUI_TRAIN_STATE" "$TUI_TRAIN_EXIT_CODE" "$1" > "$2"')
    run = run_of(tmp_path, command=(*words, "sh", "two words; $(false)", str(out)))
    assert bash(run).returncode == 0
    assert out.read_text() == f"{run.path}|finished|0|two words; $(false)"


def test_a_run_that_nobody_watches_tells_when_it_is_stopped(tmp_path, server):
    address = f"http://127.0.0.1:{server.server_port}/200"
    run = run_of(tmp_path, "--seconds=600", webhook=address)
    start(run)
    until(lambda: status(run).live and status(run).attempts, 60)
    assert stop(run).state == "stopped"
    until(lambda: server.got, 60)
    assert (server.got[0]["run"], server.got[0]["state"]) == ("my-run", "stopped")
    assert server.got[0]["text"] == server.got[0]["content"] == "my-run stopped"


def test_the_address_may_be_that_of_a_variable(tmp_path, server):
    run = run_of(tmp_path, webhook="$MY_HOOK")
    address = f"http://127.0.0.1:{server.server_port}/200"
    done = bash(run, env=plain_environment(MY_HOOK=address))
    assert done.returncode == 0
    assert len(server.got) == 1
    assert address not in run.plan_file.read_text() + run.profile.read_text()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"command": ("/nowhere/at-all",)}, "notify.command: "),
        ({"command": ("sh", "-c", "echo why >&2; exit 3")}, "notify.command ended with exit code 3: why"),
        ({"webhook": "$MY_HOOK"}, "notify.webhook: $MY_HOOK is not set"),
        ({"webhook": "file:///etc/passwd"}, "notify.webhook: the address is no http:// or https:// address"),
        ({"webhook": "http://127.0.0.1:9/secret"}, "notify.webhook: "),
    ],
    ids=["no program", "exit code", "no variable", "no address", "no server"],
)
def test_what_fails_is_said_and_changes_nothing(tmp_path, values, words):
    run = run_of(tmp_path, **values)
    done = bash(run)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0
    assert words in said
    assert "secret" not in said
    assert status(run).state == "finished"


def test_an_answer_of_a_server_that_refuses_is_said(tmp_path, server):
    done = bash(run_of(tmp_path, webhook=f"http://127.0.0.1:{server.server_port}/404"))
    assert b"notify.webhook: the server answered 404" in done.stdout + done.stderr


def test_another_start_does_not_wait_for_the_command(tmp_path):
    run = run_of(tmp_path, command=("sleep", "20"))
    start(run)
    until(lambda: status(run).state == "finished", 60)
    begin = time.monotonic()
    start(run, resume=True)
    until(lambda: len(status(run).attempts) == 2 and status(run).state == "finished", 60)
    assert time.monotonic() - begin < 15
