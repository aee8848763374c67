"""Requests a second that `headgate simulate` replays in one process, from file to outcome.

    python -m benchmarks.simulator [--requests N] [--rounds N] [--record FILE]

The traces have a thousand callers by Zipf's law: a table, an nginx access log, and a table in which
every path differs. In turns each is only parsed (`parsed`) and replayed under a policy
(`replayed`). The best of several rounds counts; `cpu` is by CPU time, `ratio` is that of parsing to
replaying in the same round, by CPU time.
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
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import write_record
from headgate.policy.loader import read_policy
from headgate.simulator import open_trace, replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.model import Policy

CALLERS: Final = 1000
PER_SECOND: Final = 5000
BEGAN: Final = 1_763_320_000.0
AGENT: Final = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
GC_THRESHOLD: Final = 200_000
"""That of a replay, so that parsing is measured with the same."""
ONE_RULE: Final = "{id: per-key, key_by: api_key, limit: 10/s}"
BY_ADDRESS: Final = "{id: per-address, key_by: ip, limit: 10/s}"
BESIDE: Final = "{id: beside, key_by: ip, limit: 1000/minute}"
SHADOW: Final = "{id: shadow, key_by: api_key, limit: 5/s, mode: shadow}"
CASES: Final = {
    "one_rule": ("trace.csv", (ONE_RULE,)),
    "two_rules": ("trace.csv", (ONE_RULE, BESIDE)),
    "one_rule_and_a_shadow": ("trace.csv", (ONE_RULE, SHADOW)),
    "access_log": ("access.log", (BY_ADDRESS,)),
    "every_path_differs": ("paths.csv", (BY_ADDRESS,)),
}


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and record if wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", type=Path, help="the file for the record")
    arguments = parser.parse_args(argv)
    gc.set_threshold(GC_THRESHOLD)
    with tempfile.TemporaryDirectory() as directory:
        write_traces(Path(directory), arguments.requests)
        measured = {
            name: measure(str(Path(directory) / trace), policy_of(rules), arguments.rounds)
            for name, (trace, rules) in CASES.items()
        }
    found = {
        "unit": "requests per second, one process",
        "requests": arguments.requests,
        "callers": CALLERS,
        "rounds": arguments.rounds,
        "policies": measured,
    }
    print(json.dumps(found, indent=2))
    if arguments.record is not None:
        write_record(arguments.record, found)


def policy_of(rules: tuple[str, ...]) -> Policy:
    """Return a policy of *rules*."""
    return read_policy("version: 1\nrules:\n" + "".join(f"  - {rule}\n" for rule in rules))


def write_traces(directory: Path, requests: int) -> None:
    """Write the traces into *directory*."""
    chance = random.Random(1)
    weights = [1 / (one + 1) for one in range(CALLERS)]
    chosen = chance.choices(range(CALLERS), weights, k=requests)
    endpoints = chance.choices(("/api/v1/users", "/api/v1/orders", "/login"), (6, 3, 1), k=requests)
    at = BEGAN
    with (
        (directory / "trace.csv").open("w", encoding="ascii") as table,
        (directory / "access.log").open("w", encoding="ascii") as log,
        (directory / "paths.csv").open("w", encoding="ascii") as paths,
    ):
        table.write("time,method,path,ip,x-api-key\n")
        paths.write("time,method,path,ip\n")
        for caller, endpoint in zip(chosen, endpoints, strict=True):
            at += chance.expovariate(PER_SECOND)
            method = "POST" if endpoint == "/login" else "GET"
            ip = f"192.0.{caller // 250}.{caller % 250}"
            table.write(f"{at:.6f},{method},{endpoint},{ip},key-{caller}\n")
            when = datetime.fromtimestamp(at, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
            line = f'"{method} {endpoint} HTTP/1.1" 200 512 "https://example.com/" "{AGENT}" 0.012'
            log.write(f"{ip} - - [{when}] {line}\n")
            paths.write(f"{at:.6f},{method},{endpoint}/{chance.randrange(10**9)},{ip}\n")


def measure(trace: str, policy: Policy, rounds: int) -> dict[str, Any]:
    """Return the best of *rounds*."""
    found = []
    for _ in range(rounds):
        parsed = timed(lambda: sum(map(len, open_trace(trace, policies=[policy]).batches())))
        replayed = timed(lambda: replay(policy, open_trace(trace, policies=[policy])).requests)
        found.append((*parsed, *replayed, parsed[1] / replayed[1]))
    parsed_wall, _, replayed_wall, replayed_cpu, ratios = zip(*found, strict=True)
    return {
        "replayed": round(max(replayed_wall)),
        "replayed_cpu": round(max(replayed_cpu)),
        "parsed": round(max(parsed_wall)),
        "ratio": round(min(ratios), 2),
    }


def timed(count: Callable[[], int]) -> tuple[float, float]:
    """Return how many a second *count* handles, by the wall clock and by CPU time."""
    began, cpu = time.perf_counter(), time.process_time()
    done = count()
    return done / (time.perf_counter() - began), done / (time.process_time() - cpu)


if __name__ == "__main__":
    main()
