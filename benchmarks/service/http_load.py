"""A bare server, what it and the service are asked, and what a request costs them."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.gateway.servers import Server
from tests.support.servers import wait_until
from tests.support.servers.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECTIONS: Final = 16
CALLERS: Final = 10_000

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

_BY_MANY: Final = """
local caller, body = 0, wrk.body
request = function()
  caller = (caller + 1) % callers
  local address = string.format("10.0.%d.%d", math.floor(caller / 250), caller % 250)
  if body then
    wrk.body = string.gsub(body, "203.0.113.7", address)
  else
    wrk.headers["X-Forwarded-For"] = address
  end
  return wrk.format()
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """A request, sent over and over, each time by another of 10,000 callers."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str = ""

    def script(self) -> str:
        """The same for wrk, in Lua."""
        lines = [f"wrk.method = {json.dumps(self.method)}"]
        lines += [
            f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}"
            for name, value in self.headers.items()
        ]
        if self.body:
            lines.append(f"wrk.body = {json.dumps(self.body)}")
        return "\n".join([*lines, f"local callers = {CALLERS}", _BY_MANY])


AUTHORIZE: Final = Load("GET", "/v1/authorize/api/v1/items", SENT)
CHECK: Final = Load(
    "POST",
    "/v1/check",
    {"Host": "headgate", "Content-Type": "application/json"},
    json.dumps(_CHECKED),
)


class BareServer(Server):
    """uvicorn with an app that only answers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.address = f"127.0.0.1:{self.port()}"
        port = self.address.rpartition(":")[2]
        self.run(sys.executable, "-m", "benchmarks.service.bare_server", port)
        wait_until(self._answers, "uvicorn answers")

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self.address}/", timeout=1).close()
        except OSError:
            return False
        return True


def cpu_us(server: Server, address: str, load: Load, seconds: float) -> float:
    """Microseconds of the *server*'s processor time for a request, under full load."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "load.lua"
        script.write_text(load.script())
        shape = ("-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "-s", str(script))
        before = server.cpu_ns()
        printed = run("wrk", *shape, f"http://{address}{load.path}", within=seconds + 30)
        spent = server.cpu_ns() - before
    assert "Non-2xx" not in printed, printed
    assert "Socket errors" not in printed, printed
    found = re.search(r"(\d+) requests in", printed)
    assert found, printed
    assert int(found[1]), printed
    return spent / int(found[1]) / 1000
