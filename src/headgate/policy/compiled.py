"""From a request to a plan: the rules that match, their keys, limits and costs.

A compiled policy never changes; a new policy is compiled again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.decision import PATH
from headgate.engine.plan import (
    NOTHING_OPEN,
    Block,
    CompiledRule,
    Marker,
    Plan,
    Queueing,
    RulePlan,
    checks_on,
    plan_rule,
)
from headgate.engine.request import Request
from headgate.errors import LimitError, OptionError, UsageError
from headgate.limits import (
    EXACT,
    Concurrency,
    DenyAll,
    LeakyQueue,
    SlidingWindowLog,
    TokenBucket,
    with_extra,
)
from headgate.llm.amounts import estimate
from headgate.llm.attributes import request_of
from headgate.llm.prices import Prices
from headgate.policy.conditions import cost_of, may_call_model
from headgate.policy.identity import AmbiguityError, Identifier
from headgate.policy.limit_adjustment import LimitAdjustment, Scale
from headgate.policy.matcher import (
    CallerMatcher,
    Classifier,
    Matcher,
    only_endpoint,
    only_method,
)
from headgate.policy.model import Policy, compiled_rule
from headgate.policy.path import LONGEST, ROUTE, normalised_path
from headgate.policy.plan_cache import PlanCache, reads_of
from headgate.stores.base import checked_cost, group_name, groups_of
from headgate.stores.operations import Check
from headgate.units import SECOND, plain_seconds

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from headgate.clock import Clock
    from headgate.engine.plan import Priority
    from headgate.limits import Accuracy, Limit
    from headgate.policy.identity import Found
    from headgate.policy.model import (
        ModelCost,
        Override,
        Rule,
    )
    from headgate.stores.base import Accuracies

    Limits = tuple[Limit, ...]


# The parts of a rule that are the same for all requests: counters, key, cost.


MAX_COSTS: Final = 1024
"""Endpoints whose cost is cached."""

MAX_PATH: Final = 256
"""The longest path whose cost is cached."""


class Layout(NamedTuple):
    """The *limits* of a rule for some callers, and the groups of their counters."""

    limits: tuple[Limit, ...]
    groups: tuple[str, ...]
    has_slots: bool
    has_queue: bool


class PreparedRule:
    """A *rule*, prepared for requests."""

    __slots__ = (
        "_adjustment",
        "_by_tier",
        "_cost",
        "_costs",
        "_for_all",
        "_namespace",
        "_places",
        "_prices",
        "compiled",
        "has_slots",
        "key_of",
        "rule",
    )

    def __init__(
        self,
        rule: Rule,
        identifier: Identifier,
        namespace: str,
        scale: Scale,
        prices: Prices | None = None,
    ) -> None:
        self.rule = rule
        self.compiled = compiled_rule(rule, prices)
        self._adjustment = LimitAdjustment(rule, scale) if LimitAdjustment.concerns(rule) else None
        self._namespace = namespace
        self.key_of = identifier.prepare(rule)
        self._places = identifier.places(rule)
        self._by_tier = {tier: self._layout(limits) for tier, limits in rule.limits.items()}
        self._for_all = self._for_tier(None) if len(self._by_tier) == 1 else None
        by_header, by_endpoint = rule.cost.header is not None, bool(rule.cost.endpoints)
        by_model = rule.cost.llm is not None
        self._cost = None if by_header or by_endpoint or by_model else rule.cost.default
        self._costs: dict[tuple[str, str], int] | None = None if by_header or by_model else {}
        self._prices = prices
        self.has_slots = any(layout.has_slots for layout in self._by_tier.values())
        """True if some callers take a slot."""

    def accuracies(self) -> Iterator[tuple[str, Accuracy]]:
        """The accuracy of its counters, by group, unless that is exact and of this region alone.
        Slots and markers of repeated requests are always exact."""
        accuracy = self.rule.accuracy
        if self.rule.across_regions:
            debt = self.rule.max_region_debt
            accuracy = replace(accuracy, across_regions=True, max_region_debt=debt)
        if accuracy == EXACT:
            return
        pairs = [
            pair
            for one in self._by_tier.values()
            for pair in zip(one.groups, one.limits, strict=True)
        ]
        slots = {group for group, limit in pairs if isinstance(limit, Concurrency)}
        for group, _ in pairs:
            if group not in slots:
                yield group, accuracy

    def plan(
        self,
        found: Found,
        cost: int | None,
        overrides: Overrides | None,
        priority: Priority = "default",
    ) -> RulePlan | None:
        """The plan for the request of *found*; None if the rule does not apply.

        *cost* replaces the cost of the rule. *priority* is the class of the request. Where apps may
        read the caller differently, it is charged under each reading.
        """
        if self._places:
            try:
                readings = found.readings(self._places)
            except AmbiguityError:
                return self._denial(1 if cost is None else cost)
            if readings:
                plans = [self._plan(one, cost, overrides, priority) for one in readings]
                return merged([one for one in plans if one is not None])
        return self._plan(found, cost, overrides, priority)

    def _denial(self, cost: int) -> RulePlan:
        """The plan that denies a request: its key can be read in too many ways."""
        (group,) = groups_of(self._namespace, f"{self.rule.id}!ambiguous", 1)
        check = Check(group, AMBIGUOUS, _NEVER, cost)
        return RulePlan(self.compiled, AMBIGUOUS, cost, (_NEVER,), (check,))

    def _plan(
        self, found: Found, cost: int | None, overrides: Overrides | None, priority: Priority
    ) -> RulePlan | None:
        """The plan for one reading of a request."""
        layout = self._for_all
        if layout is None:
            layout = self._for_tier(found["tier"])
            if layout is None:
                return None
        request, rule = found.request, self.rule
        key = self.key_of(request, found)
        if key is None:
            return None
        if cost is None:
            cost = self._cost
            if cost is None:
                cost = self._cost_of(request)
        block = None
        if overrides is not None:
            limits, block = overrides.apply(rule, key, layout.limits)
            layout = layout if limits is layout.limits else self._layout(limits)
        sheds = False
        if self._adjustment is not None:
            limits, sheds = self._adjustment.limits(layout.limits, found, priority)
            layout = layout._replace(limits=limits)
            sheds = sheds and block is None  # a block has nothing to do with capacity
        limits, groups, has_slots, has_queue = layout
        marker = None
        if rule.idempotency is not None and not has_queue:
            marker = marker_of(rule, found, key, cost, self._namespace)
        if len(groups) > 1 or has_slots:
            checks = checks_on(zip(groups, limits, strict=True), key, cost)
        else:
            checks = (Check(groups[0], key, limits[0], cost),)
        return RulePlan(self.compiled, key, cost, limits, checks, marker, block, sheds)

    def adjusted(self, limits: tuple[Limit, ...], found: Found) -> tuple[Limit, ...]:
        """*limits* under the present pressure for the caller of *found*, at default priority."""
        if self._adjustment is None:
            return limits
        return self._adjustment.limits(limits, found, "default")[0]

    def queueing(self, found: Found, cost: int | None, priority: Priority) -> Queueing | None:
        """The fair queue that a request waits in; None if the rule does not apply."""
        rule, request = self.rule, found.request
        key = self.key_of(request, found)
        if rule.fair is None or key is None or rule.mode != "enforce":
            return None
        if cost is None:
            cost = self._cost if self._cost is not None else self._cost_of(request)
        weight, weights = 1, rule.fair.weights
        if weights:
            weight = weights.get(found["tier"]) or weights.get(None, 1)
        return Queueing(self.compiled, key, cost or 1, weight, priority)

    def _cost_of(self, request: Request) -> int:
        """The cost of *request*, cached where only its path and its method matter."""
        if self.rule.cost.llm is not None:
            return self._estimate(self.rule.cost.llm, request)
        known, path = self._costs, request.path
        if known is None or len(path) > MAX_PATH:
            return cost_of(self.rule.cost, request, normalised_path(path))
        place = path, request.method
        cost = known.get(place)
        if cost is None:
            if len(known) >= MAX_COSTS:
                known.clear()
            cost = known[place] = cost_of(self.rule.cost, request, normalised_path(path))
        return cost

    def _estimate(self, cost: ModelCost, request: Request) -> int:
        """The amount to reserve for *request*; the default if it is no call of a language model."""
        if not may_call_model(request):
            return self.rule.cost.default
        return estimate(
            cost.count,
            request_of(request.path, request.attributes),
            default_output_tokens=cost.default_output,
            bytes_per_token=cost.bytes_per_token,
            prices=self._prices,
        )

    def _for_tier(self, tier: str | None) -> Layout | None:
        layout = self._by_tier.get(tier) or self._by_tier.get(None)
        return layout if layout is not None and layout.limits else None

    def _layout(self, limits: tuple[Limit, ...]) -> Layout:
        has_slots = any(isinstance(limit, Concurrency) for limit in limits)
        has_queue = any(isinstance(limit, LeakyQueue) for limit in limits)
        groups = groups_of(self._namespace, self.rule.id, len(limits))
        return Layout(limits, groups, has_slots, has_queue)


AMBIGUOUS: Final = "ambiguous"
"""The key of requests that are denied because their own can be read in too many ways."""

_NEVER: Final = DenyAll()


def merged(plans: list[RulePlan]) -> RulePlan | None:
    """One plan for the *plans* of a rule for the readings of a request: all or none are charged.

    A counter of several readings, whose tiers differ, has the slowest of their limits. A repeated
    request pays.
    """
    if len(plans) < 2:
        return plans[0] if plans else None
    found: dict[tuple[str, str], Check] = {}
    for plan in plans:
        for check in plan.checks:
            counter = check.group, check.key
            known = found.get(counter)
            if known is None or _pace(check.limit) < _pace(known.limit):
                found[counter] = check
    first, checks = plans[0], tuple(found.values())
    limits = tuple([check.limit for check in checks])
    block = next((one.block for one in plans if one.block is not None), None)
    sheds = any(one.sheds for one in plans)
    return RulePlan(first.rule, first.key, first.cost, limits, checks, None, block, sheds)


def _pace(limit: Limit) -> Fraction:
    """The units that *limit* allows in a nanosecond, in the long run."""
    return Fraction(limit.quota, limit.period_ns or 1)


def marker_of(rule: Rule, found: Found, key: str, cost: int, namespace: str) -> Marker | None:
    """The counters that recognise a request that was charged before under *rule*; None if it costs
    nothing, or has no key."""
    idempotency = rule.idempotency
    if idempotency is None or not cost:
        return None
    request = found.request
    given = request.header(idempotency.header)
    if not given:
        return None
    caller = tuple(found.get(name) for name in ("api_key", "user_id", "tenant"))
    who = caller if any(caller) else (found.ip,)
    path = normalised_path(request.path)
    bound = tuple([request.header(name) for name in idempotency.fingerprint])
    retry = repr((who, request.method.upper(), path, given.strip(), *bound))
    digest = blake2b(retry.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    once = TokenBucket(1, Fraction(SECOND, idempotency.ttl_ns))
    retries = SlidingWindowLog(idempotency.retries, plain_seconds(idempotency.ttl_ns))
    name = f"{key}&{digest}"
    return Marker(
        Check(group_name(namespace, f"{rule.id}!seen"), name, once, 1),
        Check(group_name(namespace, f"{rule.id}!retries"), name, retries, 1),
    )


# The overrides of a policy: counters that are blocked, or have more, for some time.


class Overrides:
    """The overrides of *policy*, by rule and key; those that have expired have no effect.

    Extra quota under a rule counts under its candidate too. (A blocked caller is denied before.)

    Raises `OptionError` for one of an unknown rule, `LimitError` for one that makes a limit too
    large.
    """

    __slots__ = ("_clock", "_found", "_larger")

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[tuple[str, str], Override] = {}
        self._larger: dict[tuple[Limits, int], Limits] = {}
        rules = {rule.id: rule for rule in policy.rules}
        for one in policy.overrides:
            if one.rule not in rules:
                raise OptionError(f"an override is for the rule {one.rule!r}, which is unknown")
            self._found[one.rule, one.key] = one
            if one.extra:
                self._enlarge(rules[one.rule], one)
        candidates = [rule for rule in policy.rules if rule.candidate_of is not None]
        for rule in candidates:
            for one in policy.overrides:
                if one.rule == rule.candidate_of and one.extra:
                    self._grant_beside(rule, one)

    def _enlarge(self, rule: Rule, one: Override) -> None:
        for limits in rule.limits.values():
            larger = tuple([with_extra(limit, one.extra) for limit in limits])
            self._larger[limits, one.extra] = larger

    def _grant_beside(self, candidate: Rule, one: Override) -> None:
        if (candidate.id, one.key) in self._found:
            return
        try:
            self._enlarge(candidate, one)
        except LimitError:  # a candidate must not keep a policy from being put in force
            return
        self._found[candidate.id, one.key] = one

    def concern(self, rules: Iterable[RulePlan]) -> bool:
        """True if one of *rules* has an override, in effect or not."""
        found = self._found
        counters = ((one.rule.id, check.key) for one in rules for check in one.checks)
        return any(counter in found for counter in counters)

    def apply(self, rule: Rule, key: str, limits: Limits) -> tuple[Limits, Block | None]:
        """The limits of *rule* for *key*, which are *limits* or larger, and its block, if any."""
        one = self._found.get((rule.id, key))
        if one is None or (wait_ns := one.until_ns - self._clock()) <= 0:
            return limits, None
        if one.block:
            return limits, Block(one.until_ns, wait_ns)
        return self._larger[limits, one.extra], None


_PATH_TOO_LONG: Final = RulePlan(
    CompiledRule("path-too-long", headers="off"),
    "",
    0,
    (_NEVER,),
    (Check("", "", _NEVER, 0),),
    block=Block(0, None, PATH),
)
"""The denial of a request whose path is longer than `LONGEST`, before any rule examines it."""

Costs = int | Mapping[str, int] | None
"""The cost of a request: for all rules, by the id of a rule, or None for that of the rules."""


@dataclass(frozen=True, slots=True)
class Concern:
    """A rule that limits a caller, and the *limits* that it has for it.

    *plan* is the peek at its counter; None if it has several for this caller. Overrides of a single
    counter are in both.
    """

    rule: CompiledRule
    limits: tuple[Limit, ...]
    plan: RulePlan | None

    @property
    def is_looked_up(self) -> bool:
        """True if the store is asked for its figures: it has one counter, which is not blocked."""
        return self.plan is not None and self.plan.block is None


class CompiledPolicy:
    """The rules of *policy*, compiled. Safe to share among threads.

    Secrets in keys are hashed with *salt*; *namespace* keeps the counters of different policies in
    one store apart. Overrides expire by *clock*. *scale* is the factor by which pressure lowers
    limits.
    """

    __slots__ = (
        "_cache",
        "_caller_matcher",
        "_classifier",
        "_matcher",
        "_model_matcher",
        "_namespace",
        "_overrides",
        "_plans_by_class",
        "_prepared",
        "_reads",
        "_scale",
        "_tier_places",
        "accuracies",
        "charges_after",
        "counts_endpoints",
        "has_estimates",
        "has_slots",
        "identifier",
        "policy",
    )

    def __init__(
        self,
        policy: Policy,
        *,
        salt: bytes = b"",
        namespace: str = "headgate",
        clock: Clock | None = None,
        scale: Scale | None = None,
    ) -> None:
        self.policy = policy
        self._namespace = namespace
        self.identifier = Identifier(policy.identity, salt=salt)
        self._matcher = Matcher(policy)
        self._tier_places = self.identifier.tier_places if _matches_tiers(policy) else ()
        self._scale = scale = scale or Scale()
        self._reads = reads_of(policy)
        self._cache = PlanCache(scale.version)
        prices = None if policy.prices is None else Prices(policy.prices)
        prepared = [
            PreparedRule(rule, self.identifier, namespace, scale, prices) for rule in policy.rules
        ]
        self._classifier = Classifier(policy.priorities) if policy.priorities else None
        self._plans_by_class = bool(policy.priorities) and any(
            rule.uses_priorities for rule in policy.rules
        )
        self._prepared = {one.rule.id: one for one in prepared}
        self.has_slots = any(one.has_slots for one in prepared)
        """True if requests may take slots, for which they need a lease."""
        self.counts_endpoints = any("endpoint" in rule.key_by for rule in policy.rules)
        """True if a key depends on the route of a request."""
        self.has_estimates = any(rule.cost.llm is not None for rule in policy.rules)
        """True if some requests are charged an estimate until their response has ended."""
        self._model_matcher = _model_matcher(policy)
        self.charges_after = any(rule.cost.after is not None for rule in policy.rules)
        """True if some requests are charged more when their response has ended."""
        self.accuracies: Accuracies = dict(pair for one in prepared for pair in one.accuracies())
        """The accuracy of counters, by group, where it is declared."""
        self._caller_matcher: CallerMatcher | None = None
        self._overrides: Overrides | None = None
        if policy.overrides:
            if clock is None:
                raise UsageError("a policy with overrides needs a clock")
            self._overrides = Overrides(policy, clock)

    def matching(self, request: Request) -> tuple[Rule, ...]:
        """The rules that match, those that do not apply to the caller included."""
        return () if len(request.path) > LONGEST else self._matching(self.identifier.find(request))

    def _matching(self, found: Found) -> tuple[Rule, ...]:
        """The rules that match the request of *found*, in some reading of its tier."""
        places = self._tier_places
        readings = found.readings(places) if places else ()
        if not readings:
            return self._matcher.matching(found.request, found)
        rules = [rule for one in readings for rule in self._matcher.matching(found.request, one)]
        ids = {rule.id for rule in rules}
        return tuple([rule for rule in self.policy.rules if rule.id in ids])

    def rule_named(self, rule_id: str) -> CompiledRule | None:
        """The rule *rule_id*; None if there is none."""
        found = self._prepared.get(rule_id)
        return None if found is None else found.compiled

    @property
    def reads_models(self) -> bool:
        """True if some rule needs to know what requests ask of a language model."""
        return self._model_matcher is not None

    def reads_model(self, request: Request) -> bool:
        """True if a rule needs to know what *request* asks of a language model."""
        if self._model_matcher is None or len(request.path) > LONGEST:
            return False
        if not may_call_model(request):
            return False
        return bool(self._model_matcher.matching(request, self.identifier.find(request)))

    def concerning(self, request: Request) -> tuple[Concern, ...]:
        """The rules for some request of the caller of *request*, in the order of the policy.

        The path and the method of *request* do not matter. Rules that are off or in shadow, or do
        not apply to the caller, are left out; those with hidden `headers` are not. The plans are
        peeks with a cost of 1: only that is denied when nothing is left, and has a `retry_after`.
        """
        if self._caller_matcher is None:  # built on first use; by two threads at worst
            self._caller_matcher = CallerMatcher(self.policy.rules)
        found = self.identifier.find(request)
        concerns = []
        for rule in self._caller_matcher.matching(request, found):
            one = self._prepared[rule.id]
            limits = rule.limits_for(found["tier"])
            sample = _request_under(rule, request) if limits else None
            key = one.key_of(sample or request, found) if limits else None
            if key is None:
                continue
            block, plan = None, None
            if self._overrides is not None and sample:
                limits, block = self._overrides.apply(rule, key, limits)
            limits = one.adjusted(limits, found)
            if sample:
                plan = plan_rule(one.compiled, limits, key, 1, self._namespace, block=block)
            concerns.append(Concern(one.compiled, limits, plan))
        return tuple(concerns)

    def plan(
        self,
        request: Request,
        *,
        cost: Costs = None,
        lease: str | None = None,
        is_estimate: bool = False,
        is_shared: bool = True,
    ) -> Plan:
        """The plan of *request*.

        *cost* replaces the cost of the rules, for all or by the id of a rule. *lease* names the
        slots that the request takes under concurrency limits. A cost that *is_estimate* is held,
        and settled later. Equal requests share one plan (see `plan_cache`), unless *is_shared* is
        false: for callers that keep plans themselves.
        """
        if cost is not None:
            _check_costs(cost)
        if is_estimate or not is_shared or self._reads is None:
            return self._planned(request, cost, lease, is_estimate=is_estimate)[0]
        cache = self._cache
        if cache.version != self._scale.version:
            cache = self._cache = PlanCache(self._scale.version)
        key = request.parts(self._reads), cost if cost is None else _hashable(cost)
        try:
            known = cache.get(key)
        except TypeError:  # a framework has put something into the request that has no hash
            return self._planned(request, cost, lease)[0]
        if known is not None:
            return known[0]
        plan, is_plain = self._planned(request, cost, lease)
        if is_plain and cache.version == self._scale.version:  # the same during the planning
            cache.keep(key, plan)
        return plan

    def _planned(
        self, request: Request, cost: Costs, lease: str | None, *, is_estimate: bool = False
    ) -> tuple[Plan, bool]:
        """A new plan, and True if equal requests may share it."""
        if len(request.path) > LONGEST:
            return Plan(self.policy.revision, (_PATH_TOO_LONG,)), False
        found = self.identifier.find(request)
        prepared, overrides = self._prepared, self._overrides
        priority: Priority = "default"
        if self._plans_by_class:
            priority = self._class_of(found)
        rules, queues = [], []
        has_slots = False
        for rule in self._matching(found):
            one = prepared[rule.id]
            own = cost if cost is None or isinstance(cost, int) else _named(cost, rule)
            if rule.fair is not None:
                queues.append(one.queueing(found, own, priority))
                continue
            planned = one.plan(found, own, overrides, priority)
            if planned is not None:
                rules.append(planned)
                has_slots = has_slots or (one.has_slots and planned.has_slots)
        open_ = _estimated(rules, cost) if is_estimate else NOTHING_OPEN
        if self.has_estimates and may_call_model(request):
            open_ |= {one.rule.id for one in rules if one.rule.hold_ns is not None and one.cost}
        waits = tuple([one for one in queues if one is not None])
        plan = Plan(self.policy.revision, tuple(rules), lease if has_slots else None, open_, waits)
        is_shared = plan.is_plain and not has_slots
        return plan, is_shared and (overrides is None or not overrides.concern(rules))

    def priority_of(self, request: Request) -> Priority:
        """The priority of *request*."""
        if len(request.path) > LONGEST:
            return "default"
        return self._class_of(self.identifier.find(request))

    def _class_of(self, found: Found) -> Priority:
        return "default" if self._classifier is None else self._classifier.of(found.request, found)

    def plan_of(self, rule_id: str, request: Request, cost: int | None = None) -> Plan:
        """The plan of *request* under one rule, which a gateway has matched already.

        *cost* replaces the cost of the rule. The plan is empty if there is no such rule, it is off,
        or it does not apply to the caller; and it has no lease, so it takes no slots.
        """
        if cost is not None:
            checked_cost(cost)
        one = self._prepared.get(rule_id)
        planned = None
        if one is not None and one.rule.mode != "off":
            found = self.identifier.find(request)
            priority = self._class_of(found) if self._plans_by_class else "default"
            planned = one.plan(found, cost, self._overrides, priority)
        return Plan(self.policy.revision, () if planned is None else (planned,))


def _model_matcher(policy: Policy) -> Matcher | None:
    """Finds the rules that depend on the call of a language model, of any model and tier; None if
    there are none."""
    rules = [
        replace(rule, match=replace(rule.match, models=(), tiers=()))
        for rule in policy.rules
        if rule.cost.llm is not None or rule.match.models
    ]
    return Matcher(Policy(tuple(rules))) if rules else None


def _matches_tiers(policy: Policy) -> bool:
    return any(rule.match.tiers for rule in policy.rules)


def _check_costs(cost: Costs) -> None:
    if isinstance(cost, Mapping):
        for rule, named in cost.items():
            checked_cost(named, f"the cost under {rule!r}")
    elif cost is not None:
        checked_cost(cost)


def _hashable(cost: Costs) -> Hashable:
    return tuple(sorted(cost.items())) if isinstance(cost, Mapping) else cost


def _named(costs: Mapping[str, int], rule: Rule | CompiledRule) -> int | None:
    """The cost of *rule* in *costs*; of a candidate that of the rule that it may replace."""
    found = costs.get(rule.id)
    return costs.get(rule.candidate_of or "") if found is None else found


def _estimated(rules: Iterable[RulePlan], cost: Costs) -> frozenset[str]:
    """The rules whose cost is an estimate: those that have one in *cost*."""
    return frozenset(
        one.rule.id
        for one in rules
        if not isinstance(cost, Mapping) or _named(cost, one.rule) is not None
    )


def _request_under(rule: Rule, request: Request) -> Request | None:
    """A request of the same caller under *rule*; None if several would have different keys."""
    method: str | None = request.method
    endpoint: str | None = ""
    if "method" in rule.key_by:
        method = only_method(rule.match)
    if "endpoint" in rule.key_by:
        endpoint = only_endpoint(rule.match)
    if method is None or endpoint is None or f"attribute:{ROUTE}" in rule.key_by:
        return None
    # As a route, the endpoint takes the place of the path and of the route of the request itself.
    attributes = {**request.attributes, ROUTE: endpoint} if endpoint else request.attributes
    host, headers, peer = request.host, request.headers, request.peer
    return Request(method, request.path, host, headers, peer, attributes)
