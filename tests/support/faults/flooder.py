"""A process that hits one key under several settings, over and over, and notes what it is told.

    python -m tests.support.faults.flooder '{"url": ..., "notes": ..., "limit": ..., ...}'

Every setting has counters of its own, so that one fault shows what all of them do: exact limits and
limits with leases, with the default failure policy and with `fail_closed`. A line in the file
*notes* is one decision: all that allow are noted, and of those that deny one now and then. It is
written at once: it is there whatever becomes of the process, which runs until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate import AsyncRateLimiter, RateLimiter
from headgate.limits import Accuracy
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.decision import Decision

KEY: Final = "key"
BATCH: Final = 4
"""Units that a process leases at once."""
SETTINGS: Final = ("exact default", "exact fail_closed", "leased default", "leased fail_closed")
SELDOM_NS: Final = 50 * MILLISECOND
"""The time between two denials that are noted."""
CANCELLED: Final = "cancelled"
"""In place of a source: the caller was cancelled."""
CANCELLED_PART: Final = 0.1
"""How often one of the callers in an event loop is cancelled."""


@dataclass(frozen=True)
class Orders:
    """The *settings* and the *limit* to hit under. In an event loop callers are cancelled."""

    url: str
    notes: str
    namespace: str
    limit: str
    settings: tuple[str, ...] = SETTINGS
    pause: float = 0.002
    in_loop: bool = False

    def call(self) -> list[str]:
        """The command line of such a process."""
        return [sys.executable, "-m", "tests.support.faults.flooder", json.dumps(asdict(self))]

    def options(self, setting: str) -> dict[str, object]:
        """The options of the limiter of *setting*."""
        accuracy, policy = setting.split()
        options: dict[str, object] = {"name": "api", "namespace": f"{self.namespace} {setting}"}
        if accuracy == "leased":
            options["accuracy"] = Accuracy(batch=BATCH)
        if policy == "fail_closed":
            options["on_store_failure"] = "fail_closed"
        return options


class Note(NamedTuple):
    """A decision: asked for and received at these times, in nanoseconds; *setting* by its place."""

    asked_ns: int
    decided_ns: int
    setting: int
    source: str
    allowed: bool


def read_notes(path: Path) -> list[Note]:
    """What a process has noted so far; a last line that is not whole is left out."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().split("\n")[:-1]]
    return [
        Note(int(asked), int(decided), int(setting), source, allowed == "1")
        for asked, decided, setting, source, allowed in lines
    ]


class Notebook:
    """The file of notes."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._noted_ns: dict[tuple[int, str], int] = {}

    def note(self, setting: int, asked_ns: int, decision: Decision) -> None:
        """Note *decision*, unless it denies as another of that source did a moment before."""
        source, allowed = decision.source, int(decision.allowed)
        if not allowed and asked_ns - self._noted_ns.get((setting, source), 0) < SELDOM_NS:
            return
        self._noted_ns[setting, source] = asked_ns
        self._write(f"{asked_ns} {time.monotonic_ns()} {setting} {source} {allowed}")

    def note_cancelled(self, setting: int) -> None:
        """Note that a caller was cancelled."""
        now_ns = time.monotonic_ns()
        self._write(f"{now_ns} {now_ns} {setting} {CANCELLED} 0")

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def hit_on(orders: Orders, notebook: Notebook) -> None:
    """Hit for ever, blocking."""
    limiters = [
        RateLimiter(orders.limit, store=orders.url, **orders.options(setting))  # type: ignore[arg-type]  # those of a limiter
        for setting in orders.settings
    ]
    while True:
        for number, limiter in enumerate(limiters):
            asked_ns = time.monotonic_ns()
            notebook.note(number, asked_ns, limiter.hit(KEY))
        time.sleep(orders.pause)


async def hit_on_in_loop(orders: Orders, notebook: Notebook) -> None:
    """Hit for ever in an event loop; some callers are cancelled while they wait."""
    limiters = [
        AsyncRateLimiter(orders.limit, store=orders.url, **orders.options(setting))  # type: ignore[arg-type]  # those of a limiter
        for setting in orders.settings
    ]
    chance = random.Random(orders.notes)

    async def hit(number: int) -> None:
        asked_ns = time.monotonic_ns()
        notebook.note(number, asked_ns, await limiters[number].hit(KEY))

    while True:
        tasks = [asyncio.ensure_future(hit(number)) for number in range(len(limiters))]
        if chance.random() < CANCELLED_PART:
            await asyncio.sleep(chance.choice([0, 0.0002, 0.001]))
            chance.choice(tasks).cancel()
        await asyncio.wait(tasks)
        for number, task in enumerate(tasks):
            if task.cancelled():
                notebook.note_cancelled(number)
        await asyncio.sleep(orders.pause)


def main() -> None:
    orders = Orders(**json.loads(sys.argv[1]))
    notebook = Notebook(orders.notes)
    if orders.in_loop:
        asyncio.run(hit_on_in_loop(orders, notebook))
    else:
        hit_on(orders, notebook)


if __name__ == "__main__":
    main()
