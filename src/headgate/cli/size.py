"""`headgate size`: how many shards, workers and bytes a fleet needs, with the arithmetic shown."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, add_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from headgate.service.sizing import Demand

_COUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMG]?)")
_FACTORS: Final = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_DESCRIPTION: Final = """\
Say what a fleet needs for so many clients and checks a second: memory, shards of Redis, workers of
the service, bandwidth. The arithmetic is shown, so that you can put in figures of your own.

What a counter costs was measured, what a worker needs is on the safe side: docs/scaling.md."""
_EXAMPLES: Final = """\
examples:
  headgate size --clients 10M --rules 2 --checks 1M
  headgate size --clients 50k --checks 2k --way rls --json

exit status: 0 done, 2 wrong usage"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--clients", type=_count, required=True, metavar="N", help="who ask in one window: 10M"
    )
    parser.add_argument(
        "--checks", type=_count, required=True, metavar="N", help="requests a second at the peak"
    )
    parser.add_argument(
        "--rules", type=_count, default=1, metavar="N", help="that apply to a request (1)"
    )
    parser.add_argument(
        "--way", choices=("http", "rls"), default="http", help="how requests are checked (http)"
    )
    parser.add_argument(
        "--counter-bytes", type=_count, metavar="N", help="of Redis for a counter (117)"
    )
    parser.add_argument(
        "--use", type=float, default=0.6, metavar="SHARE", help="how busy a core may be (0.6)"
    )
    parser.add_argument(
        "--room", type=float, default=1.5, metavar="FACTOR", help="of memory to spare (1.5)"
    )
    parser.add_argument(
        "--workers-a-machine", type=_count, default=4, metavar="N", help="of the service (4)"
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
    from headgate.service.sizing import COUNTER_BYTES, Demand

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
    "size", "what a fleet needs", _DESCRIPTION, _EXAMPLES, _add_arguments, _run
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
    from headgate.service.sizing import BYTES_IN, BYTES_OUT, STORE_US, WORKER_US

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
