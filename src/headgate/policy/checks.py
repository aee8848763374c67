"""Checks beyond the form of a policy: rules that are well formed, and still impossible (an error)
or pointless (a warning)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from headgate.errors import LimitError
from headgate.limits import (
    Concurrency,
    ConstantLimit,
    LeakyQueue,
    SlidingWindowLog,
    scaled,
    with_extra,
)
from headgate.limits.accuracy import LEAST_CAP
from headgate.policy.conditions import GET, HEAD
from headgate.policy.document import Listing, Scalar, Table
from headgate.policy.fields import FieldError, not_among, warning
from headgate.policy.limit_forms import DEFAULT_TIER
from headgate.policy.model import BY_PRIORITY, PRIORITIES, Match, Pressure, ceiling
from headgate.policy.path import compiled
from headgate.policy.problems import did_you_mean, quoted
from headgate.policy.tables import known_fields

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from fractions import Fraction

    from headgate.engine.plan import Priority
    from headgate.limits import Limit
    from headgate.policy.document import Node
    from headgate.policy.model import (
        After,
        EndpointCost,
        Fair,
        Identity,
        Override,
        Rule,
        Source,
    )
    from headgate.policy.problems import Diagnostics

MAX_LOG: Final = 10_000
"""Above this an exact log is expensive: it keeps every allowed request."""

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
_NOT_A_TYPO: Final = frozenset(("PROPFIND", "PROPPATCH", "MKCOL", "LOCK", "UNLOCK", "QUERY"))
_NOTHING_TO_KEEP: Final = "it has no effect: one slot cannot be reserved in part"
_POINTLESS_WITH_FAIR: Final = {
    "accuracy": "requests wait in a queue of each process",
    "across_regions": "requests wait in a queue of each process",
    "on_store_failure": "requests wait in a queue of each process, without a store",
    "idempotency": "a retry waits as every request does",
    "decide": "requests wait in apps, and gateways do not apply the rule",
    "adaptive": "it has no limits; adaptive slots follow the backend",
}


def check_rule(
    rule: Rule, node: Table, identity: Identity, diagnostics: Diagnostics
) -> Iterator[FieldError]:
    """Impossible or pointless parts of *rule*, which was read from *node*."""
    yield from check_match(rule.match, node.entries.get("match"), diagnostics)
    yield from _check_limits(rule, node)
    yield from _check_money(rule, node)
    yield from _check_cost(rule, node, diagnostics)
    yield from _check_tiers(rule, identity)
    yield from _check_accuracy(rule, node)
    yield from _check_regions(rule, node)
    if rule.fair is not None:
        yield from _check_fair(rule, rule.fair, node, identity)
    else:
        yield from _check_slots(rule, node, identity)
        yield from _check_delays(rule, node)
        yield from _check_floor(rule)
    yield from _check_candidate(rule, node)
    known = _values_of(identity.sources["tier"])
    if rule.match.tiers and known is not None and known.isdisjoint(rule.match.tiers):
        tiers = " or ".join(quoted(tier) for tier in rule.match.tiers[:5])
        yield warning(f"no request can match: no caller is looked up to be {tiers}", "match")
    if rule.mode == "off":
        yield warning("the rule is switched off", "mode")


def check_match(match: Match, node: Node | None, diagnostics: Diagnostics) -> Iterator[FieldError]:
    """Patterns that are covered by others, and methods with a typo, in *match* from *node*."""
    if len(match.endpoints) > 1:
        for inner, wider in covered(match.endpoints, diagnostics):
            narrow, wide = quoted(match.endpoints[inner]), quoted(match.endpoints[wider])
            message = f"{narrow} is covered by {wide} in the same list"
            yield warning(message, "match", "endpoint")
    entries = node.entries if isinstance(node, Table) else {}
    is_list = isinstance(entries.get("method"), Listing)
    for number, method in enumerate(match.methods):
        hint = _typo_hint(method, diagnostics)
        if hint:
            place = ("match", "method", number) if is_list else ("match", "method")
            yield warning(f"{quoted(method)} is not a usual method", *place, hint=hint)


def _typo_hint(method: str, diagnostics: Diagnostics) -> str:
    if method in _METHODS or method in _NOT_A_TYPO:
        return ""
    near = diagnostics.nearest(method, _METHODS)
    return "" if near is None else did_you_mean(near)


def covered(patterns: Sequence[str], diagnostics: Diagnostics) -> list[tuple[int, int]]:
    """Pairs of positions: a pattern, and the first other one that it is within, or equal to."""
    wild = [n for n, found in enumerate(patterns) if "*" in found]
    parts = [compiled(found).segments for found in patterns]
    lengths = sum(len(parts[n]) + 1 for n in wild) + 1
    if not diagnostics.can_afford(lengths * sum(len(part) + 1 for part in parts) // 4):
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
    """True if *wide* matches all that *narrow* matches, each as its segments."""
    if wide and wide[0] not in ("*", "**", *narrow[:1]):
        return False
    reached = _closure({0}, wide)  # how many segments of *wide* are used up
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


def _check_limits(rule: Rule, node: Table) -> Iterator[FieldError]:
    """Logs that are too large, and limits that are given twice."""
    written = node.entries.get("limits")
    is_by_tier = isinstance(written, Table) and "algorithm" not in written.entries
    for tier, limits in rule.limits.items():
        place: tuple[str, ...] = ("limit",) if written is None else ("limits",)
        place += ((DEFAULT_TIER if tier is None else tier),) if is_by_tier else ()
        for limit in limits:
            is_large = isinstance(limit, SlidingWindowLog) and limit.quota > MAX_LOG
            if is_large and rule.cost.llm is None:  # a call of a model is one entry
                message = f"a log of {limit.quota} entries for each key is heavy on memory"
                hint = f"above {MAX_LOG}, sliding_window_counter is almost as exact"
                yield warning(f"{message} and on the store", *place, hint=hint)
        if written is not None and len(set(limits)) < len(limits):
            yield warning("the same limit is given twice", *place)


def _check_money(rule: Rule, node: Table) -> Iterator[FieldError]:
    """Amounts of money that are none, and limits of spend that are no amounts of money."""
    for name in ("limit", "limits"):
        for text in _texts(node.entries.get(name)):
            is_money = "usd" in text.lower()
            if is_money and not rule.counts_spend:
                hint = "add cost: {llm: spend}, or leave usd out"
                yield FieldError("a limit in usd needs a cost in usd", hint=hint, path=(name,))
            elif rule.counts_spend and not is_money and "/" in text:
                message = f"{quoted(text)} counts millionths of a dollar"
                yield warning(message, name, hint="write it in usd, such as 50 usd/day")


def _texts(node: Node | None) -> Iterator[str]:
    """The texts in *node*, however deep."""
    if isinstance(node, Scalar):
        yield node.text
    elif isinstance(node, Listing | Table):
        inner = node.items if isinstance(node, Listing) else node.entries.values()
        for one in inner:
            yield from _texts(one)


def _at(node: Table, *path: str) -> tuple[str, ...]:
    """*path* if *node* has its first field, else the whole of *node*."""
    return path if path[0] in node.entries else ()


def requests_for(*methods: str) -> frozenset[str]:
    """The methods of requests that *methods* stand for: GET is HEAD too."""
    return frozenset((*methods, HEAD) if GET in methods else methods)


def _check_cost(rule: Rule, node: Table, diagnostics: Diagnostics) -> Iterator[FieldError]:
    place, cost = _at(node, "cost"), rule.cost
    fixed = [("a request", cost.default)]
    fixed += [(f"a request to {quoted(one.endpoint)}", one.cost) for one in cost.endpoints]
    highest = max(amount for _, amount in fixed)
    for tier, limits in rule.limits.items():
        uncounted = Concurrency | ConstantLimit  # the cost of a request does not matter to them
        rates = [_largest(limit) for limit in limits if not isinstance(limit, uncounted)]
        if not rates:
            continue
        quota = min(rates)
        who = "" if tier is None else f" in the tier {quoted(tier)}"
        for what, amount in fixed:
            if amount > quota:
                message = f"{what} costs {amount}, above the limit of {quota}{who}"
                hint = f"expected at most {quota}, or a larger limit"
                yield FieldError(f"{message}: it can never pass", hint=hint, path=place)
        if cost.most is not None and cost.most > quota:
            message = f"costs up to {cost.most} are possible, above the limit of {quota}{who}"
            yield warning(message, *place)
    if not highest and cost.header is None and cost.llm is None:
        yield warning(_effect_of_nothing(rule), *place)
    yield from _check_endpoint_costs(rule, diagnostics)
    if cost.after is not None:
        yield from _check_after(rule, cost.after, min(amount for _, amount in fixed))


def _effect_of_nothing(rule: Rule) -> str:
    """The effect of a cost of 0 for every request."""
    if rule.fair is not None:
        return "it has no effect: a request costs at least 1 in a fair queue"
    if all(isinstance(limit, Concurrency) for limit in rule.all_limits):
        return "it has no effect: a request takes one slot, whatever it costs"
    return "every request costs 0: the rule never denies"


def _largest(limit: Limit) -> int:
    """The most that one request may cost; a queue takes more than it lets wait."""
    return limit.largest_cost if isinstance(limit, LeakyQueue) else limit.quota


def _check_after(rule: Rule, after: After, least: int) -> Iterator[FieldError]:
    """Charges afterwards that are impossible or 0; *least* is the least cost in advance."""
    limits = rule.all_limits
    if limits and all(isinstance(limit, Concurrency) for limit in limits):
        message = "nothing can be charged afterwards: the rule has slots only, which are returned"
        hint = "expected a limit with a rate, such as 1000/minute, beside them"
        yield FieldError(message, hint=hint, path=("cost",))
    if after.most is not None and after.most <= least:
        message = (
            f"nothing is ever charged afterwards: at most {after.most}, and {least} in advance"
        )
        hint = "the final cost minus the cost in advance is charged"
        yield warning(message, "cost", hint=hint)


def _check_endpoint_costs(rule: Rule, diagnostics: Diagnostics) -> Iterator[FieldError]:
    methods = requests_for(*rule.match.methods)
    for one in rule.cost.endpoints:
        hint = "" if one.method is None else _typo_hint(one.method, diagnostics)
        if hint:
            message = f"{quoted(one.method or '')} is not a usual method"
            key = f"{one.method} {one.endpoint}"
            yield warning(message, "cost", "endpoints", key, hint=hint)
        if one.method and methods and methods.isdisjoint(requests_for(one.method)):
            message = f"the rule is not for {one.method}: {quoted(one.endpoint)} is never used"
            yield warning(message, "cost")
    for first, second in _hidden(rule.cost.endpoints, diagnostics):
        message = f"{second} comes after {first}, which covers it: the first that fits counts"
        yield warning(message, "cost", "endpoints", hint="put the narrower one first")


def _hidden(
    costs: Sequence[EndpointCost], diagnostics: Diagnostics
) -> list[tuple[EndpointCost, EndpointCost]]:
    """Pairs: a cost, and a later one that is never used because of it."""
    pairs = {}
    for method in dict.fromkeys(cost.method for cost in costs):
        places = [n for n, cost in enumerate(costs) if _is_for(cost, method)]
        for later, wider in covered([costs[n].endpoint for n in places], diagnostics):
            if wider < later and costs[places[later]].method == method:
                pairs[places[later]] = costs[places[wider]]
    return [(pairs[later], costs[later]) for later in sorted(pairs)]


def _is_for(cost: EndpointCost, method: str | None) -> bool:
    """True if *cost* is for all requests of *method*; None: of any."""
    return cost.method is None or method in requests_for(cost.method)


def _check_tiers(rule: Rule, identity: Identity) -> Iterator[FieldError]:
    """Tiers that the rule is for without a limit, and limits of other tiers."""
    if rule.fair is not None or (None in rule.limits and len(rule.limits) == 1):
        return
    tiers = dict.fromkeys(rule.match.tiers)
    unlimited = [tier for tier in tiers if tier not in rule.limits and None not in rule.limits]
    if tiers and len(unlimited) == len(tiers):
        yield FieldError("there is no limit for any tier that the rule is for", path=("limits",))
        return
    known = _values_of(identity.sources["tier"])
    if not tiers and None not in rule.limits and (known is None or known - rule.limits.keys()):
        message = "callers of any other tier, or of none, are not limited"
        yield warning(message, "limits", hint="add a default")
    for tier in unlimited:
        message = f"the tier {quoted(tier)} is in match, and has no limit"
        yield warning(message, "limits", hint="add it, or a default")
    for named in rule.limits:
        if tiers and named is not None and named not in tiers:
            message = f"the rule is not for the tier {quoted(named)} in its limits"
            yield warning(message, "limits")


def _values_of(source: Source) -> set[str | None] | None:
    """The values that *source* can have; None if callers choose them."""
    return None if source.lookup is None else {*source.values.values(), source.default}


def _check_accuracy(rule: Rule, node: Table) -> Iterator[FieldError]:
    """An accuracy without anything to lease, or a split that makes a limit coarse."""
    limits = rule.all_limits
    rates = [limit for limit in limits if limit.is_divisible]
    if limits and not rates and "accuracy" in node.entries:
        yield warning(f"it has no effect: {_indivisible(limits)} exactly", "accuracy")
    if not rates:
        return
    largest = max(limit.quota for limit in rates)
    cap = rule.accuracy.cap(largest)
    if cap is not None and cap < LEAST_CAP:
        message = f"of the limit of {largest} that is {cap}: too little to take in advance"
        hint = "it is kept exactly; allow more, or leave it out"
        yield warning(message, "accuracy", hint=hint)
    if rule.accuracy.split > 1:
        yield _split(rule.accuracy.split, min(limit.quota for limit in rates))


def _split(parts: int, smallest: int) -> FieldError:
    """The effect of a split on the *smallest* limit of a rule."""
    hint = "use max_overshoot or batch instead unless one key is too hot for one shard"
    if smallest < parts:
        message = f"a limit of {smallest} is not split: it has fewer units than the {parts} parts"
        return warning(message, "accuracy", hint=hint)
    message = (
        f"each request sees one of {parts} counters with {smallest // parts} of {smallest} units: "
        "it may be denied while the others have units, a larger cost never fits, and remaining "
        "is that of the one counter"
    )
    return warning(message, "accuracy", hint=hint)


def _indivisible(limits: Sequence[Limit]) -> str:
    """The reason why *limits* are kept by the store alone."""
    has_slots = any(isinstance(limit, Concurrency) for limit in limits)
    has_queue = any(isinstance(limit, LeakyQueue) for limit in limits)
    kinds = " and ".join([*(["slots"] if has_slots else []), *(["queues"] if has_queue else [])])
    if not kinds:
        return "limits without a counter are always kept"
    return f"{kinds} are always given"


def _check_regions(rule: Rule, node: Table) -> Iterator[FieldError]:
    """Rules across regions without anything to exchange."""
    limits = rule.all_limits
    if not rule.across_regions and "max_region_debt" in node.entries:
        yield warning("it has no effect without across_regions: true", "max_region_debt")
    if not rule.across_regions or not limits:
        return
    if not any(limit.is_divisible for limit in limits):
        message = f"it has no effect: {_indivisible(limits)} in each region alone"
        yield warning(message, "across_regions")
    elif rule.decide == "local":
        message = "gateways that decide by themselves report nothing of what they allow"
        yield warning(message, "across_regions", hint="expected decide: exact or quota with it")


def _check_fair(rule: Rule, fair: Fair, node: Table, identity: Identity) -> Iterator[FieldError]:
    for name, reason in _POINTLESS_WITH_FAIR.items():
        if name in node.entries:
            yield warning(f"it has no effect: {reason}", name)
    if rule.mode == "shadow":
        message = "it switches the rule off: in shadow no request waits"
        yield warning(message, "mode")
    if rule.cost.after is not None:
        message = "nothing can be charged afterwards: the request has left the queue by then"
        yield FieldError(message, hint="expected a rule of its own, with a limit", path=("cost",))
    written = node.entries.get("fair")
    inside = written.entries if isinstance(written, Table) else {}
    if fair.queue == 0 and fair.max_wait_ns and "max_wait" in inside:
        yield warning("it has no effect: with a queue of 0 no request waits", "fair", "max_wait")
    if fair.reserve and fair.most_slots == 1:
        yield warning(_NOTHING_TO_KEEP, "fair", "reserve")
    yield from _check_weights(rule, fair, identity)


def _check_weights(rule: Rule, fair: Fair, identity: Identity) -> Iterator[FieldError]:
    """Weights of tiers that no caller has."""
    known = _values_of(identity.sources["tier"])
    for tier in fair.weights:
        if tier is None:
            continue
        if rule.match.tiers and tier not in rule.match.tiers:
            message = f"the rule is not for the tier {quoted(tier)} in its weights"
            yield warning(message, "fair", "weights")
        elif known is not None and tier not in known:
            message = f"no caller is looked up to be {quoted(tier)}, which has a weight"
            yield warning(message, "fair", "weights")


def _check_slots(rule: Rule, node: Table, identity: Identity) -> Iterator[FieldError]:
    """Reserves and shares that do not fit the slots of a rule."""
    slots = [limit for limit in rule.all_limits if isinstance(limit, Concurrency)]
    if rule.reserve and not slots:
        message = "needs slots, and the rule has none"
        yield FieldError(message, hint="expected concurrency, or no reserve", path=("reserve",))
    for limit in slots:
        yield from _check_reserve(rule, limit, _of_slots(node, "reserve"))
    named = dict.fromkeys(name for limit in slots for name, _ in limit.shares)
    if rule.share_by is not None:
        place = _of_slots(node, "share_by")
        yield from (error.under(*place) for error in _check_shares(rule.share_by, named, identity))
    elif named:
        message = "missing; expected what shares go by: priority, tier or a name in identity"
        yield FieldError(message, path=(*_at(node, "concurrency"), "share_by"))


def _of_slots(node: Table, name: str) -> tuple[str, ...]:
    """The place of a field about slots."""
    return (name,) if name in node.entries else ("concurrency", name)


def _check_reserve(rule: Rule, limit: Concurrency, place: tuple[str, ...]) -> Iterator[FieldError]:
    """A reserve that leaves less than is guaranteed."""
    guaranteed = sum(slots for _, slots in limit.shares)
    left = ceiling(limit.limit, rule.reserve, PRIORITIES[-1])
    if rule.reserve and limit.limit == 1:
        yield warning(_NOTHING_TO_KEEP, *place)
    if rule.reserve and guaranteed > left:
        message = f"the reserve leaves {left} of {limit.limit} slots, and {guaranteed} are"
        hint = "shares come first: expected smaller ones, or a smaller reserve"
        yield warning(f"{message} guaranteed", *place, hint=hint)


def _check_shares(share_by: str, named: Iterable[str], identity: Identity) -> Iterator[FieldError]:
    """Shares of callers that do not exist."""
    names = tuple(named)
    if not names:
        yield warning("it has no effect: there are no shares")
    elif share_by == BY_PRIORITY:
        for name in names:
            if name not in PRIORITIES:
                message = f"there is no class {quoted(name)} for a share"
                yield not_among(name, PRIORITIES, message)
    else:
        if DEFAULT_TIER in names:
            message = f"{quoted(DEFAULT_TIER)} cannot have a share: other callers use what is free"
            yield FieldError(message, hint="leave it out, or rename the value")
        known = _values_of(identity.sources[share_by])
        for name in names:
            if known is not None and name not in known:
                yield warning(f"no caller is looked up to be {quoted(name)}, which has a share")


def _check_delays(rule: Rule, node: Table) -> Iterator[FieldError]:
    queues = [limit for limit in rule.all_limits if isinstance(limit, LeakyQueue)]
    if queues and rule.idempotency is not None:
        message = "a retry waits as every request does"
        yield warning(f"it has no effect where there is a queue: {message}", "idempotency")
    if queues and rule.decide in ("quota", "local"):
        message = "gateways cannot delay: there the rule is decided by the service, as a meter"
        hint = "expected exact, or nothing"
        yield warning(f"it has no effect: {message}", "decide", hint=hint)
    for queue in queues:
        if queue.quota == 1 and queue.queue:
            message = f"no request ever waits: at {queue.rate} a second a place takes longer than"
            hint = "expected a longer max_wait, or a queue of 0"
            yield warning(f"{message} max_wait", *_at(node, "shape"), hint=hint)


def _check_floor(rule: Rule) -> Iterator[FieldError]:
    """Requests that cannot pass where limits are lowered most."""
    floor: Fraction | None = rule.floor
    if not floor:
        return
    if floor == 1:
        yield warning("it has no effect: the limits are never lowered", "adaptive", "floor")
    highest = max(rule.cost.default, *(one.cost for one in rule.cost.endpoints), 0)
    for limit in rule.all_limits:
        if isinstance(limit, Concurrency | LeakyQueue):
            continue
        left = scaled(limit, floor).quota
        if left < highest <= limit.quota:
            message = f"at the floor {left} of {limit.quota} are left: a request that costs"
            hint = "expected a higher floor, or a limit with a larger burst"
            yield warning(f"{message} {highest} cannot pass then", "adaptive", "floor", hint=hint)
            return


def _check_candidate(rule: Rule, node: Table) -> Iterator[FieldError]:
    """A candidate that cannot be tried, whatever the other rules are."""
    if rule.candidate_of is None:
        return
    if rule.mode == "enforce":
        message = "a candidate decides nothing, and this rule is in mode enforce"
        hint = "expected mode: shadow with candidate_of; adopt it to have it decide"
        yield FieldError(message, hint=hint, path=_at(node, "mode"))
    if rule.candidate_of == rule.id:
        hint = "expected the id of the rule that it may replace"
        yield FieldError("the rule names itself", hint=hint, path=("candidate_of",))
    if rule.fair is not None:
        message = "a fair queue cannot be a candidate: in shadow no request waits, and nothing is"
        hint = "expected limits, or a rule that is no candidate"
        yield FieldError(f"{message} compared", hint=hint, path=("fair",))


def check_override(override: Override, rule: Rule | None) -> Iterator[FieldError]:
    """Impossible or pointless parts of *override* of *rule*."""
    if rule is None:
        return
    if rule.fair is not None:
        yield warning(f"it has no effect: the rule {quoted(rule.id)} has a queue and no counters")
    extra = override.extra
    for limit in rule.all_limits:
        try:
            larger = with_extra(limit, extra)
        except LimitError as error:
            yield FieldError(f"{limit} cannot be larger by {extra}: {error}", path=("extra",))
            return
        if extra and larger.quota == limit.quota:
            message = f"it has no effect on {limit}: it has no counter"
            if isinstance(limit, LeakyQueue):
                message = f"it has no effect on {limit}: the queue is longer, and no request waits"
                message += " longer"
            yield warning(message, "extra")


def check_pressure(node: Table) -> Iterator[FieldError]:
    """Signs of pressure that are missing."""
    known = {one for one in known_fields(Pressure).names if one in node.entries}
    if known and not known & {"latency", "errors", "queue"}:
        message = "it has no sign of pressure: only a signal of the app itself can lower limits"
        yield warning(message, hint="expected latency, errors or queue; {} if that is meant")
    elif "quantile" in known and "latency" not in known:
        message = "it has no effect without latency"
        yield warning(message, "quantile")


def check_together(
    rules: Sequence[Rule], pressure: Pressure | None, *, has_classes: bool, has_pressure: bool
) -> Iterator[FieldError]:
    """Priorities and pressure that no rule uses; paths begin with `priority` or `pressure`."""
    if has_pressure and not any(rule.floor is not None and rule.fair is None for rule in rules):
        message = "it has no effect: no rule has a floor"
        hint = "expected such as adaptive: {floor: 20%} in a rule"
        yield warning(message, "pressure", hint=hint)
    is_queued = pressure is not None and pressure.queue is not None
    if is_queued and all(rule.fair is None for rule in rules):
        message = "it has no effect: it is about requests in fair queues, and no rule has fair"
        hint = "expected a rule with fair, or no queue"
        yield warning(message, "pressure", "queue", hint=hint)
    if has_classes and not any(rule.uses_priorities for rule in rules):
        message = "no rule uses it: none has a reserve, a fair queue, or shares by priority"
        hint = "expected such as reserve: {critical: 20%} in a rule, unless it is for a LoadShedder"
        yield warning(message, "priority", hint=hint)


def unmet_needs(rule: Rule, classes: Container[str], *, has_pressure: bool) -> Iterator[FieldError]:
    """Missing parts of the policy that *rule* relies on; *classes* are those of requests."""
    if rule.floor is not None and rule.fair is None and not has_pressure:
        yield warning("its floor has no effect: the policy has no pressure at the top level")
    reserved: Iterable[Priority] = rule.reserve if rule.fair is None else rule.fair.reserve
    for kind in reserved:
        if kind not in classes:
            yield warning(f"it reserves something for {kind} requests, and priority names none")


def check_pair(rule: Rule, live: Rule, first: dict[str, str]) -> Iterator[FieldError]:
    """Problems of *rule* as a candidate of *live*; *first* has the candidates seen so far."""
    if live.candidate_of is not None:
        message = (
            f"the rule {quoted(live.id)} is a candidate itself, of {quoted(live.candidate_of)}"
        )
        yield FieldError(message, hint="expected a rule that is none")
        return
    other = first.setdefault(live.id, rule.id)
    if other != rule.id:
        message = f"the rule {quoted(live.id)} has a candidate already, {quoted(other)}"
        hint = "expected one for each rule; compare others one after the other"
        yield FieldError(message, hint=hint)
    elif live.fair is not None:
        message = (
            f"requests under {quoted(live.id)} wait in a queue: there is nothing to compare with"
        )
        yield warning(message)
    elif live.mode == "off" and rule.mode != "off":
        yield warning(f"the rule {quoted(live.id)} is off: there is nothing to compare with")
    elif _content(live) == _content(rule):
        yield warning(f"it is equal to the rule {quoted(live.id)}: there is nothing to compare")


def _content(rule: Rule) -> Mapping[str, object]:
    aside = ("id", "mode", "description", "candidate_of")
    return {one.name: getattr(rule, one.name) for one in fields(rule) if one.name not in aside}


def twin_key(rule: Rule) -> object:
    """Equal for rules that count the same requests against the same limits."""
    same = (rule.match, frozenset(rule.key_by), frozenset(rule.limits.items()), rule.mode)
    return (*same, rule.cost, repr((rule.fair, rule.reserve, rule.share_by)))
