"""`tui-train hosts`: which GPUs of the saved hosts are free; saves a host, and logs in to one."""

from collections.abc import Iterator

import click
from msgspec import Struct

from tui_train.actions.host_cards import HostCards, read_cards_of_hosts
from tui_train.base.app_paths import hosts_file
from tui_train.base.errors import Unavailable
from tui_train.base.text import quantity, visible
from tui_train.channel import ssh
from tui_train.cli import answers
from tui_train.cli.printing import print_json, report_waiting
from tui_train.facts.types import GpuProcess
from tui_train.profile import hosts
from tui_train.views.host_cards import card_and_use_texts, free_cards_summary, is_card_taken


class HostGpu(Struct, frozen=True, kw_only=True):
    """A GPU of a host, whether nobody uses it, and the run that has it in the queue."""

    index: int
    uuid: str
    name: str
    memory_total: int | None
    memory_free: int | None
    problem: str
    free: bool
    processes: tuple[GpuProcess, ...]
    run: str


class HostAnswer(Struct, frozen=True, kw_only=True):
    """A saved host and its GPUs; `problem` is why these are not known."""

    name: str
    address: str
    problem: str
    gpus: tuple[HostGpu, ...]


HostsAnswer = tuple[HostAnswer, ...]


def print_hosts(*, as_json: bool) -> None:
    """Print each saved host as it answers, with its GPUs and who uses them; as JSON all, by their names."""
    known = hosts.address_by_saved_host()
    if as_json:
        answers = {answer.host: answer for answer in read_cards_of_hosts(known)}
        print_json([_host_data(answers[name], address) for name, address in known.items()])
        return
    if not known:
        click.echo("No host is saved: tui-train hosts add NAME USER@HOST")
        return
    report_waiting(f"asking {quantity(len(known), 'host')} …")
    for answer in read_cards_of_hosts(known):
        for line in _host_lines(answer, known[answer.host]):
            click.echo(line)


def _host_lines(answer: HostCards, address: str) -> Iterator[str]:
    at = "" if address == answer.host else f" ({visible(address)})"
    said = free_cards_summary(answer.facts) if answer.facts else f"not known: {visible(answer.problem)}"
    yield f"{visible(answer.host)}{at}: {said}"
    for card, use in card_and_use_texts(answer.facts) if answer.facts else ():
        yield f"  {card}: {use}"


def _host_data(answer: HostCards, address: str) -> HostAnswer:
    facts = answer.facts
    gpus = tuple(
        HostGpu(
            index=gpu.index, uuid=gpu.uuid, name=gpu.name, memory_total=gpu.memory_total, memory_free=gpu.memory_free,
            problem=gpu.problem, free=not gpu.problem and not is_card_taken(facts, gpu), processes=gpu.processes,
            run=facts.card_in_queue(gpu.uuid).holder,
        )
        for gpu in facts.machine.gpus
    ) if facts else ()  # fmt: skip
    return HostAnswer(name=answer.host, address=address, problem=answer.problem, gpus=gpus)


def add_saved_host(name: str, address: str, *, force: bool) -> None:
    """Save a host, which is not asked for that."""
    hosts.saved_hosts_with_added(name, address, may_replace=force)
    answers.announce_changes(writes=(f"{hosts_file()}: {name}",))
    hosts.save_host(name, address, may_replace=force)
    click.echo(f"saved {visible(name)}: tui-train facts --on {visible(name)} shows what it has")


def forget_saved_host(name: str) -> None:
    """Forget a host."""
    hosts.saved_hosts_without(name)
    answers.announce_changes(removes=(f"{hosts_file()}: {name}",))
    hosts.remove_host(name)


def log_in_to_saved_host(name: str) -> None:
    """Log in by ssh on this terminal; Unavailable if that fails."""
    host = hosts.host_address(name)
    answers.announce_changes(starts=(f"ssh {host}",))
    if code := ssh.log_in(host):
        raise Unavailable(f"ssh could not log in to {visible(host)} (exit code {code})", f"Try it: ssh {visible(host)}")
    click.echo(f"logged in to {visible(host)}: what is asked of it uses this connection for twelve hours")
