"""Self-clocked fair queueing: the order of tenants that share something by weight.

Each tenant has its own line, first come, first served. Virtual time `v` is the service that a
tenant of weight 1 could have had. The first in a line *starts* at the virtual time at
which its tenant's last one finished, or at `v` when it came, whichever is later, and *finishes*
`cost / weight` after that. The one that finishes first is next, and `v` moves on to its finish.

It follows that for each tenant that waits `start <= v <= finish` of its first one, always: whatever
comes, gives up or changes its weight. As long as a tenant waits it is served `weight` times what
its start moves on, so in any interval in which it waits throughout, and gives nothing up,

    weight * (v2 - v1) - c  <=  served  <=  weight * (v2 - v1) + c      (c: its largest cost)

and of two tenants that both wait throughout, the services `W` divided by their weights differ by at
most `c_f / w_f + c_g / w_g` (S. J. Golestani, "A self-clocked fair queueing scheme for broadband
applications", INFOCOM 1994; the same bound as that of start-time fair queueing: Goyal, Vin and
Cheng, SIGCOMM 1996). From the moment at which a tenant begins to wait it is never behind `v` by
more than one cost of its own.

This concerns tenants by their own service. Of the fluid ideal, in which all are served at
once in drops, it follows where they all begin together: none is behind it by more than `c`. Where
they come and go, a newcomer may find that `v` has run ahead of the ideal's time, by what others are
still due: it then waits for up to one cost of each of them first, whatever its weight.

A tenant that does not wait has finished at `v` or before. So nothing need be known about it: it
starts at `v` when it comes back, with no credit for the past and no wait for it, and leaving gains
nothing. Start-time fair queueing would have to remember it; and there `v` stands still while ever
new tenants come, so that they can starve an old one.

Only the first request of a line has tags. Those behind it need no correction when a request gives
up or a weight changes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final

from headgate.errors import CostError, OptionError

LARGEST_WEIGHT: Final = 1_000
"""The largest weight; the smallest is 1."""

_SCALE: Final = math.lcm(*range(1, LARGEST_WEIGHT + 1))
"""Parts of a unit of virtual time: any cost divided by any weight is a whole number of them."""

_MANY: Final = 32
"""The number of tenants above which they are not examined one by one."""

_SLACK: Final = 64
"""Entries that the heap may have beyond twice the tenants before it is tidied."""


@dataclass(slots=True, eq=False, repr=False)
class Item:
    """A request that waits, or has waited, in a `FairQueue`."""

    tenant: str
    cost: int
    _number: int
    _since: int
    _line: _Line | None
    load: Any = None
    """A value of the owner's."""


class _Line:
    """The items of one tenant, and the tags of the first."""

    __slots__ = ("cost", "finish", "items", "start", "step", "weight")

    def __init__(self, weight: int, start: int) -> None:
        self.weight = weight
        self.step = _SCALE // weight
        self.items: OrderedDict[Item, None] = OrderedDict()
        self.cost = 0
        self.start = self.finish = start


class FairQueue:
    """Items of tenants, in an order that is fair by cost and weight.

    It reads no clock and takes no lock. `push`, `pop`, `peek` and `cancel` take O(log tenants),
    averaged over calls, however many items wait. The order is exact: integers, nothing rounded.
    Items that finish at the same virtual time go in the order in which they came.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._by_length: dict[int, dict[_Line, None]] = {}
        self._heap: list[tuple[int, int, Item]] = []  # of the first of each line, and stale ones
        self._virtual = 0
        self._number = 0
        self._depth = 0
        self._cost = 0
        self._weight = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._depth

    @property
    def tenants(self) -> int:
        """Tenants that wait."""
        return len(self._lines)

    @property
    def cost(self) -> int:
        """The cost of all items that wait."""
        return self._cost

    def depth_of(self, tenant: str) -> int:
        """Return how many items of *tenant* wait."""
        line = self._lines.get(tenant)
        return 0 if line is None else len(line.items)

    def push(self, tenant: str, cost: int, weight: int = 1) -> Item:
        """Line up behind what else *tenant* has waiting; its weight is *weight* from now on."""
        if type(cost) is not int or cost < 1:
            raise CostError(f"cost is {cost!r}; expected an integer of at least 1")
        checked_weight(weight)
        line = self._lines.get(tenant)
        if line is None:
            line = _Line(weight, self._virtual)
        elif weight != line.weight:
            self.reweigh(tenant, weight)
        self._number += 1
        item = Item(tenant, cost, self._number, self._virtual, line)
        self._depth += 1
        self._cost += cost
        line.cost += cost
        line.items[item] = None
        self._record_length(line, len(line.items) - 1)
        if len(line.items) == 1:
            self._lines[tenant] = line
            self._weight += line.weight
            heappush(self._heap, _entry(line, item))
            self._tidy()
        return item

    def peek(self) -> Item | None:
        """The item that is next; None if nothing waits."""
        heap = self._heap
        while heap:
            finish, _, item = heap[0]
            line = item._line  # noqa: SLF001
            if line is not None and line.finish == finish:
                return item
            heappop(heap)  # cancelled, or of another weight
        return None

    def pop(self) -> Item | None:
        """Take out the item that is next; None if nothing waits."""
        item = self.peek()
        if item is None:
            return None
        line = self._lines[item.tenant]
        self._virtual = max(self._virtual, line.finish)
        line.start = line.finish
        self._remove(line, item)
        if line.items:
            heapreplace(self._heap, _entry(line, next(iter(line.items))))
        else:
            heappop(self._heap)
            self._drop(item.tenant, line)
        return item

    def cancel(self, item: Item) -> bool:
        """Take *item* out as if it had never come; False if it was not waiting any more.

        Those behind it move up. They may have been kept waiting by it for longer than it takes to
        serve them: that is their tenant's loss. It is due one of them at once, not all.
        """
        line = item._line  # noqa: SLF001
        if line is None:
            return False
        was_first = next(iter(line.items)) is item
        self._remove(line, item)
        if not line.items:
            self._drop(item.tenant, line)
        elif was_first:
            first = next(iter(line.items))
            line.start = max(line.start, self._virtual - first.cost * line.step)
            heappush(self._heap, _entry(line, first))
        self._tidy()
        return True

    def reweigh(self, tenant: str, weight: int) -> None:
        """Give *tenant* another weight while it waits; nothing happens if it does not.

        It counts from now on: not for what has been served, nor for what it is due by now.
        """
        checked_weight(weight)
        line = self._lines.get(tenant)
        if line is None or line.weight == weight:
            return
        line.start = self._start_of(line, weight)
        self._weight += weight - line.weight
        line.weight = weight
        line.step = _SCALE // weight
        heappush(self._heap, _entry(line, next(iter(line.items))))
        self._tidy()

    def ahead_of(self, tenant: str, cost: int, weight: int = 1) -> int:
        """Return the cost that is served before an item that is pushed now, if no others come.

        Known if all costs are 1 and not many tenants wait; else about: parts of items count, and
        all of many tenants are taken to go on waiting.
        """
        line = self._lines.get(tenant)
        own, start = 0, self._virtual
        if line is not None:
            own, start = line.cost, self._start_of(line, weight)
        if len(self._lines) > _MANY:
            others = self._weight - (0 if line is None else line.weight)
            return min(self._cost, own + (own + cost) * others // weight)
        finish = start + (own + cost) * (_SCALE // weight)
        return own + sum(
            min(other.cost, (finish - other.start) // other.step)
            for other in self._lines.values()
            if other is not line
        )

    def last_of_longest(self) -> tuple[Item | None, int]:
        """The item that came last in the longest line, and how many there are in that."""
        if not self._by_length:
            return None, 0
        length = max(self._by_length)  # there are few: no line is longer than its owner allows
        line = next(iter(self._by_length[length]))
        return next(reversed(line.items)), length

    def _record_length(self, line: _Line, before: int) -> None:
        """Record that the length of *line* is no longer *before*."""
        by_length, length = self._by_length, len(line.items)
        if before:
            alike = by_length[before]
            del alike[line]
            if not alike:
                del by_length[before]
        if length:
            by_length.setdefault(length, {})[line] = None

    def _start_of(self, line: _Line, weight: int) -> int:
        """Return the start of the first in *line* under another *weight*: it is due no more of it
        than it was."""
        due = (self._virtual - line.start) * line.weight
        return self._virtual - due // weight

    def _remove(self, line: _Line, item: Item) -> None:
        item._line = None  # noqa: SLF001
        del line.items[item]
        self._record_length(line, len(line.items) + 1)
        line.cost -= item.cost
        self._cost -= item.cost
        self._depth -= 1

    def _drop(self, tenant: str, line: _Line) -> None:
        """Forget a tenant that has nothing waiting."""
        del self._lines[tenant]
        self._weight -= line.weight
        if not self._lines:  # no tag is left: time may start at 0 again
            self._virtual = 0
            self._heap.clear()

    def _tidy(self) -> None:
        """Throw stale entries away before they are the greater part."""
        if len(self._heap) > 2 * len(self._lines) + _SLACK:
            firsts = ((line, next(iter(line.items))) for line in self._lines.values())
            self._heap = [(line.finish, item._number, item) for line, item in firsts]  # noqa: SLF001
            heapify(self._heap)


def checked_weight(weight: int) -> int:
    """*weight* if it is one."""
    if type(weight) is not int or not 1 <= weight <= LARGEST_WEIGHT:
        raise OptionError(
            f"weight is {weight!r}; expected a whole number from 1 to {LARGEST_WEIGHT}"
        )
    return weight


def _entry(line: _Line, first: Item) -> tuple[int, int, Item]:
    """Give *first*, which has just become the first in its *line*, its tags."""
    line.start = max(line.start, first._since)  # noqa: SLF001
    line.finish = line.start + first.cost * line.step
    return line.finish, first._number, first  # noqa: SLF001
