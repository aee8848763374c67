"""Plans: the operation that checks all rules of a request at once. No I/O.

The rules that decide are one `Take`: all or nothing. Each shadow rule is a take of its own beside
it, in the same round trip, so that a denial of it changes nothing for the others. (It counts
requests too that another rule denied.)

A repeated request is recognised by a counter of one unit per lifetime, which is part of the rule's
take: where it has been charged already it denies, and with that the whole take, so nothing is
charged. Then the take is made again: those that have seen the request charge a second counter,
that of free retries, and nothing else. If that denies too, the retries are used up, and the request
pays like any other. So a retry costs a second round trip, and is free only under the rules that say
so. In a queue it waits for its place as every request does.

Where the counter of a rule is blocked by an override, the store is not called for it. A shadow
rule then reports what it would have decided; one that decides denies the whole request, and no rule
is charged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headgate.decision import OVERRIDE, HeaderMode, OnFailure
from headgate.limits import Concurrency, LeakyQueue
from headgate.stores.base import groups_of
from headgate.stores.operations import Check, ReleaseSlot, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.llm.protocol import Counted
    from headgate.llm.usage import Usage
    from headgate.responses.headers import LimitTemplate, StackTemplate
    from headgate.stores.base import Prepared
    from headgate.stores.operations import Outcomes


Mode = Literal["enforce", "shadow", "off"]
"""The mode of a rule: it decides, it only reports what it would have decided, or it is off."""

Priority = Literal["critical", "default", "sheddable"]

DEFAULT_ON_FAILURE: Final = OnFailure()


@dataclass(slots=True)
class CompiledRule:
    """The part of a rule that matters after planning. Never changed."""

    id: str
    mode: Mode = "enforce"
    headers: HeaderMode = "on"
    """The header mode of the responses to its requests."""
    on_failure: OnFailure = DEFAULT_ON_FAILURE
    candidate_of: str | None = None
    """The id of the rule that this one, in shadow, may replace."""
    charges_after: bool = False
    """True if a request may cost more at its end than it was charged."""
    counts: Counted = "requests"
    """The thing that it counts, for clients."""
    hold_ns: int | None = None
    """Time for which its cost, an estimate, is held until the request is settled. None if the cost
    is known at the start."""
    final_cost: FinalCost | None = field(default=None, compare=False)
    """The cost of a call of a language model by its usage, if that decides."""
    declared: Any = None
    """The rule of the policy, for explanations; None if there is no policy."""
    charges_expired: bool = False
    """True if what is held for a request is charged in full when the hold expires unsettled."""


FinalCost = Callable[["Usage", str | None], int]
"""The cost of a call by its usage and the name of the model that was asked."""

NOTHING_OPEN: Final[frozenset[str]] = frozenset()

Stages = dict[str, Literal["retry", "pay"]]
"""By the id of a rule that has seen the request before: it is a free retry, or pays as the free
ones are used up."""


class PreparedTake(NamedTuple):
    """A prepared take of the store, with the keys and costs of a request."""

    handle: Prepared
    keys: tuple[str, ...]
    costs: tuple[int, ...]


class Marker(NamedTuple):
    """The counters that recognise a repeated request."""

    once: Check
    """One unit, that the first request takes."""
    retries: Check
    """One unit for each free retry."""


class Block(NamedTuple):
    """The end of the block of a counter, since the epoch, and the time from the planning to it;
    None if it has no end."""

    until_ns: int
    wait_ns: int | None
    source: str = OVERRIDE
    """The source of its denials."""


@dataclass(slots=True)
class RulePlan:
    """A rule that applies to a request: its key, cost, limits and checks.

    Never changed. (Not frozen: plans are made for every request, and that would triple the time.)
    """

    rule: CompiledRule
    key: str
    cost: int
    limits: tuple[Limit, ...]
    checks: tuple[Check, ...]
    marker: Marker | None = None
    """The counters that recognise a request that was charged before."""

    block: Block | None = None
    """The block of the counter, if an override blocks it."""

    sheds: bool = False
    """True if a denial is for lack of capacity, not because the caller has used its quota."""

    @property
    def has_slots(self) -> bool:
        """True if a limit is a `Concurrency`."""
        for limit in self.limits:  # noqa: SIM110 (half the time of any())
            if isinstance(limit, Concurrency):
                return True
        return False

    @property
    def is_shown(self) -> bool:
        """True if the headers of responses show its figures."""
        return self.rule.headers == "on" and self.rule.mode == "enforce"

    @property
    def rates(self) -> tuple[Check, ...]:
        """The checks that charge something."""
        return tuple([one for one in self.checks if not isinstance(one.limit, Concurrency)])

    @property
    def amounts(self) -> tuple[Check, ...]:
        """The checks whose amounts can be held, settled and refunded: not slots, nor places in
        queues."""
        given_once = Concurrency | LeakyQueue
        return tuple([one for one in self.checks if not isinstance(one.limit, given_once)])

    @property
    def slots(self) -> tuple[Check, ...]:
        """The checks that take slots."""
        return tuple([one for one in self.checks if isinstance(one.limit, Concurrency)])


@dataclass(slots=True)
class Queueing:
    """A request that has to wait in the fair queue of *rule*, in this process."""

    rule: CompiledRule
    key: str
    cost: int
    weight: int
    priority: Priority


@dataclass(slots=True)
class Plan:
    """All that applies to a request, under the policy of *revision*."""

    revision: int
    rules: tuple[RulePlan, ...]
    lease: str | None = None
    open: frozenset[str] = NOTHING_OPEN
    """The ids of the rules whose cost is known only afterwards: it is held, and settled then."""

    queues: tuple[Queueing, ...] = ()
    """The fair queues that it waits in if it is allowed otherwise; the caller sees to that."""

    awaits_places: bool = False
    """True if it waits in them: then it counts as allowed only when it has its places."""

    is_recorded: bool = True
    """False for a limiter without a name: nothing is counted for it."""

    deciding: tuple[RulePlan, ...] = field(init=False, repr=False, compare=False)
    """The rules that decide."""

    shadows: tuple[RulePlan, ...] = field(init=False, repr=False, compare=False)
    """The shadow rules that are checked."""

    blocked: tuple[RulePlan, ...] = field(init=False, repr=False, compare=False)
    """The rules that are not checked because their counters are blocked."""

    is_plain: bool = field(init=False, repr=False, compare=False)
    """True if nothing in it belongs to one request or one moment: no slots, holds, markers of
    repeated requests and blocks. Prepared takes decide it, and an equal request may use it
    again."""

    prepared: tuple[PreparedTake, ...] = field(init=False, repr=False, compare=False)
    """Each of the `takes` of a plain plan, made by *engine* when it is decided first."""

    is_immediate: bool = field(init=False, repr=False, compare=False)
    """True if the prepared takes may have their outcomes at once: see `Engine.decide_now`."""

    may_delay: bool = field(init=False, repr=False, compare=False)
    """True if a rule has a queue in the store, where an allowed request may have to wait."""

    decide: Callable[[str, int], Decision] | None = field(init=False, repr=False, compare=False)
    """The function that decides for its only rule, if the store makes decisions itself."""

    allowed_cell: list[int] = field(init=False, repr=False, compare=False)
    """The count of requests that its only rule allows; set if `decide` is."""

    template: LimitTemplate | StackTemplate | None = field(init=False, repr=False, compare=False)
    """The headers of requests that its only rule allows, if they have any."""

    engine: object = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.engine = self.decide = self.template = None
        self.deciding = rules = self.rules
        self.shadows = self.blocked = ()
        self.is_plain = self.lease is None and not self.open
        for one in rules:
            if one.rule.mode != "enforce" or one.marker is not None or one.block is not None:
                self._separate()
                return

    def _separate(self) -> None:
        rules = self.rules
        if any(one.marker is not None or one.block is not None for one in rules):
            self.is_plain = False
        self.deciding = tuple([one for one in rules if one.rule.mode == "enforce"])
        self.blocked = tuple([one for one in rules if one.block is not None])
        shadows = [one for one in rules if one.rule.mode == "shadow" and one.block is None]
        self.shadows = tuple(shadows)

    def for_key(self, key: str) -> Plan:
        """A copy of this plain plan of one rule for the counters of *key*, prepared as this is."""
        (one,) = self.rules
        checks = [Check(check.group, key, check.limit, check.cost) for check in one.checks]
        plan = Plan(self.revision, (RulePlan(one.rule, key, one.cost, one.limits, tuple(checks)),))
        if self.engine is not None:
            ((handle, keys, costs),) = self.prepared
            plan.prepared = (PreparedTake(handle, (key,) * len(keys), costs),)
            plan.is_immediate, plan.may_delay = self.is_immediate, self.may_delay
            plan.decide, plan.template = self.decide, self.template
            if self.decide is not None:
                plan.allowed_cell = self.allowed_cell
            plan.engine = self.engine
        return plan

    @property
    def has_queue(self) -> bool:
        """True if a rule has a queue in the store, where an allowed request may have to wait."""
        return any(isinstance(limit, LeakyQueue) for one in self.deciding for limit in one.limits)

    @property
    def is_denied(self) -> bool:
        """True if a rule that decides is blocked: the store is not called then."""
        return any(one.rule.mode == "enforce" for one in self.blocked)

    @property
    def left_open(self) -> list[RulePlan]:
        """The rules that have something to settle afterwards."""
        checked = [one for one in self.rules if one.block is None]
        return [one for one in checked if one.rule.id in self.open and one.amounts]

    def for_holding(self) -> Plan:
        """The plan without markers of repeated requests where something is held, which is settled
        once anyway, and in shadow rules."""
        rules = [
            one
            if one.rule.id not in self.open and one.rule.mode == "enforce"
            else replace(one, marker=None)
            for one in self.rules
        ]
        return replace(self, rules=tuple(rules))

    @property
    def takes(self) -> tuple[tuple[RulePlan, ...], ...]:
        """The rules of each take: those that decide, if there are any, then each shadow rule."""
        shadows = [(one,) for one in self.shadows]
        return (self.deciding, *shadows) if self.deciding else tuple(shadows)

    def operation(self, *, consume: bool = True) -> TakeEach:
        """The operation that decides; empty if no rule applies. Not for a blocked plan."""
        return TakeEach(tuple([self.take(rules, {}, consume=consume) for rules in self.takes]))

    def take(self, rules: Sequence[RulePlan], stages: Stages, *, consume: bool) -> Take:
        """The take of *rules*, one of `takes`, when repeated requests are at *stages*."""
        paying = [one for one in rules if stages.get(one.rule.id) != "retry"]
        checks = [check for one in paying for check in one.checks]
        lease = self.lease if consume else None
        return Take((*checks, *marks_of(rules, stages)), consume=consume, lease=lease)

    def leaving(self, granted: Iterable[RulePlan]) -> ReleaseSlot | None:
        """The operation that releases the slots of the rules *granted*; None if there are none."""
        slots = [check for one in granted for check in one.slots]
        return ReleaseSlot(tuple(slots), self.lease) if self.lease and slots else None


def marks_of(rules: Iterable[RulePlan], stages: Stages) -> list[Check]:
    """The counters of repeated requests that are checked with *rules* at *stages*."""
    return [mark for _, mark in _marked(rules, stages)]


def advance(rules: Iterable[RulePlan], stages: Stages, outcomes: Outcomes) -> bool:
    """Go on with *stages* after the *outcomes* of a take, whose last are those of `marks_of`.

    True if the take was denied by one of these counters: then it is to be made again.
    """
    marked = _marked(rules, stages)
    pairs = zip(marked, outcomes[len(outcomes) - len(marked) :], strict=True)
    denied = [one.rule.id for (one, _), outcome in pairs if not outcome.allowed]
    for rule_id in denied:
        stages[rule_id] = "pay" if rule_id in stages else "retry"
    return bool(denied)


def replayed(stages: Stages) -> frozenset[str]:
    """The ids of the rules under which the request is a free retry."""
    return frozenset([rule_id for rule_id, stage in stages.items() if stage == "retry"])


def _marked(rules: Iterable[RulePlan], stages: Stages) -> list[tuple[RulePlan, Check]]:
    marked = []
    for one in rules:
        stage = stages.get(one.rule.id)
        if one.marker is not None and stage != "pay":
            marked.append((one, one.marker.once if stage is None else one.marker.retries))
    return marked


def plan_rule(
    rule: CompiledRule,
    limits: tuple[Limit, ...],
    key: str,
    cost: int,
    namespace: str,
    *,
    counter: str | None = None,
    block: Block | None = None,
) -> RulePlan:
    """The plan of *rule* for a request of *key*. The counters have the rule's id or *counter*."""
    groups = groups_of(namespace, counter or rule.id, len(limits))
    pairs = zip(groups, limits, strict=True)
    return RulePlan(rule, key, cost, limits, checks_on(pairs, key, cost), None, block)


def checks_on(counters: Iterable[tuple[str, Limit]], key: str, cost: int) -> tuple[Check, ...]:
    """The checks of a request, one of each limit; slots cost 1."""
    return tuple(
        [
            Check(group, key, limit, 1 if isinstance(limit, Concurrency) else cost)
            for group, limit in counters
        ]
    )
