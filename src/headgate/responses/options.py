"""What an operator may choose about responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.errors import OptionError

LONGEST_SECRET: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """What to send. Whether a rule is told at all is said by the rule (`headers`).

    *x_ratelimit*, *ratelimit*: the families of headers, `X-RateLimit-*` and the IETF's pair.
    *draft03*: `RateLimit-Limit`, `-Remaining` and `-Reset` besides. *bucket*:
    `X-RateLimit-Bucket`, hashed with *bucket_secret* (at most 64 bytes), which makes ids that
    nobody else can compute.

    *problem*: problem details for all, not only for those who ask.

    *jitter*: the longest addition to the wait of a refusal, as a share of it; never more than
    *jitter_most* seconds.

    *outage_status*: for what was refused for want of a store. *shed_status*: for what was refused
    for want of capacity. *outage_spread*: over how many seconds the callers of both are spread.

    *pressure*: how long the queue is that a request was in, and how long it was delayed, as
    `Headgate-Queue` and `Headgate-Delay`. *orca*: the load, for balancers that read the header
    `endpoint-load-metrics`.
    """

    x_ratelimit: bool = True
    ratelimit: bool = True
    draft03: bool = False
    bucket: bool = False
    bucket_secret: bytes = b""
    problem: bool = False
    jitter: float = 0.0
    jitter_most: float = 60.0
    outage_status: int = 503
    outage_spread: float = 4.0
    shed_status: int = 503
    pressure: bool = True
    orca: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= 1:
            raise OptionError(f"jitter is {self.jitter!r}; expected a share from 0 to 1")
        for name in ("jitter_most", "outage_spread"):
            seconds = getattr(self, name)
            if not 0 <= seconds <= 86_400:
                raise OptionError(f"{name} is {seconds!r}; expected seconds from 0 to 86400")
        for name in ("outage_status", "shed_status"):
            status = getattr(self, name)
            if not 400 <= status <= 599:
                raise OptionError(f"{name} is {status!r}; expected 400 to 599")
        if len(self.bucket_secret) > LONGEST_SECRET:
            raise OptionError(
                f"bucket_secret has {len(self.bucket_secret)} bytes; at most {LONGEST_SECRET} fit"
            )


DEFAULT: Final = ResponseOptions()
