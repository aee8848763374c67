"""Four real processes on one key with loans: one dies, one stands still, one is late, one's clock
is wrong. What they admit together stays within the bound that the operator chose."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate.limits import parse_limit
from headgate.units import MILLISECOND, SECOND
from tests.support.faults.node import Orders, read_notes
from tests.support.fleet_bounds import Allowed, excess
from tests.support.servers import RedisServer, is_installed, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.faults.node import Note

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

CAPACITY, RATE = 200, 300
BUCKET = f"{RATE}/s burst {CAPACITY}"
WINDOW_LIMIT, WINDOW_NS = 100, 500 * MILLISECOND
WINDOW = f"{WINDOW_LIMIT} per 500 ms fixed_window"
NODES = 4
LOANS = frozenset({"lease", "sync"})
"""What serves from a loan calls itself so."""
AN_HOUR = 3_600 * SECOND
AT_LEISURE = 0.01
"""Seconds: who hits so seldom, and is alone, has something in hand for a while."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@dataclass
class Node:
    """A process, and where it notes what it has admitted."""

    process: Process
    path: Path

    @property
    def notes(self) -> list[Note]:
        return read_notes(self.path)

    @property
    def is_lent_to(self) -> bool:
        """Whether it is in the middle of a loan, as far as one can see: a lease that has just
        begun, or a licence, which is renewed all the time."""
        last = [note.source for note in self.notes[-3:]]
        return last[-1] == "sync" or (last[-1] in LOANS and not LOANS.issuperset(last))


class Fleet:
    """The processes, which are started one by one and end together."""

    def __init__(self, directory: Path, ends: ExitStack, url: str, **terms: object) -> None:
        self._directory, self._ends, self._url, self._terms = directory, ends, url, terms
        self._namespace = f"fleet-{token_hex(4)}"
        self.nodes: list[Node] = []

    def start(self, **more: object) -> Node:
        path = self._directory / f"notes-{len(self.nodes)}"
        orders = Orders(
            url=self._url,
            notes=str(path),
            namespace=self._namespace,
            **self._terms,  # type: ignore[arg-type]  # the fields that a test gives
            **more,  # type: ignore[arg-type]  # the same
        )
        process = Process(orders.call(), self._directory / "log")
        self._ends.callback(process.kill)
        self.nodes.append(Node(process, path))
        return self.nodes[-1]

    @property
    def notes(self) -> list[Note]:
        """What all have admitted, in the order in which it was granted."""
        found = [note for node in self.nodes for note in node.notes]
        return sorted(found, key=lambda note: note.granted_ns)

    def wait_for_more(self, count: int, *, of: Node | None = None) -> None:
        """Wait until *count* more were admitted, by all or by one."""

        def so_far() -> int:
            return len(self.notes if of is None else of.notes)

        before = so_far()
        wait_until(lambda: so_far() >= before + count, f"{count} more are admitted")

    def live(self) -> list[Note]:
        """One stands still with something in hand while two begin, one of them with a wrong clock;
        the other dies, one joins, and the first goes on. All that was admitted."""
        sleeper = self.start(pause=AT_LEISURE)
        self.wait_for_more(60, of=sleeper)  # loans grow
        wait_until(lambda: sleeper.is_lent_to, "the sleeper has something in hand")
        sleeper.process.pause()
        mortal, skewed = self.start(), self.start(skew_ns=AN_HOUR)
        for node in (mortal, skewed):
            self.wait_for_more(1, of=node)
        self.wait_for_more(150)
        mortal.process.kill()
        late = self.start(is_async=True)
        self.wait_for_more(1, of=late)
        self.wait_for_more(150)
        sleeper.process.resume()
        self.wait_for_more(1, of=sleeper)
        self.wait_for_more(150)
        for node in self.nodes:
            node.process.kill()
        return self.notes


TERMS: dict[str, tuple[dict[str, object], int]] = {
    "a lease of a share": ({"max_overshoot": "1/10"}, CAPACITY // 10),
    "a lease of a batch": ({"batch": 5}, 5 * NODES),
    "a licence of a share": (
        {"max_overshoot": "1/10", "sync_ns": 50 * MILLISECOND},
        CAPACITY // 10,
    ),
}


@pytest.mark.parametrize("terms", TERMS)
def test_a_bucket_is_overshot_by_no_more_than_the_bound(
    server: RedisServer, tmp_path: Path, terms: str
) -> None:
    accuracy, bound = TERMS[terms]
    with ExitStack() as ends:
        notes = Fleet(tmp_path, ends, server.url, limit=BUCKET, **accuracy).live()
    assert not LOANS.isdisjoint(note.source for note in notes)
    allowed = [Allowed(note.asked_ns, note.granted_ns) for note in notes]
    assert excess(allowed, [parse_limit(BUCKET)], bound) <= 0


def test_a_window_is_never_overshot(server: RedisServer, tmp_path: Path) -> None:
    with ExitStack() as ends:
        fleet = Fleet(tmp_path, ends, server.url, limit=WINDOW, max_overshoot="1/2")
        notes = fleet.live()
    assert not LOANS.isdisjoint(note.source for note in notes)
    by_window: dict[int, int] = {}
    for note in notes:
        window = note.asked_ns // WINDOW_NS
        if window == note.granted_ns // WINDOW_NS:  # else nobody knows in which it was
            by_window[window] = by_window.get(window, 0) + 1
    print(by_window)
    assert max(by_window.values()) <= WINDOW_LIMIT
