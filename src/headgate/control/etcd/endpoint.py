"""One member of etcd, as gRPC sees it: a channel, and calls with deadlines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from headgate.control.etcd.faults import EtcdError, error_of
from headgate.errors import OptionError

if TYPE_CHECKING:
    from headgate.control.etcd.messages import Method
    from headgate.control.etcd.options import TLSFiles
    from headgate.server_urls import Address

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
