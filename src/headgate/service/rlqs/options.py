"""Options of the quota service."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.units import SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class RlqsOptions:
    """Options of the quota service; times in seconds. `config.service` has the bounds of settings.

    An assignment lasts for *ttl* and is renewed after half of it. A message reaches a connected
    gateway within *delivery*, at most a quarter of *ttl*: for that long the previous assignment
    counts too, and a stream whose gateway reads nothing for that long is ended. A gateway that has
    not reported a bucket for *silence* loses its share; a bucket without requests for *idle* is
    abandoned.

    *reserve* is the fraction of a limit that is not assigned as rates but pays for changes.
    *restart_share* is the fraction of a limit that is assigned in the first *ttl* after a restart
    without a shared store, when earlier assignments may still be in force.

    The other options are bounds: streams, buckets, entries of a bucket, characters of its keys, its
    values and all of them, bytes of a message. Clients control the number and length of buckets, so
    the gateway is made to forget buckets beyond the bounds; everything else ends the stream. A
    gateway reports all its buckets in one message, so together they are limited to `room`. Of a
    message that is still too long, the beginning is read; set *most_bytes* to the server's
    `GrpcLimits.message_bytes`.
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

    @property
    def room(self) -> int:
        """Bytes of a message for known buckets; the rest is for buckets to be forgotten."""
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
