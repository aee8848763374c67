"""What an operator may choose about the rate limit service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from headgate.errors import OptionError

Charging = Literal["all_or_nothing", "always"]
"""What a denied call is charged: nothing at all; or, as envoyproxy/ratelimit does, each descriptor
by itself, and one that is denied fills its window up."""

Reports = Literal["auto", "always", "never"]
"""Which amounts report what has happened already: see `amounts`."""

OnStoreFailure = Literal["error", "fail_open", "fail_closed"]
"""What to say to limits that no rule has when the store is gone. An error leaves it to Envoy, which
lets pass unless `failure_mode_deny` is set."""

MOST_HITS: Final = 2**32 - 1
"""The largest amount of one descriptor. Envoy itself sends no more than 10^9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlsOptions:
    """*charge* and *on_store_failure* are for the limits of envoyproxy/ratelimit's configuration;
    rules say themselves. *on_store_failure* is also for limits that a call brings with it where no
    rule is.

    *headers*: send `RateLimit-*`, `X-RateLimit-*` and `Retry-After` back for the response.
    *metadata*: send dynamic metadata back, as the original does with its option of that name.

    The rest bounds what is read: descriptors in a call, entries in a descriptor, characters in a
    key, a value or the domain, bytes in a message. A value may be as long as all headers of a
    request together that Envoy can be told to take, and there may be as many entries as rules look
    at headers: what a client sends must not make a call fail, for that lets it pass.
    """

    charge: Charging = "all_or_nothing"
    reports: Reports = "auto"
    on_store_failure: OnStoreFailure = "error"
    headers: bool = True
    metadata: bool = False
    most_descriptors: int = 256
    most_entries: int = 1_024
    longest_key: int = 1_024
    longest_value: int = 98_304
    most_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        for name, known in (
            ("charge", get_args(Charging)),
            ("reports", get_args(Reports)),
            ("on_store_failure", get_args(OnStoreFailure)),
        ):
            if getattr(self, name) not in known:
                choices = ", ".join(repr(one) for one in known)
                raise OptionError(f"{name} is {getattr(self, name)!r}; expected one of {choices}")
        for name in ("descriptors", "entries", "bytes"):
            _check_bound(f"most_{name}", getattr(self, f"most_{name}"))
        for name in ("key", "value"):
            _check_bound(f"longest_{name}", getattr(self, f"longest_{name}"))


def _check_bound(name: str, bound: object) -> None:
    if type(bound) is not int or bound < 1:
        raise OptionError(f"{name} is {bound!r}; expected an integer of at least 1")
