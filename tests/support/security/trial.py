"""Sends a group of the corpus to a target, and judges what reached the app."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.support.security.client import NONE, Connections
from tests.support.security.readings import LIMIT, excess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.security.corpus import Entry, Group
    from tests.support.security.readings import Journal

_SILENCE: Final = 0.3
"""Seconds without a byte after which a server waits for more of a request that never comes."""


@dataclass(frozen=True, slots=True)
class Target:
    """An app behind a limit, at *port* of 127.0.0.1.

    One identity reaches it as often as the limit allows, or the one of *bounds* for its group.
    """

    name: str
    port: int
    journal: Journal
    bounds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a group: the entries that got too many requests to the app, those that were
    denied though they are other callers, and how many requests were sent and reached the app."""

    escapes: dict[str, str] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    sent: int = 0
    reached: int = 0


def tried(target: Target, group: Group) -> Outcome:
    """Use up the limit of the plain request of *group*, then send all entries, each once more often
    than the limit allows."""
    journal, bound = target.journal, target.bounds.get(group.name, LIMIT)
    journal.take()
    denied = []
    with Connections(target.port) as connections:
        plain = [_send(connections, target, group.plain, "plain", n) for n in range(bound + 1)]
        assert plain.count(200) in range(1, bound + 1), f"the plain request: {plain}"
        assert 429 in plain, f"the plain request: {plain}"
        raws = []
        for number, entry in enumerate(group.entries):
            mark = f"{group.name}.{number:03}"
            if entry.is_raw:
                raws.append((entry, mark))
                continue
            statuses = [_send(connections, target, entry, mark, n) for n in range(bound + 1)]
            if entry.is_own and statuses[0] in (429, NONE):
                denied.append(entry.name)
        with ThreadPoolExecutor(24) as pool:
            for entry, mark in raws:
                for n in range(bound + 1):
                    journal.clients[f"{mark}.{n}"] = entry.client(target.name)
                    request = entry.request(n, f"{mark}.{n}")
                    pool.submit(connections.burst, request, entry.source, within=_SILENCE)
    arrivals = journal.take()
    escapes: dict[str, str] = {}
    for identity, marks in excess(arrivals, bound).items():
        for mark in marks:
            escapes.setdefault(_name(group, mark), ": ".join(identity)[:200])
    attempts = (1 + len(group.entries)) * (bound + 1)
    return Outcome(escapes, denied, attempts, len({arrival.mark for arrival in arrivals}))


def _send(connections: Connections, target: Target, entry: Entry, mark: str, n: int) -> int:
    name = f"{mark}.{n}"
    target.journal.clients[name] = entry.client(target.name)
    return connections.status(entry.request(n, name), entry.source)


def _name(group: Group, mark: str) -> str:
    _, _, rest = mark.partition(f"{group.name}.")
    number = rest.partition(".")[0]
    return group.entries[int(number)].name if number.isdigit() else mark
