"""The decision service over HTTP, and Envoy in front of an app."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.budgets.rls import Gubernator, peers
from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.envoy import BARE, RATE, p99_ms, ratios
from benchmarks.servers import BareApp, DecisionService, Gateway, OtherGateway, Upstream
from tests.support.servers import RedisServer
from tests.support.servers.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.servers import Server

CALLERS: Final = 10_000
CONNECTIONS: Final = 16
FEW: Final = ("quota", "local")
"""Ways to decide that are made for few callers with many requests."""
NO_RULES: Final = "version: 1\nrules: []\n"
BY_ADDRESS: Final = """
version: 1
rules:
  - {id: per-ip, match: {endpoint: "/api/**"}, key_by: ip, limit: 1000000000/minute}
"""
BY_KEY: Final = """
version: 1
identity: {api_key: {header: x-api-key}}
rules:
  - {id: per-key, match: {endpoint: "/api/**"}, key_by: api_key, limit: 100000000/s}
"""
SENT: Final = {
    "Host": "api.example.com",
    "User-Agent": "benchmark/1.0",
    "Accept": "application/json",
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Proto": "https",
    "X-Request-Id": "8618548c-1733-4703-bcb0-4670609bc2d4",
    "X-Api-Key": "0123456789abcdef",
    "X-Tenant-Id": "acme",
}
_CHECKED: Final = {
    "method": "GET",
    "path": "/api/v1/items",
    "headers": {name: SENT[name] for name in ("Host", "Accept", "X-Api-Key", "X-Tenant-Id")},
    "ip": "203.0.113.7",
}
_BY_MANY: Final = """
local caller = 0
request = function()
  caller = (caller + 1) % callers
  local address = string.format("10.0.%d.%d", math.floor(caller / 250), caller % 250)
  local sent = string.gsub(body, "203.0.113.7", address)
  local lines = string.gsub(head, "203.0.113.7", address)
  if #sent > 0 then
    lines = lines .. "Content-Length: " .. #sent .. "\\r\\n"
  end
  return lines .. "\\r\\n" .. sent
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """A request that 10,000 callers send."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str = ""

    def script(self) -> str:
        """The same in Lua, for wrk, with its headers in one order: `wrk.headers` has another in
        each run, and a plan cache takes some of them for other requests."""
        lines = [f"{self.method} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        head = "".join([f"{line}\r\n" for line in lines])
        values = {"head": json.dumps(head), "body": json.dumps(self.body), "callers": CALLERS}
        return "\n".join([f"local {name} = {value}" for name, value in values.items()] + [_BY_MANY])


AUTHORIZE: Final = Load("GET", "/v1/authorize/api/v1/items", SENT)
CHECK: Final = Load(
    "POST",
    "/v1/check",
    {"Host": "localhost", "Content-Type": "application/json"},
    json.dumps(_CHECKED),
)


def cpu_us(server: Server, load: Load, seconds: int) -> float:
    """Microseconds of the server's processor time for a request, under full load."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(load.script())
        script.flush()
        shape = ("-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script.name)
        before = server.cpu_ns()
        printed = run("wrk", *shape, f"http://{server.address}{load.path}", within=seconds + 30)
        spent = server.cpu_ns() - before
    assert "Non-2xx" not in printed, printed
    assert "Socket errors" not in printed, printed
    found = re.search(r"(\d+) requests in", printed)
    assert found, printed
    return spent / int(found[1]) / 1000


def http(effort: Effort) -> list[Row]:
    """Processor time of the service for a request, counters in memory."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        bare = stack.enter_context(BareApp(root / "bare"))
        service = stack.enter_context(DecisionService(root / "service", BY_ADDRESS))
        cases: dict[str, tuple[Server, Load]] = {
            "bare uvicorn": (bare, AUTHORIZE),
            "check": (service, CHECK),
            "authorize": (service, AUTHORIZE),
        }
        found: dict[str, list[float]] = {name: [] for name in cases}
        for number in range(effort.rounds(5) + 1):
            for name, case in cases.items():
                spent = cpu_us(*case, seconds=2)
                if number:  # the first round is a warm-up
                    found[name].append(spent)
    spent_us = {name: median(samples) for name, samples in found.items()}
    return [
        Row(
            f"http.{name}",
            f"HTTP {name}, 10,000 callers, CPU per request",
            spent_us[name],
            "us",
            (Budget(bound),),
            {"bare uvicorn": spent_us["bare uvicorn"]},
        )
        for name, bound in (("check", 60), ("authorize", 45))
    ]


def envoy(effort: Effort) -> list[Row]:
    """Requests through `headgate up`, as a part of those through it without rules."""
    with RedisServer() as server:
        return [*_envoy_rows(effort, server), *_envoy_rows(effort, None)]


def _envoy_rows(effort: Effort, redis: RedisServer | None) -> list[Row]:
    store = "redis" if redis else "memory"
    bounds = {"exact": 0.30} if redis else {"exact": 0.42, "quota": 0.65, "local": 0.85}
    flags = ("--store", redis.url) if redis else ()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        app = stack.enter_context(Upstream(root / "app"))
        url = f"http://{app.address}"
        gateways = {BARE: stack.enter_context(Gateway(root / "bare", url, NO_RULES))}
        for way in bounds:
            gateway = Gateway(root / way, url, BY_KEY, "--decide", way, *flags)
            gateways[way] = stack.enter_context(gateway)
        found, note = peers(root, redis, stack, effort)
        for name, peer in found.items():
            if not isinstance(peer, Gubernator):  # which Envoy cannot call
                other = OtherGateway(root / f"{name}-envoy", app.port, peer.port)
                gateways[name] = stack.enter_context(other)
        share = ratios(gateways, (app, *found.values()), effort.rounds(6), few=FEW)
        times = p99_ms(gateways, effort.rounds(4), effort.seconds(1.5))
    beside = {name: value for name, value in share.items() if name not in bounds}
    rows = [
        Row(
            f"envoy.{store}_{way}",
            f"Envoy, one {way} rule, counters in {store}, ratio to no rules",
            share[way],
            "",
            (Budget(bound, at_least=True),),
            beside,
            higher_is_better=True,
            note=note,
        )
        for way, bound in bounds.items()
    ]
    p99 = Row(
        f"envoy.{store}_p99",
        f"Envoy, one exact rule, counters in {store}, p99 at {RATE}/s",
        times.pop("exact"),
        "ms",
        (Budget(1, "ratelimit"),) if redis else (),
        times,
        note=note,
    )
    return [*rows, p99]
