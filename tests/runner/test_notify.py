"""What tells the user of a run's end: a command and a POST, of real runs that nobody watches."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support import export_run, facts, plain_environment, profile, run_launch_script, sleeper_profile, wait_until

from tui_train.actions import last_profile
from tui_train.base import webhook
from tui_train.base.app_paths import last_profile_file
from tui_train.base.errors import BadInput
from tui_train.cli.plans import plans
from tui_train.profile import fields, secret_values, store
from tui_train.runner import notify
from tui_train.runs import archive
from tui_train.runs.local_start import start_run
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

pytestmark = pytest.mark.training


def run_of(tmp_path, *words, **values):
    """A run folder whose training sleeps for a moment."""
    values = {f"notify.{name}": value for name, value in values.items()}
    return export_run(tmp_path / "my-run", profile(values, sleeper_profile("--seconds=0.1", *words)), facts())[0]


def private(folder, text, mode=0o600):
    """A file with the address of a webhook."""
    path = folder / "hook"
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return str(path)


def address_of(server, code=200):
    return f"http://127.0.0.1:{server.server_port}/{code}"


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
    assert run_launch_script(run).returncode == 0
    assert out.read_text() == f"{run.path}|finished|0|two words; $(false)"


def test_a_run_that_nobody_watches_tells_when_it_is_stopped(tmp_path, server):
    run = run_of(tmp_path, "--seconds=600", webhook=private(tmp_path, address_of(server)))
    start_run(run)
    wait_until(lambda: read_status(run).is_live and read_status(run).attempts, 60)
    assert stop_local_run(run).state == "stopped"
    wait_until(lambda: server.got, 60)
    assert (server.got[0]["run"], server.got[0]["state"]) == ("my-run", "stopped")
    assert server.got[0]["text"] == server.got[0]["content"] == "my-run stopped"


def test_the_address_may_be_that_of_a_variable(tmp_path, server):
    run = run_of(tmp_path, webhook="$MY_HOOK")
    address = address_of(server)
    done = run_launch_script(run, env=plain_environment(MY_HOOK=address))
    assert done.returncode == 0
    assert len(server.got) == 1
    assert address not in run.plan_file.read_text() + run.profile_file.read_text()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"command": ("/nowhere/at-all",)}, "notify.command: "),
        ({"command": ("sh", "-c", "echo why >&2; exit 3")}, "notify.command ended with exit code 3: why"),
    ],
    ids=["no program", "exit code"],
)
def test_what_fails_is_said_and_changes_nothing(tmp_path, values, words):
    run = run_of(tmp_path, **values)
    done = run_launch_script(run)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0
    assert words in said
    assert read_status(run).state == "finished"


def test_a_server_that_does_not_answer_is_said_without_the_address(tmp_path, server):
    run = run_of(tmp_path, webhook=str(tmp_path / "hook"))
    for address, words in ((address_of(server, 404), "the server answered 404"), ("http://127.0.0.1:9/planted", "")):
        private(tmp_path, address)
        done = run_launch_script(run)
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == 0
        assert f"notify.webhook: {words}" in said
        assert "planted" not in said
        assert address not in said


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("https://example.org/planted", 0o640, "others may read it"),
        ("https://example.org/planted", 0o604, "others may read it"),
        ("", 0o600, "is empty"),
        ("planted", 0o600, "holds no http:// or https:// address"),
        (None, 0o600, "cannot read"),
    ],
)
def test_a_file_that_holds_no_secret_address_is_refused(tmp_path, text, mode, words):
    path = private(tmp_path, text, mode) if text is not None else str(tmp_path / "none")
    url, problem = notify.webhook_address_and_problem(path)
    assert (url, words in problem, "planted" in problem) == ("", True, False)


@pytest.mark.parametrize("named", ["https://h.example/planted", "HTTPS://me:planted@h.example/x", "/x/a://planted"])
def test_an_address_in_a_plan_is_refused_and_its_host_alone_shown(named):
    url, problem = notify.webhook_address_and_problem(named)
    assert url == ""
    assert problem.startswith("notify.webhook is neither a variable nor the path of a file")
    assert "planted" not in problem
    assert ("at h.example:" in problem) == named.lower().startswith("https")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_root_reads_the_file_of_another_in_a_folder_of_theirs(tmp_path):
    (home := tmp_path / "home").mkdir()
    path = private(home, ADDRESS)
    os.chown(path, 1000, 1000)
    assert "it belongs to" in notify.webhook_address_and_problem(path)[1]
    os.chown(home, 1000, 1000)
    assert notify.webhook_address_and_problem(path) == (ADDRESS, "")
    Path(path).chmod(0o620)
    assert "others may change it, and it holds a secret: chmod 600 it" in notify.webhook_address_and_problem(path)[1]


def test_a_variable_that_is_not_set_is_refused_before_the_start(tmp_path):
    run = run_of(tmp_path, webhook="$MY_HOOK")
    done = run_launch_script(run)
    assert done.returncode != 0
    assert "$MY_HOOK is not set: export it" in done.stderr.decode()
    assert not read_status(run).attempts


# ---- The address is a secret


ADDRESS = "https://hooks.example.org/services/planted0123456789"


def test_an_address_goes_to_a_file_that_only_the_user_may_read(tmp_path, capsys):
    chosen = plans.apply_edits(profile({"name": "mine"}), (f"notify.webhook={ADDRESS}",))
    kept = Path(chosen.notify.webhook)
    assert (kept.read_text().strip(), kept.stat().st_mode & 0o777) == (ADDRESS, 0o600)
    assert kept.name.startswith("hooks.example.org-")
    assert str(kept) in capsys.readouterr().err
    saved = store.save_profile(chosen)
    assert "planted" not in saved.read_text()
    assert store.load_profile_file("mine").notify.webhook == str(kept)


def test_the_address_of_an_old_profile_is_moved_when_that_is_used(tmp_path, server):
    old = store.profiles_folder() / "old.toml"
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_text(f'schema = 2\nname = "old"\n[notify]\nwebhook = "{ADDRESS}"\n')
    chosen = store.load_profile_file("old")
    assert "planted" not in store.profile_to_toml(chosen)
    assert secret_values.displayed_value(chosen, "notify.webhook") == "hooks.example.org/…"
    assert Path(plans.apply_edits(chosen, ()).notify.webhook).read_text().strip() == ADDRESS
    last_profile.remember_profile_without_secrets(chosen)
    assert ADDRESS not in last_profile_file().read_text()
    assert last_profile.load_last_session_profile().notify.webhook == webhook.webhook_file_or_name(ADDRESS)
    store.save_profile(chosen, overwrite=True)
    assert "planted" not in old.read_text()


def test_no_file_of_a_run_has_the_address(tmp_path, server):
    address = f"{address_of(server)}?planted0123456789=/200"
    run = run_of(tmp_path, webhook=address)
    assert store.load_profile_file(str(run.profile_file)).notify.webhook == webhook.store_webhook(address)
    assert run_launch_script(run).returncode == 0
    assert len(server.got) == 1
    assert not [path for path in run.path.rglob("*") if path.is_file() and b"planted" in path.read_bytes()]
    files = archive.masked_archive_entries(run, "{}")
    assert files
    assert not [entry.name for entry in files if "planted" in entry.text]


@pytest.mark.parametrize("text", ["hooks.example.org/planted", "planted", "file:///planted", "$planted-x"])
def test_what_is_no_address_is_refused_and_not_shown(text):
    with pytest.raises(BadInput) as error:
        fields.parse_value(fields.get_field("notify.webhook"), text)
    assert "planted" not in error.value.message + error.value.remedy


def test_another_start_does_not_wait_for_the_command(tmp_path):
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; touch {tmp_path}/went"
    run = run_of(tmp_path, command=("sh", "-c", waits))
    start_run(run)
    wait_until(lambda: read_status(run).state == "finished", 60)
    start_run(run, resume=True)
    wait_until(lambda: len(read_status(run).attempts) == 2 and read_status(run).state == "finished", 60)
    assert not (tmp_path / "went").exists()
    (tmp_path / "go").touch()
