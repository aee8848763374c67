"""The Flask extension under gunicorn, with a real client and a real store."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from secrets import token_hex
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.servers import RedisServer, wait_until
from tests.support.wsgi_servers import gunicorn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.wsgi_servers import Serving

KINDS = ("sync", "gthread")

SOURCE = """
import os
from flask import Flask, request, send_file, stream_with_context
from headgate import Concurrency
from headgate.integrations.flask import RateLimits, report

app = Flask(__name__)
limits = RateLimits(app, limits="50/hour", store={store!r}, namespace={namespace!r})

@app.get("/health")
@limits.exempt
def health():
    return str(os.getpid())

@app.get("/")
@limits.limit("10/hour", on_store_failure="fail_open")
def index():
    return "hello"

@app.get("/closed")
@limits.limit("10/hour", on_store_failure="fail_closed")
def closed():
    return "hello"

@app.get("/stream")
@limits.limit(Concurrency(1, ttl=600), name="slots")
@limits.limit("1000/hour", cost=900, is_estimate=True, name="chunks")
def stream():
    def chunks():
        yield "first"
        report(request, chunks=1)
        with open("limiter") as limiter:  # a pipe: this waits until the test opens its other end
            limiter.read()
        for _ in range(int(request.args["more"])):
            yield "more" * 1000
    return app.response_class(stream_with_context(chunks()))

@app.get("/file")
@limits.limit(Concurrency(1, ttl=600))
def file():
    return send_file(__file__)

@app.get("/kernel")
def kernel():
    return send_file(__file__)

@limits.limit(Concurrency(1, ttl=600), name="parts")
def part():
    return "second"

@app.get("/late")
def late():
    def chunks():
        yield "first, "
        yield part()
    return app.response_class(stream_with_context(chunks()))
"""


def source(store: str) -> str:
    return SOURCE.format(store=store, namespace=token_hex(4))


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


def test_two_workers_admit_exactly_as_many_as_the_limits_say(redis: RedisServer) -> None:
    with gunicorn(source(redis.url), workers=2, kind="gthread") as serving:
        seen: set[str] = set()

        def both() -> bool:
            seen.add(serving.get("/health").text)
            return len(seen) == 2

        wait_until(both, "both workers have answered")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: serving.get(), range(40)))
            others = list(pool.map(lambda _: serving.get("/nothing"), range(45)))
    assert sorted(one.status_code for one in answers) == [200] * 10 + [429] * 30
    assert sorted(one.status_code for one in others) == [404] * 40 + [429] * 5
    shown = [one.headers["RateLimit-Policy"] for one in answers if one.is_success]
    assert set(shown) == {'"default";q=50;w=3600, "index";q=10;w=3600'}


@pytest.fixture(scope="module")
def apps(redis: RedisServer) -> Iterator[Callable[[str], Serving]]:
    """The app on one worker, of each kind that is asked for."""
    with ExitStack() as stack:

        @cache
        def app(kind: str) -> Serving:
            serving = stack.enter_context(gunicorn(source(redis.url), kind=kind))
            os.mkfifo(serving.directory / "limiter")
            return serving

        yield app


@pytest.fixture
def app(kind: str, apps: Callable[[str], Serving], redis: RedisServer) -> Serving:
    """The app on one worker of this *kind*, with nothing counted yet."""
    redis.cli("flushall")
    return apps(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_arrives_while_it_is_being_made(app: Serving) -> None:
    url = f"{app.url}/stream?more=1000"
    with httpx.stream("GET", url, trust_env=False, timeout=30) as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"first"
        (app.directory / "limiter").write_text("go on")
        assert sum(len(part) for part in parts) == 4_000_000


@pytest.mark.parametrize("kind", ["gthread"])
def test_a_client_that_goes_away_frees_its_slot_and_pays_what_it_had(app: Serving) -> None:
    limiter = app.directory / "limiter"
    url = f"{app.url}/stream"
    with httpx.stream("GET", f"{url}?more=10000", trust_env=False, timeout=30) as answer:
        assert next(answer.iter_raw()) == b"first"
        assert app.get("/stream").status_code == 429
    limiter.write_text("go on")

    def admitted() -> bool:
        with httpx.stream("GET", f"{url}?more=0", trust_env=False, timeout=30) as again:
            if again.status_code == 429:
                return False
            left = again.headers["RateLimit"].partition('"chunks";r=')[2].partition(";")[0]
            assert int(left) in (99, 100)  # 900 are set aside, and one comes back in 4 s
            limiter.write_text("go on")
            return again.status_code == 200 and len(again.read()) == 5

    wait_until(admitted, "the slot is free")


@pytest.mark.parametrize("kind", ["sync"])
def test_files_give_their_slot_back(app: Serving) -> None:
    assert [app.get("/file").status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_files_arrive_whole_whoever_sends_them(app: Serving) -> None:
    there = (app.directory / "served.py").read_text()
    assert [app.get(path).text for path in ("/kernel", "/file")] == [there] * 2


@pytest.mark.parametrize("kind", ["sync"])
def test_a_slot_that_a_stream_takes_on_its_way_is_free_at_its_end(app: Serving) -> None:
    assert [app.get("/late").text for _ in range(3)] == ["first, second"] * 3


def test_without_redis_it_is_as_the_limit_says_and_never_500() -> None:
    with RedisServer() as own, gunicorn(source(own.url), kind="gthread") as serving:
        assert [serving.get(path).status_code for path in ("/", "/closed")] == [200] * 2
        own.kill()
        for path, code in (("/", 200), ("/closed", 503)):
            assert [serving.get(path).status_code for _ in range(5)] == [code] * 5
