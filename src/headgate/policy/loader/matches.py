"""Reading `match` and `key_by`: which requests a rule is for, and whose counter it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.limits.model import LARGEST_QUOTA
from headgate.policy.conditions import GET, HEAD
from headgate.policy.loader import scalars
from headgate.policy.loader.diagnostics import Scalar, Table, meaning, shown
from headgate.policy.loader.scalars import Fields, entries, several
from headgate.policy.model import (
    BUILT_IN_PARTS,
    GLOBAL,
    After,
    Cost,
    EndpointCost,
    Idempotency,
    Match,
    Values,
)
from headgate.policy.path import compiled
from headgate.units import DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.policy.loader.diagnostics import Findings, Spot
    from headgate.policy.model import Identity


# Patterns of paths: which are well formed, and which of two is the wider one.
#
# `*` is one segment, `**` any number of them, none included.


A_PATTERN: Final = "a path that begins with '/', with * for one segment and ** for any number"

_MOST_SEGMENTS: Final = 64


def pattern(spot: Spot) -> str | None:
    """A well-formed pattern."""
    found = scalars.word(spot, A_PATTERN)
    if found is None:
        return None
    flaw = flaw_of(found)
    if flaw:
        spot.wrong(f"{shown(found)} {flaw[0]}", hint=flaw[1])
        return None
    return found


def flaw_of(found: str) -> tuple[str, str] | None:
    """What is wrong with a pattern, and what would be right."""
    if not found.startswith("/"):
        near = f"/{found}" if found[0] not in "*?#" else f"/{found.lstrip('/')}"
        return "does not begin with '/'", f"did you mean {shown(near)}?"
    if any(letter in found for letter in "?# "):
        return "is not the pattern of a path", "leave out the query, the fragment and all spaces"
    segments = found.split("/")
    if len(segments) > _MOST_SEGMENTS:
        return f"has more than {_MOST_SEGMENTS} segments", ""
    for segment in segments:
        if "*" in segment and segment not in ("*", "**"):
            told = "** stands for whole segments" if "**" in segment else "* stands for a whole one"
            return f"has a wildcard glued to text in {shown(segment)}", f"{told}: /a/*/b, /a/**"
    return None


def covered(patterns: Sequence[str], findings: Findings) -> list[tuple[int, int]]:
    """Which pattern is within another or the same: pairs of their positions, one for each."""
    wild = [n for n, found in enumerate(patterns) if "*" in found]
    parts = [compiled(found).segments for found in patterns]
    lengths = sum(len(parts[n]) + 1 for n in wild) + 1
    if not findings.can_afford(lengths * sum(len(part) + 1 for part in parts) // 4):
        return []
    first: dict[tuple[str, ...], int] = {}
    pairs = []
    for inner, narrow in enumerate(parts):
        same = first.setdefault(narrow, inner)
        wider = (n for n in wild if parts[n] != narrow and is_within(narrow, parts[n]))
        outer = next(wider, None) if same == inner else same
        if outer is not None:
            pairs.append((inner, outer))
    return pairs


def is_within(narrow: tuple[str, ...], wide: tuple[str, ...]) -> bool:
    """Whether *wide* matches all that *narrow* matches, each as its segments."""
    return (not wide or wide[0] in ("*", "**", *narrow[:1])) and _is_within(narrow, wide)


def _is_within(narrow: tuple[str, ...], wide: tuple[str, ...]) -> bool:
    """The same, by the prefixes of *wide*: `reached[n]` says that n segments of it are used up."""
    reached = _closure({0}, wide)
    for segment in narrow:
        if segment == "**":
            reached = {n for n in reached if n < len(wide) and wide[n] == "**"}
        else:
            reached = {
                n if wide[n] == "**" else n + 1
                for n in reached
                if n < len(wide) and wide[n] in ("*", "**", segment)
            }
        reached = _closure(reached, wide)
    return len(wide) in reached


def _closure(reached: set[int], wide: tuple[str, ...]) -> set[int]:
    """*reached*, and what `**` as no segment at all reaches from there."""
    for n in range(len(wide)):
        if n in reached and wide[n] == "**":
            reached.add(n + 1)
    return reached


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


# Reading `cost` and `idempotency`: what a request takes, and how often.


COST_FIELDS: Final = ("default", "endpoints", "header", "max", "after")
AFTER_FIELDS: Final = ("header", "bytes", "per", "max")
IDEMPOTENCY_FIELDS: Final = ("header", "ttl", "retries", "fingerprint")
IDEMPOTENCY_HEADER: Final = Idempotency(DAY).header
MOST_RETRIES: Final = 1000
MOST_FINGERPRINTS: Final = 8


def read_cost(spot: Spot) -> Cost | None:
    """A number, or how to find it."""
    if not isinstance(spot.node, Table):
        constant = _amount(spot)
        return None if constant is None else Cost(constant)
    fields = Fields.of(spot, COST_FIELDS, "the cost")
    if fields is None:
        return None
    _check_header(fields)
    cost = Cost(
        default=fields.read("default", _amount, 1),
        endpoints=fields.read("endpoints", _costs_endpoints, ()),
        header=fields.read("header", scalars.header_name, None),
        most=fields.read("max", _most, None),
        after=fields.read("after", _after, None),
    )
    if cost.most is not None and cost.default > cost.most:
        fields["max"].wrong(f"the default of {cost.default} is above the max of {cost.most}")
    if "after" in fields:
        _check_admission(cost, fields)
    return cost


def _check_header(fields: Fields) -> None:
    """Note a header without a bound, a bound without a header, and a header with `after`."""
    if "after" in fields and "header" in fields:
        told = "header and after exclude each other: a caller who says 0 would pay nothing to enter"
        fields["header"].wrong(told, hint="say with default or endpoints what it takes to enter")
    elif "after" in fields and "max" in fields:
        told = "max is about header, which is not there"
        fields["max"].wrong(told, hint="what is charged afterwards is bounded by max in after")
    elif ("header" in fields) != ("max" in fields):
        given, other = ("header", "max") if "header" in fields else ("max", "header")
        told = f"{given} needs {other}: what a caller says must be bounded"
        fields.spot.missing(other, f"missing; {told}")


def _check_admission(cost: Cost, fields: Fields) -> None:
    """Note what would be let in for nothing: what it has cost afterwards would never stop it."""
    told = "with after it takes at least 1 to enter: who takes nothing is never refused"
    if not cost.default:
        fields["default"].wrong(f"found 0; {told}")
    for one in cost.endpoints:
        if not one.cost:
            fields["endpoints"].wrong(f"found 0 for {_written(one)}; {told}")


def _after(spot: Spot) -> After | None:
    """What a request has cost when it is over."""
    fields = Fields.of(spot, AFTER_FIELDS, "what it costs afterwards")
    if fields is None:
        return None
    found = fields.present(("header", "bytes"))
    if len(found) != 1 and not fields.meant.intersection(("header", "bytes")):
        what = "found both" if found else "found none"
        spot.wrong(f"{what}, expected exactly one of header and bytes")
    fields.read("bytes", _bytes, default=False)
    return After(
        header=fields.read("header", scalars.header_name, None),
        per=fields.read("per", _most, 1),
        most=fields.read("max", _most, None),
    )


def _bytes(spot: Spot) -> bool | None:
    said = scalars.boolean(spot)
    if said is False:
        spot.wrong("found false, expected true", hint="leave after out where nothing is charged")
    return said


def _amount(spot: Spot) -> int | None:
    return scalars.whole(spot, 0, LARGEST_QUOTA)


def _most(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, LARGEST_QUOTA)


def _costs_endpoints(spot: Spot) -> tuple[EndpointCost, ...] | None:
    found = [_endpoint(child) for _, child in entries(spot, "costs of endpoints")]
    costs = tuple(cost for cost in found if cost is not None)
    for first, second in _hidden(costs, spot.findings):
        told = f"{_written(second)} comes after {_written(first)}, which covers it"
        spot.warn(f"{told}: the first that fits counts", hint="put the narrower one first")
    return costs


def requests_for(*methods: str) -> frozenset[str]:
    """The methods of those requests that are meant where *methods* are named: GET is HEAD too."""
    return frozenset((*methods, HEAD) if GET in methods else methods)


def _hidden(
    costs: Sequence[EndpointCost], findings: Findings
) -> list[tuple[EndpointCost, EndpointCost]]:
    """Pairs: a cost, and a later one that is never looked at because of it."""
    pairs = {}
    for asked in dict.fromkeys(cost.method for cost in costs):
        places = [n for n, cost in enumerate(costs) if _is_for(cost, asked)]
        for later, wider in covered([costs[n].endpoint for n in places], findings):
            if wider < later and costs[places[later]].method == asked:
                pairs[places[later]] = costs[places[wider]]
    return [(pairs[later], costs[later]) for later in sorted(pairs)]


def _is_for(cost: EndpointCost, method: str | None) -> bool:
    """Whether *cost* is for all requests of *method*; None: of any."""
    return cost.method is None or method in requests_for(cost.method)


def _written(cost: EndpointCost) -> str:
    return shown(cost.endpoint if cost.method is None else f"{cost.method} {cost.endpoint}")


def _endpoint(spot: Spot) -> EndpointCost | None:
    """The cost under a key such as `/x/*` or `POST /x`."""
    key = spot.of_key()
    written = scalars.word(key, "a path, or a method and a path")
    if written is None:
        return None
    verb, space, path = written.strip().partition(" ")
    wanted = method(key.of_text(verb)) if space else None
    found = pattern(key.of_text(path.strip() if space else verb))
    cost = _amount(spot)
    if found is None or cost is None or (space and wanted is None):
        return None
    return EndpointCost(found, cost, wanted)


def _retries(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, MOST_RETRIES)


def _fingerprint(spot: Spot) -> tuple[str, ...] | None:
    found = several(spot, scalars.header_name, "names of headers")
    if found is not None and len(found) > MOST_FINGERPRINTS:
        spot.wrong(f"{len(found)} headers; expected at most {MOST_FINGERPRINTS}")
        return None
    return found


def read_idempotency(spot: Spot) -> Idempotency | None:
    """Whether and how long a retry is known; None for not at all."""
    if isinstance(spot.node, Scalar) and spot.node.boolean is not None:
        return Idempotency(DAY) if spot.node.boolean else None
    if not isinstance(spot.node, Table):
        spot.expected("true, false or a mapping with header and ttl")
        return None
    fields = Fields.of(spot, IDEMPOTENCY_FIELDS, "idempotency")
    if fields is None:
        return None
    return Idempotency(
        ttl_ns=fields.read("ttl", scalars.duration_ns, DAY),
        header=fields.read("header", scalars.header_name, IDEMPOTENCY_HEADER),
        retries=fields.read("retries", _retries, Idempotency(DAY).retries),
        fingerprint=fields.read("fingerprint", _fingerprint, ()),
    )
