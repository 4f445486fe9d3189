"""Hosts that ask who logs in, on a real sshd: for the passphrase of a key, for a password, for a code."""

import base64
import contextlib
import ctypes
import hmac
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import ssh as secure_shell
from support import run_cli, wait_until
from terminal import Terminal

from tui_train.profile import hosts

PASSPHRASE = "correct horse"  # noqa: S105 - of a key that is thrown away


@contextlib.contextmanager
def asking_host(tmp_path, monkeypatch, **server):
    """A host `box`, and a folder of the connections whose path is short."""
    client = tmp_path / "client"
    client.mkdir()
    short = tempfile.mkdtemp(prefix="t", dir="/tmp")
    monkeypatch.setenv("XDG_CACHE_HOME", short)
    with secure_shell.run_sshd(tmp_path, what="hosts that ask who logs in", **server) as words:
        (client / "ssh").write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (client / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{client}:{os.environ['PATH']}")
        monkeypatch.delenv("SSH_ASKPASS", raising=False)
        yield tmp_path
        for socket in (Path(short) / "tui-train" / "ssh").glob("*"):
            command = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "box"]
            subprocess.run(command, capture_output=True, check=False)
        shutil.rmtree(short)


@pytest.fixture
def box(tmp_path, monkeypatch):
    """A host `box` to which no program logs in alone: the key has a passphrase."""
    with asking_host(tmp_path, monkeypatch) as folder:
        words = ["ssh-keygen", "-q", "-p", "-P", "", "-N", PASSPHRASE, "-f", folder / "id"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        yield folder


def facts_of_box(code=0):
    return run_cli("facts", "--host", "box", "--json", code=code)


@pytest.mark.whole
def test_a_login_by_hand_opens_the_way_for_hours(box):
    assert "To log in: tui-train hosts login box" in facts_of_box(69).stderr
    terminal = Terminal("hosts", "login", "box")
    terminal.wait_for_any("Enter passphrase")
    terminal.press(f"{PASSPHRASE}\r", "logged in to box")
    assert json.loads(facts_of_box().stdout)["machine"]["cpu_count"]
    assert "logged in to box" in run_cli("hosts", "login", "box").stdout, "nothing is asked again"


SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEH"  # noqa: S105 - of a server that is thrown away
CODE_MODULE = "pam_google_authenticator.so"
CODE_MODULE_PATTERNS = (f"lib*/security/{CODE_MODULE}", f"lib*/*/security/{CODE_MODULE}")


def code_now():
    """The code of six digits that an app would show (RFC 6238)."""
    digest = hmac.digest(base64.b32decode(f"{SECRET}======"), (int(time.time()) // 30).to_bytes(8, "big"), "sha1")
    at = digest[-1] & 15
    return f"{(int.from_bytes(digest[at : at + 4], 'big') & 0x7FFFFFFF) % 10**6:06d}"


def hashed(password):
    """A password as a shadow file has it, by the library that PAM uses."""
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    return crypt(password.encode(), b"$6$thrownaway").decode()


@pytest.mark.whole
@pytest.mark.parametrize("with_code", [False, True])
@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can mount a shadow file: a password and a code")
def test_a_password_and_a_code_are_asked_for_once(tmp_path, monkeypatch, with_code):
    if with_code and not any(path for pattern in CODE_MODULE_PATTERNS for path in Path("/").glob(pattern)):
        pytest.skip(f"NOT TESTED, for want of {CODE_MODULE} (libpam-google-authenticator): a code")
    asks_code = f"auth required {CODE_MODULE} secret={tmp_path}/secret user=root\n" if with_code else ""
    (tmp_path / "pam").write_text(f"""\
auth required pam_unix.so
{asks_code}account required pam_permit.so
session required pam_permit.so
""")
    (tmp_path / "shadow").write_text(f"root:{hashed(PASSPHRASE)}:20000:0:99999:7:::\n")
    (tmp_path / "secret").write_text(f'{SECRET}\n" TOTP_AUTH\n')
    (tmp_path / "secret").chmod(0o400)
    with asking_host(tmp_path, monkeypatch, pam=True):
        # The key was for the beginning.
        (tmp_path / "id.pub").unlink()
        assert "To log in: tui-train hosts login box" in facts_of_box(69).stderr
        terminal = Terminal("hosts", "login", "box")
        terminal.wait_for_any("Password:")
        terminal.press(f"{PASSPHRASE}\r", "Verification code:" if with_code else "logged in to box")
        if with_code:
            terminal.press(f"{code_now()}\r", "logged in to box")
        assert json.loads(facts_of_box().stdout)["machine"]["cpu_count"]


@pytest.mark.whole
def test_a_login_that_fails_is_said(box):
    terminal = Terminal("hosts", "login", "box")
    for number in range(1, 4):
        wait_until(lambda number=number: terminal.text().count("Enter passphrase") == number, 60)
        terminal.child.send("wrong\r")
    wait_until(lambda: "ssh could not log in to box" in terminal.text(), 60)


@pytest.mark.whole
def test_the_wizard_hands_the_terminal_to_ssh(box):
    hosts.save_host("lab", "box")
    terminal = Terminal()
    terminal.wait_for_any("See it work")
    terminal.press("\r", "● 1 Hardware")
    terminal.wait_for_any("No NVIDIA GPU")
    terminal.press("h", "Where does it train?")
    terminal.press("\x1b[B\r", "l Log in")
    assert "lab is not known" in terminal.text()
    terminal.press("l", "Enter passphrase")
    terminal.press(f"{PASSPHRASE}\r", "for lab")
    terminal.wait_for_any("nvidia-smi was not found on that host")
    wait_until(lambda: "Log in" not in terminal.text())


@pytest.mark.whole
def test_the_users_own_connection_is_used(box, monkeypatch):
    short = Path(os.environ["XDG_CACHE_HOME"])
    config = box / "config"
    config.write_text(config.read_text() + f"  ControlPath {short}/own-%C\n")
    (box / "home" / ".ssh").mkdir(parents=True)
    (box / "home" / ".ssh" / "config").write_text(f"Host box\n  ControlPath {short}/own-%C\n")
    monkeypatch.setenv("HOME", str(box / "home"))
    assert "Log in once" in facts_of_box(69).stderr
    terminal = Terminal(command=["ssh", "-M", "-N", "box"])
    terminal.wait_for_any("Enter passphrase")
    terminal.child.send(f"{PASSPHRASE}\r")
    wait_until(
        lambda: subprocess.run(["ssh", "-O", "check", "box"], capture_output=True, check=False).returncode == 0, 60
    )
    assert json.loads(facts_of_box().stdout)["machine"]["cpu_count"]
    terminal.child.close(force=True)
