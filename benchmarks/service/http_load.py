"""Servers in processes of their own, what they are asked, and what that costs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.servers import free_port, release_port, wait_until
from tests.servers.process import Process, find

if TYPE_CHECKING:
    from types import TracebackType

CONNECTIONS: Final = 16

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
"""What a gateway sends, more or less."""

_CHECKED: Final = {
    "method": "GET",
    "path": "/api/v1/items",
    "headers": {name: SENT[name] for name in ("Host", "Accept", "X-Api-Key", "X-Tenant-Id")},
    "ip": "203.0.113.7",
}


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """A request, sent over and over; *is_varied*: each time by another of many callers."""

    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: str = ""
    is_varied: bool = False

    def write_script(self, directory: Path) -> Path:
        """The same for wrk, in Lua."""
        lines = [f"wrk.method = {json.dumps(self.method)}"]
        lines += [
            f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}"
            for name, value in self.headers.items()
        ]
        if self.body:
            lines.append(f"wrk.body = {json.dumps(self.body)}")
        if self.is_varied:
            lines.append(_VARIED)
        script = directory / f"{self.name}.lua"
        script.write_text("\n".join(lines))
        return script


_VARIED: Final = """
local caller = 0
request = function()
  caller = (caller + 1) % 100000
  local high, low = math.floor(caller / 250), caller % 250
  wrk.headers["X-Forwarded-For"] = string.format("203.%d.%d.%d", high / 250, high % 250, low)
  wrk.headers["X-Api-Key"] = "0123456789" .. caller
  return wrk.format()
end
"""

AUTHORIZE: Final = Load("authorize", "GET", "/v1/authorize/api/v1/items", SENT)
VARIED: Final = Load("authorize by 100,000 callers", "GET", AUTHORIZE.path, SENT, is_varied=True)
CHECK: Final = Load(
    "check",
    "POST",
    "/v1/check",
    {"Host": "headgate", "Content-Type": "application/json"},
    json.dumps(_CHECKED),
)


class Served:
    """The app *name* on *server*, in a process of its own."""

    def __init__(self, server: str, name: str) -> None:
        self.port = free_port()
        self._log = Path(tempfile.mkstemp(prefix="headgate-bench-")[1])
        call = [sys.executable, "-m", "benchmarks.service.http_serving", server, name]
        self._process = Process([*call, str(self.port)], self._log)
        wait_until(self._answers, f"{name} on {server} answers")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._log.unlink()
        release_port(self.port)

    def cpu_ns(self) -> int:
        """The processor time that all its threads have had."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def url(self, load: Load) -> str:
        return f"http://127.0.0.1:{self.port}{load.path}"

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=1).close()
        except OSError:
            return False
        return True


def sample(served: Served, load: Load, seconds: float) -> tuple[float, float]:
    """Nanoseconds of processor time a request, and requests a second, under full load."""
    with tempfile.TemporaryDirectory() as directory:
        script = load.write_script(Path(directory))
        call = [find("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "-s", str(script)]
        before, begin = served.cpu_ns(), time.perf_counter()
        said = subprocess.run(  # noqa: S603 - the arguments are our own
            [*call, served.url(load)], check=True, capture_output=True, text=True
        ).stdout
        spent, took = served.cpu_ns() - before, time.perf_counter() - begin
    assert "Non-2xx" not in said, said
    assert "Socket errors" not in said, said
    found = re.search(r"(\d+) requests in", said)
    assert found, said
    count = int(found[1])
    return spent / count, count / took


def latencies_us(served: Served, load: Load, rate: float, seconds: float) -> dict[str, float]:
    """How long requests take, in microseconds, when *rate* of them come in a second."""
    clients = 8
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        body = Path(directory) / "body"
        body.write_text(load.body)
        call = [find("h2load"), "--h1", f"-c{clients}", "-t1", f"-n{int(rate * seconds)}"]
        call += [f"--rps={max(rate / clients, 1):.3f}", f"--log-file={log}"]
        call += ["-d", str(body)] if load.body else []
        call += [part for line in load.headers.items() for part in ("-H", ": ".join(line))]
        asked = [*call, served.url(load)]
        subprocess.run(asked, check=True, capture_output=True)  # noqa: S603 - as above
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    assert all(row[1] == "200" for row in rows), rows[0]
    times = sorted(int(row[2]) for row in rows)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    found = {name: float(times[int(share * (len(times) - 1))]) for name, share in shares.items()}
    return {**found, "max": float(times[-1]), "per_second": round(rate, 1)}
