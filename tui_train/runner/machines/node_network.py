"""Several machines that are started by hand: which one this is, and how it finds the first."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Mapping, Sequence

from ..run_folder import events
from ..run_folder.supervisor_plan import SupervisorPlan
from ..system import other_programs
from ..system.refused import BUSY_RESOURCE_EXIT_CODE, UNAVAILABLE_EXIT_CODE, USAGE_EXIT_CODE, Refused
from ..system.safe_text import visible

if TYPE_CHECKING:
    import socket

_NODE_RANK_VARIABLE = "TUI_TRAIN_NODE_RANK"
FIRST_ADDRESS_VARIABLE = "TUI_TRAIN_ADDRESS"
# Seconds for a name server to answer, and for a port.
_NAME_LOOKUP_SECONDS = 30.0
CONNECT_TIMEOUT_SECONDS = 5.0


def node_rank_from_option_or_environment(
    planned: SupervisorPlan, rank_option: str, environment: Mapping[str, str] = os.environ
) -> int:
    """Return which of the machines this is, 0 the first, as --node-rank or the environment says; Refused (64)."""
    last = planned.nodes - 1
    rank = rank_option or environment.get(_NODE_RANK_VARIABLE, "")
    if not rank:
        words = "%d machines train together: give the rank of this one, --node-rank=0 (the first) to --node-rank=%d"
        raise Refused(USAGE_EXIT_CODE, words % (planned.nodes, last))
    if not rank.isascii() or not rank.isdigit() or len(rank) > 6:
        raise Refused(USAGE_EXIT_CODE, f"--node-rank={visible(rank)} is no number from 0 to {last}")
    if int(rank) > last:
        raise Refused(USAGE_EXIT_CODE, f"--node-rank={int(rank)} is not one of the ranks 0 to {last}")
    return int(rank)


def require_free_port(planned: SupervisorPlan, rank: int = 0) -> None:
    """Refuse (75) where another program has the port at which the others are to meet the first machine."""
    if rank or not planned.port:
        return
    listen_on_port(planned.port).close()


def listen_on_port(port: int) -> socket.socket:
    """Return a socket that listens at a port as a training does; Refused (75) where another program has it."""
    import errno

    error: OSError | None = None
    for address in ("::", "0.0.0.0"):  # noqa: S104 - as the training does
        try:
            return listening_socket(address, port)
        except OSError as why:
            error = why
            if why.errno == errno.EADDRINUSE:
                words = "port %d of this machine is in use by another program: choose another for all machines \
(nodes.port), or end that one"
                raise Refused(BUSY_RESOURCE_EXIT_CODE, words % port) from None
            if why.errno == errno.EACCES:
                words = "port %d may only be opened by root: choose one above 1023 for all machines (nodes.port)"
                raise Refused(UNAVAILABLE_EXIT_CODE, words % port) from None
            # A machine without IPv6 has the other one.
    raise Refused(UNAVAILABLE_EXIT_CODE, f"port {port} of this machine cannot be opened: {error}")


def listening_socket(address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of this machine, 0 for a random port; OSError where it cannot."""
    import socket

    six = ":" in address
    server = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # As those do who train: what is left of a connection that has ended is not in the way.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if six:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind((address, port))
        server.listen(64)
    except OSError:
        server.close()
        raise
    return server


def own_address_towards(address: str, port: int, token: bytes) -> str:
    """Return this machine's address towards a port that answers with a token; empty where it does not."""
    import socket

    try:
        with socket.create_connection((address, port), CONNECT_TIMEOUT_SECONDS) as link:
            received = b""
            while len(received) < len(token):
                piece = link.recv(len(token) - len(received))
                if not piece:
                    break
                received += piece
            return str(link.getsockname()[0]) if received == token else ""
    except OSError:
        return ""


def send_token_to_next_client(server: socket.socket, token: bytes) -> None:
    """Send a token to the next program that connects; OSError where it is gone."""
    link, _ = server.accept()
    with link:
        link.settimeout(CONNECT_TIMEOUT_SECONDS)
        link.sendall(token)
        # Whoever closes last keeps no port: the other one is to be first.
        link.recv(1)


def network_interface_variables(
    planned: SupervisorPlan, environment: Mapping[str, str] = os.environ
) -> Mapping[str, str]:
    """Return the variables that name the network interface by which the first machine is reached.

    Each machine may name it differently. What whoever starts this has exported wins. Nothing where the plan names one,
    or where none is known.

    Raises Refused (69) where the address of the first machine is not known here, or is one that no other reaches.
    """
    if not planned.find_interface:
        return {}
    interface = _interface_name_towards(environment.get(FIRST_ADDRESS_VARIABLE) or planned.address)
    # To NCCL a name without its = would mean all that begin so.
    names = {"NCCL_SOCKET_IFNAME": "=" + interface} if planned.backend == "nccl" else {}
    names["GLOO_SOCKET_IFNAME"] = interface
    return {name: value for name, value in names.items() if interface and not environment.get(name)}


def _interface_name_towards(address: str) -> str:
    ip, shown = next(iter(resolve_ip_addresses(address)), ""), visible(address)
    if not ip:
        raise Refused(
            UNAVAILABLE_EXIT_CODE, f"no address is known here for {shown}: use the IP address of the first machine"
        )
    if is_loopback(ip) and ip != address:
        words = "%s is %s on this machine, where no other one reaches it: use its IP address"
        raise Refused(UNAVAILABLE_EXIT_CODE, words % (shown, ip))
    # On the first machine itself the route to its address leads nowhere: there the interface that has it counts.
    own = other_programs.run_program(("ip", "-o", "addr", "show", "to", ip), _NAME_LOOKUP_SECONDS).out.split()
    if len(own) > 1:
        return own[1].partition("@")[0]
    route = re.search(
        r" dev (\S+)", other_programs.run_program(("ip", "-o", "route", "get", ip), _NAME_LOOKUP_SECONDS).out
    )
    return route.group(1) if route else ""


def chooses_network_interface(environment: Mapping[str, str]) -> bool:
    """Tell whether variables choose the network interface of NCCL or Gloo."""
    return any(name.endswith("_SOCKET_IFNAME") and value for name, value in environment.items())


def is_loopback(ip: str) -> bool:
    """Tell whether an IP address means each machine itself."""
    return ip.startswith("127.") or ip == "::1"


def without_login_user(host: str) -> str:
    """Return the name of a machine without the user that ssh logs in as."""
    return host.rpartition("@")[2]


def resolve_ip_addresses(name: str) -> tuple[str, ...]:
    """Return the IP addresses of a name, none where none is known.

    Of a name with addresses of both kinds the older ones, as the trainings' own libraries have it.
    """
    for database in ("ahostsv4", "ahosts"):
        answer = other_programs.run_program(("getent", database, "--", name), _NAME_LOOKUP_SECONDS)
        if answer.code is None:
            return _resolve_without_getent(name)
        lines = [line.split()[0] for line in answer.out.splitlines() if line.strip()]
        if answer.code == 0 and lines:
            return tuple(dict.fromkeys(lines))
    return ()


def _resolve_without_getent(name: str) -> tuple[str, ...]:
    """Return what `resolve_ip_addresses` does, where there is no getent: this has no limit of time."""
    import socket

    for family in (socket.AF_INET, socket.AF_UNSPEC):
        try:
            return tuple(dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(name, None, family)))
        except (OSError, UnicodeError):
            continue
    return ()


def stop_count_of_each_machine(planned: SupervisorPlan, run_dir: str, own_rank: int) -> tuple[int, ...]:
    """Return how often each machine's training was asked to stop so far, where all share the run folder.

    0 for `own_rank`. They are counted, for the clocks of machines differ.
    """
    return tuple(0 if other == own_rank else _stop_count(run_dir, other) for other in range(planned.nodes))


def other_rank_asked_to_stop(
    planned: SupervisorPlan, run_dir: str, own_rank: int, counts_before: Sequence[int]
) -> int | None:
    """Return the machine whose training was asked to stop more often than `counts_before`."""
    now = stop_count_of_each_machine(planned, run_dir, own_rank)
    return next((other for other, count in enumerate(now) if count > counts_before[other]), None)


def _stop_count(run_dir: str, rank: int) -> int:
    folder = os.path.join(run_dir, f"node-{rank}") if rank else run_dir
    return sum(event.event == "stopping" for event in events.read_events(folder))
