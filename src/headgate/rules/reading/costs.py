"""Reading `cost` and `idempotency`: what a request takes, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.limits.model import LARGEST_QUOTA
from headgate.rules.matching.method import GET, HEAD
from headgate.rules.model import After, Cost, EndpointCost, Idempotency
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields, entries
from headgate.rules.reading.matches import method
from headgate.rules.reading.patterns import covered, pattern
from headgate.rules.reading.tree import Scalar, Table, shown
from headgate.units import DAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.rules.reading.findings import Findings, Spot

COST_FIELDS: Final = ("default", "endpoints", "header", "max", "after")
AFTER_FIELDS: Final = ("header", "bytes", "per", "max")
IDEMPOTENCY_FIELDS: Final = ("header", "ttl")
IDEMPOTENCY_HEADER: Final = Idempotency(DAY).header


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
        endpoints=fields.read("endpoints", _endpoints, ()),
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


def _endpoints(spot: Spot) -> tuple[EndpointCost, ...] | None:
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
    )
