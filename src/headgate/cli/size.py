"""`headgate size`: compute the size of a fleet.

Compute what a fleet needs for a number of clients and checks per second: memory, Redis shards,
workers of the service, bandwidth. The arithmetic is shown, so that you can use your own figures.

The size of a counter is measured; the time of a worker is on the safe side: docs/deploy.md.

examples:
  headgate size --clients 10M --rules 2 --checks 1M
  headgate size --clients 50k --checks 2k --way rls --json

exit status: 0 done, 2 wrong usage
"""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from dataclasses import dataclass, fields
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headgate.cli.command import JSON, Command, ExitStatus, argument, number
from headgate.errors import OptionError
from headgate.terminal import counted

if TYPE_CHECKING:
    from argparse import Namespace


_COUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMG]?)")
_FACTORS: Final = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


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
"""Microseconds of one core of Redis for a counter in a check: about 10 if nodes send many checks in
one batch, 20 if there are so many nodes that batches are small."""

WORKER_US: Final[dict[Way, int]] = {"http": 130, "rls": 90}
"""Microseconds of one core for a check that a worker answers, the store's client included."""

BYTES_IN: Final = 180
BYTES_OUT: Final = 36
"""Bytes sent to the store for each counter in a check, and bytes of its reply."""

_MEGA: Final = 1_000_000
_LARGEST: Final = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The demand on a fleet.

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


class Fleet(NamedTuple):
    """The fleet for a demand. *memory_bytes* is that of all shards together, without replicas.
    *machines* has one to spare."""

    counters: int
    memory_bytes: int
    shards: int
    shard_bytes: int
    workers: int
    machines: int
    bytes_to_store_per_second: int
    bytes_from_store_per_second: int


def fleet_for(demand: Demand) -> Fleet:
    """Compute the fleet for *demand*, in exact arithmetic."""
    use, room = Fraction(str(demand.use)), Fraction(str(demand.room))
    counters, taken = demand.clients * demand.rules, demand.checks * demand.rules
    memory_bytes = ceil(counters * demand.counter_bytes * room)
    shards = max(1, ceil(Fraction(taken * STORE_US, _MEGA) / use))
    workers = max(1, ceil(Fraction(demand.checks * WORKER_US[demand.way], _MEGA) / use))
    return Fleet(
        counters,
        memory_bytes,
        shards,
        ceil(memory_bytes / shards),
        workers,
        ceil(workers / demand.workers_a_machine) + 1,
        taken * BYTES_IN,
        taken * BYTES_OUT,
    )


def _count(text: str) -> int:
    """A whole number, also as 10k, 1.5M, 1G."""
    found = _COUNT.fullmatch(text)
    count = float(found[1]) * _FACTORS[found[2]] if found else 0.0
    if found is None or count < 1 or count != int(count):
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1, as 1000, 10k, 1M")
    return int(count)


_ARGUMENTS: Final = (
    argument("--clients", "N", "active clients in one window: 10M", type=_count, required=True),
    argument("--checks", "N", "requests per second at the peak", type=_count, required=True),
    argument("--rules", "N", "rules that apply to a request (1)", type=_count, default=1),
    argument(
        "--way", None, "the protocol of the checks (http)", choices=tuple(WORKER_US), default="http"
    ),
    argument(
        "--counter-bytes",
        "N",
        f"bytes of a counter in Redis ({COUNTER_BYTES})",
        type=_count,
        default=COUNTER_BYTES,
    ),
    argument("--use", "SHARE", "the utilisation of a core (0.6)", type=number, default=0.6),
    argument("--room", "FACTOR", "spare memory (1.5)", type=number, default=1.5),
    argument("--workers-a-machine", "N", "workers per machine (4)", type=_count, default=4),
    JSON,
)


def _run(arguments: Namespace) -> ExitStatus:
    names = [field.name for field in fields(Demand)]
    demand = Demand(**{name: getattr(arguments, name) for name in names})
    fleet = fleet_for(demand)
    if arguments.json:
        print(json.dumps(fleet._asdict(), indent=2))
    else:
        print("\n".join(_lines(demand, fleet)))
    return ExitStatus.DONE


COMMAND: Final = Command("size", __doc__, _ARGUMENTS, _run)


def _lines(demand: Demand, fleet: Fleet) -> list[str]:
    use = f"{demand.use:.0%}"
    checks = f"{demand.checks:,} checks/s"
    counters = f"{checks} x {counted(demand.rules, 'counter')}"
    clients = f"{counted(demand.clients, 'client')} x {counted(demand.rules, 'rule')}"
    memory = f"{fleet.counters:,} x {demand.counter_bytes} bytes x {demand.room:g} to spare"
    store_cores = f"{demand.checks * demand.rules * STORE_US / _MEGA:,.2f} busy cores"
    shards = f"{counted(fleet.shards, 'shard')} of {_bytes(fleet.shard_bytes)}"
    cost = WORKER_US[demand.way]
    cores = f"{checks} x {cost} us = {demand.checks * cost / _MEGA:,.2f} busy cores"
    spread = f"{fleet.workers:,} / {demand.workers_a_machine} workers, and one to spare"
    return [
        f"counters   {clients} = {fleet.counters:,}",
        f"memory     {memory} = {_bytes(fleet.memory_bytes)}",
        f"shards     {counters} x {STORE_US} us = {store_cores}; at {use}: {shards}",
        "           and as many replicas, so that losing a shard costs a moment only",
        f"workers    {cores}; at {use}: {counted(fleet.workers, 'worker')} ({demand.way})",
        f"machines   {spread} = {fleet.machines:,}",
        f"to store   {counters} x {BYTES_IN} bytes = {_bits(fleet.bytes_to_store_per_second)}",
        f"from store {counters} x {BYTES_OUT} bytes = {_bits(fleet.bytes_from_store_per_second)}",
    ]


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def _bits(count: int) -> str:
    return f"{8 * count / 1_000_000:,.1f} Mbit/s"
