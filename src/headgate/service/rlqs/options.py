"""How the quota service divides limits among gateways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import OptionError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class RlqsOptions:
    """Times are in seconds.

    An assignment holds for *ttl* and is renewed when half of it is over. A message reaches a
    connected gateway within *delivery*: that long what it had before counts too, and a stream that
    does not take its messages for that long is ended. A gateway that has not reported a bucket for
    *silence* loses its share; a bucket that nobody asked for anything for *idle* is abandoned.

    *reserve* is the part of a limit that is not given out as rates but pays for what changes cost.
    *restart_share* is the part of a limit that is given out in the first *ttl* after a start
    without a shared store, when assignments of the time before may still be in force.

    The rest are bounds, on streams and their buckets, on the entries of a bucket and the characters
    of its keys, its values and all of them, on a message. Buckets that are too many or too long,
    which is in the hands of clients, the gateway is told to forget; all else ends the stream. A
    gateway reports all of its buckets in one message, again and again, so there are no more of them
    than `room` is in one. Of one that is too long nevertheless, the beginning is read;
    *most_bytes* is to be what the server takes of one (`GrpcLimits.message_bytes`).
    """

    ttl: int = 10
    delivery: float = 1.0
    silence: float = 16.0
    idle: float = 60.0
    reserve: float = 0.05
    restart_share: float = 0.5
    most_streams: int = 1_000
    most_buckets: int = 10_000
    most_buckets_in_all: int = 100_000
    most_entries: int = 32
    longest_key: int = 256
    longest_value: int = 4_096
    longest_bucket: int = 8_192
    most_bytes: int = 4_194_304

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise OptionError(problem)

    def _problems(self) -> Iterator[str]:
        if type(self.ttl) is not int or not 4 <= self.ttl <= 3_600:
            yield f"ttl is {self.ttl!r}; expected whole seconds from 4 to 3600"
        if not 0 < self.delivery <= self.ttl / 4:
            yield f"delivery is {self.delivery!r}; expected seconds up to a quarter of ttl"
        if not 5 < self.silence <= self.idle:
            yield (
                f"silence is {self.silence!r}; expected more than 5 seconds, which is how often"
                f" Envoy reports, and no more than idle, {self.idle!r}"
            )
        for name in ("reserve", "restart_share"):
            if not 0 < getattr(self, name) < 1:
                yield f"{name} is {getattr(self, name)!r}; expected a part between 0 and 1"
        for name in (
            "most_streams",
            "most_buckets",
            "most_buckets_in_all",
            "most_entries",
            "longest_key",
            "longest_value",
            "longest_bucket",
            "most_bytes",
        ):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                yield f"{name} is {getattr(self, name)!r}; expected a whole number of at least 1"

    @property
    def room(self) -> int:
        """The bytes of a message that buckets may take; the rest is for those to be forgotten."""
        return self.most_bytes * 3 // 4

    @property
    def ttl_ns(self) -> int:
        return self.ttl * SECOND

    @property
    def delivery_ns(self) -> int:
        return round(self.delivery * SECOND)

    @property
    def silence_ns(self) -> int:
        return round(self.silence * SECOND)

    @property
    def idle_ns(self) -> int:
        return round(self.idle * SECOND)
