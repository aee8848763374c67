"""What one node has used of shared counters, and what of it each other region has been told.

For each counter and window of time there is one number that only grows: all that this node has used
of it in that window. A message says the number, not what was added to it, so a region may be told
late, twice or in any order, and a message that never came is made up for by the next. What is given
back is taken off only as far as nobody has been told yet.

Memory is bounded. When there are *max_keys* numbers, those that everybody knows make room first, of
them the smallest, and then those of which the least is owed. A number that was forgotten must not
begin again from 0 under the same name, as nobody would notice until it is as large as before:
whatever is counted after that belongs to a new *generation*, which is part of the name of its
origin.

No I/O, no clock, no threads: time comes in as nanoseconds of one clock, and whoever has several
threads has a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from headgate.errors import StoreError
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    LeaseGrant,
    MergeUsage,
    Operation,
    Outcomes,
    Refund,
    Settle,
    Take,
    TakeEach,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headgate.limits import Limit


# For how long what was consumed under a limit has a meaning elsewhere.
#
# What was used longer ago than a limit takes to be as new says nothing any more. So a node counts
# in windows of that length, and tells of a window until the next one has passed too. Lengths are
# whole seconds of three binary digits, at most a quarter longer than need be: limits that are about
# alike share a message. The windows of a node are numbered by its own clock, and compared with its
# own alone: whose clock is right does not matter.


SLACK_NS: Final = 30 * SECOND
"""How long after its end a window may still be heard of: messages that were under way for long."""


def window_length_ns(limit: Limit) -> int:
    """How long the windows are in which consumption under *limit* is counted."""
    seconds = -(-limit.period_ns // SECOND)
    shift = max(seconds.bit_length() - 3, 0)
    return (-(-seconds >> shift) << shift) * SECOND


def is_over(window: int, length_ns: int, now_ns: int) -> bool:
    """Whether nobody has to be told any more what was used in *window*."""
    return now_ns // length_ns > window + 1


def remembered_ns(length_ns: int) -> int:
    """For how long a store has to remember what it was told of a window."""
    return 2 * length_ns + SLACK_NS


MOST_CHECKS: Final = 64
"""Counters in one message, which take a server a millisecond or two: its other callers wait, and so
does whoever wants to count here while it is made."""

MOST_AT_ONCE: Final = 32 * MOST_CHECKS
"""Counters that a region is told of before there is a pause."""

LATE_NS: Final = 2 * SECOND
"""What has waited for longer could not be told because of a failure."""

MOST_LIMITS: Final = 1_024
"""How many limits' windows are remembered: policies change."""

LOOKED_AT: Final = 256
"""How many numbers are looked at when room is needed; half of them go at most."""


Figures = tuple[int, ...]
"""A number for each region. (Lists would each be gone through by every garbage collection.)"""


class Label(NamedTuple):
    """What the numbers of one message have in common."""

    length_ns: int
    window: int
    generation: int


@dataclass(slots=True, eq=False)
class Count:
    """What this node has used of one counter in one window."""

    group: str
    key: str
    limit: Limit
    label: Label
    told: Figures
    """What each region is known to know."""
    spared: Figures
    """What each region was spared, see `Tally.heard`; it is not told of it any more."""
    since: Figures
    """Since when each region has not been told all."""
    total: int = 0
    sent: int = 0
    """The most of it that any message told, come or not."""
    waiting: int = 0
    """How many regions have to be told something of it."""

    def owed(self, peer: int) -> int:
        """How much of it *peer* has not been told."""
        return self.total - self.spared[peer] - self.told[peer]


class Shelf:
    """The numbers of one group in one window, by key, and what those that are new are called."""

    __slots__ = ("counts", "label")

    def __init__(self, label: Label) -> None:
        self.label = label
        self.counts: dict[str, Count] = {}


class Said(NamedTuple):
    """A number in a message. If *is_late*, what was waiting for long is told piece by piece."""

    what: Count
    number: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class Message:
    """What a region is to be told, and the numbers that it says."""

    absorb: MergeUsage
    said: tuple[Said, ...]
    made_ns: int


class Tally:
    """What this node, *origin*, has used, and what it owes to say to each of so many *peers*.

    Of *groups* alone; None: of all. What could not be told for `LATE_NS` is told piece by piece,
    until the region's counter refuses for longer than *max_debt_ns*; it is spared the rest.
    """

    def __init__(
        self,
        origin: str,
        *,
        peers: int,
        max_keys: int,
        groups: Collection[str] | None = None,
        max_debt_ns: int | None = None,
    ) -> None:
        self.origin = origin
        self.dropped = 0
        """Numbers that were forgotten, or have passed, before every region knew them."""
        self.spared = 0
        """Units that regions were spared."""
        self._peers = peers
        self._max_keys = max_keys
        self._max_debt_ns = max_debt_ns
        self._generation = 0
        self._latest_ns = 0
        self._count = 0
        self._nothing: Figures = (0,) * peers
        self._shelves: dict[tuple[int, int, str], Shelf] = {}
        self._dirty: list[dict[Count, None]] = [{} for _ in range(peers)]
        # By the identity of limits, which are kept: to hash one takes longer than the rest.
        self._lengths: dict[int, tuple[Limit, int]] = {}
        self.share(groups)

    def __len__(self) -> int:
        """How many numbers there are."""
        return self._count

    def share(self, groups: Collection[str] | None) -> None:
        """From now on count what is used of the counters of *groups*; None: of all."""
        self._groups = None if groups is None else frozenset(groups)

    def add(self, group: str, key: str, limit: Limit, amount: int, now_ns: int) -> bool:
        """*amount* units more were used, or less; whether some region has to be told now that had
        been told all of this counter."""
        if (
            not amount
            or (self._groups is not None and group not in self._groups)
            or not limit.is_divisible
        ):
            return False
        if now_ns > self._latest_ns:
            self._latest_ns = now_ns
        length_ns = self._length_ns(limit)
        place = (length_ns, self._latest_ns // length_ns, group)
        shelf = self._shelves.get(place)
        count = None if shelf is None else shelf.counts.get(key)
        if amount < 0:
            if count is not None:
                count.total = max(count.total + amount, count.sent)
            return False
        if count is None:
            count = self._new_count(key, limit, place)
        count.limit = limit
        count.total += amount
        return count.waiting < self._peers and self._mark(count)

    def is_told(self, peer: int) -> bool:
        """Whether *peer* knows everything."""
        return not self._dirty[peer]

    def waiting(self, peer: int) -> int:
        """Of how many counters *peer* does not know all."""
        return len(self._dirty[peer])

    def lag_ns(self, peer: int, now_ns: int) -> int:
        """How old the oldest is that *peer* has not been told."""
        oldest = min((count.since[peer] for count in self._dirty[peer]), default=now_ns)
        return max(now_ns - oldest, 0)

    def portions(self, peer: int) -> int:
        """How often `messages` is to be asked for, to tell *peer* everything, or a good deal."""
        return -(-min(len(self._dirty[peer]), MOST_AT_ONCE) // MOST_CHECKS)

    def messages(self, peer: int, now_ns: int) -> list[Message]:
        """A portion of what *peer* has to be told; to be handed to `heard` when it has been.

        The next time it is the turn of others first, whether or not this is heard: what is refused
        must not hold up the rest. What has passed is left out, and stays until it is swept.
        """
        now_ns = self._now(now_ns)
        dirty = self._dirty[peer]
        by_label: dict[Label, list[Count]] = {}
        for count in list(islice(dirty, MOST_CHECKS)):
            del dirty[count]
            if count.owed(peer) <= 0:
                count.waiting -= 1
                continue
            dirty[count] = None
            if not is_over(count.label.window, count.label.length_ns, now_ns):
                by_label.setdefault(count.label, []).append(count)
        return [self._message(peer, label, counts, now_ns) for label, counts in by_label.items()]

    def heard(self, peer: int, message: Message, outcomes: Outcomes) -> None:
        """*peer* has been told *message*; *outcomes* are what its counters say to a cost of 1."""
        dirty = self._dirty[peer]
        for (count, number, is_late), outcome in zip(message.said, outcomes, strict=True):
            if number > count.told[peer]:
                count.told = _with(count.told, peer, number)
            if is_late and self._is_in_debt(outcome.retry_after_ns):
                rest = max(count.owed(peer), 0)
                self.spared += rest
                count.spared = _with(count.spared, peer, count.spared[peer] + rest)
            if count in dirty and count.owed(peer) <= 0:
                del dirty[count]
                count.waiting -= 1
            elif not is_late:
                count.since = _with(count.since, peer, message.made_ns)

    def sweep(self, now_ns: int, *, most: int = LOOKED_AT) -> bool:
        """Forget up to *most* numbers of windows that have passed; whether there may be more."""
        now_ns = self._now(now_ns)
        for place in list(self._shelves):
            length_ns, window, _ = place
            if is_over(window, length_ns, now_ns):
                counts = self._shelves[place].counts
                for key in list(islice(counts, most)):
                    self._forget(counts.pop(key))
                if counts:
                    return True
                del self._shelves[place]
        return False

    def _now(self, now_ns: int) -> int:
        """A clock that steps back must not number windows anew."""
        self._latest_ns = max(self._latest_ns, now_ns)
        return self._latest_ns

    def _length_ns(self, limit: Limit) -> int:
        known = self._lengths.get(id(limit))
        if known is not None:
            return known[1]
        if len(self._lengths) >= MOST_LIMITS:
            self._lengths.clear()
        length_ns = window_length_ns(limit)
        self._lengths[id(limit)] = limit, length_ns
        return length_ns

    def _new_count(self, key: str, limit: Limit, place: tuple[int, int, str]) -> Count:
        if self._count >= self._max_keys:
            self._make_room()
        self._count += 1
        length_ns, window, group = place
        shelf = self._shelves.get(place)
        if shelf is None:
            shelf = self._shelves[place] = Shelf(Label(length_ns, window, self._generation))
        elif shelf.label.generation != self._generation:
            shelf.label = Label(length_ns, window, self._generation)
        none = self._nothing
        count = shelf.counts[key] = Count(group, key, limit, shelf.label, none, none, none)
        return count

    def _mark(self, count: Count) -> bool:
        """Every region has to be told of *count*."""
        since = list(count.since)
        for peer, dirty in enumerate(self._dirty):
            if count not in dirty:
                dirty[count] = None
                since[peer] = self._latest_ns
        count.since = tuple(since)
        count.waiting = self._peers
        return True

    def _message(self, peer: int, label: Label, counts: list[Count], now_ns: int) -> Message:
        checks, said = [], []
        for count in counts:
            number = count.total - count.spared[peer]
            is_late = self._max_debt_ns is not None and now_ns - count.since[peer] > LATE_NS
            if is_late:
                number = min(number, count.told[peer] + _piece(count.limit))
            count.sent = max(count.sent, number + count.spared[peer])
            checks.append(Check(count.group, count.key, count.limit, number))
            said.append(Said(count, number, is_late))
        origin = f"{self.origin}/{label.length_ns // SECOND}.{label.generation}"
        ttl_ns = remembered_ns(label.length_ns)
        return Message(MergeUsage(tuple(checks), origin, label.window, ttl_ns), tuple(said), now_ns)

    def _is_in_debt(self, retry_after_ns: int | None) -> bool:
        limit = self._max_debt_ns
        return limit is not None and (retry_after_ns is None or retry_after_ns > limit)

    def _make_room(self) -> None:
        """Forget numbers that everybody knows, the smallest first, or else those of which the least
        is owed, of those longest here."""
        self._generation += 1
        looked_at = list(islice(self._oldest(), min(LOOKED_AT, self._max_keys)))
        looked_at.sort(key=_worth)
        most = max(len(looked_at) // 2, 1)
        for n, count in enumerate(looked_at):
            counts = self._shelves[(*count.label[:2], count.group)].counts
            del counts[count.key]
            if n < most:
                self._forget(count)
            else:
                counts[count.key] = count  # the next time others are looked at

    def _oldest(self) -> Iterator[Count]:
        for place in sorted(self._shelves, key=lambda place: place[0] * (place[1] + 1)):
            yield from self._shelves[place].counts.values()

    def _forget(self, count: Count) -> None:
        """*count* is on no shelf any more."""
        self._count -= 1
        is_known = True
        for peer, dirty in enumerate(self._dirty):
            if count in dirty:
                del dirty[count]
                is_known = is_known and count.owed(peer) <= 0
        if not is_known:
            self.dropped += 1


def _worth(count: Count) -> tuple[int, int]:
    """How much of it some region has not been told, and how much there is: one that is used much
    would soon be back, under a new name each time, and a store knows so many names at most."""
    owed = count.total - min(map(add, count.told, count.spared)) if count.waiting else 0
    return owed, count.total


def _with(figures: Figures, place: int, figure: int) -> Figures:
    """*figures* with another one at *place*."""
    return (*figures[:place], figure, *figures[place + 1 :])


def _piece(limit: Limit) -> int:
    """How much is told at once of what was waiting: an eighth of a quota, or what comes back in a
    second if that is more, so that it is told faster than it is used."""
    return max(limit.quota // 8, -(-limit.quota * SECOND // limit.period_ns))


# What an operation has consumed, from what came of it.


Consumed = tuple[Check, int]
"""A counter, and how much more of it is used; less, if negative."""


def consumption(operation: Operation[Any], result: Any) -> Iterator[Consumed]:
    """What *operation* has used of each counter, now that *result* came of it.

    What is held is used when it is settled. What is lent in advance (a lease) is used when it is
    lent, but for what is given back in the same breath; what is used under a licence, when it is
    told. Pots hold what was lent before, and what other regions have used is not used here.
    """
    match operation:
        case TakeEach(takes):
            for take, outcomes in zip(takes, result, strict=True):
                if not isinstance(outcomes, StoreError):
                    yield from consumption(take, cast("Outcomes", outcomes))
        case GrantLease(check):
            yield check, _lent(operation, result)
        case Refund(checks):
            for check in checks:
                yield check, -check.cost
        case Take(checks) | Charge(checks) | Settle(checks):
            if _is_charged(operation, result):
                for check in checks:
                    yield check, check.cost
        case _:
            return


def _is_charged(operation: Take | Charge | Settle, result: Any) -> bool:
    """Whether the costs of *operation* have been charged."""
    if isinstance(operation, Take):
        return operation.consume and all(outcome.allowed for outcome in result)
    return isinstance(operation, Charge) or bool(result) or operation.charge_lapsed


def _lent(lend: GrantLease, lent: LeaseGrant) -> int:
    taken = lend.check.cost if lent.outcome.allowed else 0
    if lend.is_charged:
        # Units that are given back were never used, whether or not the store took them back.
        return taken + lent.amount - lend.unused
    return taken + max(lend.used - lend.told, 0)
