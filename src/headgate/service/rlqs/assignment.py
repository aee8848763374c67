"""What a gateway is told to do with a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.service.rlqs.filling import Filling

BucketId = tuple[tuple[str, str], ...]
"""A bucket as gateways name it: keys and values, sorted by key."""

_BYTES_OF_ENTRY: Final = 10
_BYTES_OF_REPORT: Final = 48


def reported_bytes(bucket: BucketId) -> int:
    """How long a report on *bucket* is at most."""
    texts = sum(len(text.encode()) for entry in bucket for text in entry)
    return texts + _BYTES_OF_ENTRY * len(bucket) + _BYTES_OF_REPORT


@dataclass(frozen=True, slots=True)
class Action:
    """For *ttl_seconds* let *bucket* through as *filling* says; without one, all if *is_open*, or
    nothing. *is_abandoned*: forget the bucket instead.

    *is_anew*: whatever the gateway has, the filling takes its place. Else one that looks the same
    (see `filling`) goes on as it is."""

    bucket: BucketId
    ttl_seconds: int = 0
    filling: Filling | None = None
    is_open: bool = False
    is_anew: bool = False
    is_abandoned: bool = False
