"""`X-RateLimit-Limit`, `-Remaining`, `-Reset` and `-Bucket`: the tightest limit, for everybody.

All are integers but the bucket. The reset is an epoch second, as with GitHub; draft-03 of the IETF
had the same names without `X-` and a reset in seconds from now.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.responses.rounding import bounded, seconds_up

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.responses.answer import Part

NAMES: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
DRAFT_03_NAMES: Final = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
BUCKET: Final = "X-RateLimit-Bucket"

Lines = list[tuple[str, str]]


def x_lines(decision: Decision, now_ns: int) -> Lines:
    """The headers of *decision*; the reset is never before *now_ns*."""
    return _named(NAMES, decision, seconds_up(now_ns + decision.reset_after_ns))


def draft03_lines(decision: Decision) -> Lines:
    """The same with names of draft-03."""
    return _named(DRAFT_03_NAMES, decision, seconds_up(decision.reset_after_ns))


def bucket_line(part: Part, secret: bytes) -> tuple[str, str]:
    """Which counter it was, in a way that tells nothing else: the same id, the same counter."""
    counter = f"{part.policy}\0{part.decision.key}".encode("utf-8", "surrogatepass")
    return BUCKET, blake2b(counter, digest_size=12, key=secret).hexdigest()


def _named(names: tuple[str, str, str], decision: Decision, reset: int) -> Lines:
    return [
        (names[0], str(decision.limit.quota)),
        (names[1], str(bounded(decision.remaining))),
        (names[2], str(reset)),
    ]
