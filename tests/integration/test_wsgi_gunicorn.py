"""The WSGI middleware under gunicorn, with a real client and a real store."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.servers import RedisServer, wait_until
from tests.support.wsgi_servers import gunicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.wsgi_servers import Serving

KINDS = ("sync", "gthread")

SOURCE = """
import os
from headgate import Concurrency
from headgate.integrations.request_limiter import RequestLimiter
from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.policy.loader import read_policy

def inner(environ, start_response):
    path = environ["PATH_INFO"]
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-Pid", str(os.getpid()))])
    pieces = int(environ["QUERY_STRING"] or 10_000)
    return stream(pieces) if path == "/stream" else [path.encode("latin-1")]

def stream(pieces):
    yield b"first"
    with open("limiter") as limiter:  # a pipe: this waits until the test opens its other end
        limiter.read()
    for _ in range(pieces):
        yield b"more" * 1_000
"""

LIMITED = """
app = RateLimitMiddleware(inner, limits={limits}, store={store!r}, namespace={namespace!r},
                          exempt=["/health"], trusted_proxies={proxies!r})
"""


def source(
    limits: str, store: str, *, namespace: str | None = None, proxies: tuple[str, ...] = ()
) -> str:
    given = {"limits": limits, "store": store, "namespace": namespace or token_hex(4)}
    return SOURCE + LIMITED.format(**given, proxies=proxies)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


def pids(serving: Serving, seen: set[str]) -> set[str]:
    seen.add(serving.get("/health").headers["X-Pid"])
    return seen


@pytest.mark.parametrize(
    ("kind", "options"), [("sync", ()), ("gthread", ("--preload",))], ids=["sync", "preloaded"]
)
def test_two_workers_admit_exactly_as_many_as_the_limit_says(
    kind: str, options: tuple[str, ...], redis: RedisServer
) -> None:
    text = source("'20/hour'", redis.url)
    with gunicorn(text, *options, workers=2, kind=kind) as serving:
        seen: set[str] = set()
        wait_until(lambda: len(pids(serving, seen)) == 2, "both workers have answered")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: serving.get(), range(60)))
    assert sorted(answer.status_code for answer in answers) == [200] * 20 + [429] * 40
    left = [int(one.headers["X-RateLimit-Remaining"]) for one in answers if one.is_success]
    assert sorted(left) == list(range(20))
    assert all("Retry-After" in one.headers for one in answers if not one.is_success)


def test_threads_of_one_worker_share_the_counters_of_its_memory() -> None:
    with gunicorn(source("'20/hour'", "memory://"), kind="gthread") as serving:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: serving.get(), range(60)))
        assert sorted(one.status_code for one in answers) == [200] * 20 + [429] * 40


@pytest.mark.parametrize(
    ("kind", "limits"), [("sync", "Concurrency(1, ttl=60)"), ("gthread", "'9/hour'")]
)
def test_a_stream_arrives_while_it_is_being_made(kind: str, limits: str) -> None:
    with gunicorn(source(limits, "memory://"), kind=kind) as serving:
        os.mkfifo(serving.directory / "limiter")
        url = f"{serving.url}/stream?1000"
        with httpx.stream("GET", url, trust_env=False, timeout=30) as answer:
            parts = answer.iter_raw()
            assert next(parts) == b"first"
            (serving.directory / "limiter").write_text("go on")
            assert sum(len(part) for part in parts) == 4_000_000


def test_a_client_that_goes_away_frees_its_slot(redis: RedisServer) -> None:
    limits = "Concurrency(1, ttl=600)"
    with gunicorn(source(limits, redis.url), kind="gthread") as serving:
        os.mkfifo(serving.directory / "limiter")
        with httpx.stream("GET", f"{serving.url}/stream", trust_env=False, timeout=30) as answer:
            assert next(answer.iter_raw()) == b"first"
            assert serving.get().status_code == 429
        (serving.directory / "limiter").write_text("go on")
        wait_until(lambda: serving.get().status_code == 200, "the slot is free")
        assert [serving.get().status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_without_redis_it_is_as_the_rule_says_and_never_500(kind: str) -> None:
    codes = {"open": 200, "closed": 503}
    rules = "version: 1\nrules:\n" + "".join(
        f"  - {{id: {name}, match: {{endpoint: /{name}}}, key_by: ip, limit: 9/h,"
        f" on_store_failure: fail_{name}}}\n"
        for name in codes
    )
    with RedisServer() as own:
        made = f"policy=read_policy({rules!r}), store={own.url!r}"
        text = f"{SOURCE}\napp = RateLimitMiddleware(inner, {made})\n"
        with gunicorn(text, kind=kind) as serving:
            for name in codes:
                assert serving.get(f"/{name}").headers["X-RateLimit-Remaining"] == "8"
            own.kill()
            for name, code in codes.items():
                assert [serving.get(f"/{name}").status_code for _ in range(5)] == [code] * 5
            own.restart()
            wait_until(
                lambda: "X-RateLimit-Remaining" in serving.get("/open").headers, "the store is back"
            )


def raw(serving: Serving, *lines: str) -> int:
    """The status of a request with header *lines* as they are."""
    where = urlsplit(serving.url)
    with socket.create_connection((where.hostname, where.port or 0), timeout=30) as link:
        head = ["GET / HTTP/1.1", "Host: x", "Connection: close", *lines, "", ""]
        link.sendall("\r\n".join(head).encode())
        answer = b""
        while part := link.recv(4096):
            answer += part
    return int(answer.split(b" ", 2)[1])


def test_a_trail_over_several_lines_is_read_from_its_end_and_underscores_are_not_dashes() -> None:
    text = source("'1/hour'", "memory://", proxies=("127.0.0.1",))
    with gunicorn(text) as serving:
        two = [
            raw(serving, f"X-Forwarded-For: {forged}", "X-Forwarded-For: 192.0.2.1")
            for forged in ("6.6.6.6", "7.7.7.7")
        ]
        assert two == [200, 429]
        assert [raw(serving, f"X_Forwarded_For: 6.6.6.{n}") for n in range(2)] == [200, 429]
        joined = raw(serving, "X-Forwarded-For: 192.0.2.1", "X_Forwarded_For: 8.8.8.8")
        assert joined == 429


def test_a_proxy_on_a_unix_socket_is_trusted_as_this_machine() -> None:
    text = source("'1/hour'", "memory://", proxies=("127.0.0.1",))
    with gunicorn(text, unix=True) as serving:
        path = serving.directory / "app.sock"
        wait_until(path.exists, "the socket is there")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            trails = ("192.0.2.1", "192.0.2.2", "6.6.6.6, 192.0.2.1")
            answers = [
                client.get("http://x/", headers={"X-Forwarded-For": trail}) for trail in trails
            ]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
