"""What came of a change whose answer was lost, between a real etcd and a proxy that swallows."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.etcd import EtcdSource
from headgate.control.etcd.client import TXN
from headgate.control.revision import ConflictError, SourceError
from tests.support.policy_source_contract import in_thread, revision
from tests.support.servers import SilentProxy, wait_until
from tests.support.servers.etcd import EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@contextmanager
def opened(
    *ports: int, prefix: str, within: float = 5.0, options: str = ""
) -> Iterator[EtcdSource]:
    places = ",".join(f"127.0.0.1:{port}" for port in ports)
    storage = EtcdSource.open(f"etcd://{places}{prefix}?timeout={within}{options}")
    storage._client._endpoints.sort(key=lambda one: ports.index(int(one.place[-5:])))
    try:
        yield storage
    finally:
        storage.close()


def before_transactions(storage: EtcdSource, *steps: Callable[[], Any]) -> None:
    """Have a step done before each transaction: the change itself, then the look at the outcome."""
    ask, rest = storage._client.ask, iter(steps)

    def asked(path: str, body: Any, *, insists: bool = False) -> Any:
        if path == TXN:
            next(rest)()
        return ask(path, body, insists=insists)

    storage._client.ask = asked  # type: ignore[method-assign]


def healed(proxy: SilentProxy) -> Callable[[], None]:
    def heal() -> None:
        proxy.heal()
        proxy.cut_connections()  # what was swallowed is missing in them for ever

    return heal


def test_a_change_that_was_made_is_not_called_a_failure(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    with opened(proxy.port, prefix=prefix, within=1.0) as storage:
        before_transactions(storage, proxy.swallow_replies, healed(proxy))
        storage.commit(revision(1, "a"))
    with opened(server.port, prefix=prefix) as direct:
        assert direct.head() == revision(1, "a")
        assert [number for number, _ in direct.history()] == [1]


def test_a_change_that_was_made_and_followed_by_others_is_not_called_a_failure(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    with (
        opened(server.port, prefix=prefix) as direct,
        opened(proxy.port, prefix=prefix, within=1.0) as storage,
    ):

        def follow() -> None:
            direct.commit(revision(2, "b"))
            healed(proxy)()

        before_transactions(storage, proxy.swallow_replies, follow)
        storage.commit(revision(1, "a"))
        assert direct.head() == revision(2, "b")
        assert direct.at(1) == revision(1, "a")


def test_a_change_that_others_have_long_followed_may_have_been_made(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    """It is no longer kept, so nobody can tell: it must not be called a conflict."""

    with (
        opened(server.port, prefix=prefix, options="&history=1") as direct,
        opened(proxy.port, prefix=prefix, within=1.0) as storage,
    ):

        def follow() -> None:
            direct.commit(revision(2, "b"))
            healed(proxy)()

        before_transactions(storage, proxy.swallow_replies, follow)
        with pytest.raises(SourceError, match="the change may have been made and replaced since"):
            storage.commit(revision(1, "a"))


def test_of_a_change_that_may_still_come_nobody_says_that_it_failed(
    proxy: SilentProxy, prefix: str
) -> None:
    with opened(proxy.port, prefix=prefix, within=1.0) as storage:
        before_transactions(storage, proxy.swallow_requests, healed(proxy))
        with pytest.raises(SourceError, match="does not answer in time"):
            storage.commit(revision(1, "a"))
        assert (storage.head()).number == 0


def test_a_change_that_can_no_longer_be_made_is_a_conflict(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    with (
        opened(server.port, prefix=prefix) as direct,
        opened(proxy.port, prefix=prefix, within=1.0) as storage,
    ):

        def overtake() -> None:
            direct.commit(revision(1, "theirs"))
            healed(proxy)()

        before_transactions(storage, proxy.swallow_requests, overtake)
        with pytest.raises(ConflictError):
            storage.commit(revision(1, "ours"))
        assert direct.head() == revision(1, "theirs")


def test_when_nobody_can_look_nobody_knows(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    with opened(proxy.port, prefix=prefix, within=1.0) as storage:
        before_transactions(storage, proxy.swallow_replies, lambda: None)
        with pytest.raises(SourceError, match="does not answer in time"):
            storage.commit(revision(1, "a"))
    with opened(server.port, prefix=prefix) as direct:
        assert direct.head() == revision(1, "a")


def test_another_member_is_asked_and_the_change_is_made_once(
    server: EtcdServer, proxy: SilentProxy, prefix: str
) -> None:
    with opened(proxy.port, server.port, prefix=prefix, within=2.0) as storage:
        assert (storage.head()).number == 0
        before_transactions(storage, proxy.swallow_replies)
        before = server.revision
        storage.commit(revision(1, "a"))
        assert storage.head() == revision(1, "a")
        assert server.revision == before + 1
        assert proxy.opened == 1


def test_a_pending_call_ends_when_the_source_is_closed(proxy: SilentProxy, prefix: str) -> None:
    with opened(proxy.port, prefix=prefix, within=60.0) as storage:
        assert storage.head().number == 0
        proxy.swallow_replies()
        with in_thread(storage.head) as asking:
            wait_until(lambda: bool(storage._client._endpoints[0]._busy), "the call is pending")
            storage.close()
            with pytest.raises(SourceError, match="closed"):
                asking.result(10)
