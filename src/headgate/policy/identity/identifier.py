"""The caller of a request, and the key of its counter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.policy.conditions import (
    BLANKS,
    TIER,
    cookie_readings,
    header_readings,
    host_readings,
    methods_of,
)
from headgate.policy.identity.address import Trail, peer_address
from headgate.policy.identity.parts import claim_of, hashed, joined, part_of, source_named
from headgate.policy.model import BUILT_IN_PARTS, GLOBAL
from headgate.policy.path import endpoints_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.engine.request import Request
    from headgate.policy.identity.address import Address
    from headgate.policy.identity.parts import Claim, Part
    from headgate.policy.model import Fallback, Identity, Rule, Source


# The caller of a request.


UNKNOWN: Final = "unknown"
"""The address of all callers that have none, together."""

MOST_READINGS: Final = 64
"""A request whose key can be read in more ways is denied: no app's users send such ones."""

_BLANKS: Final = " \t"

Place = tuple[str, str] | tuple[str, tuple[str, ...]]
"""Where a value is: `header` or `cookie`, and its name; `endpoint`, and what the rule is for; or
`HOST_PLACE`."""

HOST_PLACE: Final[Place] = ("host", "")

Chosen = dict[Place, tuple[str | None, ...]]
"""The values that are read at places."""


class Found(Mapping[str, str | None]):
    """The value of every source of an identity, by name; None for what is missing.

    Each is read on first use. Values are as they came, secrets too, and as long as
    the server let them be: they are for comparing, not for showing.

    Apps read some requests differently: see `readings`. Where the parser of the app is not known,
    this is one reading, with *chosen* values.
    """

    __slots__ = ("_chosen", "_identity", "_ip", "_trail", "_values", "part_texts", "request")

    def __init__(
        self,
        request: Request,
        identity: Identity,
        trail: Trail,
        chosen: Chosen | None = None,
    ) -> None:
        self._chosen: Final = {} if chosen is None else chosen
        self.request: Final = request
        self.part_texts: Final[dict[str, str | None]] = {}
        self._identity = identity
        self._trail = trail
        self._values: dict[str, str | None] = {}
        self._ip: str | None = None

    def __getitem__(self, name: str) -> str | None:
        values = self._values
        if name in values:
            return values[name]
        source = self._identity.sources[name]
        header = source.header
        if header is None:
            value = self.value(source)
        else:  # the common case, without two calls
            value = self._values_at(("header", header))[0] or source.default
        values[name] = value
        return value

    # The one of `Mapping` takes any type of default, and three times as long.
    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return self[name] if name in self._identity.sources else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._identity.sources)

    def __len__(self) -> int:
        return len(self._identity.sources)

    def __repr__(self) -> str:
        return f"Found({', '.join(self)})"  # no values: there may be secrets among them

    @property
    def address(self) -> Address | None:
        """The address of the client, as far as it is sure."""
        return self._trail.client(self.request)

    @property
    def ip(self) -> str:
        """The addresses that count as one caller with this one, as text; `UNKNOWN` for none."""
        found = self._ip
        if found is None:
            found = self._ip = self._trail.client_key(self.request) or UNKNOWN
        return found

    def value(self, source: Source) -> str | None:
        """The value of *source*, else its default."""
        stated = self.stated(source)
        return source.default if stated is None else stated

    def stated(self, source: Source) -> str | None:
        """The value of the request itself where *source* looks; None if it is missing or empty."""
        place = place_of(source)
        if place is not None:
            return self._values_at(place)[0]
        if source.attribute is not None:
            return self.request.attributes.get(source.attribute) or None
        other = None if source.lookup is None else self[source.lookup]
        return None if other is None else source.values.get(other)

    def endpoint(self, request: Request, endpoints: tuple[str, ...]) -> str:
        """The route of *request*, or its path, for a rule for *endpoints*.

        *request* is another one where the caller is asked about and not its request.
        """
        if request is not self.request:
            return endpoints_of(request, endpoints)[0]
        return self._values_at(("endpoint", endpoints))[0] or ""

    @property
    def host(self) -> str:
        """The host of the request, in one spelling."""
        return self._values_at(HOST_PLACE)[0] or ""

    def readings(self, places: Sequence[Place]) -> tuple[Found, ...]:
        """The caller in each way in which apps may read the values at *places*; () if there is only
        one. An app is counted on to read a request like one of them, whichever that is.

        Raises `AmbiguityError` for more than `MOST_READINGS`.
        """
        for place in places:
            if len(self._values_at(place)) > 1:
                break
        else:
            return ()
        rows = list(map(self._values_at, places))
        if prod(map(len, rows)) > MOST_READINGS:
            raise AmbiguityError
        found = []
        for row in product(*rows):
            chosen: Chosen = {place: (value,) for place, value in zip(places, row, strict=True)}
            found.append(Found(self.request, self._identity, self._trail, chosen))
        return tuple(found)

    def _values_at(self, place: Place) -> tuple[str | None, ...]:
        values = self._chosen.get(place)
        if values is None:
            values = self._chosen[place] = values_at(self.request, place)
        return values


class AmbiguityError(Exception):
    """A key of a request can be read in too many ways."""


def values_at(request: Request, place: Place) -> tuple[str | None, ...]:
    """The values that apps may read at *place*; only one if it is known how the app reads it."""
    kind, name = place
    if not isinstance(name, str):
        return endpoints_of(request, name)
    if kind == "host":
        return host_readings(request.host)
    if kind == "cookie":
        cookies = request.cookies()
        return cookie_readings(request, name) if cookies is None else (cookies.get(name) or None,)
    if request.knows_headers:
        values: tuple[str | None, ...]
        values = ((request.header(name) or "").strip(_BLANKS) or None,)
    else:
        values = header_readings(request, name)
    return tuple(map(_credentials, values)) if name in WITH_SCHEME else values


_BLANK_RUN: Final = re.compile(rf"[{BLANKS}]+")

WITH_SCHEME: Final = frozenset({"authorization", "proxy-authorization"})
"""Headers that begin with a scheme, in any case (RFC 9110, 11.1)."""


def _credentials(value: str | None) -> str | None:
    """*value* in the one spelling of its scheme and of blanks; a token without a scheme stays."""
    if value is None:
        return None
    scheme, _, rest = _BLANK_RUN.sub(" ", value).strip().partition(" ")
    return f"{scheme.capitalize()} {rest}" if rest else scheme


def place_of(source: Source) -> Place | None:
    """Where *source* looks; None if that is no header or cookie."""
    if source.header is not None:
        return "header", source.header
    return None if source.cookie is None else ("cookie", source.cookie)


# Where the parts of a key come from, in words for people. No secret is shown.


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
        endpoint = found.endpoint(request, rule.match.endpoints)
        return f"{_shown(endpoint)}, of the path {_shown(request.path)}"
    if name == "method":
        return _method(methods_of(request))
    if name == "host":
        return _shown(found.host)
    if name == "ip":
        return _address(found, trail)
    return _claim(claim_of(name, identity), found, identity.fallback, salt)


def _method(methods: Sequence[str]) -> str:
    counted = _shown(methods[-1])
    return counted if len(methods) == 1 else f"{counted}, as {_shown(methods[0])} counts as it"


def _claim(claim: Claim, found: Found, fallback: Fallback, salt: bytes) -> str:
    place = described(claim.source)
    value = claim.value(found)
    if value is None:
        return f"{place} is missing, so {_stand_in(found, fallback)}"
    shown = f"{hashed(value, salt)}, a secret" if claim.secret else _shown(value)
    if found.stated(claim.source) is None:
        return f"default = {shown}, as {place} is missing"
    return f"{place} = {shown}"


def described(source: Source) -> str:
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
    return f"{group}, {_origin(found, trail)}"


def _origin(found: Found, trail: Trail) -> str:
    peer = peer_address(found.request)
    sent = bool(found.request.header_lines(trail.header))
    if peer is not None and trail.trusts(peer):
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


class Identifier:
    """Identifies callers by *identity*, and names their counters.

    *salt* is the key that secrets are hashed with: the same on all nodes of a fleet, and secret
    itself. Safe to use from several threads. Raises `OptionError` for a lookup without an end.
    """

    __slots__ = ("_identity", "_salt", "_trail")

    def __init__(self, identity: Identity, *, salt: bytes = b"") -> None:
        for name in identity.sources:
            _check_lookups(name, identity.sources)
        self._identity = identity
        self._salt = salt
        self._trail = Trail(identity.address)

    def find(self, request: Request) -> Found:
        """The caller of *request*; its values are read on first use."""
        return Found(request, self._identity, self._trail)

    def key(self, rule: Rule, request: Request, found: Found) -> str | None:
        """The key of the counter of *rule* for *request*; None if the rule does not apply.

        *found* is what `find` gave for this request. The key is printable ASCII, at most some 150
        bytes a part, and different callers never share one. Raises `OptionError` for a `key_by`
        that the identity does not know.
        """
        return self.prepare(rule)(request, found)

    def account(self, rule: Rule, request: Request) -> list[str]:
        """Where each part of the key of *rule* comes from, in words; secrets only hashed.

        Where apps may read it differently, each reading is counted, and has lines of its own.
        """
        found = self.find(request)
        try:
            readings = found.readings(self.places(rule)) or (found,)
        except AmbiguityError:
            return [f"more than {MOST_READINGS} readings, so the rule denies the request"]
        lines = [
            f"{name}: {account_of(name, rule, one, self._identity, self._trail, self._salt)}"
            for one in readings
            for name in rule.key_by
        ]
        return list(dict.fromkeys(lines))

    def places(self, rule: Rule) -> tuple[Place, ...]:
        """The inputs of the key and of the tier of *rule* that apps may read differently."""
        names = [name for name in rule.key_by if name not in BUILT_IN_PARTS]
        if any(tier is not None for tier in rule.limits):
            names.append(TIER)
        places = self._places_of(names)
        if "host" in rule.key_by:
            places = (*places, HOST_PLACE)
        is_endpoint = "endpoint" in rule.key_by
        return (*places, ("endpoint", rule.match.endpoints)) if is_endpoint else places

    def _places_of(self, names: Iterable[str]) -> tuple[Place, ...]:
        sources = self._identity.sources
        found: dict[Place, None] = {}
        for name in names:
            source = sources.get(name) or source_named(name)
            while source.lookup is not None:
                source = sources[source.lookup]
            if (place := place_of(source)) is not None:
                found[place] = None
        return tuple(found)

    @property
    def tier_places(self) -> tuple[Place, ...]:
        """The header or cookie that the tier of callers depends on."""
        return self._places_of((TIER,))

    def shown(self, request: Request) -> dict[str, str | None]:
        """The caller of *request*, by the names of the sources and `ip`, as people may
        see it: secrets only hashed, long values cut; None for what is missing."""
        found = self.find(request)
        shown: dict[str, str | None] = {"ip": found.ip}
        for name, value in found.items():
            if value is None:
                shown[name] = None
            elif claim_of(name, self._identity).secret:
                shown[name] = hashed(value, self._salt)
            else:
                shown[name] = _cut(value)
        return shown

    def prepare(self, rule: Rule) -> Part:
        """A function that makes the keys of *rule*, as `key` does; `OptionError` if it counts by an
        unknown part."""
        if not rule.key_by:
            raise OptionError(f"rule {rule.id!r} counts by nothing; one for everybody is 'global'")
        endpoints = rule.match.endpoints if "endpoint" in rule.key_by else ()
        parts = tuple(part_of(name, self._identity, self._salt, endpoints) for name in rule.key_by)
        return parts[0] if len(parts) == 1 else joined(parts)


def _check_lookups(name: str, sources: Mapping[str, Source]) -> None:
    names = [name]
    while (following := sources[names[-1]].lookup) is not None:
        if following not in sources:
            raise OptionError(f"identity.{names[-1]} looks up {following!r}, which is no source")
        if following in names:
            raise OptionError(f"identity.{names[-1]} looks itself up: {' -> '.join(names)}")
        names.append(following)
