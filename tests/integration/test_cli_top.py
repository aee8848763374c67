"""`headgate top` with a real service, on a real terminal (a pty)."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import ThreadingUnixStreamServer
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headgate.cli.admin_client import AdminClient, AdminError
from tests.support.decision_service import serving
from tests.support.live_answers import answer, rule
from tests.support.servers import free_port, release_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "s" * 32
PATH = "/admin/v1/live"
ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"
CALL = (sys.executable, "-m", "headgate.cli", "top")

STALE = {"COLUMNS": "80", "LINES": "24"}
"""Variables that shells export; the size of the terminal overrides them."""

TAKE_TERMINAL = """\
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.Handlers(int(sys.argv[1])))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Ctrl-C is a signal only to those whose terminal it is. What handles it is inherited."""


class Terminal:
    """A pty with `headgate top` on it."""

    def __init__(
        self,
        *flags: str,
        rows: int = 30,
        columns: int = 100,
        sigint: signal.Handlers = signal.SIG_DFL,
        **env: str,
    ) -> None:
        self.fd, inner = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(inner)
        self._inner = inner
        self.seen = b""
        self.process = subprocess.Popen(  # noqa: S603 - the tests' own
            [sys.executable, "-c", TAKE_TERMINAL, str(int(sigint)), *CALL, *flags],
            stdin=inner,
            stdout=inner,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **STALE, "TERM": "xterm", "HEADGATE_ADMIN_TOKEN": TOKEN, **env},
        )

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def until(self, pattern: str, within: float = 30.0) -> None:
        """Read until what is shown since the last time has *pattern* in it."""
        ends = time.monotonic() + within
        begun = len(self.seen)
        while not re.search(pattern, self.seen[begun:].decode("utf-8", "replace")):
            left = ends - time.monotonic()
            assert left > 0, self.seen[begun:].decode("utf-8", "replace")
            self._read(left)

    def end(self, within: float = 30.0) -> int:
        """Wait for its end, and read all that it writes until then; the exit status."""
        ends = time.monotonic() + within
        while LEFT not in self.seen and time.monotonic() < ends:
            self._read(0.1)
        self.process.wait(max(0.0, ends - time.monotonic()))
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, within: float) -> bool:
        is_ready = bool(select.select([self.fd], [], [], within)[0])
        if is_ready:
            self.seen += os.read(self.fd, 65536)
        return is_ready

    def is_as_before(self) -> bool:
        """Whether the terminal was given back as it was."""
        was_left = self.seen.count(ENTERED) == self.seen.count(LEFT) == 1
        shows_cursor = self.seen.rindex(b"\x1b[?25h") > self.seen.rindex(b"\x1b[?25l")
        return was_left and shows_cursor and termios.tcgetattr(self._inner) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()
        os.close(self.fd)
        os.close(self._inner)


@contextmanager
def terminal(*flags: str, **more: Any) -> Iterator[Terminal]:
    one = Terminal(*flags, **more)
    try:
        yield one
    finally:
        one.close()


class Handler(BaseHTTPRequestHandler):
    """Says what its server is to say."""

    protocol_version = "HTTP/1.1"
    server: FakeService | FakeUnixService

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["authorization"]))
        status, body = self.server.said
        is_closing = self.server.is_closing  # not as it is when this has been answered
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = is_closing

    def log_message(self, *_: object) -> None:
        pass


class _Said:
    said: tuple[int, bytes] = (200, json.dumps(answer(rule("per-ip", allowed=3))).encode())
    is_closing = False

    def note(self) -> None:
        self.asked: list[tuple[str, str]] = []


class FakeService(_Said, ThreadingHTTPServer):
    daemon_threads = True


class FakeUnixService(_Said, ThreadingUnixStreamServer):
    daemon_threads = True

    def get_request(self) -> Any:
        return super().get_request()[0], ("", 0)


Service = TypeVar("Service", FakeService, FakeUnixService)


@contextmanager
def saying(server: Service) -> Iterator[Service]:
    server.note()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def service() -> Iterator[FakeService]:
    with saying(FakeService(("127.0.0.1", 0), Handler)) as server:
        yield server


def url_of(server: FakeService) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def printed(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - the tests' own
        [*CALL, *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "HEADGATE_ADMIN_TOKEN": TOKEN, **env},
    )


def test_what_a_service_decides_is_seen(tmp_path: Path) -> None:
    with serving(tmp_path, env={"HEADGATE_ADMIN_TOKEN": TOKEN}) as service:
        assert service.statuses(7) == [200] * 5 + [429] * 2
        once = printed("--url", service.url, "--once", COLUMNS="100")
        assert once.returncode == 0, once.stderr
        assert "revision 1, 1 rule" in once.stdout
        assert re.search(r"\n  per-ip ", once.stdout)
        data = AdminClient(service.url, TOKEN).get(PATH)
        assert [one["rule_id"] for one in data["rules"]] == ["per-ip"]
        assert data["requests"] == {"allowed": 5, "denied": 2}
        with pytest.raises(AdminError) as caught:
            AdminClient(service.url, "x" * 32).get(PATH)
        assert caught.value.is_final


def test_on_a_terminal_keys_work_and_it_is_given_back(service: FakeService) -> None:
    with terminal("--url", url_of(service), "--interval", "100ms") as screen:
        screen.until("per-ip")
        screen.send(b"\x1b[B")
        screen.until("> .*per-ip")
        screen.send(b"?")
        screen.until("select a rule")
        screen.send(b"?")
        screen.resize(7, 40)
        os.kill(screen.process.pid, signal.SIGWINCH)
        # A whole picture of seven rows; before it there may be some of thirty.
        screen.until(r"\x1b\[H(?:[^\n]*\n){6}[^\n]*q quit[^\n]*…")
        screen.send(b"q")
        assert screen.end() == 0
        assert screen.is_as_before()


def test_a_service_that_comes_back_is_shown_again_and_ctrl_c_ends_it() -> None:
    port = free_port()
    try:
        with terminal("--url", f"http://127.0.0.1:{port}", "--interval", "100ms") as screen:
            screen.until(r"Connection refused\. Retrying")
            service = FakeService(("127.0.0.1", port), Handler)
            service.is_closing = True  # from the first answer on: no connection outlives it
            with saying(service):
                screen.until("per-ip")
            screen.until("Retrying")
            screen.send(b"\x03")
            assert screen.end() == 130
            assert screen.is_as_before()
    finally:
        release_port(port)


@pytest.mark.parametrize("sigint", [signal.SIG_DFL, signal.SIG_IGN])
def test_ctrl_c_ends_it_long_before_the_next_question(
    service: FakeService, sigint: signal.Handlers
) -> None:
    with terminal("--url", url_of(service), "--interval", "3600s", sigint=sigint) as screen:
        screen.until("per-ip")
        screen.send(b"\x03")
        assert screen.end() == 130
        assert screen.is_as_before()


def test_sigterm_gives_the_terminal_back_too(service: FakeService) -> None:
    with terminal("--url", url_of(service), "--interval", "100ms", NO_COLOR="1") as screen:
        screen.until("per-ip")
        os.kill(screen.process.pid, signal.SIGTERM)
        assert screen.end() == 0
        assert screen.is_as_before()
        assert b"\x1b[32m" not in screen.seen


def test_a_token_that_is_wrong_from_the_beginning_ends_it(service: FakeService) -> None:
    service.said = (401, b"{}")
    with terminal("--url", url_of(service)) as screen:
        assert screen.end() == 2
        assert screen.is_as_before()


def test_the_path_is_below_that_of_the_url_and_the_token_is_sent(service: FakeService) -> None:
    client = AdminClient(f"{url_of(service)}/prefix/", TOKEN)
    assert client.get(PATH)["version"] == "0.1.0"
    assert service.asked == [("/prefix/admin/v1/live", f"Bearer {TOKEN}")]


def test_a_socket_in_the_file_system_can_be_asked(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with saying(FakeUnixService(path, Handler)):
        for url in (f"unix:{path}", f"unix://{path}"):
            assert AdminClient(url, TOKEN).get(PATH)["workers"] == 2
    with pytest.raises(AdminError):
        AdminClient(f"unix:{path}", TOKEN).get(PATH)


@pytest.mark.parametrize(
    ("status", "body", "told", "is_final"),
    [
        (401, b"{}", "the service does not know this token", True),
        (403, b"{}", "the admin API is disabled", True),
        (404, b"", "check that the URL is a headgate service", True),
        (503, b'{"detail": "no workers"}', "HTTP 503 Service Unavailable: no workers", False),
        (500, b"<html>", "HTTP 500", False),
        (200, b"<html>", "not a JSON object", False),
        (200, b"[1]", "not a JSON object", False),
        (200, b"[" * 100_000, "not a JSON object", False),
    ],
)
def test_what_is_wrong_with_an_answer_is_told(
    service: FakeService, status: int, body: bytes, told: str, *, is_final: bool
) -> None:
    service.said = (status, body)
    with pytest.raises(AdminError) as caught:
        AdminClient(url_of(service), TOKEN).get(PATH)
    assert told in str(caught.value)
    assert caught.value.is_final == is_final


def test_no_answer_is_waited_for_so_long_and_no_longer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(AdminError) as caught:
            AdminClient(url, TOKEN, timeout_s=0.05).get(PATH)
    assert str(caught.value) == "timed out"
