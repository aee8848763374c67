"""`python -m benchmarks.service.grpc_transports`: gRPC calls a second of the server's CPU time.

Each server runs in a process of its own and is loaded by `h2load`, in turns, with what Envoy
would ask of a rate limit service. The bare servers only parse and answer; in the others a rule
decides. What counts is the CPU time of the server's process: the load and the machine's other
business then matter little. At half of what each can do, how long calls take is told as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.report import goal_lines, table, write_json
from benchmarks.service.grpc_serving import HOST, NAMES, READY, sample_request
from headgate.service.rls.messages import PATH
from tests.servers import free_port
from tests.servers.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS: Final = Path(__file__).parents[1] / "results" / "grpc_transports.json"
LEAST_TIMES_GRPCIO: Final = 5.0
OURS, PEER = "lean on uvloop", "grpcio.aio"
WHOLE, WHOLE_PEER = "lean, a rule decides", "grpcio.aio, a rule decides"
HALF_LOAD: Final = (OURS, WHOLE, "lean, a rule decides, not remembered")
CALLS_PER_CONNECTION: Final = 2_500
"""h2load ends with its connection, and the lean server asks for a new one after 3,072 calls."""
AT_ONCE: Final = 25
"""Calls under way on a connection, of which there are four at a time."""
SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = _parser().parse_args()
    rounds, calls = (2, 10_000) if options.quick else (5, 60_000)
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        body = Path(folder) / "request"
        request = sample_request()
        body.write_bytes(b"\0" + len(request).to_bytes(4, "big") + request)
        servers = {name: stack.enter_context(_server(name)) for name in NAMES}
        for _, port in servers.values():
            _load(port, body, 2_000)
        for number in range(rounds):
            for name in NAMES[number % len(NAMES) :] + NAMES[: number % len(NAMES)]:
                pid, port = servers[name]
                some = calls if name.startswith("lean") else calls // 10
                rates[name].append(_rate(pid, port, body, some))
        waits = {
            name: _latencies(servers[name][1], body, median(rates[name]) / 4, folder)
            for name in HALF_LOAD
        }
    print(_table(rates), end="\n\n")
    print(table(["us, at half load", *SHARES], [[name, *map(str, waits[name])] for name in waits]))
    goals = [
        Goal(
            f"calls a CPU-second, {ours} / {peer}",
            round(max(rates[ours]) / max(rates[peer]), 2),
            LEAST_TIMES_GRPCIO,
            at_least=True,
        )
        for ours, peer in ((OURS, PEER), (WHOLE, WHOLE_PEER))
    ]
    print(goal_lines(goals))
    results: dict[str, object] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "calls_per_cpu_second": {
            name: {"best": max(found), "median": median(found)} for name, found in rates.items()
        },
        "us_at_half_load": {name: dict(zip(SHARES, waits[name], strict=True)) for name in waits},
        "goals": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }
    write_json(options.json, results)


@contextmanager
def _server(name: str) -> Iterator[tuple[int, int]]:
    """The process id and the port of a server that runs."""
    port = free_port()
    call = [sys.executable, "-m", "benchmarks.service.grpc_serving", name, str(port)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == READY
            yield process.pid, port
        finally:
            process.kill()


def _rate(pid: int, port: int, body: Path, calls: int) -> float:
    """Calls a second of CPU time."""
    before = _cpu_s(pid)
    done = _load(port, body, calls)
    return round(done / (_cpu_s(pid) - before), 1)


def _load(port: int, body: Path, calls: int) -> int:
    """How many calls were answered; all must have been."""
    clients = max(4, calls // CALLS_PER_CONNECTION)
    fields = ("content-type: application/grpc", "te: trailers", "grpc-timeout: 5S")
    headers = [part for field in fields for part in ("-H", field)]
    told = run(
        "h2load",
        *("-n", str(calls), "-c", str(clients), "-m", str(AT_ONCE), "-d", str(body), *headers),
        f"http://{HOST}:{port}{PATH}",
        within=300,
    )
    match = re.search(r"(\d+) succeeded", told)
    assert match is not None, told
    assert int(match[1]) == calls, told
    return calls


def _latencies(port: int, body: Path, per_second: float, folder: str) -> list[int]:
    """How many microseconds calls take at so many a second: see `SHARES`."""
    log = Path(folder) / "calls.log"
    log.unlink(missing_ok=True)
    fields = ("content-type: application/grpc", "te: trailers", "grpc-timeout: 5S")
    headers = [part for field in fields for part in ("-H", field)]
    rate = max(1, round(per_second / 4))
    run(
        "h2load",
        *("-n", str(min(4 * CALLS_PER_CONNECTION, 20 * rate)), "-c", "4", "-m", "8"),
        *("--rps", str(rate), "--log-file", str(log), "-d", str(body), *headers),
        f"http://{HOST}:{port}{PATH}",
        within=300,
    )
    taken = sorted(int(line.split()[2]) for line in log.read_text().splitlines())
    return [taken[min(len(taken) - 1, int(len(taken) * share))] for share in SHARES.values()]


def _cpu_s(pid: int) -> float:
    """What the process has used up, user and system, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _table(rates: dict[str, list[float]]) -> str:
    peer = max(rates[PEER])
    rows = [
        [
            name,
            f"{max(found):,.0f} ({median(found):,.0f})",
            f"{1e6 / max(found):.1f}",
            f"{max(found) / peer:.2f}",
        ]
        for name, found in rates.items()
    ]
    return table(["calls a CPU-second, best (median)", "", "us a call", f"of {PEER}"], rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.service.grpc_transports", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="some seconds, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    return parser


if __name__ == "__main__":
    main()
