"""Requests through gateways: how many go through on one core, and how long they take."""

from __future__ import annotations

import os
import random
import re
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.servers.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.servers import Server

BARE: Final = "no rules"
MEASURED: Final = "/api/v1/items"
CALLERS: Final = 10_000
CONNECTIONS: Final = 16
PACED_CONNECTIONS: Final = 4
RATE: Final = 300
"""Requests a second while latencies are measured: few enough for any machine."""
SENT: Final = {
    "Host": "api.example.com",
    "User-Agent": "benchmark/1.0",
    "Accept": "application/json",
    "X-Api-Key": "measured",
}
_SCRIPT: Final = """
local caller = 0
request = function()
  caller = (caller + 1) % CALLERS
  wrk.headers["X-Api-Key"] = "caller-" .. caller
  return wrk.format()
end
"""


def ratios(
    gateways: Mapping[str, Server], others: Sequence[Server], rounds: int, few: Sequence[str] = ()
) -> dict[str, float]:
    """The throughput of each gateway as a part of that without rules, on one core.

    The client, *others* and all gateways share the core, so the ratio is one of all processor time.
    The gateway without rules is sampled between any two others, and each ratio is to the samples
    just before and after: a machine that becomes slower meanwhile favours no gateway. All have
    10,000 callers, but the gateways *few* one each.
    """
    core = {max(os.sched_getaffinity(0))}
    for server in (*others, *gateways.values()):
        server.stay_on(core)
    names = [name for name in gateways if name != BARE]
    found: dict[str, list[float]] = {name: [] for name in names}
    before = _requests_a_second(gateways[BARE], core)
    for number in range(rounds):
        for name in random.Random(number).sample(names, len(names)):
            rate = _requests_a_second(gateways[name], core, 1 if name in few else CALLERS)
            after = _requests_a_second(gateways[BARE], core)
            found[name].append(rate / statistics.fmean((before, after)))
            before = after
    return {name: statistics.median(values) for name, values in found.items()}


def _requests_a_second(gateway: Server, core: set[int], callers: int = CALLERS) -> float:
    """All that wrk gets through in a second."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT.replace("CALLERS", str(callers)))
        script.flush()
        call = ["-c", ",".join(map(str, core)), "wrk", "-t1", f"-c{CONNECTIONS}", "-d1s"]
        printed = run("taskset", *call, "-s", script.name, *_headers(), _url(gateway), within=60)
    assert "Non-2xx" not in printed, printed
    assert "Socket errors" not in printed, printed
    rate = re.search(r"Requests/sec:\s+(\S+)", printed)
    assert rate, printed
    return float(rate[1])


def p99_ms(gateways: Mapping[str, Server], rounds: int, seconds: float) -> dict[str, float]:
    """The 99th percentile of the latency at a steady rate, all rounds together."""
    times: dict[str, list[int]] = {name: [] for name in gateways}
    for number in range(rounds):
        for name in random.Random(number).sample(list(gateways), len(gateways)):
            times[name] += _latencies_us(gateways[name], seconds)
    return {
        name: sorted(values)[(len(values) - 1) * 99 // 100] / 1000 for name, values in times.items()
    }


def _latencies_us(gateway: Server, seconds: float) -> list[int]:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        call = ["--h1", f"-c{PACED_CONNECTIONS}", "-t1", f"-n{int(RATE * seconds)}"]
        call += [f"--rps={RATE / PACED_CONNECTIONS:g}", f"--log-file={log}"]
        run("h2load", *call, *_headers(), _url(gateway), within=seconds + 60)
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    assert all(row[1] == "200" for row in rows), rows[0]
    return [int(row[2]) for row in rows]


def _headers() -> Iterator[str]:
    for line in SENT.items():
        yield from ("-H", ": ".join(line))


def _url(gateway: Server) -> str:
    return f"http://{gateway.address}{MEASURED}"
