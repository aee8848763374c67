"""How many requests a second `headgate simulate` replays, in one process, everything included.

    python -m benchmarks.simulator [--requests N] [--rounds N] [--record FILE]

A trace of a million lines of a thousand callers, of whom few ask most, is written once: as a table,
as an access log of nginx, and as a table in which every path is another. Then in turns: it is read
and taken apart (`parsed`), and it is replayed under a policy (`replayed`), from opening the file to
the outcome. The best of several rounds counts, as whoever else uses the machine only ever makes it
slower; `cpu` is by the time that the process itself was given, `ratio` is to the reading alone in
the same round.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.surroundings import when_and_where
from headgate.policy.loader import read_policy
from headgate.simulator import open_trace, replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.policy.model import Policy

RESULTS: Final = Path(__file__).parent / "results" / "simulator.json"
CALLERS: Final = 1000
PER_SECOND: Final = 5000
BEGAN: Final = 1_763_320_000.0
AGENT: Final = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
COLLECTED_AFTER: Final = 200_000
ONE_RULE: Final = b"""\
version: 1
rules:
  - {id: per-key, key_by: api_key, limit: 10/s}
"""
DESIGN: Final = b"""\
version: 1
identity:
  tier: {header: x-tier, default: free}
  ip: {trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
rules:
  - id: login-brute-force
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 5/minute sliding_window_log
  - id: free-tier-default
    match: {endpoint: /api/v1/*, tier: free}
    algorithm: token_bucket
    capacity: 100
    refill_rate_per_sec: 1.67
    key_by: api_key
  - id: per-tier
    match: {endpoint: /api/**}
    key_by: [tenant, endpoint]
    limits: {free: 10/s, paid: "100/s burst 200", enterprise: 1000/s}
    cost: {default: 1, endpoints: {"POST /export/pdf": 10}}
    mode: shadow
"""
BY_ADDRESS: Final = b"""\
version: 1
rules:
  - {id: per-address, key_by: ip, limit: 10/s}
"""


class Timed(NamedTuple):
    """How many a second, on the clock on the wall and by the time that the process was given."""

    wall: float
    cpu: float


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", type=Path, help=f"where to write it, usually {RESULTS.name}")
    arguments = parser.parse_args(argv)
    gc.set_threshold(COLLECTED_AFTER)  # as a replay has it, so that both are measured alike
    with tempfile.TemporaryDirectory() as directory:
        table, log = Path(directory) / "trace.csv", Path(directory) / "access.log"
        paths = Path(directory) / "paths.csv"
        write_trace(table, log, paths, arguments.requests)
        measured = {
            name: measure(str(trace), read_policy(policy), arguments.rounds)
            for name, trace, policy in (
                ("one_rule", table, ONE_RULE),
                ("design", table, DESIGN),
                ("access_log", log, BY_ADDRESS),
                ("every_path_differs", paths, BY_ADDRESS),
            )
        }
    found = {
        **when_and_where(),
        "unit": "requests per second, one process",
        "requests": arguments.requests,
        "callers": CALLERS,
        "rounds": arguments.rounds,
        "policies": measured,
    }
    print(json.dumps(found, indent=2))
    if arguments.record is not None:
        arguments.record.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


class _Plain(argparse.RawDescriptionHelpFormatter):
    """Help as it is written."""


def write_trace(table: Path, log: Path, paths: Path, requests: int) -> None:
    """A trace of callers of whom few ask most: by Zipf's law."""
    chance = random.Random(1)
    callers = range(CALLERS)
    weights = [1 / (one + 1) for one in callers]
    chosen = chance.choices(callers, weights, k=requests)
    endpoints = chance.choices(("/api/v1/users", "/api/v1/orders", "/login"), (6, 3, 1), k=requests)
    at = BEGAN
    with (
        table.open("w", encoding="ascii") as file,
        log.open("w", encoding="ascii") as other,
        paths.open("w", encoding="ascii") as third,
    ):
        file.write("time,method,path,ip,x-api-key,x-tenant-id\n")
        third.write("time,method,path,ip\n")
        for caller, endpoint in zip(chosen, endpoints, strict=True):
            at += chance.expovariate(PER_SECOND)
            method = "POST" if endpoint == "/login" else "GET"
            ip = f"192.0.{caller // 250}.{caller % 250}"
            file.write(f"{at:.6f},{method},{endpoint},{ip},key-{caller},t{caller % 50}\n")
            when = datetime.fromtimestamp(at, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
            asked = f'"{method} {endpoint} HTTP/1.1" 200 512 "https://example.com/" "{AGENT}" 0.012'
            other.write(f"{ip} - - [{when}] {asked}\n")
            third.write(f"{at:.6f},{method},{endpoint}/{chance.randrange(10**9)},{ip}\n")


def measure(trace: str, policy: Policy, rounds: int) -> dict[str, Any]:
    """The best of so many *rounds*, and all of them."""
    told = []
    for _ in range(rounds):
        parsed = timed(lambda: _parsed(trace, [policy]))
        replayed = timed(lambda: replay(policy, open_trace(trace, policies=[policy])).requests)
        told.append(
            {
                "parsed": round(parsed.wall),
                "replayed": round(replayed.wall),
                "replayed_cpu": round(replayed.cpu),
                "ratio": round(parsed.cpu / replayed.cpu, 2),
            }
        )
    return {
        "replayed": max(one["replayed"] for one in told),
        "replayed_cpu": max(one["replayed_cpu"] for one in told),
        "parsed": max(one["parsed"] for one in told),
        "ratio": min(one["ratio"] for one in told),
        "each": told,
    }


def timed(count: Callable[[], int]) -> Timed:
    """How fast *count* is, which says how many it did."""
    began, given = time.perf_counter(), time.process_time()
    done = count()
    return Timed(done / (time.perf_counter() - began), done / (time.process_time() - given))


def _parsed(trace: str, policies: Iterable[Policy]) -> int:
    return sum(len(batch) for batch in open_trace(trace, policies=policies).batches())


if __name__ == "__main__":
    main()
