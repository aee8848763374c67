"""`headgate size`: the shards, workers and memory of a fleet, with the arithmetic."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from headgate.cli.command import Command, ExitStatus, add_json
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


_COUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMG]?)")
_FACTORS: Final = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_DESCRIPTION: Final = """\
Compute what a fleet needs for a number of clients and checks per second: memory, Redis shards,
workers of the service, bandwidth. The arithmetic is shown, so that you can use your own figures.

The size of a counter is measured; the time of a worker is on the safe side: docs/scaling.md."""
_EXAMPLES: Final = """\
examples:
  headgate size --clients 10M --rules 2 --checks 1M
  headgate size --clients 50k --checks 2k --way rls --json

exit status: 0 done, 2 wrong usage"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--clients",
        type=_count,
        required=True,
        metavar="N",
        help="active clients in one window: 10M",
    )
    parser.add_argument(
        "--checks", type=_count, required=True, metavar="N", help="requests per second at the peak"
    )
    parser.add_argument(
        "--rules", type=_count, default=1, metavar="N", help="rules that apply to a request (1)"
    )
    parser.add_argument(
        "--way", choices=("http", "rls"), default="http", help="the protocol of the checks (http)"
    )
    parser.add_argument(
        "--counter-bytes", type=_count, metavar="N", help="bytes of a counter in Redis (117)"
    )
    parser.add_argument(
        "--use", type=float, default=0.6, metavar="SHARE", help="the utilisation of a core (0.6)"
    )
    parser.add_argument(
        "--room", type=float, default=1.5, metavar="FACTOR", help="spare memory (1.5)"
    )
    parser.add_argument(
        "--workers-a-machine", type=_count, default=4, metavar="N", help="workers per machine (4)"
    )
    add_json(parser)


def _count(text: str) -> int:
    """A whole number, also as 10k, 1.5M, 1G."""
    found = _COUNT.fullmatch(text)
    count = float(found[1]) * _FACTORS[found[2]] if found else 0.0
    if found is None or count < 1 or count != int(count):
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1, as 1000, 10k, 1M")
    return int(count)


def _run(arguments: Namespace) -> ExitStatus:

    demand = Demand(
        clients=arguments.clients,
        checks=arguments.checks,
        rules=arguments.rules,
        way=arguments.way,
        counter_bytes=arguments.counter_bytes or COUNTER_BYTES,
        use=arguments.use,
        room=arguments.room,
        workers_a_machine=arguments.workers_a_machine,
    )
    print(json.dumps(_data(demand), indent=2) if arguments.json else "\n".join(_lines(demand)))
    return ExitStatus.DONE


COMMAND: Final = Command(
    "size", "compute the size of a fleet", _DESCRIPTION, _EXAMPLES, _add_arguments, _run
)


def _data(demand: Demand) -> dict[str, object]:
    return {
        "counters": demand.counters,
        "memory_bytes": demand.memory_bytes,
        "shards": demand.shards,
        "shard_bytes": demand.shard_bytes,
        "workers": demand.workers,
        "machines": demand.machines,
        "bytes_to_store_per_second": demand.bytes_to_store,
        "bytes_from_store_per_second": demand.bytes_from_store,
    }


def _lines(demand: Demand) -> list[str]:

    use = f"{demand.use:.0%}"
    asked = f"{demand.checks:,} checks/s"
    counted = f"{asked} x {_counted(demand.rules, 'counter')}"
    clients = f"{_counted(demand.clients, 'client')} x {_counted(demand.rules, 'rule')}"
    weighed = f"{demand.counters:,} x {demand.counter_bytes} bytes x {demand.room:g} to spare"
    store = f"{counted} x {STORE_US} us = {float(demand.store_cores):,.2f} busy cores"
    each = f"{_counted(demand.shards, 'shard')} of {_bytes(demand.shard_bytes)}"
    cost = WORKER_US[demand.way]
    work = f"{asked} x {cost} us = {float(demand.worker_cores):,.2f} busy cores"
    spread = f"{demand.workers:,} / {demand.workers_a_machine} workers, and one to spare"
    return [
        f"counters   {clients} = {demand.counters:,}",
        f"memory     {weighed} = {_bytes(demand.memory_bytes)}",
        f"shards     {store}; at {use}: {each}",
        "           and as many replicas, so that losing a shard costs a moment only",
        f"workers    {work}; at {use}: {_counted(demand.workers, 'worker')} ({demand.way})",
        f"machines   {spread} = {demand.machines:,}",
        f"to store   {counted} x {BYTES_IN} bytes = {_bits(demand.bytes_to_store)}",
        f"from store {counted} x {BYTES_OUT} bytes = {_bits(demand.bytes_from_store)}",
    ]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def _bits(count: int) -> str:
    return f"{8 * count / 1_000_000:,.1f} Mbit/s"


# How much a fleet needs: memory, shards, workers, bandwidth. Arithmetic only.
#
#     counters  = clients x rules                      if all clients are active at once
#     memory    = counters x bytes a counter x room
#     shards    = checks a second x rules x time of a server a counter / use
#     workers   = checks a second x time of a worker a check / use
#
# The size of a counter was measured on one core of a small machine; the time of a worker is a
# planning figure; the rest are inputs.


Way = Literal["http", "rls"]

COUNTER_BYTES: Final = 117
"""Bytes of a token bucket in Redis with a key of up to 11 characters."""

LONG_KEY_BYTES: Final = 149
"""The same with a key of up to 43 characters."""

STORE_US: Final = 20
"""Microseconds of one core of Redis for a counter in a check: about 10 where many checks travel
together, twice as many where a fleet is so wide that few do."""

WORKER_US: Final[dict[Way, int]] = {"http": 130, "rls": 90}
"""Microseconds of one core for a check that a worker answers, the store's client included."""

BYTES_IN: Final = 180
BYTES_OUT: Final = 36
"""Bytes that a counter in a check is on the way to the store, and back."""

_MEGA: Final = 1_000_000
_LARGEST: Final = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is asked of a fleet.

    *rules* is how many apply to a request, and so how many counters a client has. *use* is how busy
    cores may be at the peak; *room* is memory for fragmentation, buffers and growth.
    """

    clients: int
    checks: int
    rules: int = 1
    way: Way = "http"
    counter_bytes: int = COUNTER_BYTES
    use: float = 0.6
    room: float = 1.5
    workers_a_machine: int = 4

    def __post_init__(self) -> None:
        for name in ("clients", "checks", "rules", "counter_bytes", "workers_a_machine"):
            if not 1 <= getattr(self, name) <= _LARGEST:
                raise OptionError(f"{name} is {getattr(self, name)}; expected 1 to {_LARGEST}")
        if not 0 < self.use <= 1:
            raise OptionError(f"use is {self.use}; expected a share above 0 and up to 1")
        if not 1 <= self.room <= 10:
            raise OptionError(f"room is {self.room}; expected a factor from 1 to 10")
        if self.way not in WORKER_US:
            raise OptionError(f"way is {self.way!r}; expected http or rls")

    @property
    def counters(self) -> int:
        return self.clients * self.rules

    @property
    def memory_bytes(self) -> int:
        """Of all shards together, without replicas."""
        return ceil(self.counters * self.counter_bytes * _exact(self.room))

    @property
    def store_cores(self) -> Fraction:
        """Cores of Redis that are busy all the time."""
        return Fraction(self.checks * self.rules * STORE_US, _MEGA)

    @property
    def shards(self) -> int:
        return max(1, ceil(self.store_cores / _exact(self.use)))

    @property
    def shard_bytes(self) -> int:
        return ceil(self.memory_bytes / self.shards)

    @property
    def worker_cores(self) -> Fraction:
        """Cores of workers that are busy all the time."""
        return Fraction(self.checks * WORKER_US[self.way], _MEGA)

    @property
    def workers(self) -> int:
        return max(1, ceil(self.worker_cores / _exact(self.use)))

    @property
    def machines(self) -> int:
        """Replicas of the service, one more than needed: one may be gone."""
        return ceil(self.workers / self.workers_a_machine) + 1

    @property
    def bytes_to_store(self) -> int:
        """A second, to all shards together."""
        return self.checks * self.rules * BYTES_IN

    @property
    def bytes_from_store(self) -> int:
        """A second, from all shards together."""
        return self.checks * self.rules * BYTES_OUT


def _exact(share: float) -> Fraction:
    return Fraction(str(share))
