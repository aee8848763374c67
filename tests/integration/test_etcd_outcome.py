"""What came of a change whose answer was lost, between a real etcd and a proxy that swallows."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.etcd import EtcdStorage
from headgate.control.etcd.messages import TXN
from headgate.control.revision import ConflictError, StorageError
from tests.support.policy_storage_contract import revision
from tests.support.servers import SilentProxy
from tests.support.servers.etcd import EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = pytest.mark.skipif(not etcd_is_installed(), reason="run scripts/install-servers")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with EtcdServer() as running:
        yield running


@pytest.fixture
def proxy(server: EtcdServer) -> Iterator[SilentProxy]:
    with SilentProxy(server.port) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """A place that nobody has used."""
    return f"/place-{next(_numbers)}/"


@asynccontextmanager
async def opened(
    *ports: int, prefix: str, within: float = 5.0, options: str = ""
) -> AsyncIterator[EtcdStorage]:
    places = ",".join(f"127.0.0.1:{port}" for port in ports)
    storage = EtcdStorage.open(f"etcd://{places}{prefix}?timeout={within}{options}")
    storage._client._endpoints.sort(key=lambda one: ports.index(int(one.place[-5:])))
    try:
        yield storage
    finally:
        await storage.aclose()


def before_transactions(storage: EtcdStorage, *steps: Callable[[], Any]) -> None:
    """Have a step done before each transaction: the change itself, then the look at the outcome."""
    ask, rest = storage._client.ask, iter(steps)

    async def asked(method: Any, request: Any, *, insists: bool = False) -> Any:
        if method is TXN:
            end = next(rest)()
            if end is not None:
                await end
        return await ask(method, request, insists=insists)

    storage._client.ask = asked  # type: ignore[method-assign]


def healed(proxy: SilentProxy) -> Callable[[], None]:
    def heal() -> None:
        proxy.heal()
        proxy.cut_connections()  # what was swallowed is missing in them for ever

    return heal


def test_a_change_that_was_made_is_not_called_a_failure(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    async def main() -> None:
        async with opened(proxy.port, prefix=prefix, within=1.0) as storage:
            before_transactions(storage, proxy.swallow_replies, healed(proxy))
            await storage.commit(revision(1, "a"))
        async with opened(server.port, prefix=prefix) as direct:
            assert await direct.head() == revision(1, "a")
            assert [number for number, _ in await direct.history()] == [1]

    asyncio.run(main())


def test_a_change_that_was_made_and_followed_by_others_is_not_called_a_failure(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    async def main() -> None:
        async with (
            opened(server.port, prefix=prefix) as direct,
            opened(proxy.port, prefix=prefix, within=1.0) as storage,
        ):

            async def follow() -> None:
                await direct.commit(revision(2, "b"))
                healed(proxy)()

            before_transactions(storage, proxy.swallow_replies, follow)
            await storage.commit(revision(1, "a"))
            assert await direct.head() == revision(2, "b")
            assert await direct.at(1) == revision(1, "a")

    asyncio.run(main())


def test_a_change_that_others_have_long_followed_may_have_been_made(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    """It is no longer kept, so nobody can tell: it must not be called a conflict."""

    async def main() -> None:
        async with (
            opened(server.port, prefix=prefix, options="&history=1") as direct,
            opened(proxy.port, prefix=prefix, within=1.0) as storage,
        ):

            async def follow() -> None:
                await direct.commit(revision(2, "b"))
                healed(proxy)()

            before_transactions(storage, proxy.swallow_replies, follow)
            with pytest.raises(StorageError, match="if it was made it is gone"):
                await storage.commit(revision(1, "a"))

    asyncio.run(main())


def test_of_a_change_that_may_still_come_nobody_says_that_it_failed(
    proxy: SilentProxy, prefix: str
) -> None:
    async def main() -> None:
        async with opened(proxy.port, prefix=prefix, within=1.0) as storage:
            before_transactions(storage, proxy.swallow_requests, healed(proxy))
            with pytest.raises(StorageError, match="does not answer in time"):
                await storage.commit(revision(1, "a"))
            assert (await storage.head()).number == 0

    asyncio.run(main())


def test_a_change_that_can_no_longer_be_made_is_a_conflict(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    async def main() -> None:
        async with (
            opened(server.port, prefix=prefix) as direct,
            opened(proxy.port, prefix=prefix, within=1.0) as storage,
        ):

            async def overtake() -> None:
                await direct.commit(revision(1, "theirs"))
                healed(proxy)()

            before_transactions(storage, proxy.swallow_requests, overtake)
            with pytest.raises(ConflictError):
                await storage.commit(revision(1, "ours"))
            assert await direct.head() == revision(1, "theirs")

    asyncio.run(main())


def test_when_nobody_can_look_nobody_knows(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    async def main() -> None:
        async with opened(proxy.port, prefix=prefix, within=1.0) as storage:
            before_transactions(storage, proxy.swallow_replies, lambda: None)
            with pytest.raises(StorageError, match="does not answer in time"):
                await storage.commit(revision(1, "a"))
        async with opened(server.port, prefix=prefix) as direct:
            assert await direct.head() == revision(1, "a")

    asyncio.run(main())


def test_another_member_is_asked_and_the_change_is_made_once(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    async def main() -> None:
        async with opened(proxy.port, server.port, prefix=prefix, within=2.0) as storage:
            assert (await storage.head()).number == 0
            before_transactions(storage, proxy.swallow_replies)
            before = server.revision
            await storage.commit(revision(1, "a"))
            assert await storage.head() == revision(1, "a")
            assert server.revision == before + 1
            assert proxy.opened == 1

    asyncio.run(main())


def test_a_call_that_is_under_way_ends_when_the_storage_is_closed(
    proxy: SilentProxy, prefix: str
) -> None:
    async def main() -> None:
        async with opened(proxy.port, prefix=prefix, within=60.0) as storage:
            assert (await storage.head()).number == 0
            proxy.swallow_replies()
            asking = asyncio.ensure_future(storage.head())
            await asyncio.sleep(0.05)
            await storage.aclose()
            with pytest.raises(StorageError, match="closed"):
                await asking

    asyncio.run(main())


def test_a_caller_who_does_not_want_to_wait_is_not_kept(proxy: SilentProxy, prefix: str) -> None:
    async def main() -> None:
        async with opened(proxy.port, prefix=prefix, within=60.0) as storage:
            assert (await storage.head()).number == 0
            proxy.swallow_replies()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await storage.head()

    asyncio.run(main())
