"""What is sent through the gateways, and what it costs."""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.gateway.ways import MEASURED
from tests.support.servers.process import find

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from benchmarks.gateway.servers import Gateway, Server

CONNECTIONS: Final = 16
_PACED: Final = 4
"""Connections at a steady rate."""

_SENT: Final = {
    "Host": "api.example.com",
    "User-Agent": "benchmark/1.0",
    "Accept": "application/json",
    "X-Api-Key": "measured",
    "X-Tenant-Id": "acme",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """Requests a second, and what each took of the processor: in everything, client and upstream
    included, in Envoy, and in the service."""

    rate: float
    all_us: float
    envoy_us: float
    service_us: float


_MANY_CALLERS: Final = """
local caller = 0
request = function()
  caller = (caller + 1) % 10000
  wrk.headers["X-Api-Key"] = "caller-" .. caller
  return wrk.format()
end
"""


def full(
    gateway: Gateway,
    app: Server,
    processors: Collection[int],
    seconds: int,
    *,
    many_callers: bool = False,
) -> Sample:
    """As many requests as go through to *app*, of one caller or of 10,000; the client is on
    *processors* too."""
    spenders = (_children_ns, app.cpu_ns, gateway.cpu_ns, gateway.service.cpu_ns)
    before = [spender() for spender in spenders]
    call = [*_on(processors), find("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s"]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_MANY_CALLERS if many_callers else "")
        script.flush()
        said = _said(*call, "-s", script.name, *_headers(_SENT), _url(gateway))
    spent = [spender() - was for spender, was in zip(spenders, before, strict=True)]
    assert "Non-2xx" not in said, f"{gateway.way.name}: {said}"
    assert "Socket errors" not in said, f"{gateway.way.name}: {said}"
    count, rate = re.search(r"(\d+) requests in", said), re.search(r"Requests/sec:\s+(\S+)", said)
    assert count, said
    assert rate, said
    client, upstream, envoy, service = (taken / int(count[1]) / 1000 for taken in spent)
    return Sample(float(rate[1]), client + upstream + envoy + service, envoy, service)


def paced(gateway: Gateway, rate: int, seconds: float) -> list[int]:
    """How long requests take, in microseconds, when *rate* of them come in a second."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        call = [find("h2load"), "--h1", f"-c{_PACED}", "-t1", f"-n{int(rate * seconds)}"]
        call += [f"--rps={rate / _PACED:g}", f"--log-file={log}"]
        _said(*call, *_headers(_SENT), _url(gateway))
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    assert all(row[1] == "200" for row in rows), f"{gateway.way.name}: {rows[0]}"
    return [int(row[2]) for row in rows]


def _children_ns() -> int:
    """The processor time of programs that have ended: of the clients."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((used.ru_utime + used.ru_stime) * 1e9)


def _said(*call: str) -> str:
    return subprocess.run(  # noqa: S603 - the arguments are our own
        call, check=True, capture_output=True, text=True
    ).stdout


def _on(processors: Collection[int]) -> tuple[str, ...]:
    return find("taskset"), "-c", ",".join(map(str, sorted(processors)))


def _headers(sent: dict[str, str]) -> Iterator[str]:
    for line in sent.items():
        yield from ("-H", ": ".join(line))


def _url(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.address}{MEASURED}"
