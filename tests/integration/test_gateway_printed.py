"""What `headgate gateway config` prints, run by the real gateways before `headgate serve`."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest

from headgate.responses.debug import LONGEST_LINE, debug_token
from tests.support.decision_service import serving
from tests.support.gateway_templates import RULES, app, at, gateway
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ["nginx", "caddy", "envoy"]
OURS = "a secret of the service"
FIGURES = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")


class Ways(NamedTuple):
    """A gateway's URL, and the application's."""

    url: str
    app: str


@pytest.fixture(params=NAMES, scope="module")
def ways(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ways]:
    directory = tmp_path_factory.mktemp(request.param)
    rules = directory / "told.yaml"
    rules.write_text(RULES, encoding="utf-8")
    more = ["--rules", str(rules)] if request.param == "envoy" else []
    with (
        app() as upstream,
        serving(directory, rules=RULES, grpc=1, env={"HEADGATE_SECRET": OURS}) as service,
        gateway(
            request.param,
            directory / "gateway",
            *at(service, request.param),
            *more,
            upstream=upstream,
        ) as url,
    ):
        yield Ways(url, upstream)


@contextmanager
def calling(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=10) as client:
        yield client


def test_what_passes_reaches_the_application_as_it_was_sent(ways: Ways) -> None:
    with calling(ways.url) as client:
        answer = client.post("/api/a%20b?q=1&r=%2F", headers={"x-api-key": "p"}, content=b"name=x")
        seen = answer.json()
        assert answer.status_code == 200
        assert (seen["method"], seen["path"]) == ("POST", "/api/a%20b?q=1&r=%2F")
        assert seen["body"] == "name=x"
        assert seen["headers"]["x-api-key"] == "p"
        assert seen["headers"]["host"] == ways.url.partition("//")[2]
        assert seen["headers"]["x-forwarded-for"]


def test_clients_see_the_figures_of_what_passes(ways: Ways) -> None:
    with calling(ways.url) as client:
        answer = client.get("/api/a", headers={"x-api-key": "figures"})
        assert answer.headers["ratelimit-policy"].startswith('"per-key";q=2;w=3600')
        assert answer.headers["ratelimit"].startswith('"per-key";r=1;t=')
        assert [answer.headers[name].isdecimal() for name in FIGURES] == [True] * 3
        assert "retry-after" not in answer.headers
        free = client.get("/free")
        assert not {name for name in free.headers if "ratelimit" in name}


def test_a_refusal_says_what_a_client_needs(ways: Ways) -> None:
    with calling(ways.url) as client:
        key = {"x-api-key": "refused"}
        assert [client.get("/api/a", headers=key).status_code for _ in range(2)] == [200, 200]
        for send in (client.get, client.post, client.options):
            refused = send("/api/b", headers=key)
            assert refused.status_code == 429
            assert refused.headers["content-type"] == "application/json"
            assert refused.headers["cache-control"] == "no-store"
            assert 1700 <= int(refused.headers["retry-after"]) <= 1800
            assert refused.headers["ratelimit"].startswith('"per-key";r=0;t=')
            assert refused.headers["ratelimit-policy"].startswith('"per-key";q=2;w=3600')
            assert [refused.headers[name].isdecimal() for name in FIGURES] == [True] * 3
            told = refused.json()
            assert told["error"] == "rate_limit_exceeded"
            assert told["limit"] == "per-key"
            assert told["retry_after"] == int(refused.headers["retry-after"])
            assert 0 <= told["retry_after"] * 1000 - told["retry_after_ms"] < 1000
            assert told["message"].startswith("Too many requests")
        assert client.head("/api/b", headers=key).status_code == 429
        assert client.get("/api/b", headers={"x-api-key": "another"}).status_code == 200


def test_a_refusal_that_tells_nothing_is_whole_all_the_same(ways: Ways) -> None:
    with calling(ways.url) as client:
        assert client.get("/quiet").status_code == 200
        refused = client.get("/quiet")
        assert refused.status_code == 429
        assert refused.json()["error"] == "rate_limit_exceeded"
        assert "limit" not in refused.json()
        assert "retry-after" not in refused.headers


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503])
def test_a_status_of_the_application_stays_what_it_is(ways: Ways, status: int) -> None:
    with calling(ways.url) as client:
        answer = client.get(f"/status/{status}")
        assert answer.status_code == status
        assert answer.json()["path"] == f"/status/{status}"
        assert answer.headers["ratelimit"].startswith('"own";r=')


def test_an_application_that_breaks_off_is_not_asked_again(ways: Ways) -> None:
    with calling(ways.url) as client:
        before = client.get("/free").json()["dropped"]
        assert client.post("/drop", content=b"order=1").status_code in (502, 503)
        assert client.get("/free").json()["dropped"] == before + 1


def test_what_clients_say_of_a_request_changes_nothing(ways: Ways) -> None:
    forged = {
        "x-forwarded-for": "198.51.100.1",
        "x-real-ip": "198.51.100.2",
        "x-forwarded-host": "other.example",
        "x-forwarded-uri": "/harmless",
        "x-forwarded-method": "GET",
        "x-original-uri": "/harmless",
        "x-original-method": "GET",
    }
    with calling(ways.url) as client:
        assert client.get("/login").status_code == 200  # not a POST
        for n, path in enumerate(("/login", "/%6cogin", "//login?x", "/a/../LOGIN/")):
            answer = client.post(ways.url + path, content=b"name=x", headers=forged)
            assert answer.status_code == (200 if n < 2 else 429), path
        removing = {"connection": "x-forwarded-for, x-original-uri, x-original-method, x-real-ip"}
        assert client.post("/login", headers={**forged, **removing}).status_code in (400, 429)
        shop = {"host": "shop.example", "x-forwarded-host": "other.example"}
        assert client.get("/items", headers=shop).status_code == 200
        assert client.get("/items", headers=shop).status_code == 429
        assert client.get("/items").status_code == 200


def test_no_request_is_too_large_to_be_asked_about(ways: Ways) -> None:
    with calling(ways.url) as client:
        while client.post("/login").status_code == 200:
            pass
        for size in (1, 20_000, 30_000, 60_000, 200_000, 900_000):
            lines = [(f"x-{n}", "x" * 6_000) for n in range(size // 6_000)]
            answer = client.post("/login", headers=[*lines, ("x-last", "x" * (size % 6_000))])
            assert answer.status_code != 200, size
        assert client.post(f"/login?{'x' * 20_000}").status_code != 200
        assert client.post(f"/login?{'x' * 6_500}").status_code == 429


ODD = [
    b"POST /login HTTP/1.0\r\n\r\n",
    b"POST http://other.example/login HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    b"POST /login?\xff\xfe HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nX-Api-Key: \xff\xc3(\r\nContent-Length: 0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nX-Api-Key: a\x01b\r\nContent-Length: 0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: \xff.example\r\nContent-Length: 0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost:\r\nContent-Length: 0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 0\r\n\r\n",
    b"POST /login#x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\n" + b"a: 1\r\n" * 250 + b"Content-Length: 0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close, host\r\n\r\n",
    b"A" * 70 + b" /login HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
]


def test_no_request_is_too_odd_to_be_asked_about(ways: Ways) -> None:
    with calling(ways.url) as client:
        while client.post("/login").status_code == 200:
            pass
    for raw in ODD:
        status = _status_of(raw, int(ways.url.rpartition(":")[2]))
        assert status in (b"400", b"405", b"426", b"429", b"431"), (status, raw)


def _status_of(raw: bytes, port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(raw)
        head = b""
        while b"\r\n" not in head and (more := connection.recv(65_536)):
            head += more
    return head.split(b" ", 2)[1]


def test_without_the_service_requests_pass_or_not_as_was_asked_for(tmp_path: Path) -> None:
    with ExitStack() as stack:
        upstream = stack.enter_context(app())
        service = stack.enter_context(serving(tmp_path, rules=RULES, grpc=1))
        clients: dict[str, httpx.Client] = {}
        for which in (f"{name} {way}" for name in NAMES for way in ("open", "closed")):
            name, way = which.split()
            options = [*at(service, name), "--on-failure", way]
            made = gateway(name, tmp_path / which, *options, upstream=upstream)
            clients[which] = stack.enter_context(calling(stack.enter_context(made)))
            answer = clients[which].get("/api/a", headers={"x-api-key": which})
            assert "ratelimit" in answer.headers, which
        service.process.pause()  # it hangs
        _fail_as_asked_for(clients)
        service.process.kill()
        _fail_as_asked_for(clients)
        again = serving(
            tmp_path,
            rules=RULES,
            http=f"127.0.0.1:{service.port}",
            grpc=1,
            grpc_port=service.grpc_port,
            is_awaited=False,
        )
        stack.enter_context(again)
        wait_until(service.is_ready, "the service is back", within=60.0)
        for which, client in clients.items():
            key = {"x-api-key": f"back {which}"}
            statuses = [client.get("/api/a", headers=key).status_code for _ in range(3)]
            assert statuses == [200, 200, 429], which


def _fail_as_asked_for(clients: dict[str, httpx.Client]) -> None:
    for which, client in clients.items():
        answer = client.post("/login", content=b"name=x")
        assert "ratelimit" not in answer.headers
        if "closed" in which:
            assert answer.status_code == 503, which
            assert answer.json()["error"] == "temporarily_unavailable", which
            assert answer.headers["content-type"] == "application/json", which
            assert answer.headers["retry-after"] == "1", which
        else:
            assert answer.status_code == 200, which
            assert (answer.json()["body"], answer.json()["path"]) == ("name=x", "/login")
            assert client.get("/status/500").status_code == 500, which


def test_who_brings_a_debug_token_hears_how_it_was_decided(ways: Ways) -> None:
    made = debug_token(OURS.encode(), now_ns=time.time_ns(), ttl_s=600)[0]
    asking = {"x-api-key": "debugged", "headgate-debug": made}
    with calling(ways.url) as client:
        answers = [client.get("/api/a", headers=asking) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        told = [answer.headers["headgate-decision"] for answer in answers]
        assert told[1].startswith('"per-key";allowed=?1;mode=enforce;key="api_key=~')
        assert ';limit="2/h";used=2;remaining=0;cost=1;source=store;revision=' in told[1]
        assert '"per-key";allowed=?0;' in told[2]
        for answer in answers:
            assert "no-store" in answer.headers["cache-control"]
        assert client.get("/free", headers=asking).headers["headgate-decision"] == "none"
        for wrong in ("", made[:-1] + "x", debug_token(b"?", now_ns=time.time_ns(), ttl_s=9)[0]):
            answer = client.get("/api/a", headers={"x-api-key": "w", "headgate-debug": wrong})
            assert "headgate-decision" not in answer.headers
            assert "cache-control" not in answer.headers or answer.status_code == 429


def test_an_answer_about_many_rules_has_room_in_nginx(tmp_path: Path) -> None:
    rule = "  - {{id: rule-number-{}, key_by: [ip, endpoint], limit: 2/hour}}\n".format
    rules = "version: 1\nrules:\n" + "".join(map(rule, range(150)))
    secret = {"HEADGATE_SECRET": OURS}
    made = debug_token(OURS.encode(), now_ns=time.time_ns(), ttl_s=600)[0]
    with (
        app() as upstream,
        serving(tmp_path, rules=rules, env=secret) as service,
        gateway("nginx", tmp_path / "g", *at(service, "nginx"), upstream=upstream) as url,
        calling(url) as client,
    ):
        answers = [client.get("/x", headers={"headgate-debug": made}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        told = answers[2].headers["headgate-decision"]
        assert len(told) <= LONGEST_LINE
        assert ", more;count=1" in told
