"""Ways around a limit that the gateway's Envoy must not leave: what rules are for is counted."""

from __future__ import annotations

import socket
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.decision_service import PLAIN, serving
from tests.support.envoy_edge import HOST, Gateway, echoing
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.decision_service import Service

RULES = """\
version: 1
identity: {fallback: skip}
rules:
  - {id: lines, match: {endpoint: /lines, headers: {x-app: [one, two]}}, key_by: global,
     limit: 1/day}
  - {id: cookie, match: {endpoint: /cookie}, key_by: "cookie:session", limit: 2/day}
  - {id: exact, match: {endpoint: /exact}, key_by: "cookie:session", limit: 2/day, decide: exact}
  - {id: quota, match: {endpoint: /quota}, key_by: "cookie:session", limit: 2/day, decide: quota}
  - {id: local, match: {endpoint: /local}, key_by: "cookie:session", limit: 2/day, decide: local}
  - {id: bytes, match: {endpoint: /bytes}, key_by: user_id, limit: 1000000/day,
     cost: {after: {bytes: true}}}
"""
BY_ENDPOINT = """\
version: 1
rules:
  - {id: endpoint, match: {endpoint: "/acct/**"}, key_by: endpoint, limit: 2/day, decide: MODE}
  - {id: anywhere, match: {headers: {x-all: true}}, key_by: endpoint, limit: 2/day, decide: MODE}
"""
BY_KEY = """\
version: 1
rules:
  - {id: by-key, key_by: api_key, limits: {big: 9/day, default: 2/day}, decide: MODE}
"""
_LARGE = 4_000_000


@contextmanager
def _gateway(directory: Path, rules: str = RULES) -> Iterator[tuple[Gateway, Service]]:
    with (
        serving(directory, rules=rules, grpc=1) as service,
        echoing() as upstream,
        Gateway(
            directory,
            rules,
            f"{HOST}:{service.grpc_port}",
            upstream=[upstream],
            decision_timeout=10.0,
        ) as gateway,
    ):
        wait_until(
            lambda: gateway.stat("cluster.headgate.membership_healthy") == 1, "the service is found"
        )
        yield gateway, service


def test_no_second_line_of_a_header_or_of_cookies_escapes(tmp_path: Path) -> None:
    with _gateway(tmp_path) as (gateway, _):

        def statuses(path: str, *lines: tuple[str, str]) -> list[int]:
            url = f"{gateway.url}{path}"
            return [httpx.get(url, headers=list(lines)).status_code for _ in range(3)]

        other, one, two = (("x-app", value) for value in ("other", "one", "two"))
        assert statuses("/lines", other) == [200, 200, 200]
        assert statuses("/lines", other, one) == [200, 429, 429]
        for lines in ([one], [other, two], [two, other], [other, one, other]):
            assert statuses("/lines", *lines) == [429, 429, 429]
        plain, session = ("cookie", "a=1,2"), ("cookie", "b=2; session=x")
        assert statuses("/cookie", plain) == [200, 200, 200]
        assert statuses("/cookie", plain, session) == [400, 400, 400]
        assert statuses("/cookie", session) == [200, 200, 429]
        reply = httpx.get(f"{gateway.url}/other", headers=[plain, ("x-headgate-several", "1")])
    assert reply.status_code == 200
    names = [name for name, _ in reply.json()["headers"]]
    assert names.count("cookie") == 1
    assert not [name for name in names if "headgate" in name]


@pytest.mark.parametrize("mode", ["exact", "quota", "local"])
def test_no_second_cookie_of_a_name_gives_a_fresh_counter(tmp_path: Path, mode: str) -> None:
    with _gateway(tmp_path) as (gateway, _):

        def status(cookies: str) -> int:
            return httpx.get(f"{gateway.url}/{mode}", headers={"cookie": cookies}).status_code

        spellings = [
            "session=r{n}; session=own",
            "session=own; session=r{n}",
            "session=own,r{n}",
            "session=r{n}; SESSION=own",
            "a=1 session=own; session=r{n}",
            'session="own; r{n}"',
        ]
        sent = [one.format(n=n) for n in range(3) for one in spellings]
        assert [status(one) for one in sent] == [200, 200, *[429] * (len(sent) - 2)]
        alike = ["session=own", 'session="own"', "session=%6fwn", 'session="\\157wn"']
        assert [status(one) for one in alike] == [429, 429, 429, 429]
        assert status("session=another") == 200


@pytest.mark.parametrize("mode", ["exact", "quota", "local"])
def test_no_second_line_of_a_key_gives_a_fresh_counter(tmp_path: Path, mode: str) -> None:
    rules = BY_KEY.replace("MODE", mode)
    with _gateway(tmp_path, rules) as (gateway, _):

        def status(*keys: str) -> int:
            lines = [("x-api-key", key) for key in keys]
            return httpx.get(f"{gateway.url}/", headers=lines).status_code

        for n in range(3):
            for keys in (["own", f"r{n}"], [f"r{n}", "own"], ["own", "own"], ["", "own"]):
                assert status(*keys) in (400, 429)
        tiers = [("x-api-key", "another"), ("x-tier", "big"), ("x-tier", "small")]
        assert httpx.get(f"{gateway.url}/", headers=tiers).status_code in (400, 429)
        assert status("other") == 200
        if mode != "quota":  # whose shares come a moment later
            assert status("new", "own") == 400
            assert [status("other") for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("mode", ["exact", "quota", "local"])
def test_a_path_that_rules_do_not_examine_is_414(tmp_path: Path, mode: str) -> None:
    with _gateway(tmp_path, BY_KEY.replace("MODE", mode)) as (gateway, _):
        key = {"x-api-key": "one"}
        for path in ("/" + "x" * 8_192, "/" + "%e9" * 3_000 + "?a=b"):
            reply = httpx.get(f"{gateway.url}{path}", headers=key)
            assert reply.status_code == 414
            assert reply.json()["error"] == "path_too_long"
            key = {"x-api-key": "two"}
        for path in ("/" + "x" * 8_191, "/?" + "x" * 9_000):
            assert httpx.get(f"{gateway.url}{path}").status_code == 200


@pytest.mark.parametrize("mode", ["exact", "quota", "local"])
def test_no_spelling_of_a_path_gives_a_fresh_counter(tmp_path: Path, mode: str) -> None:
    spellings = (
        "/acct/me",
        "/r{n}%23/../acct/me",
        "/r{n}%3f/../acct/me",
        "/r{n}%23/%2e%2e/acct/me;x",
        "/r{n}%23\\..\\acct\\me",
        "/ACCT/me/",
        "/acct/me;r{n}",
    )
    sent = [one.format(n=n) for n in range(3) for one in spellings]
    with _gateway(tmp_path, BY_ENDPOINT.replace("MODE", mode)) as (gateway, _):
        for headers in ({}, {"x-all": "1"}):
            statuses = [_status(gateway, path, headers) for path in sent]
            allowed = 0 if headers else 2
            assert statuses == [200] * allowed + [429] * (len(sent) - allowed)
        for path in ("/other", "/r{n}%23/../other"):
            told = [_status(gateway, path.format(n=n), {"x-all": "1"}) for n in range(3)]
            assert told.count(200) <= 2


def _status(gateway: Gateway, target: str, headers: dict[str, str]) -> int:
    """The status of a request for *target*, sent as it is."""
    with closing(HTTPConnection(HOST, gateway.port, timeout=30)) as connection:
        connection.putrequest("GET", target)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status


def test_who_hangs_up_before_the_end_has_paid_for_what_was_sent(tmp_path: Path) -> None:
    with _gateway(tmp_path) as (gateway, service):

        def used() -> int:
            asked = {"path": "/bytes", "headers": {"x-user-id": "ada"}}
            (told,) = PLAIN.post(f"{service.url}/v1/rate_limit", json=asked).json()["limits"]
            return 1_000_000 - int(told["remaining"])

        head = f"POST /bytes HTTP/1.1\r\nhost: a\r\nx-user-id: ada\r\ncontent-length: {_LARGE}\r\n"
        with socket.create_connection((HOST, gateway.port), timeout=30) as connection:
            connection.sendall(f"{head}\r\n".encode() + b"x" * _LARGE)
            received = 0
            while received < 200_000:
                received += len(connection.recv(65_536))
        wait_until(lambda: used() >= 150_000, "what was sent is charged")
