"""An upstream that notes when each request reached it: what gateways have let through."""

from __future__ import annotations

import shutil
import tempfile
from bisect import bisect_right
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.support.gateways import NGINX_HEAD
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVER = """\
  log_format seen '$msec $uri';
  keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{port};
    location / {{ access_log {directory}/seen seen; return 200 "the app"; }}
    location = /started {{ return 200 "yes"; }}
  }}
}}
"""


class Upstream:
    """A server at *url*, and the requests that it has seen."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    def seen(self, path: str = "/") -> list[float]:
        """When each request for *path* came, in seconds since the epoch, in order."""
        if not self._log.exists():
            return []
        lines = [line.split() for line in self._log.read_text().splitlines()]
        return sorted(float(when) for when, where in lines if where == path)

    def forget(self) -> None:
        """Begin anew."""
        self._log.write_text("")


@contextmanager
def counting_upstream() -> Iterator[Upstream]:
    """An nginx that answers everything."""
    port = free_port()
    directory = Path(tempfile.mkdtemp(prefix="headgate-upstream-"))
    config = directory / "nginx.conf"
    config.write_text((NGINX_HEAD + _SERVER).format(directory=directory, port=port))
    process = Process(["nginx", "-c", str(config), "-p", str(directory)], directory / "log")
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _is_there(url), "the upstream answers")
        yield Upstream(url, directory / "seen")
    finally:
        process.terminate()
        release_port(port)
        shutil.rmtree(directory, ignore_errors=True)


def most_within(seconds: float, times: list[float]) -> int:
    """The most of *times* that fall into any interval of so many *seconds*."""
    ends = [bisect_right(times, start + seconds) for start in times]
    return max((end - place for place, end in enumerate(ends)), default=0)


def _is_there(url: str) -> bool:
    try:
        return httpx.get(f"{url}/started").status_code == 200
    except httpx.TransportError:
        return False
