"""Descriptors, and the buckets of quotas, as requests: what rules see of them.

What rules can rely on are attributes, as `rules.envoy.attributes` has them: the domain, the keys in
a row, each entry by its key. So that ordinary rules work too,

- `remote_address` and `masked_remote_address` are the address of the caller, `path` (`:path`) its
  path, `method` (`:method`) its method, `host` (`:authority`) its host;
- every entry is also a header of that name: an entry `x-api-key` is found where a policy looks for
  keys. Keys of entries are chosen by whoever configures the gateway, so no client can forge one.

What is not said, nobody knows: a rule for a method is not for a descriptor without one; the path of
one without is `/`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from headgate.rules.envoy.attributes import DESCRIPTOR, DOMAIN, attribute_names, joined
from headgate.rules.request import Request

Entries = tuple[tuple[str, str], ...]
"""Keys and values, in their order."""

_WELL_KNOWN: Final = {
    "remote_address": "peer",
    "masked_remote_address": "peer",
    "path": "path",
    ":path": "path",
    "method": "method",
    ":method": "method",
    "host": "host",
    ":authority": "host",
}


def request_of(domain: str, entries: Entries) -> Request:
    """The request that a descriptor with *entries* in *domain* is to rules."""
    keys, values = tuple(zip(*entries, strict=True)) if entries else ((), ())
    shape = _shape(keys)
    attributes = {DOMAIN: domain, DESCRIPTOR: shape.descriptor}
    attributes.update(zip(shape.names, values, strict=True))
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
    """What descriptors with the same keys have in common."""

    descriptor: str
    names: tuple[str, ...]
    known: tuple[tuple[str, int], ...]
    """Which of a request's fields there are, and in which entry."""


@lru_cache(maxsize=256)
def _shape(keys: tuple[str, ...]) -> _Shape:
    known: dict[str, int] = {}
    for place, key in enumerate(keys):
        field = _WELL_KNOWN.get(key)
        if field is not None:
            known.setdefault(field, place)
    return _Shape(joined(keys), tuple(attribute_names(keys)), tuple(known.items()))
