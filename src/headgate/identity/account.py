"""Where the parts of a key come from, in words for people. No secret is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.identity.forwarding import peer_address
from headgate.identity.found import UNKNOWN
from headgate.identity.parts import claim_of, fallback_of
from headgate.identity.spelling import hashed
from headgate.rules.matching import endpoint_of, methods_of, normalised_host
from headgate.rules.model import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.identity.forwarding import Trail
    from headgate.identity.found import Found
    from headgate.identity.parts import Claim
    from headgate.rules.model import Fallback, Identity, Rule, Source

LONGEST_SHOWN: Final = 80
"""Longer values are cut when they are shown."""


def account_of(
    name: str, rule: Rule, found: Found, identity: Identity, trail: Trail, salt: bytes
) -> str:
    """Where the part *name* of the key of *rule* comes from."""
    request = found.request
    if name == GLOBAL:
        return "one counter for everybody"
    if name == "endpoint":
        return _endpoint(endpoint_of(request, rule.match.endpoints), request.path)
    if name == "method":
        return _method(methods_of(request))
    if name == "host":
        return _shown(normalised_host(request.host))
    if name == "ip":
        return _address(found, trail)
    return _claim(claim_of(name, identity), found, identity.fallback, salt)


def _endpoint(endpoint: str | None, path: str) -> str:
    if endpoint is None:
        return f"ambiguous, of the path {_shown(path)}, so all such paths share a counter"
    return f"{_shown(endpoint)}, of the path {_shown(path)}"


def _method(methods: Sequence[str]) -> str:
    counted = _shown(methods[-1])
    return counted if len(methods) == 1 else f"{counted}, as {_shown(methods[0])} counts as it"


def _claim(claim: Claim, found: Found, fallback: Fallback, salt: bytes) -> str:
    place = place_of(claim.source)
    value = claim.value(found)
    state = "is ambiguous" if found.is_ambiguous(claim.source) else "is missing"
    if value is None:
        return f"{place} {state}, so {_stand_in(found, fallback_of(claim.source, found, fallback))}"
    shown = f"{hashed(value, salt)}, a secret" if claim.secret else _shown(value)
    if found.stated(claim.source) is None:
        return f"default = {shown}, as {place} {state}"
    return f"{place} = {shown}"


def shown_claim(claim: Claim, found: Found, salt: bytes) -> str | None:
    """The value of *claim* as people may see it; None if it is missing."""
    value = claim.value(found)
    if value is None or not claim.secret:
        return value if value is None else _cut(value)
    return hashed(value, salt)


def place_of(source: Source) -> str:
    """Where *source* looks, in words."""
    if source.header is not None:
        return f"header {source.header}"
    if source.cookie is not None:
        return f"cookie {source.cookie}"
    if source.attribute is not None:
        return f"attribute {source.attribute}"
    return f"lookup of {source.lookup}"


def _stand_in(found: Found, fallback: Fallback) -> str:
    if fallback == "ip":
        return f"the address {found.ip} stands in"
    if fallback == "shared":
        return "the counter that all such callers share is used"
    return "the rule does not apply"


def _address(found: Found, trail: Trail) -> str:
    address = found.address
    if address is None:
        return f"{UNKNOWN}, as the peer {_shown(found.request.peer)} is no address"
    group = found.ip if found.ip == str(address) else f"{found.ip}, for {address}"
    return f"{group}, {_way(found, trail)}"


def _way(found: Found, trail: Trail) -> str:
    peer = peer_address(found.request)
    sent = bool(found.request.header_lines(trail.header))
    if peer is not None and trail.believes(peer):
        if found.address != peer:
            return f"from {trail.header} of the trusted proxy {peer}"
        why = "has no client's address" if sent else "is missing"
        return f"the peer, though a trusted proxy: {trail.header} {why}"
    if sent:
        return f"the peer; {trail.header} is not believed, as the peer is no trusted proxy"
    return "the peer"


def _shown(value: str) -> str:
    return ascii(_cut(value))


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_SHOWN else value[:LONGEST_SHOWN] + "..."
