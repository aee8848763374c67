"""Asking etcd: the members in turn, logged in, within a deadline.

A request goes to the member that answered last. If that one is down, hangs or has no leader, it
goes to the next one, each of them getting a share of what is left of the deadline. When all have
been tried and some said that there is no leader, they are asked again until there is one, or until
the time is over. Where nobody can be reached at all that is said at once, unless the asker insists.
So a request may arrive more than once: it must be one that does no harm twice.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from headgate.control.etcd.endpoint import Endpoint, channel_credentials
from headgate.control.etcd.faults import EtcdError
from headgate.control.etcd.messages import AUTHENTICATE, AuthenticateRequest
from headgate.control.etcd.stream import WatchStream

if TYPE_CHECKING:
    from headgate.control.etcd.messages import Method
    from headgate.control.etcd.url import EtcdURL

_PAUSE: Final = 0.1
"""Seconds between two rounds over the members while they elect a leader."""

_WITH_LEADER: Final = ("hasleader", "true")
"""Metadata: a member that has lost the others says so, instead of waiting for them."""


class Client:
    """The members that *url* names, asked by one event loop."""

    def __init__(self, url: EtcdURL) -> None:
        credentials = channel_credentials(url.tls) if url.tls else None
        server_name = url.tls.server_name if url.tls else None
        self._endpoints = [Endpoint(one, credentials, server_name) for one in url.addresses]
        random.shuffle(self._endpoints)  # so that a fleet spreads over the members
        self._login = (
            AuthenticateRequest(name=url.user, password=url.password) if url.user else None
        )
        self._token: str | None = None
        self._timeout = url.options.timeout
        self._heartbeat = url.options.heartbeat
        self._turn = 0

    @property
    def members(self) -> int:
        """How many there are to ask."""
        return len(self._endpoints)

    async def ask(self, method: Method, request: Any, *, insists: bool = False) -> Any:
        """The response to *request*, which may have been sent more than once.

        Who *insists* has the whole deadline used, whatever passing fault there is.
        Raises `EtcdError`, with `is_certain` if none of the times it was sent has done anything.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        is_certain = True
        while True:
            waits = insists
            for left in range(self.members, 0, -1):
                endpoint = self._endpoints[self._turn]
                within = max((deadline - loop.time()) / left, 0.001)
                try:
                    return await self._ask_one(endpoint, method, request, within)
                except EtcdError as error:
                    trouble = error
                is_certain = is_certain and trouble.is_certain
                trouble.is_certain = is_certain
                if not trouble.is_passing:
                    raise trouble
                self.leave(endpoint)
                waits = waits or trouble.kind in ("no_leader", "busy")
            if not waits or loop.time() + _PAUSE > deadline:
                raise trouble
            await asyncio.sleep(_PAUSE)

    async def _ask_one(
        self, endpoint: Endpoint, method: Method, request: Any, within: float
    ) -> Any:
        deadline = asyncio.get_running_loop().time() + within
        metadata = await self._metadata(endpoint, within)
        try:
            return await endpoint.ask(method, request, within=within, metadata=metadata)
        except EtcdError as error:
            if error.kind != "token" or self._login is None:
                raise
        self._token = None  # too old, or of a member that has forgotten it
        within = max(deadline - asyncio.get_running_loop().time(), 0.001)
        metadata = await self._metadata(endpoint, within)
        return await endpoint.ask(method, request, within=within, metadata=metadata)

    async def _metadata(self, endpoint: Endpoint, within: float) -> tuple[tuple[str, str], ...]:
        if self._login is None:
            return (_WITH_LEADER,)
        if self._token is None:
            try:
                answer = await endpoint.ask(
                    AUTHENTICATE, self._login, within=within, metadata=(_WITH_LEADER,)
                )
                self._token = answer.token
            except EtcdError as error:
                if "authentication is not enabled" not in str(error):
                    error.is_certain = True  # what was to be asked has not been sent
                    raise
                self._token = ""
        return (_WITH_LEADER, ("token", self._token)) if self._token else (_WITH_LEADER,)

    def leave(self, endpoint: Endpoint) -> None:
        """Ask another member next, if *endpoint* is the one that would be."""
        if self._endpoints[self._turn] is endpoint:
            self._turn = (self._turn + 1) % self.members

    async def watch(self, key: bytes, start: int) -> WatchStream:
        """What happens to *key* from etcd's revision *start* on, by the member that is next.

        Raises `EtcdError`, as the stream does when it is lost.
        """
        endpoint = self._endpoints[self._turn]
        share = self._timeout / self.members
        metadata = await self._metadata(endpoint, share)
        stream = WatchStream(endpoint, metadata, heartbeat=self._heartbeat, patience=share)
        try:
            await stream.begin(key, start)
        except EtcdError as error:
            self.lose(stream, error)
            raise
        except asyncio.CancelledError:
            stream.cancel()
            raise
        return stream

    def lose(self, stream: WatchStream, error: EtcdError) -> None:
        """Take note that *stream* ended with *error*."""
        stream.cancel()
        if error.kind in ("token", "denied"):
            self._token = None  # an older etcd says of a token that is too old: denied
        if error.kind != "compacted":
            self.leave(stream.endpoint)

    async def aclose(self) -> None:
        """Close all channels."""
        for endpoint in self._endpoints:
            await endpoint.aclose()
