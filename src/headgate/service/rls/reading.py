"""From the bytes of a request to plain values, with bounds on all of them.

An invalid call is rejected as a whole, before anything is charged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from google.protobuf.message import DecodeError

from headgate.errors import OptionError
from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN
from headgate.service.grpc.method import CallError, Code
from headgate.service.rls.messages import UNITS, OctetRequest, RateLimitRequest
from headgate.service.wire_text import text_of

if TYPE_CHECKING:
    from headgate.policy.envoy_config.attributes import Entries
    from headgate.policy.envoy_config.model import Unit


# Options of the rate limit service.


Charging = Literal["all_or_nothing", "always"]
"""The charge of a denied call: nothing; or, as with envoyproxy/ratelimit, each descriptor by
itself, where one that is denied fills its window up."""

Reports = Literal["auto", "always", "never"]
"""The amounts that are reports of usage: see `descriptors`."""

OnStoreFailure = Literal["error", "fail_open", "fail_closed"]
"""The decision of limits that belong to no rule while the store is gone. An error leaves it to
Envoy, which allows unless `failure_mode_deny` is set."""

MOST_HITS: Final = 2**32 - 1
"""The largest amount of one descriptor. Envoy itself sends no more than 10^9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlsOptions:
    """*charge* and *on_store_failure* are for the limits of envoyproxy/ratelimit's configuration;
    rules have their own. *on_store_failure* is also for a limit in a call that no rule matches.

    *headers*: send `RateLimit-*`, `X-RateLimit-*` and `Retry-After` for the response. *metadata*:
    send dynamic metadata, as envoyproxy/ratelimit does with its option of that name.

    The others are bounds: descriptors in a call, entries in a descriptor, characters in a key, a
    value or the domain, bytes in a message. A value may be as long as all headers that Envoy
    accepts: a client must not be able to make a call fail, because Envoy then allows the request.
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


_UNIT_NAMES: Final[dict[int, Unit]] = {
    UNITS["SECOND"]: "second",
    UNITS["MINUTE"]: "minute",
    UNITS["HOUR"]: "hour",
    UNITS["DAY"]: "day",
    UNITS["WEEK"]: "week",
    UNITS["MONTH"]: "month",
    UNITS["YEAR"]: "year",
}

Text = Callable[[bytes], str]


class Limit(NamedTuple):
    """The limit in a call: *requests* in a unit; 0 denies all."""

    requests: int
    unit: Unit


class Descriptor(NamedTuple):
    """The counter to charge. *hits* is None if the descriptor has none."""

    entries: Entries
    limit: Limit | None = None
    hits: int | None = None
    is_refund: bool = False


Descriptors = tuple[Descriptor, ...]


class Call(NamedTuple):
    """A request. *hits* is for the descriptors without their own; None if there is none."""

    domain: str
    descriptors: Descriptors
    hits: int | None = None


def read_call(message: bytes, options: RlsOptions) -> Call:
    """Read the call in *message*. Raises `CallError` with the place if it is invalid."""
    if len(message) > options.most_bytes:
        raise CallError(
            Code.RESOURCE_EXHAUSTED,
            f"the message has {len(message)} bytes; at most {options.most_bytes} are read",
        )
    try:
        request = RateLimitRequest.FromString(message)
    except DecodeError:
        return _call(_in_octets(message), options, text=text_of)
    return _call(request, options)


def _in_octets(message: bytes) -> Any:
    try:
        return OctetRequest.FromString(message)
    except DecodeError as error:
        raise _wrong("the message is not a RateLimitRequest") from error


def _call(request: Any, options: RlsOptions, *, text: Text | None = None) -> Call:
    """Read *request*. *text* decodes its texts, if they are bytes."""
    domain = request.domain if text is None else text(request.domain)
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
    descriptors = tuple([_descriptor(one, n, options, text) for n, one in enumerate(asked)])
    if any(one.hits is not None and one.hits > MOST_HITS for one in descriptors):
        descriptors = _with_sane_hits(domain, descriptors)
    return Call(domain, descriptors, request.hits_addend or None)


def _descriptor(one: Any, place: int, options: RlsOptions, text: Text | None) -> Descriptor:
    entries: Entries
    if text is None:
        entries = tuple([(entry.key, entry.value) for entry in one.entries])
    else:
        entries = tuple([(text(entry.key), text(entry.value)) for entry in one.entries])
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
    hits = one.hits_addend.value if one.HasField("hits_addend") else None
    return Descriptor(entries, limit, hits, one.is_negative_hits)


def _limit(limit: Any, place: int) -> Limit:
    unit = _UNIT_NAMES.get(limit.unit)
    if unit is None:
        known = ", ".join(list(UNITS)[1:])
        raise _wrong(f"descriptors[{place}].limit.unit is {limit.unit}; expected one of {known}")
    return Limit(limit.requests_per_unit, unit)


def _with_sane_hits(domain: str, descriptors: Descriptors) -> Descriptors:
    """*descriptors*, some of which have more hits than there can be.

    From our gateway that is an upstream that reported a cost of `nan`, as Envoy 1.40 passes it on:
    it has no hits then, and the others are charged nevertheless.
    """
    if domain == GATEWAY_DOMAIN:
        return tuple(
            [
                one if (one.hits or 0) <= MOST_HITS else one._replace(hits=None)
                for one in descriptors
            ]
        )
    for place, one in enumerate(descriptors):
        if (one.hits or 0) > MOST_HITS:
            raise _wrong(
                f"descriptors[{place}].hits_addend is {one.hits}; it may be {MOST_HITS} at most"
            )
    return descriptors


def _wrong(message: str) -> CallError:
    return CallError(Code.INVALID_ARGUMENT, message)
