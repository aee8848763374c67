"""Finding the rules of a request among few and many rules; a long path; a change among many."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from functools import partial
from pathlib import Path
from time import process_time, thread_time_ns
from typing import TYPE_CHECKING, Final

from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.measure import MILLISECOND, in_turns
from headgate.control import PolicyFiles, PolicyWatcher
from headgate.engine.request import Request
from headgate.policy.loader import read_policy_data
from headgate.policy.matcher import Matcher
from headgate.policy.model import Policy
from headgate.policy.path import readings
from headgate.rule_engine import AsyncRuleEngine

if TYPE_CHECKING:
    from collections.abc import Callable

FEW: Final = 10
MANY: Final = 10_000
CHANGING: Final = 9_000
NOISE: Final = "/a/..;%2f\\." * 745
HEADERS: Final = (
    ("Host", "api.example.com"),
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0"),
    ("Accept", "application/json"),
    ("Accept-Language", "en-GB,en;q=0.5"),
    ("Accept-Encoding", "gzip, deflate, br"),
    ("X-Api-Key", "key-123456"),
    ("Cookie", "session=0123456789abcdef; theme=dark"),
    ("X-Forwarded-For", "203.0.113.7"),
)
NO_TIER: Final = {"tier": None}


def _get(path: str, host: str = "api.example.com", org: str | None = None) -> Request:
    attributes = {"org": org} if org else {}
    return Request("GET", path, host, HEADERS, "203.0.113.7", attributes)


def _with_header(name: str, value: str) -> Request:
    return Request("GET", "/api/v1/users", "api.example.com", (*HEADERS, (name, value)))


SHAPES: Final[tuple[tuple[Callable[[int], dict[str, object]], Callable[[int], Request]], ...]] = (
    (
        lambda n: {"endpoint": f"/api/v1/item-{n}/show", "method": ["GET", "POST"]},
        lambda n: _get(f"/api/v1/item-{n}/show"),
    ),
    (
        lambda n: {"endpoint": f"/api/item-{n}/*/show"},
        lambda n: _get(f"/api/item-{n}/42/show"),
    ),
    (lambda n: {"endpoint": f"/*/item-{n}"}, lambda n: _get(f"/v1/item-{n}")),
    (lambda n: {"endpoint": f"/app-{n}/**"}, lambda n: _get(f"/app-{n}/v1/users/42")),
    (
        lambda n: {"endpoint": f"/**/item-{n}/edit"},
        lambda n: _get(f"/v1/users/item-{n}/edit"),
    ),
    (
        lambda n: {"host": f"tenant-{n}.example.com"},
        lambda n: _get("/api/v1/users", f"tenant-{n}.example.com"),
    ),
    (
        lambda n: {"host": f"*.tenant-{n}.example.com"},
        lambda n: _get("/api/v1/users", f"www.tenant-{n}.example.com"),
    ),
    (
        lambda n: {"endpoint": "/api/**", "attributes": {"org": f"org-{n}"}},
        lambda n: _get("/api/v1/users", org=f"org-{n}"),
    ),
    (
        lambda n: {"headers": {"x-org": f"org-{n}"}},
        lambda n: _with_header("X-Org", f"org-{n}"),
    ),
    (lambda n: {"headers": {f"x-{n}": True}}, lambda n: _with_header(f"X-{n}", "1")),
)
"""Kinds of conditions: what rule *n* matches, and a request that only this rule is for."""


def _matcher(count: int) -> Matcher:
    rules = [
        {"id": f"rule-{n}", "match": SHAPES[n % FEW][0](n), "key_by": "ip", "limit": "1/s"}
        for n in range(count)
    ]
    parts = [
        read_policy_data({"version": 1, "rules": rules[start : start + 1_000]})
        for start in range(0, count, 1_000)  # a document has a bounded number of values
    ]
    every = tuple(rule for part in parts for rule in part.rules)
    return Matcher(dataclasses.replace(parts[0], rules=every))


def _match_all(matching: Callable[..., object], requests: list[Request]) -> None:
    for request in requests:
        matching(request, NO_TIER)


def _sample(run: Callable[[], object], calls: int) -> Callable[[], float]:
    """A function that takes a sample of 4 ms: nanoseconds for each of the *calls* in *run*."""

    def taken(rounds: int) -> int:
        start = thread_time_ns()
        for _ in range(rounds):
            run()
        return thread_time_ns() - start

    rounds = max(1, 4 * MILLISECOND // min(taken(1) for _ in range(5)))
    return lambda: taken(rounds) / (rounds * calls)


async def _longest_gap(changes: int) -> float:
    """Return the longest time between two decisions, of many a second, while a file changes.

    Processor time of all threads: what others use of the machine does not count.
    """
    rule = "- {{id: rule-{0}, match: {{endpoint: /route-{0}}}, key_by: ip, limit: 1000/s}}\n"
    others = "".join(rule.format(n) for n in range(1, CHANGING))
    engine, longest = AsyncRuleEngine(Policy()), 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.yaml"
        path.write_text(f"version: 1\nrules:\n{rule.format(0)}{others}")
        async with PolicyWatcher(PolicyFiles(path), engine.replace, interval=0.1) as watcher:
            for number in range(changes):
                path.write_text(f"version: 1\nrules:\n{rule.format(f'x{number}')}{others}")
                revision, last, left = watcher.state.revision, process_time(), 200
                while left > 0:
                    await asyncio.sleep(0.001)
                    await engine.check(Request(path="/route-5", peer="192.0.2.1"))
                    longest = max(longest, process_time() - last)
                    last, left = process_time(), left - (watcher.state.revision != revision)
    return longest


def rules(effort: Effort) -> list[Row]:
    """Matching the same requests against 10 and 10,000 rules; a path of 8 KiB; a change."""
    requests = [SHAPES[n][1](n) for n in range(FEW)]
    samples = {}
    for name, count in (("few", FEW), ("many", MANY)):
        matching = _matcher(count).matching
        for n, request in enumerate(requests):
            assert [rule.id for rule in matching(request, NO_TIER)] == [f"rule-{n}"]
        samples[name] = _sample(partial(_match_all, matching, requests), FEW)
    samples["noise"] = _sample(lambda: readings(NOISE), 1)
    timings = in_turns(samples, effort.rounds(40))
    return [
        Row(
            "rules.many",
            "matching one request against 10,000 rules",
            timings["many"].best / 1000,
            "us",
            (Budget(1.3, "10 rules"),),
            {"10 rules": timings["few"].best / 1000},
        ),
        Row(
            "rules.noise_path",
            "reading a path of 8 KiB of noise",
            timings["noise"].best / 1e6,
            "ms",
            (Budget(0.2),),
        ),
        Row(
            "rules.change",
            "longest delay of a decision while a file of 9,000 rules changes",
            asyncio.run(_longest_gap(effort.rounds(20))) * 1_000,
            "ms",
            (Budget(50),),
        ),
    ]
