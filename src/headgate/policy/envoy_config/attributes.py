"""A descriptor of a request as attributes, so that rules can be about it.

    domain edge, (user, ada), (plan, free)

    domain: edge
    descriptor: user/plan       the keys in their order: a rule can match these and no others
    user: ada
    plan: free

A key that comes again, or that is called like one of the first two, gets a number: `user#2`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.request import NOTHING, Request
from headgate.llm.request import FIELDS, PROMPTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


DOMAIN: Final = "domain"
DESCRIPTOR: Final = "descriptor"


def attributes_of(domain: str, entries: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The attributes of a request for a descriptor with *entries* in *domain*."""
    keys = [key for key, _ in entries]
    values = dict(zip(attribute_names(keys), (value for _, value in entries), strict=True))
    return {DOMAIN: domain, DESCRIPTOR: joined(keys), **values}


def attribute_names(keys: Iterable[str]) -> list[str]:
    """The name of the attribute for each of *keys*; they are all different."""
    taken = {DOMAIN, DESCRIPTOR}
    numbers: dict[str, int] = {}
    names = []
    for key in keys:
        number = numbers.get(key, 1)
        name = key if number == 1 else f"{key}#{number}"
        while name in taken:
            number += 1
            name = f"{key}#{number}"
        numbers[key] = number
        taken.add(name)
        names.append(name)
    return names


def joined(keys: Iterable[str]) -> str:
    """*keys* in one text. A slash within a key, and a backslash, has a backslash before it."""
    return "/".join(key.replace("\\", r"\\").replace("/", r"\/") for key in keys)


# The messages between Headgate's own gateway and the service: names, and their meaning.
#
# Both are written by us, so no client can send any of it: the keys of entries come from the
# configuration that `headgate.gateway` makes.
#
#     RLS, domain `headgate`      one descriptor for a request:
#                                 [decided=a,b] [debug=token] method path host remote_address
#                                 [header ...]
#                                 and for what it has cost, when it is over, one for each such rule:
#                                 report=rule [refused=why] method path host remote_address
#                                 [header ...]
#                                 A refusal has dynamic metadata: refused=why
#                                 If it may be a call of a language model, also fields of its body:
#                                 settles=1 llm.model llm.max_tokens ... llm.bytes
#                                 What is held for it, and its slots, is dynamic metadata:
#                                 reservation=id. When such a request is over, one more descriptor:
#                                 settle=1 method path ... llm.model [reservation] [llm.status]
#                                 [llm.input llm.output llm.cached llm.written llm.extraction]
#     RLQS, domain `headgate`     a bucket for each rule and caller:
#                                 rule=id [remote_address] [method] [host] [header ...]


GATEWAY_DOMAIN: Final = "headgate"

DECIDED: Final = "headgate.decided"
"""The ids of rules, with commas between, that the gateway decides by itself: they do not count."""

DEBUG: Final = "headgate.debug"
"""The client's `Headgate-Debug` header, which requests an explanation of the decision."""

REPORT: Final = "headgate.report"
"""The id of the one rule that is charged what a request has cost, by the hits of its descriptor."""

SETTLES: Final = "headgate.settles"
"""The gateway reports the end of the request, so that an amount or a slot can be held for it."""

SETTLE: Final = "headgate.settle"
"""The request is over: settle what was held for it."""

RESERVATION: Final = "headgate.reservation"
"""The id of what is held for a request, as dynamic metadata of Envoy's filter, and in the report of
its end. No client can see or send it."""

LLM: Final = "headgate.llm."
"""Before the name of a field of a body, or of a figure of the usage, of a language model's call."""

UNREAD: Final = "unread"
"""The field for a body that is no JSON object to Envoy."""

BYTES: Final = "bytes"
"""The field for the size of a body."""

STATUS: Final = "status"
EXTRACTION: Final = "extraction"
COUNTS: Final = ("input", "output", "cached", "written")
"""The figures of a response: its status, how far its usage was read, and the tokens. The input
includes those that a cache had and those that are written to one."""

MODEL_FIELDS: Final = frozenset((*FIELDS, *PROMPTS, UNREAD, BYTES, STATUS, EXTRACTION, *COUNTS))
"""All names that come after `LLM`."""

REFUSED: Final = "headgate.refused"
"""Why a request was refused, as dynamic metadata of Envoy's filter: `LIMIT`, `OUTAGE`, `TOO_LONG`.
Envoy reports the bytes of refusals too; a report with this entry, taken from there, does not count.
And Envoy's status for refusals is one for all: for the last two it is to be changed by this."""

LIMIT: Final = "limit"
OUTAGE: Final = "outage"
TOO_LONG: Final = "path"

RULE: Final = "headgate.rule"
"""The id of the rule that a bucket is of; whether it matches, the gateway has seen to."""

METHOD: Final = "method"
PATH: Final = "path"
HOST: Final = "host"
ADDRESS: Final = "remote_address"


# Descriptors, and the buckets of quotas, as requests: what rules see of them.
#
# What rules can rely on are attributes, as `policy.envoy_config.attributes` has them: the domain,
# the keys in a row, each entry by its key. So that ordinary rules work too,
#
# - `remote_address` and `masked_remote_address` are the address of the caller, `path` (`:path`) its
#   path, `method` (`:method`) its method, `host` (`:authority`) its host;
# - every entry is also a header of that name: an entry `x-api-key` is found where a policy looks
#   for keys. Keys of entries are chosen in the configuration of the gateway, so no client can forge
#   one.
#
# What is missing is not known: a rule for a method is not for a descriptor without one; the path
# of one without is `/`.


Entries = tuple[tuple[str, str], ...]
"""Keys and values, in their order."""

WELL_KNOWN: Final = {
    "remote_address": "peer",
    "masked_remote_address": "peer",
    "path": "path",
    ":path": "path",
    "method": "method",
    ":method": "method",
    "host": "host",
    ":authority": "host",
}


def request_of(domain: str, entries: Entries, more: Mapping[str, str] = NOTHING) -> Request:
    """The request that a descriptor with *entries* in *domain* is to rules; *more* are attributes
    beside those of the entries."""
    keys, values = tuple(zip(*entries, strict=True)) if entries else ((), ())
    shape = _shape(keys)
    attributes = {DOMAIN: domain, DESCRIPTOR: shape.descriptor}
    attributes.update(zip(shape.names, values, strict=True))
    attributes.update(more)
    if not shape.known:
        return Request("", "/", "", entries, "", attributes)
    known = {field: values[place] for field, place in shape.known}
    return Request(
        known.get("method", ""),
        known.get("path", "/").partition("?")[0],
        known.get("host", ""),
        entries,
        known.get("peer", "").partition("/")[0],
        attributes,
    )


class _Shape(NamedTuple):
    """The common part of descriptors with the same keys."""

    descriptor: str
    names: tuple[str, ...]
    known: tuple[tuple[str, int], ...]
    """The fields of a request that are there, with their entries."""


@lru_cache(maxsize=256)
def _shape(keys: tuple[str, ...]) -> _Shape:
    known: dict[str, int] = {}
    for place, key in enumerate(keys):
        field = WELL_KNOWN.get(key)
        if field is not None:
            known.setdefault(field, place)
    return _Shape(joined(keys), tuple(attribute_names(keys)), tuple(known.items()))
