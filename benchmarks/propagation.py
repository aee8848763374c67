"""`python -m benchmarks.propagation`: from a change in etcd to three nodes that obey it.

Three processes, each with a policy watcher and an engine, follow one policy in a real etcd. A
fourth one changes a limit, again and again, and takes the time from just before the change is sent
until each node has decided a request by it. Beside it stands how long etcd took to make the change,
and how long one node computes to read the policy: three of them do so at once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import Goal, table, write_record
from headgate.control.etcd import EtcdSource
from headgate.control.etcd.source import decode, encode
from headgate.control.revision import Change, Revision
from headgate.control.watcher import PolicyWatcher
from headgate.engine.request import Request
from headgate.policy.loader import examine_policy_data
from headgate.policy.model import Policy
from headgate.rule_engine import AsyncRuleEngine
from tests.support.servers.etcd import EtcdCluster, EtcdServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

RESULTS: Final = Path(__file__).parent / "results" / "propagation.json"
NODES: Final = 3
RULES: Final = 100
LONGEST_P99_MS: Final = 300.0
_PAUSE: Final = 0.05
_MILLISECOND: Final = 1_000_000


def main() -> None:
    options = _parser().parse_args()
    if options.node is not None:
        asyncio.run(_node(options.node))
        return
    changes = 30 if options.quick else 200
    load = os.getloadavg()[0]  # of others: on a busy machine the nodes wait for a processor
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for name, servers in (("one etcd", EtcdServer()), ("three etcds", EtcdCluster())):
        with servers as running:
            figures[name] = asyncio.run(_measure(running.url, changes))
    reading_ms = _reading_ms()
    print(_table(figures))
    print(f"reading the policy takes a node {reading_ms} ms; load before: {load:.1f}", end="\n\n")
    goals = [
        Goal(
            f"{name}, slowest of {NODES} nodes: ms, p99",
            one["slowest node"]["p99"],
            LONGEST_P99_MS,
        )
        for name, one in figures.items()
    ]
    print(*goals, sep="\n")
    results: dict[str, object] = {
        "changes": changes,
        "nodes": NODES,
        "rules": RULES,
        "load_before": round(load, 2),
        "ms_to_read_the_policy": reading_ms,
        "ms": figures,
    }
    write_record(options.json, results, goals)


async def _measure(url: str, changes: int) -> dict[str, dict[str, float]]:
    samples: dict[str, list[float]] = {"commit": [], "any node": [], "slowest node": []}
    storage = EtcdSource.open(url)
    storage.commit(_revision(1))
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(_started(url)) for _ in range(NODES)]
        for node in nodes:
            await _enforced(node, 1)
        for number in range(2, changes + 2):
            await asyncio.sleep(random.random() * _PAUSE)  # no rhythm that etcd could be in
            begun = time.monotonic_ns()
            await asyncio.to_thread(storage.commit, _revision(number))
            samples["commit"].append((time.monotonic_ns() - begun) / _MILLISECOND)
            ends = await asyncio.gather(*(_enforced(node, number) for node in nodes))
            times = [(end - begun) / _MILLISECOND for end in ends]
            samples["any node"].extend(times)
            samples["slowest node"].append(max(times))
    storage.close()
    return {name: _figures(values) for name, values in samples.items()}


@asynccontextmanager
async def _started(url: str) -> AsyncIterator[asyncio.StreamReader]:
    """A node, and what it says."""
    call = (sys.executable, "-m", __spec__.name, "--node", url)
    process = await asyncio.create_subprocess_exec(*call, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        await process.wait()


async def _enforced(node: asyncio.StreamReader, number: int) -> int:
    """When *node* first decided by revision *number* or a later one; monotonic nanoseconds."""
    async with asyncio.timeout(30):
        while True:
            revision, _, moment = (await node.readline()).decode().partition(" ")
            if int(revision) >= number:
                return int(moment)


async def _node(url: str) -> None:
    """Follow the policy at *url*, and print each revision when a request was decided by it."""
    engine = AsyncRuleEngine(Policy())
    news = asyncio.Event()

    loop = asyncio.get_running_loop()

    def apply(policy: Policy) -> int:
        revision = engine.replace(policy)
        loop.call_soon_threadsafe(news.set)
        return revision

    storage = EtcdSource.open(url)
    async with PolicyWatcher(storage, apply):
        while True:
            await news.wait()
            news.clear()
            verdict = await engine.check(Request(path="/route-0", peer="192.0.2.1"))
            limits = [one.decision.limit.quota for one in verdict.rules]
            assert limits == [_limit(verdict.revision)], limits
            print(verdict.revision, time.monotonic_ns(), flush=True)


def _limit(number: int) -> int:
    return 1_000 + number


def _revision(number: int) -> Revision:
    rules: list[dict[str, Any]] = [
        {
            "id": f"rule-{n}",
            "match": {"endpoint": f"/route-{n}", "method": "GET"},
            "key_by": "ip",
            "limit": f"{_limit(number) if n == 0 else 100}/minute",
        }
        for n in range(RULES)
    ]
    document = {"version": 1, "rules": rules}
    return Revision(number, document, {}, Change("benchmark", time.time_ns(), "put rule rule-0"))


def _reading_ms() -> float:
    """What a node computes to put a revision in force, at best; processor time."""
    engine, times = AsyncRuleEngine(Policy()), []
    value = encode(_revision(1), "0" * 16)
    for _ in range(5):
        begun = time.process_time()
        policy = examine_policy_data(decode(value).document).policy
        assert policy is not None
        engine.replace(policy)
        times.append(time.process_time() - begun)
    return round(min(times) * 1_000, 2)


def _figures(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "p50": round(ordered[last // 2], 2),
        "p99": round(ordered[-(-last * 99 // 100)], 2),
        "max": round(ordered[last], 2),
    }


def _table(figures: dict[str, dict[str, dict[str, float]]]) -> str:
    rows = [
        [f"{name}: {what}", *(f"{one[column]:.1f}" for column in ("p50", "p99", "max"))]
        for name, found in figures.items()
        for what, one in found.items()
    ]
    return table(["ms from the change on", "p50", "p99", "max"], rows)


def _parser() -> argparse.ArgumentParser:
    program = "python -m benchmarks.propagation"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some seconds, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--node", metavar="URL", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
