"""What is told and heard, as a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.operations import MOST_ORIGINS, Share
from headgate.stores.redis.calls.requests import Arguments, ScriptRequest, Waiter, disappoint
from headgate.stores.redis.counters.naming import VOICES
from headgate.stores.redis.counters.scripts import script
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from headgate.errors import StoreError
    from headgate.stores.redis.counters.naming import Names
    from headgate.stores.redis.request import Reply


class ShareRequest(ScriptRequest):
    """What one origin makes of something, and what all do."""

    __slots__ = ()

    def __init__(self, operation: Share, names: Names, now: bytes, waiter: Waiter) -> None:
        name = names.counter(operation.group, operation.key, VOICES)
        arguments: Arguments = [
            now,
            operation.origin.encode("utf-8", "surrogatepass"),
            _written(operation.value),
            _written(operation.weight) if operation.weight > 0 else b"",
            operation.ttl_ns // MICROSECOND,
            MOST_ORIGINS,
        ]
        super().__init__(script("share"), [name], arguments)
        self.waiter = waiter

    def answered(self, reply: Reply) -> None:
        if type(reply) is not list or len(reply) % 3:
            raise TypeError(f"origins, values and weights were expected, not {reply!r}")
        told = tuple(
            (origin.decode("utf-8", "surrogatepass"), float(value), float(weight))
            for origin, value, weight in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        )
        if not self.waiter.done():
            self.waiter.set_result(told)

    def failed(self, error: StoreError) -> None:
        disappoint([self.waiter], error)


def _written(number: float) -> bytes:
    """*number* in digits from which the very same is read."""
    return repr(float(number)).encode()
