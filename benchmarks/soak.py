"""`python -m benchmarks.soak`: the service under random load and random faults, for ten minutes.

Three workers of `headgate serve` on a real Redis answer HTTP and gRPC checks of a few hundred
callers at a rate that changes. Meanwhile Redis is restarted (and forgets everything), stopped, or
loses its connections; a worker is stopped or killed; the policy file is changed or spoiled.

It measures the memory of the workers, errors, latency, and decisions beyond the stated bound: in
each window a caller gets its limit once, once more each time that Redis forgets it, and with
`fail_open` the share of each process for each outage that this process had in that window. A
response that may belong to either of two windows is counted for neither.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import signal
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import grpc

from benchmarks.measure import Goal, table, write_record
from tests.support.decision_service import serving
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.decision_service import Service

RESULTS: Final = Path(__file__).parent / "results" / "soak.json"
WORKERS: Final = 3
WINDOW_S: Final = 10
LIMIT: Final = 40
SHARE: Final = 10
"""What a process allows in an outage: a quarter of the limit."""
CALLERS: Final = {"closed": 8, "open": 8, "many": 300}
RULES: Final = f"""\
version: 1
rules:
  - id: closed
    match: {{attributes: {{domain: soak, kind: closed}}}}
    key_by: "attribute:user"
    limit: {LIMIT}/{WINDOW_S} s fixed_window
    on_store_failure: fail_closed
  - id: open
    match: {{attributes: {{domain: soak, kind: open}}}}
    key_by: "attribute:user"
    limit: {LIMIT}/{WINDOW_S} s fixed_window
    on_store_failure: {{mode: fail_open, share: 25%}}
  - id: many
    match: {{attributes: {{domain: soak, kind: many}}}}
    key_by: "attribute:user"
    limit: 1000/s
"""
MOST_GROWTH_MB: Final = 0.5
"""Megabytes a minute of one worker, in the second half of the run."""
_TASKS: Final = 24
_RATES: Final = (50, 150, 300, 450)
_DISTURBED_S: Final = 3.0
"""Seconds after a fault for which latency counts as disturbed."""
_PATIENCE_S: Final = 10.0
_MEBIBYTE: Final = 1 << 20
# Envoy's own definitions, which have no types.
RLS: Any = import_module("envoy.service.ratelimit.v3.rls_pb2")
STUBS: Any = import_module("envoy.service.ratelimit.v3.rls_pb2_grpc")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault from *began* to *ended*, in seconds since the epoch."""

    kind: str
    began: float
    ended: float


@dataclass(slots=True)
class Run:
    """What has happened so far."""

    faults: list[Fault] = field(default_factory=list)
    forgotten: list[tuple[float, float]] = field(default_factory=list)
    """When Redis lost its memory: from the last moment with it to the first without."""
    broken: list[Fault] = field(default_factory=list)
    """Faults of workers, which break connections."""
    allowed: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """Requests that were certainly allowed in a window, by kind, caller and window."""
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    latencies: list[tuple[float, float]] = field(default_factory=list)
    """When each request was sent, and the seconds until its answer."""
    failures: list[tuple[float, str]] = field(default_factory=list)
    memory: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    """The bytes of each worker, by its process id, with the times."""
    deaths: dict[int, float] = field(default_factory=dict)
    """When each worker was killed."""


# Load.


class Caller:
    """Sends checks over HTTP and gRPC until it is told to stop."""

    def __init__(self, service: Service, run: Run, chance: random.Random) -> None:
        self._run = run
        self._chance = chance
        self._url = f"{service.url}/v1/check"
        self._address = f"127.0.0.1:{service.grpc_port}"
        self.rate = _RATES[0]

    async def work(self, until: float) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 300)]
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            grpc.aio.insecure_channel(self._address, options=options) as channel,
        ):
            stub = STUBS.RateLimitServiceStub(channel)
            while time.time() < until:
                await asyncio.sleep(self._chance.expovariate(self.rate / _TASKS))
                kind = self._chance.choice(("closed", "open", "open", "closed", "many"))
                user = f"{kind}-{self._chance.randrange(CALLERS[kind])}"
                asking = self._over_grpc(stub, kind, user)
                if self._chance.random() < 0.5:
                    asking.close()
                    await self._record(self._over_http(session, kind, user), kind, user, "HTTP")
                else:
                    await self._record(asking, kind, user, "gRPC")

    async def _record(self, asking: Any, kind: str, user: str, protocol: str) -> None:
        sent, begun = time.time(), time.monotonic()
        try:
            outcome, is_allowed = await asking
        except (aiohttp.ClientError, grpc.aio.AioRpcError, TimeoutError) as error:
            code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else ""
            self._run.failures.append((sent, f"{protocol} {type(error).__name__} {code}".strip()))
            return
        took = time.monotonic() - begun
        self._run.outcomes[f"{protocol} {outcome}"] += 1
        self._run.latencies.append((sent, took))
        window = int(sent // WINDOW_S)
        if is_allowed and kind != "many" and int((sent + took) // WINDOW_S) == window:
            self._run.allowed[kind, user, window] += 1

    async def _over_http(
        self, session: aiohttp.ClientSession, kind: str, user: str
    ) -> tuple[str, bool]:
        attributes = {"domain": "soak", "kind": kind, "user": user}
        body = {"path": "/", "attributes": attributes}
        async with session.post(self._url, json=body) as answer:
            await answer.read()
            return str(answer.status), answer.status == 200

    async def _over_grpc(self, stub: Any, kind: str, user: str) -> tuple[str, bool]:
        request = RLS.RateLimitRequest(domain="soak")
        entries = request.descriptors.add().entries
        entries.add(key="kind", value=kind)
        entries.add(key="user", value=user)
        answer = await stub.ShouldRateLimit(request, timeout=_PATIENCE_S)
        is_allowed = answer.overall_code == RLS.RateLimitResponse.OK
        return "OK" if is_allowed else "OVER_LIMIT", is_allowed


async def vary(callers: Sequence[Caller], chance: random.Random) -> None:
    """Change the rate every few seconds."""
    while True:
        rate = chance.choice(_RATES)
        for caller in callers:
            caller.rate = rate
        await asyncio.sleep(chance.uniform(2, 8))


# Faults.


class Faults:
    """Breaks things, one after the other, with pauses in between."""

    def __init__(
        self, service: Service, redis: RedisServer, rules: Path, run: Run, chance: random.Random
    ) -> None:
        self._service = service
        self._redis = redis
        self._rules = rules
        self._run = run
        self._chance = chance
        self._edits = 0
        self._kinds: dict[str, Callable[[], None]] = {
            "Redis restarted": self._restart_redis,
            "Redis stopped (SIGSTOP)": self._stop_redis,
            "connections cut": self._cut_connections,
            "worker stopped (SIGSTOP)": self._stop_worker,
            "worker killed (SIGKILL)": self._kill_worker,
            "policy changed": self._change_policy,
            "policy spoiled": self._spoil_policy,
        }

    async def inject(self, until: float) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(4, 12))
            if time.time() > until - 15:  # the end of the last one belongs to the run
                return
            kind = self._chance.choice(list(self._kinds))
            began = time.time()
            await asyncio.to_thread(self._kinds[kind])
            fault = Fault(kind, began, time.time())
            self._run.faults.append(fault)
            if kind.startswith("worker"):
                self._run.broken.append(fault)

    def _restart_redis(self) -> None:
        began = time.time()
        self._redis.stop()
        time.sleep(self._chance.uniform(0, 3))
        self._redis.start()
        self._run.forgotten.append((began, time.time()))

    def _stop_redis(self) -> None:
        self._redis.pause()
        time.sleep(self._chance.uniform(0.1, 4))
        self._redis.resume()

    def _cut_connections(self) -> None:
        for _ in range(self._chance.randint(1, 5)):
            self._redis.cli("client", "kill", "type", "normal", "skipme", "yes")
            time.sleep(self._chance.uniform(0, 0.5))

    def _stop_worker(self) -> None:
        pid = self._chance.choice(self._service.workers())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.2, 2))
        os.kill(pid, signal.SIGCONT)

    def _kill_worker(self) -> None:
        """Kill the youngest worker: the others show how memory develops."""
        memory = list(self._run.memory)  # the order in which they were seen: process ids wrap
        pid = max(
            self._service.workers(),
            key=lambda pid: memory.index(pid) if pid in memory else len(memory),
        )
        os.kill(pid, signal.SIGKILL)
        self._run.deaths[pid] = time.time()
        deadline = time.time() + 60
        while len(self._service.workers()) < WORKERS and time.time() < deadline:
            time.sleep(0.1)

    def _change_policy(self) -> None:
        self._edits += 1
        rule = f"  - {{id: edit-{self._edits}, key_by: ip, limit: {1000 + self._edits}/s}}\n"
        self._rules.write_text(RULES + rule, encoding="utf-8")

    def _spoil_policy(self) -> None:
        text = self._rules.read_text(encoding="utf-8")
        self._rules.write_text(f"{text}  - {{id: no rule", encoding="utf-8")
        time.sleep(self._chance.uniform(0.5, 2))
        self._rules.write_text(text, encoding="utf-8")


# Measures.


async def watch_memory(service: Service, run: Run) -> None:
    """Note the memory of the workers every second."""
    while True:
        await asyncio.to_thread(_note_memory, service, run)
        await asyncio.sleep(1)


def _note_memory(service: Service, run: Run) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    for pid in service.workers():
        with suppress(OSError, IndexError):
            size = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
            run.memory.setdefault(pid, []).append((time.time(), size))


def growth_mb(points: Sequence[tuple[float, int]]) -> float:
    """Megabytes that a worker grows by in a minute: a line through the second half."""
    half = points[len(points) // 2 :]
    slope, _ = statistics.linear_regression(*zip(*half, strict=True))
    return round(slope * 60 / _MEBIBYTE, 2)


_GONE: Final = re.compile(r" is gone \(")
_BACK: Final = re.compile(r" is back after ")


def outages_in(log: str, deaths: dict[int, float], end: float) -> Iterator[tuple[float, float]]:
    """The outages of all processes, as their logs have them, in seconds since the epoch."""
    began: dict[int, float] = {}
    for line in log.splitlines():
        if not line.startswith("{"):
            continue
        found = json.loads(line)
        at = datetime.fromisoformat(found["time"]).timestamp()
        if _GONE.search(found["message"]):
            began.setdefault(found["pid"], at)
        elif _BACK.search(found["message"]) and found["pid"] in began:
            yield began.pop(found["pid"]), at
    for pid, at in began.items():
        yield at, deaths.get(pid, end)


def bounds(run: Run, outages: Sequence[tuple[float, float]]) -> dict[tuple[str, int], int]:
    """The most that a caller may be allowed, by kind and window."""

    def count(intervals: Sequence[tuple[float, float]], window: int) -> int:
        begin, end = window * WINDOW_S, (window + 1) * WINDOW_S
        return sum(first < end and last > begin for first, last in intervals)

    found = {}
    for window in {window for _, _, window in run.allowed}:
        charged = LIMIT * (1 + count(run.forgotten, window))
        found["closed", window] = charged
        found["open", window] = charged + SHARE * count(outages, window)
    return found


def judged_failures(run: Run) -> tuple[Counter[str], Counter[str]]:
    """Requests without an answer: those that a fault of a worker explains, and all others."""
    explained: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for sent, what in run.failures:
        is_explained = any(
            fault.began - _PATIENCE_S <= sent <= fault.ended + _PATIENCE_S for fault in run.broken
        )
        (explained if is_explained else others)[what] += 1
    return explained, others


def quantiles_ms(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {
        name: round(1000 * ordered[math.ceil(share * len(ordered)) - 1], 1)
        for name, share in shares.items()
        if ordered
    }


# The run.


async def soak(service: Service, redis: RedisServer, rules: Path, run: Run, seconds: float) -> None:
    """Load and break *service* for so many *seconds*."""
    chance = random.Random()
    began = time.time()
    until = began + seconds
    callers = [Caller(service, run, random.Random(number)) for number in range(_TASKS)]
    beside = [
        asyncio.create_task(vary(callers, chance)),
        asyncio.create_task(watch_memory(service, run)),
        asyncio.create_task(report(run, began)),
    ]
    faults = Faults(service, redis, rules, run, chance)
    try:
        await asyncio.gather(faults.inject(until), *(caller.work(until) for caller in callers))
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


async def report(run: Run, began: float) -> None:
    while True:
        await asyncio.sleep(30)
        sizes = [points[-1][1] / _MEBIBYTE for points in list(run.memory.values())[-WORKERS:]]
        print(
            f"{time.time() - began:5.0f} s: {run.outcomes.total():7,} answers, "
            f"{len(run.faults):3} faults, {', '.join(f'{size:.1f}' for size in sizes)} MB",
            flush=True,
        )


def main() -> None:
    """Run for the time that is asked for, print a table and write the record."""
    options = _parser().parse_args()
    run, load = Run(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        directory = Path(folder)
        flags = ("--workers", str(WORKERS), "--store", redis.bare_url, "--log-format", "json")
        with serving(directory, *flags, rules=RULES, grpc=1) as service:
            seconds = 60 * options.minutes
            asyncio.run(soak(service, redis, directory / "rules.yaml", run, seconds))
            service.stop()
            status = service.wait()
            log = service.log
    results, goals = judge(run, log, status)
    print(_table(results), *goals, sep="\n")
    write_record(
        options.json,
        {"minutes": options.minutes, "load_before": round(load, 2), **results},
        goals,
    )


def judge(run: Run, log: str, status: int) -> tuple[dict[str, Any], list[Goal]]:
    """The figures of *run*, and whether they are good."""
    outages = list(outages_in(log, run.deaths, time.time()))
    most = bounds(run, outages)
    excess = {
        place: count - most[place[0], place[2]]
        for place, count in run.allowed.items()
        if count > most[place[0], place[2]]
    }
    explained, unexplained = judged_failures(run)
    by_disturbance: dict[str, list[float]] = defaultdict(list)
    for sent, took in run.latencies:
        is_disturbed = any(
            fault.began - 1 <= sent <= fault.ended + _DISTURBED_S for fault in run.faults
        )
        by_disturbance["during faults" if is_disturbed else "otherwise"].append(took)
    lasting = [points for pid, points in run.memory.items() if pid not in run.deaths]
    lasting = sorted(lasting, key=len)[-WORKERS + 1 :]  # the youngest began after a fault
    growth = [growth_mb(points) for points in lasting]
    tight = [count for (kind, _, _), count in run.allowed.items() if kind == "closed"]
    results = {
        "workers": WORKERS,
        "answers": run.outcomes.total(),
        "outcomes": dict(sorted(run.outcomes.items())),
        "faults": dict(sorted(Counter(fault.kind for fault in run.faults).items())),
        "outages_of_processes": len(outages),
        "times_redis_forgot": len(run.forgotten),
        "unanswered_during_faults_of_workers": dict(sorted(explained.items())),
        "unanswered_otherwise": dict(sorted(unexplained.items())),
        "tracebacks": log.count("Traceback"),
        "exit_status": status,
        "latency_ms": {name: quantiles_ms(one) for name, one in sorted(by_disturbance.items())},
        "memory_mb": [
            {
                "first": round(points[0][1] / _MEBIBYTE, 1),
                "last": round(points[-1][1] / _MEBIBYTE, 1),
                "growth_per_minute": slope,
            }
            for points, slope in zip(lasting, growth, strict=True)
        ],
        "windows_of_callers": len(run.allowed),
        "of_those_fail_closed_at_the_limit": sum(count >= LIMIT - 1 for count in tight),
        "decisions_over_the_bound": sum(excess.values()),
    }
    failed = sum(count for name, count in run.outcomes.items() if name == "HTTP 500")
    goals = [
        Goal("decisions over the stated bound", sum(excess.values()), 0),
        Goal("unanswered requests that no fault of a worker explains", unexplained.total(), 0),
        Goal("responses 500, tracebacks", failed + log.count("Traceback"), 0),
        Goal("exit status of the service", status, 0),
        Goal("growth of a worker, MB a minute", max(growth), MOST_GROWTH_MB),
    ]
    return results, goals


def _table(results: dict[str, Any]) -> str:
    rows = [
        (name, *(f"{figures.get(share, 0):,.1f}" for share in ("p50", "p99", "p99.9", "max")))
        for name, figures in results["latency_ms"].items()
    ]
    lines = [f"{name}: {value}" for name, value in results.items() if name != "latency_ms"]
    return "\n".join([*lines, "", table(("latency, ms", "p50", "p99", "p99.9", "max"), rows), ""])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--json", type=Path, default=RESULTS)
    return parser


if __name__ == "__main__":
    main()
