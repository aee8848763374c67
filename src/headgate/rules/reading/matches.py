"""Reading `match` and `key_by`: which requests a rule is for, and whose counter it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.rules.model import BUILT_IN_PARTS, GLOBAL, Match, Values
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields, entries, several
from headgate.rules.reading.findings import meaning
from headgate.rules.reading.patterns import A_PATTERN, covered, pattern
from headgate.rules.reading.tree import Scalar, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.rules.model import Identity
    from headgate.rules.reading.findings import Spot

MATCH_FIELDS: Final = ("endpoint", "method", "host", "tier", "headers", "cookies", "attributes")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
PREFIXES: Final = ("header", "cookie", "attribute")
_NOT_A_TYPO: Final = frozenset(("PROPFIND", "PROPPATCH", "MKCOL", "LOCK", "UNLOCK", "QUERY"))

Conditions = tuple[tuple[str, Values], ...]

_LABEL: Final = r"[^\W_](?:[\w-]*[^\W_])?|_[\w-]+"
_HOST: Final = re.compile(
    rf"\*|(?:\*\.)?(?:{_LABEL})(?:\.(?:{_LABEL}))*\.?|\[[0-9a-f:.]+\]|[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*"
)


def read_match(spot: Spot) -> Match | None:
    """The requests that a rule is for; every problem is noted."""
    fields = Fields.of(spot, MATCH_FIELDS, "the requests that the rule is for")
    if fields is None:
        return None
    return Match(
        endpoints=fields.read("endpoint", _endpoints, ()),
        methods=fields.read("method", _methods, ()),
        hosts=fields.read("host", _hosts, ()),
        tiers=fields.read("tier", _tiers, ()),
        headers=fields.read("headers", _conditions(scalars.header_name), ()),
        cookies=fields.read("cookies", _conditions(_cookie_name), ()),
        attributes=fields.read("attributes", _conditions(scalars.word), ()),
    )


def _endpoints(spot: Spot) -> tuple[str, ...] | None:
    found = several(spot, pattern, A_PATTERN)
    if found is not None and len(found) > 1:
        for inner, wider in covered(found, spot.findings):
            spot.warn(f"{shown(found[inner])} is covered by {shown(found[wider])} in the same list")
    return found


def _methods(spot: Spot) -> tuple[str, ...] | None:
    return several(spot, method, "a method")


def method(spot: Spot) -> str | None:
    """A method, in upper case. One that looks like a slip of the pen is warned of."""
    found = scalars.token(spot, "a method such as POST")
    if found is None:
        return None
    name = found.upper()
    if name not in METHODS and name not in _NOT_A_TYPO:
        near = spot.findings.closest(name, METHODS)
        if near is not None:
            spot.warn(f"{shown(name)} is not a usual method", hint=meaning(near))
    return name


def _hosts(spot: Spot) -> tuple[str, ...] | None:
    return several(spot, _host, "a host")


def _host(spot: Spot) -> str | None:
    found = scalars.word(spot, "a host such as api.example.com or *.example.com")
    if found is None:
        return None
    if not _HOST.fullmatch(found.lower()) or len(found) > 253:
        expected = "expected a name such as api.example.com or *.example.com, without a port"
        spot.wrong(f"{shown(found)} is not a host; {expected}")
        return None
    return found.lower()


def _tiers(spot: Spot) -> tuple[str, ...] | None:
    return several(spot, scalars.word, "the name of a tier")


def _cookie_name(spot: Spot) -> str | None:
    return scalars.token(spot, "the name of a cookie")


def _conditions(name_of: Callable[[Spot], str | None]) -> Callable[[Spot], Conditions | None]:
    """A reader of names and the values they may have."""

    def read(spot: Spot) -> Conditions | None:
        found: dict[str, Values] = {}
        for _, child in entries(spot, "names and the values they must have"):
            name = name_of(child.of_key())
            if name is not None and name in found:
                child.wrong(f"{shown(name)} is given twice; case does not matter in it")
            elif name is not None:
                found[name] = _values(child)
        return tuple(found.items())

    return read


def _values(spot: Spot) -> Values:
    """The values that are wanted; None for any."""
    if isinstance(spot.node, Scalar) and spot.node.boolean is True:
        return None
    return several(spot, scalars.word, "a value")


def read_key_by(spot: Spot, identity: Identity) -> tuple[str, ...] | None:
    """The parts of the key, each of them known."""
    found = several(spot, lambda part: _part(part, identity), "what to count by")
    if found is not None and GLOBAL in found and len(found) > 1:
        spot.wrong("global is one counter for everybody; expected it alone, or only the others")
        return None
    return found


def _part(spot: Spot, identity: Identity) -> str | None:
    word = scalars.word(spot, "what to count by, such as ip or api_key")
    if word is None:
        return None
    prefix, colon, name = word.partition(":")
    if colon:
        return _prefixed(spot, prefix, name)
    if word in BUILT_IN_PARTS or word in identity.sources:
        return word
    known = (*identity.sources, *BUILT_IN_PARTS, *(f"{prefix}:NAME" for prefix in PREFIXES))
    spot.not_among(word, known, f"nothing is known as {shown(word)}")
    return None


def _prefixed(spot: Spot, prefix: str, name: str) -> str | None:
    if prefix not in PREFIXES:
        spot.not_among(prefix, PREFIXES, f"{shown(prefix)} is nothing that has names")
        return None
    checked = spot.of_text(name)
    if prefix == "attribute":
        found = scalars.word(checked, "the name of an attribute")
    else:
        found = scalars.token(checked, f"the name of a {prefix}")
    if found is None:
        return None
    return f"{prefix}:{found.lower() if prefix == 'header' else found}"
