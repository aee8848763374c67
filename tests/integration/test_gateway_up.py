"""`headgate up` with the real Envoy: starting, limiting, changing rules, and ending."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.decision_service import PLAIN, refused
from tests.support.gateway_process import CALL, RULES, TOKEN, Gateway, gateway
from tests.support.servers import free_port, release_port, until, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALL = "".join(f"{number}\n" for number in range(10))
"""What a slow response of the upstream says."""


class TestStarting:
    def test_requests_are_limited_and_a_debug_token_shows_how(self, tmp_path: Path) -> None:
        with gateway(tmp_path) as one:
            token = one.admin("POST", "/debug-tokens", json={"ttl": 60}).json()["token"]
            headers = {"x-api-key": "ada", "headgate-debug": token}
            replies = [PLAIN.get(f"{one.url}/limited/a", headers=headers) for _ in range(6)]
            assert [reply.status_code for reply in replies] == [200] * 5 + [429]
            told = [reply.headers["headgate-decision"] for reply in replies]
            assert told[0].startswith('"per-key";allowed=?1;mode=enforce;key="api_key=~')
            assert told[5].startswith('"per-key";allowed=?0;')
            assert "headgate-decision" not in one.get("/limited/a").headers
            assert "headgate-decision" not in one.get("/limited/a", "eve").headers

            assert one.statuses(1, key="bob") == [200]
            assert one.get("/free").text == "/free"

            assert f"gateway: {one.url}" in one.log
            assert f"service and dashboard: {one.service_url}/" in one.log
            assert "revision 1, 1 rule" in one.log
            files = Path(re.findall(r"files: (\S+)", one.log)[0])
            assert files.stat().st_mode & 0o777 == 0o700
            assert not list(files.glob("*.secret"))
            assert TOKEN not in one.log  # it was given, not made
            one.stop()
            assert one.wait() == 0
            assert not files.exists()
            assert one.log.rstrip().endswith("info stopped")

    def test_programs_get_json_and_a_token_that_was_made_is_in_a_file(self, tmp_path: Path) -> None:
        """Beside it: an upstream that is down is a warning, and a 503."""
        env = {"HEADGATE_ADMIN_TOKEN": "", "HEADGATE_STORE": "memory://"}
        port = free_port()
        with gateway(tmp_path, "--json", upstream=f"http://127.0.0.1:{port}", env=env) as one:
            wait_until(lambda: "is unreachable: connection refused" in one.log, "it is told")
            assert one.get("/free").status_code == 503
            lines = [json.loads(line) for line in one.log.splitlines()]
            [up] = [line for line in lines if line.get("event") == "up"]
            assert up["gateway"] == [one.url]
            assert (up["envoy_pid"], up["worker_pids"]) == (one.envoy_pid, [one.worker_pid])
            token = Path(up["admin_token_file"])
            assert token.stat().st_mode & 0o777 == 0o600
            one.admin_token = token.read_text().strip()
            assert one.admin("GET", "/rules").status_code == 200
            assert one.admin_token not in one.log
        release_port(port)

    def test_the_demos_three_lines_do_what_they_say(self, tmp_path: Path) -> None:
        env = {"HEADGATE_ADMIN_TOKEN": ""}
        with gateway(tmp_path, is_demo=True, env=env) as one:
            wait_until(lambda: "Ctrl-C" in one.log, "the demo has said everything")
            allowed, denied, changed = re.findall(r"^ +(curl .*)$", one.log, re.MULTILINE)
            told = _shell(allowed)
            assert told.startswith("HTTP/1.1 200 OK")
            assert "x-ratelimit-remaining: 4" in told
            told = _shell(denied)
            assert told.count("-> 401") == 5
            assert told.count("-> 429") == 2
            assert '"error": "rate_limit_exceeded"' in told
            assert '"version"' in _shell(changed)
            wait_until(lambda: "-> 429" not in _shell(denied), "the new limit is in force")
            rules = Path(re.findall(r"rules +(\S+)", one.log)[0])
            text = rules.read_text()
            rules.write_text(text.replace("100/minute", "1/day"))
            wait_until(lambda: "-> 429" in _shell(denied), "so is what was edited")


def _shell(line: str) -> str:
    done = subprocess.run(  # noqa: S602 - a line as it was printed
        line, shell=True, capture_output=True, text=True, check=True
    )
    return done.stdout


class TestRefusing:
    def test_a_port_that_is_taken_is_one_line_with_who_has_it(self, tmp_path: Path) -> None:
        (tmp_path / "rules.yaml").write_text(RULES)
        port = free_port()
        with socket.create_server(("127.0.0.1", port)):
            flags = ("--rules", "rules.yaml", "--upstream", "http://127.0.0.1:1")
            status, told = refused(tmp_path, *flags, "--listen", f"127.0.0.1:{port}", call=CALL)
        release_port(port)
        assert status == 2
        assert re.fullmatch(
            rf"headgate up: cannot listen at 127.0.0.1:{port}: port {port} is in use by "
            r"\S+ \(pid \d+\); choose another with --listen\n",
            told,
        )

    def test_nothing_need_be_open_to_be_told(self, tmp_path: Path) -> None:
        """A service manager may have closed all of stdin, stdout and stderr."""
        call = [*CALL, "--envoy", "/none"]
        closed = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *call]
        assert subprocess.run(closed, check=False, cwd=tmp_path).returncode == 2  # noqa: S603


def test_a_change_drops_no_connection_and_wrong_rules_change_nothing(tmp_path: Path) -> None:
    """Other filters than before: the listener itself is replaced."""
    with gateway(tmp_path) as one:
        with (
            httpx.Client(base_url=one.url) as kept,
            _reading(f"{one.url}/slow?seconds=2") as pieces,
        ):
            ada = {"x-api-key": "ada"}
            assert kept.get("/limited/a", headers=ada).status_code == 200
            more = "  - {id: shut, match: {endpoint: /shut}, key_by: ip, limit: 1/hour,"
            more += " on_store_failure: fail_closed}\n"
            changed = RULES.replace("5/hour", "2/hour") + more
            (tmp_path / "rules.yaml").write_text(changed)
            wait_until(lambda: one.statuses(2, "/shut") == [429, 429], "the rule is in force")
            is_healthy = [kept.get("/limited/a", headers=ada) for _ in range(2)]
            assert [answer.status_code for answer in is_healthy] == [200, 429]
        assert "".join(pieces) == ALL
        assert "refuses" not in one.log

        (tmp_path / "rules.yaml").write_text(changed.replace("2/hour", "nonsense"))
        wait_until(lambda: "nonsense" in one.log, "the mistake is told")
        one.signal(signal.SIGHUP)
        assert one.statuses(3, key="bob") == [200] * 2 + [429]
        assert one.log.count("nonsense") == 1
        (tmp_path / "rules.yaml").write_text(changed)
        added = {"match": {"endpoint": "/free"}, "key_by": "ip", "limit": "1/hour"}
        wait_until(
            lambda: one.admin("PUT", "/rules/free", json=added).status_code == 200,
            "the rules can be changed over the network again",
        )
        wait_until(lambda: one.get("/free").status_code == 429, "which counts here too")


class TestEnding:
    def test_sigterm_under_load_loses_no_request(self, tmp_path: Path) -> None:
        with gateway(tmp_path, "--linger", "0.3") as one:
            with _reading(f"{one.url}/slow?seconds=2") as pieces:
                answered = asyncio.run(_load_until_gone(one.port, one.stop))
            assert one.wait() == 0
        assert answered > 50
        assert "".join(pieces) == ALL

    def test_what_takes_too_long_is_cut_off_and_a_second_signal_ends_at_once(
        self, tmp_path: Path
    ) -> None:
        with gateway(tmp_path, "--drain", "30s") as one:
            client = subprocess.Popen(  # noqa: S603 - the tests' own
                ["/usr/bin/env", "curl", "-sN", f"{one.url}/slow?seconds=20"],
                stdout=subprocess.PIPE,
            )
            assert client.stdout is not None
            assert client.stdout.readline() == b"0\n"
            children = one.children
            one.stop()
            one.signal(signal.SIGINT)
            assert one.wait(10.0) == 1
            assert "second signal" in one.log
            client.communicate()
            assert not any(_runs(pid) for pid in children.values())


def _runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@contextmanager
def _reading(url: str) -> Iterator[list[str]]:
    """The pieces of a response that is read meanwhile; all of them at the end."""
    pieces: list[str] = []
    has_begun = threading.Event()

    def read() -> None:
        with httpx.stream("GET", url) as response:
            for piece in response.iter_text():
                pieces.append(piece)
                has_begun.set()

    reading = threading.Thread(target=read)
    reading.start()
    assert has_begun.wait(30)
    try:
        yield pieces
    finally:
        reading.join()


async def _load_until_gone(port: int, stop: Callable[[], None]) -> int:
    """Eight callers, one request after the other on kept connections, until nobody listens.

    *stop* is called after half a second and 50 answers. How many were answered. A request that was
    sent on a connection that Envoy had, and not answered, raises; the kernel resets connections
    that it has taken, and Envoy not yet, when Envoy stops listening.
    """
    answered = 0

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection stays."""
        nonlocal answered
        writer.write(b"GET /free HTTP/1.1\r\nhost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        await reader.readexactly(len("/free"))
        answered += 1
        return b"connection: close" not in head

    async def call() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                is_kept = await ask(reader, writer)
            except ConnectionError:
                return
            while is_kept:
                is_kept = await ask(reader, writer)
            writer.close()

    async def end() -> None:
        await asyncio.sleep(0.5)
        await until(lambda: answered > 50)
        stop()

    async with asyncio.timeout(120):
        await asyncio.gather(end(), *(call() for _ in range(8)))
    return answered


LOCAL = """\
version: 1
rules:
  - {id: flood, match: {endpoint: /flood}, key_by: ip, limit: 2/hour, decide: local}
"""


def test_what_envoy_decides_by_itself_is_counted_under_its_name(tmp_path: Path) -> None:
    with gateway(tmp_path, rules=LOCAL) as running:
        assert running.statuses(5, "/flood") == [200, 200, 429, 429, 429]

        def flood() -> dict[str, Any]:
            [found] = running.admin("GET", "/live").json()["rules"]
            return dict(found)

        wait_until(lambda: flood()["denied"] == 3, "the counters of Envoy are read")
        assert flood()["allowed"] == 2
        assert flood()["sources"] == {"envoy": 5}
        os.kill(running.worker_pid, signal.SIGKILL)
        wait_until(lambda: _denied(running) == 3, "its successor knows what was counted")
        assert running.statuses(1, "/flood") == [429]
        wait_until(lambda: _denied(running) == 4, "the successor goes on counting")
        assert flood()["allowed"] == 2


def _denied(running: Gateway) -> int:
    """The denials of the only rule; 0 while no worker answers."""
    try:
        [found] = running.admin("GET", "/live").json()["rules"]
    except httpx.TransportError:
        return 0
    return int(found["denied"])
