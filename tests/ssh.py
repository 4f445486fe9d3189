"""A real sshd on the loopback interface with throw-away keys, for the user who runs the tests and nobody else.

Its sessions begin without the user's own ~/.bashrc, which may take a second, or a minute where it waits for a lock.
"""

import contextlib
import getpass
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import psutil
import pytest
from support import free_port, make_executable, wait_until

from tui_train.channel import session
from tui_train.channel.session import PYTHON_COMMAND
from tui_train.facts.other_machines.remote import HostSurvey, survey_host

_SSHD_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/id.pub
StrictModes no
UsePAM {pam}
PasswordAuthentication no
PermitRootLogin yes
SetEnv HOME={folder} TUI_TRAIN_QUEUE={folder}/queue
"""
_SSH_CONFIG = """\
Host box
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/id
  IdentitiesOnly yes
  IdentityAgent none
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


# Its own mounts: a shadow file, and what PAM asks of who logs in.
_WITH_OWN_PAM = """\
mount --bind "$0/shadow" /etc/shadow && mount --bind "$0/pam" /etc/pam.d/sshd && exec "$@"
"""


@contextlib.contextmanager
def run_sshd(folder: Path, *, what: str, pam: bool = False) -> Iterator[list[str]]:
    """Run an sshd, and give the words that begin a command on it; skips, saying `what` is not tested, where none is.

    With `pam` it goes by the files `pam` and `shadow` of the folder; only root can run it.
    """
    sshd, client = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"), shutil.which("ssh")
    if sshd is None or client is None:
        pytest.skip(f"NOT TESTED, for want of sshd (openssh-server): {what}")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    names = {"port": free_port(), "folder": folder, "user": getpass.getuser(), "pam": "yes" if pam else "no"}
    own_files = ["unshare", "--mount", "sh", "-c", _WITH_OWN_PAM, str(folder)] if pam else []
    (folder / "sshd_config").write_text(_SSHD_CONFIG.format(**names))
    (folder / "config").write_text(_SSH_CONFIG.format(**names))
    words = [client, "-F", str(folder / "config")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*own_files, sshd, "-D", "-e", "-f", folder / "sshd_config"], stdin=subprocess.DEVNULL, stderr=log
        )
        try:
            asked = [*words, "box", "true"]
            wait_until(lambda: subprocess.run(asked, check=False, capture_output=True).returncode == 0, 20)
            yield words
        except AssertionError:
            said = (folder / "log").read_text()
            if "Server listening" in said and "Accepted publickey" in said:
                raise
            pytest.skip(f"NOT TESTED, for want of an sshd that lets its own user in: {what}\n{said[-500:]}")
        finally:
            process.terminate()
            process.wait()


def cut_connections_later(folder: Path, seconds: float) -> threading.Timer:
    """End every ssh to the server of a folder after some seconds, on this side."""

    def cut() -> None:
        for process in psutil.process_iter(["cmdline", "name"]):
            words = process.info["cmdline"] or []
            if process.info["name"] == "ssh" and any(str(folder / "config") in word for word in words):
                with contextlib.suppress(psutil.Error):
                    process.kill()

    timer = threading.Timer(seconds, cut)
    timer.start()
    return timer


def shell_command(words: list[str], environment: dict[str, str]) -> str:
    """Return a command with variables as the shell at the other end reads it."""
    return shlex.join(["env", *(f"{name}={value}" for name, value in environment.items()), *words])


def survey_this_machine(question: dict[str, object], variables: Mapping[str, str] | None = None) -> HostSurvey:
    """Ask this machine as another one is asked, in an environment of its own."""
    return survey_with_python(sys.executable, question, variables)


def survey_with_python(
    python: str, question: Mapping[str, object], variables: Mapping[str, str] | None = None
) -> HostSurvey:
    """Ask this machine as another one is asked, where the runner finds this Python."""
    environment = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())] if variables else []
    with answering_by([*environment, python, *PYTHON_COMMAND[1:]]):
        return survey_host("here", question, 60.0)


@contextlib.contextmanager
def answering_by(words: list[str]) -> Iterator[None]:
    """Have this command answer for every machine."""
    with mock.patch.object(session, "answering_python_command", return_value=words):
        yield


def runs_of_host(host):
    """The runs of a host, by its home folder."""
    folder = host / ".local" / "state" / "tui-train" / "runs"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def redirect_ssh(home, words, client, monkeypatch):
    """Have `ssh` lead to a server, by the words that begin a command on it; there its commands have that home."""
    there = f"HOME={home} PATH={home}/bin:/usr/bin:/bin XDG_STATE_HOME= XDG_CONFIG_HOME= XDG_CACHE_HOME= XDG_DATA_HOME="
    leads = f'exec {" ".join(words)} "${{@:1:$#-1}}" "export {there}; $last"'
    make_executable(client / "ssh", f"#!/bin/bash\nlast=${{@: -1}}\n{leads}\n")
    monkeypatch.setenv("PATH", f"{client}:{os.environ['PATH']}")


_SSH_TO_THIS_MACHINE = """\
#!/bin/bash
case " $* " in *" dead "*) echo "no route to host" >&2; exit 255 ;; *" slow "*) exec sleep 60 ;; esac
export HOME={home} TUI_TRAIN_QUEUE={home}/queue
export XDG_STATE_HOME= XDG_CONFIG_HOME= XDG_CACHE_HOME= XDG_DATA_HOME= {variables}
exec bash -c "${{@: -1}}"
"""


def lead_ssh_back(home, client, monkeypatch, variables=""):
    """Have `ssh` run commands here with that home: a host without sshd; `dead` is not reached, `slow` never answers."""
    home.mkdir(exist_ok=True)
    make_executable(client / "ssh", _SSH_TO_THIS_MACHINE.format(home=home, variables=variables))
    monkeypatch.setenv("PATH", f"{client}:{os.environ['PATH']}")


@contextlib.contextmanager
def bare_host(tmp_path, monkeypatch, script, *, what):
    """A host that `ssh` leads to: python3, bash and a train.py in a home of its own, nothing of this program."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    (home / "train.py").write_text(script)
    with run_sshd(tmp_path, what=what) as words:
        redirect_ssh(home, words, tmp_path / "client", monkeypatch)
        yield home
