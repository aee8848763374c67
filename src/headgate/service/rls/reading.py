"""From the bytes of a request to plain values, with bounds on all of them.

What is refused is refused as a whole, before anything is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from headgate.service.grpc.method import CallError, Code
from headgate.service.rls.messages import UNITS, RateLimitRequest
from headgate.service.rls.options import MOST_HITS

if TYPE_CHECKING:
    from headgate.rules.envoy.model import Unit
    from headgate.service.rls.options import RlsOptions

_UNIT_NAMES: Final[dict[int, Unit]] = {
    UNITS["SECOND"]: "second",
    UNITS["MINUTE"]: "minute",
    UNITS["HOUR"]: "hour",
    UNITS["DAY"]: "day",
    UNITS["WEEK"]: "week",
    UNITS["MONTH"]: "month",
    UNITS["YEAR"]: "year",
}

Entries = tuple[tuple[str, str], ...]


class Limit(NamedTuple):
    """The limit that a call brings with it: so many in a unit; 0 lets nothing pass."""

    requests: int
    unit: Unit


class Descriptor(NamedTuple):
    """What is to be counted. *hits* is None if the descriptor itself does not say."""

    entries: Entries
    limit: Limit | None = None
    hits: int | None = None
    is_refund: bool = False


class Call(NamedTuple):
    """A request. *hits* is for the descriptors that do not say; None if nobody does."""

    domain: str
    descriptors: tuple[Descriptor, ...]
    hits: int | None = None


def read_call(message: bytes, options: RlsOptions) -> Call:
    """The call that *message* is. Raises `CallError`, saying where, if it is none."""
    if len(message) > options.most_bytes:
        raise CallError(
            Code.RESOURCE_EXHAUSTED,
            f"the message has {len(message)} bytes; at most {options.most_bytes} are read",
        )
    try:
        request = RateLimitRequest.FromString(message)
    except DecodeError as error:
        raise _wrong("the message is not a RateLimitRequest, or a text in it not UTF-8") from error
    return call_of(request, options)


def call_of(request: Any, options: RlsOptions) -> Call:
    """The same for a message that has been parsed."""
    domain = request.domain
    if not domain:
        raise _wrong("domain is empty; expected the name of a set of limits")
    if len(domain) > options.longest_key:
        raise _wrong(f"domain has {len(domain)} characters; at most {options.longest_key} are read")
    asked = request.descriptors
    if not asked:
        raise _wrong("descriptors is empty; expected at least one")
    if len(asked) > options.most_descriptors:
        raise CallError(
            Code.RESOURCE_EXHAUSTED,
            f"there are {len(asked)} descriptors; at most {options.most_descriptors} are read",
        )
    descriptors = tuple([_descriptor(one, n, options) for n, one in enumerate(asked)])
    return Call(domain, descriptors, request.hits_addend or None)


def _descriptor(one: Any, place: int, options: RlsOptions) -> Descriptor:
    entries = tuple([(entry.key, entry.value) for entry in one.entries])
    if len(entries) > options.most_entries:
        raise CallError(
            Code.RESOURCE_EXHAUSTED,
            f"descriptors[{place}] has {len(entries)} entries; at most {options.most_entries} are"
            " read",
        )
    longest_key, longest_value = options.longest_key, options.longest_value
    for key, value in entries:
        if len(key) > longest_key or len(value) > longest_value:
            raise CallError(
                Code.RESOURCE_EXHAUSTED,
                f"an entry of descriptors[{place}] has a key or value that is too long; at most"
                f" {longest_key} and {longest_value} characters are read",
            )
    limit = _limit(one.limit, place) if one.HasField("limit") else None
    hits = _hits(one.hits_addend.value, place) if one.HasField("hits_addend") else None
    return Descriptor(entries, limit, hits, one.is_negative_hits)


def _limit(limit: Any, place: int) -> Limit:
    unit = _UNIT_NAMES.get(limit.unit)
    if unit is None:
        known = ", ".join(list(UNITS)[1:])
        raise _wrong(f"descriptors[{place}].limit.unit is {limit.unit}; expected one of {known}")
    return Limit(limit.requests_per_unit, unit)


def _hits(hits: int, place: int) -> int:
    if hits > MOST_HITS:
        raise _wrong(f"descriptors[{place}].hits_addend is {hits}; it may be {MOST_HITS} at most")
    return hits


def _wrong(message: str) -> CallError:
    return CallError(Code.INVALID_ARGUMENT, message)
