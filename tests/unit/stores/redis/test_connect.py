"""Names are looked up in time, or connecting fails."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from headgate.errors import StoreError
from headgate.runtime.drivers import adrive, drive
from headgate.server_urls import Address
from headgate.stores.redis import connection as connecting
from headgate.stores.redis.connection import Endpoint, Resolver, open_connection
from headgate.stores.redis.url import parse_redis_url

SOON = 0.001


class Names:
    """A system resolver that hangs until it may go on."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.goes_on = threading.Event()
        self.error: Exception | None = None

    def look_up(self, host: str, _port: object, **_options: object) -> list[object]:
        self.asked.append(host)
        assert self.goes_on.wait(10)
        if self.error is not None:
            raise self.error
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]


FOUND = [(socket.AF_INET, ("192.0.2.1", 0))]


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def resolver(names: Names) -> Resolver:
    return Resolver(names.look_up)


def later(seconds: float = 10) -> float:
    return time.monotonic() + seconds


async def awaited(resolver: Resolver, seconds: float = 10) -> object:
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(resolver.look_up("redis"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%lo"])
def test_an_address_is_not_looked_up(resolver: Resolver, names: Names, host: str) -> None:
    ((_, address),) = resolver.look_up(host).result(0)
    assert address[0] == host.partition("%")[0]
    assert names.asked == []


def test_a_resolver_that_hangs_holds_one_thread_however_many_wait(
    resolver: Resolver, names: Names
) -> None:
    for _ in range(20):
        with pytest.raises(TimeoutError):
            resolver.look_up("redis").result(SOON)
        with pytest.raises(TimeoutError):
            asyncio.run(awaited(resolver, SOON))
    assert names.asked == ["redis"]
    pending = resolver.look_up("redis")
    names.goes_on.set()
    assert pending.result(10) == FOUND


def test_a_name_that_is_found_is_waited_for(resolver: Resolver, names: Names) -> None:
    names.goes_on.set()
    assert resolver.look_up("redis").result(10) == FOUND
    assert asyncio.run(awaited(resolver)) == FOUND
    assert names.asked == ["redis", "redis"]


@pytest.mark.parametrize(
    "error", [socket.gaierror(socket.EAI_NONAME, "unknown"), UnicodeError("label too long")]
)
def test_an_error_of_the_lookup_is_an_os_error(
    resolver: Resolver, names: Names, error: Exception
) -> None:
    names.error = error
    names.goes_on.set()
    with pytest.raises(OSError, match=r"unknown|label"):
        resolver.look_up("redis").result(10)
    with pytest.raises(OSError, match=r"unknown|label"):
        asyncio.run(awaited(resolver))


def test_a_forked_process_starts_its_own_lookup(resolver: Resolver, names: Names) -> None:
    resolver.look_up("redis")
    resolver.after_fork()
    names.goes_on.set()
    resolver.look_up("redis").result(10)
    assert names.asked == ["redis", "redis"]


def test_connecting_gives_up_when_the_name_is_not_found_in_time(
    monkeypatch: pytest.MonkeyPatch, resolver: Resolver, names: Names
) -> None:
    monkeypatch.setattr(connecting, "RESOLVER", resolver)
    server = Endpoint(parse_redis_url("redis://redis.invalid"), Address("redis.invalid", 6379))
    with pytest.raises(StoreError, match=r"redis\.invalid:6379: name lookup not done") as failure:
        drive(open_connection(server, later(SOON)))
    assert failure.value.reason == "timeout"
    with pytest.raises(StoreError, match=r"redis\.invalid:6379: name lookup not done") as failure:
        asyncio.run(adrive(open_connection(server, later(SOON))))
    assert failure.value.reason == "timeout"
    names.error = socket.gaierror(socket.EAI_NONAME, "unknown")
    names.goes_on.set()
    with pytest.raises(StoreError, match=r"name lookup failed: .*unknown") as failure:
        drive(open_connection(server, later()))
    assert failure.value.reason == "unreachable"
    with pytest.raises(StoreError, match=r"name lookup failed: .*unknown"):
        asyncio.run(adrive(open_connection(server, later())))
