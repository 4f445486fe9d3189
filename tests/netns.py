"""Machines of their own on this one: namespaces of network, processes, names and mounts, and a real sshd in each.

They are joined by a switch in a namespace of its own, so that nothing of this machine's network is touched.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import make_executable, wait_until

_PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
_SSHD_CONFIG = """\
Port 22
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/id.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv HOME={folder} PATH={path}
"""
_SSH_CONFIG = """\
Host *
  IdentityFile {folder}/id
  IdentitiesOnly yes
  IdentityAgent none
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


class Host:
    """One machine, by its name and address; `hidden` are folders that it has for itself."""

    def __init__(self, folder: Path, number: int, name: str) -> None:
        self.folder, self.number, self.name = folder, number, name
        self.address = f"10.213.47.{number}"
        self.space = f"{folder.name}-{name}"
        self._init: subprocess.Popen[bytes] | None = None

    def start(self, names: Path, hidden: tuple[Path, ...]) -> None:
        """Switch it on; its sshd is its first process."""
        mounts = "".join(f"mount -t tmpfs none {path} && " for path in hidden)
        script = f"hostname {self.name} && mount --bind {names} /etc/hosts && {mounts}exec /usr/sbin/sshd -D -e -f $0"
        words = ["nsenter", f"--net=/run/netns/{self.space}", "unshare", "-u", "-m", "-p", "-f", "--kill-child"]
        words += ["--mount-proc", "--propagation", "private", "sh", "-c", script, str(self.folder / "sshd_config")]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._init = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": _PATH}
            )

    def words(self, *words: str) -> list[str]:
        """Return the words that run a command on it."""
        assert self._init is not None
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        first = wait_until(lambda: children.read_text().split())[0]
        return ["nsenter", "-t", first, "-u", "-m", "-p", "-n", *words]

    def run(self, *words: str, env: dict[str, str] | None = None, timeout: float = 240) -> str:
        """Run a command on it to its end, and return what it says."""
        done = subprocess.run(
            self.words(*words), env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    def processes(self, word: str) -> list[str]:
        """Return the commands on it that have a word in them."""
        every = self.run("ps", "-eo", "stat=,args=").splitlines()
        return [line for line in every if word in line and not line.startswith("Z") and "ps -eo" not in line]

    def power_off(self) -> None:
        """End everything on it at once, without a word to anybody."""
        if self._init and self._init.poll() is None:
            self._init.kill()
            self._init.wait()

    def unplug(self, *, off: bool = True) -> None:
        """Pull its cable, or plug it in again."""
        _run_ip("-n", f"{self.folder.name}-sw", "link", "set", f"port{self.number}", "down" if off else "up")


@contextlib.contextmanager
def run_hosts(folder: Path, *names: str, hidden: tuple[Path, ...] = ()) -> Iterator[tuple[dict[str, str], list[Host]]]:
    """Run machines of these names, and give the environment in which ssh reaches them, and the machines.

    All see the same disk, but for the `hidden` folders, which each but the first has empty and for itself. Skips where
    this machine does not allow it.
    """
    if why := why_unavailable():
        pytest.skip(f"NOT TESTED: several hosts over ssh: {why}")
    Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    (folder / "sshd_config").write_text(_SSHD_CONFIG.format(folder=folder, path=f"{folder}/bin:{os.environ['PATH']}"))
    (folder / "config").write_text(_SSH_CONFIG.format(folder=folder))
    make_executable(folder / "bin" / "ssh", f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    hosts = [Host(folder, number, name) for number, name in enumerate(names, start=1)]
    lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in hosts)]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    for path in hidden:
        path.mkdir(exist_ok=True)
    try:
        _connect_hosts(folder.name, hosts)
        for host in hosts:
            host.start(folder / "hosts", () if host is hosts[0] else hidden)
        for host in hosts[1:]:
            wait_until(lambda host=host: not hosts[0].run("ssh", host.name, "true", env=environment), 30)
        yield environment, hosts
    finally:
        for host in hosts:
            host.power_off()
        for space in (*(host.space for host in hosts), f"{folder.name}-sw"):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True, env={"PATH": _PATH})


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder with a short path, which all hosts see at the same place."""
    made = Path(tempfile.mkdtemp(prefix="tt"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def run_two_hosts(folder: Path) -> Iterator[tuple[dict[str, str], list[Host], Path]]:
    """Run two hosts that see the same disk, but for a folder `own` of each."""
    with run_hosts(folder, "gpu-a", "gpu-b", hidden=(folder / "own",)) as (environment, hosts):
        yield environment, hosts, folder


def training_processes(hosts: list[Host]) -> list[str]:
    """Return the processes of a training on any of these hosts."""
    return [line for host in hosts for word in ("launch.sh", "torch", "accelerate") for line in host.processes(word)]


def require_iptables() -> None:
    if not shutil.which("iptables"):
        pytest.skip("NOT TESTED, for want of iptables: ports that another host does not reach")


def close_random_ports(host: Host, *, but: tuple[int, ...] = (), target: str = "REJECT") -> None:
    """Have the firewall of a host take no new connection at ports of programs, but for some."""
    for port in but:
        host.run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", str(port), "-j", "ACCEPT")
    host.run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "1024:65535", "--syn", "-j", target)


def why_unavailable() -> str:
    """Reason why no such machines can be made here; empty where they can."""
    absent = [name for name in ("ip", "sshd", "ssh", "nsenter", "unshare") if not shutil.which(name, path=_PATH)]
    if absent:
        return f"{', '.join(absent)}: apt-get install iproute2 openssh-server util-linux"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    tried = ["unshare", "-n", "-u", "-m", "-p", "-f", "--mount-proc", "true"]
    return "" if subprocess.run(tried, capture_output=True, check=False).returncode == 0 else "namespaces are forbidden"


def _connect_hosts(name: str, hosts: list[Host]) -> None:
    switch = f"{name}-sw"
    _run_ip("netns", "add", switch)
    _run_ip("-n", switch, "link", "add", "bridge", "type", "bridge")
    _run_ip("-n", switch, "link", "set", "bridge", "up")
    for host in hosts:
        _run_ip("netns", "add", host.space)
        port = f"port{host.number}"
        _run_ip("link", "add", port, "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", host.space)
        _run_ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _run_ip("-n", host.space, "link", "set", link, "up")
        _run_ip("-n", switch, "link", "set", port, "master", "bridge", "up")


def _run_ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, env={"PATH": _PATH})
