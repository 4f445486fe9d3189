"""NVIDIA cards on the PCI bus, and in words why NVML shows fewer of them, or none."""

import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tui_train.facts.types import Gap

_NVIDIA = "0x10de"
_ADDRESS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]", re.ASCII)
_BUS = Path("/sys/bus/pci/devices")
# They keep a card for a virtual machine: it is meant not to be used here.
_OF_VIRTUAL_MACHINES = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
_DRIVER_PAGE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"


class Card(NamedTuple):
    """A display controller on the PCI bus: `0000:01:00.0`, `10de:2204`, and the kernel driver that holds it, if any."""

    address: str
    device: str
    driver: str


def cards(root: Path = _BUS) -> tuple[Card, ...]:
    """Return NVIDIA's display controllers in bus order, none where there is no PCI bus to read."""
    try:
        folders = sorted(root.iterdir())
    except OSError:
        return ()
    found = []
    for folder in folders:
        # A virtual function has no memory of its own to train in.
        if _line(folder / "vendor") != _NVIDIA or (folder / "physfn").exists():
            continue
        if not _line(folder / "class").startswith("0x03"):
            continue
        driver = (folder / "driver").resolve().name if (folder / "driver").exists() else ""
        found.append(Card(folder.name, "10de:" + _line(folder / "device").removeprefix("0x"), driver))
    return tuple(found)


def numa_node(address: str | None, root: Path = _BUS) -> int | None:
    """Return the NUMA node of the card at this PCI address, None where the machine has but one or does not tell."""
    if address is None or not _ADDRESS.fullmatch(address):
        return None
    node = _line(root / _short(address) / "numa_node")
    return int(node) if node.isdecimal() else None


def not_shown(found: Sequence[Card], shown: Iterable[str | None], unopened: int = 0) -> tuple[Gap, ...]:
    """Return a Gap for each card of `found` whose address is not in `shown`, the addresses that NVML gives.

    `unopened` cards were counted by NVML without an address: as many that the nvidia driver holds are let off.
    """
    known = {_short(address) for address in shown if address}
    if known - {_short(card.address) for card in found}:
        # This is not the bus of which NVML speaks: some sandboxes, and WSL, show another or none.
        return ()
    gaps = []
    for card in found:
        if _short(card.address) in known:
            continue
        if card.driver == "nvidia" and unopened > 0:
            unopened -= 1
            continue
        gaps.append(_undriven(card))
    return tuple(gaps)


def _undriven(card: Card) -> Gap:
    where = f"{card.address} ({card.device})"
    if card.driver == "nvidia":
        return Gap(
            f"NVIDIA card {where} is not available here",
            "the driver holds it but does not show it to this session",
            "Ask for it where the session was given its cards (container, batch system); if it should be here, "
            "`dmesg | grep -i nvrm` says why the driver could not start it.",
            hides=True,
        )
    if card.driver:
        return Gap(
            f"NVIDIA card {where} is not driven by NVIDIA's driver",
            f"the kernel driver `{card.driver}` holds it",
            "Nothing, if that is meant (a virtual machine's card); else bind it to the nvidia driver and reboot.",
            hides=card.driver not in _OF_VIRTUAL_MACHINES,
        )
    return Gap(
        f"1 NVIDIA card without driver: {where}",
        "the installed driver does not know it: driver 590 and later, and NVIDIA's open kernel modules, "
        "drive Turing (GTX 16, RTX 20) and newer cards only",
        "For an older card install driver 580 with the proprietary kernel modules; else nothing.",
        hides=True,
    )


def no_driver(kind: str, detail: str, found: Sequence[Card]) -> Gap:
    """Return the Gap for an NVML that could not be started.

    `kind` is "library" (not there), "module" (not loaded), "mismatch", "permission" or another, `detail` NVML's words.
    """
    there = f"; on the PCI bus: {', '.join(f'{card.address} ({card.device})' for card in found)}" if found else ""
    if kind == "library":
        return _no_library(found, there)
    if kind == "module":
        return Gap(
            "The NVIDIA driver is not loaded",
            f"its library is installed, its kernel module is not running{there}",
            "`sudo modprobe nvidia` on the host says why; after a kernel or driver update reboot, and with Secure Boot "
            "sign the module.",
            # Images for machines with cards have the library on machines without as well.
            hides=bool(found) or not _has_bus(),
        )
    if kind == "mismatch":
        return Gap(
            "The NVIDIA driver was updated: reboot needed",
            "the running kernel module is of another version than the installed library",
            "Reboot; until then no program can use the cards. If this is a container, start it again.",
            hides=True,
        )
    if kind == "permission":
        return Gap(
            "The NVIDIA driver refuses this user",
            f"{detail}{there}",
            "Look at the rights of /dev/nvidia*; some hosts want you in the group `video` or `render`.",
            hides=True,
        )
    return Gap(
        "The NVIDIA driver does not start",
        f"{detail}{there}",
        "See what `nvidia-smi` says. If this is a container, start it again: the host may have taken its cards away.",
        hides=True,
    )


def _no_library(found: Sequence[Card], there: str) -> Gap:
    if "microsoft" in platform.release().lower():
        return Gap(
            "The NVIDIA driver is not visible in WSL",
            "libnvidia-ml.so.1 cannot be loaded; Windows puts it into /usr/lib/wsl/lib",
            "Install NVIDIA's driver in Windows (none in WSL), then `wsl --shutdown`; if the file is there, "
            "`export LD_LIBRARY_PATH=/usr/lib/wsl/lib`.",
        )
    if in_container():
        return Gap(
            "This container was started without GPUs",
            f"it has no NVIDIA driver library (libnvidia-ml.so.1){there}",
            "Start it with cards: `docker run --gpus all ...`, with the NVIDIA Container Toolkit on the host.",
            hides=bool(found),
        )
    if not found:
        return Gap(
            "No NVIDIA GPU",
            "there is no NVIDIA card on the PCI bus and no driver library (libnvidia-ml.so.1)",
            "Trainings run on the CPU here. Log in to a machine with a card, or ask the batch system for one.",
        )
    return Gap(
        "The NVIDIA driver is not installed",
        f"there is no driver library (libnvidia-ml.so.1){there}",
        f"Install the driver ({_DRIVER_PAGE}) and reboot.",
        hides=True,
    )


def in_container() -> bool:
    """Return whether this process runs in a container, by the marks that Docker, podman, LXC and Kubernetes leave."""
    marks = ("/.dockerenv", "/run/.containerenv")
    # systemd-nspawn, podman and LXC write the name of this variable in lower case.
    names = ("container", "KUBERNETES_SERVICE_HOST")
    return any(Path(mark).exists() for mark in marks) or any(os.environ.get(name) for name in names)


def _has_bus(root: Path = _BUS) -> bool:
    """Return whether there is a PCI bus to look at: an integrated chip's card is on none."""
    try:
        return any(root.iterdir())
    except OSError:
        return False


def _short(address: str) -> str:
    """Return a PCI address with the four-digit domain of /sys and without NVML's eight-digit one, in lower case."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
