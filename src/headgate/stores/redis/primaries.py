"""The servers that a store URL means, to be read from at leisure, through redis-py's own clients.

For inspecting only: nothing is written, so redis-py may do as it likes. Only primaries are asked.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import redis
from redis import exceptions as driver
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry
from redis.sentinel import Sentinel

from headgate.errors import StoreError
from headgate.server_urls import Address
from headgate.stores.redis import errors
from headgate.stores.redis.inspect import BEGINNING, State, looks_like_state, read_slots, read_state
from headgate.units import MICROSECOND, MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.stores.redis.url import RedisURL

_STEP: Final = 1_000
"""How many keys the server looks at in one step of SCAN: a fraction of a millisecond."""
_PATIENCE: Final = 5.0
"""Seconds that a person waits for an answer, at least: the URL's timeout is for decisions."""
_AT_ONCE: Final = 100
"""How many counters are read in one round trip: each may have a long list beside it."""
_ELSEWHERE: Final = (driver.MovedError, driver.AskError)


class Server:
    """One primary. What it raises is a `StoreError` that names *where* it is."""

    def __init__(self, client: Any, where: str, cluster: Any = None) -> None:
        self._client = client
        self._where = where
        self._cluster = cluster
        self.has_tags = cluster is not None

    def scan(self, match: bytes) -> Iterator[Sequence[bytes]]:
        """The names like *match*, a step at a time; a name may come twice."""
        cursor = None
        while cursor != 0:
            with _translated(self._where):
                cursor, names = self._client.scan(cursor or 0, match=match, count=_STEP)
            yield names

    def read(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, State, int]]:
        """Those of *names* that are counters: the name, the state, nanoseconds to live."""
        likely = self._likely(names)
        for first in range(0, len(likely), _AT_ONCE):
            yield from self._read(likely[first : first + _AT_ONCE])

    def _likely(self, names: Sequence[bytes]) -> list[bytes]:
        """Those of *names* that are worth reading: somebody else's value may be of any size."""
        likely = [name for name in names if _is_for_slots(name)]
        others = [name for name in names if not _is_for_slots(name)]
        with _translated(self._where):
            pipe = self._client.pipeline(transaction=False)
            for name in others:
                pipe.getrange(name, 0, BEGINNING - 1)
            beginnings = pipe.execute(raise_on_error=False)
        for name, beginning in zip(others, beginnings, strict=True):
            if isinstance(beginning, Exception):
                if not _is_wrong_type(beginning):  # the rest is dealt with when it is read
                    likely.append(name)
            elif looks_like_state(beginning):
                likely.append(name)
        return likely

    def _read(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, State, int]]:
        with _translated(self._where):
            pipe = self._client.pipeline(transaction=False)
            for name in names:
                _ask(pipe, name)
            pipe.time()  # last, so that no state is younger than it
            *replies, time = pipe.execute(raise_on_error=False)
            seconds, micros = _accepted(time)
            told = [self._settled(name, replies[3 * n :][:3]) for n, name in enumerate(names)]
        now_ns = (seconds * 1_000_000 + micros) * MICROSECOND
        for name, (value, entries, ttl) in zip(names, told, strict=True):
            # Every key of ours lives for a limited time, so one without is somebody else's.
            state = _state(name, value, entries or (), now_ns) if ttl and ttl > 0 else None
            if state:
                yield name, state, ttl * MILLISECOND

    def _settled(self, name: bytes, replies: Sequence[Any]) -> list[Any]:
        """The three replies about *name*, each None if it is of another type."""
        if self._cluster is not None and any(isinstance(one, _ELSEWHERE) for one in replies):
            replies = self._asked_elsewhere(name)
        return list(map(_accepted, replies))

    def _asked_elsewhere(self, name: bytes) -> Sequence[Any]:
        """The replies about *name*, whose slot is on its way to another node."""
        try:
            return _ask(self._cluster, name)
        except driver.ResponseError as error:
            return (error,) * 3


def _ask(client: Any, name: bytes) -> Sequence[Any]:
    """Ask for the value of *name*, what is beside it, and the milliseconds it has to live."""
    if _is_for_slots(name):
        value = client.zrange(name, 0, -1, withscores=True)
        beside = client.zrange(name.replace(b":", b"|:", 1), 0, -1)
    else:
        value = client.get(name)
        beside = client.lrange(name.replace(b":", b"+:", 1), 0, -1)
    return value, beside, client.pttl(name)


def _accepted(reply: Any) -> Any:
    """*reply*, or None if the key is of another type than ours; raises any other error."""
    if isinstance(reply, Exception):
        if _is_wrong_type(reply):
            return None
        raise reply
    return reply


def _is_wrong_type(error: Exception) -> bool:
    return str(error).startswith("WRONGTYPE")


def _is_for_slots(name: bytes) -> bool:
    return name.partition(b":")[0].endswith(b"~")


def _state(name: bytes, value: Any, entries: Sequence[bytes], now_ns: int) -> State | None:
    if value is None:
        return None
    if _is_for_slots(name):
        return read_slots(value, entries, now_ns)
    return read_state(value, entries, now_ns)


@contextmanager
def open_primaries(url: RedisURL) -> Iterator[list[Server]]:
    """The primaries of *url*, connected to; raises `StoreError` if that fails."""
    with ExitStack() as stack:
        match url.topology:
            case "single":
                yield [_single(url, url.addresses[0], stack)]
            case "sentinel":
                yield [_single(url, _named_by_sentinels(url), stack)]
            case "cluster":
                yield _of_cluster(url, stack)


def _single(url: RedisURL, address: Address, stack: ExitStack) -> Server:
    place: dict[str, Any] = {"host": address.host, "port": address.port}
    if not address.port:
        place = {"unix_socket_path": address.host}
    client = stack.enter_context(
        closing(redis.Redis(db=url.db, **place, **_credentials(url), **_manners(url)))
    )
    with _translated(str(address)):
        client.time()
        _refuse_cluster(client, address)
    return Server(client, str(address))


def _refuse_cluster(client: Any, address: Address) -> None:
    """A node by itself would show its own part only, under names that are not looked for."""
    try:
        is_node = client.info("cluster").get("cluster_enabled")
    except driver.NoPermissionError:
        return
    if is_node:
        raise StoreError(
            f"{address} is part of a cluster: use redis+cluster:// in the store URL",
            reason="refused",
        )


def _named_by_sentinels(url: RedisURL) -> Address:
    options = url.options
    sentinels = Sentinel(  # type: ignore[no-untyped-call]
        list(url.addresses),
        sentinel_kwargs={
            "username": options.sentinel_username,
            "password": options.sentinel_password,
            **_manners(url),
        },
    )
    with ExitStack() as stack, _translated(f"the Sentinels at {url}"):
        for one in sentinels.sentinels:
            stack.enter_context(closing(one))
        primary = sentinels.discover_master(url.primary_name)  # type: ignore[no-untyped-call]
        return Address(*primary)


def _of_cluster(url: RedisURL, stack: ExitStack) -> list[Server]:
    with _translated(str(url)):
        cluster: Any = redis.RedisCluster(
            startup_nodes=[ClusterNode(*one) for one in url.addresses],  # type: ignore[no-untyped-call]
            **_credentials(url),
            **_manners(url),
        )
        stack.enter_context(closing(cluster))
        return [
            Server(cluster.get_redis_connection(node), str(Address(node.host, node.port)), cluster)
            for node in cluster.get_primaries()
        ]


def _credentials(url: RedisURL) -> dict[str, Any]:
    return {"username": url.username, "password": url.password}


def _manners(url: RedisURL) -> dict[str, Any]:
    """How to talk to any server of *url*."""
    manners: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": max(_PATIENCE, url.timeout),
        "socket_connect_timeout": max(_PATIENCE, url.timeout),
    }
    if url.tls is None:
        return manners
    return {
        **manners,
        "ssl": True,
        "ssl_ca_certs": url.tls.ca_certs,
        "ssl_certfile": url.tls.certfile,
        "ssl_keyfile": url.tls.keyfile,
        "ssl_cert_reqs": url.tls.cert_reqs,
        "ssl_check_hostname": url.tls.check_hostname,
    }


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except errors.DRIVER_ERRORS as error:
        raise errors.fault(error, where) from error
