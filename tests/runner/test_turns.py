"""Whose turn it is in the queue: random sequences of what users, strangers and the machine do, and the order."""

import os
import random

import pytest
from support import sample

from tui_train.runner import waiting
from tui_train.runner.gpus import card_watch
from tui_train.runner.queue.turns import ResourceRequest, Ticket, TurnWatch, cards_by_ticket_in_turn, waiting_in_order
from tui_train.runner.run_folder.lock_owner import LockOwner

GIB = 2**30
ANN, BOB = 1000, 1001
# The longest that a free card is left while a start waits that could use it.
MAX_IDLE_SECONDS = 10


def waits(name, uid=ANN, ticks=0, **request):
    return Ticket(name, uid, LockOwner(ticks=ticks), ResourceRequest(**request), waits=True)


def names(tickets):
    return "".join(ticket.name for ticket in tickets)


class Clock:
    """A clock that the test moves on."""

    now = 0.0

    def monotonic(self):
        return self.now


class SharedFolder:
    """The queue's folder as one start sees it: what has ended, or is of before a restart, does not count."""

    path = "queue"

    def __init__(self, machine):
        self.machine, self.wished_order_by_uid = machine, lambda: machine.wished_order_by_uid

    def tickets(self):
        return [each for each in self.machine.tickets.values() if each.owner.boot == str(self.machine.boot)]

    def lock_cards_or_cores(self, cards):
        held = {card for ticket in self.machine.holding() for card in ticket.cards}
        return None if held & set(cards) else [os.open(os.devnull, os.O_RDONLY)]


class Start:
    """A start that waits as the runner's does, on the clock of the test, and sees the cards of the machine."""

    def __init__(self, machine, ticket):
        self.machine, self.ticket, self.folder = machine, ticket, SharedFolder(machine)
        self.asked_at, self.locks = machine.time.now, []
        self.waiting = waiting._WaitForTurn(self, None, lambda _why: None)

    def change(self, **fields):
        self.ticket = self.machine.tickets[self.ticket.name] = self.ticket._replace(**fields)

    def keep_locks(self, locks):
        self.locks += locks

    def look(self):
        """Look at the cards, as often as the runner does, and take what it may."""
        if (self.machine.time.now - self.asked_at) % card_watch.CARD_WATCH_INTERVAL_SECONDS:
            return
        free = self.machine.idle()
        seen = {
            card: card_watch.CardUsage(int(card[4:]), 24 * GIB, 24 * GIB if card in free else 0)
            for card in self.machine.cards
        }
        watch = self.waiting._watch
        watch._before, watch._newest = watch._newest, card_watch._TimedCardUsage(self.machine.time.now, seen)
        order, held = self.machine.waiting(), self.machine.held()
        if self.waiting.try_to_take_cards() is None:
            return
        taken = set(self.ticket.cards)
        assert not taken & held, "no card twice"
        assert len(taken) == self.ticket.request.card_count
        self.machine.require_no_earlier_one_kept_waiting(order, self.ticket)

    def close(self):
        for lock in self.locks:
            os.close(lock)


class Machine:
    """Cards, strangers on some of them, and starts that ask, look at the cards every few seconds, get some, and end."""

    def __init__(self, seed, clock):
        self.random, self.time = random.Random(seed), clock
        self.cards = tuple(f"GPU-{number}" for number in range(self.random.choice((1, 2, 8))))
        self.core_count, self.asked, self.boot = 8, 0, 0
        self.strangers, self.tickets, self.wished_order_by_uid, self.starts, self.can_since = set(), {}, {}, {}, {}

    def held(self):
        return {card for ticket in self.holding() for card in ticket.cards}

    def idle(self):
        return set(self.cards) - self.strangers - self.held()

    def ask(self):
        self.asked += 1
        cards = tuple(self.random.sample(self.cards, self.random.randint(1, len(self.cards))))
        request = ResourceRequest(cards, self.random.randint(1, len(cards)), self.random.choice((0, 20 * GIB)))
        if self.random.random() < 0.2:
            request = ResourceRequest(cores=self.random.choice((1, 4, 99)))
        name, owner = f"run-{self.asked}", LockOwner(ticks=self.asked, boot=str(self.boot))
        self.tickets[name] = Ticket(name, self.random.choice((ANN, BOB)), owner, request, waits=True)
        self.starts[name] = Start(self, self.tickets[name])

    def end(self):
        """One that trains finishes, or one that waits or trains is killed."""
        if self.tickets:
            del self.tickets[self.random.choice(list(self.tickets))]

    def stranger(self):
        self.strangers ^= {self.random.choice(self.cards)} - self.held()

    def wish(self):
        uid = self.random.choice((ANN, BOB))
        own = [ticket.name for ticket in self.waiting() if ticket.uid == uid]
        before = [ticket.uid for ticket in self.waiting()]
        self.wished_order_by_uid[uid] = self.random.sample(own, len(own))
        after = self.waiting()
        assert [ticket.uid for ticket in after] == before, "nobody passes another user"
        assert [ticket.name for ticket in after if ticket.uid == uid] == self.wished_order_by_uid[uid]

    def forget_ended(self):
        for name in self.starts.keys() - self.tickets.keys():
            self.starts.pop(name).close()

    def reboot(self):
        """Restart: no process lives on, but their tickets stay behind."""
        self.boot += 1
        self.strangers.clear()
        for start in self.starts.values():
            start.close()
        self.starts.clear()

    def waiting(self):
        return waiting_in_order(SharedFolder(self).tickets(), self.wished_order_by_uid)

    def holding(self):
        return [ticket for ticket in SharedFolder(self).tickets() if not ticket.waits]

    def second(self):
        self.time.now += 1
        if self.random.random() < 0.3:
            events = (self.ask, self.end, self.stranger, self.wish, self.reboot)
            self.random.choices(events, weights=(10, 7, 4, 2, 0.3))[0]()
            self.forget_ended()
        for start in self.random.sample([*self.starts.values()], len(self.starts)):
            if start.ticket.waits:
                start.look()
        self.require_nobody_waits_in_vain()

    def who_can_start(self):
        """Yield the starts for which all is there that no earlier one can use."""
        idle, kept = self.idle(), set()
        cores = self.core_count - sum(ticket.cores for ticket in self.holding())
        for ticket in self.waiting():
            usable = idle & set(ticket.request.cards) - kept
            needed = min(ticket.request.cores, self.core_count)
            if len(usable) >= ticket.request.card_count and needed <= max(0, cores):
                yield ticket.name
            kept |= idle & set(ticket.request.cards)
            cores -= needed

    def require_nobody_waits_in_vain(self):
        assert sum(ticket.cores for ticket in self.holding()) <= self.core_count
        self.can_since = {name: self.can_since.get(name, self.time.now) for name in self.who_can_start()}
        longest = max((self.time.now - since for since in self.can_since.values()), default=0)
        assert longest <= MAX_IDLE_SECONDS, (self.time.now, self.can_since)

    def require_no_earlier_one_kept_waiting(self, order, taker):
        """An earlier start that can use a card of the one that begins has as many others that are idle."""
        earlier = order[: [each.name for each in order].index(taker.name)]
        left, taken = self.idle(), set(taker.cards)
        for ticket in earlier:
            usable = [card for card in ticket.request.cards if card in left]
            if taken & set(ticket.request.cards):
                assert len(usable) >= ticket.request.card_count, (ticket, taker)
            left -= set(usable[: ticket.request.card_count])


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (waiting, card_watch):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(waiting, "count_usable_cpus", lambda _limit: 8)
    monkeypatch.setattr(card_watch.CardWatch, "_start_child", lambda _watch: None)
    return made


@pytest.mark.parametrize("seed", sample(range(200), 10))
def test_no_card_is_idle_for_long_while_a_start_waits_that_could_use_it(seed, clock):
    machine = Machine(seed, clock)
    for _ in range(200):
        machine.second()
    for start in machine.starts.values():
        start.close()


def test_a_card_without_the_memory_that_is_needed_is_left_to_others():
    large = waits("large", cards=("a",), card_count=1, memory=2 * GIB)
    small = waits("small", 1, 1, cards=("a",), card_count=1)
    assert cards_by_ticket_in_turn((large, small), (), {"a": GIB}, 1) == {"small": ("a",)}


def test_cpu_cores_are_given_in_order_and_never_more_than_there_are():
    all_of_it, one = waits("all", cores=64), waits("one", ticks=1, cores=1)
    trains = waits("trains", cores=1)._replace(waits=False, cores=1)
    assert cards_by_ticket_in_turn((all_of_it, one), (), {}, 4) == {"all": ()}
    assert cards_by_ticket_in_turn((all_of_it, one), (trains,), {}, 4) == {}
    assert cards_by_ticket_in_turn((one,), (trains,), {}, 4) == {"one": ()}


def test_a_user_changes_the_places_of_own_starts_only():
    asked = [waits("a", ANN, 1), waits("b", BOB, 2), waits("c", ANN, 3), waits("d", BOB, 4), waits("e", ANN, 5)]
    assert names(waiting_in_order(asked, {})) == "abcde"
    assert names(waiting_in_order(asked, {ANN: ["e"]})) == "ebadc"
    assert names(waiting_in_order(asked, {ANN: ["e", "c", "b"]})) == "ebcda"
    assert names(waiting_in_order([asked[0]._replace(waits=False), *asked[1:]], {ANN: ["e", "c"]})) == "bedc"


def test_a_start_that_leaves_its_turn_unused_is_passed_and_no_other():
    suspended = waits("suspended", cards=("a",), card_count=1)
    next_one = waits("next", ticks=1, cards=("a",), card_count=1)
    watch = TurnWatch("next")

    def turns(now, free=("a",)):
        return watch.cards_by_ticket_in_turn((suspended, next_one), (), dict.fromkeys(free, GIB), 1, now)

    assert turns(0) == turns(59) == {"suspended": ("a",)}
    assert turns(60) == turns(600) == {"next": ("a",)}, "and is not passed itself"
    watch = TurnWatch("next")
    assert turns(0) == {"suspended": ("a",)}
    assert turns(30, free=()) == {}
    assert turns(61) == {"suspended": ("a",)}, "it had nothing to use meanwhile"
