"""Hosts that ask who logs in, on a real sshd: the key has a passphrase, as a password or a code would be asked for."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import ssh as secure_shell
import warm
from support import until
from terminal import Terminal

from tui_train.profile import hosts

PASSPHRASE = "correct horse"  # noqa: S105 - of a key that is thrown away


@pytest.fixture
def box(tmp_path, monkeypatch):
    """A host `box` to which no program logs in alone, and the folder of the connections, whose path is short."""
    client = tmp_path / "client"
    client.mkdir()
    short = tempfile.mkdtemp(prefix="t", dir="/tmp")
    monkeypatch.setenv("XDG_CACHE_HOME", short)
    with secure_shell.server(tmp_path, what="hosts that ask who logs in") as words:
        (client / "ssh").write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (client / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{client}:{os.environ['PATH']}")
        monkeypatch.delenv("SSH_ASKPASS", raising=False)
        lock_key(tmp_path, PASSPHRASE)
        yield tmp_path
        for socket in (Path(short) / "tui-train" / "ssh").glob("*"):
            command = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "box"]
            subprocess.run(command, capture_output=True, check=False)
        shutil.rmtree(short)


def lock_key(folder, passphrase):
    words = ["ssh-keygen", "-q", "-p", "-P", "", "-N", passphrase, "-f", folder / "id"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def facts_of_box(code=0):
    done = subprocess.run(
        warm.program("facts", "--host", "box", "--json"), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.whole
def test_a_login_by_hand_opens_the_way_for_hours(box):
    assert "To log in: tui-train hosts login box" in facts_of_box(69).stderr
    terminal = Terminal("hosts", "login", "box")
    terminal.see("Enter passphrase")
    terminal.press(f"{PASSPHRASE}\r", "logged in to box")
    assert json.loads(facts_of_box().stdout)["machine"]["cpu_count"]
    done = subprocess.run(warm.program("hosts", "login", "box"), capture_output=True, text=True, check=False)
    assert "logged in to box" in done.stdout, "nothing is asked again"


@pytest.mark.whole
def test_a_login_that_fails_is_said(box):
    terminal = Terminal("hosts", "login", "box")
    for number in range(1, 4):
        until(lambda number=number: terminal.text().count("Enter passphrase") == number, 60)
        terminal.child.send("wrong\r")
    until(lambda: "ssh did not come in to box" in terminal.text(), 60)


@pytest.mark.whole
def test_the_wizard_hands_the_terminal_to_ssh(box):
    hosts.save_host("lab", "box")
    terminal = Terminal()
    terminal.see("See it work")
    terminal.press("\r", "● 1 Hardware")
    terminal.see("No GPU")
    terminal.press("h", "Where does it train?")
    terminal.press("\x1b[B\r", "l Log in")
    assert "lab is not known" in terminal.text()
    terminal.press("l", "Enter passphrase")
    terminal.press(f"{PASSPHRASE}\r", "for lab")
    terminal.see("nvidia-smi was not found on that host")
    until(lambda: "Log in" not in terminal.text())


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
    terminal.see("Enter passphrase")
    terminal.child.send(f"{PASSPHRASE}\r")
    until(lambda: subprocess.run(["ssh", "-O", "check", "box"], capture_output=True, check=False).returncode == 0, 60)
    assert json.loads(facts_of_box().stdout)["machine"]["cpu_count"]
    terminal.child.close(force=True)
