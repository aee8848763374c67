"""Names are looked up in time, or the caller goes on without."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from headgate.errors import StoreError
from headgate.server_urls import Address
from headgate.stores.redis import connect as connecting
from headgate.stores.redis.connect import (
    Endpoint,
    Resolver,
    is_ip_address,
    open_async,
    open_blocking,
)

SOON = 0.001


class Names:
    """A resolver of the system that hangs until it is told what to say."""

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


FOUND = [(socket.AF_INET, ("192.0.2.1", 6379))]


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def resolver(names: Names) -> Resolver:
    return Resolver(names.look_up)


def later(seconds: float = 10) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%lo"])
def test_an_address_is_not_looked_up(resolver: Resolver, names: Names, host: str) -> None:
    ((_, address),) = resolver.resolve(host, 6379, later())
    assert address[:2] == (host.partition("%")[0], 6379)
    assert asyncio.run(resolver.aresolve(host, 6379)) == resolver.resolve(host, 6379, later())
    assert names.asked == []


def test_a_name_is_no_address() -> None:
    assert not is_ip_address("redis.internal")
    assert not is_ip_address("1.2.3")


def test_a_resolver_that_hangs_holds_one_thread_however_many_wait(
    resolver: Resolver, names: Names
) -> None:
    async def wait() -> None:
        async with asyncio.timeout(SOON):
            await resolver.aresolve("redis", 6379)

    for _ in range(20):
        with pytest.raises(TimeoutError):
            resolver.resolve("redis", 6379, later(SOON))
        with pytest.raises(TimeoutError):
            asyncio.run(wait())
    assert names.asked == ["redis"]
    assert len(resolver._lookups["redis"].waiters) == 1
    names.goes_on.set()
    resolver.resolve("redis", 6379, later())


def test_a_name_that_is_found_is_waited_for(resolver: Resolver, names: Names) -> None:
    names.goes_on.set()
    assert resolver.resolve("redis", 6379, later()) == FOUND
    assert asyncio.run(resolver.aresolve("redis", 6379)) == FOUND
    assert names.asked == ["redis", "redis"]


@pytest.mark.parametrize(
    "error", [socket.gaierror(socket.EAI_NONAME, "unknown"), UnicodeError("label too long")]
)
def test_what_goes_wrong_is_told(resolver: Resolver, names: Names, error: Exception) -> None:
    names.error = error
    names.goes_on.set()
    with pytest.raises(OSError, match=r"unknown|label"):
        resolver.resolve("redis", 6379, later())
    with pytest.raises(OSError, match=r"unknown|label"):
        asyncio.run(resolver.aresolve("redis", 6379))


def test_a_forked_process_looks_up_anew(resolver: Resolver, names: Names) -> None:
    with pytest.raises(TimeoutError):
        resolver.resolve("redis", 6379, later(SOON))
    resolver.after_fork()
    names.goes_on.set()
    resolver.resolve("redis", 6379, later())
    assert names.asked == ["redis", "redis"]


def test_connecting_gives_up_when_the_name_is_not_found_in_time(
    monkeypatch: pytest.MonkeyPatch, resolver: Resolver, names: Names
) -> None:
    monkeypatch.setattr(connecting, "RESOLVER", resolver)
    server = Endpoint(Address("redis.invalid", 6379))
    with pytest.raises(StoreError, match=r"redis\.invalid:6379: name lookup not done") as failure:
        open_blocking(server, later(SOON), 1.0)
    assert failure.value.reason == "timeout"
    with pytest.raises(StoreError, match=r"redis\.invalid:6379: name lookup not done") as failure:
        asyncio.run(open_async(server, later(SOON), 1.0))
    assert failure.value.reason == "timeout"
    names.error = socket.gaierror(socket.EAI_NONAME, "unknown")
    names.goes_on.set()
    with pytest.raises(StoreError, match=r"name lookup failed: .*unknown") as failure:
        open_blocking(server, later(), 1.0)
    assert failure.value.reason == "unreachable"
    with pytest.raises(StoreError, match=r"name lookup failed: .*unknown"):
        asyncio.run(open_async(server, later(), 1.0))
