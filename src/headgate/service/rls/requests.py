"""From the bytes of a request to plain values, with bounds on all of them.

An invalid call is rejected as a whole, before anything is charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN
from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.protobuf import text_of
from headgate.service.rls.messages import UNITS, decode_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.envoy_config.attributes import Entries
    from headgate.policy.envoy_config.config import Unit


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

    *headers*: send `RateLimit-*`, `X-RateLimit-*` and `Retry-After` for the response, and the body
    of a denial. *metadata*: send dynamic metadata, as envoyproxy/ratelimit does with its option of
    that name.

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


_UNIT_NAMES: Final = {
    number: cast("Unit", name.lower()) for name, number in UNITS.items() if name != "UNKNOWN"
}


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


class Call(NamedTuple):
    """A request. *hits* is for the descriptors without their own; None if there is none."""

    domain: str
    descriptors: tuple[Descriptor, ...]
    hits: int | None = None


def read_call(message: bytes, options: RlsOptions) -> Call:
    """Read the call in *message*. Raises `CallError` with the place if it is invalid."""
    if len(message) > options.most_bytes:
        raise _beyond(f"the message has {len(message)} bytes", options.most_bytes)
    request = decode_request(message)
    text = str if isinstance(request.domain, str) else text_of
    domain = text(request.domain)
    if not domain:
        raise _invalid("domain is empty; expected the name of a set of limits")
    if len(domain) > options.longest_key:
        raise _invalid(
            f"domain has {len(domain)} characters; at most {options.longest_key} are read"
        )
    descriptors = request.descriptors
    if not descriptors:
        raise _invalid("descriptors is empty; expected at least one")
    if len(descriptors) > options.most_descriptors:
        raise _beyond(f"there are {len(descriptors)} descriptors", options.most_descriptors)
    return Call(
        domain,
        tuple([_descriptor(one, n, domain, text, options) for n, one in enumerate(descriptors)]),
        request.hits_addend or None,
    )


def _descriptor(
    one: Any, place: int, domain: str, text: Callable[[Any], str], options: RlsOptions
) -> Descriptor:
    entries = tuple([(text(entry.key), text(entry.value)) for entry in one.entries])
    if len(entries) > options.most_entries:
        raise _beyond(f"descriptors[{place}] has {len(entries)} entries", options.most_entries)
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
    if hits is not None and hits > MOST_HITS:
        if domain != GATEWAY_DOMAIN:
            raise _invalid(
                f"descriptors[{place}].hits_addend is {hits}; it may be {MOST_HITS} at most"
            )
        # An upstream reported a cost of `nan`, as Envoy 1.40 passes it on: it has no hits then, and
        # the other descriptors are charged nevertheless.
        hits = None
    return Descriptor(entries, limit, hits, one.is_negative_hits)


def _limit(limit: Any, place: int) -> Limit:
    unit = _UNIT_NAMES.get(limit.unit)
    if unit is None:
        known = ", ".join(list(UNITS)[1:])
        raise _invalid(f"descriptors[{place}].limit.unit is {limit.unit}; expected one of {known}")
    return Limit(limit.requests_per_unit, unit)


def _invalid(problem: str) -> CallError:
    return CallError(Code.INVALID_ARGUMENT, problem)


def _beyond(problem: str, most: int) -> CallError:
    return CallError(Code.RESOURCE_EXHAUSTED, f"{problem}; at most {most} are read")
