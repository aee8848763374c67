"""A watch as one stream: what comes, and whether anybody is still there.

A member that hangs, and a network that swallows, send nothing, as do members to which nothing
happens. So after some seconds of silence the stream asks for etcd's progress, and is lost if
nothing at all comes back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc.aio

from headgate.control.etcd.endpoint import is_cancelling
from headgate.control.etcd.faults import EtcdError, error_of, kind_of
from headgate.control.etcd.messages import WATCH, WatchRequest

if TYPE_CHECKING:
    from headgate.control.etcd.endpoint import Endpoint


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
