"""NVIDIA cards on the PCI bus, and why NVML lists fewer of them, or none."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import NamedTuple, Sequence

_NVIDIA_VENDOR_ID = "0x10de"
_PCI_ADDRESS_PATTERN = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]", re.ASCII)
_PCI_DEVICES_FOLDER = Path("/sys/bus/pci/devices")
# The number of that namespace is the same in every kernel (PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
# Kernel drivers that reserve a card for a virtual machine.
_VIRTUAL_MACHINE_DRIVERS = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
_DRIVER_INSTALLATION_URL = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"


class FactGap(NamedTuple):
    """Something that is unknown or unavailable, as in facts/types.py."""

    what: str
    why: str
    remedy: str
    hides: bool = False


class PciCard(NamedTuple):
    """A display controller on the PCI bus: `0000:01:00.0`, `10de:2204`, and its kernel driver, if any."""

    address: str
    device: str
    driver: str


def read_pci_cards(devices_folder: Path = _PCI_DEVICES_FOLDER) -> tuple[PciCard, ...]:
    """Return the NVIDIA display controllers in bus order, none if there is no PCI bus."""
    try:
        folders = sorted(devices_folder.iterdir())
    except OSError:
        return ()
    controllers = []
    for folder in folders:
        # A virtual function has no memory of its own.
        if _read_sysfs_file(folder / "vendor") != _NVIDIA_VENDOR_ID or (folder / "physfn").exists():
            continue
        if not _read_sysfs_file(folder / "class").startswith("0x03"):
            continue
        driver = (folder / "driver").resolve().name if (folder / "driver").exists() else ""
        controllers.append(PciCard(folder.name, "10de:" + _read_sysfs_file(folder / "device")[len("0x") :], driver))
    return tuple(controllers)


def read_numa_node(address: str | None, devices_folder: Path = _PCI_DEVICES_FOLDER) -> int | None:
    """Return the NUMA node of the card at this PCI address, None if there is only one or it is unknown."""
    if address is None or not _PCI_ADDRESS_PATTERN.fullmatch(address):
        return None
    node = _read_sysfs_file(devices_folder / _sysfs_address(address) / "numa_node")
    return int(node) if node.isdecimal() else None


def read_slot_width(
    address: str | None, link_width: int | None, devices_folder: Path = _PCI_DEVICES_FOLDER
) -> int | None:
    """Return the most lanes of the port that a card is connected to, None if unknown.

    Both ends of a link have its width: where the port has not that of the card, a virtual machine shows another bus.
    """
    if address is None or not _PCI_ADDRESS_PATTERN.fullmatch(address):
        return None
    port = (devices_folder / _sysfs_address(address)).resolve().parent
    width, most = (_read_sysfs_file(port / f"{name}_link_width") for name in ("current", "max"))
    return int(most) if most.isdecimal() and width == str(link_width) else None


def unlisted_card_gaps(cards_on_bus: Sequence[PciCard], listed_addresses: Sequence[str | None]) -> tuple[FactGap, ...]:
    """Return a FactGap for each card on the bus whose address is not in `listed_addresses`, the addresses from NVML.

    For each that NVML lists without an address, a card of the nvidia driver is not reported.
    """
    addresses = {_sysfs_address(address) for address in listed_addresses if address}
    unopened_count = sum(not address for address in listed_addresses)
    if addresses - {_sysfs_address(card.address) for card in cards_on_bus}:
        # Some sandboxes, and WSL, show another bus than NVML, or none.
        return ()
    gaps = []
    for card in cards_on_bus:
        if _sysfs_address(card.address) in addresses:
            continue
        if card.driver == "nvidia" and unopened_count > 0:
            unopened_count -= 1
            continue
        gaps.append(_unlisted_card_gap(card))
    return tuple(gaps)


def _unlisted_card_gap(card: PciCard) -> FactGap:
    name = f"{card.address} ({card.device})"
    if card.driver == "nvidia":
        return FactGap(
            f"NVIDIA GPU {name} is not available here",
            "the driver uses it, but this session has no access to it",
            "Request it from the container or batch system that assigns the GPUs; if it should be available, check "
            "`dmesg | grep -i nvrm` for why the driver could not start it.",
            hides=True,
        )
    if card.driver:
        return FactGap(
            f"NVIDIA GPU {name} does not use the NVIDIA driver",
            f"it uses the kernel driver `{card.driver}`",
            "Nothing to do for the GPU of a virtual machine; otherwise bind it to the nvidia driver and reboot.",
            hides=card.driver not in _VIRTUAL_MACHINE_DRIVERS,
        )
    return FactGap(
        f"1 NVIDIA GPU without driver: {name}",
        "the installed driver does not support it: driver 590 and later, and NVIDIA's open kernel modules, "
        "support only Turing (GTX 16, RTX 20) and newer",
        "For an older GPU install driver 580 with the proprietary kernel modules.",
        hides=True,
    )


def nvml_failure_gap(error_kind: str, nvml_message: str, cards_on_bus: Sequence[PciCard]) -> FactGap:
    """Return the FactGap for an NVML that could not be initialized.

    `error_kind` is "library" (missing), "module" (not loaded), "mismatch", "permission" or another.
    """
    devices = ", ".join(f"{card.address} ({card.device})" for card in cards_on_bus)
    seen = f"; on the PCI bus: {devices}" if devices else ""
    if error_kind == "library":
        return _no_library_gap(cards_on_bus, seen)
    if error_kind == "module":
        return FactGap(
            "The NVIDIA driver is not loaded",
            f"its library is installed, but its kernel module is not loaded{seen}",
            "Run `sudo modprobe nvidia` on the host to see why; reboot after a kernel or driver update; with Secure "
            "Boot sign the module.",
            # Images for GPU machines have the library on machines without GPUs too.
            hides=bool(cards_on_bus) or not _has_pci_bus(),
        )
    if error_kind == "mismatch":
        return FactGap(
            "The NVIDIA driver was updated: reboot needed",
            "the loaded kernel module and the installed library have different versions",
            "Reboot; until then no program can use the GPUs. In a container, restart the container.",
            hides=True,
        )
    if error_kind == "permission":
        return FactGap(
            "No permission for the NVIDIA driver",
            f"{nvml_message}{seen}",
            "Check the permissions of /dev/nvidia*; on some hosts you must be in the group `video` or `render`.",
            hides=True,
        )
    return FactGap(
        "The NVIDIA driver does not start",
        f"{nvml_message}{seen}",
        "Check `nvidia-smi`. In a container, restart the container: it may have lost its GPUs.",
        hides=True,
    )


def _no_library_gap(cards_on_bus: Sequence[PciCard], bus_note: str) -> FactGap:
    if "microsoft" in platform.release().lower():
        return FactGap(
            "The NVIDIA driver is not visible in WSL",
            "libnvidia-ml.so.1 cannot be loaded; Windows provides it in /usr/lib/wsl/lib",
            "Install the NVIDIA driver in Windows (not in WSL), then `wsl --shutdown`; if the file exists, "
            "`export LD_LIBRARY_PATH=/usr/lib/wsl/lib`.",
        )
    if is_in_container():
        remedy = _container_gpu_remedy()
        if not cards_on_bus:
            return FactGap(
                "No NVIDIA GPU is visible here",
                "this looks like a container without the NVIDIA driver (libnvidia-ml.so.1)",
                f"If this machine has GPUs, {remedy[0].lower()}{remedy[1:]}",
            )
        return FactGap(
            "This container was started without GPUs",
            f"it has no NVIDIA driver library (libnvidia-ml.so.1){bus_note}",
            remedy,
            hides=True,
        )
    if not cards_on_bus:
        return FactGap(
            "No NVIDIA GPU",
            "there is no NVIDIA GPU on the PCI bus and no driver library (libnvidia-ml.so.1)",
            "Trainings run on the CPU here. For a GPU, use another machine, or request one from the batch system.",
        )
    return FactGap(
        "The NVIDIA driver is not installed",
        f"there is no driver library (libnvidia-ml.so.1){bus_note}",
        f"Install the driver ({_DRIVER_INSTALLATION_URL}) and reboot.",
        hides=True,
    )


def is_in_container() -> bool:
    """Return whether this process runs in a container of Docker, podman, LXC or Kubernetes."""
    # systemd-nspawn, podman and LXC write the name of this variable in lower case.
    names = ("container", "KUBERNETES_SERVICE_HOST")
    return bool(_container_marker_engine()) or any(os.environ.get(name) for name in names)


def _container_marker_engine() -> str:
    """Return the engine that left its mark in this container, empty for none.

    A virtual machine whose disk was made of an image has the mark as well, and is no container.
    """
    if _is_host_or_virtual_machine():
        return ""
    marks = (("podman", "/run/.containerenv"), ("docker", "/.dockerenv"))
    return next((engine for engine, mark in marks if Path(mark).exists()), "")


def _is_host_or_virtual_machine(process_folder: Path = Path("/proc/self")) -> bool:
    """Return whether this process has the kernel's first namespace of processes, and the kernel's own /dev.

    A container has neither, unless it was started with --pid=host, which leaves it a /dev of its own.
    """
    try:
        is_first = os.readlink(str(process_folder / "ns" / "pid")) == _FIRST_PID_NAMESPACE
        mounts = (process_folder / "mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return is_first and any(line.split()[1:3] == ["/dev", "devtmpfs"] for line in mounts.splitlines())


def _container_gpu_remedy() -> str:
    """Return how this container gets GPUs, by the marks of what started it."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "Request them for the pod: `nvidia.com/gpu` in resources.limits."
    option = {"docker": "--gpus all", "podman": "--device nvidia.com/gpu=all"}.get(_container_marker_engine())
    if option is None:
        return "Give it the GPUs and the driver's libraries where the container is configured."
    command = f"{_container_marker_engine()} run {option} ..."
    return f"Start it with GPUs: `{command}`, with the NVIDIA Container Toolkit on the host."


def _has_pci_bus() -> bool:
    """Return whether there is a PCI bus; integrated GPUs are not on one."""
    try:
        return any(_PCI_DEVICES_FOLDER.iterdir())
    except OSError:
        return False


def _sysfs_address(address: str) -> str:
    """Return a PCI address in lower case with the four-digit domain of /sys instead of the eight digits of NVML."""
    domain, _, slot = address.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{slot}"


def _read_sysfs_file(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
