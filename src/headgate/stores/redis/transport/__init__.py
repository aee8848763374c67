"""From a URL to a transport. Opening does no I/O: the first request connects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.redis.transport.async_connection import Owner, Wire, wire_on
from headgate.stores.redis.transport.blocking_connection import Lane, lane_on
from headgate.stores.redis.transport.cluster import ClusterSite, ClusterTransport
from headgate.stores.redis.transport.connect import door_to, open_async, open_blocking
from headgate.stores.redis.transport.reconnecting import LoopTransport, Site
from headgate.stores.redis.transport.sentinel import AsyncSentinelDialer, SentinelDialer
from headgate.stores.redis.transport.standalone import SoloSite, SoloTransport
from headgate.stores.redis.url import RedisURL, parse_redis_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.stores.redis.request import AsyncTransport, Transport


def open_transport(url: str) -> Transport:
    """A transport for callers that may block; `StoreURLError` if *url* makes no sense."""
    read = parse_redis_url(url)
    if read.is_cluster:
        return ClusterTransport(read)
    dial = SentinelDialer(read) if read.topology == "sentinel" else _dialer(read)
    most, timeout = read.options.connections, read.timeout
    return SoloTransport(dial, str(read), connections=most, timeout=timeout)


def open_async_transport(url: str) -> AsyncTransport:
    """The same for event loops."""
    read = parse_redis_url(url)

    def found() -> Site:
        if read.is_cluster:
            return ClusterSite(read)
        if read.topology == "sentinel":
            return SoloSite(AsyncSentinelDialer(read), str(read), read.timeout)
        return SoloSite(_async_dialer(read), str(read), read.timeout)

    return LoopTransport(found, str(read), is_cluster=read.is_cluster)


def _dialer(url: RedisURL) -> Callable[[float], Lane]:
    door = door_to(url, url.addresses[0])

    def dial(deadline: float) -> Lane:
        plain = url.options.plain_link
        connection, _ = open_blocking(door, deadline, plain=plain)
        return lane_on(connection, str(door), url.timeout, plain=plain)

    return dial


def _async_dialer(url: RedisURL) -> Callable[[Owner], Awaitable[Wire]]:
    door = door_to(url, url.addresses[0])

    async def dial(owner: Owner) -> Wire:
        connection, _ = await open_async(door)
        return wire_on(connection, owner, str(door), url.timeout, plain=url.options.plain_link)

    return dial
