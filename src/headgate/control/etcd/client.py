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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from headgate.control.etcd.errors import EtcdError, error_of, kind_of
from headgate.control.etcd.messages import AUTHENTICATE, WATCH, AuthenticateRequest, WatchRequest
from headgate.errors import OptionError

if TYPE_CHECKING:
    from headgate.control.etcd.messages import Method
    from headgate.control.etcd.url import EtcdURL, TLSFiles
    from headgate.server_urls import Address


# One member of etcd, as gRPC sees it: a channel, and calls with deadlines.


_MOST_RECEIVED: Final = 64 * 2**20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MOST_RECEIVED),
    ("grpc.max_send_message_length", -1),  # etcd's limit is looked at before
    ("grpc.keepalive_time_ms", 10_000),  # etcd throws out who asks more often than every 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # as long an attempt to connect may take
    ("grpc.max_reconnect_backoff_ms", 1_000),  # a member that is back is found soon
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),  # and so is one that has moved
    ("grpc.use_local_subchannel_pool", 1),  # nobody else's back-off is ours
    ("grpc.enable_http_proxy", 0),  # etcd is never outside
)


class Endpoint:
    """A member at *address*; *credentials* for TLS. The channel is opened when first used."""

    def __init__(
        self,
        address: Address,
        credentials: grpc.ChannelCredentials | None = None,
        server_name: str | None = None,
    ) -> None:
        self.place = str(address)
        self._credentials = credentials
        self._options = list(_OPTIONS)
        if server_name is not None:
            self._options.append(("grpc.ssl_target_name_override", server_name))  # type: ignore[arg-type]
        self._channel: grpc.aio.Channel | None = None
        self._unary: dict[str, Any] = {}
        self._is_closed = False

    async def ask(
        self, method: Method, request: Any, *, within: float, metadata: tuple[tuple[str, str], ...]
    ) -> Any:
        """The response to *request*, *within* so many seconds. Raises `EtcdError`."""
        channel = self._open()
        ask = self._unary.get(method.path)
        if ask is None:
            ask = self._unary[method.path] = channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        try:
            return await ask(request, timeout=within, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise error_of(self.place, error) from error
        except asyncio.CancelledError as error:
            if self._is_closed and not is_cancelling():
                raise EtcdError(self.place, "closed") from error
            raise

    def stream(self, method: Method, *, metadata: tuple[tuple[str, str], ...]) -> Any:
        """A call of *method* with requests and responses that go on. It connects meanwhile."""
        return self._open().stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )(metadata=metadata)

    async def aclose(self) -> None:
        """Close the channel. What is under way ends with an error."""
        self._is_closed = True
        if self._channel is not None:
            await self._channel.close()

    def _open(self) -> grpc.aio.Channel:
        if self._is_closed:
            raise EtcdError(self.place, "closed")
        if self._channel is None:
            if self._credentials is None:
                self._channel = grpc.aio.insecure_channel(self.place, self._options)
            else:
                self._channel = grpc.aio.secure_channel(
                    self.place, self._credentials, self._options
                )
        return self._channel


def is_cancelling() -> bool:
    """Whether it is our own caller who does not want to wait any more."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def channel_credentials(tls: TLSFiles) -> grpc.ChannelCredentials:
    """What *tls* names, read. Raises `OptionError` if it cannot be."""
    ca, cert, key = (
        _read(name, path)
        for name, path in (
            ("ca", tls.ca),
            ("cert", tls.cert),
            ("key", tls.key),
        )
    )
    return grpc.ssl_channel_credentials(ca, key, cert)


def _read(name: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"etcds://: {name}={path} cannot be read: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise OptionError(f"etcds://: {name}={path} is no PEM file")
    return content


# A watch as one stream: what comes, and whether anybody is still there.
#
# A member that hangs, and a network that swallows, send nothing, as do members to which nothing
# happens. So after some seconds of silence the stream asks for etcd's progress, and is lost if
# nothing at all comes back.


class WatchStream:
    """A watch by *endpoint*. After *heartbeat* seconds of silence it asks for a sign of life, and
    is lost if there is none within *patience* seconds."""

    def __init__(
        self,
        endpoint: Endpoint,
        metadata: tuple[tuple[str, str], ...],
        *,
        heartbeat: float,
        patience: float,
    ) -> None:
        self.endpoint = endpoint
        self._heartbeat = heartbeat
        self._patience = patience
        self._call = endpoint.stream(WATCH, metadata=metadata)
        self._reading: asyncio.Future[Any] | None = None

    async def begin(self, key: bytes, start: int) -> None:
        """Watch *key* from etcd's revision *start* on; return when etcd does."""
        request = WatchRequest()
        request.create_request.key = key
        request.create_request.start_revision = start
        request.create_request.progress_notify = True
        request.create_request.fragment = True
        await self._send(request)
        response = await self._read(self._patience)
        if response is None:
            raise EtcdError(self.endpoint.place, "timeout", "no watch was begun")
        self._refuse_cancelled(response)

    async def events(self) -> list[Any]:
        """What happened next, in order; perhaps nothing. Raises `EtcdError` if it is lost."""
        response = await self._read(self._heartbeat)
        if response is None:
            request = WatchRequest()
            request.progress_request.SetInParent()
            await self._send(request)
            response = await self._read(self._patience)
        if response is None:
            raise EtcdError(self.endpoint.place, "timeout", "the watch gives no sign of life")
        self._refuse_cancelled(response)
        return list(response.events)

    def cancel(self) -> None:
        """End the watch."""
        if self._reading is not None:
            self._reading.cancel()
        self._call.cancel()

    def _refuse_cancelled(self, response: Any) -> None:
        if response.compact_revision:
            raise EtcdError(self.endpoint.place, "compacted")
        if response.canceled:
            reason = response.cancel_reason
            raise EtcdError(self.endpoint.place, kind_of(reason) or "refused", reason)

    async def _send(self, request: Any) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._call.write(request)
        except TimeoutError as error:
            raise EtcdError(self.endpoint.place, "timeout") from error
        except asyncio.InvalidStateError as error:
            raise EtcdError(self.endpoint.place, "unreachable", "the watch has ended") from error
        except grpc.aio.AioRpcError as error:
            raise error_of(self.endpoint.place, error) from error
        except asyncio.CancelledError as error:
            if is_cancelling():
                raise
            raise EtcdError(self.endpoint.place, "closed") from error

    async def _read(self, within: float) -> Any:
        """The next response; None if there is none *within* so many seconds.

        The reading itself is not ended then: gRPC would end the whole stream with it.
        """
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._call.read())
            self._reading.add_done_callback(_hear)
        done, _ = await asyncio.wait({self._reading}, timeout=within)
        if not done:
            return None
        reading, self._reading = self._reading, None
        if reading.cancelled():
            raise EtcdError(self.endpoint.place, "closed")
        error = reading.exception()
        if isinstance(error, grpc.aio.AioRpcError):
            raise error_of(self.endpoint.place, error) from error
        response = reading.result()
        if response is grpc.aio.EOF:
            raise EtcdError(self.endpoint.place, "unreachable", "the watch has ended")
        return response


def _hear(reading: asyncio.Future[Any]) -> None:
    """Take note of how a reading ended, which perhaps nobody waits for any more."""
    if not reading.cancelled():
        reading.exception()


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
