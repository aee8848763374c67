"""Django behind real servers: several processes with one store, streams, clients that go away."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest

from tests.support.servers import RedisServer, free_port, release_port, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROJECT = """
import asyncio, os, pathlib, time
from django.conf import settings

settings.configure(
    SECRET_KEY="tests", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, LOGGING_CONFIG=None,
    MIDDLEWARE=["headgate.integrations.django.RateLimitMiddleware"],
    HEADGATE={"store": os.environ["STORE"], "namespace": os.environ["NAMESPACE"]},
)

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path
from headgate import Concurrency
from headgate.integrations.django import limit, report

GO_ON = pathlib.Path(os.environ["GO_ON"])

def health(request):
    return HttpResponse("fine")

@limit("10/hour", name="ten")
def blocking(request):
    return HttpResponse("fine")

@limit("10/hour", name="ten")
async def without_blocking(request):
    await asyncio.sleep(0)
    return HttpResponse("fine")

@limit("2/hour", on_store_failure="fail_closed")
def closed(request):
    return HttpResponse("fine")

def parts():
    yield "first\\n"
    while not GO_ON.exists():
        time.sleep(0.01)
    yield "last\\n"

async def async_parts():
    yield "first\\n"
    while not GO_ON.exists():
        await asyncio.sleep(0.01)
    yield "last\\n"

@limit("9/hour")
def stream(request):
    return StreamingHttpResponse(parts())

@limit("9/hour")
async def async_stream(request):
    return StreamingHttpResponse(async_parts())

one_at_a_time = limit(Concurrency(1, 600), name="one")

def endless(request):
    try:
        while True:
            yield "again\\n" * 1000
            time.sleep(0.01)
    finally:
        report(request, tokens=3)

async def async_endless(request):
    try:
        while True:
            yield "again\\n" * 100000
            await asyncio.sleep(0.001)
    finally:
        report(request, tokens=3)

def failing(request):
    report(request, tokens=0)
    yield "first\\n"
    raise RuntimeError("in the stream")

async def async_failing(request):
    report(request, tokens=0)
    yield "first\\n"
    raise RuntimeError("in the stream")

tokens = limit("100/hour", name="tokens", cost=50, is_estimate=True)

@one_at_a_time
@tokens
def occupied(request):
    if "quick" in request.GET:
        report(request, tokens=0)
        return HttpResponse()
    parts = failing if "fail" in request.GET else endless
    return StreamingHttpResponse(parts(request))

@one_at_a_time
@tokens
async def async_occupied(request):
    if "quick" in request.GET:
        report(request, tokens=0)
        return HttpResponse()
    if "fail" in request.GET:
        return StreamingHttpResponse(async_failing(request))
    return StreamingHttpResponse(async_endless(request))

urlpatterns = [
    path("health", health), path("blocking", blocking), path("async", without_blocking),
    path("closed", closed), path("stream", stream), path("async_stream", async_stream),
    path("occupied", occupied), path("async_occupied", async_occupied),
]
wsgi, asgi = get_wsgi_application(), get_asgi_application()
"""
WSGI = ("gunicorn", "--workers", "2", "--chdir", "{where}", "--bind", "127.0.0.1:{port}")
ASGI = ("uvicorn", "--app-dir", "{where}", "--port", "{port}", "--lifespan", "off")
SERVERS = {"wsgi": (*WSGI, "project:wsgi"), "asgi": (*ASGI, "project:asgi")}
PATIENCE = 30


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@contextmanager
def served(kind: str, where: Path, store: str, namespace: str) -> Iterator[httpx.Client]:
    """A server of the project, and a client of it."""
    (where / "project.py").write_text(PROJECT)
    port = free_port()
    shown = [f"STORE={store}", f"NAMESPACE={namespace}", f"GO_ON={where / 'go_on'}"]
    call = [word.format(where=where, port=port) for word in SERVERS[kind]]
    process = Process(["env", *shown, sys.executable, "-m", *call], where / "log")
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            wait_until(lambda: _answers(client), "the server answers", within=60)
            yield client
    finally:
        process.terminate()
        release_port(port)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


class Project(NamedTuple):
    """A client of a project that is served, and the directory that it is in."""

    client: httpx.Client
    where: Path


@pytest.fixture(scope="module")
def projects(
    redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Project]]:
    """The project with a store, on each kind of server that is asked for."""
    with ExitStack() as stack:

        @cache
        def project(kind: str) -> Project:
            where = tmp_path_factory.mktemp(kind)
            return Project(stack.enter_context(served(kind, where, redis.url, kind)), where)

        yield project


@pytest.fixture
def project(kind: str, projects: Callable[[str], Project], redis: RedisServer) -> Project:
    """The project on a server of this *kind*, with nothing counted yet."""
    redis.cli("flushall")
    return projects(kind)


@pytest.mark.parametrize(
    ("kind", "path"), [("wsgi", "/blocking"), ("wsgi", "/async"), ("asgi", "/async")]
)
def test_exactly_as_many_are_admitted_by_all_processes_together(
    project: Project, path: str
) -> None:
    def status(_: int) -> int:
        return project.client.get(path, headers=APART).status_code

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(status, range(60)))
    assert sorted(set(found)) == [200, 429]
    assert found.count(200) == 10


APART = {"Connection": "close"}  # so that both workers get some


@pytest.mark.parametrize(("kind", "path"), [("wsgi", "/stream"), ("asgi", "/async_stream")])
def test_a_stream_is_not_held_back(project: Project, path: str) -> None:
    with project.client.stream("GET", path) as response:
        assert response.headers["X-RateLimit-Remaining"] == "8"
        lines = response.iter_lines()
        assert next(lines) == "first"
        (project.where / "go_on").touch()
        assert list(lines) == ["last"]


@pytest.mark.parametrize(("kind", "path"), [("wsgi", "/occupied"), ("asgi", "/async_occupied")])
def test_a_client_that_goes_away_frees_its_slot_and_pays_what_it_used(
    project: Project, path: str
) -> None:
    client = project.client

    def is_free() -> bool:
        return client.get(f"{path}?quick").status_code == 200

    with client.stream("GET", path) as response:
        lines = response.iter_lines()  # the connection is closed when nobody has them
        assert next(lines) == "again"
        assert client.get(f"{path}?quick").status_code == 429
    wait_until(is_free, "the slot is free", within=PATIENCE)
    left = client.get(f"{path}?quick").headers["RateLimit"]
    assert '"tokens";r=47' in left  # 3 are used and 50 held


@pytest.mark.parametrize(
    ("kind", "path"),
    [("wsgi", "/occupied"), ("asgi", "/occupied"), ("asgi", "/async_occupied")],
)
def test_a_stream_that_fails_frees_its_slot(project: Project, path: str) -> None:
    for _ in range(3):
        with pytest.raises(httpx.RemoteProtocolError):
            project.client.get(f"{path}?fail").raise_for_status()
        assert project.client.get(f"{path}?quick").status_code == 200


@pytest.mark.parametrize("kind", SERVERS)
def test_without_its_store_a_project_is_open_or_closed_but_never_broken(
    kind: str, tmp_path: Path
) -> None:
    with RedisServer() as own, served(kind, tmp_path, own.url, "gone") as client:
        assert client.get("/closed").status_code == 200
        own.kill()
        for n in range(15):
            # Each process goes on counting: open is not without a limit.
            for path in ("/blocking", "/async"):
                assert client.get(path).status_code in ((200,) if n < 5 else (200, 429))
            closed = client.get("/closed")
            assert closed.status_code == 503
            assert int(closed.headers["Retry-After"]) >= 1
