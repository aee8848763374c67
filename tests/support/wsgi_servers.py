"""WSGI apps on real servers."""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.support.servers import ServerError, free_port, release_port, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOST = "127.0.0.1"
_ASKING = httpx.Client(trust_env=False, timeout=5, limits=httpx.Limits(max_keepalive_connections=0))
WORKERS = {
    "sync": ("--worker-class", "sync"),
    "gthread": ("--worker-class", "gthread", "--threads", "4"),
}


@dataclass(frozen=True)
class Serving:
    """A server that runs. *directory* is where its app is, and its socket if it has one."""

    url: str
    directory: Path

    def get(self, path: str = "/", **headers: str) -> httpx.Response:
        """Ask once, on a connection of its own."""
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.get(f"{self.url}{path}", headers=lines, trust_env=False, timeout=30)


@contextmanager
def gunicorn(
    source: str, *options: str, workers: int = 1, kind: str = "sync", unix: bool = False
) -> Iterator[Serving]:
    """The app that *source*, the text of a module, calls `app`, served by gunicorn."""
    with tempfile.TemporaryDirectory(prefix="headgate-") as name:
        directory = Path(name)
        (directory / "served.py").write_text(source, encoding="utf-8")
        port = free_port()
        where = f"unix:{directory / 'app.sock'}" if unix else f"{HOST}:{port}"
        call = [
            *(sys.executable, "-m", "gunicorn", "served:app", "--chdir", str(directory)),
            *("--bind", where, "--workers", str(workers), *WORKERS[kind], *options),
            *("--worker-tmp-dir", str(directory), "--no-control-socket"),
        ]
        try:
            with running(call, directory / "log"):
                url = f"http://{HOST}:{port}"
                if not unix:
                    wait_until(lambda: answers(url), f"{url} answers")
                yield Serving(url, directory)
        finally:
            release_port(port)


@contextmanager
def running(call: Sequence[str], log: Path) -> Iterator[Process]:
    """A process, until the end of the block; what it printed is shown if the block fails."""
    process = Process(call, log)
    try:
        yield process
    except (AssertionError, ServerError):
        sys.stdout.write(log.read_text(encoding="utf-8", errors="replace"))
        raise
    finally:
        process.terminate()


def answers(url: str) -> bool:
    """Whether a server is there, at */health* of *url*."""
    try:
        return _ASKING.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False
