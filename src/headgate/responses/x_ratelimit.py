"""`X-RateLimit-Limit`, `-Remaining`, `-Reset` and `-Bucket`: the tightest limit, for everybody.

All are integers but the bucket. The reset is an epoch second, as with GitHub; draft-03 of the IETF
had the same names without `X-` and a reset in seconds from now.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from headgate.responses.rounding import bounded, seconds_up

NAMES: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
DRAFT_03_NAMES: Final = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
BUCKET: Final = "X-RateLimit-Bucket"

Lines = list[tuple[str, str]]


def x_lines(quota: str, remaining: int, reset_after_ns: int, now_ns: int) -> Lines:
    """The headers of a decision with these figures; the reset is never before *now_ns*."""
    return _named(NAMES, quota, remaining, seconds_up(now_ns + reset_after_ns))


def draft03_lines(quota: str, remaining: int, reset_after_ns: int) -> Lines:
    """The same with names of draft-03."""
    return _named(DRAFT_03_NAMES, quota, remaining, seconds_up(reset_after_ns))


def bucket_line(policy: str, key: str, secret: bytes) -> tuple[str, str]:
    """Which counter it was, in a way that tells nothing else: the same id, the same counter."""
    counter = f"{policy}\0{key}".encode("utf-8", "surrogatepass")
    return BUCKET, blake2b(counter, digest_size=12, key=secret).hexdigest()


def _named(names: tuple[str, str, str], quota: str, remaining: int, reset: int) -> Lines:
    limit, left, back = names
    return [(limit, quota), (left, str(bounded(remaining))), (back, str(reset))]
